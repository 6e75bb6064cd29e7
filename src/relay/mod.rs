//! The relay: one WebSocket per dashboard or overlay, with a snapshot, patches, events, chat and raids.
//!
//! Imports follow the flow downhill; what goes up goes to a `Recipient` that was handed down.
//!
//! ```text
//! listener             the handshake
//! hub                  registry of live connections; the only door from api and push     presence   who, how many
//! recent_changes       pure: deletions and changed access, which older answers must not undo
//! client_socket        one WebSocket: parse, authorise, commands                         admission  the right to be open
//! relay_worker         the subscriptions of one thread                                   server_lookup  asks the hub
//! server_subscription  one paired server on one thread     watchers   who may watch, and which sockets do
//! game_connection      one paired server: mailbox, link, timers
//! link_supervisor      connects, polls, connects again        connect_turns  not all at once   device_looks  one at a time
//! poll_plan            pure: what is asked for, and when
//! stored_world         what earlier links left
//! alarm_delivery       alarms → incidents → ledger → sockets → outcome                   commands   toggle
//! camera_looks         one look at a camera for all who pull it
//! ledger               what alarms want stored: in order, and within a moment or later
//! fact_sink            events and chat into the database, in batches    recent_events  pure: one event, however many links
//! shop_watcher         its link's answers into the market, watched offers out    markets  pure: one for each game server
//! publisher            position, snapshot, subscribers: one encoding for all
//! live_state           pure: update in, outcome out                                      team_chat  which lines are new
//! sockets              those of one thread, by number                                    turns      pure: who is served when
//! socket               the stream      send_queue   pure: priorities      frame_budget  pure: the rate limit
//! feed                 patch_log       pure: merged patches, when a snapshot is better   steps  pure: those of a minute
//! publication          what a game connection publishes
//! protocol  close      what is said on the wire          receipt      which sockets took a frame
//! frame                one encoding for all               deflate      and one compressed
//! send_counts          what each thread sends, for operators
//! schema               the same as a JSON Schema
//! ```

pub mod admission;
pub mod alarm_delivery;
pub mod camera_looks;
pub mod client_socket;
pub mod close;
pub mod commands;
pub mod connect_turns;
pub mod context;
pub mod deflate;
pub mod device_looks;
pub mod fact_sink;
pub mod feed;
pub mod frame;
pub mod frame_budget;
pub mod game_connection;
pub mod hub;
pub mod ledger;
pub mod link_counts;
pub mod link_end;
pub mod link_supervisor;
pub mod listener;
pub mod live_state;
pub mod markets;
mod pairing_news;
pub mod patch_log;
pub mod permission;
pub mod poll_plan;
pub mod presence;
pub mod protocol;
pub mod publication;
pub mod publisher;
pub mod receipt;
pub mod recent_changes;
pub mod recent_events;
pub mod relay_worker;
pub mod schema;
pub mod send_counts;
pub mod send_queue;
pub mod server_lookup;
pub mod server_subscription;
pub mod shop_watcher;
pub mod socket;
pub mod sockets;
pub mod steps;
mod stored_world;
pub mod team_chat;
pub mod toggles;
pub mod turns;
pub mod watchers;

use std::sync::Arc;

use actix::{Actor as _, Addr, ArbiterHandle};

use self::{
    context::RelayContext,
    hub::{Hub, RelayHealth},
};

/// Starts the relay without a listener: the hub, and by it a game connection for each paired server on these threads
/// (at least one).
pub fn start(context: Arc<RelayContext>, health: Arc<RelayHealth>, arbiters: Vec<ArbiterHandle>) -> Addr<Hub> {
    Hub::new(context, health, arbiters).start()
}
