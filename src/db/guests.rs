//! Guests of paired servers and invitations, which are the same rows: an invitation becomes a guest when a user is in
//! it. It is for an account, whose user becomes the guest at the next sign-in (at once if there is one already), or for
//! the first user of a link; of the link's token only the SHA-256 is stored. What a guest may do is not decided here.
//!
//! Call what changes something in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)). All changes of
//! one server's guests wait for each other: each locks the server's row first.

use std::collections::{HashMap, HashSet};

use chrono::Duration;
use diesel::dsl::{exists, not};

use crate::{
    db::{
        PURGE_BATCH, api_tokens,
        engine::{error::DbError, pool::Db, prelude::*},
        helper_devices, invite_refusals,
        paired_servers::{PairedServer, lock},
        schema::{blocked_inviters, guests, paired_servers, refused_invites, users},
        users::User,
    },
    domain::{
        ids::{GuestId, PlatformId, ServerId, UserId},
        limits::{GUESTS_PER_SERVER, INVITE_DAYS, INVITES_SHOWN, SHARED_SERVERS_PER_USER},
        time::Timestamp,
    },
};

/// A guest, or an open invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    pub id: GuestId,
    pub server: ServerId,
    /// Since when who is a guest; `None` while the invitation is open.
    pub accepted: Option<(User, Timestamp)>,
    /// The invited account; `None` for a link.
    pub platform_id: Option<String>,
    pub label: Option<String>,
    pub invited_at: Timestamp,
    /// When an open link ends.
    pub expires_at: Option<Timestamp>,
}

/// Addressee of an invitation.
#[derive(Clone, Debug)]
pub enum Invitee {
    Account(PlatformId),
    /// The first user with the token that has this hash.
    Link {
        token_hash: String,
    },
}

/// Reasons against an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteRefused {
    /// The account is the owner's.
    Owner,
    /// The account is a guest, or invited.
    Known,
    /// There are [`GUESTS_PER_SERVER`].
    Full,
}

/// By what an invitation is accepted.
#[derive(Clone, Debug)]
pub enum InviteKey {
    /// The token with this hash.
    Link { token_hash: String },
    /// The id of an invitation of the user's own account.
    Account(GuestId),
}

/// Reasons why an invitation opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRefused {
    /// There is none, or it was taken back.
    Unknown,
    /// Another user has accepted it.
    Used,
    Expired,
    /// The server is the user's own.
    Owner,
    /// The user is a guest of [`SHARED_SERVERS_PER_USER`] servers.
    Full,
}

/// Contents of a link that no one has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLink {
    pub expires_at: Option<Timestamp>,
    pub server: PairedServer,
    pub owner: User,
}

/// A server of which a user is a guest, or to which their account is invited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedServer {
    pub guest: GuestId,
    pub invited_at: Timestamp,
    /// `None` while the invitation is open.
    pub since: Option<Timestamp>,
    pub server: PairedServer,
    pub owner: User,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = guests)]
pub(in crate::db) struct GuestRow {
    id: String,
    server_id: String,
    user_id: Option<String>,
    platform_id: Option<String>,
    label: Option<String>,
    invited_at: Timestamp,
    expires_at: Option<Timestamp>,
    since: Option<Timestamp>,
}

