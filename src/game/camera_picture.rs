//! The picture of a camera: samples become colours (protocol §5.5), trees and persons are drawn over them, and the
//! whole becomes a JPEG or PNG file.
//!
//! Drawing takes milliseconds: do it where blocking work belongs.

use std::io::Cursor;

use image::{ExtendedColorType, ImageError, ImageFormat, Rgb, RgbImage, codecs::jpeg::JpegEncoder};

use super::{
    camera::{Sample, decode_rays, sample_order},
    camera_overlay::draw_entities,
    camera_shot::CameraShot,
};

/// Quality of JPEG files, 1..=100.
const QUALITY: u8 = 85;
/// Colour of pixels that no ray has reached yet.
const UNKNOWN: Rgb<u8> = Rgb([96, 96, 96]);
const SKY: Rgb<u8> = Rgb([208, 230, 252]);
/// Red, green and blue of each material in full light; the first is also that of unknown ones.
const MATERIALS: [[f64; 3]; 8] = [
    [0.5, 0.5, 0.5],
    [0.8, 0.7, 0.7],
    [0.3, 0.7, 1.0],
    [0.6, 0.6, 0.6],
    [0.7, 0.7, 0.7],
    [0.8, 0.6, 0.4],
    [1.0, 0.4, 0.4],
    [1.0, 0.1, 0.1],
];

/// The picture as the rays show it, with trees and persons drawn over it if wanted.
pub fn draw(shot: &CameraShot, with_entities: bool) -> RgbImage {
    let samples = last_samples(shot);
    let width = u32::from(shot.view.width);
    let mut picture = RgbImage::from_fn(width, u32::from(shot.view.height), |x, y| {
        samples[(y * width + x) as usize].map_or(UNKNOWN, colour)
    });
    if with_entities {
        let far = shot.view.far_plane;
        let depth = |sample: &Option<Sample>| sample.map_or(far, |sample| f32::from(sample.distance) / 1023.0 * far);
        let depths: Vec<f32> = samples.iter().map(depth).collect();
        draw_entities(&mut picture, &depths, shot);
    }
    picture
}

/// The last sample of each pixel, row by row from the top.
fn last_samples(shot: &CameraShot) -> Vec<Option<Sample>> {
    let (width, height) = (shot.view.width, shot.view.height);
    let order = sample_order(width, height);
    let mut samples = vec![None; order.len()];
    for frame in &shot.frames {
        // The samples were counted when the frame was read: it is whole.
        let decoded = decode_rays(frame.data()).unwrap_or_default();
        for (n, sample) in decoded.into_iter().enumerate() {
            let (x, y) = order[(frame.offset + n) % order.len()];
            samples[usize::from(height - 1 - y) * usize::from(width) + usize::from(x)] = Some(sample);
        }
    }
    samples
}

/// Colour of a sample, in the number types and order of operations of other clients, so that no value differs by one.
fn colour(sample: Sample) -> Rgb<u8> {
    if sample == Sample::SKY {
        return SKY;
    }
    let material = MATERIALS.get(usize::from(sample.material)).unwrap_or(&MATERIALS[0]);
    let light = f64::from(sample.alignment) / 63.0;
    Rgb(material.map(|part| (light * part * 255.0) as u8))
}

/// The kind of a picture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFormat {
    Jpeg,
    Png,
}

