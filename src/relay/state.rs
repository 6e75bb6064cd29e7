//! The live state of a paired server and the lines of its team's chat. Pure.

pub mod live_state;
pub mod team_chat;
