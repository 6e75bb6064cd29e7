//! Tools needed to get through a wall or door of the game, and the sulfur in them.
//!
//! The counts are of a piece at full health, hit from its hard side, as players know them; the sulfur is computed from
//! the crafting table.

use serde::Serialize;

use crate::domain::items::{Catalogue, CatalogueItem};

/// Explosives and ammunition, in the order of the counts.
const TOOLS: [&str; 4] = ["explosive.satchel", "explosive.timed", "ammo.rocket.basic", "ammo.rifle.explosive"];
/// Ingredients of ingredients are followed to this depth; the game's recipes are less deep.
const DEEPEST: usize = 8;

/// A wall or door: name, kind and number of each tool that it takes.
type Barrier = (&'static str, &'static str, [u32; 4]);

const BARRIERS: [Barrier; 11] = [
    ("Wooden wall", "wall", [3, 1, 2, 49]),
    ("Stone wall", "wall", [10, 2, 4, 185]),
    ("Sheet metal wall", "wall", [23, 4, 8, 400]),
    ("Armored wall", "wall", [46, 8, 15, 799]),
    ("High external wooden wall", "wall", [6, 2, 3, 98]),
    ("High external stone wall", "wall", [10, 2, 4, 185]),
    ("Wooden door", "door", [2, 1, 1, 19]),
    ("Sheet metal door", "door", [4, 1, 2, 63]),
    ("Ladder hatch", "door", [4, 1, 2, 63]),
    ("Garage door", "door", [9, 2, 3, 150]),
    ("Armored door", "door", [15, 3, 5, 250]),
];

/// A wall or door, and the ways through it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RaidTarget {
    pub name: &'static str,
    /// `wall` or `door`.
    pub kind: &'static str,
    /// Least sulfur first.
    pub ways: Vec<RaidWay>,
}

/// The number of one tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RaidWay {
    pub shortname: &'static str,
    pub name: String,
    pub quantity: u32,
    /// All of them together.
    pub sulfur: u32,
}

/// Every wall and door, with the embedded catalogue's prices.
pub fn targets() -> Vec<RaidTarget> {
    let target = |(name, kind, counts): Barrier| {
        let mut ways: Vec<RaidWay> = TOOLS.into_iter().zip(counts).filter_map(way).collect();
        ways.sort_by_key(|way| way.sulfur);
        RaidTarget { name, kind, ways }
    };
    BARRIERS.into_iter().map(target).collect()
}

fn way((shortname, quantity): (&'static str, u32)) -> Option<RaidWay> {
    let tool = Catalogue::embedded().by_shortname(shortname)?;
    let sulfur = (sulfur_of(tool, 0) * f64::from(quantity)).ceil() as u32;
    Some(RaidWay { shortname, name: tool.name.to_string(), quantity, sulfur })
}

/// Sulfur in one piece.
fn sulfur_of(item: &CatalogueItem, depth: usize) -> f64 {
    if &*item.shortname == "sulfur" {
        return 1.0;
    }
    if depth > DEEPEST {
        return 0.0;
    }
    let of = |(id, pieces): &(i32, u32)| {
        Catalogue::embedded().item(*id).map_or(0.0, |item| sulfur_of(item, depth + 1)) * f64::from(*pieces)
    };
    item.ingredients.iter().map(of).sum::<f64>() / f64::from(item.made_at_once().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The prices that every player knows.
    #[test]
    fn sulfur_follows_from_the_crafting_table() {
        let sulfur = TOOLS.map(|tool| sulfur_of(Catalogue::embedded().by_shortname(tool).unwrap(), 0));
        assert_eq!(sulfur, [480.0, 2_200.0, 1_400.0, 25.0]);
    }

    #[test]
    fn every_way_through_a_sheet_metal_door_has_its_price() {
        let targets = targets();
        assert!(targets.iter().all(|target| target.ways.len() == TOOLS.len()));
        let door = targets.iter().find(|target| target.name == "Sheet metal door").unwrap();
        let ways: Vec<_> = door.ways.iter().map(|way| (way.shortname, way.quantity, way.sulfur)).collect();
        assert_eq!(
            ways,
            [
                ("ammo.rifle.explosive", 63, 1_575),
                ("explosive.satchel", 4, 1_920),
                ("explosive.timed", 1, 2_200),
                ("ammo.rocket.basic", 2, 2_800),
            ]
        );
    }
}