impl GuestRow {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.user_id.is_none() && self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Invites an account or the first user of a link to this server. An account that exists here is treated like one that does
/// not, so that the owner learns nothing of it. `NotFound` if there is no such server.
pub fn invite(
    db: &mut Db,
    id: &GuestId,
    server: &ServerId,
    invitee: &Invitee,
    label: Option<&str>,
    now: Timestamp,
) -> Result<Result<Guest, InviteRefused>, DbError> {
    let owner = lock(db, server)?.ok_or(DbError::NotFound)?;
    let known = list(db, server, now)?;
    if let Invitee::Account(account) = invitee {
        let user = users::table.filter(users::platform_id.eq(account.as_str())).select(users::id);
        if user.first::<String>(db).optional()?.is_some_and(|user| user == owner.as_str()) {
            return Ok(Err(InviteRefused::Owner));
        }
        let is_known = |guest: &Guest| {
            guest.platform_id.as_deref() == Some(account.as_str())
                || guest.accepted.as_ref().is_some_and(|(user, _)| user.platform_id == *account)
        };
        if known.iter().any(is_known) {
            return Ok(Err(InviteRefused::Known));
        }
    }
    if known.len() >= GUESTS_PER_SERVER {
        return Ok(Err(InviteRefused::Full));
    }
    let (account, token_hash) = match invitee {
        Invitee::Account(account) => (Some(account.as_str()), None),
        Invitee::Link { token_hash } => (None, Some(token_hash.as_str())),
    };
    let expires_at = token_hash.map(|_| now + Duration::days(INVITE_DAYS));
    let row = (
        guests::id.eq(id.as_str()),
        guests::server_id.eq(server.as_str()),
        guests::platform_id.eq(account),
        guests::token_hash.eq(token_hash),
        guests::label.eq(label),
        guests::invited_at.eq(now),
        guests::expires_at.eq(expires_at),
    );
    diesel::insert_into(guests::table).values(row).execute(db)?;
    Ok(Ok(Guest {
        id: id.clone(),
        server: server.clone(),
        accepted: None,
        platform_id: account.map(str::to_owned),
        label: label.map(str::to_owned),
        invited_at: now,
        expires_at,
    }))
}

/// The guests and open invitations of this server, oldest first.
pub fn list(db: &mut Db, server: &ServerId, now: Timestamp) -> Result<Vec<Guest>, DbError> {
    let rows: Vec<GuestRow> = guests::table
        .filter(guests::server_id.eq(server.as_str()))
        .order((guests::invited_at, guests::id))
        .select(GuestRow::as_select())
        .load(db)?;
    let mut users = users_by_id(db, rows.iter().filter_map(|row| row.user_id.clone()).collect())?;
    let open = rows.into_iter().filter(|row| !row.has_expired(now));
    Ok(open
        .map(|row| Guest {
            id: row.id.into(),
            server: row.server_id.into(),
            accepted: row.user_id.and_then(|id| users.remove(&id)).zip(row.since),
            platform_id: row.platform_id,
            label: row.label,
            invited_at: row.invited_at,
            expires_at: row.expires_at,
        })
        .collect())
}

/// The contents of a link, before it is accepted.
pub fn preview(db: &mut Db, token_hash: &str, now: Timestamp) -> Result<Result<OpenLink, LinkRefused>, DbError> {
    let Some(row) = of_token(db, token_hash)? else { return Ok(Err(LinkRefused::Unknown)) };
    if row.user_id.is_some() {
        return Ok(Err(LinkRefused::Used));
    }
    if row.has_expired(now) {
        return Ok(Err(LinkRefused::Expired));
    }
    let (server, owner) = paired_servers::table
        .find(&row.server_id)
        .inner_join(users::table)
        .select((PairedServer::as_select(), User::as_select()))
        .first(db)?;
    Ok(Ok(OpenLink { expires_at: row.expires_at, server, owner }))
}

/// Makes the user a guest of the server that the invitation is for. One who is a guest of it already stays as they are: a
/// link is left to others, an invitation by account ends. A guest's own invitation may be accepted again.
pub fn accept(
    db: &mut Db,
    invite: &InviteKey,
    user: &User,
    now: Timestamp,
) -> Result<Result<ServerId, LinkRefused>, DbError> {
    let Some(row) = of_key(db, invite, user)? else { return Ok(Err(LinkRefused::Unknown)) };
    let server = ServerId::from(row.server_id);
    let owner = lock(db, &server)?;
    // Again: another one may have had the lock.
    let (Some(owner), Some(row)) = (owner, of_key(db, invite, user)?) else { return Ok(Err(LinkRefused::Unknown)) };
    match &row.user_id {
        Some(guest) if guest == user.id.as_str() => return Ok(Ok(server)),
        Some(_) => return Ok(Err(LinkRefused::Used)),
        None if row.has_expired(now) => return Ok(Err(LinkRefused::Expired)),
        None => {}
    }
    if owner == user.id {
        return Ok(Err(LinkRefused::Owner));
    }
    if matches!(invite, InviteKey::Account(_)) && invite_refusals::is_blocked(db, &user.id, &owner)? {
        return Ok(Err(LinkRefused::Unknown));
    }
    let is_new = !is_guest(db, &server, &user.id)?;
    if is_new && count_shared(db, &user.id)? >= SHARED_SERVERS_PER_USER {
        return Ok(Err(LinkRefused::Full));
    }
    if is_new {
        take(db, &row.id, &user.id, now)?;
    }
    // Other invitations of this account to the server end.
    diesel::delete(open_for(&server, user)).execute(db)?;
    invite_refusals::withdraw(db, &user.id, &server)?;
    Ok(Ok(server))
}

/// The open invitations of this account that the user has not refused, except from inviters that the user blocks; the
/// newest [`INVITES_SHOWN`], oldest first.
pub fn invitations(db: &mut Db, user: &User) -> Result<Vec<SharedServer>, DbError> {
    let refused = refused_invites::table
        .filter(refused_invites::user_id.eq(user.id.as_str()))
        .filter(refused_invites::server_id.eq(guests::server_id));
    let blocked = blocked_inviters::table
        .filter(blocked_inviters::user_id.eq(user.id.as_str()))
        .filter(blocked_inviters::blocked_user_id.eq(paired_servers::owner_id));
    let mut rows: Vec<(GuestRow, PairedServer)> = guests::table
        .filter(guests::platform_id.eq(user.platform_id.as_str()))
        .filter(guests::user_id.is_null())
        .inner_join(paired_servers::table)
        .filter(not(exists(refused)))
        .filter(not(exists(blocked)))
        .order((guests::invited_at.desc(), guests::id.desc()))
        .limit(INVITES_SHOWN)
        .select((GuestRow::as_select(), PairedServer::as_select()))
        .load(db)?;
    rows.reverse();
    with_owners(db, rows)
}

/// Remembers that the user does not want the open invitation to this server, which its owner still sees as open. False when
/// the user sees none.
pub fn refuse(db: &mut Db, user: &User, server: &ServerId, now: Timestamp) -> Result<bool, DbError> {
    let is_invited = invitations(db, user)?.iter().any(|invite| invite.server.id == *server);
    if is_invited {
        invite_refusals::refuse(db, &user.id, server, now)?;
    }
    Ok(is_invited)
}

/// Removes a guest, with their overlays of this server, or takes an invitation back: the user who was the guest, and `None`
/// within for an invitation. `None` when there is neither.
pub fn remove(db: &mut Db, server: &ServerId, id: &GuestId) -> Result<Option<Option<UserId>>, DbError> {
    let guest = guests::table.find(id.as_str()).filter(guests::server_id.eq(server.as_str()));
    if lock(db, server)?.is_none() {
        return Ok(None);
    }
    let removed: Option<Option<String>> = diesel::delete(guest).returning(guests::user_id).get_result(db).optional()?;
    if let Some(Some(user)) = &removed {
        delete_tokens(db, &user.as_str().into(), server)?;
    }
    Ok(removed.map(|user| user.map(UserId::from)))
}

/// Tokens that are for one server end with the access to it.
fn delete_tokens(db: &mut Db, user: &UserId, server: &ServerId) -> Result<(), DbError> {
    helper_devices::delete_overlays(db, user, server)?;
    api_tokens::delete_of_server(db, user, server)
}

/// The user is no longer a guest of this server; false when they were none.
pub fn leave(db: &mut Db, user: &UserId, server: &ServerId) -> Result<bool, DbError> {
    if lock(db, server)?.is_none() {
        return Ok(false);
    }
    let own = guests::table.filter(guests::server_id.eq(server.as_str())).filter(guests::user_id.eq(user.as_str()));
    let left = diesel::delete(own).execute(db)? > 0;
    if left {
        delete_tokens(db, user, server)?;
    }
    Ok(left)
}

/// The servers of which the user is a guest, with their owners, those of which they became one first.
pub fn shared_with(db: &mut Db, user: &UserId) -> Result<Vec<SharedServer>, DbError> {
    let rows: Vec<(GuestRow, PairedServer)> = guests::table
        .filter(guests::user_id.eq(user.as_str()))
        .inner_join(paired_servers::table)
        .order((guests::since, guests::id))
        .select((GuestRow::as_select(), PairedServer::as_select()))
        .load(db)?;
    with_owners(db, rows)
}

fn with_owners(db: &mut Db, rows: Vec<(GuestRow, PairedServer)>) -> Result<Vec<SharedServer>, DbError> {
    let owners = users_by_id(db, rows.iter().map(|(_, server)| server.owner_id.to_string()).collect())?;
    let shared = rows.into_iter().filter_map(|(row, server)| {
        let owner = owners.get(server.owner_id.as_str())?.clone();
        Some(SharedServer { guest: row.id.into(), invited_at: row.invited_at, since: row.since, server, owner })
    });
    Ok(shared.collect())
}

/// The users among these who are guests and have no paired server of their own: the owner has done their setup.
pub fn guest_ready(db: &mut Db, among: &[UserId]) -> Result<HashSet<UserId>, DbError> {
    let among: Vec<&str> = among.iter().map(UserId::as_str).collect();
    let own = paired_servers::table.filter(paired_servers::owner_id.eq(users::id)).select(paired_servers::id);
    let shared = guests::table.filter(guests::user_id.eq(users::id.nullable())).select(guests::id);
    let ids: Vec<String> = users::table
        .filter(users::id.eq_any(among))
        .filter(exists(shared))
        .filter(not(exists(own)))
        .select(users::id)
        .load(db)?;
    Ok(ids.into_iter().map(UserId::from).collect())
}

/// Deletes a batch of the links that ended before this time and were not accepted; returns how many.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    let over = guests::table.filter(guests::expires_at.le(before)).filter(guests::user_id.is_null());
    let ids: Vec<String> = over.limit(PURGE_BATCH as i64).select(guests::id).load(db)?;
    if ids.is_empty() {
        return Ok(0);
    }
    let over = guests::table.filter(guests::id.eq_any(ids)).filter(guests::user_id.is_null());
    Ok(diesel::delete(over).execute(db)?)
}

