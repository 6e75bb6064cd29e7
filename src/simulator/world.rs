//! A seeded, scripted world: teams, their bases and devices, ships and helicopters, shops, raids.
//!
//! The state is kept in the game's own messages. Time is an argument; what a real server would broadcast is kept as
//! [`WorldChange`]s until the caller takes them out. The script is dense in the first 90 seconds and continues at
//! random.

mod cameras;
mod change;
mod chat;
mod devices;
mod error;
mod info;
mod items;
mod markers;
mod players;
mod roster;
mod script;
mod shops;
mod team;
mod team_controls;
mod team_life;
mod teams;
mod time;
mod traffic;

use std::{collections::BTreeMap, sync::Arc};

use chrono::TimeDelta;

pub use cameras::{Camera, FIXED_CAMERA, TURNING_CAMERA};
pub use change::WorldChange;
pub use devices::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, LOOT_BOX, SimulatedDevice, TOOL_CUPBOARD, WALL_ALARM};
pub use error::GameError;
pub use roster::roster;
pub use team::{SimulatedTeam, SimulatedTeamId, TEAM};

use self::{
    chat::CHATTER,
    devices::SimulatedDevices,
    markers::Markers,
    players::SimulatedPlayers,
    script::{AFTER_WIPE, OPENING, Script, ScriptEvent},
    teams::SimulatedTeams,
    traffic::Traffic,
};
use super::{ground::Ground, point::Point, rng::Rng, terrain::Terrain};
use crate::{
    domain::time::Timestamp,
    game::wire::{AppEntityInfo, AppInfo, AppMarker, AppTime, app_team_info::Note},
};

/// A world that was not advanced for longer (the computer was asleep) skips the rest.
const LONGEST_LEAP: TimeDelta = TimeDelta::hours(1);
/// Between the two broadcasts of a storage monitor.
const STORAGE_SETTLES: TimeDelta = TimeDelta::milliseconds(500);
const RESPAWN_SECONDS: f32 = 18.0;

/// The world of one game server.
pub struct SimulatedWorld {
    now: Timestamp,
    start: Timestamp,
    wiped_at: Timestamp,
    seed: u64,
    rng: Rng,
    terrain: Arc<Terrain>,
    ground: Arc<Ground>,
    /// Founders of each base, with their names: [`TEAM`] first. A wipe brings them together again.
    founders: Vec<Vec<(u64, String)>>,
    players: SimulatedPlayers,
    teams: SimulatedTeams,
    /// Things happen among the teams by themselves.
    lively: bool,
    markers: Markers,
    traffic: Traffic,
    devices: SimulatedDevices,
    cameras: BTreeMap<String, Camera>,
    /// Events to come.
    pub script: Script,
    changes: Vec<WorldChange>,
}

