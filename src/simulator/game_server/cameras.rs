//! Subscribers of the cameras, and the players who steer them.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::faults::GameServerFaults;
use crate::{
    domain::{camera, monument::Monument},
    game::wire::{AppCameraInfo, AppCameraInput},
    simulator::{
        scene::{FAR_PLANE, HEIGHT, SAMPLES, Scene, WIDTH},
        terrain::{PlacedMonument, Terrain},
        world::{GameError, SimulatedWorld},
    },
};

/// A subscription ends when it is not renewed for this long.
const RENEWAL: Duration = Duration::from_secs(30);
/// `AppCameraInput.buttons`.
const FIRE_PRIMARY: i32 = 1024;
/// Mouse and fire: a camera that turns and zooms.
const TURNING_CONTROLS: i32 = 2 | 8;

/// The map has a monument with this camera.
fn is_at_monument(name: &str, terrain: &Terrain) -> bool {
    let place = |placed: &PlacedMonument| Monument::new(placed.token, placed.at.x.into(), placed.at.y.into());
    let monuments: Vec<_> = terrain.monuments().iter().filter_map(place).collect();
    camera::of_monuments(&monuments).iter().any(|camera| camera.id == name)
}

/// The camera subscriptions of all clients, by client number.
#[derive(Default)]
pub struct CameraSessions {
    sessions: HashMap<u64, CameraSession>,
    /// The client that steers a camera.
    controllers: HashMap<String, u64>,
    /// Subscriptions that began; renewals are none.
    begun: usize,
}

struct CameraSession {
    camera: String,
    /// The sample with which the next frame begins.
    offset: usize,
    renewed: Instant,
    fire_pressed: bool,
}

impl CameraSessions {
    /// Subscribes a client, or renews its subscription. The first client of a camera steers it.
    pub fn subscribe(
        &mut self,
        client: u64,
        player: u64,
        name: &str,
        world: &SimulatedWorld,
        faults: &GameServerFaults,
        now: Instant,
    ) -> Result<AppCameraInfo, GameError> {
        if name.is_empty() {
            return Err("invalid_id");
        }
        let member = world.member(player);
        if member.is_some_and(|member| !member.is_alive) {
            return Err("no_player");
        }
        if member.is_some_and(|member| member.is_online) {
            return Err("player_online");
        }
        // Current servers give no access to the cameras of monuments.
        if !faults.no_monument_cameras && is_at_monument(name, world.terrain()) {
            return Err("access_denied");
        }
        let turns = world.camera(name).ok_or("not_found")?.turns;
        match self.sessions.get_mut(&client) {
            Some(session) if session.camera == name => session.renewed = now,
            _ => {
                self.end(client);
                let session = CameraSession { camera: name.to_owned(), offset: 0, renewed: now, fire_pressed: false };
                self.sessions.insert(client, session);
                self.begun += 1;
            }
        }
        let steers = turns && *self.controllers.entry(name.to_owned()).or_insert(client) == client;
        Ok(AppCameraInfo {
            width: i32::from(WIDTH),
            height: i32::from(HEIGHT),
            near_plane: 0.0,
            far_plane: FAR_PLANE,
            control_flags: if steers { TURNING_CONTROLS } else { 0 },
        })
    }

    /// Ends the subscription of a client.
    pub fn end(&mut self, client: u64) {
        self.sessions.remove(&client);
        self.controllers.retain(|_, controller| *controller != client);
    }

    /// Ends every look through a camera.
    pub fn end_all(&mut self) {
        self.sessions.clear();
        self.controllers.clear();
    }

    /// Number of subscriptions that began, and of those that there are now.
    pub fn count(&self) -> (usize, usize) {
        (self.begun, self.sessions.len())
    }

    /// True if this client looks through a camera.
    pub fn is_watching(&self, client: u64) -> bool {
        self.sessions.contains_key(&client)
    }

    /// Turns and zooms; input of a client that does not steer the camera changes nothing.
    pub fn steer(&mut self, client: u64, input: &AppCameraInput, world: &mut SimulatedWorld) -> Result<(), GameError> {
        let session = self.sessions.get_mut(&client).ok_or("no_camera")?;
        let camera = world.camera_mut(&session.camera).ok_or("no_camera")?;
        if !camera.turns || self.controllers.get(&session.camera) != Some(&client) {
            return Ok(());
        }
        let (across, above) = (input.mouse_delta.x(), input.mouse_delta.y());
        if across.is_finite() && above.is_finite() {
            camera.yaw = (camera.yaw + across.to_radians()).rem_euclid(std::f32::consts::TAU);
            camera.pitch = (camera.pitch + above.to_radians()).clamp(-1.0, 0.6);
        }
        let pressed = input.buttons & FIRE_PRIMARY != 0;
        if std::mem::replace(&mut session.fire_pressed, pressed) && !pressed {
            camera.zoom = (camera.zoom + 1) % 4;
        }
        Ok(())
    }

    /// The scene of a client's next frame, and the sample with which the frame begins. `None` when there is nothing to
    /// send; a subscription that has run out, or whose player came online or died, ends.
    pub fn next_frame(
        &mut self,
        client: u64,
        player: Option<u64>,
        world: &SimulatedWorld,
        now: Instant,
    ) -> Option<(Scene, usize)> {
        let session = self.sessions.get_mut(&client)?;
        let camera = world.camera(&session.camera);
        let player = player.and_then(|player| world.member(player));
        let unavailable = camera.is_none() || player.is_some_and(|player| player.is_online || !player.is_alive);
        if unavailable || now - session.renewed > RENEWAL {
            self.end(client);
            return None;
        }
        let offset = session.offset;
        session.offset = (offset + SAMPLES) % (usize::from(WIDTH) * usize::from(HEIGHT));
        Some((Scene::new(world, camera?), offset))
    }
}
