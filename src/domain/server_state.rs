//! The live state of one game server, and how one state becomes the next.
//!
//! Everything with an id is in an object keyed by that id, so that one change is one JSON Patch operation. An edit
//! returns what it changed as [`Change`]s.

use std::{
    mem::{replace, swap, take},
    sync::Arc,
};

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::domain::{
    change::{Change, Key, Node, Section},
    device::{Device, ShownDevice},
    freshness::{StaleSection, StaleSections},
    incident::Incident,
    items::Catalogue,
    link_reason::LinkReason,
    map::{MapNote, Marker, ShownMarker},
    reporting::Reports,
    team_timer::TeamTimer,
    time::Timestamp,
    world_head::WorldHead,
};

/// A member of the paired player's team.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub name: String,
    /// Metres from the south-west corner, to the east; `null` while the place is unknown (dead and offline).
    #[schema(required)]
    pub x: Option<f64>,
    #[schema(required)]
    pub y: Option<f64>,
    pub grid: String,
    pub online: bool,
    pub alive: bool,
    #[schema(required)]
    pub spawned_at: Option<Timestamp>,
    #[schema(required)]
    pub died_at: Option<Timestamp>,
    /// Since when the member has not moved, once that is five minutes; `null` for those who are offline or dead.
    #[schema(required)]
    pub afk_since: Option<Timestamp>,
}

/// Facts about the team as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamHead {
    /// SteamID64.
    #[schema(required)]
    pub leader_id: Option<String>,
    /// A warning about our answers in the team's chat: `loop` (stopped for a minute) or `other_bot` (another bot answers
    /// beside us: choose another prefix).
    #[schema(value_type = Option<String>, required)]
    pub chat_notice: Option<&'static str>,
}

/// The connection to the game server, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    Connecting,
    Connected,
    Unreachable,
    /// The player token was refused: pair again.
    Rejected,
    NoCredentials,
    Paused,
    /// The game server takes no more links from us; by `nextAttemptAt` it is this one's turn.
    Waiting,
}

impl ConnectionState {
    /// Every state and its word, as in JSON.
    pub const WORDS: [(Self, &'static str); 7] = [
        (Self::Connecting, "connecting"),
        (Self::Connected, "connected"),
        (Self::Unreachable, "unreachable"),
        (Self::Rejected, "rejected"),
        (Self::NoCredentials, "no_credentials"),
        (Self::Paused, "paused"),
        (Self::Waiting, "waiting"),
    ];
}

/// Facts about the game server as a whole, and the freshness of the state.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerHead {
    pub connection: ConnectionState,
    /// Since when the connection is in this state.
    pub since: Timestamp,
    /// Reason for the missing connection, in words.
    #[schema(value_type = Option<String>, required)]
    pub reason: Option<LinkReason>,
    #[schema(required)]
    pub next_attempt_at: Option<Timestamp>,
    #[schema(required)]
    pub name: Option<String>,
    /// Edge length of the world, metres.
    #[schema(required)]
    pub map_size: Option<u32>,
    /// Seed of the world's generator.
    #[schema(required)]
    pub map_seed: Option<u32>,
    #[schema(required)]
    pub players: Option<u32>,
    #[schema(required)]
    pub max_players: Option<u32>,
    #[schema(required)]
    pub queued_players: Option<u32>,
    #[schema(required)]
    pub wiped_at: Option<Timestamp>,
    /// Hour of the day in the game, 0–24.
    #[schema(required)]
    pub hour: Option<f64>,
    #[schema(required)]
    pub sunrise: Option<f64>,
    #[schema(required)]
    pub sunset: Option<f64>,
    /// Real seconds from sunrise to sunset and from sunset to sunrise, once they are learned; remembered for the game
    /// server.
    #[schema(required)]
    pub day_seconds: Option<u32>,
    #[schema(required)]
    pub night_seconds: Option<u32>,
    /// The next sunset or sunrise, whichever comes first.
    #[schema(required)]
    pub day_night_at: Option<Timestamp>,
    /// Remembered for the game server, also across wipes and restarts.
    pub reports: Reports,
    /// `server`, `team`, `mapMarkers` and `devices`, as far as they had no answer for three of their polls. Empty, and
    /// then not sent, while all is fresh.
    #[serde(skip_serializing_if = "StaleSections::is_empty")]
    #[schema(value_type = HashMap<String, StaleSection>, required = false)]
    pub stale: StaleSections,
}

