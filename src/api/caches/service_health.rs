//! State of the service itself, as of a moment ago. [`checks`](crate::api::operation::health::checks) finds it out.

use std::{path::Path, sync::Arc, time::Duration};

use chrono::TimeDelta;
use rustix::fs::statvfs;

use crate::{
    domain::time::Timestamp, ownership::NodeFigures, push::session_status::PushCounts, relay::hub::LinkCounts,
};

/// For how long one look at whether something can be written counts: polls then cost nothing.
pub const WRITTEN_FOR: TimeDelta = TimeDelta::seconds(5);
/// For how long everyone is shown the same status.
pub const STATUS_FOR: TimeDelta = TimeDelta::seconds(5);
/// An alarm that waits for longer needs the operator.
pub const LONGEST_ALARM_WAIT: Duration = Duration::from_secs(60);
/// Bytes that the data directory's file system has free, at the least.
const LEAST_FREE: u64 = 64 << 20;

/// Outcome of the last attempt to write.
pub struct WriteState {
    /// `Err`: the reason why the database takes nothing.
    pub database: Result<(), String>,
    /// `Err`: the reason why the database does not answer signed-in requests.
    pub sign_ins: Result<(), String>,
    /// `Err`: the log of a SQLite is not where it was opened. Each change is written into the file meanwhile.
    pub log: Result<(), String>,
    /// `Err`: the reason why the database takes no alarms.
    pub ledger: Result<(), String>,
    /// `Err`: the reason why no alarm is sent by a channel.
    pub channels: Result<(), String>,
    /// Bytes that are free where the data directory is; none if the system does not say.
    pub free: Option<u64>,
    /// `Err`: the reason why the data directory takes no files.
    pub directory: Result<(), String>,
}

impl WriteState {
    /// Without a fault.
    #[cfg(test)]
    pub const WELL: Self = Self {
        database: Ok(()),
        sign_ins: Ok(()),
        log: Ok(()),
        ledger: Ok(()),
        channels: Ok(()),
        free: None,
        directory: Ok(()),
    };

    /// True if the database takes what is written, and answers signed-in requests.
    pub fn serves(&self) -> bool {
        self.database.is_ok() && self.sign_ins.is_ok()
    }

    /// True if alarms are stored, and sent by channels.
    pub fn takes_alarms(&self) -> bool {
        self.ledger.is_ok() && self.channels.is_ok()
    }

    /// True if the data directory has room.
    pub fn has_room(&self) -> bool {
        self.free.is_none_or(|free| free >= LEAST_FREE)
    }

    /// A sentence for each fault, for the log.
    pub fn faults(&self) -> Vec<String> {
        let database = self.database.as_ref().err().map(|error| format!("the database takes nothing: {error}"));
        let sign_ins = self
            .sign_ins
            .as_ref()
            .err()
            .map(|error| format!("the database does not answer signed-in requests: {error}"));
        let log = self.log.as_ref().err().map(|error| {
            format!(
                "{error} while it was open: each change is written into the file itself meanwhile; restart the service, see \
                 docs/alerts.md, A log of SQLite that was removed"
            )
        });
        let ledger = self
            .ledger
            .as_ref()
            .err()
            .map(|error| format!("the database takes no alarms, which are kept in the journal: {error}"));
        let channels = self.channels.as_ref().err().map(|error| {
            format!(
                "alarms wait to be sent by channels, whose tables cannot be read: {error}; `companion doctor` says why"
            )
        });
        let directory = self.directory.as_ref().err().map(|error| format!("the data directory {error}"));
        let room = (!self.has_room())
            .then(|| format!("less than {} MiB are free where the data directory is: make room", LEAST_FREE >> 20));
        [database, sign_ins, log, ledger, channels, directory, room].into_iter().flatten().collect()
    }
}

/// Links of game servers that must be down before that says something about this service.
const LINKS_DOWN: usize = 3;

/// Number of links or sessions in this state.
pub fn count_in(states: &[(&'static str, usize)], wanted: &str) -> usize {
    states.iter().find(|(state, _)| *state == wanted).map_or(0, |(_, count)| *count)
}

/// True if more than half of these are unreachable, and at least `least`.
fn mostly_unreachable(states: &[(&'static str, usize)], least: usize) -> bool {
    let all: usize = states.iter().map(|(_, count)| count).sum();
    let unreachable = count_in(states, "unreachable");
    unreachable >= least && 2 * unreachable > all
}

/// True if most game servers cannot be reached.
pub fn links_are_down(links: &LinkCounts) -> bool {
    mostly_unreachable(&links.by_state, LINKS_DOWN)
}

/// True if most push sessions do not reach the push service.
pub fn push_is_down(push: &PushCounts) -> bool {
    mostly_unreachable(push, 1)
}

/// State of the service. `None`: the part does not answer.
pub struct ServiceHealth {
    pub stopping: bool,
    pub written: Arc<WriteState>,
    pub links: Option<LinkCounts>,
    pub push: Option<PushCounts>,
    /// For how long the oldest alarm has waited for the database, if that is for too long.
    pub overdue_alarm: Option<Duration>,
    /// The database is not damaged, and its log is where it was opened.
    pub intact: bool,
    /// The identity provider answers, and the clock does not keep users out.
    pub sign_in: bool,
    /// Stored secrets that do not open.
    pub unreadable_secrets: usize,
    /// Rows of the database that cannot be read.
    pub unreadable_rows: usize,
    /// Open sockets.
    pub sockets: usize,
    /// A reverse proxy seems not to be named in the settings.
    pub unnamed_proxy: bool,
    /// When a socket last took an alarm.
    pub last_alarm: Option<Timestamp>,
    /// Figures of this node, if there are several.
    pub node: Option<NodeFigures>,
}

/// Bytes that are free for this process where the directory is. Blocks.
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let file_system = statvfs(directory).ok()?;
    Some(file_system.f_bavail.saturating_mul(file_system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_almost_full_below_its_threshold() {
        let state = |free| WriteState { free, ..WriteState::WELL };
        assert!(state(None).has_room() && state(Some(LEAST_FREE)).has_room());
        assert!(!state(Some(LEAST_FREE - 1)).has_room());
        assert_eq!((state(None).faults().len(), state(Some(0)).faults().len()), (0, 1));
    }

    #[test]
    fn a_lost_network_is_more_than_a_game_server_that_is_down() {
        let states = |connected, unreachable| [("connected", connected), ("unreachable", unreachable), ("paused", 0)];
        assert!(mostly_unreachable(&states(2, 3), 3) && mostly_unreachable(&states(0, 1), 1));
        assert!(!mostly_unreachable(&states(0, 2), 3) && !mostly_unreachable(&states(3, 3), 3));
        assert!(!mostly_unreachable(&states(0, 0), 0));
    }

    #[test]
    fn the_system_says_what_is_free() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_bytes(directory.path()).is_some());
        assert_eq!(free_bytes(&directory.path().join("missing")), None);
    }
}
