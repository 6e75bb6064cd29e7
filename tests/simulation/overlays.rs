//! Overlays: clients with a token of their own that watch one server, and are shown the sections that were chosen for them.
//! They try more than they may.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use actix::Addr;
use companion::{
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        helper_devices,
        pairing_codes::CodePurpose,
    },
    domain::{
        ids::{HelperDeviceId, ServerId, SessionId, UserId},
        relay_access::RelayAccess,
        sections::Sections,
    },
    relay::hub::{Hub, SessionEnded},
    simulator::world::GATE_SWITCH,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    dashboard::{Dashboard, Known},
    judge::Judge,
    oracle::ShownRaid,
    random::Stream,
    run::Run,
    script::{Act, DASHBOARDS, HEALTHY_FROM, Script},
    world::{PAIRED, USERS, UserAct, World, world},
};

/// The paired server of each overlay; its owner has made it.
pub const OVERLAYS: [usize; 2] = [0, 2];
/// Keys of a state.
const KEYS: [&str; 7] = ["server", "team", "mapMarkers", "devices", "mapNotes", "raids", "timers"];
/// Overlays in a hundred that are shown all of them.
const SEE_ALL: u64 = 20;
/// Seeds in a hundred whose owners remove overlays.
const ARE_REMOVED: u64 = 50;
/// Connections in a hundred on which an overlay does what it may not.
const OVERREACHES: u64 = 50;
/// Nothing has changed for so long: each frame has arrived.
const QUIET: Duration = Duration::from_secs(5);

/// Kinds of events that an overlay is shown with this key.
fn key_of_event(kind: &str) -> Option<&'static str> {
    match kind {
        "cargo" | "heli" | "chinook" | "crate" | "oilrig" | "vendor" | "explosion" | "shop" => Some("mapMarkers"),
        "death" | "login" | "logout" | "team" => Some("team"),
        "raid" => Some("raids"),
        "wipe" | "gap" => Some("server"),
        "device" => Some("devices"),
        _ => None,
    }
}

/// An overlay as its owner has made it.
pub struct Overlay {
    pub paired: usize,
    keys: Vec<&'static str>,
    /// Devices so far, and the servers that each was for: the last one has the token that is used.
    devices: RefCell<Vec<(HelperDeviceId, ServerId)>>,
    issued: Cell<u32>,
}

impl Overlay {
    /// The overlays of a seed, without a token yet.
    pub fn all(seed: u64) -> Vec<Rc<Self>> {
        let make = |(number, paired): (usize, usize)| {
            let mut random = Stream::of(seed, &format!("overlay {number}"));
            let sees_all = random.chance(SEE_ALL);
            let mut keys = KEYS.to_vec();
            keys.retain(|_| sees_all || random.chance(50));
            if keys.is_empty() {
                keys.push("raids");
            }
            Rc::new(Self { paired, keys, devices: RefCell::default(), issued: Cell::new(0) })
        };
        OVERLAYS.into_iter().enumerate().map(make).collect()
    }

