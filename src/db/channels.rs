//! Channels of users: ways to reach them without a dashboard. Targets stay sealed here, for (`channels`, `sealed`, the
//! channel's id).

use std::collections::{BTreeSet, HashMap};

use crate::{
    db::{
        PURGE_BATCH,
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{channels, users},
    },
    domain::{
        channel::{ChannelFault, ChannelKind, ChannelState, FailureRow},
        ids::{ChannelId, UserId},
        time::Timestamp,
    },
};

/// A row of `channels`: a target of a user's alarms, which is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = channels)]
pub struct StoredChannel {
    pub id: String,
    pub user_id: String,
    /// The word of its [`ChannelKind`].
    pub kind: String,
    pub name: String,
    /// Host of the target's URL.
    pub host: String,
    /// SHA-256 of the target's identity, in hex.
    pub target_hash: String,
    pub sealed: Vec<u8>,
    /// The number of the key that sealed it.
    pub key_version: i32,
    /// The word of its [`ChannelState`].
    pub state: String,
    /// Reason for the state, a word.
    pub reason: Option<String>,
    /// Since when nothing got through.
    pub failing_since: Option<Timestamp>,
    /// When the other side last took a message.
    pub accepted_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// Failures in a row.
    pub failures: i32,
    /// Scheme, host and port of the target's URL.
    pub origin: String,
}

impl StoredChannel {
    /// Fails if it has a word that this program does not know: nothing is sent by it then.
    pub fn check(&self) -> Result<(), DbError> {
        self.kind()?;
        self.state()?;
        Ok(())
    }

    /// The id, as a type.
    pub fn id(&self) -> ChannelId {
        self.id.as_str().into()
    }

    /// The kind, unless a newer program stored one that is not known here.
    pub fn kind(&self) -> Result<ChannelKind, DbError> {
        ChannelKind::parse(&self.kind).ok_or_else(|| DbError::malformed("kind"))
    }

    /// The state, unless a newer program stored one that is not known here.
    pub fn state(&self) -> Result<ChannelState, DbError> {
        ChannelState::parse(&self.state).ok_or_else(|| DbError::malformed("state"))
    }
}

/// A new channel was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelNotAdded {
    LimitReached,
    /// The user has one with the same target.
    Known,
}

/// Adds a channel, unless its user has `most` already, or one with the same target. Of as many, a browser whose
/// subscription has ended makes room. A browser's subscription that another account has is that account's no more: two
/// people share the browser.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn insert(db: &mut Db, channel: &StoredChannel, most: usize) -> Result<Result<(), ChannelNotAdded>, DbError> {
    // Locks the user's row: two requests at once could otherwise both see room.
    diesel::update(users::table.find(&channel.user_id)).set(users::id.eq(users::id)).execute(db)?;
    let of_user = channels::table.filter(channels::user_id.eq(&channel.user_id));
    let known: i64 = of_user.filter(channels::target_hash.eq(&channel.target_hash)).count().get_result(db)?;
    if known > 0 {
        return Ok(Err(ChannelNotAdded::Known));
    }
    let count: i64 = of_user.count().get_result(db)?;
    if usize::try_from(count).is_ok_and(|count| count >= most) && !delete_gone_browser(db, &channel.user_id)? {
        return Ok(Err(ChannelNotAdded::LimitReached));
    }
    if channel.kind == ChannelKind::WebPush.word() {
        diesel::delete(channels::table.filter(channels::target_hash.eq(&channel.target_hash))).execute(db)?;
    }
    diesel::insert_into(channels::table).values(channel).execute(db)?;
    Ok(Ok(()))
}

/// Deletes the user's browser whose subscription ended first; false when there is none.
fn delete_gone_browser(db: &mut Db, user: &str) -> Result<bool, DbError> {
    let first = gone_browsers().filter(channels::user_id.eq(user)).order((channels::failing_since, channels::id));
    let first: Option<String> = first.select(channels::id).first(db).optional()?;
    let Some(first) = first else { return Ok(false) };
    Ok(diesel::delete(channels::table.find(first)).execute(db)? == 1)
}

/// Deletes a batch of the browsers whose subscriptions ended before this time: those that use the dashboard again have made
/// others. Returns how many.
pub fn purge_gone_browsers(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    let old = gone_browsers().filter(channels::failing_since.le(before));
    let ids: Vec<String> = old.limit(PURGE_BATCH as i64).select(channels::id).load(db)?;
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(diesel::delete(channels::table.filter(channels::id.eq_any(ids))).execute(db)?)
}

