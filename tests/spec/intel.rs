//! Intel: what is known of and around a paired game server.

mod map_notes;
mod market;
mod reports;
mod shared;
mod shops;
mod timeline;
