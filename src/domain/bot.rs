//! The support bot: its commands, the requests of the chat platform, and the codes that link accounts.

pub mod chat_commands;
pub mod chat_interaction;
pub mod chat_link;
