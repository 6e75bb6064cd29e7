//! A seeded, scripted world: a team, its base and devices, ships and helicopters, shops, raids.
//!
//! The state is kept in the game's own messages. Time comes in as an argument; what a real server would broadcast
//! collects as [`News`] until somebody takes it. The script is dense in the first 90 seconds and goes on by chance.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use chrono::TimeDelta;

use super::{
    scene::Ground,
    terrain::{CENTRE, MAP_SIZE, Monument, Place, Rng, Terrain},
};
use crate::{
    domain::time::Timestamp,
    game::wire::{
        AppEntityInfo, AppEntityPayload, AppEntityType, AppInfo, AppMapMarkers, AppMarker, AppMarkerType, AppTeamChat,
        AppTeamInfo, AppTeamMessage, AppTime,
        app_entity_payload::Item,
        app_marker::SellOrder,
        app_team_info::{Member, Note},
    },
};

/// The team, the paired player and leader first. He sleeps in the base, so that cameras work for him.
pub const TEAM: [(u64, &str); 4] = [
    (76561198000000001, "Nox"),
    (76561198000000002, "Marlow"),
    (76561198000000003, "Juniper"),
    (76561198000000004, "Pip"),
];

/// The devices of the base, with the ids they have until the first wipe.
pub const GATE_SWITCH: u64 = 4242;
pub const LIGHTS_SWITCH: u64 = 4243;
pub const BASE_ALARM: u64 = 4244;
pub const WALL_ALARM: u64 = 4245;
pub const TOOL_CUPBOARD: u64 = 4246;
pub const LOOT_BOX: u64 = 4247;

/// A camera on a mast in front of the base that can be turned, and one that cannot.
pub const TURNING_CAMERA: &str = "CAM1";
pub const FIXED_CAMERA: &str = "GATE1";

/// Chat lines the server remembers.
const CHAT_LINES: usize = 100;
/// Characters of a chat line; longer ones are cut.
const CHAT_LENGTH: usize = 256;
const ALARM_SUBSCRIBERS: usize = 20;
/// A world that was not looked at for longer (a computer asleep) skips the rest.
const LONGEST_LEAP: TimeDelta = TimeDelta::hours(1);
/// Between the two broadcasts of a storage monitor.
const STORAGE_SETTLES: TimeDelta = TimeDelta::milliseconds(500);
const DAY_LENGTH_MINUTES: f32 = 60.0;
/// The hour at which the world begins.
const FIRST_HOUR: f32 = 8.0;
const SUNRISE: f32 = 7.5;
const SUNSET: f32 = 20.0;

const SCRAP: i32 = -932201673;
const SULFUR: i32 = -1581843485;
const WOOD: i32 = -151838493;
const STONES: i32 = -2099697608;
const METAL: i32 = 69511070;
const HIGH_QUALITY_METAL: i32 = 317398316;
const GUNPOWDER: i32 = -265876753;
const CLOTH: i32 = -858312878;
const LOW_GRADE_FUEL: i32 = -946369541;
const EXPLOSIVE_CHARGE: i32 = 1248356124;
const ROCKET: i32 = -742865266;
const METAL_PIPE: i32 = 95950017;
const GEARS: i32 = 479143914;
const TECH_TRASH: i32 = 73681876;
const ASSAULT_RIFLE: i32 = 1545779598;

/// What shops sell: item, pieces, currency, cost.
const GOODS: [(i32, i32, i32, i32); 14] = [
    (WOOD, 1000, SCRAP, 20),
    (STONES, 1000, SCRAP, 25),
    (METAL, 500, SCRAP, 40),
    (HIGH_QUALITY_METAL, 50, SCRAP, 60),
    (SULFUR, 500, SCRAP, 75),
    (GUNPOWDER, 100, SULFUR, 350),
    (CLOTH, 200, SCRAP, 15),
    (LOW_GRADE_FUEL, 100, SCRAP, 12),
    (EXPLOSIVE_CHARGE, 1, SULFUR, 4200),
    (ROCKET, 1, SULFUR, 2600),
    (METAL_PIPE, 5, SCRAP, 40),
    (GEARS, 5, SCRAP, 60),
    (TECH_TRASH, 5, SCRAP, 110),
    (ASSAULT_RIFLE, 1, SCRAP, 450),
];

const SHOP_NAMES: [&str; 12] = [
    "A Shop",
    "Bang for Bucks",
    "Cheap Comps",
    "Metal Mart",
    "Night Owl",
    "Oil & Rust",
    "Roadside",
    "Scrap Heap",
    "Sulfur Springs",
    "The Green Door",
    "Twig Trading",
    "Wood 4 All",
];

const CHATTER: [&str; 14] = [
    "anyone got spare metal frags?",
    "running a quick loop past the gas station",
    "two guys with a bow near the road",
    "back in 5, food",
    "put the sulfur in the left box",
    "furnaces are done",
    "who took my jackhammer",
    "roof is up, need a sheet metal door",
    "heard shots at outpost side",
    "selling the spare pipes at the shop",
    "upkeep is fine for now",
    "boat is at the fishing village",
    "got a card, going green",
    "nice, 3k sulfur",
];

/// What a real server tells its clients unasked.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The team of these players changed.
    Team { players: Vec<u64> },
    /// A line of team chat.
    Chat(AppTeamMessage),
    /// A device changed.
    Entity { entity_id: u64, payload: AppEntityPayload },
    /// A new map: a wipe is always a restart.
    Wiped,
}

/// Why the world refuses a request, in the game's words (protocol §1.6).
pub type Refusal = &'static str;

/// A smart device.
#[derive(Clone, Debug, PartialEq)]
pub enum Device {
    Switch {
        on: bool,
    },
    Alarm {
        on: bool,
        /// Who gets a push message when it fires.
        subscribers: BTreeSet<u64>,
    },
    Storage {
        capacity: i32,
        /// Item id and pieces of each stack.
        items: Vec<(i32, i32)>,
        /// When upkeep runs out; tool cupboards only.
        protected_until: Option<Timestamp>,
    },
}

