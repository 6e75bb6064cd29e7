//! companion: the backend that players of the game *Rust* leave running, so that their base is watched while they
//! sleep.

pub mod domain;
pub mod game;
pub mod relay;
pub mod simulator;