impl ServerHead {
    /// Shows what the game server says to all who play there.
    pub fn show_world(&mut self, world: &WorldHead) {
        let WorldHead { name, map_size, map_seed, players, max_players, queued_players, wiped_at, .. } = world;
        self.name.clone_from(name);
        (self.map_size, self.map_seed, self.wiped_at) = (*map_size, *map_seed, *wiped_at);
        (self.players, self.max_players, self.queued_players) = (*players, *max_players, *queued_players);
        let WorldHead { hour, sunrise, sunset, day_seconds, night_seconds, day_night_at, reports, .. } = world;
        (self.hour, self.sunrise, self.sunset) = (*hour, *sunrise, *sunset);
        (self.day_seconds, self.night_seconds, self.day_night_at) = (*day_seconds, *night_seconds, *day_night_at);
        self.reports = *reports;
    }
}

/// Values by id, whose edits return what they changed. In a vector of just their number: every link has dozens, and the
/// ids seldom change. Clones share them until one is edited.
#[derive(Debug)]
pub struct Keyed<K, T>(Arc<Vec<(K, Arc<T>)>>);

impl<K, T> Clone for Keyed<K, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, T> Default for Keyed<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, T> Keyed<K, T>
where
    K: Ord + Clone + Into<Key>,
    T: PartialEq + Node + 'static,
{
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of this id.
    pub fn get(&self, id: &K) -> Option<&Arc<T>> {
        self.find(id).ok().map(|index| &self.0[index].1)
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<T>)> + Clone {
        self.0.iter().map(|(id, value)| (id, value))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one value, or takes it away.
    pub fn put(&mut self, section: Section, id: K, value: Option<T>, changes: &mut Vec<Change>) {
        let found = self.find(&id);
        let old = found.ok().map(|index| &self.0[index].1);
        if old.map(|old| &**old) == value.as_ref() {
            return;
        }
        let new = value.map(Arc::new);
        let values = Arc::make_mut(&mut self.0);
        let old = match (found, &new) {
            (Ok(index), Some(new)) => Some(replace(&mut values[index].1, new.clone())),
            (Ok(index), None) => Some(values.remove(index).1),
            (Err(index), Some(new)) => {
                values.reserve_exact(1);
                values.insert(index, (id.clone(), new.clone()));
                None
            }
            (Err(_), None) => None,
        };
        changes.push(change(section, id, old, new));
    }

    /// Makes these the only values: what is missing goes, what is equal costs a comparison.
    pub fn replace(&mut self, section: Section, values: impl IntoIterator<Item = (K, T)>, changes: &mut Vec<Change>) {
        let mut values: Vec<(K, T)> = values.into_iter().collect();
        values.sort_by(|a, b| a.0.cmp(&b.0));
        // An id that comes twice in one answer: the last one counts.
        values.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                swap(later, kept);
            }
            is_same
        });
        let mut all = Vec::with_capacity(values.len());
        let mut known = Arc::unwrap_or_clone(take(&mut self.0)).into_iter().peekable();
        for (id, value) in values {
            while let Some((gone, old)) = known.next_if(|(known, _)| *known < id) {
                changes.push(change(section, gone, Some(old), None));
            }
            let old = known.next_if(|(known, _)| *known == id).map(|(_, old)| old);
            let value = match old {
                Some(old) if *old == value => old,
                old => {
                    let new = Arc::new(value);
                    changes.push(change(section, id.clone(), old, Some(new.clone())));
                    new
                }
            };
            all.push((id, value));
        }
        changes.extend(known.map(|(gone, old)| change(section, gone, Some(old), None)));
        self.0 = Arc::new(all);
    }

    /// Like [`replace`](Self::replace), and shares these values from then on: those that it shared before cost nothing.
    pub fn share(&mut self, section: Section, values: Self, changes: &mut Vec<Change>) {
        let mut known = self.0.iter().peekable();
        for (id, new) in values.0.iter() {
            while let Some((gone, old)) = known.next_if(|(known, _)| known < id) {
                changes.push(change(section, gone.clone(), Some(old.clone()), None));
            }
            let old = known.next_if(|(known, _)| known == id).map(|(_, old)| old);
            let is_same = old.is_some_and(|old| Arc::ptr_eq(old, new) || old == new);
            if !is_same {
                changes.push(change(section, id.clone(), old.cloned(), Some(new.clone())));
            }
        }
        changes.extend(known.map(|(gone, old)| change(section, gone.clone(), Some(old.clone()), None)));
        self.0 = values.0;
    }

    /// The values for which this holds, shared.
    pub fn filtered(&self, holds: impl Fn(&T) -> bool) -> Self {
        match self.iter().all(|(_, value)| holds(value)) {
            true => self.clone(),
            false => Self(Arc::new(self.0.iter().filter(|(_, value)| holds(value)).cloned().collect())),
        }
    }

    fn find(&self, id: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(id))
    }
}

impl<K: Serialize, T: Serialize> Serialize for Keyed<K, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, value)| (id, value)))
    }
}

fn change<T: Node + 'static>(section: Section, id: impl Into<Key>, old: Option<Arc<T>>, new: Option<Arc<T>>) -> Change {
    Change { section, key: id.into(), old: old.map(|value| value as _), new: new.map(|value| value as _) }
}

