//! Paired servers, with their devices, cameras, chat, alarms, maps and guests.

pub mod alarms;
pub mod aliases;
pub mod blocked_inviters;
pub mod cameras;
pub mod chat;
pub mod devices;
pub mod guest_invites;
pub mod guests;
pub mod maps;
pub mod paired_servers;
pub mod readiness;
