//! Entries of the timeline, and the paging through them.

use chrono::DateTime;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::{
    ids::{GameServerId, ServerId, UserId},
    time::{self, Timestamp},
    world_event::{EventKind, WorldEvent},
};

/// Owner of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimelineOwner {
    GameServer(GameServerId),
    Server(ServerId),
    /// A user, for an entry about no paired server.
    User(UserId),
}

/// One entry: `{ id, kind, action, ts, grid, x, y, title, data }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineEntry {
    /// Our own id.
    pub id: String,
    /// For example `cargo`, `death`, `gap`.
    pub kind: String,
    /// The event within the kind, for example `entered`.
    pub action: String,
    /// When it happened, as well as it is known.
    #[serde(serialize_with = "time::wire")]
    pub ts: Timestamp,
    /// `""` where there is no place.
    pub grid: String,
    /// Metres from the south-west corner.
    pub x: Option<f64>,
    pub y: Option<f64>,
    /// One line of English.
    pub title: String,
    /// Further facts of this kind.
    pub data: Map<String, Value>,
}

/// An entry's place in the order of time; what comes before it is older.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub ts: Timestamp,
    pub id: String,
}

/// Selection of entries.
#[derive(Clone, Debug)]
pub struct TimelinePage {
    /// Earliest time of an entry.
    pub since: Option<Timestamp>,
    pub before: Option<Cursor>,
    /// Kinds of the entries; all if absent.
    pub kinds: Option<Vec<String>>,
    pub limit: usize,
}

impl TimelineEntry {
    /// An event of the relay, under this id.
    pub fn of_event(id: String, event: &WorldEvent) -> Self {
        Self {
            id,
            kind: event.kind.word().to_owned(),
            action: event.action.to_owned(),
            ts: event.ts,
            grid: event.grid.clone(),
            x: event.x,
            y: event.y,
            title: event.title.clone(),
            data: event.data.clone(),
        }
    }

    /// The cursor of the page after this entry.
    pub fn cursor(&self) -> Cursor {
        Cursor { ts: self.ts, id: self.id.clone() }
    }
}

impl Cursor {
    /// As clients have it: opaque, `<microseconds>.<id>`.
    pub fn to_wire(&self) -> String {
        format!("{}.{}", self.ts.timestamp_micros(), self.id)
    }

    /// Reads what [`to_wire`](Self::to_wire) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let (micros, id) = text.split_once('.').filter(|(_, id)| !id.chars().any(char::is_control))?;
        let ts = DateTime::from_timestamp_micros(micros.parse().ok()?).filter(|ts| time::is_storable(*ts))?;
        Some(Self { ts, id: id.to_owned() })
    }
}

impl EventKind {
    /// True if it concerns the game server, and so all users who paired it.
    pub fn is_of_world(self) -> bool {
        use EventKind::*;
        matches!(self, Cargo | Heli | Chinook | Crate | Oilrig | Vendor | Explosion | Wipe | Shop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        let cursor = Cursor { ts: DateTime::from_timestamp_micros(1_800_000_000_123_456).unwrap(), id: "a.b".into() };
        assert_eq!(Cursor::parse(&cursor.to_wire()), Some(cursor));
        for bad in ["", ".", "x.y", "12", "99999999999999999999.a", "-300000000000000000.x", "1.\0", "1.a\n"] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }
}
