//! The view of a camera: rays that meet the ground, the sea, a base of boxes, trees or players.

use std::sync::Arc;

use crate::game::{
    camera::{Sample, encode_rays},
    wire::{AppCameraRays, Vector3, app_camera_rays},
};

use super::{
    ground::Ground,
    point::Point,
    terrain::MAP_SIZE,
    vector::{Vector, dot, minus, unit},
    world::{Camera, SimulatedWorld},
};

/// Pixels of a camera picture from left to right.
pub const WIDTH: u16 = 160;
/// Pixels of a camera picture from top to bottom.
pub const HEIGHT: u16 = 90;
/// Metres.
pub const FAR_PLANE: f32 = 250.0;
/// Samples of one frame.
pub const SAMPLES: usize = 3000;
/// Vertical field of view in degrees by zoom level.
const FIELD_OF_VIEW: [f32; 4] = [65.0, 43.33, 26.0, 16.25];
/// Metres within which a frame lists trees, players, and the names of players.
const TREES_WITHIN: f32 = 100.0;
const PLAYERS_WITHIN: f32 = 30.0;
const NAMES_WITHIN: f32 = 10.0;

const TERRAIN: u8 = 1;
const WATER: u8 = 2;
const STONES: u8 = 4;
const WOOD: u8 = 5;
const METAL: u8 = 6;
const PLAYER: u8 = 7;

/// `AppCameraRays.EntityType`.
const TREE_ENTITY: i32 = 1;
const PLAYER_ENTITY: i32 = 2;

/// A box along the axes.
#[derive(Clone, Copy, Debug)]
struct Solid {
    low: Vector,
    high: Vector,
    material: u8,
}

impl Solid {
    /// A box on the ground, `depth` metres sunk into it.
    fn on(ground: &Ground, at: Point, size: Vector, depth: f32, material: u8) -> Self {
        let bottom = ground.height(at.x, at.y) - depth;
        Self {
            low: [at.x - size[0] / 2.0, at.y - size[1] / 2.0, bottom],
            high: [at.x + size[0] / 2.0, at.y + size[1] / 2.0, bottom + depth + size[2]],
            material,
        }
    }

    /// Metres along the ray, and how directly the surface faces it (0 to 1).
    fn hit(&self, from: Vector, ray: Vector) -> Option<(f32, f32)> {
        let (mut enter, mut leave, mut facing) = (0.0f32, f32::INFINITY, 0.0);
        for axis in 0..3 {
            let near = (self.low[axis] - from[axis]) / ray[axis];
            let far = (self.high[axis] - from[axis]) / ray[axis];
            let (near, far) = if near < far { (near, far) } else { (far, near) };
            if near > enter {
                (enter, facing) = (near, ray[axis].abs());
            }
            leave = leave.min(far);
        }
        (enter > 0.0 && enter <= leave).then_some((enter, facing))
    }
}

/// A tree or a player.
struct Entity {
    id: u64,
    kind: i32,
    middle: Vector,
    size: Vector,
    name: Option<String>,
}

/// MapContext of a camera at one moment: a copy, so that rays need no lock on the world.
pub struct Scene {
    ground: Arc<Ground>,
    solids: Vec<Solid>,
    entities: Vec<Entity>,
    eye: Vector,
    forward: Vector,
    right: Vector,
    up: Vector,
    yaw: f32,
    pitch: f32,
    fov: f32,
    daylight: f32,
}

