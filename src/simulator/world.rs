//! A seeded, scripted world: a team, its base and devices, ships and helicopters, shops, raids.
//!
//! The state is kept in the game's own messages. Time is an argument; what a real server would broadcast is kept as
//! [`WorldChange`]s until the caller takes them out. The script is dense in the first 90 seconds and continues at
//! random.
//!
//! Above 500 lines: one method for each thing that a test changes or the game answers.

mod cameras;
mod change;
mod chat;
mod devices;
mod error;
mod info;
mod items;
mod markers;
mod script;
mod shops;
mod team;
mod time;
mod traffic;

use std::{collections::BTreeMap, sync::Arc};

use chrono::TimeDelta;

pub use cameras::{Camera, FIXED_CAMERA, TURNING_CAMERA};
pub use change::WorldChange;
pub use devices::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, LOOT_BOX, SimulatedDevice, TOOL_CUPBOARD, WALL_ALARM};
pub use error::GameError;
pub use team::TEAM;

use self::{
    chat::{CHATTER, SimulatedChat},
    devices::SimulatedDevices,
    markers::Markers,
    script::{AFTER_WIPE, OPENING, Script, ScriptEvent},
    team::SimulatedTeam,
    traffic::Traffic,
};
use super::{ground::Ground, point::Point, rng::Rng, terrain::Terrain};
use crate::{
    domain::time::Timestamp,
    game::wire::{
        AppEntityInfo, AppInfo, AppMapMarkers, AppMarker, AppMarkerType, AppTeamChat, AppTeamInfo, AppTime,
        app_team_info::{Member, Note},
    },
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
    team: SimulatedTeam,
    pub chat: SimulatedChat,
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
        let mut world = Self::wiped(seed, start, start - TimeDelta::days(2));
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

    /// An island after a wipe: the team on it, shops, nothing built and nothing planned yet.
    fn wiped(seed: u64, now: Timestamp, wiped_at: Timestamp) -> Self {
        let terrain = Arc::new(Terrain::new(seed));
        let mut rng = Rng::new(seed);
        let mut markers = Markers::default();
        shops::open_all(&mut markers, &terrain, &mut rng);
        Self {
            now,
            start: now,
            wiped_at,
            seed,
            rng,
            ground: Arc::new(Ground::around(&terrain, terrain.base())),
            team: SimulatedTeam::new(terrain.base(), now),
            chat: SimulatedChat::default(),
            markers,
            traffic: Traffic::default(),
            devices: SimulatedDevices::default(),
            cameras: BTreeMap::new(),
            script: Script::default(),
            changes: Vec::new(),
            terrain,
        }
    }

    fn build_base(&mut self) {
        let (owner, base) = (TEAM[0].0, self.terrain.base());
        self.devices = SimulatedDevices::of_base(owner, self.now);
        self.cameras = cameras::of_base(base);
        let note = |at: Point, icon, label: &str| Note {
            r#type: 1,
            x: at.x,
            y: at.y,
            icon: Some(icon),
            colour_index: Some(2),
            label: Some(label.to_owned()),
        };
        self.team.add_note(owner, note(base, 2, "base"));
        self.team.add_note(owner, note(self.terrain.monument("fishing_village_display_name"), 0, "boats"));
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
            self.team.walk(&self.terrain, &mut self.rng, seconds);
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
        }
        if let Some((seconds, next)) = event.next(&mut self.rng) {
            self.script.add(after(self.now, seconds), next);
        }
    }

    /// Any of the team but the paired player.
    fn any_mate(&mut self) -> u64 {
        TEAM[1 + self.rng.below(TEAM.len() - 1)].0
    }

    /// The alarms pulse for half a minute, and a member who is online says so in the chat.
    pub fn raid(&mut self) {
        let witness = self.team.members().iter().find(|member| member.is_online && member.is_alive);
        if let Some(witness) = witness.map(|member| member.steam_id) {
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

    /// A new map: another seed, no devices, other shops. The team stays.
    pub fn wipe(&mut self) {
        let mut changes = self.take_changes();
        changes.push(WorldChange::Wiped);
        // The game counts wipes in seconds, and clients in minutes: a wipe right after another must still show.
        let wiped_at = self.now.max(self.wiped_at + TimeDelta::minutes(2));
        let chat = self.chat.emptied();
        *self = Self { chat, ..Self::wiped(self.seed.wrapping_add(1), self.now, wiped_at) };
        self.script = Script::starting(self.now, &AFTER_WIPE);
        self.changes = changes;
    }

    // Controls: devices

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

    // Controls: the team

    /// A line of team chat as the member writes it in the game: trimmed, cut, and nothing when empty.
    pub fn say(&mut self, steam_id: u64, text: &str) {
        let member = self.team.member(steam_id);
        let line = member.and_then(|member| self.chat.add(steam_id, &member.name, text, self.now));
        self.changes.extend(line.map(WorldChange::Chat));
    }

    /// The member dies where he is and leaves a death note.
    pub fn kill(&mut self, steam_id: u64) {
        let died = self.team.kill(steam_id, self.now);
        self.team_changed(died);
    }

    /// The dead member wakes up in the base.
    pub fn respawn(&mut self, steam_id: u64) {
        let respawned = self.team.respawn(steam_id, self.terrain.base(), self.now);
        self.team_changed(respawned);
    }

    /// The member logs in to the game or out.
    pub fn set_online(&mut self, steam_id: u64, online: bool) {
        let changed = self.team.set_online(steam_id, online);
        self.team_changed(changed);
    }

    /// Moves a member; the game does not broadcast movement.
    pub fn move_member(&mut self, steam_id: u64, to: Point) {
        self.team.move_to(steam_id, to);
    }

    /// Puts a note on the member's map; the whole team sees the notes of its leader.
    pub fn add_note(&mut self, steam_id: u64, note: Note) {
        self.team.add_note(steam_id, note);
        self.team_changed(true);
    }

    /// `player` asks to make `target` the leader.
    pub fn promote(&mut self, player: u64, target: u64) -> Result<(), GameError> {
        let changed = self.team.promote(player, target)?;
        self.team_changed(changed);
        Ok(())
    }

    /// `player` asks to remove `target` from the team.
    pub fn kick(&mut self, player: u64, target: u64) -> Result<(), GameError> {
        // The removed one gets the broadcast too.
        let players = self.team.players();
        self.team.kick(player, target)?;
        self.changes.push(WorldChange::Team { players });
        Ok(())
    }

    fn team_changed(&mut self, changed: bool) {
        if changed {
            self.changes.push(WorldChange::Team { players: self.team.players() });
        }
    }

    // Requests of clients

    /// SteamID64 of every member of the team.
    pub fn team(&self) -> Vec<u64> {
        self.team.players()
    }

    /// The member of the team with this SteamID64.
    pub fn member(&self, steam_id: u64) -> Option<&Member> {
        self.team.member(steam_id)
    }

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

    /// The team of `player`; a player without a team gets one with only himself in it.
    pub fn team_info(&self, player: u64) -> AppTeamInfo {
        let info = self.team.app_team_info(player);
        info.unwrap_or_else(|| self.team.alone(player, self.terrain.base(), self.wiped_at))
    }

    /// Chat of the player's team, as the game answers it.
    pub fn team_chat(&self, player: u64) -> Result<AppTeamChat, GameError> {
        self.member(player).ok_or("no_team")?;
        Ok(self.chat.app_team_chat())
    }

    /// Everything on the map, the living players of the team included.
    pub fn map_markers(&self, player: u64) -> AppMapMarkers {
        let players =
            self.team_info(player).members.into_iter().filter(|member| member.is_alive).map(|member| AppMarker {
                id: 1_000 + (member.steam_id & 0xFFFF),
                r#type: AppMarkerType::PlayerMarker as i32,
                x: member.x,
                y: member.y,
                steam_id: Some(member.steam_id),
                ..Default::default()
            });
        AppMapMarkers { markers: players.chain(self.markers.iter().cloned()).collect() }
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
