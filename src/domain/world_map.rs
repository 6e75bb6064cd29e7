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

/// A map without its drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct MonumentMap {
    pub world: World,
    pub monuments: Vec<Monument>,
}

impl MonumentMap {
    /// True if it is the map of this world, which may have become known since.
    pub fn is_of(&self, world: &World) -> bool {
        self.world.compare(world).is_none() && self.world.level == world.level
    }
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
