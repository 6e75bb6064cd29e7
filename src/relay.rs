//! The relay: one WebSocket per dashboard or overlay, with a snapshot, patches, events, chat and raids.
//!
//! Imports follow the flow downhill; what goes up goes to a `Recipient` that was handed down.
//!
//! ```text
//! listener the handshake
//! hub      registry of live connections; the only door from api and push
//!   presence             who, how many
//!   recent_changes       pure: deletions and changed access, which older answers must not undo
//! client   one WebSocket each, and what its thread watches
//!   client_socket        one WebSocket: parse, authorise, commands
//!   admission            the right to be open
//!   relay_worker         the subscriptions of one thread
//!   server_lookup        asks the hub
//!   server_subscription  one paired server on one thread
//!   watchers             who may watch, and which sockets do
//!   sockets              those of one thread, by number
//!   turns                pure: who is served when
//!   socket               the stream
//!   send_queue           pure: priorities
//!   frame_budget         pure: the rate limit
//!   feed  patch_log      pure: merged patches, when a snapshot is better
//! game     one connection to each game server
//!   game_connection      one paired server: mailbox, link, timers
//!   link_supervisor      connects, polls, connects again
//!   device_refreshes         one at a time
//!   poll_plan            pure: what is asked for, and when
//!   stored_world         what earlier links left
//!   commands             toggle
//!   camera_capture         one look at a camera for all who pull it
//! alarms   on their way into incidents and to the sockets
//!   alarm_delivery       alarms → incidents → ledger → sockets → outcome
//!   ledger               what alarms want stored: in order, and within a moment or later
//! market   offers of shops
//!   shop_watcher         its link's answers into the market, watched offers out
//! state    what is known of a paired server
//!   live_state           pure: update in, outcome out
//!   team_chat            which lines are new
//! wire     messages, encoded and counted
//!   publisher            position, snapshot, subscribers: one encoding for all
//!   steps                pure: those of a minute
//!   publication          what a game connection publishes
//!   protocol  close      what is said on the wire
//!   receipt              which sockets took a frame
//!   frame                one encoding for all
//!   deflate              and one compressed
//!   send_counts          what each thread sends, for operators
//!   schema               the same as a JSON Schema
//! shared   one for all connections
//!   connect_pacer        not all at once
//!   write_behind            events and chat into the database, in batches
//!   recent_events        pure: one event, however many links
//!   markets              pure: one for each game server
//! ```

pub mod alarms;
pub mod client;
pub mod game;
pub mod hub;
pub mod listener;
pub mod market;
pub mod shared;
pub mod state;
pub mod wire;

use std::sync::Arc;

use actix::{Actor as _, Addr, ArbiterHandle};

use self::{
    hub::{Hub, RelayHealth},
    shared::context::RelayContext,
};

/// Starts the relay without a listener: the hub, and by it a game connection for each paired server on these threads
/// (at least one).
pub fn start(context: Arc<RelayContext>, health: Arc<RelayHealth>, arbiters: Vec<ArbiterHandle>) -> Addr<Hub> {
    Hub::new(context, health, arbiters).start()
}
