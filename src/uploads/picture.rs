//! Decodes an uploaded image and encodes it again: the kept bytes were written by us, pixel by pixel. All else in a
//! file (scripts, archives, places and names in its metadata) is gone. Works for a while: not for an executor's thread.

use std::io::Cursor;

use image::{
    DynamicImage, ExtendedColorType, ImageDecoder as _, ImageEncoder as _, ImageError, ImageFormat, ImageReader,
    Limits,
    codecs::{png::PngEncoder, webp::WebPEncoder},
};

use crate::domain::{
    image_name::UploadFormat,
    limits::{IMAGE_PIXELS, KEPT_IMAGE_BYTES},
};

/// Memory of a decoder: eight bytes for each pixel, twice.
const DECODING: u64 = 2 * 8 * IMAGE_PIXELS;

/// Reasons against an upload as an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    #[error("must be a PNG or WebP image")]
    OtherFormat,
    #[error(
        "must be at most {longest} pixels wide and high, and at most {IMAGE_PIXELS} pixels in all; it is {width} by {height}"
    )]
    TooManyPixels { width: u32, height: u32, longest: u32 },
    #[error("is broken or incomplete")]
    Broken,
    #[error("takes more than {KEPT_IMAGE_BYTES} bytes without loss")]
    TooLarge,
}

/// An image as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanPicture {
    pub format: UploadFormat,
    /// Pixels.
    pub width: u32,
    pub height: u32,
    pub file: Vec<u8>,
}

/// The image of this file, encoded again in the same format. Its size is known before a pixel is decoded.
pub fn clean(file: &[u8], longest: u32) -> Result<CleanPicture, PictureError> {
    let (format, kind) = match image::guess_format(file) {
        Ok(kind @ ImageFormat::Png) => (UploadFormat::Png, kind),
        Ok(kind @ ImageFormat::WebP) => (UploadFormat::WebP, kind),
        _ => return Err(PictureError::OtherFormat),
    };
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODING);
    let mut reader = ImageReader::with_format(Cursor::new(file), kind);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(broken)?;
    let (width, height) = decoder.dimensions();
    let is_small = width.max(height) <= longest && u64::from(width) * u64::from(height) <= IMAGE_PIXELS;
    if !is_small {
        return Err(PictureError::TooManyPixels { width, height, longest });
    }
    // The orientation of the pixels is in the metadata, which goes.
    let orientation = decoder.orientation().map_err(broken)?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(broken)?;
    picture.apply_orientation(orientation);
    let file = encode(&picture, format)?;
    if file.len() > KEPT_IMAGE_BYTES {
        return Err(PictureError::TooLarge);
    }
    Ok(CleanPicture { format, width: picture.width(), height: picture.height(), file })
}

fn encode(picture: &DynamicImage, format: UploadFormat) -> Result<Vec<u8>, PictureError> {
    let (pixels, color) = match picture.color().has_alpha() {
        true => (picture.to_rgba8().into_raw(), ExtendedColorType::Rgba8),
        false => (picture.to_rgb8().into_raw(), ExtendedColorType::Rgb8),
    };
    let (width, height, mut file) = (picture.width(), picture.height(), Vec::new());
    let written = match format {
        UploadFormat::Png => PngEncoder::new(&mut file).write_image(&pixels, width, height, color),
        UploadFormat::WebP => WebPEncoder::new_lossless(&mut file).write_image(&pixels, width, height, color),
    };
    written.map_err(broken)?;
    Ok(file)
}

fn broken(_: ImageError) -> PictureError {
    PictureError::Broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(format: ImageFormat, width: u32, height: u32) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        let pixel = |x: u32, y: u32| image::Rgba([x as u8, y as u8, 7, if x == y { 0 } else { 255 }]);
        image::RgbaImage::from_fn(width, height, pixel).write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    #[test]
    fn an_image_keeps_its_pixels_and_nothing_else() {
        for (kind, format) in [(ImageFormat::Png, UploadFormat::Png), (ImageFormat::WebP, UploadFormat::WebP)] {
            let file = picture(kind, 40, 30);
            let cleaned = clean(&file, 64).unwrap();
            assert_eq!((cleaned.format, cleaned.width, cleaned.height), (format, 40, 30));
            assert_eq!(
                image::load_from_memory(&cleaned.file).unwrap().to_rgba8(),
                image::load_from_memory(&file).unwrap().to_rgba8()
            );
            let mut polyglot = file.clone();
            polyglot.extend(b"<script>alert(1)</script>PK\x03\x04");
            let cleaned_again = clean(&polyglot, 64).unwrap();
            assert_eq!(cleaned_again, cleaned, "what follows the image is gone");
        }
    }

    #[test]
    fn other_files_are_refused_whatever_they_are_called() {
        let mut gif = b"GIF89a".to_vec();
        gif.extend(picture(ImageFormat::Png, 4, 4));
        for file in [
            b"".to_vec(),
            b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(),
            b"<html>".to_vec(),
            b"\xff\xd8\xff\xe0\0\x10JFIF\0".to_vec(),
            gif,
        ] {
            assert_eq!(clean(&file, 64), Err(PictureError::OtherFormat));
        }
    }

    #[test]
    fn a_broken_image_is_refused() {
        for kind in [ImageFormat::Png, ImageFormat::WebP] {
            let file = picture(kind, 40, 30);
            for length in [12, 16, 40, file.len() / 2, file.len() - 20] {
                let result = clean(&file[..length], 64);
                assert!(matches!(result, Err(PictureError::Broken)), "{kind:?} {length}: {result:?}");
            }
        }
    }

    /// A head that promises 60 000 by 60 000 pixels in a hundred bytes.
    #[test]
    fn a_pixel_bomb_is_refused_before_it_is_decoded() {
        let mut bomb = picture(ImageFormat::Png, 4, 4);
        let side = 60_000_u32.to_be_bytes();
        bomb[16..20].copy_from_slice(&side);
        bomb[20..24].copy_from_slice(&side);
        let crc = crc32(&bomb[12..29]).to_be_bytes();
        bomb[29..33].copy_from_slice(&crc);
        assert!(matches!(
            clean(&bomb, 4_096),
            Err(PictureError::TooManyPixels { width: 60_000, height: 60_000, .. } | PictureError::Broken)
        ));
        let wide = picture(ImageFormat::WebP, 65, 1);
        assert_eq!(clean(&wide, 64), Err(PictureError::TooManyPixels { width: 65, height: 1, longest: 64 }));
        assert!(clean(&wide, 65).is_ok());
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
        })
    }
}
