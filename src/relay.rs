//! The relay: one WebSocket per dashboard or overlay, with a snapshot, patches, events, chat and raids.
//!
//! Imports go down in this drawing; `>` names the rooms that a room imports. What goes up goes to a `Recipient` that was
//! handed down.
//!
//! ```text
//! listener   the handshake                                                    > hub client wire
//! hub        registry of live connections; the only door from api and push    > alarms client game market shared state wire
//!   admitting             which sockets may be open
//!   presence              pure: who, how many, whether one more may come
//!   online                users who are online
//!   watching              who may watch changes
//!   recent_changes        pure: deletions and changed access, which older answers must not undo
//!   commands              of users, and questions about devices
//!   cameras               frames for those who pull
//!   alarms                pushed ones, drills, acknowledgements
//!   players               tracked ones that come and go
//!   pairing               news of helper devices to a user's browsers
//!   pairing_news          pure: that news
//!   passing_on            messages from the API to game connections
//!   to_connection         and how they get there
//!   counting              asks all links how they are
//!   link_counts           pure: the sums, for operators
//!   ending                sockets first, links when they are gone
//! client     one WebSocket each, and what its thread watches                  > game wire
//!   client_socket         one WebSocket: parse, authorise, commands
//!   admission             the right to be open
//!   permission            pure: what a token may send
//!   relay_worker          the subscriptions of one thread
//!   server_lookup         asks the hub
//!   server_subscription   one paired server on one thread
//!   watchers              who may watch, and which sockets do
//!   sockets               those of one thread, by number
//!   timer_wheel           pure: which sockets are served when
//!   socket                the stream
//!   send_queue            pure: priorities, and a client that is too slow
//!   frame_budget          pure: the rate limit
//!   feed                  a paired server as the sockets of one thread see it
//!   patch_log             pure: merged patches, when a snapshot is better
//! game       one connection to each game server                               > alarms market state shared wire
//!   game_connection       one paired server: mailbox, live state, timers; a file for each subject
//!     team                commands in the team's chat
//!   pool                  links, each kept up
//!     pooled_link         connects, and connects again
//!     link_talk           what is asked over one that is up
//!     poll_plan           pure: what is asked for again, and when
//!     link_owner          the game connection that needs it
//!     link_report         what it reports
//!     link_end            why it ended
//!     wake                what it is woken by
//!     stored_world        what earlier links left
//!   device_refreshes      looks at changed devices, one at a time
//!   commands              what users want of a game server
//!   toggles               of switches, one at a time for each
//!   camera_capture        one look at a camera for all who pull it
//!   team_speech           says lines in a team's chat
//!   echoes                pure: lines that users say, until the game repeats them
//! alarms     on their way into incidents and to the sockets                   > state shared wire
//!   alarm_delivery        alarms → incidents → ledger → sockets → outcome
//!   ledger                what alarms want stored: in order, and within a moment or later
//!   received_at           the moment from which the way of an alarm is timed
//! market     offers of shops                                                  > state shared
//!   shop_watcher          its link's answers into the market, watched offers out
//! state      what is known of a paired server
//!   live_state            pure: update in, outcome out; composed of the three parts
//!   world_state           the game server's part
//!   world_facts           what it knows, as all who show it see it
//!   team_state            the team's
//!   own_state             the paired server's own
//!   state_step            one document and one outcome for all of them
//!   game_update           the update
//!   outcome               the outcome
//!   team_chat             pure: which lines are new
//! wire       messages, encoded and counted
//!   publisher             position, snapshot, subscribers: one encoding for all
//!   publication           what a game connection publishes
//!   steps                 pure: those of a minute
//!   protocol              what is said on the wire
//!   close                 and why a socket ends
//!   schema                the same as a JSON Schema
//!   frame                 one encoding for all
//!   deflate               and one compressed
//!   receipt               which sockets took a frame
//!   send_counts           what each thread sends, for operators
//! shared     one for all connections
//!   context               what the actors of the relay share
//!   teams                 which link answers a line of a team's chat, and the lines to say there
//!   chat_texts            those of answers, as admins wrote them
//!   connect_pacer         not all at once
//!   write_behind          events and chat into the database, in batches
//!   recent_events         pure: one event, however many links
//!   markets               one for each game server
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
