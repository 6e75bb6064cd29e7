//! The cameras of the base.

use std::{collections::BTreeMap, f32::consts::FRAC_PI_2};

use crate::simulator::point::Point;

/// Identifier of the camera on a mast in front of the base, which can be turned.
pub const TURNING_CAMERA: &str = "CAM1";
/// Identifier of the camera that cannot turn.
pub const FIXED_CAMERA: &str = "GATE1";

/// A camera of the base.
#[derive(Clone, Copy, Debug)]
pub struct Camera {
    pub at: Point,
    /// Metres above the ground.
    pub mast: f32,
    /// Radians, clockwise from north.
    pub yaw: f32,
    /// Radians, upwards.
    pub pitch: f32,
    /// 0..=3.
    pub zoom: usize,
    pub turns: bool,
}

/// The cameras by name, all directed at the base.
pub fn of_base(base: Point) -> BTreeMap<String, Camera> {
    let south = -FRAC_PI_2;
    [(TURNING_CAMERA, south, true), (FIXED_CAMERA, south + 0.7, false)]
        .into_iter()
        .map(|(name, angle, turns)| {
            let at = base.towards(angle, 26.0);
            let yaw = (base.x - at.x).atan2(base.y - at.y);
            (name.to_owned(), Camera { at, mast: 5.0, yaw, pitch: -0.08, zoom: 0, turns })
        })
        .collect()
}
