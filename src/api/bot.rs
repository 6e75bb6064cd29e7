//! The support bot on the chat platform, and accounts of the platform that users link.

pub mod chat_links;
pub mod interactions;
