//! The share of a paired server in the market of its game server.

pub mod shop_watcher;
