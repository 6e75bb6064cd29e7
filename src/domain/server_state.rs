//! The live state of one game server, and how one state becomes the next.
//!
//! Everything with an id lives in an object keyed by that id, so that one change is one JSON Patch operation. An edit
//! returns what it changed as [`Change`]s; a patch is written from those, never from a comparison of two documents,
//! so its cost follows the change and not the state. Because a change carries the old and the new value, any run of
//! consecutive changes merges into one patch without a look at the state ([`merge`]).

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Write as _},
    sync::Arc,
};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::domain::time::{self, Timestamp};

/// A member of the paired player's team.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub name: String,
    /// Metres from the south-west corner, to the east; `null` while the place is unknown (dead and offline).
    pub x: Option<f64>,
    pub y: Option<f64>,
    pub grid: String,
    pub online: bool,
    pub alive: bool,
    #[serde(serialize_with = "time::wire_option")]
    pub spawned_at: Option<Timestamp>,
    #[serde(serialize_with = "time::wire_option")]
    pub died_at: Option<Timestamp>,
}

/// What a marker on the map stands for (protocol §2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MarkerKind {
    Player,
    Explosion,
    VendingMachine,
    Chinook,
    CargoShip,
    Crate,
    GenericRadius,
    PatrolHelicopter,
    TravellingVendor,
    /// A number this version does not know.
    Other,
}

/// One line of a vending machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SellOrder {
    pub item_id: i32,
    /// Pieces per purchase.
    pub quantity: i32,
    pub currency_id: i32,
    /// Price of one purchase, for `quantity` pieces.
    pub cost: i32,
    pub in_stock: i32,
    pub item_is_blueprint: bool,
    pub currency_is_blueprint: bool,
}

/// A marker on the map.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    pub kind: MarkerKind,
    /// Metres from the south-west corner; may lie outside the world.
    pub x: f64,
    pub y: f64,
    pub grid: String,
    /// Degrees; movers only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steam_id: Option<String>,
    /// Map scale value of a circle, not metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radius: Option<f64>,
    /// Colour of a circle, `#rrggbbaa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_stock: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sell_orders: Vec<SellOrder>,
}

/// What a smart device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DeviceKind {
    Switch,
    Alarm,
    StorageMonitor,
    Camera,
    /// Not asked yet, or a number this version does not know.
    Unknown,
}

/// Whether a device answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reachable {
    Ok,
    /// Destroyed, picked up, or the paired player lost the tool cupboard.
    Removed,
    NoResponse,
}

/// A stack in a container.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    pub item_id: i32,
    pub quantity: i32,
    pub is_blueprint: bool,
}

/// What a storage monitor is attached to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Slots; 0 while unpowered or not attached.
    pub capacity: i32,
    /// Added up by item, in a stable order.
    pub items: Vec<Item>,
    /// True on a tool cupboard.
    pub has_protection: bool,
    /// When upkeep runs out; `null` on a tool cupboard means decaying.
    #[serde(serialize_with = "time::wire_option")]
    pub protection_expires_at: Option<Timestamp>,
}

/// A smart device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    pub kind: DeviceKind,
    pub name: String,
    pub label: Option<String>,
    /// On or off, powered or not; `null` while unknown.
    pub value: Option<bool>,
    pub reachable: Reachable,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// A note on the map.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapNote {
    pub x: f64,
    pub y: f64,
    pub grid: String,
    pub category: String,
    pub label: Option<String>,
    /// `game` (placed in the game), `detector` or `user`.
    pub source: &'static str,
    /// User id, `null` for all but `user` notes.
    pub author: Option<String>,
    #[serde(serialize_with = "time::wire")]
    pub created_at: Timestamp,
    #[serde(serialize_with = "time::wire_option")]
    pub expires_at: Option<Timestamp>,
}

/// What is known of the team as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamHead {
    pub leader_id: Option<String>,
}

/// The connection to the game server, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    Connecting,
    Connected,
    Unreachable,
    /// The player token was refused: pair again.
    Rejected,
    NoCredentials,
    Paused,
}

/// What is known of the game server as a whole, and how fresh it is: while `connection` is not `connected`, the rest
/// of the state stands as it was at `since`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerHead {
    pub connection: ConnectionState,
    #[serde(serialize_with = "time::wire")]
    pub since: Timestamp,
    pub reason: Option<String>,
    #[serde(serialize_with = "time::wire_option")]
    pub next_attempt_at: Option<Timestamp>,
    pub name: Option<String>,
    /// Edge length of the world, metres.
    pub map_size: Option<u32>,
    pub players: Option<u32>,
    pub max_players: Option<u32>,
    pub queued_players: Option<u32>,
    #[serde(serialize_with = "time::wire_option")]
    pub wiped_at: Option<Timestamp>,
    /// Hour of the day in the game, 0–24.
    pub hour: Option<f64>,
    pub sunrise: Option<f64>,
    pub sunset: Option<f64>,
}

