//! Rules and channels of the users of notices, in batches: they decide which channels are tried, and when.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db},
        notices::{
            alarm_rules::{self, StoredRules},
            channels,
        },
    },
    domain::{
        access::Role,
        channels::{escalation::AlarmRules, user_channel::ChannelKind},
        ids::ChannelId,
    },
};

/// Rules and channels of users.
pub(in crate::db) struct NoticeRules {
    rules: StoredRules,
    channels: HashMap<String, Vec<(ChannelId, ChannelKind)>>,
    /// Owners, each with a server; empty where all channels are for guests as well.
    owned: HashSet<(String, String)>,
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
        let is_for_owners = |(_, kind): &(_, ChannelKind)| !kind.serves(Role::Guest);
        let owned = match channels.values().flatten().any(is_for_owners) {
            true => access::owners(db, servers)?,
            false => HashSet::new(),
        };
        Ok(Self { rules, channels, owned, default: AlarmRules::default() })
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

    /// The user's channels that can be tried for this server.
    pub(in crate::db) fn channels(&self, server: &str, user: &str) -> Cow<'_, [(ChannelId, ChannelKind)]> {
        let channels = self.channels.get(user).map_or(&[][..], Vec::as_slice);
        let is_owner = || self.owned.contains(&(user.to_owned(), server.to_owned()));
        if channels.iter().all(|(_, kind)| kind.serves(Role::Guest)) || is_owner() {
            return channels.into();
        }
        channels.iter().filter(|(_, kind)| kind.serves(Role::Guest)).cloned().collect()
    }
}
