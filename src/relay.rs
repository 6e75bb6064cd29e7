//! The relay: one WebSocket per dashboard or overlay, with a snapshot, patches, events, chat and raids.
//!
//! Imports go down in this drawing; `>` names the rooms that a room imports. What goes up goes to a `Recipient` that was
//! handed down.
//!
//! ```text
//! listener   the handshake                                                    > hub client wire
//! hub        registry of live connections; the door from api and push         > alarms client game market remote shared state wire
//!   admitting             which sockets may be open
//!     admissions          pure: their sessions, which the database is asked for
//!   presence              pure: who, how many, whether one more may come
//!   link_statuses         how the links of servers are
//!   finding               a server, and who may watch it
//!   watching              who may watch changes
//!   recent_changes        pure: deletions and changed access, which older answers must not undo
//!   reported_changes      pairings, deletions, sessions that end
//!   commands              of users, and questions about devices
//!   cameras               frames for those who pull
//!   alarms                pushed ones that no game connection took, drills, acknowledgements
//!   players               tracked ones that come and go
//!   pairing               news of helper devices to a user's browsers
//!     pairing_news        pure: that news
//!   passing_on            messages from the API to game connections
//!   to_connection         and how they get there
//!   connection_events     a link's status, a panic
//!   counting              asks all links how they are
//!     link_counts         pure: the sums, for operators
//!   ending                sockets first, links when they are gone
//!   nodes                 what there is on a node of several only
//!     owned_servers       the servers of this node
//!     taking_parts        and their game connections, as they come and go
//!     handing_over        from node to node, with what is known of them
//!     handed_servers      pure: that, until they are here
//!     watching_remotely   sockets here, servers there, and the other way round
//!     remote_servers      the feeds and watchers for that
//!     remote_commands     questions and commands, and their answers
//!     push_sessions       questions about the push sessions of users
//!     push_session_reads  pure: these questions
//!     online              users who are online, at all nodes
//!     other_nodes         pure: news for other nodes and from them
//!     sharing_news        and what follows from these
//! client     one WebSocket each, and what its thread watches                  > game wire
//!   client_socket         one WebSocket: parse, authorise, commands
//!   admission             the right to be open
//!   permission            pure: what a token may send
//!   relay_worker          the subscriptions of one thread
//!   server_lookup         asks the hub
//!   server_subscription   one paired server on one thread
//!   announced_alarms      which of its alarms have been announced
//!   watchers              who may watch, and which sockets do
//!   sockets               those of one thread, by number
//!   timer_wheel           pure: which sockets are served when
//!   socket                the stream
//!   send_queue            pure: priorities, and a client that is too slow
//!   frame_budget          pure: the rate limit
//!   feed                  a paired server as the sockets of one thread see it
//!   patch_log             pure: merged patches, when a snapshot is better
//! remote     servers whose game connection is on another node                 > alarms game wire
//!   remote_feed           at the node of the sockets
//!   remote_watchers       at that of the game connection
//!   remote_message        pure: the messages between them
//!   remote_question       pure: questions and commands among these
//! game       one connection to each game server                               > alarms market state shared wire
//!   game_connection       one paired server: mailbox, live state, timers; a file for each subject
//!     team                commands in the team's chat
//!     mates               one link reads for all users of a team; the others rest
//!   team_hosts            links that may read for a whole team
//!   pool                  links, each kept up
//!     pooled_link         connects, and connects again
//!     link_talk           what is asked over one that is up
//!     poll_plan           pure: what is asked for again, and when
//!     link_owner          the game connection that needs it
//!     link_report         what it reports
//!     link_end            why it ended
//!     link_slots          turns of links at a game server that takes no more
//!     wake                what it is woken by
//!     stored_world        what earlier links left
//!   seats                 paired servers that sit at a link, and what each of them gets
//!   device_refreshes      looks at changed devices, one at a time
//!   commands              what users want of a game server
//!   toggles               of switches, one at a time for each
//!   camera_capture        one look at a camera for all who pull it
//!   team_speech           says lines in a team's chat
//!   echoes                pure: lines that users say, until the game repeats them
//! alarms     on their way into incidents and to the sockets                   > state shared wire
//!   alarm_routes          pushed ones to the game connection that runs, or to the hub
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
//!   handed_state          what goes along to another node
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
//!   team_timers           those of each team, for all of its paired servers
//!   own_link              over which alone something is done as a player
//!   chat_texts            those of answers, as admins wrote them
//!   connect_pacer         not all at once
//!   write_behind          events and chat into the database, in batches
//!   recent_events         pure: one event, however many links
//!   markets               one for each game server
//!   monument_maps         likewise
//! ```

pub mod alarms;
pub mod client;
pub mod game;
pub mod hub;
pub mod listener;
pub mod market;
pub mod remote;
pub mod shared;
pub mod state;
pub mod wire;

use std::sync::Arc;

use actix::{Actor as _, Addr, ArbiterHandle};

use self::{
    hub::{AlarmRoutes, Hub, HubNode, RelayHealth},
    shared::context::RelayContext,
};

/// Starts the relay without a listener: the hub, and by it a game connection for each paired server on these threads
/// (at least one), to which these routes lead pushed alarms; on a node of several, for each of those that it has.
pub fn start(
    context: Arc<RelayContext>,
    health: Arc<RelayHealth>,
    arbiters: Vec<ArbiterHandle>,
    alarm_routes: AlarmRoutes,
    node: Option<HubNode>,
) -> Addr<Hub> {
    Hub::new(context, health, arbiters, alarm_routes, node).start()
}