/// The live state of one game server.
#[derive(Clone, Debug)]
pub struct ServerState {
    pub server: Arc<ServerHead>,
    pub team: Arc<TeamHead>,
    /// By SteamID64.
    pub members: Keyed<u64, Member>,
    /// Markers that all see, by the game's marker id.
    pub map_markers: Keyed<u64, Marker>,
    /// The team's players on the map, shown among the other markers: by the game's marker id, which no other has.
    pub player_markers: Keyed<u64, Marker>,
    /// By device id (the entity id in decimal).
    pub devices: Keyed<Arc<str>, Device>,
    /// By note id.
    pub map_notes: Keyed<Arc<str>, MapNote>,
    /// Incidents of the last day, by incident id.
    pub raids: Keyed<Arc<str>, Incident>,
    /// Timers that players set in chat, by timer id.
    pub timers: Keyed<Arc<str>, TeamTimer>,
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
                map_seed: None,
                players: None,
                max_players: None,
                queued_players: None,
                wiped_at: None,
                hour: None,
                sunrise: None,
                sunset: None,
                day_seconds: None,
                night_seconds: None,
                day_night_at: None,
                reports: Reports::default(),
                stale: StaleSections::new(),
            }),
            team: Arc::new(TeamHead::default()),
            members: Keyed::new(),
            map_markers: Keyed::new(),
            player_markers: Keyed::new(),
            devices: Keyed::new(),
            map_notes: Keyed::new(),
            raids: Keyed::new(),
            timers: Keyed::new(),
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
}

/// The live state of one paired server, in JSON: all of it, or the sections that a client subscribed to.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateDocument<'a> {
    #[schema(required = false)]
    server: &'a ServerHead,
    #[schema(required = false)]
    team: TeamDocument<'a>,
    /// By the game's marker id.
    #[schema(value_type = HashMap<String, ShownMarker>, required = false)]
    map_markers: ShownMarkers<'a>,
    /// By device id (the entity id in decimal).
    #[schema(value_type = HashMap<String, ShownDevice>, required = false)]
    devices: ShownDevices<'a>,
    /// By note id.
    #[schema(value_type = HashMap<String, MapNote>, required = false)]
    map_notes: &'a Keyed<Arc<str>, MapNote>,
    /// Incidents of the last day, by incident id. A client raises the alarm on any that it has not shown yet.
    #[schema(value_type = HashMap<String, Incident>, required = false)]
    raids: &'a Keyed<Arc<str>, Incident>,
    /// Timers that players set in chat, by timer id.
    #[schema(value_type = HashMap<String, TeamTimer>, required = false)]
    timers: &'a Keyed<Arc<str>, TeamTimer>,
}

/// The team of the paired player, in JSON.
#[derive(Serialize, ToSchema)]
struct TeamDocument<'a> {
    #[serde(flatten)]
    head: &'a TeamHead,
    /// By SteamID64.
    #[schema(value_type = HashMap<String, Member>)]
    members: &'a Keyed<u64, Member>,
}

/// Markers by id, and the catalogue with the names of their items.
struct ShownMarkers<'a> {
    of_all: &'a Keyed<u64, Marker>,
    of_players: &'a Keyed<u64, Marker>,
    catalogue: &'a Catalogue,
}

impl Serialize for ShownMarkers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { of_all, of_players, catalogue } = self;
        serializer.collect_map(of_all.iter().chain(of_players.iter()).map(|(id, marker)| (id, marker.shown(catalogue))))
    }
}

/// Devices by id, and the catalogue with the names of their contents.
struct ShownDevices<'a>(&'a Keyed<Arc<str>, Device>, &'a Catalogue);

impl Serialize for ShownDevices<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, device)| (id, device.shown(self.1))))
    }
}

impl ServerState {
    /// The whole state as it is on the wire, with the names of items that this catalogue has.
    pub fn document<'a>(&'a self, catalogue: &'a Catalogue) -> StateDocument<'a> {
        StateDocument {
            server: &self.server,
            team: TeamDocument { head: &self.team, members: &self.members },
            map_markers: ShownMarkers { of_all: &self.map_markers, of_players: &self.player_markers, catalogue },
            devices: ShownDevices(&self.devices, catalogue),
            map_notes: &self.map_notes,
            raids: &self.raids,
            timers: &self.timers,
        }
    }
}

fn edit_whole<T>(section: Section, whole: &mut Arc<T>, changes: &mut Vec<Change>, edit: impl FnOnce(&mut T))
where
    T: Clone + PartialEq + Node + 'static,
{
    let mut new = T::clone(whole);
    edit(&mut new);
    if new != **whole {
        let old = replace(whole, Arc::new(new));
        changes.push(change(section, Key::Whole, Some(old), Some(whole.clone())));
    }
}