/// Browsers whose push service says that the subscription ended.
#[diesel::dsl::auto_type(no_type_alias)]
fn gone_browsers() -> _ {
    let state: &'static str = ChannelState::Gone.word();
    let kind: &'static str = ChannelKind::WebPush.word();
    channels::table.filter(channels::state.eq(state)).filter(channels::kind.eq(kind))
}

/// The user's channels, oldest first.
pub fn list(db: &mut Db, user: &UserId) -> Result<Vec<StoredChannel>, DbError> {
    let of_user = channels::table.filter(channels::user_id.eq(user.as_str()));
    Ok(of_user.order((channels::created_at, channels::id)).select(StoredChannel::as_select()).load(db)?)
}

/// States of channels that can be tried.
fn usable_states() -> [&'static str; 2] {
    [ChannelState::Active.word(), ChannelState::Failing.word()]
}

/// The channels among these that can be tried, each with its kind.
pub fn usable(channels: &[StoredChannel]) -> Result<Vec<(ChannelId, ChannelKind)>, DbError> {
    let usable = channels.iter().filter(|channel| usable_states().contains(&channel.state.as_str()));
    usable.map(|channel| Ok((channel.id(), channel.kind()?))).collect()
}

/// The channels of these users that can be tried, oldest first, each with its kind. A user without one is absent, and so
/// is a channel of an unknown kind.
pub fn usable_of(
    db: &mut Db,
    users: &BTreeSet<String>,
) -> Result<HashMap<String, Vec<(ChannelId, ChannelKind)>>, DbError> {
    let rows: Vec<(String, String, String)> = channels::table
        .filter(channels::user_id.eq_any(users))
        .filter(channels::state.eq_any(usable_states()))
        .order((channels::created_at, channels::id))
        .select((channels::user_id, channels::id, channels::kind))
        .load(db)?;
    let mut usable: HashMap<String, Vec<(ChannelId, ChannelKind)>> = HashMap::new();
    for (user, id, kind) in rows {
        if let Some(kind) = ChannelKind::parse(&kind) {
            usable.entry(user).or_default().push((id.into(), kind));
        }
    }
    Ok(usable)
}

/// The channels of these users that can be tried, oldest first. One of an unknown kind is absent.
pub fn list_usable(db: &mut Db, users: &BTreeSet<String>) -> Result<Vec<StoredChannel>, DbError> {
    let usable = channels::table
        .filter(channels::user_id.eq_any(users))
        .filter(channels::state.eq_any(usable_states()))
        .order((channels::created_at, channels::id))
        .select(StoredChannel::as_select());
    let mut usable: Vec<StoredChannel> = usable.load(db)?;
    usable.retain(|channel| channel.kind().is_ok());
    Ok(usable)
}

/// The ids of the channels among these that can be tried.
pub fn usable_among(db: &mut Db, ids: &[&str]) -> Result<BTreeSet<String>, DbError> {
    let usable = channels::table.filter(channels::id.eq_any(ids)).filter(channels::state.eq_any(usable_states()));
    let usable: Vec<String> = usable.select(channels::id).load(db)?;
    Ok(usable.into_iter().collect())
}

/// The users among these who have a channel that can be tried.
pub fn reachable(db: &mut Db, users: &[UserId]) -> Result<Vec<UserId>, DbError> {
    let usable = channels::table
        .filter(channels::user_id.eq_any(users.iter().map(UserId::as_str)))
        .filter(channels::state.eq_any(usable_states()));
    let reachable: Vec<String> = usable.select(channels::user_id).distinct().load(db)?;
    Ok(reachable.into_iter().map(UserId::from).collect())
}

/// A channel.
pub fn get(db: &mut Db, id: &ChannelId) -> Result<Option<StoredChannel>, DbError> {
    Ok(channels::table.find(id.as_str()).select(StoredChannel::as_select()).first(db).optional()?)
}

/// These channels.
pub fn get_all(db: &mut Db, ids: &[&str]) -> Result<Vec<StoredChannel>, DbError> {
    Ok(channels::table.filter(channels::id.eq_any(ids)).select(StoredChannel::as_select()).load(db)?)
}

/// The user's channel.
pub fn find(db: &mut Db, user: &UserId, id: &ChannelId) -> Result<Option<StoredChannel>, DbError> {
    Ok(get(db, id)?.filter(|channel| channel.user_id == user.as_str()))
}

/// Gives the user's channel another name; false when they have no such channel.
pub fn rename(db: &mut Db, user: &UserId, id: &ChannelId, name: &str) -> Result<bool, DbError> {
    let channel = channels::table.find(id.as_str()).filter(channels::user_id.eq(user.as_str()));
    Ok(diesel::update(channel).set(channels::name.eq(name)).execute(db)? == 1)
}

