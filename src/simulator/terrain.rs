//! The land of a simulated world: heights, monuments and the map picture, all from one seed.

use std::sync::OnceLock;

use bytes::Bytes;
use image::{ExtendedColorType, codecs::jpeg::JpegEncoder};

use crate::game::wire::{AppMap, app_map};

/// Edge length of the world in metres.
pub const MAP_SIZE: f32 = 4000.0;
/// Edge length of the map picture in pixels.
const PICTURE_SIZE: u32 = 2000;
/// Pixels of ocean on each side of the picture.
const OCEAN_MARGIN: u32 = 500;
const OCEAN: [u8; 3] = [18, 64, 77];

/// A small seeded generator (SplitMix64): the same seed tells the same story.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// low..high.
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (self.bits() >> 40) as f32 / (1u32 << 24) as f32 * (high - low)
    }

    /// 0..count; `count` is at least 1.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    pub fn chance(&mut self, probability: f32) -> bool {
        self.between(0.0, 1.0) < probability
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A place on the map: metres from the south-west corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub x: f32,
    pub y: f32,
}

impl Place {
    pub fn new(x: f32, y: f32) -> Self {
        Self { x, y }
    }

    pub fn distance(self, other: Place) -> f32 {
        (self.x - other.x).hypot(self.y - other.y)
    }

    /// `metres` away in the direction `angle` (radians, counter-clockwise from east).
    pub fn towards(self, angle: f32, metres: f32) -> Place {
        Place::new(self.x + metres * angle.cos(), self.y + metres * angle.sin())
    }
}

/// The middle of the world.
pub const CENTRE: Place = Place { x: MAP_SIZE / 2.0, y: MAP_SIZE / 2.0 };

/// A named place, with the game's token for it.
#[derive(Clone, Copy, Debug)]
pub struct Monument {
    pub token: &'static str,
    pub at: Place,
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

/// One island.
#[derive(Debug)]
pub struct Terrain {
    seed: u64,
    monuments: Vec<Monument>,
    base: Place,
    picture: OnceLock<Bytes>,
}

impl Terrain {
    pub fn new(seed: u64) -> Self {
        let mut terrain = Self { seed, monuments: Vec::new(), base: CENTRE, picture: OnceLock::new() };
        let mut rng = Rng::new(seed ^ 0x006D_6F6E_756D_656E);
        let turn = rng.between(0.0, std::f32::consts::TAU);
        for (token, angle) in [
            ("harbor_display_name", 0.0),
            ("lighthouse_display_name", 1.1),
            ("large_fishing_village_display_name", 1.9),
            ("harbor_2_display_name", 3.0),
            ("fishing_village_display_name", 4.4),
        ] {
            let at = terrain.coast(turn + angle);
            terrain.monuments.push(Monument { token, at });
        }
        for (token, angle) in [("oil_rig_small", 0.9), ("large_oil_rig", 3.9)] {
            let at = CENTRE.towards(turn + angle, 0.47 * MAP_SIZE);
            terrain.monuments.push(Monument { token, at });
        }
        for token in INLAND {
            let at = terrain.clearing(&mut rng, 260.0);
            terrain.monuments.push(Monument { token, at });
        }
        terrain.base = terrain.clearing(&mut rng, 220.0);
        terrain
    }

    pub fn monuments(&self) -> &[Monument] {
        &self.monuments
    }

    /// Where a monument lies; every island has the ones of this file.
    pub fn monument(&self, token: &str) -> Place {
        self.monuments.iter().find(|monument| monument.token == token).map_or(CENTRE, |monument| monument.at)
    }

    /// Where the team has built.
    pub fn base(&self) -> Place {
        self.base
    }

