//! Records of a run, as the judges read them. Times are since it began.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    time::Duration,
};

use serde_json::{Map, Value};

/// Ways by which the alarms of a paired server reach the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmWay {
    /// A device goes off, and no phone is pushed to.
    Link,
    /// A device goes off, and the game pushes its name.
    LinkAndPush,
    /// A push alone, of no device.
    Push,
}

/// An alarm that was raised. No other one has its name.
#[derive(Clone, Debug)]
pub struct RaisedAlarm {
    /// The paired server.
    pub server: String,
    pub name: String,
    pub way: AlarmWay,
    pub at: Duration,
}

/// An incident of the ledger.
#[derive(Clone, Debug)]
pub struct IncidentRow {
    pub id: String,
    pub server: String,
    pub alarm_name: String,
    /// Triggers.
    pub count: i64,
}

/// An alarm of the ledger.
#[derive(Clone, Debug)]
pub struct AlarmRow {
    pub path: String,
    pub server: Option<String>,
    pub title: String,
    pub incident: Option<String>,
    pub is_finished: bool,
}

/// The ledger of alarms.
#[derive(Clone, Debug, Default)]
pub struct StoredLedger {
    pub incidents: Vec<IncidentRow>,
    pub alarms: Vec<AlarmRow>,
    /// Ids of incidents that are a part of another one.
    pub parts: BTreeSet<String>,
}

/// A socket: its user, its node, and its number among those of this user at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId {
    pub user: usize,
    pub node: usize,
    pub number: u32,
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {} of user {} at node {}", self.number, self.user, self.node)
    }
}

/// A `raid` message.
#[derive(Clone, Debug)]
pub struct SeenRaid {
    pub socket: SocketId,
    pub server: String,
    pub incident: String,
    pub alarm_id: String,
    pub alarm_name: String,
    pub count: u64,
    pub update: bool,
    pub at: Duration,
}

/// The live state of a paired server, as a socket has it.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedState {
    pub epoch: u64,
    pub seq: u64,
    pub state: Value,
}

impl WatchedState {
    /// The names of the alarms of its incidents.
    pub fn alarm_names(&self) -> impl Iterator<Item = &str> {
        let raids = self.state["raids"].as_object();
        raids.into_iter().flat_map(Map::values).filter_map(|raid| raid["alarmName"].as_str())
    }
}

/// A part of the service has another node, or another number, than at the look before.
#[derive(Clone, Debug)]
pub struct HolderChange {
    pub part: String,
    /// Empty: none has it.
    pub node: String,
    pub number: i64,
    /// When that was seen.
    pub at: Duration,
}

/// The node and the number of each part.
pub type Holders = BTreeMap<String, (String, i64)>;

/// A node that lives.
#[derive(Clone, Debug)]
pub struct LiveNode {
    pub id: String,
    /// From which it connects to game servers.
    pub address: IpAddr,
}

/// The addresses from which a game server has links.
#[derive(Clone, Debug)]
pub struct LinksOfGame {
    /// The part of its links.
    pub part: String,
    pub addresses: BTreeSet<IpAddr>,
}

/// Links to a game server that a node lost by a fault.
#[derive(Clone, Debug)]
pub struct TakeOver {
    /// The fault, in words.
    pub fault: String,
    pub game: usize,
    /// Time until there was another link; `None`: there was none in time.
    pub after: Option<Duration>,
}