/// Deletes the user's channel; false when they have no such channel.
pub fn delete(db: &mut Db, user: &UserId, id: &ChannelId) -> Result<bool, DbError> {
    let channel = channels::table.find(id.as_str()).filter(channels::user_id.eq(user.as_str()));
    Ok(diesel::delete(channel).execute(db)? == 1)
}

/// The channels among these that still have the target that a message went to: ids, and SHA-256 of those targets. Call it in a
/// transaction that stores what follows.
pub fn aimed(db: &mut Db, sent: &[(&str, &str)]) -> Result<BTreeSet<String>, DbError> {
    let ids = sent.iter().map(|(id, _)| *id);
    let known = channels::table.filter(channels::id.eq_any(ids)).order(channels::id);
    let known = known.select((channels::id, channels::target_hash));
    let known: Vec<(String, String)> = match db {
        // None of them is deleted before what came of its message is stored.
        Db::Pg(db) => known.for_no_key_update().load(db)?,
        Db::Sqlite(db) => known.load(db)?,
    };
    let is_aimed = |(id, hash): &(String, String)| sent.contains(&(id.as_str(), hash.as_str()));
    Ok(known.into_iter().filter(is_aimed).map(|(id, _)| id).collect())
}

/// Stores that the other side took a message, for each of these channels: ids, and SHA-256 of the targets that it went to.
/// One with another target meanwhile stays as it is. One that is gone does, too: only tests are sent to it, and a message that
/// it took was answered before.
pub fn note_accepted(db: &mut Db, sent: &[(&str, &str)], now: Timestamp) -> Result<(), DbError> {
    let active = (
        channels::state.eq(ChannelState::Active.word()),
        channels::reason.eq(None::<String>),
        channels::failing_since.eq(None::<Timestamp>),
        channels::failures.eq(0),
        channels::accepted_at.eq(now),
        channels::warn_at.eq(None::<Timestamp>),
    );
    let (ids, targets): (Vec<&str>, Vec<&str>) = sent.iter().copied().unzip();
    let aimed = channels::table.filter(channels::id.eq_any(ids)).filter(channels::target_hash.eq_any(targets));
    let there = aimed.filter(channels::state.ne(ChannelState::Gone.word()));
    diesel::update(there).set(active).execute(db)?;
    Ok(())
}

/// Stores that this target (its SHA-256) took a test, as [`note_accepted`]: one that was gone works again.
pub fn note_tested(db: &mut Db, id: &ChannelId, target: &str, now: Timestamp) -> Result<(), DbError> {
    let gone = channels::table.find(id.as_str()).filter(channels::target_hash.eq(target));
    let gone = gone.filter(channels::state.eq(ChannelState::Gone.word()));
    diesel::update(gone).set(channels::state.eq(ChannelState::Active.word())).execute(db)?;
    note_accepted(db, &[(id.as_str(), target)], now)
}

/// Stores that a message did not get through to this target (its SHA-256), and returns the channel's state then; `None`:
/// it was deleted or has another target, about which that says nothing.
pub fn note_failure(
    db: &mut Db,
    id: &ChannelId,
    target: &str,
    fault: ChannelFault,
    now: Timestamp,
) -> Result<Option<ChannelState>, DbError> {
    let Some(channel) = get(db, id)?.filter(|channel| channel.target_hash == target) else { return Ok(None) };
    let count = u32::try_from(channel.failures).unwrap_or_default();
    // One that cannot be read must not hold up what else is stored with it.
    let state = channel.state().unwrap_or(ChannelState::Failing);
    let row = FailureRow { state, since: channel.failing_since, count }.with(fault, now);
    let failed = (
        channels::state.eq(row.state.word()),
        channels::reason.eq(fault.word()),
        channels::failing_since.eq(row.since),
        channels::failures.eq(i32::try_from(row.count).unwrap_or(i32::MAX)),
    );
    let aimed = channels::table.find(id.as_str()).filter(channels::target_hash.eq(target));
    let is_noted = diesel::update(aimed).set(failed).execute(db)? == 1;
    if row.state == ChannelState::Disabled && state != ChannelState::Disabled {
        diesel::update(aimed).set(channels::warn_at.eq(now)).execute(db)?;
    }
    Ok(is_noted.then_some(row.state))
}

