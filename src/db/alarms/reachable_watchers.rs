//! Everything that a first message of an alarm is made of but the alarm: the users who watch a server and have a channel,
//! with their rules. In batches, so that it can be kept in memory for the time when the database gives nothing.

use std::collections::{BTreeSet, HashMap};

use crate::{
    db::{
        access,
        engine::{error::DbError, pool::Db, prelude::*},
        notices::{
            alarm_rules,
            channels::{self, StoredChannel},
        },
        paired_servers::{self, PairedServer},
        schema,
    },
    domain::{
        access::{Action, Role},
        channels::{escalation::AlarmRules, user_channel::ChannelKind},
        ids::{ChannelId, ServerId, UserId},
    },
};

/// A user who may watch a server and has a channel that can be tried.
#[derive(Clone, Debug)]
pub struct ReachableWatcher {
    pub user: UserId,
    pub role: Role,
    /// The server's name, as its user may see it.
    pub server_name: String,
    /// The default where the user has none, or they cannot be read.
    pub rules: AlarmRules,
    /// Oldest first.
    pub channels: Vec<StoredChannel>,
}

impl ReachableWatcher {
    /// The channels, as rules name them.
    pub fn channel_kinds(&self) -> Vec<(ChannelId, ChannelKind)> {
        let known = self.channels.iter().filter_map(|channel| Some((channel.id(), channel.kind().ok()?)));
        known.collect()
    }
}

/// The reachable watchers of servers; a server without one is absent.
pub type WatchersByServer = HashMap<ServerId, Vec<ReachableWatcher>>;

/// The watchers of these servers.
pub fn of(db: &mut Db, servers: &BTreeSet<String>) -> Result<WatchersByServer, DbError> {
    match read(db, servers) {
        Err(DbError::Malformed(_)) => {
            // A row that cannot be read holds up no other server.
            let mut singly = WatchersByServer::new();
            for server in servers {
                match read(db, &[server.clone()].into()) {
                    Err(DbError::Malformed(_)) => {
                        log::debug!(server = server.as_str(); "who is reached without the database cannot be read");
                    }
                    watchers => singly.extend(watchers?),
                }
            }
            Ok(singly)
        }
        watchers => watchers,
    }
}

/// The watchers of a page of all servers, and the last server of it; `None`: there are no more.
pub fn page(
    db: &mut Db,
    after: Option<&ServerId>,
    limit: i64,
) -> Result<(WatchersByServer, Option<ServerId>), DbError> {
    use schema::paired_servers::dsl::{id, paired_servers};
    let after = after.map_or("", ServerId::as_str);
    let servers: BTreeSet<String> =
        paired_servers.filter(id.gt(after)).order(id).limit(limit).select(id).load(db)?.into_iter().collect();
    let last = servers.last().map(|last| ServerId::from(last.as_str()));
    Ok((of(db, &servers)?, last))
}

fn read(db: &mut Db, servers: &BTreeSet<String>) -> Result<WatchersByServer, DbError> {
    if servers.is_empty() {
        return Ok(WatchersByServer::new());
    }
    let roles = access::all_roles(db, servers)?;
    let users: BTreeSet<String> =
        roles.iter().filter(|(_, role)| role.may(Action::Watch)).map(|((user, _), _)| user.clone()).collect();
    let mut by_user: HashMap<String, Vec<StoredChannel>> = HashMap::new();
    for channel in channels::list_usable(db, &users)? {
        by_user.entry(channel.user_id.clone()).or_default().push(channel);
    }
    let reached = roles.keys().filter(|(user, _)| by_user.contains_key(user));
    let ids: BTreeSet<&str> = reached.map(|(_, server)| server.as_str()).collect();
    if ids.is_empty() {
        // As with most pages, where few users have a channel.
        return Ok(WatchersByServer::new());
    }
    let mut rules = alarm_rules::of(db, servers, &users)?;
    let named = paired_servers::get_all(db, &ids)?;
    let named: HashMap<String, PairedServer> =
        named.into_iter().map(|server| (server.id.to_string(), server)).collect();
    let mut watchers = WatchersByServer::new();
    for ((user, server), role) in roles {
        let (Some(channels), Some(named)) = (by_user.get(&user), named.get(&server)) else { continue };
        let serves = |channel: &&StoredChannel| channel.kind().is_ok_and(|kind| kind.serves(role));
        let channels: Vec<StoredChannel> = channels.iter().filter(serves).cloned().collect();
        if channels.is_empty() {
            continue;
        }
        let rules = rules.remove(&(server, user.clone())).and_then(Result::ok).unwrap_or_default();
        let server_name = named.name_for(role).to_owned();
        let watcher = ReachableWatcher { user: user.into(), role, server_name, rules, channels };
        watchers.entry(named.id.clone()).or_default().push(watcher);
    }
    Ok(watchers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{notices::channels::tests::channel, paired_servers::StoredPairing, testing};

    #[test]
    fn watchers_who_have_a_channel_are_read_in_pages() {
        testing::on_each_database(|pool| {
            for user in ["owner", "guest", "deaf"] {
                testing::user(pool, user);
            }
            for (port, id) in (1..).zip(["one", "two", "three"]) {
                let pairing = StoredPairing { port, ..testing::pairing("owner") };
                pool.write_blocking(|db| paired_servers::put(db, &id.into(), &pairing, testing::now())).unwrap();
            }
            testing::guest(pool, "g", "one", "guest");
            testing::guest(pool, "g2", "one", "deaf");
            let rules = AlarmRules { rounds: 2, ..AlarmRules::default() };
            let gone = StoredChannel { state: "gone".to_owned(), ..channel("gone", "deaf", ChannelKind::Ntfy, "gone") };
            pool.write_blocking(|db| {
                for (id, user) in [("a", "owner"), ("b", "owner"), ("c", "guest")] {
                    channels::insert(db, &channel(id, user, ChannelKind::Ntfy, id), 9)?.unwrap();
                }
                channels::insert(db, &gone, 9)?.unwrap();
                alarm_rules::put(db, &"one".into(), &"guest".into(), &rules)
            })
            .unwrap();
            let read = |after: Option<&str>| {
                let after = after.map(ServerId::from);
                pool.read_blocking(|db| page(db, after.as_ref(), 2)).unwrap()
            };
            let (first, last) = read(None);
            let mut one: Vec<_> = first[&ServerId::from("one")].iter().collect();
            one.sort_by_key(|watcher| watcher.user.to_string());
            let shown = one.iter().map(|watcher| (watcher.user.as_str(), watcher.role, watcher.rules.rounds));
            let default = AlarmRules::default().rounds;
            let expected = [("guest", Role::Guest, 2), ("owner", Role::Owner, default)];
            assert_eq!(shown.collect::<Vec<_>>(), expected, "who has no channel that works is not reached");
            assert_eq!(one[1].channels.len(), 2);
            let (second, end) = read(last.as_ref().map(ServerId::as_str));
            assert_eq!((first.len() + second.len(), last), (3, Some("three".into())));
            assert_eq!(read(end.as_ref().map(ServerId::as_str)).1, None);
        });
    }
}
