//! News of a game server, of users and of the database, as the live state takes them.

use std::{
    collections::{HashMap, HashSet},
    mem::take,
    sync::Arc,
};

use crate::{
    domain::{
        detect::{device::ReportedFacts, wipe::World},
        device::{DeviceKind, Reachable, TurnBack},
        link_reason::LinkReason,
        map::{MapNote, Marker},
        monument::Monument,
        reporting::Reports,
        server_state::{ConnectionState, Keyed},
        team_command::{daylight::DaySpeeds, desk::ChatNotice},
        team_timer::TeamTimer,
        time::{Moment, Timestamp},
        world_map::MonumentMap,
    },
    game::{
        link::{Answered, AskError},
        wire::{
            AppBroadcast, AppEntityChanged, AppEntityInfo, AppInfo, AppMap, AppMapMarkers, AppMarker, AppMarkerType,
            AppTeamChat, AppTeamInfo, AppTeamMessage, AppTime, app_team_info,
        },
    },
    relay::state::handed_state::HandedState,
};

/// News, by the parts of the live state that they concern.
pub enum GameUpdate {
    /// The world as it was stored, and its monuments if its map was known. Comes before the link is up, or a wipe in
    /// our absence would go unseen.
    StoredWorld {
        world: Option<World>,
        monuments: Option<Vec<Monument>>,
        /// When a link before was last known to be up.
        alive_until: Option<Timestamp>,
        /// The game server's reports, as last known.
        reports: Reports,
        /// Speeds of its day and night, as last learned.
        speeds: DaySpeeds,
    },
    /// The memory of the node that had the server before. It counts once the link is up, unless one was up here already.
    HandedOver(Box<HandedState>),
    /// The link is up and the player token is good.
    Connected(AppInfo),
    /// There is no link, or no longer.
    Disconnected {
        state: ConnectionState,
        reason: Option<LinkReason>,
        next_attempt_at: Option<Timestamp>,
    },
    /// No link reads, for a moment or longer: what is shown of the connection stays until more is known.
    Unread,
    /// The broadcasts that follow on this link may have waited in its socket since then; `None`: they have just come.
    Waited(Option<Timestamp>),
    /// A broadcast of the game server, and its number on this link.
    Broadcast(u64, Box<AppBroadcast>),
    World(WorldUpdate),
    Team(TeamUpdate),
    /// News of the team over the link of a mate, without map notes of the paired player.
    TeamByMate(TeamUpdate),
    /// All markers as the link of a mate has them, and the players of the team on the map.
    MarkersByMate {
        all: Keyed<u64, Marker>,
        players: Keyed<u64, Marker>,
    },
    Own(OwnUpdate),
    /// Another link reads from now on, without a gap, and was asked about the devices since then.
    LinkSwitched {
        asked_since: Moment,
    },
}

/// News of the game server.
pub enum WorldUpdate {
    Info(AppInfo),
    Time(AppTime),
    Markers(AppMapMarkers),
    /// All markers as a mate's link has them, without the players.
    SharedMarkers(Keyed<u64, Marker>),
    /// The game server's reports, by the answers so far.
    Reports(Reports),
    Map(AppMap),
    /// The map as another link to the game server has it.
    SharedMap(Arc<MonumentMap>),
}

/// News of the team.
pub enum TeamUpdate {
    Members(Answered<AppTeamInfo>),
    /// By the broadcast of this number on this link.
    Changed(u64, AppTeamInfo),
    Chat(AppTeamChat),
    /// A line that was just said.
    Said(AppTeamMessage),
    /// The players on the map, all of them.
    Players(Vec<AppMarker>),
    /// Likewise, as a mate's link has them.
    SharedPlayers(Keyed<u64, Marker>),
}

impl GameUpdate {
    /// The broadcast of this number says that a device has changed; 0: it is one of another link than that which reads.
    pub fn device_changed(number: u64, changed: AppEntityChanged) -> Self {
        Self::Broadcast(number, Box::new(AppBroadcast { entity_changed: Some(changed), ..AppBroadcast::default() }))
    }

    /// True for what was stored before the link is up.
    pub fn is_stored(&self) -> bool {
        matches!(self, Self::StoredWorld { .. })
    }
}

impl WorldUpdate {
    /// Takes out the players on the map, if markers come with it: each team is shown its own. An id that another marker
    /// has is not theirs.
    pub fn take_players(&mut self) -> Option<Vec<AppMarker>> {
        let Self::Markers(AppMapMarkers { markers }) = self else { return None };
        let is_player = |marker: &mut AppMarker| marker.r#type == AppMarkerType::PlayerMarker as i32;
        let mut players: Vec<AppMarker> = markers.extract_if(.., is_player).collect();
        if !players.is_empty() {
            let others: HashSet<u64> = markers.iter().map(|marker| marker.id).collect();
            players.retain(|player| !others.contains(&player.id));
        }
        Some(players)
    }
}

impl TeamUpdate {
    /// True if it has all members, with the leader and the leader's notes.
    pub fn has_members(&self) -> bool {
        matches!(self, Self::Members(_) | Self::Changed(..))
    }

    /// Takes out the map notes of the player whose link it is, all of them, if they come with it: they are not the
    /// team's.
    pub fn take_own_notes(&mut self) -> Option<Vec<app_team_info::Note>> {
        match self {
            Self::Members(Answered { content, .. }) | Self::Changed(_, content) => Some(take(&mut content.map_notes)),
            Self::Chat(_) | Self::Said(_) | Self::Players(_) | Self::SharedPlayers(_) => None,
        }
    }
}

/// News of the paired server alone.
pub enum OwnUpdate {
    /// The devices paired to this server, by device id.
    Devices(HashMap<Arc<str>, PairedDevice>),
    /// The stored map notes, by note id; their grid labels are filled in here.
    Notes(Vec<(Arc<str>, MapNote)>),
    NoteDeleted(String),
    /// A device's answer, or why there is none.
    Device {
        device: Arc<str>,
        answer: Result<Answered<Option<AppEntityInfo>>, AskError>,
    },
    /// End of a look through a camera, which is not polled.
    Camera {
        device: Arc<str>,
        reachable: Reachable,
        /// The moment of the frame that it showed.
        frame_at: Option<Timestamp>,
    },
    /// The timers that players set, all of them, by timer id.
    Timers(Vec<(Arc<str>, TeamTimer)>),
    /// The switches that turn back, all of them, by device id.
    TurnBacks(HashMap<Arc<str>, TurnBack>),
    /// A warning about our answers in the team's chat, or its end.
    ChatNotice(Option<ChatNotice>),
}

impl From<WorldUpdate> for GameUpdate {
    fn from(update: WorldUpdate) -> Self {
        Self::World(update)
    }
}

impl From<TeamUpdate> for GameUpdate {
    fn from(update: TeamUpdate) -> Self {
        Self::Team(update)
    }
}

impl From<OwnUpdate> for GameUpdate {
    fn from(update: OwnUpdate) -> Self {
        Self::Own(update)
    }
}

/// A device as it is stored.
pub struct PairedDevice {
    pub kind: DeviceKind,
    pub name: String,
    pub label: Option<String>,
    /// An alarm's, as it was last seen.
    pub last_value: Option<bool>,
    /// The facts that events have reported of it.
    pub reported: Option<ReportedFacts>,
    /// Metres from the south-west corner, as its owner said.
    pub place: Option<(f64, f64)>,
}
