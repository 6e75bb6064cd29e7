//! The map of a world, as the game draws it.

use bytes::Bytes;

use crate::domain::{detect::wipe::World, monument::Monument};

/// What a game server says of its map.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldMap {
    pub world: World,
    pub monuments: Vec<Monument>,
    pub drawing: MapDrawing,
}

/// What the map looks like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapDrawing {
    /// Colour around the picture, `#` and hex digits.
    pub background: Option<String>,
    /// `None`: what came is no picture that can be shown.
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

impl WorldMap {
    /// Whether a map of the world `of` is the map of the world `known`, or of a newer one. What is known to a pairing may
    /// be older than the map: somebody else's link has brought it.
    pub fn is_current(of: &World, known: &World) -> bool {
        let same = known.compare(of).is_none() && of.compare(known).is_none();
        same || known.wiped_at.zip(of.wiped_at).is_some_and(|(known, of)| of > known)
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn the_map_of_an_older_world_is_not_current_and_that_of_a_newer_one_is() {
        let world = |hours: i64, seed| World {
            wiped_at: DateTime::from_timestamp(1_800_000_000 + hours * 3_600, 0),
            seed: Some(seed),
            ..World::default()
        };
        assert!(WorldMap::is_current(&world(0, 1), &world(0, 1)));
        assert!(WorldMap::is_current(&world(0, 1), &World::default()), "nothing is known");
        assert!(!WorldMap::is_current(&world(0, 1), &world(1, 2)));
        assert!(!WorldMap::is_current(&world(0, 1), &world(1, 1)), "the same seed, wiped");
        assert!(!WorldMap::is_current(&world(0, 1), &world(0, 2)));
        assert!(WorldMap::is_current(&world(1, 2), &world(0, 1)));
    }
}
