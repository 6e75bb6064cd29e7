//! Pictures of persons: a figure that is the same on both sides, and another for each account.

use image::{ExtendedColorType, codecs::jpeg::JpegEncoder};

/// Pixels, of the picture and of a square of its figure; the figure has five of these, and a margin around.
const EDGE: usize = 64;
const SQUARE: usize = 10;
const MARGIN: usize = 7;
/// Colours of the figures, bright enough for their dark ground.
const COLOURS: [[u8; 3]; 8] = [
    [127, 200, 248],
    [247, 178, 103],
    [198, 166, 255],
    [158, 228, 147],
    [255, 179, 167],
    [244, 225, 130],
    [128, 222, 217],
    [240, 150, 190],
];

/// The hash by which the platform names the picture of an account: 40 hexadecimal digits.
pub fn hash(platform_id: u64) -> String {
    format!("{platform_id:040x}")
}

/// The picture of an account, a JPEG.
pub fn draw(platform_id: u64) -> Vec<u8> {
    let bits = platform_id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let colour = COLOURS[(bits >> 60) as usize % COLOURS.len()];
    let ground = colour.map(|part| part / 5 + 12);
    let is_filled = |row: usize, column: usize| bits >> (row * 3 + column.min(4 - column) + 20) & 1 == 1;
    let mut pixels = Vec::with_capacity(EDGE * EDGE * 3);
    for y in 0..EDGE {
        for x in 0..EDGE {
            let place = |at: usize| at.checked_sub(MARGIN).map(|at| at / SQUARE).filter(|place| *place < 5);
            let is_figure = place(y).zip(place(x)).is_some_and(|(row, column)| is_filled(row, column));
            pixels.extend(if is_figure { colour } else { ground });
        }
    }
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, 90)
        .encode(&pixels, EDGE as u32, EDGE as u32, ExtendedColorType::Rgb8)
        .expect("the buffer has the size of the picture, and a Vec takes every write");
    jpeg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_different_pictures_of_the_stated_size() {
        let [one, other] = [76_561_198_000_000_001, 76_561_198_000_000_002].map(draw);
        assert_ne!(one, other);
        let picture = image::load_from_memory(&one).unwrap();
        assert_eq!((picture.width(), picture.height()), (64, 64));
        assert_ne!(hash(1), hash(2));
    }
}
