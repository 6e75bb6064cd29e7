//! The support bot: its commands and replies, the texts of these, the requests of the chat platform, and the codes that
//! link accounts.

pub mod bot_messages;
pub mod bot_reply;
pub mod chat_commands;
pub mod chat_interaction;
pub mod chat_link;
