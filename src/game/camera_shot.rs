//! Answers of a camera, read within bounds: its view, the packed samples of its frames, and the entities that it
//! recognises (protocol §5).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    camera::{CutShort, count_samples},
    wire::{AppCameraInfo, AppCameraRays},
};
use crate::domain::{plain_text::plain_text, time::Timestamp};

/// Pixels along one edge, and in all; the largest that game servers use is 320 × 180.
const LONGEST_EDGE: i32 = 1_024;
const LARGEST_PICTURE: usize = 640 * 360;
/// Bytes of one frame; one of 3000 samples has at most 12 000.
const LARGEST_FRAME: usize = 64 * 1024;
/// Trees and persons that are drawn, the nearest.
const ENTITIES: usize = 128;
/// Characters of a name.
const LONGEST_NAME: usize = 24;

/// The game server sent no picture, or one beyond our limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what the game server sent is no picture")]
pub struct NoPicture;

impl From<CutShort> for NoPicture {
    fn from(CutShort: CutShort) -> Self {
        Self
    }
}

/// View of a camera, from the answer to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CameraView {
    /// Pixels, at least 1.
    pub width: u16,
    pub height: u16,
    /// Metres.
    pub near_plane: f32,
    pub far_plane: f32,
}

impl CameraView {
    /// Reads the answer to a subscription.
    pub fn read(info: &AppCameraInfo) -> Result<Self, NoPicture> {
        let edge = |pixels: i32| {
            (1..=LONGEST_EDGE).contains(&pixels).then(|| u16::try_from(pixels).ok()).flatten().ok_or(NoPicture)
        };
        let (near_plane, far_plane) = (info.near_plane, info.far_plane);
        let view = Self { width: edge(info.width)?, height: edge(info.height)?, near_plane, far_plane };
        let is_sound = near_plane >= 0.0 && far_plane > near_plane && far_plane.is_finite();
        (is_sound && view.pixels() <= LARGEST_PICTURE).then_some(view).ok_or(NoPicture)
    }

    /// Number of samples that cover the whole picture.
    pub fn pixels(&self) -> usize {
        usize::from(self.width) * usize::from(self.height)
    }
}

/// The samples of one frame, still packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RayFrame {
    /// The number of its first sample, below the number of pixels.
    pub offset: usize,
    samples: usize,
    data: Bytes,
}

impl RayFrame {
    /// Reads a frame of a camera with this view. The bytes are copied, as those of the message belong to a larger
    /// whole.
    pub fn read(rays: &AppCameraRays, view: &CameraView) -> Result<Self, NoPicture> {
        if rays.ray_data.len() > LARGEST_FRAME {
            return Err(NoPicture);
        }
        let offset = usize::try_from(rays.sample_offset).map_err(|_| NoPicture)? % view.pixels();
        let samples = count_samples(&rays.ray_data)?;
        Ok(Self { offset, samples, data: Bytes::copy_from_slice(&rays.ray_data) })
    }

    /// Number of samples in the frame.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The samples, as [`decode_rays`](super::camera::decode_rays) unpacks them.
    pub fn data(&self) -> &[u8] {
        &self.data
    }
}

/// Kind of an entity that a camera recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeenKind {
    Tree,
    Player,
    /// A person of the game itself: has a number for a name.
    Scientist,
}

/// A tree or a person in front of a camera.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenEntity {
    pub kind: SeenKind,
    /// Metres to the right, up and forward of the camera, of the middle.
    pub position: [f32; 3],
    /// Metres: width, height, depth.
    pub size: [f32; 3],
    /// Only of players nearby.
    pub name: Option<String>,
}

impl SeenEntity {
    /// Metres from the camera.
    pub fn distance(&self) -> f32 {
        self.position.iter().map(|part| part * part).sum::<f32>().sqrt()
    }
}

