//! Paired servers whose game connection is on another node than the sockets that watch them.

pub mod remote_feed;
pub mod remote_message;
pub mod remote_question;
pub mod remote_watchers;