/// The invitation of this key, as far as the user may name it.
fn of_key(db: &mut Db, invite: &InviteKey, user: &User) -> Result<Option<GuestRow>, DbError> {
    match invite {
        InviteKey::Link { token_hash } => of_token(db, token_hash),
        InviteKey::Account(id) => {
            let row = guests::table.find(id.as_str()).filter(guests::platform_id.eq(user.platform_id.as_str()));
            Ok(row.select(GuestRow::as_select()).first(db).optional()?)
        }
    }
}

/// The open invitation of this account to the server.
#[diesel::dsl::auto_type(no_type_alias)]
fn open_for<'a>(server: &'a ServerId, user: &'a User) -> _ {
    let (server, account): (&'a str, &'a str) = (server.as_str(), user.platform_id.as_str());
    guests::table
        .filter(guests::server_id.eq(server))
        .filter(guests::platform_id.eq(account))
        .filter(guests::user_id.is_null())
}

fn of_token(db: &mut Db, token_hash: &str) -> Result<Option<GuestRow>, DbError> {
    let row = guests::table.filter(guests::token_hash.eq(token_hash)).select(GuestRow::as_select());
    Ok(row.first(db).optional()?)
}

/// Puts the user into an open invitation.
fn take(db: &mut Db, id: &str, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    let nothing: Option<Timestamp> = None;
    let set = (guests::user_id.eq(user.as_str()), guests::since.eq(now), guests::expires_at.eq(nothing));
    diesel::update(guests::table.find(id)).set(set).execute(db)?;
    Ok(())
}

fn is_guest(db: &mut Db, server: &ServerId, user: &UserId) -> Result<bool, DbError> {
    let guest = guests::table.filter(guests::server_id.eq(server.as_str())).filter(guests::user_id.eq(user.as_str()));
    Ok(guest.select(guests::id).first::<String>(db).optional()?.is_some())
}

/// Number of servers of which the user is a guest.
fn count_shared(db: &mut Db, user: &UserId) -> Result<usize, DbError> {
    let count: i64 = guests::table.filter(guests::user_id.eq(user.as_str())).count().get_result(db)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn users_by_id(db: &mut Db, ids: Vec<String>) -> Result<HashMap<String, User>, DbError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<User> = users::table.filter(users::id.eq_any(ids)).select(User::as_select()).load(db)?;
    Ok(found.into_iter().map(|user| (user.id.to_string(), user)).collect())
}

#[cfg(test)]
mod tests;