/// Which object of the state a change is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Section {
    Server,
    Team,
    Members,
    MapMarkers,
    Devices,
    MapNotes,
}

/// An id within a section.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The section is one object.
    Whole,
    Number(u64),
    Text(Arc<str>),
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Key::Number(number)
    }
}

impl From<Arc<str>> for Key {
    fn from(text: Arc<str>) -> Self {
        Key::Text(text)
    }
}

/// A value of the state: an object whose fields are compared one by one, by their text.
pub trait Node: fmt::Debug + Send + Sync {
    /// The value as JSON.
    fn json(&self) -> String;
}

impl<T: Serialize + fmt::Debug + Send + Sync> Node for T {
    fn json(&self) -> String {
        serde_json::to_string(self).expect("every node of the state is a struct with plain fields")
    }
}

/// The fields of a node's JSON, each as it is written.
fn fields(json: &str) -> BTreeMap<&str, &RawValue> {
    serde_json::from_str(json).expect("a node is an object, and names of fields have no escapes")
}

/// One value before and after an edit; absent = not there.
#[derive(Clone, Debug)]
pub struct Change {
    pub section: Section,
    pub key: Key,
    pub old: Option<Arc<dyn Node>>,
    pub new: Option<Arc<dyn Node>>,
}

/// Values by id, with edits that say what they changed.
#[derive(Clone, Debug, Default)]
pub struct Keyed<K, T>(BTreeMap<K, Arc<T>>);

impl<K, T> Keyed<K, T>
where
    K: Ord + Clone + Into<Key>,
    T: PartialEq + Node + 'static,
{
    /// No values.
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The value of this id.
    pub fn get(&self, id: &K) -> Option<&Arc<T>> {
        self.0.get(id)
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<T>)> + Clone {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one value, or takes it away.
    pub fn put(&mut self, section: Section, id: K, value: Option<T>, changes: &mut Vec<Change>) {
        let old = self.0.get(&id);
        if old.map(|old| &**old) == value.as_ref() {
            return;
        }
        let new = value.map(Arc::new);
        let old = match &new {
            Some(new) => self.0.insert(id.clone(), new.clone()),
            None => self.0.remove(&id),
        };
        changes.push(Change { section, key: id.into(), old: old.map(|v| v as _), new: new.map(|v| v as _) });
    }

    /// Makes these the only values: what is missing goes, what is equal costs a comparison.
    pub fn replace(&mut self, section: Section, values: impl IntoIterator<Item = (K, T)>, changes: &mut Vec<Change>) {
        let mut named = Vec::with_capacity(self.0.len());
        for (id, value) in values {
            // An id that comes twice in one answer: the last one counts.
            self.put(section, id.clone(), Some(value), changes);
            named.push(id);
        }
        named.sort_unstable();
        named.dedup();
        if named.len() == self.0.len() {
            return;
        }
        self.0.retain(|id, old| {
            let stays = named.binary_search(id).is_ok();
            if !stays {
                changes.push(Change { section, key: id.clone().into(), old: Some(old.clone()), new: None });
            }
            stays
        });
    }
}

/// The live state of one game server.
#[derive(Clone, Debug)]
pub struct ServerState {
    pub server: Arc<ServerHead>,
    pub team: Arc<TeamHead>,
    /// By SteamID64.
    pub members: Keyed<u64, Member>,
    /// By the game's marker id.
    pub map_markers: Keyed<u64, Marker>,
    /// By device id (the entity id in decimal).
    pub devices: Keyed<Arc<str>, Device>,
    /// By note id.
    pub map_notes: Keyed<Arc<str>, MapNote>,
}

impl ServerState {
    /// Nothing known yet, since `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            server: Arc::new(ServerHead {
                connection: ConnectionState::Connecting,
                since: now,
                reason: None,
                next_attempt_at: None,
                name: None,
                map_size: None,
                players: None,
                max_players: None,
                queued_players: None,
                wiped_at: None,
                hour: None,
                sunrise: None,
                sunset: None,
            }),
            team: Arc::new(TeamHead::default()),
            members: Keyed::new(),
            map_markers: Keyed::new(),
            devices: Keyed::new(),
            map_notes: Keyed::new(),
        }
    }

    /// Changes what is known of the server as a whole.
    pub fn edit_server(&mut self, changes: &mut Vec<Change>, edit: impl FnOnce(&mut ServerHead)) {
        edit_whole(Section::Server, &mut self.server, changes, edit);
    }

    /// Changes what is known of the team as a whole.
    pub fn edit_team(&mut self, changes: &mut Vec<Change>, edit: impl FnOnce(&mut TeamHead)) {
        edit_whole(Section::Team, &mut self.team, changes, edit);
    }

    /// Appends the state as JSON: `{ server, team: { leaderId, members }, mapMarkers, devices, mapNotes }`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Team<'a> {
            #[serde(flatten)]
            head: &'a TeamHead,
            members: &'a BTreeMap<u64, Arc<Member>>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Whole<'a> {
            server: &'a ServerHead,
            team: Team<'a>,
            map_markers: &'a BTreeMap<u64, Arc<Marker>>,
            devices: &'a BTreeMap<Arc<str>, Arc<Device>>,
            map_notes: &'a BTreeMap<Arc<str>, Arc<MapNote>>,
        }
        let whole = Whole {
            server: &self.server,
            team: Team { head: &self.team, members: &self.members.0 },
            map_markers: &self.map_markers.0,
            devices: &self.devices.0,
            map_notes: &self.map_notes.0,
        };
        serde_json::to_writer(out, &whole).expect("the state is plain data and a Vec takes every write");
    }
}

