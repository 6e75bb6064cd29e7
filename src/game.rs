//! Protocol of the game: its messages, a link to a game server, and the meaning of its answers.

pub mod acting_link;
pub mod budget;
pub mod camera;
mod camera_overlay;
pub mod camera_picture;
pub mod camera_shot;
pub mod counting;
pub mod decoding;
pub mod link;
pub mod map_picture;
pub mod outbound;
pub mod paced_link;
pub mod reading;
pub mod reading_link;
mod web_socket;
pub mod wire;
