//! How the service itself is, as of a moment ago. [`state_checks`](super::state_checks) finds it out.

use std::{path::Path, sync::Arc};

use chrono::TimeDelta;
use rustix::fs::statvfs;

use crate::{domain::time::Timestamp, push::session_status::PushCounts, relay::hub::LinkCounts};

/// For how long one look at whether something can be written counts: polls then cost nothing.
pub const WRITTEN_FOR: TimeDelta = TimeDelta::seconds(5);
/// For how long everybody is shown the same status.
pub const STATUS_FOR: TimeDelta = TimeDelta::seconds(5);
/// Bytes that the data directory's file system has free, at the least.
const LEAST_FREE: u64 = 64 << 20;

/// What came of the last attempt to write.
pub struct WriteState {
    /// Why the database takes nothing, if it takes nothing.
    pub database: Result<(), String>,
    /// Bytes that are free where the data directory is; none if the system does not say.
    pub free: Option<u64>,
}

impl WriteState {
    /// Whether the data directory has room.
    pub fn has_room(&self) -> bool {
        self.free.is_none_or(|free| free >= LEAST_FREE)
    }
}

/// How the service is. `None`: the part does not answer.
pub struct OwnState {
    pub stopping: bool,
    pub written: Arc<WriteState>,
    pub links: Option<LinkCounts>,
    pub push: Option<PushCounts>,
    /// Stored secrets that do not open.
    pub unreadable_secrets: usize,
    /// Open sockets.
    pub sockets: usize,
    /// A reverse proxy seems not to be named in the settings.
    pub unnamed_proxy: bool,
    /// When a socket last took an alarm.
    pub last_alarm: Option<Timestamp>,
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
        let state = |free| WriteState { database: Ok(()), free };
        assert!(state(None).has_room() && state(Some(LEAST_FREE)).has_room());
        assert!(!state(Some(LEAST_FREE - 1)).has_room());
    }

    #[test]
    fn the_system_says_what_is_free() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_bytes(directory.path()).is_some());
        assert_eq!(free_bytes(&directory.path().join("missing")), None);
    }
}
