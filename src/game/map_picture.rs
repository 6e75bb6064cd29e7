//! The picture in a game server's map answer: its limits, and smaller copies.

use std::io::Cursor;

use image::{
    DynamicImage, ExtendedColorType, ImageDecoder as _, ImageError, ImageReader, Limits,
    codecs::jpeg::{JpegDecoder, JpegEncoder},
    imageops::FilterType,
};

use crate::{
    domain::world_map::{MapDrawing, MapPicture},
    game::wire::AppMap,
};

/// Bytes of a picture; those of real maps have 6 MB at most.
const PICTURE_BYTES: usize = 12 * 1024 * 1024;
/// Pixels of an edge; those of real maps have 4 000 at most.
const LONGEST_EDGE: u32 = 6_144;
/// The size of a picture is in its first bytes; the rest is not looked at when a map is read.
const HEAD_BYTES: usize = 64 * 1024;
/// Quality of the smaller pictures, 1 to 100.
const QUALITY: u8 = 82;

/// Reads the drawing in a map answer. Tolerant: what makes no sense is left out.
pub fn read(map: &AppMap) -> MapDrawing {
    let is_colour = |text: &&str| {
        let digits = text.strip_prefix('#').unwrap_or_default();
        matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    MapDrawing { background: map.background.as_deref().filter(is_colour).map(str::to_owned), picture: picture(map) }
}

fn picture(map: &AppMap) -> Option<MapPicture> {
    let jpeg = &map.jpg_image;
    if jpeg.len() > PICTURE_BYTES {
        return None;
    }
    let (width, height) = JpegDecoder::new(Cursor::new(head(jpeg))).ok()?.dimensions();
    if width.min(height) == 0 || width.max(height) > LONGEST_EDGE {
        return None;
    }
    // The margin is given in pixels of the size that the answer claims.
    let claimed = u64::from(map.width.max(1));
    let margin = u64::try_from(map.ocean_margin).unwrap_or_default() * u64::from(width) / claimed;
    let margin = u32::try_from(margin).ok().filter(|margin| margin.saturating_mul(2) < width.min(height));
    Some(MapPicture { width, height, margin: margin.unwrap_or_default(), jpeg: jpeg.clone() })
}

fn head(jpeg: &[u8]) -> &[u8] {
    &jpeg[..jpeg.len().min(HEAD_BYTES)]
}

/// The picture with this longest edge, as a JPEG. Takes a good part of a second: call it on a thread for blocking work.
pub fn scale(jpeg: &[u8], edge: u32) -> Result<Vec<u8>, ImageError> {
    let mut reader = ImageReader::with_format(Cursor::new(jpeg), image::ImageFormat::Jpeg);
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(LONGEST_EDGE), Some(LONGEST_EDGE));
    reader.limits(limits);
    let small = DynamicImage::from(reader.decode()?.into_rgb8()).resize(edge, edge, FilterType::Triangle).into_rgb8();
    let mut file = Vec::new();
    JpegEncoder::new_with_quality(&mut file, QUALITY).encode(
        &small,
        small.width(),
        small.height(),
        ExtendedColorType::Rgb8,
    )?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use image::RgbImage;

    use super::*;

    fn jpeg(width: u32, height: u32) -> Bytes {
        let mut file = Vec::new();
        let picture = RgbImage::from_fn(width, height, |x, _| image::Rgb([if x < width / 2 { 250 } else { 10 }; 3]));
        JpegEncoder::new(&mut file).encode(&picture, width, height, ExtendedColorType::Rgb8).unwrap();
        file.into()
    }

    fn map(jpg_image: Bytes) -> AppMap {
        let background = Some("#12404D".to_owned());
        AppMap { width: 400, height: 200, jpg_image, ocean_margin: 50, monuments: Vec::new(), background }
    }

    #[test]
    fn a_picture_has_the_size_that_it_has_and_its_margin_in_its_own_pixels() {
        let drawing = read(&map(jpeg(400, 200)));
        assert_eq!(drawing.background.as_deref(), Some("#12404D"));
        let picture = drawing.picture.unwrap();
        assert_eq!((picture.width, picture.height, picture.margin), (400, 200, 50));
        let picture = read(&map(jpeg(200, 100))).picture.unwrap();
        assert_eq!((picture.width, picture.height, picture.margin), (200, 100, 25), "the answer claims twice as much");
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        for none in [Bytes::new(), Bytes::from_static(b"a picture"), jpeg(40, 20).slice(..30), vec![7; 70_000].into()] {
            assert_eq!(read(&map(none)).picture, None);
        }
        for ocean_margin in [-1, 100, i32::MAX, i32::MIN] {
            let picture = read(&AppMap { ocean_margin, ..map(jpeg(400, 200)) }).picture.unwrap();
            assert_eq!(picture.margin, 0, "{ocean_margin}");
        }
        assert!(read(&AppMap { width: 0, ..map(jpeg(40, 20)) }).picture.is_some_and(|picture| picture.margin == 0));
        for colour in ["", "red", "#12", "#12404D;background:url(x)", "12404D", "#12404G"] {
            let map = AppMap { background: Some(colour.to_owned()), ..map(Bytes::new()) };
            assert_eq!(read(&map).background, None, "{colour}");
        }
    }

    #[test]
    fn a_smaller_picture_shows_the_same() {
        let small = scale(&jpeg(400, 200), 100).unwrap();
        let small = image::load_from_memory(&small).unwrap().into_rgb8();
        assert_eq!(small.dimensions(), (100, 50));
        assert!(small.get_pixel(10, 25)[0] > 200 && small.get_pixel(90, 25)[0] < 60);
        assert!(scale(b"a picture", 100).is_err());
    }
}