impl SimulatedWorld {
    /// A world at the start of its script; the same seed and start give the same events.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        let team = TEAM.map(|(player, name)| (player, name.to_owned()));
        let mut world = Self::wiped(seed, start, start - TimeDelta::days(2), vec![team.to_vec()]);
        world.build_base();
        world.script = Script::starting(start, &OPENING);
        world
    }

    /// Adds `count` shops that never change (load tests).
    pub fn with_markers(mut self, count: usize) -> Self {
        for _ in 0..count {
            shops::open(&mut self.markers, &self.terrain, &mut self.rng, shops::STATIC_SHOP, 2);
        }
        self
    }

    /// An island after a wipe: teams of these founders on it, shops, nothing built and nothing planned yet.
    fn wiped(seed: u64, now: Timestamp, wiped_at: Timestamp, founders: Vec<Vec<(u64, String)>>) -> Self {
        let terrain = Arc::new(Terrain::new(seed));
        let mut rng = Rng::new(seed);
        let mut markers = Markers::default();
        shops::open_all(&mut markers, &terrain, &mut rng);
        let mut world = Self {
            now,
            start: now,
            wiped_at,
            seed,
            rng,
            ground: Arc::new(Ground::around(&terrain, terrain.base())),
            founders,
            players: SimulatedPlayers::default(),
            teams: SimulatedTeams::default(),
            lively: false,
            markers,
            traffic: Traffic::default(),
            devices: SimulatedDevices::default(),
            cameras: BTreeMap::new(),
            script: Script::default(),
            changes: Vec::new(),
            terrain,
        };
        for base in 0..world.founders.len() {
            world.settle(base);
        }
        world
    }

    fn build_base(&mut self) {
        let (owner, base) = (TEAM[0].0, self.terrain.base());
        self.devices.build_base(0, &[owner], self.now);
        self.cameras = cameras::of_base(base);
        let note = |at: Point, icon, label: &str| Note {
            r#type: 1,
            x: at.x,
            y: at.y,
            icon: Some(icon),
            colour_index: Some(2),
            label: Some(label.to_owned()),
        };
        self.players.add_note(owner, note(base, 2, "base"));
        self.players.add_note(owner, note(self.terrain.monument("fishing_village_display_name"), 0, "boats"));
    }

    // Time

    /// The time up to which the world has moved.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Moves the world on to `now`; an earlier time changes nothing.
    pub fn advance_to(&mut self, now: Timestamp) {
        if now - self.now > LONGEST_LEAP {
            let skipped = now - self.now - LONGEST_LEAP;
            self.now += skipped;
            self.script.postpone(skipped);
        }
        while let Some((at, event)) = self.script.take_due(now) {
            self.move_until(at);
            self.run(event);
        }
        self.move_until(now);
    }

    /// Changes since the last call, to be broadcast.
    pub fn take_changes(&mut self) -> Vec<WorldChange> {
        std::mem::take(&mut self.changes)
    }

    /// Everything that walks or travels does so until `now`.
    fn move_until(&mut self, now: Timestamp) {
        let seconds = (now - self.now).num_milliseconds() as f32 / 1000.0;
        if seconds > 0.0 {
            self.now = now;
            self.players.walk(&self.terrain, &mut self.rng, seconds);
            self.traffic.advance(&mut self.markers, seconds);
        }
    }

    // The script

    /// Lets an event happen, and plans the next one of its kind.
    fn run(&mut self, event: ScriptEvent) {
        match event {
            ScriptEvent::Chat => {
                let speaker = self.any_mate();
                if self.member(speaker).is_some_and(|member| member.is_online) {
                    let line = CHATTER[self.rng.below(CHATTER.len())];
                    self.say(speaker, line);
                }
            }
            ScriptEvent::Trade => shops::trade(&mut self.markers, &mut self.rng),
            ScriptEvent::Raid => self.raid(),
            ScriptEvent::AlarmOn(alarm) => self.fire_alarm(alarm),
            ScriptEvent::AlarmOff(alarm) => self.release_alarm(alarm),
            ScriptEvent::StorageUsed(storage) => self.use_storage(storage),
            ScriptEvent::StorageSettled(storage) => self.changes.extend(self.devices.changed(storage, false)),
            ScriptEvent::SwitchUsed => {
                let switch = if self.rng.chance(0.5) { GATE_SWITCH } else { LIGHTS_SWITCH };
                if let Some(SimulatedDevice::Switch { on }) = self.devices.get(switch) {
                    let turned = !*on;
                    self.set_switch(switch, turned).expect("the entity is a switch");
                }
            }
            ScriptEvent::CargoShip => _ = self.send_cargo_ship(),
            ScriptEvent::Helicopter => {
                let shot_down = self.rng.chance(0.4);
                self.send_helicopter(shot_down);
            }
            ScriptEvent::Chinook { to_rig } => {
                let rig = if self.rng.chance(0.5) { "oil_rig_small" } else { "large_oil_rig" };
                self.send_chinook(to_rig.then_some(rig));
            }
            ScriptEvent::Vendor => _ = self.send_vendor(),
            ScriptEvent::Death => {
                let victim = self.any_mate();
                if self.member(victim).is_some_and(|member| member.is_online && member.is_alive) {
                    self.kill(victim);
                    self.script.add(after(self.now, RESPAWN_SECONDS), ScriptEvent::Respawn(victim));
                }
            }
            ScriptEvent::Respawn(steam_id) => self.respawn(steam_id),
            ScriptEvent::Logout => {
                let leaving = self.any_mate();
                if self.member(leaving).is_some_and(|member| member.is_online) {
                    self.set_online(leaving, false);
                    let seconds = self.rng.between(20.0, 300.0);
                    self.script.add(after(self.now, seconds), ScriptEvent::Login(leaving));
                }
            }
            ScriptEvent::Login(steam_id) => self.set_online(steam_id, true),
            ScriptEvent::TeamLife(step) => self.live(step),
        }
        if let Some((seconds, next)) = event.next(&mut self.rng) {
            self.script.add(after(self.now, seconds), next);
        }
    }

    /// Any of the first team but the paired player.
    fn any_mate(&mut self) -> u64 {
        TEAM[1 + self.rng.below(TEAM.len() - 1)].0
    }

    /// The alarms pulse for half a minute, and a member who is online says so in the chat.
    pub fn raid(&mut self) {
        let team = TEAM.iter().filter_map(|(player, _)| self.players.get(*player));
        let witness = team.filter(|member| member.is_online && member.is_alive).map(|member| member.steam_id).next();
        if let Some(witness) = witness {
            self.say(witness, "RAID! they are at the base");
        }
        for (seconds, event) in script::raid(&mut self.rng) {
            self.script.add(after(self.now, seconds), event);
        }
    }

    /// A stack in a container shrinks or grows a little.
    fn use_storage(&mut self, storage: u64) {
        let amount = 10 * (1 + self.rng.below(30)) as i32;
        let pick = self.rng.bits() as usize;
        let Some(SimulatedDevice::Storage { items, .. }) = self.devices.get(storage) else { return };
        let mut items = items.clone();
        if items.is_empty() {
            return;
        }
        let pick = pick % items.len();
        let (_, quantity) = &mut items[pick];
        *quantity = if *quantity > 2000 { *quantity - amount } else { *quantity + amount };
        self.set_storage(storage, items);
    }

    // Controls, for the script and for tests: the map

    /// A cargo ship comes from the open sea, docks at both harbours and leaves. Returns its marker id, as below.
    pub fn send_cargo_ship(&mut self) -> u64 {
        self.traffic.send_cargo_ship(&mut self.markers, &self.terrain)
    }

    /// A patrol helicopter comes, circles and leaves, or goes down over land.
    pub fn send_helicopter(&mut self, shot_down: bool) -> u64 {
        self.traffic.send_helicopter(&mut self.markers, &self.terrain, &mut self.rng, shot_down)
    }

    /// A Chinook brings scientists to the oil rig with this token, or crosses the map.
    pub fn send_chinook(&mut self, rig: Option<&str>) -> u64 {
        self.traffic.send_chinook(&mut self.markers, &self.terrain, &mut self.rng, rig)
    }

    /// The travelling vendor drives from stop to stop, and is gone after a while.
    pub fn send_vendor(&mut self) -> u64 {
        self.traffic.send_vendor(&mut self.markers, &mut self.rng)
    }

    /// Adds a marker; an id of 0 means the next free one.
    pub fn add_marker(&mut self, marker: AppMarker) -> u64 {
        self.markers.add(marker)
    }

    /// For changes that no other control makes, such as prices; `None` if there is no such marker.
    pub fn marker_mut(&mut self, id: u64) -> Option<&mut AppMarker> {
        self.markers.get_mut(id)
    }

    /// Moves a marker; one that is absent stays so.
    pub fn move_marker(&mut self, id: u64, to: Point) {
        self.markers.move_to(id, to);
    }

    /// Takes a marker off the map.
    pub fn remove_marker(&mut self, id: u64) {
        self.markers.remove(id);
    }

    /// A new map: another seed, no devices, other shops. The teams are again as they were founded.
    pub fn wipe(&mut self) {
        let mut changes = self.take_changes();
        changes.push(WorldChange::Wiped);
        // The game counts wipes in seconds, and clients in minutes: a wipe right after another must still show.
        let wiped_at = self.now.max(self.wiped_at + TimeDelta::minutes(2));
        let (founders, lively) = (std::mem::take(&mut self.founders), self.lively);
        let clock = self.teams.take_clock();
        *self = Self::wiped(self.seed.wrapping_add(1), self.now, wiped_at, founders);
        if let Some(clock) = clock {
            self.chat_follows(clock);
        }
        self.script = Script::starting(self.now, &AFTER_WIPE);
        if lively {
            self.enliven_teams();
        }
        self.changes = changes;
    }

    // Controls: devices

    /// The entity id of the device of another base that is there what `device` is at the first one.
    pub fn device_of(base: usize, device: u64) -> u64 {
        devices::device_of(base, device)
    }

    /// Authorises a player at the cupboard of a base, so that they may use its devices, or no longer. A base whose cupboard
    /// admits everybody is closed to all others.
    pub fn authorise(&mut self, base: usize, player: u64, authorised: bool) {
        self.devices.authorise(base, player, authorised);
    }

    /// Refuses a player who may not use the device, as the game does.
    pub fn may_use(&self, player: u64, entity_id: u64) -> Result<(), GameError> {
        self.devices.may_use(player, entity_id)
    }

    /// Adds or replaces a device.
    pub fn add_device(&mut self, entity_id: u64, name: &str, device: SimulatedDevice) {
        self.devices.insert(entity_id, name, device);
    }

    /// Destroys a device: it is `not_found` from now on, and nothing is broadcast.
    pub fn destroy_device(&mut self, entity_id: u64) {
        self.devices.remove(entity_id);
    }

    /// Turns a switch; nothing is broadcast when it has that value already.
    pub fn set_switch(&mut self, entity_id: u64, value: bool) -> Result<(), GameError> {
        self.changes.extend(self.devices.set_switch(entity_id, value)?);
        Ok(())
    }

    /// Power reaches the alarm.
    pub fn fire_alarm(&mut self, entity_id: u64) {
        self.changes.extend(self.devices.power_alarm(entity_id, true));
    }

    /// Power leaves the alarm.
    pub fn release_alarm(&mut self, entity_id: u64) {
        self.changes.extend(self.devices.power_alarm(entity_id, false));
    }

    /// Turns a switch, or the power of an alarm.
    pub fn flip_device(&mut self, entity_id: u64) {
        self.changes.extend(self.devices.flip(entity_id));
    }

    /// Changes the contents of a container: broadcast now as transitional, and again half a second later.
    pub fn set_storage(&mut self, entity_id: u64, contents: Vec<(i32, i32)>) {
        if self.devices.set_storage(entity_id, contents, self.now) {
            self.changes.extend(self.devices.changed(entity_id, true));
            self.script.add(self.now + STORAGE_SETTLES, ScriptEvent::StorageSettled(entity_id));
        }
    }

    pub(crate) fn set_subscription(&mut self, entity_id: u64, player: u64, wanted: bool) -> Result<(), GameError> {
        self.devices.set_subscription(entity_id, player, wanted)
    }

    pub(crate) fn camera_mut(&mut self, name: &str) -> Option<&mut Camera> {
        self.cameras.get_mut(name)
    }

    // Requests of clients

    /// The land of this wipe.
    pub fn terrain(&self) -> &Terrain {
        &self.terrain
    }

    /// The land around the base, for the cameras.
    pub fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    /// Entity id, name and device, for pairing.
    pub fn devices(&self) -> impl Iterator<Item = (u64, &str, &SimulatedDevice)> {
        self.devices.iter()
    }

    /// The camera of this identifier.
    pub fn camera(&self, name: &str) -> Option<&Camera> {
        self.cameras.get(name)
    }

    /// Hour of the day, 0..24.
    pub fn hour(&self) -> f32 {
        time::hour(self.now - self.start)
    }

    pub(crate) fn time(&self) -> AppTime {
        time::app_time(self.hour())
    }

    /// Facts of the server, as the game answers them.
    pub fn info(&self) -> AppInfo {
        info::app_info(self.seed, self.now, self.wiped_at)
    }

    /// State of a device, as the game answers it.
    pub fn entity_info(&self, entity_id: u64) -> Result<AppEntityInfo, GameError> {
        self.devices.app_entity_info(entity_id)
    }

    /// True if the alarm sends push messages to the player.
    pub fn subscription(&self, entity_id: u64, player: u64) -> Result<bool, GameError> {
        self.devices.subscription(entity_id, player)
    }
}

fn after(now: Timestamp, seconds: f32) -> Timestamp {
    now + TimeDelta::milliseconds((seconds * 1000.0) as i64)
}

#[cfg(test)]
mod tests;