fn edit_whole<T>(section: Section, whole: &mut Arc<T>, changes: &mut Vec<Change>, edit: impl FnOnce(&mut T))
where
    T: Clone + PartialEq + Node + 'static,
{
    let mut new = T::clone(whole);
    edit(&mut new);
    if new != **whole {
        let old = std::mem::replace(whole, Arc::new(new));
        changes.push(Change { section, key: Key::Whole, old: Some(old), new: Some(whole.clone()) });
    }
}

/// Folds consecutive changes into one per value: the first old, the last new. What came and went is left out.
pub fn merge<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Vec<Change> {
    let mut merged: Vec<Change> = Vec::new();
    let mut place: HashMap<(Section, &Key), usize> = HashMap::new();
    for change in changes {
        match place.get(&(change.section, &change.key)) {
            Some(&index) => merged[index].new = change.new.clone(),
            None => {
                place.insert((change.section, &change.key), merged.len());
                merged.push(change.clone());
            }
        }
    }
    merged.retain(|change| change.old.is_some() || change.new.is_some());
    merged
}

/// Appends the changes as an RFC 6902 document: `add`, `remove` and `replace` operations.
pub fn write_patch(changes: &[Change], out: &mut Vec<u8>) {
    out.push(b'[');
    for change in changes {
        match (&change.old, &change.new) {
            (None, None) => {}
            (None, Some(new)) => write_operation(out, "add", &pointer(change, None), Some(&new.json())),
            (Some(_), None) => write_operation(out, "remove", &pointer(change, None), None),
            (Some(old), Some(new)) => {
                let (old, new) = (old.json(), new.json());
                let (mut old, new) = (fields(&old), fields(&new));
                for (name, value) in new {
                    let value = value.get();
                    match old.remove(name) {
                        Some(before) if before.get() == value => {}
                        Some(_) => write_operation(out, "replace", &pointer(change, Some(name)), Some(value)),
                        None => write_operation(out, "add", &pointer(change, Some(name)), Some(value)),
                    }
                }
                for name in old.keys() {
                    write_operation(out, "remove", &pointer(change, Some(name)), None);
                }
            }
        }
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b']');
}

/// Appends one operation and a comma; `value` is JSON.
fn write_operation(out: &mut Vec<u8>, op: &str, path: &str, value: Option<&str>) {
    out.extend_from_slice(br#"{"op":""#);
    out.extend_from_slice(op.as_bytes());
    out.extend_from_slice(br#"","path":"#);
    serde_json::to_writer(&mut *out, path).expect("a string into a Vec");
    if let Some(value) = value {
        out.extend_from_slice(br#","value":"#);
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(b"},");
}

/// The JSON Pointer (RFC 6901) of a change, or of one field of it.
fn pointer(change: &Change, field: Option<&str>) -> String {
    let mut path = String::from(match change.section {
        Section::Server => "/server",
        Section::Team => "/team",
        Section::Members => "/team/members",
        Section::MapMarkers => "/mapMarkers",
        Section::Devices => "/devices",
        Section::MapNotes => "/mapNotes",
    });
    match &change.key {
        Key::Whole => {}
        Key::Number(number) => write!(path, "/{number}").expect("a String takes every write"),
        Key::Text(text) => push_token(&mut path, text),
    }
    if let Some(field) = field {
        push_token(&mut path, field);
    }
    path
}

fn push_token(path: &mut String, token: &str) {
    path.push('/');
    for character in token.chars() {
        match character {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
}
