//! The answer to getMap: the picture of a terrain and its monuments.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use image::{ExtendedColorType, codecs::jpeg::JpegEncoder};

use super::{
    point::Point,
    terrain::{MAP_SIZE, Terrain},
};
use crate::game::wire::{AppMap, app_map};

/// Edge length of the picture in pixels.
const PICTURE_SIZE: u32 = 2000;
/// Pixels of ocean on each side of the picture.
const OCEAN_MARGIN: u32 = 500;
const OCEAN: [u8; 3] = [18, 64, 77];

/// The answer to getMap with this picture (a JPEG of 2000 pixels by 2000).
pub fn app_map(terrain: &Terrain, jpg_image: Bytes) -> AppMap {
    let monuments = terrain.monuments().iter();
    AppMap {
        width: PICTURE_SIZE,
        height: PICTURE_SIZE,
        jpg_image,
        ocean_margin: OCEAN_MARGIN as i32,
        monuments: monuments
            .map(|monument| app_map::Monument { token: monument.token.to_owned(), x: monument.at.x, y: monument.at.y })
            .collect(),
        background: Some(format!("#{:02X}{:02X}{:02X}", OCEAN[0], OCEAN[1], OCEAN[2])),
    }
}

/// The picture of this terrain. The first call for a seed draws it, which blocks the thread for a moment; the process
/// keeps it, because every server of a seed shows the same one.
pub fn picture(terrain: &Terrain) -> Bytes {
    static DRAWN: Mutex<BTreeMap<u64, Bytes>> = Mutex::new(BTreeMap::new());
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    drawn.entry(terrain.seed()).or_insert_with(|| draw(terrain)).clone()
}

fn draw(terrain: &Terrain) -> Bytes {
    let inner = PICTURE_SIZE - 2 * OCEAN_MARGIN;
    let metres = MAP_SIZE / inner as f32;
    let mut pixels = OCEAN.repeat((PICTURE_SIZE * PICTURE_SIZE) as usize);
    let mut north = vec![0.0; inner as usize];
    for row in 0..inner {
        let mut west = 0.0;
        for column in 0..inner {
            let at = Point::new((column as f32 + 0.5) * metres, MAP_SIZE - (row as f32 + 0.5) * metres);
            let height = terrain.height(at);
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
    for monument in terrain.monuments() {
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
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn picture_is_a_jpeg_of_the_stated_size_and_drawn_once() {
        let terrain = Terrain::new(7);
        let map = app_map(&terrain, picture(&terrain));
        let picture = image::load_from_memory(&map.jpg_image).expect("a JPEG").to_rgb8();
        assert_eq!(picture.dimensions(), (map.width, map.height));
        let colours: HashSet<_> = picture.pixels().map(|pixel| pixel.0.map(|c| c / 32)).collect();
        assert!(colours.len() > 10, "land, water and monuments differ: {}", colours.len());
        assert_eq!(super::picture(&terrain).as_ptr(), map.jpg_image.as_ptr(), "the second call draws nothing");
    }
}
