//! Tracked players: who of them is online on the game server, by a paid service that looks at every server's list.
//!
//! [`worker`] has one [`server_watch`] per game server, however many users track players there; [`aliases`] answers under
//! which names a player was seen; both spend from the budget in [`context`]. When the service is slow, down or spent, what
//! is known stays and gets old, and nothing else is touched.

pub mod aliases;
pub mod context;
pub mod server_watch;
pub mod worker;
