//! The map of a world, as the game draws it.

use bytes::Bytes;

use crate::domain::{detect::wipe::World, monument::Monument};

/// A game server's answer about its map.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldMap {
    pub world: World,
    pub monuments: Vec<Monument>,
    pub drawing: MapDrawing,
}

/// The picture of the map and the colour around it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapDrawing {
    /// Colour around the picture, `#` and hex digits.
    pub background: Option<String>,
    /// `None`: the data received is no picture that can be shown.
    pub picture: Option<MapPicture>,
}

/// The picture of a map, a JPEG.
#[derive(Clone, Debug, PartialEq)]
pub struct MapPicture {
    /// Pixels.
    pub width: u32,
    pub height: u32,
    /// Pixels of ocean on each side.
    pub margin: u32,
    pub jpeg: Bytes,
}