    /// True if it is shown this key of the state.
    pub fn sees(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    fn sees_all(&self) -> bool {
        self.keys.len() == KEYS.len()
    }

    fn sections(&self) -> Sections {
        Sections::from(self.keys.join(" "))
    }

    /// The session and the rights of its token, if it has one.
    pub fn token(&self) -> Option<(SessionId, RelayAccess)> {
        let devices = self.devices.borrow();
        let (device, server) = devices.last()?;
        let access = RelayAccess::Overlay { server: server.clone(), sections: self.sections() };
        Some((SessionId::of_device(device), access))
    }

    /// True if its token is for this server.
    pub fn is_of(&self, server: &ServerId) -> bool {
        self.devices.borrow().last().is_some_and(|(_, of)| of == server)
    }

    fn was_of(&self, server: &str) -> bool {
        self.devices.borrow().iter().any(|(_, of)| of.as_str() == server)
    }

    fn new_device(&self) -> HelperDeviceId {
        self.issued.set(self.issued.get() + 1);
        format!("overlay-{}-{}", self.paired, self.issued.get()).into()
    }

    /// Stores this device of it.
    fn insert(&self, server: &ServerId) -> impl FnOnce(&mut Db) -> Result<HelperDeviceId, DbError> + Send + use<> {
        let (id, now) = (self.new_device(), world().clock.now());
        let sections = (!self.sees_all()).then(|| self.sections().text());
        let user = USERS[PAIRED[self.paired].1].into();
        let purpose = CodePurpose { user, label: None, overlay: Some(server.clone()), sections };
        move |db: &mut Db| {
            helper_devices::insert(db, &id, &purpose, &format!("hash of {id}"), now)?;
            Ok(id)
        }
    }

    /// Before the first life.
    pub fn furnish(&self, db: &mut Db, server: &ServerId) -> Result<(), DbError> {
        let device = self.insert(server)(db)?;
        self.devices.borrow_mut().push((device, server.clone()));
        Ok(())
    }

    /// Its owner makes it for the server of now; true once that is acknowledged.
    pub async fn issue(&self, pool: &Pool) -> bool {
        let Some(server) = world().judge.borrow().server(PAIRED[self.paired].0) else { return false };
        let Ok(device) = pool.write(self.insert(&server)).await else { return false };
        self.devices.borrow_mut().push((device, server));
        true
    }

    /// Its owner removes its device; true once that is acknowledged.
    pub async fn remove(&self, pool: &Pool, hub: &Addr<Hub>) -> bool {
        let Some((device, _)) = self.devices.borrow().last().cloned() else { return false };
        let (user, session) = (UserId::from(USERS[PAIRED[self.paired].1]), SessionId::of_device(&device));
        let hub = hub.clone();
        let notify = move |deleted: &bool| {
            if *deleted {
                hub.do_send(SessionEnded { session });
            }
        };
        let delete = move |db: &mut Db| helper_devices::delete(db, &user, &device);
        matches!(pool.write_and_notify(delete, notify).await, Ok(true))
    }
}

/// When overlays are removed: a stream of its own, so that the rest of the script is what it was.
pub fn removals(seed: u64) -> Script {
    let mut random = Stream::of(seed, "overlays");
    if !random.chance(ARE_REMOVED) {
        return Script::new();
    }
    let removals = random.between(1, 4);
    let remove = |_| {
        (
            random.between(10_000, HEALTHY_FROM - 20_000),
            Act::RemoveOverlay(random.below(OVERLAYS.len() as u64) as usize),
        )
    };
    (0..removals).map(remove).collect()
}

impl Run {
    /// The clients of all overlays.
    pub fn start_overlays(world: &World) -> Vec<Rc<Dashboard>> {
        let start = |(number, overlay): (usize, &Rc<Overlay>)| {
            Dashboard::start(
                DASHBOARDS.len() + number,
                PAIRED[overlay.paired].1,
                vec![overlay.paired],
                Some(overlay.clone()),
            )
        };
        world.overlays.iter().enumerate().map(start).collect()
    }

    /// The device of an overlay is removed; its owner makes another one five seconds later.
    pub fn remove_overlay(&self, number: usize) {
        let (world, client) = (self.world.clone(), self.overlays[number].clone());
        let Some((session, _)) = world.overlays[number].token() else { return };
        tokio::task::spawn_local(async move {
            if world.act(UserAct::RemoveOverlay(number)).await {
                world.trace(&format!("overlay {number} was removed"));
                if let Some((wire, from)) = &*client.wire.borrow()
                    && *from == session
                {
                    wire.revoked_at.set(Some(Instant::now()));
                }
            }
            sleep(Duration::from_secs(5)).await;
            while !world.act(UserAct::IssueOverlay(number)).await {
                sleep(Duration::from_secs(2)).await;
            }
        });
    }

