//! Changes of paired servers within the last minutes. An answer of the database, or a message, may be from before such
//! a change: it must not restart a deleted server's link, nor let a user watch whose access has ended. Pure
//! bookkeeping.

use std::collections::HashMap;

use chrono::TimeDelta;

use crate::{
    domain::{ids::ServerId, time::Moment},
    relay::wire::publication::AllowedUsers,
};

/// No answer and no message is under way for longer.
const REMEMBERED: TimeDelta = TimeDelta::minutes(10);

/// See the module.
#[derive(Default)]
pub struct RecentChanges(HashMap<ServerId, RecentChange>);

struct RecentChange {
    at: Moment,
    allowed: AllowedUsers,
    removed: bool,
}

impl RecentChanges {
    /// The server was deleted: no user may watch it from this version on.
    pub fn remove(&mut self, server: ServerId, version: u64, now: Moment) {
        self.put(
            server,
            RecentChange { at: now, allowed: AllowedUsers { version, ..AllowedUsers::default() }, removed: true },
        );
    }

    /// From now on these users may watch the server.
    pub fn set_watchers(&mut self, server: ServerId, allowed: AllowedUsers, now: Moment) {
        let known = self.0.get(&server);
        let removed = known.is_some_and(|known| known.removed);
        if known.is_none_or(|known| known.allowed.version < allowed.version) {
            self.put(server, RecentChange { at: now, allowed, removed });
        }
    }

    /// The server is paired, perhaps once more.
    pub fn pair(&mut self, server: &ServerId) {
        if self.is_removed(server) {
            self.0.remove(server);
        }
    }

    /// True if the server was deleted lately.
    pub fn is_removed(&self, server: &ServerId) -> bool {
        self.0.get(server).is_some_and(|change| change.removed)
    }

    /// Users who may watch, by this answer or by a later change.
    pub fn newest(&self, server: &ServerId, answer: AllowedUsers) -> AllowedUsers {
        match self.0.get(server) {
            Some(change) if change.allowed.version > answer.version => change.allowed.clone(),
            _ => answer,
        }
    }

    fn put(&mut self, server: ServerId, change: RecentChange) {
        let now = change.at;
        self.0.retain(|_, change| now - change.at < REMEMBERED);
        self.0.insert(server, change);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    fn allowed(version: u64, users: &[&str]) -> AllowedUsers {
        let users = Arc::new(users.iter().map(|user| (*user).into()).collect());
        AllowedUsers { version, users, ..AllowedUsers::default() }
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_believed_and_a_later_one_is() {
        let (mut changes, one) = (RecentChanges::default(), "one".into());
        assert_eq!(changes.newest(&one, allowed(1, &["alice", "bob"])), allowed(1, &["alice", "bob"]));
        changes.set_watchers("one".into(), allowed(5, &["alice"]), at(0));
        assert_eq!(changes.newest(&one, allowed(4, &["alice", "bob"])), allowed(5, &["alice"]));
        assert_eq!(changes.newest(&one, allowed(6, &["bob"])), allowed(6, &["bob"]));
        changes.set_watchers("one".into(), allowed(3, &["carol"]), at(1));
        assert_eq!(changes.newest(&one, allowed(4, &["bob"])), allowed(5, &["alice"]), "older than what is known");
        assert_eq!(changes.newest(&"two".into(), allowed(1, &["bob"])), allowed(1, &["bob"]));
    }

    #[test]
    fn a_deleted_server_stays_deleted_until_it_is_paired_or_forgotten() {
        let (mut changes, one) = (RecentChanges::default(), "one".into());
        changes.remove("one".into(), 5, at(0));
        assert!(changes.is_removed(&one) && !changes.is_removed(&"two".into()));
        assert_eq!(changes.newest(&one, allowed(4, &["alice"])), allowed(5, &[]));
        changes.set_watchers("one".into(), allowed(6, &["alice"]), at(1));
        assert!(changes.is_removed(&one));
        changes.pair(&one);
        assert!(!changes.is_removed(&one));
        changes.remove("one".into(), 7, at(2));
        changes.remove("two".into(), 8, at(602));
        assert!(!changes.is_removed(&one), "forgotten");
    }
}
