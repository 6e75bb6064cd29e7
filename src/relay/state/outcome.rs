//! Results of an update of the live state.

use std::sync::Arc;

use crate::{
    domain::{
        change::Change, detect::device::ReportedFacts, incident::DevicePlace, map::MapNote, raid::TriggerTime,
        team_command::daylight::DaySpeeds, world_event::WorldEvent,
    },
    relay::state::team_chat::ReceivedLine,
};

/// A smart alarm that went off.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmTrigger {
    pub device: Arc<str>,
    pub name: String,
    pub place: DevicePlace,
    pub time: TriggerTime,
}

/// Results of an update.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One step of the state; empty = no step.
    pub changes: Vec<Change>,
    pub events: Vec<WorldEvent>,
    pub world: WorldOutcome,
    pub team: TeamOutcome,
    pub own: OwnOutcome,
}

/// Results for all who play on the game server.
#[derive(Debug, Default)]
pub struct WorldOutcome {
    /// A complete answer of the map is in the state.
    pub shops_seen: bool,
    /// More is known of the world than is stored.
    pub learned: bool,
    /// The speeds of day and night, when more is known of them than is stored.
    pub speeds: Option<DaySpeeds>,
    /// The map must be asked for.
    pub map_wanted: bool,
}

/// Results for the team.
#[derive(Debug, Default)]
pub struct TeamOutcome {
    pub chat: Vec<ReceivedLine>,
}

/// Results for the paired server alone.
#[derive(Debug, Default)]
pub struct OwnOutcome {
    pub alarms: Vec<AlarmTrigger>,
    /// Alarms whose value has changed; `None`: it is no longer paired.
    pub alarm_values: Vec<(Arc<str>, Option<bool>)>,
    /// The facts that events have reported of devices, where they differ from the stored ones.
    pub reported: Vec<(Arc<str>, ReportedFacts)>,
    /// Notes of the detector on the map, by note id.
    pub death_notes: Vec<(Arc<str>, MapNote)>,
    /// The notes that the team has placed in the game, all of them, when they are others than before.
    pub game_notes: Option<Vec<(Arc<str>, MapNote)>>,
    /// The connection to the game server is in another state.
    pub connection_changed: bool,
    /// A device that has changed and says more when asked: ask it in a moment. A tool cupboard computes its upkeep
    /// again (protocol §3.4); an answer that came late may be older than the broadcast before it.
    pub ask_again: Option<Arc<str>>,
}
