//! The relay: one WebSocket per dashboard or overlay, with a snapshot, patches, events, chat and raids.
//!
//! The path of a frame: [`link_keeper`] asks the game server, [`game_connection`] edits the live state and encodes one
//! frame for everybody, [`server_subscription`] carries it to a worker thread, and [`socket`] writes it as far as
//! [`outbox`] allows. Nothing here knows HTTP beyond the listener in [`listener`]; what it says to clients stands in
//! [`protocol`] and [`close`].

pub mod client_socket;
pub mod close;
pub mod feed;
pub mod game_connection;
pub mod hub;
pub mod link_keeper;
pub mod listener;
pub mod outbox;
pub mod protocol;
pub mod server_subscription;
pub mod socket;
pub mod state;
pub mod worker;
