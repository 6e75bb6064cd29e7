//! Raid incidents as clients see them: the state, and the message that wakes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{ids::UserId, time::Timestamp, words::words};

words! {
    /// Path by which an alarm reached us.
    #[derive(PartialOrd, Ord, Deserialize, ToSchema)]
    pub enum AlarmPath {
        /// The live link to the game server.
        Link = "link",
        /// The game's push messages.
        Push = "push",
        /// Asked for by the user, to test the whole way.
        Drill = "drill",
    }
}

impl AlarmPath {
    /// The words of those by which an alarm of the game comes.
    pub const OF_THE_GAME: [&str; 2] = [Self::Link.word(), Self::Push.word()];
}

words! {
    /// State of an incident in the ledger, in the order in which it passes them.
    pub enum IncidentState {
        /// No socket has taken it yet.
        Unheard = "unheard",
        /// A socket has taken its message.
        Delivered = "delivered",
        /// A socket has taken a live state that holds it, and none its message.
        DeliveredLater = "delivered_later",
        /// A user has acknowledged it.
        Acknowledged = "acknowledged",
        /// No socket has taken it for as long as it is shown.
        Expired = "expired",
    }
}

/// Position of a device on the map, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DevicePlace {
    /// Metres from the south-west corner; `null` while the place is unknown.
    #[schema(required)]
    pub x: Option<f64>,
    #[schema(required)]
    pub y: Option<f64>,
    pub grid: String,
}

/// Alarms that belong together: an entry of `state.raids`, by the id of the incident.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// The device id of the alarm, or `push` and `push:<title>` where only the push message knows of it.
    pub alarm_id: String,
    pub alarm_name: String,
    #[serde(flatten)]
    pub place: DevicePlace,
    /// The first trigger.
    pub first_at: Timestamp,
    /// The latest trigger.
    pub last_at: Timestamp,
    /// When it had been quiet long enough to be over.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// Triggers.
    pub count: u32,
    pub paths: BTreeSet<AlarmPath>,
    /// The alarm reached us long after it was sent.
    pub late: bool,
    /// Nothing happens in the game.
    pub drill: bool,
    /// Users who acknowledged it, by user id, and when.
    #[schema(value_type = HashMap<String, Timestamp>)]
    pub acks: BTreeMap<UserId, Timestamp>,
}

/// The message that wakes: about a new incident, or more of one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Raid {
    /// Id of the incident; the same in all its updates.
    pub incident: String,
    pub alarm_id: String,
    pub alarm_name: String,
    #[serde(flatten)]
    pub place: DevicePlace,
    /// Time of the first trigger.
    pub ts: Timestamp,
    /// Triggers so far.
    pub count: u32,
    /// False on the first message of the incident.
    pub update: bool,
    /// The alarm reached us long after it was sent; absent when not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
    /// Nothing happens in the game; absent when something does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub drill: bool,
}

impl Raid {
    /// The message about an incident as it is now.
    pub fn new(id: &str, incident: &Incident, update: bool) -> Self {
        let Incident { alarm_id, alarm_name, place, first_at, count, late, drill, .. } = incident.clone();
        Self { incident: id.to_owned(), alarm_id, alarm_name, place, ts: first_at, count, update, late, drill }
    }
}
