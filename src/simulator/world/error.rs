//! Refusals of requests by the game.

/// One of the game's own error texts (protocol §1.6).
pub type GameError = &'static str;
