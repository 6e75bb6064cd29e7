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
        channels::user_channel::{ChannelFault, ChannelKind, ChannelState, FailureRow},
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
/// people share the browser. Returns the channels that end so.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn insert(
    db: &mut Db,
    channel: &StoredChannel,
    most: usize,
) -> Result<Result<Vec<ChannelId>, ChannelNotAdded>, DbError> {
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
    let is_browser = channel.kind == ChannelKind::WebPush.word();
    let ended = if is_browser { end_others(db, channel)? } else { Vec::new() };
    diesel::insert_into(channels::table).values(channel).execute(db)?;
    Ok(Ok(ended))
}

/// Deletes the other channels with the target of this one, of any account, and returns them.
fn end_others(db: &mut Db, channel: &StoredChannel) -> Result<Vec<ChannelId>, DbError> {
    let others = channels::table.filter(channels::target_hash.eq(&channel.target_hash));
    let others: Vec<String> = others.filter(channels::id.ne(&channel.id)).select(channels::id).load(db)?;
    if !others.is_empty() {
        diesel::delete(channels::table.filter(channels::id.eq_any(&others))).execute(db)?;
    }
    Ok(others.into_iter().map(ChannelId::from).collect())
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

/// Locks these channels until the transaction ends. PostgreSQL alone has transactions beside each other.
///
/// The order in which transactions lock what several of them change: first the channels of all messages that one changes, at
/// once and by their ids, here or by [`aimed`]; then messages, and the channels themselves. In another order two of them may
/// wait for each other, until PostgreSQL undoes one. Who deletes a channel has locked it before its messages, too.
pub fn lock<'a>(db: &mut Db, ids: impl Iterator<Item = &'a str>) -> Result<(), DbError> {
    if let Db::Pg(db) = db {
        let known = channels::table.filter(channels::id.eq_any(ids)).order(channels::id);
        known.select(channels::id).for_no_key_update().load::<String>(db)?;
    }
    Ok(())
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

/// Stores that this channel is gone, if it has the target still that says so (its SHA-256), and reads nothing: not all that
/// follows can be stored.
pub fn note_gone(db: &mut Db, (id, target): (&str, &str), now: Timestamp) -> Result<(), DbError> {
    let gone = (
        channels::state.eq(ChannelState::Gone.word()),
        channels::reason.eq(ChannelFault::Gone.word()),
        channels::failing_since.eq(now),
    );
    let aimed = channels::table.find(id).filter(channels::target_hash.eq(target));
    diesel::update(aimed).set(gone).execute(db)?;
    Ok(())
}

/// Gives a browser's channel this target and state. Other channels with this target, of any account, end, and are returned: it
/// is the same browser.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn replace_target(db: &mut Db, channel: &StoredChannel) -> Result<Vec<ChannelId>, DbError> {
    let ended = end_others(db, channel)?;
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
    Ok(ended)
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
pub mod tests;
