//! The land of a simulated world: heights and monuments, all from one seed.

use super::{
    point::Point,
    rng::{Rng, mix},
};

/// Edge length of the world in metres.
pub const MAP_SIZE: f32 = 4000.0;

/// The middle of the world.
pub const CENTRE: Point = Point { x: MAP_SIZE / 2.0, y: MAP_SIZE / 2.0 };

/// A monument, by the game's token for it, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct PlacedMonument {
    pub token: &'static str,
    pub at: Point,
}

const INLAND: [&str; 14] = [
    "outpost",
    "launchsite",
    "airfield_display_name",
    "bandit_camp",
    "dome_monument_name",
    "military_tunnels_display_name",
    "power_plant_display_name",
    "train_yard_display_name",
    "water_treatment_plant_display_name",
    "satellite_dish_display_name",
    "supermarket",
    "gas_station",
    "mining_quarry_sulfur_display_name",
    "junkyard_display_name",
];

/// An island.
#[derive(Debug)]
pub struct Terrain {
    seed: u64,
    monuments: Vec<PlacedMonument>,
    base: Point,
}

impl Terrain {
    /// The land of this seed.
    pub fn new(seed: u64) -> Self {
        let mut terrain = Self { seed, monuments: Vec::new(), base: CENTRE };
        let mut rng = Rng::new(seed ^ 0x006D_6F6E_756D_656E);
        let turn = rng.angle();
        for (token, angle) in [
            ("harbor_display_name", 0.0),
            ("lighthouse_display_name", 1.1),
            ("large_fishing_village_display_name", 1.9),
            ("harbor_2_display_name", 3.0),
            ("fishing_village_display_name", 4.4),
        ] {
            let at = terrain.coast(turn + angle);
            terrain.monuments.push(PlacedMonument { token, at });
        }
        for (token, angle) in [("oil_rig_small", 0.9), ("large_oil_rig", 3.9)] {
            let at = CENTRE.towards(turn + angle, 0.47 * MAP_SIZE);
            terrain.monuments.push(PlacedMonument { token, at });
        }
        for token in INLAND {
            let at = terrain.clearing(&mut rng, 260.0);
            terrain.monuments.push(PlacedMonument { token, at });
        }
        terrain.base = terrain.clearing(&mut rng, 220.0);
        terrain
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// All monuments, each with its place.
    pub fn monuments(&self) -> &[PlacedMonument] {
        &self.monuments
    }

    /// Where a monument is; the middle of the world for a token that is not in this file.
    pub fn monument(&self, token: &str) -> Point {
        self.monuments.iter().find(|monument| monument.token == token).map_or(CENTRE, |monument| monument.at)
    }

    /// Where the base of the first team is.
    pub fn base(&self) -> Point {
        self.base
    }

    /// Where the base with this number is; 0 is that of the first team.
    pub fn base_of(&self, number: usize) -> Point {
        if number == 0 { self.base } else { self.clearing(&mut Rng::new(self.seed ^ mix(number as u64)), 220.0) }
    }

    /// Metres above the sea; below zero under it.
    pub fn height(&self, at: Point) -> f32 {
        let from_centre = at.distance(CENTRE) / (MAP_SIZE / 2.0);
        let island = 45.0 * (1.0 - (from_centre / 0.78).powi(4));
        let (mut noise, mut amplitude, mut wavelength) = (0.0, 1.0, 900.0);
        for octave in 0..4 {
            noise += amplitude * (self.noise(octave, at.x / wavelength, at.y / wavelength) - 0.5);
            amplitude *= 0.45;
            wavelength *= 0.5;
        }
        island + 55.0 * noise
    }

    /// Smooth noise, 0..1.
    fn noise(&self, octave: u64, x: f32, y: f32) -> f32 {
        let (left, bottom) = (x.floor(), y.floor());
        let corner = |dx: i64, dy: i64| {
            let cell = ((left as i64 + dx) as u64) << 32 ^ (bottom as i64 + dy) as u64 & 0xFFFF_FFFF;
            (mix(self.seed ^ mix(cell ^ octave << 60)) >> 40) as f32 / (1u32 << 24) as f32
        };
        let ease = |t: f32| t * t * (3.0 - 2.0 * t);
        let (right, up) = (ease(x - left), ease(y - bottom));
        let south = corner(0, 0) + (corner(1, 0) - corner(0, 0)) * right;
        let north = corner(0, 1) + (corner(1, 1) - corner(0, 1)) * right;
        south + (north - south) * up
    }

    /// Where the land ends in a direction from the middle.
    fn coast(&self, angle: f32) -> Point {
        let mut metres = MAP_SIZE / 2.0;
        while metres > 0.0 && self.height(CENTRE.towards(angle, metres)) < 0.5 {
            metres -= 5.0;
        }
        CENTRE.towards(angle, metres)
    }

    /// A point on dry land that is `apart` metres from every monument, if one is found.
    fn clearing(&self, rng: &mut Rng, apart: f32) -> Point {
        let mut at = self.land(rng);
        for _ in 0..60 {
            if self.monuments.iter().all(|monument| monument.at.distance(at) > apart) {
                break;
            }
            at = self.land(rng);
        }
        at
    }

    /// A random point on dry land.
    pub fn land(&self, rng: &mut Rng) -> Point {
        for _ in 0..200 {
            let at = CENTRE.towards(rng.angle(), rng.between(0.0, 1.0).sqrt() * 0.4 * MAP_SIZE);
            if self.height(at) > 3.0 {
                return at;
            }
        }
        CENTRE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_island_has_land_and_sea_and_its_monuments_in_the_right_places() {
        for seed in 0..20 {
            let terrain = Terrain::new(seed);
            assert!(terrain.height(terrain.base()) > 3.0, "the base of {seed} is on land");
            assert!(terrain.height(Point::new(5.0, 5.0)) < 0.0, "the corner of {seed} is sea");
            for monument in terrain.monuments() {
                let height = terrain.height(monument.at);
                match monument.token {
                    "oil_rig_small" | "large_oil_rig" => assert!(height < 0.0, "{monument:?} of {seed}: {height}"),
                    _ => assert!(height > 0.0, "{monument:?} of {seed}: {height}"),
                }
            }
        }
    }
}