impl Scene {
    /// The world as this camera sees it now.
    pub fn new(world: &SimulatedWorld, camera: &Camera) -> Self {
        let ground = Arc::clone(world.ground());
        let base = world.terrain().base();
        let (sin_yaw, cos_yaw) = camera.yaw.sin_cos();
        let (sin_pitch, cos_pitch) = camera.pitch.sin_cos();
        let mut solids = vec![
            Solid::on(&ground, base, [15.0, 15.0, 1.5], 6.0, STONES),
            Solid::on(&ground, base, [12.0, 12.0, 6.0], 2.0, WOOD),
            Solid::on(&ground, Point::new(base.x, base.y - 6.1), [2.4, 0.4, 4.0], 2.0, METAL),
        ];
        for (x, y, wide, deep) in [(-11.0, -11.0, 14.0, 0.6), (11.0, -11.0, 8.0, 0.6), (-18.0, -4.0, 0.6, 14.0)] {
            let at = Point::new(base.x + x, base.y + y);
            solids.push(Solid::on(&ground, at, [wide, deep, 3.0], 3.0, WOOD));
        }
        let mut entities = Vec::new();
        for n in 0..14u64 {
            let at = base.towards(n as f32 * 0.83, 22.0 + (n * 37 % 60) as f32);
            if at.distance(camera.at) < 8.0 || ground.height(at.x, at.y) < 0.5 {
                continue;
            }
            let trunk = Solid::on(&ground, at, [0.7, 0.7, 7.0], 1.0, WOOD);
            solids.push(trunk);
            entities.push(Entity::of(&trunk, 5_000 + n, TREE_ENTITY, [3.0, 3.0, 8.0], None));
        }
        for member in world.players() {
            let at = Point::new(member.x, member.y);
            if !member.is_alive || !member.is_online || at.distance(camera.at) > FAR_PLANE {
                continue;
            }
            let body = Solid::on(&ground, at, [0.8, 0.8, 1.8], 0.0, PLAYER);
            solids.push(body);
            let id = 9_000 + (member.steam_id & 0xFFFF);
            entities.push(Entity::of(&body, id, PLAYER_ENTITY, [0.8, 0.8, 1.8], Some(member.name.clone())));
        }
        let eye = [camera.at.x, camera.at.y, ground.height(camera.at.x, camera.at.y) + camera.mast];
        let daylight = ((world.hour() - 13.5).abs() / 7.0).clamp(0.0, 1.0);
        Self {
            ground,
            solids,
            entities,
            eye,
            forward: [sin_yaw * cos_pitch, cos_yaw * cos_pitch, sin_pitch],
            right: [cos_yaw, -sin_yaw, 0.0],
            up: [-sin_yaw * sin_pitch, -cos_yaw * sin_pitch, cos_pitch],
            yaw: camera.yaw,
            pitch: camera.pitch,
            fov: FIELD_OF_VIEW[camera.zoom % FIELD_OF_VIEW.len()],
            daylight: 1.0 - daylight,
        }
    }

    /// The frame that begins with sample number `offset`.
    pub fn frame(&self, order: &[(u16, u16)], offset: usize) -> AppCameraRays {
        let samples: Vec<Sample> =
            (0..SAMPLES).map(|n| order[(offset + n) % order.len()]).map(|(x, y)| self.sample(x, y)).collect();
        let rotation = Vector3 { x: Some(-self.pitch), y: Some(self.yaw), z: Some(0.0) };
        AppCameraRays {
            vertical_fov: self.fov,
            sample_offset: offset as i32,
            ray_data: encode_rays(&samples).into(),
            distance: 0.0,
            entities: self.visible(),
            time_of_day: Some(self.daylight),
            // The game's axes: y up, the origin in the middle of the world.
            camera_position: Some(Vector3 {
                x: Some(self.eye[0] - MAP_SIZE / 2.0),
                y: Some(self.eye[2]),
                z: Some(self.eye[1] - MAP_SIZE / 2.0),
            }),
            camera_rotation: Some(rotation),
            sample_rotation: Some(rotation),
        }
    }

    /// The trees and players in front of the camera, by entity id.
    fn visible(&self) -> Vec<app_camera_rays::Entity> {
        let zero = Vector3 { x: Some(0.0), y: Some(0.0), z: Some(0.0) };
        let mut visible: Vec<_> = self
            .entities
            .iter()
            .filter_map(|entity| {
                let away = minus(entity.middle, self.eye);
                let metres = dot(away, away).sqrt();
                let within = if entity.kind == TREE_ENTITY { TREES_WITHIN } else { PLAYERS_WITHIN };
                let forward = dot(away, self.forward);
                (metres <= within && forward > 0.0).then(|| app_camera_rays::Entity {
                    entity_id: entity.id,
                    r#type: entity.kind,
                    position: Vector3 { x: Some(dot(away, self.right)), y: Some(dot(away, self.up)), z: Some(forward) },
                    rotation: zero,
                    size: Vector3 { x: Some(entity.size[0]), y: Some(entity.size[2]), z: Some(entity.size[1]) },
                    name: entity.name.clone().filter(|_| metres <= NAMES_WITHIN),
                })
            })
            .collect();
        visible.sort_unstable_by_key(|entity| entity.entity_id);
        visible
    }