/// Gives a browser's channel this target and state. Another channel with this target, of any account, ends: it is the same
/// browser.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn replace_target(db: &mut Db, channel: &StoredChannel) -> Result<(), DbError> {
    let others = channels::table.filter(channels::target_hash.eq(&channel.target_hash));
    diesel::delete(others.filter(channels::id.ne(&channel.id))).execute(db)?;
    let target = (
        channels::host.eq(&channel.host),
        channels::origin.eq(&channel.origin),
        channels::target_hash.eq(&channel.target_hash),
        channels::sealed.eq(&channel.sealed),
        channels::key_version.eq(channel.key_version),
        channels::state.eq(&channel.state),
        channels::reason.eq(&channel.reason),
        channels::failing_since.eq(channel.failing_since),
        channels::failures.eq(channel.failures),
        channels::warn_at.eq(None::<Timestamp>),
    );
    diesel::update(channels::table.find(&channel.id)).set(target).execute(db)?;
    Ok(())
}

/// Stores another target, sealed, unless the row no longer holds `before`; the answer is false then.
pub fn replace_sealed(
    db: &mut Db,
    id: &ChannelId,
    before: &[u8],
    sealed: &[u8],
    key_version: i32,
) -> Result<bool, DbError> {
    let row = channels::table.find(id.as_str()).filter(channels::sealed.eq(before));
    let set = (channels::sealed.eq(sealed), channels::key_version.eq(key_version));
    Ok(diesel::update(row).set(set).execute(db)? == 1)
}

/// Number of targets that are sealed with keys before this one.
pub fn count_older(db: &mut Db, key_version: i32) -> Result<i64, DbError> {
    Ok(channels::table.filter(channels::key_version.lt(key_version)).count().get_result(db)?)
}

