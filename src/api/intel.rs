//! Knowledge about a game server: shops and watched offers, notes on the map, tracked players and the timeline.

pub mod map_notes;
pub mod shop_scan;
pub mod shop_watches;
pub mod shops;
pub mod timeline;
pub mod tracking;
pub mod watch_checks;