    /// The overlays of this paired server have tokens for it, which may have another id by now.
    pub fn restore_overlays(&self, paired: usize) {
        let Some(server) = self.world.judge.borrow().server(PAIRED[paired].0) else { return };
        let of_it = self.world.overlays.iter().enumerate().filter(|(_, overlay)| overlay.paired == paired);
        for (number, _) in of_it.filter(|(_, overlay)| !overlay.is_of(&server)) {
            self.user(UserAct::IssueOverlay(number));
        }
    }
}

impl Dashboard {
    /// An overlay asks for another server, and for what owners do.
    pub fn overreach(&self, overlay: &Overlay, random: &mut Stream) {
        if !random.chance(OVERREACHES) {
            return;
        }
        let id = |paired: usize| world().judge.borrow().server(PAIRED[paired].0);
        let other = (overlay.paired + 1) % PAIRED.len();
        for server in [id(overlay.paired), id(other)].into_iter().flatten() {
            self.send(json!({ "type": "subscribe", "serverId": server, "sections": KEYS }));
            self.send(json!({ "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(),
                "requestId": "overreach" }));
        }
    }
}

impl Judge {
    /// An overlay received a message: it is of its server, and of the sections that were chosen for it.
    pub fn check_overlay(&mut self, client: &Dashboard, overlay: &Overlay, message: &Value) {
        let is_own = message["serverId"].as_str().is_some_and(|server| overlay.was_of(server));
        let first_key =
            |pointer: &Value| pointer.as_str().and_then(|pointer| pointer.split('/').nth(1)).map(str::to_owned);
        let is_seen = match message["type"].as_str().unwrap_or_default() {
            "pong" | "error" => return,
            "snapshot" => message["state"].as_object().is_some_and(|state| state.keys().all(|key| overlay.sees(key))),
            "patch" => {
                let mut paths = message["patch"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .flat_map(|step| [Some(&step["path"]), step.get("from")].into_iter().flatten());
                paths.all(|path| first_key(path).is_some_and(|key| overlay.sees(&key)))
            }
            "raid" => overlay.sees("raids"),
            "chat" => overlay.sees_all(),
            "event" => match message["event"]["kind"].as_str().and_then(key_of_event) {
                Some(key) => overlay.sees(key),
                None => overlay.sees_all(),
            },
            _ => false,
        };
        if !is_own || !is_seen {
            self.broken(
                "overlays-see-their-own",
                format!("overlay {} of {:?}: {message}", client.number, overlay.keys),
            );
        }
    }

    /// After the healthy minutes: an overlay shows what a dashboard shows of its sections, and those alone.
    pub fn check_overlays(&mut self, overlays: &[Rc<Dashboard>], dashboards: &[Rc<Dashboard>], raids: &[ShownRaid]) {
        for client in overlays {
            let Some(overlay) = &client.overlay else { continue };
            let (name, number) = (PAIRED[overlay.paired].0, client.number);
            let Some(server) = self.server(name) else { continue };
            let known = client.known.borrow();
            let Some(Known { state, changed, .. }) = known.get(server.as_str()) else {
                self.broken("all-watch", format!("overlay {number} has no state of {name}"));
                continue;
            };
            let shown: BTreeMap<&String, &Value> = state.as_object().into_iter().flatten().collect();
            if shown.len() != overlay.keys.len() {
                let details = format!("overlay {number} of {:?} has {:?}", overlay.keys, shown.keys());
                self.broken("overlays-see-their-own", details);
            }
            if overlay.sees("raids") {
                self.check_raids(&format!("overlay {number} of {name}"), &server, &state["raids"], raids);
                self.check_last_alarm(number, name, &server);
            }
            let beside = dashboards.iter().filter(|dashboard| dashboard.watches.borrow().contains(&overlay.paired));
            for dashboard in beside {
                let whole = dashboard.known.borrow();
                let Some(whole) = whole.get(server.as_str()) else { continue };
                if changed.elapsed() < QUIET || whole.changed.elapsed() < QUIET {
                    continue;
                }
                let other = shown.iter().find(|(key, value)| whole.state.get(key.as_str()) != Some(**value));
                if let Some((key, value)) = other {
                    let change = json_patch::diff(&whole.state[key.as_str()], value);
                    let details = format!("{number} of {name} has other {key} than {}: {change}", dashboard.number);
                    self.broken("overlays-follow", details);
                }
            }
        }
    }
}