    /// The first thing that the ray through a pixel meets; y counts upwards.
    fn sample(&self, x: u16, y: u16) -> Sample {
        let height = (self.fov.to_radians() / 2.0).tan();
        let width = height * f32::from(WIDTH) / f32::from(HEIGHT);
        let across = ((f32::from(x) + 0.5) / f32::from(WIDTH) * 2.0 - 1.0) * width;
        let above = ((f32::from(y) + 0.5) / f32::from(HEIGHT) * 2.0 - 1.0) * height;
        let ray: Vector = unit(std::array::from_fn(|n| self.forward[n] + across * self.right[n] + above * self.up[n]));
        let mut nearest = FAR_PLANE;
        let mut sample = Sample::SKY;
        let mut meet = |metres: f32, facing: f32, material: u8| {
            if metres < nearest {
                nearest = metres;
                sample = Sample {
                    distance: (metres / FAR_PLANE * 1023.0) as u16,
                    alignment: (facing.clamp(0.0, 1.0) * 63.0) as u8,
                    material,
                };
            }
        };
        for solid in &self.solids {
            if let Some((metres, facing)) = solid.hit(self.eye, ray) {
                meet(metres, facing, solid.material);
            }
        }
        if ray[2] < 0.0 {
            meet(self.eye[2] / -ray[2], -ray[2], WATER);
        }
        if let Some(metres) = self.ground_along(ray) {
            let normal = self.ground.normal(self.eye[0] + metres * ray[0], self.eye[1] + metres * ray[1]);
            meet(metres, -dot(normal, ray), TERRAIN);
        }
        sample
    }

    /// Metres until the ray meets the ground: long strides high above it, short ones near it.
    fn ground_along(&self, ray: Vector) -> Option<f32> {
        let mut metres = 0.5;
        while metres < FAR_PLANE {
            let at: Vector = std::array::from_fn(|n| self.eye[n] + metres * ray[n]);
            let above = at[2] - self.ground.height(at[0], at[1]);
            if above <= 0.0 {
                return Some(metres);
            }
            metres += (above * 0.5).max(0.1 + metres * 0.004);
        }
        None
    }
}

impl Entity {
    fn of(solid: &Solid, id: u64, kind: i32, size: Vector, name: Option<String>) -> Self {
        let middle = std::array::from_fn(|n| (solid.low[n] + solid.high[n]) / 2.0);
        Self { id, kind, middle, size, name }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{
        domain::time::Timestamp,
        game::camera::{decode_rays, sample_order},
        simulator::world::TURNING_CAMERA,
    };

    #[test]
    fn a_picture_shows_sky_ground_and_the_base() {
        let world = SimulatedWorld::new(7, Timestamp::from_unix(1_790_000_000).expect("a time"));
        let camera = world.camera(TURNING_CAMERA).expect("the base has it");
        let scene = Scene::new(&world, camera);
        let order = sample_order(WIDTH, HEIGHT);
        let mut counts = HashMap::<u8, usize>::new();
        for offset in (0..order.len()).step_by(SAMPLES) {
            let frame = scene.frame(&order, offset);
            let samples = decode_rays(&frame.ray_data).expect("whole samples");
            assert_eq!(samples.len(), SAMPLES);
            for sample in samples {
                *counts.entry(sample.material).or_default() += 1;
            }
        }
        for material in [0, TERRAIN, WOOD, METAL] {
            assert!(counts.get(&material).is_some_and(|count| *count > 20), "material {material}: {counts:?}");
        }
    }
}
