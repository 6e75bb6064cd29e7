//! The relay: one WebSocket per dashboard or overlay.

pub mod hub;