impl PictureFormat {
    /// The `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
        }
    }

    /// The picture as a file.
    pub fn encode(self, picture: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let mut file = Vec::new();
        match self {
            Self::Png => picture.write_to(&mut Cursor::new(&mut file), ImageFormat::Png)?,
            Self::Jpeg => {
                let (width, height) = picture.dimensions();
                JpegEncoder::new_with_quality(&mut file, QUALITY).encode(
                    picture,
                    width,
                    height,
                    ExtendedColorType::Rgb8,
                )?;
            }
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::time::Timestamp,
        game::{
            camera::encode_rays,
            camera_shot::{CameraView, RayFrame},
            wire::AppCameraRays,
        },
    };

    const VIEW: CameraView = CameraView { width: 4, height: 4, near_plane: 0.0, far_plane: 250.0 };

    fn sample(distance: u16, alignment: u8, material: u8) -> Sample {
        Sample { distance, alignment, material }
    }

    fn rays(offset: i32, samples: &[Sample]) -> AppCameraRays {
        let ray_data = encode_rays(samples).into();
        AppCameraRays { vertical_fov: 65.0, sample_offset: offset, ray_data, ..Default::default() }
    }

    fn shot(view: CameraView, frames: &[AppCameraRays]) -> CameraShot {
        let frames = frames.iter().map(|rays| RayFrame::read(rays, &view).unwrap()).collect();
        let at = Timestamp::from_unix(1_790_000_000).unwrap();
        CameraShot { view, at, frames, vertical_fov: 65.0, entities: Vec::new() }
    }

    #[test]
    fn samples_land_on_their_pixels_and_rows_count_upwards() {
        // The first samples of a 4 × 4 picture belong to (2,1) (3,3) (0,2) (0,0), y upwards; the last to (2,3) (0,3)
        // (1,0).
        let first = rays(0, &[sample(500, 63, 7), sample(400, 63, 2), sample(300, 63, 5), Sample::SKY]);
        // Offsets run on beyond the number of pixels.
        let last = rays(16 * 5 + 13, &[sample(200, 63, 6), sample(100, 31, 1), sample(90, 0, 3)]);
        let picture = draw(&shot(VIEW, &[first, last]), false);
        let pixel = |x, y_up: u32| picture.get_pixel(x, 3 - y_up).0;
        assert_eq!(pixel(2, 1), [255, 25, 25]);
        assert_eq!(pixel(3, 3), [76, 178, 255]);
        assert_eq!(pixel(0, 2), [204, 153, 102]);
        assert_eq!(pixel(0, 0), [208, 230, 252]);
        assert_eq!(pixel(2, 3), [255, 102, 102]);
        assert_eq!(pixel(0, 3), [100, 87, 87], "31 of 63 of the light, cut");
        assert_eq!(pixel(1, 0), [0, 0, 0]);
        assert_eq!(pixel(0, 1), UNKNOWN.0, "no ray was there");
    }

    #[test]
    fn the_bytes_of_the_reference_become_these_pixels() {
        let data = [
            0x00, 0xc0, 0xff, 0xc0, 0x15, 0xc1, 0x7d, 0x3f, 0x5f, 0x90, 0x1f, 0xc1, 0x96, 0x3f, 0xff, 0x19, 0x28, 0x40,
            0x4a, 0x8b, 0xc3, 0x80, 0x20, 0x15,
        ];
        let rays = AppCameraRays { ray_data: data.to_vec().into(), ..Default::default() };
        let picture = draw(&shot(VIEW, &[rays]), false);
        let pixels: Vec<[u8; 3]> = sample_order(4, 4)
            .into_iter()
            .take(11)
            .map(|(x, y)| picture.get_pixel(u32::from(x), u32::from(3 - y)).0)
            .collect();
        let (sky, lit) = (SKY.0, [204, 178, 178]);
        // 60 and 40 of 63; material 64 is unknown and drawn as 0.
        let (dim, unknown, rock) = ([194, 170, 170], [80, 80, 80], [77, 77, 77]);
        assert_eq!(pixels, [[0, 0, 0], sky, sky, lit, dim, lit, lit, unknown, unknown, rock, sky]);
    }

    #[test]
    fn a_later_frame_draws_over_an_earlier_one() {
        let frames = [rays(0, &[sample(500, 63, 7)]), rays(16, &[sample(500, 63, 2)])];
        assert_eq!(draw(&shot(VIEW, &frames), false).get_pixel(2, 2).0, [76, 178, 255]);
    }

    #[test]
    fn a_file_has_the_size_of_the_view() {
        let view = CameraView { width: 32, height: 18, ..VIEW };
        let picture = draw(&shot(view, &[rays(0, &[sample(500, 63, 5); 576])]), true);
        for (format, guessed) in [(PictureFormat::Jpeg, ImageFormat::Jpeg), (PictureFormat::Png, ImageFormat::Png)] {
            let file = format.encode(&picture).unwrap();
            assert_eq!(image::guess_format(&file).unwrap(), guessed);
            let read = image::load_from_memory(&file).unwrap().into_rgb8();
            assert_eq!(read.dimensions(), (32, 18));
            let near =
                |pixel: &Rgb<u8>| pixel.0.iter().zip([204, 153, 102]).all(|(one, other)| one.abs_diff(other) < 8);
            assert!(read.pixels().all(near));
        }
    }
}