impl Device {
    fn entity_type(&self) -> AppEntityType {
        match self {
            Self::Switch { .. } => AppEntityType::Switch,
            Self::Alarm { .. } => AppEntityType::Alarm,
            Self::Storage { .. } => AppEntityType::StorageMonitor,
        }
    }

    /// `transitional` is the first of the two broadcasts of a storage monitor.
    fn payload(&self, transitional: bool) -> AppEntityPayload {
        match self {
            Self::Switch { on } | Self::Alarm { on, .. } => AppEntityPayload { value: Some(*on), ..Default::default() },
            Self::Storage { capacity, items, protected_until } => AppEntityPayload {
                value: Some(transitional),
                items: items
                    .iter()
                    .map(|&(item_id, quantity)| Item { item_id, quantity, item_is_blueprint: false })
                    .collect(),
                capacity: Some(*capacity),
                has_protection: Some(protected_until.is_some()),
                protection_expiry: protected_until.map(unix),
            },
        }
    }
}

/// A camera of the base.
#[derive(Clone, Copy, Debug)]
pub struct Camera {
    pub at: Place,
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

#[derive(Clone, Copy, Debug)]
struct Leg {
    to: Place,
    /// Metres per second.
    speed: f32,
    /// Seconds of rest on arrival.
    pause: f32,
}

/// Something that travels leg by leg and is gone after the last.
#[derive(Debug)]
struct Mover {
    marker: u64,
    legs: VecDeque<Leg>,
    resting: f32,
}

#[derive(Debug)]
struct Walk {
    steam_id: u64,
    goal: Place,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Chat,
    Trade,
    Raid,
    AlarmOn(u64),
    AlarmOff(u64),
    StorageUsed(u64),
    StorageSettled(u64),
    SwitchUsed,
    CargoShip,
    Helicopter,
    Chinook { to_rig: bool },
    Vendor,
    Death,
    Respawn(u64),
    Logout,
    Login(u64),
}

/// The world of one game server.
pub struct World {
    now: Timestamp,
    start: Timestamp,
    wiped_at: Timestamp,
    seed: u64,
    rng: Rng,
    terrain: Arc<Terrain>,
    ground: Arc<Ground>,
    next_id: u32,
    leader: u64,
    members: Vec<Member>,
    walks: Vec<Walk>,
    notes: BTreeMap<u64, Vec<Note>>,
    chat: VecDeque<AppTeamMessage>,
    markers: BTreeMap<u64, AppMarker>,
    movers: Vec<Mover>,
    devices: BTreeMap<u64, (String, Device)>,
    cameras: BTreeMap<String, Camera>,
    script: BTreeMap<(Timestamp, u32), Event>,
    news: Vec<News>,
}

impl World {
    /// A world at the start of its script; the same seed and start tell the same story.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        let mut world = Self::wiped(seed, start, start - TimeDelta::days(2));
        world.build_base();
        for (seconds, event) in [
            (1, Event::Vendor),
            (2, Event::Trade),
            (5, Event::Chat),
            (10, Event::CargoShip),
            (20, Event::Raid),
            (28, Event::SwitchUsed),
            (30, Event::Helicopter),
            (40, Event::Death),
            (50, Event::Logout),
            (60, Event::Chinook { to_rig: true }),
            (75, Event::StorageUsed(LOOT_BOX)),
        ] {
            world.after(seconds as f32, event);
        }
        world
    }

    /// The same with `count` more shops that never move (load tests).
    pub fn with_markers(mut self, count: usize) -> Self {
        for _ in 0..count {
            self.open_shop("Static Shop", 2);
        }
        self
    }

    /// An island after a wipe: the team on it, shops, nothing built yet.
    fn wiped(seed: u64, now: Timestamp, wiped_at: Timestamp) -> Self {
        let terrain = Arc::new(Terrain::new(seed));
        let base = terrain.base();
        let mut world = Self {
            now,
            start: now,
            wiped_at,
            seed,
            rng: Rng::new(seed),
            ground: Arc::new(Ground::around(&terrain, base)),
            next_id: 100_000,
            leader: TEAM[0].0,
            members: Vec::new(),
            walks: Vec::new(),
            notes: BTreeMap::new(),
            chat: VecDeque::new(),
            markers: BTreeMap::new(),
            movers: Vec::new(),
            devices: BTreeMap::new(),
            cameras: BTreeMap::new(),
            script: BTreeMap::new(),
            news: Vec::new(),
            terrain,
        };
        for (index, (steam_id, name)) in TEAM.into_iter().enumerate() {
            let sleeps = index == 0;
            let at = if sleeps { base } else { base.towards(index as f32 * 2.0, 30.0 * index as f32) };
            world.members.push(Member {
                steam_id,
                name: name.to_owned(),
                x: at.x,
                y: at.y,
                is_online: !sleeps,
                spawn_time: unix(now - TimeDelta::hours(3)),
                is_alive: true,
                death_time: 0,
            });
            if !sleeps {
                world.walks.push(Walk { steam_id, goal: base });
            }
        }
        let outpost = world.terrain.monument("outpost");
        for index in 0..40 {
            let npc = index < 8;
            let name = if npc { "Outpost" } else { SHOP_NAMES[index % SHOP_NAMES.len()] };
            let shop = world.open_shop(name, 1 + index % 4);
            if npc {
                let angle = index as f32 * 0.8;
                world.move_marker(shop, outpost.towards(angle, 35.0));
            }
        }
        // One shop that is too cheap to be honest.
        let bait = world.open_shop("Closing down!!!", 0);
        if let Some(marker) = world.markers.get_mut(&bait) {
            marker.sell_orders.push(order(EXPLOSIVE_CHARGE, 1, SCRAP, 10, 3));
            marker.out_of_stock = Some(false);
        }
        world
    }