    /// Metres above the sea; below zero under it.
    pub fn height(&self, at: Place) -> f32 {
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

    /// Where the land ends in a direction, seen from the middle.
    fn coast(&self, angle: f32) -> Place {
        let mut metres = MAP_SIZE / 2.0;
        while metres > 0.0 && self.height(CENTRE.towards(angle, metres)) < 0.5 {
            metres -= 5.0;
        }
        CENTRE.towards(angle, metres)
    }

    /// A place on dry land that is `apart` metres from every monument, if the island has one.
    fn clearing(&self, rng: &mut Rng, apart: f32) -> Place {
        let mut at = self.land(rng);
        for _ in 0..60 {
            if self.monuments.iter().all(|monument| monument.at.distance(at) > apart) {
                break;
            }
            at = self.land(rng);
        }
        at
    }

    /// A random place on dry land.
    pub fn land(&self, rng: &mut Rng) -> Place {
        for _ in 0..200 {
            let at =
                CENTRE.towards(rng.between(0.0, std::f32::consts::TAU), rng.between(0.0, 1.0).sqrt() * 0.4 * MAP_SIZE);
            if self.height(at) > 3.0 {
                return at;
            }
        }
        CENTRE
    }

    /// The answer to getMap. The first call draws the picture, which takes a moment: keep it off the executor.
    pub fn app_map(&self) -> AppMap {
        AppMap {
            width: PICTURE_SIZE,
            height: PICTURE_SIZE,
            jpg_image: self.picture.get_or_init(|| self.draw()).clone(),
            ocean_margin: OCEAN_MARGIN as i32,
            monuments: self
                .monuments
                .iter()
                .map(|monument| app_map::Monument {
                    token: monument.token.to_owned(),
                    x: monument.at.x,
                    y: monument.at.y,
                })
                .collect(),
            background: Some(format!("#{:02X}{:02X}{:02X}", OCEAN[0], OCEAN[1], OCEAN[2])),
        }
    }

    fn draw(&self) -> Bytes {
        let inner = PICTURE_SIZE - 2 * OCEAN_MARGIN;
        let metres = MAP_SIZE / inner as f32;
        let mut pixels = OCEAN.repeat((PICTURE_SIZE * PICTURE_SIZE) as usize);
        let mut north = vec![0.0; inner as usize];
        for row in 0..inner {
            let mut west = 0.0;
            for column in 0..inner {
                let at = Place::new((column as f32 + 0.5) * metres, MAP_SIZE - (row as f32 + 0.5) * metres);
                let height = self.height(at);
                // Lit from the north-west.
                let light = 1.0 + ((2.0 * height - west - north[column as usize]) / metres).clamp(-0.25, 0.25);
                let colour = ground_colour(height);
                let pixel = 3 * ((row + OCEAN_MARGIN) * PICTURE_SIZE + column + OCEAN_MARGIN) as usize;
                for channel in 0..3 {
                    let light = if height > 0.0 { light } else { 1.0 };
                    pixels[pixel + channel] = (f32::from(colour[channel]) * light).min(255.0) as u8;
                }
                west = height;
                north[column as usize] = height;
            }
        }
        for monument in &self.monuments {
            let (x, y) = (monument.at.x / metres, (MAP_SIZE - monument.at.y) / metres);
            disc(&mut pixels, x + OCEAN_MARGIN as f32, y + OCEAN_MARGIN as f32, 8.0, [60, 58, 56]);
            disc(&mut pixels, x + OCEAN_MARGIN as f32, y + OCEAN_MARGIN as f32, 6.0, [168, 160, 148]);
        }
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, 80)
            .encode(&pixels, PICTURE_SIZE, PICTURE_SIZE, ExtendedColorType::Rgb8)
            .expect("the buffer has the size of the picture, and a Vec takes every write");
        jpeg.into()
    }
}

fn ground_colour(height: f32) -> [u8; 3] {
    match height {
        h if h < 0.0 => {
            let depth = (-h / 25.0).min(1.0);
            [(46.0 - 28.0 * depth) as u8, (104.0 - 40.0 * depth) as u8, (116.0 - 39.0 * depth) as u8]
        }
        h if h < 3.0 => [196, 178, 136],
        h if h < 22.0 => [118, 128, 68],
        h if h < 42.0 => [92, 108, 60],
        h if h < 56.0 => [124, 112, 96],
        _ => [222, 226, 230],
    }
}

fn disc(pixels: &mut [u8], x: f32, y: f32, radius: f32, colour: [u8; 3]) {
    let edge = PICTURE_SIZE as f32 - 1.0;
    for row in (y - radius).clamp(0.0, edge) as u32..=(y + radius).clamp(0.0, edge) as u32 {
        for column in (x - radius).clamp(0.0, edge) as u32..=(x + radius).clamp(0.0, edge) as u32 {
            if (column as f32 - x).hypot(row as f32 - y) <= radius {
                let pixel = 3 * (row * PICTURE_SIZE + column) as usize;
                pixels[pixel..pixel + 3].copy_from_slice(&colour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_island_has_land_sea_and_its_monuments_where_they_belong() {
        for seed in 0..20 {
            let terrain = Terrain::new(seed);
            assert!(terrain.height(terrain.base()) > 3.0, "the base of {seed} is on land");
            assert!(terrain.height(Place::new(5.0, 5.0)) < 0.0, "the corner of {seed} is sea");
            for monument in terrain.monuments() {
                let height = terrain.height(monument.at);
                match monument.token {
                    "oil_rig_small" | "large_oil_rig" => assert!(height < 0.0, "{monument:?} of {seed}: {height}"),
                    _ => assert!(height > 0.0, "{monument:?} of {seed}: {height}"),
                }
            }
        }
    }

    #[test]
    fn map_picture_is_a_jpeg_of_the_promised_size() {
        let map = Terrain::new(7).app_map();
        let picture = image::load_from_memory(&map.jpg_image).expect("a JPEG").to_rgb8();
        assert_eq!(picture.dimensions(), (map.width, map.height));
        let colours: std::collections::HashSet<_> = picture.pixels().map(|pixel| pixel.0.map(|c| c / 32)).collect();
        assert!(colours.len() > 10, "land, water and monuments differ: {}", colours.len());
    }
}
