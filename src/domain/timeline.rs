//! Entries of the timeline, and the paging through them.

use chrono::TimeDelta;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::{
    ids::{GameServerId, ServerId, UserId},
    time::Timestamp,
    world_event::{EventKind, WorldEvent},
};

/// The action of an entry that came as a push.
pub const PUSHED: &str = "pushed";
/// A push is sent this long after what it reports, or before the link sees that, at most.
pub const PUSHED_WITHIN: TimeDelta = TimeDelta::minutes(2);

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

    /// The player of a death or login, and when it was: a push and the link may both say so.
    pub fn happened(&self) -> Option<(&str, Timestamp)> {
        let text = |key: &str| self.data.get(key).and_then(Value::as_str);
        let player = text("steamId").filter(|_| matches!(self.kind.as_str(), "death" | "login"))?;
        Some((player, text("diedAt").and_then(|at| at.parse().ok()).unwrap_or(self.ts)))
    }

    /// The one of two entries in which the link saw what came as a push, with what the push adds; none if they are of
    /// two deaths or logins.
    pub fn joined(&self, other: &Self) -> Option<Self> {
        let (pushed, seen) = match (self.action == PUSHED, other.action == PUSHED) {
            (true, false) => (self, other),
            (false, true) => (other, self),
            _ => return None,
        };
        let ((player, sent), (same, at)) = (pushed.happened()?, seen.happened()?);
        let is_one = pushed.kind == seen.kind && player == same && (sent - at).abs() <= PUSHED_WITHIN;
        if !is_one || seen.data.contains_key("by") {
            return None;
        }
        let by = pushed.data.get("by").map(|by| ("by".to_owned(), by.clone()));
        Some(Self { data: seen.data.clone().into_iter().chain(by).collect(), ..seen.clone() })
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
        let ts = Timestamp::from_timestamp_micros(micros.parse().ok()?).filter(|ts| ts.is_storable())?;
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
    use serde_json::json;

    use super::*;

    fn entry(kind: &str, action: &str, seconds: i64, data: &Value) -> TimelineEntry {
        let (id, kind, action) = (format!("{action} {seconds}"), kind.to_owned(), action.to_owned());
        let (ts, data) = (Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap(), data.as_object().unwrap());
        let (grid, title) = (String::new(), String::new());
        TimelineEntry { id, kind, action, ts, grid, x: None, y: None, title, data: data.clone() }
    }

    #[test]
    fn a_push_and_what_the_link_saw_are_one_death_or_login() {
        let pushed = entry("death", PUSHED, 0, &json!({ "steamId": "1", "by": "a bear", "message": "Island" }));
        let at = |seconds| entry("death", "died", seconds, &json!({ "steamId": "1", "diedAt": null }));
        let joined = pushed.joined(&at(110)).unwrap();
        assert_eq!((joined.id.as_str(), &joined.data["by"]), ("died 110", &json!("a bear")));
        assert_eq!(at(-110).joined(&pushed).unwrap().data["steamId"], "1");
        assert_eq!(pushed.joined(&at(121)), None);
        // The link was away, and sees later when it was.
        let late = entry("death", "died", 9_000, &json!({ "steamId": "1", "diedAt": pushed.ts.to_wire() }));
        assert!(pushed.joined(&late).is_some());
        assert_eq!(pushed.joined(&joined), None, "that is another push");
        assert_eq!(pushed.joined(&pushed), None);
        assert_eq!(pushed.joined(&entry("login", "login", 0, &json!({ "steamId": "1" }))), None);
        assert_eq!(pushed.joined(&entry("death", "died", 0, &json!({ "steamId": "2" }))), None);
        let login = entry("login", PUSHED, 0, &json!({ "steamId": "1", "name": "Ann", "message": "Island" }));
        assert_eq!(login.joined(&entry("login", "login", 5, &json!({ "steamId": "1" }))).unwrap().action, "login");
        assert_eq!(login.joined(&entry("login", "login", 5, &json!({ "trackedPlayer": "x" }))), None);
        assert_eq!(entry("team", "left", 0, &json!({ "steamId": "1" })).happened(), None);
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        let cursor = Cursor { ts: Timestamp::from_timestamp_micros(1_800_000_000_123_456).unwrap(), id: "a.b".into() };
        assert_eq!(Cursor::parse(&cursor.to_wire()), Some(cursor));
        for bad in ["", ".", "x.y", "12", "99999999999999999999.a", "-300000000000000000.x", "1.\0", "1.a\n"] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }
}
