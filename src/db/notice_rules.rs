//! Rules and channels of the users of notices, in batches: they decide which channels are tried, and when.

use std::collections::{BTreeSet, HashMap};

use crate::{
    db::{
        alarm_rules::{self, StoredRules},
        channels,
        engine::{error::DbError, pool::Db},
    },
    domain::{channel::ChannelKind, escalation::AlarmRules, ids::ChannelId},
};

/// Rules and channels of users.
pub(in crate::db) struct NoticeRules {
    rules: StoredRules,
    channels: HashMap<String, Vec<(ChannelId, ChannelKind)>>,
    default: AlarmRules,
}

impl NoticeRules {
    /// The rules of these users for these servers.
    pub(in crate::db) fn read(
        db: &mut Db,
        servers: &BTreeSet<String>,
        users: &BTreeSet<String>,
    ) -> Result<Self, DbError> {
        let (rules, channels) = (alarm_rules::of(db, servers, users)?, channels::usable_of(db, users)?);
        Ok(Self { rules, channels, default: AlarmRules::default() })
    }

    /// The user's rules for this server; false if they cannot be read, and are the default.
    pub(in crate::db) fn of(&self, server: &str, user: &str) -> (&AlarmRules, bool) {
        match self.rules.get(&(server.to_owned(), user.to_owned())) {
            None => (&self.default, true),
            Some(Ok(rules)) => (rules, true),
            // An alarm that rings by the wrong channel is better than none.
            Some(Err(_)) => (&self.default, false),
        }
    }

    /// The user's channels that can be tried.
    pub(in crate::db) fn channels(&self, user: &str) -> &[(ChannelId, ChannelKind)] {
        self.channels.get(user).map_or(&[], Vec::as_slice)
    }
}