    fn build_base(&mut self) {
        let base = self.terrain.base();
        let switch = |on| Device::Switch { on };
        let alarm = || Device::Alarm { on: false, subscribers: BTreeSet::from([TEAM[0].0]) };
        let cupboard = Device::Storage {
            capacity: 29,
            items: vec![(WOOD, 4000), (STONES, 8000), (METAL, 3500), (HIGH_QUALITY_METAL, 120)],
            protected_until: Some(self.now + TimeDelta::hours(31)),
        };
        let box_ = Device::Storage {
            capacity: 48,
            items: vec![(SULFUR, 3000), (SULFUR, 1240), (GUNPOWDER, 600), (SCRAP, 742), (CLOTH, 310)],
            protected_until: None,
        };
        for (entity_id, name, device) in [
            (GATE_SWITCH, "Gate", switch(false)),
            (LIGHTS_SWITCH, "Lights", switch(true)),
            (BASE_ALARM, "Base alarm", alarm()),
            (WALL_ALARM, "Wall alarm", alarm()),
            (TOOL_CUPBOARD, "Tool cupboard", cupboard),
            (LOOT_BOX, "Loot box", box_),
        ] {
            self.devices.insert(entity_id, (name.to_owned(), device));
        }
        let south = -std::f32::consts::FRAC_PI_2;
        for (name, angle, turns) in [(TURNING_CAMERA, south, true), (FIXED_CAMERA, south + 0.7, false)] {
            let at = base.towards(angle, 26.0);
            let yaw = (base.x - at.x).atan2(base.y - at.y);
            self.cameras.insert(name.to_owned(), Camera { at, mast: 5.0, yaw, pitch: -0.08, zoom: 0, turns });
        }
        let note = |at: Place, icon, label: &str| Note {
            r#type: 1,
            x: at.x,
            y: at.y,
            icon: Some(icon),
            colour_index: Some(2),
            label: Some(label.to_owned()),
        };
        let (home, boats) = (note(base, 2, "base"), self.terrain.monument("fishing_village_display_name"));
        self.notes.insert(TEAM[0].0, vec![home, note(boats, 0, "boats")]);
    }

