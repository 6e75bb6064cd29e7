//! Parts of the relay that are one for all its connections: the context, the writer of events and chat, what many links
//! know of one game server, and turns to connect.

pub mod chat_texts;
pub mod connect_pacer;
pub mod context;
pub mod markets;
pub mod monument_maps;
pub mod own_link;
pub mod recent_events;
pub mod team_timers;
pub mod teams;
pub mod write_behind;
