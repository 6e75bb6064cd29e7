//! How the game speaks.

pub mod camera;
pub mod wire;