/// The trees and persons of a frame, the nearest first; those of an unknown kind and those without a place are left
/// out.
pub fn read_entities(rays: &AppCameraRays) -> Vec<SeenEntity> {
    let mut seen: Vec<SeenEntity> = rays
        .entities
        .iter()
        .filter_map(|entity| {
            let name =
                entity.name.as_deref().map(|name| plain_text(name, LONGEST_NAME)).filter(|name| !name.is_empty());
            let is_number = name.as_ref().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            let kind = match entity.r#type {
                1 => SeenKind::Tree,
                2 if is_number => SeenKind::Scientist,
                2 => SeenKind::Player,
                _ => return None,
            };
            let (at, size) = (&entity.position, &entity.size);
            let (position, size) = ([at.x(), at.y(), at.z()], [size.x(), size.y(), size.z()]);
            let is_sound = position.iter().chain(&size).all(|metres| metres.is_finite());
            is_sound.then_some(SeenEntity { kind, position, size, name: name.filter(|_| kind == SeenKind::Player) })
        })
        .collect();
    seen.sort_by(|one, other| one.distance().total_cmp(&other.distance()));
    seen.truncate(ENTITIES);
    seen
}

/// Frames that cover a picture once, in the order in which they came.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraShot {
    pub view: CameraView,
    /// When the last frame came.
    pub at: Timestamp,
    pub frames: Vec<RayFrame>,
    /// Degrees.
    pub vertical_fov: f32,
    pub entities: Vec<SeenEntity>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::wire::{Vector3, app_camera_rays::Entity};

    const VIEW: CameraView = CameraView { width: 4, height: 4, near_plane: 0.0, far_plane: 250.0 };

    #[test]
    fn views_and_frames_beyond_the_limits_are_no_picture() {
        let info = |width, height| AppCameraInfo { width, height, far_plane: 250.0, ..Default::default() };
        assert_eq!(CameraView::read(&info(160, 90)).map(|view| view.pixels()), Ok(14_400));
        assert!(CameraView::read(&info(640, 360)).is_ok());
        for (width, height) in [(0, 90), (160, 0), (-1, 90), (1_025, 1), (1_000, 1_000), (i32::MAX, i32::MAX)] {
            assert_eq!(CameraView::read(&info(width, height)), Err(NoPicture), "{width} × {height}");
        }
        for far_plane in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(CameraView::read(&AppCameraInfo { far_plane, ..info(160, 90) }), Err(NoPicture));
        }
        let frame = |sample_offset, data: Vec<u8>| {
            let rays = AppCameraRays { sample_offset, ray_data: data.into(), ..Default::default() };
            RayFrame::read(&rays, &VIEW)
        };
        assert!(frame(i32::MAX, vec![0; 100]).is_ok());
        assert_eq!(frame(-1, vec![0; 100]), Err(NoPicture));
        assert_eq!(frame(0, vec![0; LARGEST_FRAME + 1]), Err(NoPicture));
        assert_eq!(frame(0, vec![0xC1, 0x00]), Err(NoPicture));
    }

    #[test]
    fn entities_are_read_nearest_first_and_without_what_makes_no_sense() {
        let vector = |x, y, z| Vector3 { x: Some(x), y: Some(y), z: Some(z) };
        let entity = |r#type, z, name: Option<&str>| Entity {
            r#type,
            position: vector(0.0, 0.0, z),
            size: vector(1.0, 2.0, 1.0),
            name: name.map(Into::into),
            ..Default::default()
        };
        let entities = vec![
            entity(2, 9.0, Some("<b>Marlow</b>")),
            entity(1, 3.0, None),
            entity(2, 5.0, Some("1234")),
            entity(3, 1.0, None),
            entity(1, f32::NAN, None),
        ];
        let seen = read_entities(&AppCameraRays { entities, ..Default::default() });
        let seen: Vec<_> = seen.iter().map(|entity| (entity.kind, entity.name.as_deref())).collect();
        assert_eq!(seen, [(SeenKind::Tree, None), (SeenKind::Scientist, None), (SeenKind::Player, Some("Marlow"))]);
    }
}