    // Time

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Lets the world live until `now`; an earlier instant changes nothing.
    pub fn advance_to(&mut self, now: Timestamp) {
        if now - self.now > LONGEST_LEAP {
            let skipped = now - self.now - LONGEST_LEAP;
            self.now += skipped;
            self.script = std::mem::take(&mut self.script)
                .into_iter()
                .map(|((at, n), event)| ((at + skipped, n), event))
                .collect();
        }
        while let Some(entry) = self.script.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), event) = entry.remove_entry();
            self.walk_to(at);
            self.happen(event);
        }
        self.walk_to(now);
    }

    /// What to broadcast since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    fn after(&mut self, seconds: f32, event: Event) {
        self.after_delta(TimeDelta::milliseconds((seconds * 1000.0) as i64), event);
    }

    fn after_delta(&mut self, delta: TimeDelta, event: Event) {
        let order = self.new_id() as u32;
        self.script.insert((self.now + delta, order), event);
    }

    fn between(&mut self, low: f32, high: f32, event: Event) {
        let seconds = self.rng.between(low, high);
        self.after(seconds, event);
    }

    /// Ids stay below 2^32: older clients cut them.
    fn new_id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1).max(100_000);
        u64::from(self.next_id)
    }

    fn walk_to(&mut self, now: Timestamp) {
        let seconds = (now - self.now).num_milliseconds() as f32 / 1000.0;
        if seconds <= 0.0 {
            return;
        }
        self.now = now;
        self.walk_team(seconds);
        let mut movers = std::mem::take(&mut self.movers);
        movers.retain_mut(|mover| self.travel(mover, seconds));
        self.movers.append(&mut movers);
    }

    fn walk_team(&mut self, seconds: f32) {
        let base = self.terrain.base();
        for walk in &mut self.walks {
            let Some(member) = self.members.iter_mut().find(|member| member.steam_id == walk.steam_id) else {
                continue;
            };
            if !member.is_online || !member.is_alive {
                continue;
            }
            let at = Place::new(member.x, member.y);
            if at.distance(walk.goal) < 5.0 {
                let (angle, metres) = (self.rng.between(0.0, std::f32::consts::TAU), self.rng.between(20.0, 600.0));
                walk.goal = base.towards(angle, metres);
                if self.terrain.height(walk.goal) < 1.0 {
                    walk.goal = base;
                }
            }
            let at = step(at, walk.goal, 4.5 * seconds);
            (member.x, member.y) = (at.x, at.y);
        }
    }

    /// False once the mover has arrived at its last place and is gone.
    fn travel(&mut self, mover: &mut Mover, mut seconds: f32) -> bool {
        let Some(marker) = self.markers.get_mut(&mover.marker) else {
            return false;
        };
        while seconds > 0.0 {
            if mover.resting > 0.0 {
                let rest = mover.resting.min(seconds);
                mover.resting -= rest;
                seconds -= rest;
                continue;
            }
            let Some(leg) = mover.legs.front() else {
                self.markers.remove(&mover.marker);
                return false;
            };
            let at = Place::new(marker.x, marker.y);
            let (metres, reach) = (at.distance(leg.to), leg.speed * seconds);
            if metres > 0.01 {
                marker.rotation = Some(heading(at, leg.to));
            }
            let next = step(at, leg.to, reach);
            (marker.x, marker.y) = (next.x, next.y);
            if reach < metres {
                return true;
            }
            seconds -= metres / leg.speed;
            mover.resting = leg.pause;
            mover.legs.pop_front();
        }
        true
    }

    // The script

    fn happen(&mut self, event: Event) {
        match event {
            Event::Chat => {
                let speaker = TEAM[1 + self.rng.below(TEAM.len() - 1)].0;
                if self.member(speaker).is_some_and(|member| member.is_online) {
                    let line = CHATTER[self.rng.below(CHATTER.len())];
                    self.say(speaker, line);
                }
                self.between(25.0, 120.0, Event::Chat);
            }
            Event::Trade => {
                self.trade();
                self.between(2.0, 7.0, Event::Trade);
            }
            Event::Raid => self.raid(),
            Event::AlarmOn(alarm) => self.fire_alarm(alarm),
            Event::AlarmOff(alarm) => self.release_alarm(alarm),
            Event::StorageUsed(storage) => {
                self.use_storage(storage);
                let next = if self.rng.chance(0.6) { LOOT_BOX } else { TOOL_CUPBOARD };
                self.between(40.0, 140.0, Event::StorageUsed(next));
            }
            Event::StorageSettled(storage) => self.tell_device(storage, false),
            Event::SwitchUsed => {
                let switch = if self.rng.chance(0.5) { GATE_SWITCH } else { LIGHTS_SWITCH };
                if let Some((_, Device::Switch { on })) = self.devices.get(&switch) {
                    let turned = !*on;
                    self.set_switch(switch, turned).expect("the entity is a switch");
                }
                self.between(70.0, 240.0, Event::SwitchUsed);
            }
            Event::CargoShip => {
                self.send_cargo_ship();
                self.between(2400.0, 4800.0, Event::CargoShip);
            }
            Event::Helicopter => {
                let shot_down = self.rng.chance(0.4);
                self.send_helicopter(shot_down);
                self.between(900.0, 2100.0, Event::Helicopter);
            }
            Event::Chinook { to_rig } => {
                let rig = if self.rng.chance(0.5) { "oil_rig_small" } else { "large_oil_rig" };
                self.send_chinook(to_rig.then_some(rig));
                let to_rig = self.rng.chance(0.7);
                self.between(600.0, 1500.0, Event::Chinook { to_rig });
            }
            Event::Vendor => {
                self.send_vendor();
                self.between(1800.0, 2700.0, Event::Vendor);
            }
            Event::Death => {
                let victim = TEAM[1 + self.rng.below(TEAM.len() - 1)].0;
                if self.member(victim).is_some_and(|member| member.is_online && member.is_alive) {
                    self.kill(victim);
                    self.after(18.0, Event::Respawn(victim));
                }
                self.between(400.0, 1200.0, Event::Death);
            }
            Event::Respawn(steam_id) => self.respawn(steam_id),
            Event::Logout => {
                let leaving = TEAM[1 + self.rng.below(TEAM.len() - 1)].0;
                if self.member(leaving).is_some_and(|member| member.is_online) {
                    self.set_online(leaving, false);
                    self.between(20.0, 300.0, Event::Login(leaving));
                }
                self.between(300.0, 900.0, Event::Logout);
            }
            Event::Login(steam_id) => self.set_online(steam_id, true),
        }
    }

    /// The alarms pulse for half a minute, and somebody sees it.
    fn raid(&mut self) {
        let witness =
            self.members.iter().find(|member| member.is_online && member.is_alive).map(|member| member.steam_id);
        if let Some(witness) = witness {
            self.say(witness, "RAID! they are at the base");
        }
        let mut at = 0.0;
        for pulse in 0..4 {
            let alarm = if pulse == 2 { WALL_ALARM } else { BASE_ALARM };
            self.after(at, Event::AlarmOn(alarm));
            at += 4.0;
            self.after(at, Event::AlarmOff(alarm));
            at += self.rng.between(4.0, 9.0);
        }
        self.between(900.0, 2400.0, Event::Raid);
    }

    fn trade(&mut self) {
        let shops: Vec<u64> = self
            .markers
            .values()
            .filter(|marker| !marker.sell_orders.is_empty() && marker.name.as_deref() != Some("Static Shop"))
            .map(|marker| marker.id)
            .collect();
        if shops.is_empty() {
            return;
        }
        let shop = shops[self.rng.below(shops.len())];
        let (sells, restocks, reprices) = (self.rng.chance(0.7), self.rng.chance(0.8), self.rng.chance(0.12));
        let (pick, bought, added) = (self.rng.bits() as usize, 1 + self.rng.below(3), 5 + self.rng.below(20));
        let factor = self.rng.between(0.75, 1.3);
        let Some(marker) = self.markers.get_mut(&shop) else {
            return;
        };
        let pick = pick % marker.sell_orders.len();
        let order = &mut marker.sell_orders[pick];
        if order.amount_in_stock > 0 && sells {
            order.amount_in_stock = (order.amount_in_stock - bought as i32).max(0);
        } else if restocks {
            order.amount_in_stock += added as i32;
        }
        if reprices {
            order.cost_per_item = ((order.cost_per_item as f32 * factor).round() as i32).max(1);
        }
        marker.out_of_stock = Some(marker.sell_orders.iter().all(|order| order.amount_in_stock == 0));
    }

    fn use_storage(&mut self, storage: u64) {
        let amount = 10 * (1 + self.rng.below(30)) as i32;
        let pick = self.rng.bits() as usize;
        let Some((_, Device::Storage { items, .. })) = self.devices.get(&storage) else {
            return;
        };
        let mut items = items.clone();
        if items.is_empty() {
            return;
        }
        let pick = pick % items.len();
        let (_, quantity) = &mut items[pick];
        *quantity = if *quantity > 2000 { *quantity - amount } else { *quantity + amount };
        self.set_storage(storage, items);
    }

    /// Opens a shop with `orders` lines somewhere on the island; its marker id.
    fn open_shop(&mut self, name: &str, orders: usize) -> u64 {
        let at = self.terrain.land(&mut self.rng);
        let sell_orders: Vec<SellOrder> = (0..orders)
            .map(|_| {
                let (item, quantity, currency, cost) = GOODS[self.rng.below(GOODS.len())];
                let cost = (cost as f32 * self.rng.between(0.8, 1.25)).round() as i32;
                order(item, quantity, currency, cost.max(1), self.rng.below(40) as i32)
            })
            .collect();
        self.add_marker(AppMarker {
            r#type: AppMarkerType::VendingMachineMarker as i32,
            x: at.x,
            y: at.y,
            name: Some(name.to_owned()),
            out_of_stock: Some(sell_orders.iter().all(|order| order.amount_in_stock == 0)),
            sell_orders,
            ..Default::default()
        })
    }

    fn send(&mut self, kind: AppMarkerType, from: Place, legs: impl IntoIterator<Item = Leg>) -> u64 {
        let legs: VecDeque<Leg> = legs.into_iter().collect();
        let rotation = legs.front().map(|leg| heading(from, leg.to));
        let marker =
            self.add_marker(AppMarker { r#type: kind as i32, x: from.x, y: from.y, rotation, ..Default::default() });
        self.movers.push(Mover { marker, legs, resting: 0.0 });
        marker
    }

    // Controls: the script uses them, and so may a test

    /// The cargo ship comes from the open sea, docks at both harbours and leaves; its marker id.
    pub fn send_cargo_ship(&mut self) -> u64 {
        const SPEED: f32 = 15.0;
        let sail = |to| Leg { to, speed: SPEED, pause: 0.0 };
        let harbours = ["harbor_display_name", "harbor_2_display_name"].map(|token| self.terrain.monument(token));
        let angle = bearing(harbours[0]);
        let mut legs = Vec::new();
        let mut sailed = angle;
        for harbour in harbours {
            let towards = bearing(harbour);
            legs.extend(around(sailed, towards).map(sail));
            legs.push(Leg { to: harbour.towards(towards, 60.0), speed: SPEED, pause: 240.0 });
            legs.push(sail(at_sea(towards)));
            sailed = towards;
        }
        legs.push(sail(beyond(sailed)));
        self.send(AppMarkerType::CargoShipMarker, beyond(angle), legs)
    }

    /// The patrol helicopter comes, circles and leaves, or goes down over land; its marker id.
    pub fn send_helicopter(&mut self, shot_down: bool) -> u64 {
        let fly = |to, pause| Leg { to, speed: 45.0, pause };
        let angle = self.rng.between(0.0, std::f32::consts::TAU);
        let monuments: Vec<Place> = self.terrain.monuments()[7..].iter().map(|monument| monument.at).collect();
        let mut legs = Vec::new();
        for _ in 0..4 + self.rng.below(4) {
            let over = monuments[self.rng.below(monuments.len())];
            legs.push(fly(over, self.rng.between(2.0, 12.0)));
        }
        legs.push(if shot_down {
            fly(self.terrain.land(&mut self.rng), 0.0)
        } else {
            fly(beyond(self.rng.between(0.0, std::f32::consts::TAU)), 0.0)
        });
        self.send(AppMarkerType::PatrolHelicopterMarker, beyond(angle), legs)
    }

    /// A chinook brings scientists to the oil rig with this token, or crosses the map; its marker id.
    pub fn send_chinook(&mut self, rig: Option<&str>) -> u64 {
        let fly = |to, pause| Leg { to, speed: 40.0, pause };
        let angle = self.rng.between(0.0, std::f32::consts::TAU);
        let (from, legs) = match rig {
            Some(rig) => {
                let rig = self.terrain.monument(rig);
                let seaward = bearing(rig);
                (rig.towards(seaward, 480.0), vec![fly(rig, 20.0), fly(beyond(seaward + 0.4), 0.0)])
            }
            None => {
                let drop = self.terrain.monument("launchsite");
                (beyond(angle), vec![fly(drop, 15.0), fly(beyond(angle + 2.0), 0.0)])
            }
        };
        self.send(AppMarkerType::Ch47Marker, from, legs)
    }

    /// The travelling vendor drives from place to place, halts, and is gone after a while; its marker id.
    pub fn send_vendor(&mut self) -> u64 {
        let mut stops = Vec::new();
        let mut angle = self.rng.between(0.0, std::f32::consts::TAU);
        for _ in 0..15 {
            angle += self.rng.between(0.2, 0.5);
            let to = CENTRE.towards(angle, self.rng.between(0.2, 0.28) * MAP_SIZE);
            stops.push(Leg { to, speed: 7.0, pause: self.rng.between(15.0, 40.0) });
        }
        let from = stops.remove(0).to;
        self.send(AppMarkerType::TravellingVendorMarker, from, stops)
    }

    /// Adds a marker; an id of 0 means the next free one. Returns its id.
    pub fn add_marker(&mut self, mut marker: AppMarker) -> u64 {
        if marker.id == 0 {
            marker.id = self.new_id();
        }
        let id = marker.id;
        self.markers.insert(id, marker);
        id
    }

    /// For changes that no other control makes, such as prices; `None` if there is no such marker.
    pub fn marker_mut(&mut self, id: u64) -> Option<&mut AppMarker> {
        self.markers.get_mut(&id)
    }

    pub fn move_marker(&mut self, id: u64, to: Place) {
        if let Some(marker) = self.markers.get_mut(&id) {
            (marker.x, marker.y) = (to.x, to.y);
        }
    }

    pub fn remove_marker(&mut self, id: u64) {
        self.markers.remove(&id);
    }

    /// Adds or replaces a device.
    pub fn add_device(&mut self, entity_id: u64, name: &str, device: Device) {
        self.devices.insert(entity_id, (name.to_owned(), device));
    }

    /// Destroys a device: it is `not_found` from now on, and nobody is told.
    pub fn destroy_device(&mut self, entity_id: u64) {
        self.devices.remove(&entity_id);
    }

    /// Turns a switch; the same value again tells nobody.
    pub fn set_switch(&mut self, entity_id: u64, value: bool) -> Result<(), Refusal> {
        let (_, device) = self.devices.get_mut(&entity_id).ok_or("not_found")?;
        let Device::Switch { on } = device else {
            return Err("wrong_type");
        };
        if std::mem::replace(on, value) != value {
            self.tell_device(entity_id, false);
        }
        Ok(())
    }

    /// Power reaches the alarm.
    pub fn fire_alarm(&mut self, entity_id: u64) {
        self.power_alarm(entity_id, true);
    }

    /// Power leaves the alarm.
    pub fn release_alarm(&mut self, entity_id: u64) {
        self.power_alarm(entity_id, false);
    }

    fn power_alarm(&mut self, entity_id: u64, powered: bool) {
        if let Some((_, Device::Alarm { on, .. })) = self.devices.get_mut(&entity_id)
            && std::mem::replace(on, powered) != powered
        {
            self.tell_device(entity_id, false);
        }
    }

    /// Changes the contents of a container: told at once as transitional, and again half a second later.
    pub fn set_storage(&mut self, entity_id: u64, contents: Vec<(i32, i32)>) {
        let now = self.now;
        if let Some((_, Device::Storage { items, protected_until, .. })) = self.devices.get_mut(&entity_id) {
            *items = contents;
            if let Some(until) = protected_until {
                // Real upkeep asks for more than stone; one material is enough to see it move.
                let stone: i64 = items.iter().filter(|item| item.0 == STONES).map(|item| i64::from(item.1)).sum();
                *until = now + TimeDelta::seconds(stone * 14);
            }
            self.tell_device(entity_id, true);
            self.after_delta(STORAGE_SETTLES, Event::StorageSettled(entity_id));
        }
    }

    fn tell_device(&mut self, entity_id: u64, transitional: bool) {
        if let Some((_, device)) = self.devices.get(&entity_id) {
            self.news.push(News::Entity { entity_id, payload: device.payload(transitional) });
        }
    }

    /// A line of team chat as the member writes it in the game: trimmed, cut, and nothing when empty.
    pub fn say(&mut self, steam_id: u64, text: &str) {
        let text = text.trim();
        let Some(name) = self.member(steam_id).map(|member| member.name.clone()).filter(|_| !text.is_empty()) else {
            return;
        };
        let mut message: String = text.chars().take(CHAT_LENGTH).collect();
        if message.len() < text.len() {
            message.pop();
            message.push('…');
        }
        let message = AppTeamMessage { steam_id, name, message, color: "#5af".to_owned(), time: unix(self.now) };
        self.chat.push_back(message.clone());
        if self.chat.len() > CHAT_LINES {
            self.chat.pop_front();
        }
        self.news.push(News::Chat(message));
    }

    /// The member dies where he stands and leaves a death note.
    pub fn kill(&mut self, steam_id: u64) {
        let now = unix(self.now);
        let Some(member) = self.member_mut(steam_id).filter(|member| member.is_alive) else {
            return;
        };
        (member.is_alive, member.death_time) = (false, now);
        let note = Note { r#type: 0, x: member.x, y: member.y, icon: Some(6), colour_index: Some(3), label: None };
        let notes = self.notes.entry(steam_id).or_default();
        notes.retain(|note| note.r#type != 0);
        notes.push(note);
        self.tell_team();
    }

    /// The member wakes in the base.
    pub fn respawn(&mut self, steam_id: u64) {
        let (now, base) = (unix(self.now), self.terrain.base());
        if let Some(member) = self.member_mut(steam_id).filter(|member| !member.is_alive) {
            (member.is_alive, member.spawn_time, member.x, member.y) = (true, now, base.x, base.y);
            self.tell_team();
        }
    }

    /// The member comes to the game or leaves it.
    pub fn set_online(&mut self, steam_id: u64, online: bool) {
        if let Some(member) = self.member_mut(steam_id)
            && std::mem::replace(&mut member.is_online, online) != online
        {
            self.tell_team();
        }
    }

    /// Puts a member somewhere; movement alone is not told.
    pub fn move_member(&mut self, steam_id: u64, to: Place) {
        if let Some(member) = self.member_mut(steam_id) {
            (member.x, member.y) = (to.x, to.y);
        }
        if let Some(walk) = self.walks.iter_mut().find(|walk| walk.steam_id == steam_id) {
            walk.goal = to;
        }
    }

    /// Puts a note on the member's map; seen by all when the member leads.
    pub fn add_note(&mut self, steam_id: u64, note: Note) {
        self.notes.entry(steam_id).or_default().push(note);
        self.tell_team();
    }

    /// Makes `target` the leader, at the request of `player`.
    pub fn promote(&mut self, player: u64, target: u64) -> Result<(), Refusal> {
        self.may_lead(player, target)?;
        if std::mem::replace(&mut self.leader, target) != target {
            self.tell_team();
        }
        Ok(())
    }

    /// Removes `target` from the team, at the request of `player`.
    pub fn kick(&mut self, player: u64, target: u64) -> Result<(), Refusal> {
        self.may_lead(player, target)?;
        if player == target {
            return Err("access_denied");
        }
        let mut players = self.team();
        self.members.retain(|member| member.steam_id != target);
        self.walks.retain(|walk| walk.steam_id != target);
        players.sort_unstable();
        self.news.push(News::Team { players });
        Ok(())
    }

    fn may_lead(&self, player: u64, target: u64) -> Result<(), Refusal> {
        self.member(player).ok_or("no_team")?;
        if self.leader != player {
            return Err("access_denied");
        }
        self.member(target).map(|_| ()).ok_or("not_found")
    }

    fn tell_team(&mut self) {
        let players = self.team();
        self.news.push(News::Team { players });
    }

    /// A new map: other seed, no device, shops elsewhere. The team stays, and so do its tokens.
    pub fn wipe(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        // The game counts wipes in seconds, and clients in minutes: a wipe right after another must still show.
        let wiped_at = self.now.max(self.wiped_at + TimeDelta::minutes(2));
        *self = Self::wiped(self.seed.wrapping_add(1), self.now, wiped_at);
        for (seconds, event) in [
            (2.0, Event::Trade),
            (10.0, Event::Chat),
            (60.0, Event::Vendor),
            (120.0, Event::CargoShip),
            (300.0, Event::Helicopter),
            (400.0, Event::Death),
            (500.0, Event::Logout),
            (600.0, Event::Chinook { to_rig: true }),
        ] {
            self.after(seconds, event);
        }
        news.push(News::Wiped);
        self.news = news;
    }

    // What clients ask for

    /// Steam ids of the team.
    pub fn team(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.steam_id).collect()
    }

    pub fn member(&self, steam_id: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.steam_id == steam_id)
    }

    fn member_mut(&mut self, steam_id: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.steam_id == steam_id)
    }

    pub fn terrain(&self) -> &Arc<Terrain> {
        &self.terrain
    }

    /// The land around the base, for the cameras.
    pub fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    pub fn monuments(&self) -> &[Monument] {
        self.terrain.monuments()
    }

    /// Entity id, name and device, for pairing.
    pub fn devices(&self) -> impl Iterator<Item = (u64, &str, &Device)> {
        self.devices.iter().map(|(id, (name, device))| (*id, name.as_str(), device))
    }

    pub fn camera(&self, name: &str) -> Option<&Camera> {
        self.cameras.get(name)
    }

    pub fn camera_mut(&mut self, name: &str) -> Option<&mut Camera> {
        self.cameras.get_mut(name)
    }

    pub fn info(&self) -> AppInfo {
        // A slow swell through the day.
        let swell = (self.now.timestamp() as f32 % 3600.0 / 3600.0 * std::f32::consts::TAU).sin();
        AppInfo {
            name: "<color=#ce422b>Companion</color> Demo | Weekly | EU".to_owned(),
            header_image: String::new(),
            url: String::new(),
            map: "Procedural Map".to_owned(),
            map_size: MAP_SIZE as u32,
            wipe_time: unix(self.wiped_at),
            players: (84.0 + 20.0 * swell) as u32,
            max_players: 150,
            queued_players: 0,
            seed: Some(self.seed as u32),
            salt: Some((self.seed as u32).wrapping_mul(31).wrapping_add(7)),
            cameras_enabled: Some(true),
            ..Default::default()
        }
    }

    /// Hour of the day, 0..24.
    pub fn hour(&self) -> f32 {
        let elapsed = (self.now - self.start).num_milliseconds() as f32 / 60_000.0;
        (FIRST_HOUR + elapsed * 24.0 / DAY_LENGTH_MINUTES) % 24.0
    }

    pub fn time(&self) -> AppTime {
        AppTime {
            day_length_minutes: DAY_LENGTH_MINUTES,
            time_scale: 1.0,
            sunrise: SUNRISE,
            sunset: SUNSET,
            time: self.hour(),
        }
    }

    /// The team as `player` sees it; somebody without a team sees himself.
    pub fn team_info(&self, player: u64) -> AppTeamInfo {
        let map_notes = self.notes.get(&player).cloned().unwrap_or_default();
        if self.member(player).is_some() {
            let leader_notes = self.notes.get(&self.leader).into_iter().flatten();
            return AppTeamInfo {
                leader_steam_id: self.leader,
                members: self.members.clone(),
                map_notes,
                leader_map_notes: leader_notes.filter(|note| note.r#type == 1).cloned().collect(),
            };
        }
        let base = self.terrain.base();
        let alone = Member {
            steam_id: player,
            name: "Loner".to_owned(),
            x: base.x,
            y: base.y,
            spawn_time: unix(self.wiped_at),
            is_alive: true,
            ..Default::default()
        };
        AppTeamInfo { leader_steam_id: player, members: vec![alone], map_notes, ..Default::default() }
    }

    pub fn team_chat(&self, player: u64) -> Result<AppTeamChat, Refusal> {
        self.member(player).ok_or("no_team")?;
        Ok(AppTeamChat { messages: self.chat.iter().cloned().collect() })
    }

    /// Everything on the map, the players of the team included.
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
        AppMapMarkers { markers: players.chain(self.markers.values().cloned()).collect() }
    }

    pub fn entity_info(&self, entity_id: u64) -> Result<AppEntityInfo, Refusal> {
        let (_, device) = self.devices.get(&entity_id).ok_or("not_found")?;
        Ok(AppEntityInfo { r#type: device.entity_type() as i32, payload: device.payload(false) })
    }

    /// Whether the alarm sends push messages to the player.
    pub fn subscription(&self, entity_id: u64, player: u64) -> Result<bool, Refusal> {
        match self.devices.get(&entity_id) {
            None => Err("not_found"),
            Some((_, Device::Alarm { subscribers, .. })) => Ok(subscribers.contains(&player)),
            Some(_) => Err("wrong_type"),
        }
    }

    pub fn set_subscription(&mut self, entity_id: u64, player: u64, wanted: bool) -> Result<(), Refusal> {
        match self.devices.get_mut(&entity_id) {
            None => Err("not_found"),
            Some((_, Device::Alarm { subscribers, .. })) => {
                if !wanted {
                    subscribers.remove(&player);
                } else if subscribers.len() >= ALARM_SUBSCRIBERS && !subscribers.contains(&player) {
                    return Err("too_many_subscribers");
                } else {
                    subscribers.insert(player);
                }
                Ok(())
            }
            Some(_) => Err("wrong_type"),
        }
    }
}

fn unix(at: Timestamp) -> u32 {
    at.timestamp().clamp(0, i64::from(u32::MAX)) as u32
}

fn order(item_id: i32, quantity: i32, currency_id: i32, cost_per_item: i32, amount_in_stock: i32) -> SellOrder {
    SellOrder { item_id, quantity, currency_id, cost_per_item, amount_in_stock, ..Default::default() }
}

/// At most `reach` metres from `at` towards `to`.
fn step(at: Place, to: Place, reach: f32) -> Place {
    let metres = at.distance(to);
    if metres <= reach {
        return to;
    }
    let part = reach / metres;
    Place::new(at.x + (to.x - at.x) * part, at.y + (to.y - at.y) * part)
}

/// The rotation a marker has on the wire while it goes from `at` to `to`, in degrees.
fn heading(at: Place, to: Place) -> f32 {
    ((to.x - at.x).atan2(at.y - to.y).to_degrees() + 180.0) % 360.0
}

/// Radians, counter-clockwise from east, seen from the middle of the world.
fn bearing(place: Place) -> f32 {
    (place.y - CENTRE.y).atan2(place.x - CENTRE.x)
}

/// A place on the ring that ships sail.
fn at_sea(angle: f32) -> Place {
    CENTRE.towards(angle, 0.5 * MAP_SIZE)
}

/// A place further outside the world than four grid cells, where ships and helicopters come from.
fn beyond(angle: f32) -> Place {
    let to_edge = MAP_SIZE / 2.0 / angle.cos().abs().max(angle.sin().abs());
    CENTRE.towards(angle, to_edge * (1.0 + 2.0 * 640.0 / MAP_SIZE))
}

/// The ring from one bearing to another, counter-clockwise.
fn around(from: f32, to: f32) -> impl Iterator<Item = Place> {
    let turn = (to - from).rem_euclid(std::f32::consts::TAU);
    let steps = (turn / 0.26).ceil() as usize;
    (0..=steps).map(move |n| at_sea(from + turn * n as f32 / steps.max(1) as f32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time;

    fn world() -> World {
        World::new(7, time::from_unix(1_790_000_000).expect("a time"))
    }

    fn marker(world: &World, kind: AppMarkerType) -> Option<AppMarker> {
        world.map_markers(TEAM[0].0).markers.into_iter().find(|marker| marker.r#type == kind as i32)
    }

    /// Lets the world live second by second; the second at which `seen` first holds.
    fn first(world: &mut World, seconds: i64, mut seen: impl FnMut(&World, &[News]) -> bool) -> Option<i64> {
        let start = world.now();
        (1..=seconds).find(|second| {
            world.advance_to(start + TimeDelta::seconds(*second));
            let news = world.take_news();
            seen(world, &news)
        })
    }

    #[test]
    fn first_ninety_seconds_are_dense() {
        let within = |low: i64, high: i64, what: &str, seen: &dyn Fn(&World, &[News]) -> bool| {
            let second = first(&mut world(), 90, seen);
            assert!(second.is_some_and(|second| (low..=high).contains(&second)), "{what}: {second:?}");
        };
        let marlow = |world: &World| world.member(TEAM[1].0).map(|member| (member.x, member.y));
        let stood = marlow(&world());
        within(1, 1, "movement", &|world, _| marlow(world) != stood);
        within(4, 6, "chat", &|_, news| news.iter().any(|news| matches!(news, News::Chat(_))));
        within(9, 11, "cargo", &|world, _| marker(world, AppMarkerType::CargoShipMarker).is_some());
        within(19, 21, "alarm", &|_, news| {
            news.iter().any(|news| matches!(news, News::Entity { entity_id: BASE_ALARM, payload } if payload.value()))
        });
        within(29, 31, "helicopter", &|world, _| marker(world, AppMarkerType::PatrolHelicopterMarker).is_some());
        within(39, 41, "death", &|world, _| world.members.iter().any(|member| !member.is_alive));
        within(49, 90, "logout", &|world, _| world.members[1..].iter().any(|member| !member.is_online));
        within(59, 61, "chinook at a rig", &|world, _| {
            marker(world, AppMarkerType::Ch47Marker).is_some_and(|chinook| {
                let at = Place::new(chinook.x, chinook.y);
                ["oil_rig_small", "large_oil_rig"].iter().any(|rig| world.terrain().monument(rig).distance(at) < 550.0)
            })
        });
    }

    #[test]
    fn same_seed_tells_the_same_story() {
        let lived = |seed| {
            let mut world = World::new(seed, time::from_unix(1_790_000_000).expect("a time"));
            first(&mut world, 120, |_, _| false);
            (world.map_markers(1), world.chat)
        };
        assert_eq!(lived(7), lived(7));
        assert_ne!(lived(7), lived(8));
    }

    #[test]
    fn cargo_ship_enters_from_far_docks_and_leaves() {
        let mut world = world();
        let ship = world.send_cargo_ship();
        let place = |world: &World| world.markers.get(&ship).map(|marker| Place::new(marker.x, marker.y));
        let outside = |at: Place| [at.x, at.y].iter().any(|edge| !(-585.0..=MAP_SIZE + 585.0).contains(edge));
        assert!(place(&world).is_some_and(outside));
        let harbour = world.terrain().monument("harbor_display_name");
        let mut last = None;
        let docked = first(&mut world, 1200, |world, _| {
            let rests = place(world).is_some() && place(world) == last;
            last = place(world);
            rests && last.is_some_and(|at| at.distance(harbour) < 100.0)
        });
        assert!(docked.is_some(), "{last:?}");
        let mut last = None;
        let gone = first(&mut world, 3600, |world, _| {
            last = place(world).or(last);
            place(world).is_none()
        });
        assert!(gone.is_some() && last.is_some_and(outside), "{gone:?} {last:?}");
    }

    #[test]
    fn helicopter_that_is_shot_down_ends_over_land() {
        let mut world = world();
        for shot_down in [true, false] {
            let helicopter = world.send_helicopter(shot_down);
            let mut last = Place::new(0.0, 0.0);
            let gone = first(&mut world, 3600, |world, _| match world.markers.get(&helicopter) {
                Some(marker) => {
                    last = Place::new(marker.x, marker.y);
                    false
                }
                None => true,
            });
            let inside = [last.x, last.y].iter().all(|edge| (150.0..MAP_SIZE - 150.0).contains(edge));
            assert_eq!((gone.is_some(), inside), (true, shot_down), "{last:?}");
        }
    }

    #[test]
    fn a_week_later_the_world_is_no_larger() {
        let mut world = world();
        let mut shops_changed = false;
        for hour in 1..=24 * 7 {
            let before = world.markers.clone();
            world.advance_to(world.now() + TimeDelta::hours(1));
            shops_changed |= before != world.markers;
            world.take_news();
            assert!(world.markers.len() < 60, "hour {hour}: {} markers", world.markers.len());
            assert!(world.script.len() < 60, "hour {hour}: {} events", world.script.len());
        }
        assert!(shops_changed && world.chat.len() == CHAT_LINES);
    }

    #[test]
    fn a_world_that_slept_skips_what_it_missed() {
        let mut world = world();
        let until = world.now() + TimeDelta::days(3650);
        world.advance_to(until);
        assert_eq!(world.now(), until);
        assert!(world.take_news().len() < 1000);
        world.advance_to(until - TimeDelta::days(1));
        assert_eq!(world.now(), until, "time does not run backwards");
    }

    #[test]
    fn stock_and_prices_change() {
        let mut world = world();
        let orders = |world: &World| -> Vec<SellOrder> {
            world.markers.values().flat_map(|marker| marker.sell_orders.iter().copied()).collect()
        };
        let before = orders(&world);
        first(&mut world, 900, |_, _| false);
        let after = orders(&world);
        assert!(before.iter().zip(&after).any(|(before, after)| before.amount_in_stock != after.amount_in_stock));
        assert!(before.iter().zip(&after).any(|(before, after)| before.cost_per_item != after.cost_per_item));
        assert!(after.iter().all(|order| order.amount_in_stock >= 0 && order.cost_per_item > 0));
    }

    #[test]
    fn wipe_takes_devices_and_map_and_keeps_the_team() {
        let mut world = World::new(7, time::from_unix(1_790_000_000).expect("a time")).with_markers(100);
        assert!(world.markers.len() > 140);
        let before = world.info();
        world.wipe();
        assert_eq!(world.take_news(), [News::Wiped]);
        let after = world.info();
        assert!(after.wipe_time > before.wipe_time + 60 && after.seed != before.seed);
        assert_eq!((world.devices().count(), world.team().len()), (0, 4));
        first(&mut world, 600, |_, _| false);
    }
}
