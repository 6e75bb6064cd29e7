//! The live state of one game server, and how one state becomes the next.
//!
//! Everything with an id is in an object keyed by that id, so that one change is one JSON Patch operation. An edit
//! returns what it changed as [`Change`]s.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use crate::domain::{
    change::{Change, Key, Node, Section},
    device::Device,
    freshness::StaleSections,
    incident::Incident,
    link_reason::LinkReason,
    map::{MapNote, Marker},
    time::{self, Timestamp},
};

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

impl ConnectionState {
    /// Every state and its word, as in JSON.
    pub const WORDS: [(Self, &'static str); 6] = [
        (Self::Connecting, "connecting"),
        (Self::Connected, "connected"),
        (Self::Unreachable, "unreachable"),
        (Self::Rejected, "rejected"),
        (Self::NoCredentials, "no_credentials"),
        (Self::Paused, "paused"),
    ];
}

/// What is known of the game server as a whole, and how fresh the state is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerHead {
    pub connection: ConnectionState,
    #[serde(serialize_with = "time::wire")]
    pub since: Timestamp,
    pub reason: Option<LinkReason>,
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
    /// Empty, and then not sent, while all is fresh.
    #[serde(skip_serializing_if = "StaleSections::is_empty")]
    pub stale: StaleSections,
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
    /// Of the last day, by incident id.
    pub raids: Keyed<Arc<str>, Incident>,
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
                stale: StaleSections::new(),
            }),
            team: Arc::new(TeamHead::default()),
            members: Keyed::new(),
            map_markers: Keyed::new(),
            devices: Keyed::new(),
            map_notes: Keyed::new(),
            raids: Keyed::new(),
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

    /// Appends the state as JSON: `{ server, team: { leaderId, members }, mapMarkers, devices, mapNotes, raids }`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct TeamObject<'a> {
            #[serde(flatten)]
            head: &'a TeamHead,
            members: &'a BTreeMap<u64, Arc<Member>>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Whole<'a> {
            server: &'a ServerHead,
            team: TeamObject<'a>,
            map_markers: &'a BTreeMap<u64, Arc<Marker>>,
            devices: &'a BTreeMap<Arc<str>, Arc<Device>>,
            map_notes: &'a BTreeMap<Arc<str>, Arc<MapNote>>,
            raids: &'a BTreeMap<Arc<str>, Arc<Incident>>,
        }
        let whole = Whole {
            server: &self.server,
            team: TeamObject { head: &self.team, members: &self.members.0 },
            map_markers: &self.map_markers.0,
            devices: &self.devices.0,
            map_notes: &self.map_notes.0,
            raids: &self.raids.0,
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