/// At most `limit` targets that an older key sealed, by id, those after this one: id, sealed bytes and number of the key.
pub fn list_older(
    db: &mut Db,
    key_version: i32,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, Vec<u8>, i32)>, DbError> {
    let older = channels::table
        .filter(channels::key_version.lt(key_version))
        .filter(channels::id.gt(after))
        .order(channels::id)
        .limit(i64::try_from(limit).unwrap_or(i64::MAX));
    Ok(older.select((channels::id, channels::sealed, channels::key_version)).load(db)?)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
    };

    /// A channel of this user to this target.
    pub fn channel(id: &str, user: &str, kind: ChannelKind, target: &str) -> StoredChannel {
        StoredChannel {
            id: id.to_owned(),
            user_id: user.to_owned(),
            kind: kind.word().to_owned(),
            name: "Phone".to_owned(),
            host: "example.com".to_owned(),
            target_hash: target.to_owned(),
            sealed: b"sealed".to_vec(),
            key_version: 1,
            state: ChannelState::Active.word().to_owned(),
            reason: None,
            failing_since: None,
            accepted_at: None,
            created_at: now(),
            failures: 0,
            origin: "https://example.com".to_owned(),
        }
    }

    fn add(pool: &Pool, channel: &StoredChannel) -> Result<(), ChannelNotAdded> {
        pool.write_blocking(|db| insert(db, channel, 3)).unwrap()
    }

    fn ids(pool: &Pool, user: &str) -> Vec<String> {
        let channels = pool.read_blocking(|db| list(db, &user.into())).unwrap();
        channels.into_iter().map(|channel| channel.id).collect()
    }

    #[test]
    fn a_user_has_each_target_once_and_a_browser_is_of_one_account() {
        testing::on_each_database(|pool| {
            for user in ["user", "other"] {
                testing::user(pool, user);
            }
            let (hook, phone) = (ChannelKind::Webhook, ChannelKind::WebPush);
            assert_eq!(add(pool, &channel("a", "user", hook, "1")), Ok(()));
            assert_eq!(add(pool, &channel("b", "user", hook, "1")), Err(ChannelNotAdded::Known));
            assert_eq!(add(pool, &channel("c", "other", hook, "1")), Ok(()));
            assert_eq!(add(pool, &channel("d", "user", phone, "2")), Ok(()));
            assert_eq!(add(pool, &channel("e", "user", hook, "3")), Ok(()));
            assert_eq!(add(pool, &channel("f", "user", hook, "4")), Err(ChannelNotAdded::LimitReached));
            assert_eq!(add(pool, &channel("g", "other", phone, "2")), Ok(()));
            assert_eq!(
                (ids(pool, "user"), ids(pool, "other")),
                (vec!["a".into(), "e".into()], vec!["c".into(), "g".into()])
            );
        });
    }

    #[test]
    fn a_browser_with_another_subscription_keeps_its_channel() {
        testing::on_each_database(|pool| {
            for user in ["user", "other"] {
                testing::user(pool, user);
            }
            let phone = ChannelKind::WebPush;
            add(pool, &channel("a", "user", phone, "1")).unwrap();
            add(pool, &channel("b", "user", phone, "2")).unwrap();
            add(pool, &channel("c", "other", phone, "3")).unwrap();
            let fail = |db: &mut Db| note_failure(db, &"a".into(), "1", ChannelFault::Gone, now());
            assert_eq!(pool.write_blocking(fail).unwrap(), Some(ChannelState::Gone));
            for target in ["2", "3", "3"] {
                pool.write_blocking(|db| replace_target(db, &channel("a", "user", phone, target))).unwrap();
            }
            assert_eq!((ids(pool, "user"), ids(pool, "other")), (vec!["a".to_owned()], Vec::new()));
            assert_eq!(pool.write_blocking(fail).unwrap(), None, "a late answer is about the old subscription");
            pool.write_blocking(|db| note_accepted(db, &[("a", "1")], later(1))).unwrap();
            let stored = pool.read_blocking(|db| get(db, &"a".into())).unwrap().unwrap();
            assert_eq!(stored, channel("a", "user", phone, "3"));
        });
    }

    #[test]
    fn failures_of_a_day_disable_a_channel_and_a_message_that_gets_through_makes_it_active() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            add(pool, &channel("a", "user", ChannelKind::Ntfy, "1")).unwrap();
            let id = ChannelId::from("a");
            let fail = |fault, at| pool.write_blocking(|db| note_failure(db, &id, "1", fault, at)).unwrap();
            let (away, gone) = (ChannelFault::Unavailable, ChannelFault::Gone);
            let usable = || pool.read_blocking(|db| usable(&list(db, &"user".into())?)).unwrap().len();
            assert_eq!((fail(away, now()), usable()), (Some(ChannelState::Failing), 1));
            assert_eq!((fail(away, later(200_000)), usable()), (Some(ChannelState::Failing), 1), "two of two raids");
            let ours = ChannelFault::Unreadable;
            assert!((0..20).all(|_| fail(ours, later(200_000)) == Some(ChannelState::Failing)));
            assert!((0..9).all(|_| fail(away, later(200_000)) == Some(ChannelState::Failing)));
            assert_eq!((fail(away, later(200_000)), usable()), (Some(ChannelState::Disabled), 0));
            pool.write_blocking(|db| note_accepted(db, &[(id.as_str(), "1")], later(200_100))).unwrap();
            let stored = pool.read_blocking(|db| get(db, &id)).unwrap().unwrap();
            assert_eq!((&*stored.state, stored.reason, stored.failing_since), ("active", None, None));
            assert_eq!(stored.failures, 0);
            assert_eq!(fail(gone, later(200_200)), Some(ChannelState::Gone));
            pool.write_blocking(|db| note_accepted(db, &[(id.as_str(), "1")], later(200_300))).unwrap();
            assert_eq!(usable(), 0, "it was taken before that answer");
            pool.write_blocking(|db| note_tested(db, &id, "2", later(200_300))).unwrap();
            assert_eq!(usable(), 0, "another target");
            pool.write_blocking(|db| note_tested(db, &id, "1", later(200_300))).unwrap();
            let stored = pool.read_blocking(|db| get(db, &id)).unwrap().unwrap();
            assert_eq!((&*stored.state, stored.reason, stored.failures), ("active", None, 0));
            let delete = |user: &str| pool.write_blocking(|db| delete(db, &user.into(), &id)).unwrap();
            assert!(!delete("another") && delete("user") && !delete("user"));
            assert_eq!(fail(gone, now()), None);
        });
    }

    #[test]
    fn a_browser_whose_subscription_has_ended_makes_room_and_goes_after_its_time() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let phone = ChannelKind::WebPush;
            for (id, kind) in [("a", phone), ("b", phone), ("c", ChannelKind::Gotify)] {
                add(pool, &channel(id, "user", kind, id)).unwrap();
            }
            let fail = |id: &str, at| {
                pool.write_blocking(|db| note_failure(db, &id.into(), id, ChannelFault::Gone, at)).unwrap()
            };
            assert_eq!(fail("c", now()), Some(ChannelState::Gone));
            assert_eq!(add(pool, &channel("d", "user", phone, "d")), Err(ChannelNotAdded::LimitReached));
            fail("b", later(1));
            fail("a", later(2));
            assert_eq!(add(pool, &channel("d", "user", phone, "d")), Ok(()), "in the place of the first that ended");
            assert_eq!(ids(pool, "user"), ["a", "c", "d"]);
            let purge = |before| pool.write_blocking(|db| purge_gone_browsers(db, before)).unwrap();
            assert_eq!((purge(later(1)), purge(later(2)), purge(later(2))), (0, 1, 0));
            assert_eq!(ids(pool, "user"), ["c", "d"], "another kind is its user's to mend");
        });
    }
}
