//! The audit log: what admins did. It is append-only, which the database itself enforces, and a chain: if an attacker
//! gets around that and changes or removes an entry, it shows ([`verify`]).
//!
//! `hash = SHA-256(previous hash, "\n", content)`, hashes in hex, the one before the first empty; `content` is the JSON array
//! `[id, microseconds since 1970, actor, action, target, payload, result]`, in which the payload is the stored text.
//! Ids are 1, 2, 3…; `audit_head` holds the last one, so that missing last entries show too. With write access to the
//! whole database another chain can be written: keep the last hash that `companion audit verify` prints elsewhere.
//!
//! Handlers write here through `api::extract::admin` only; what became of a refund is written by `billing::refunds`.

use std::{collections::BTreeSet, fmt};

use diesel::dsl::max;
use serde_json::{Value, json};

use crate::{
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{audit, audit_head},
    },
    domain::{
        audit::{AdminAction, AuditResult, redacted},
        ids::PlatformId,
        time::Timestamp,
    },
};

/// Bytes that an entry holds of the state before, and of that after. Of more, only size and hash are kept.
const SNAPSHOT_BYTES: usize = 16 * 1024;
/// The only row of `audit_head`.
const HEAD: i32 = 1;
/// Entries that are read at once to be verified.
const VERIFIED_AT_ONCE: i64 = 1_000;

/// An action of an admin, to be appended.
#[derive(Debug)]
pub struct NewAuditEntry<'a> {
    pub actor: &'a PlatformId,
    pub action: AdminAction,
    /// Target of the action: an id or a name.
    pub target: &'a str,
    pub payload: &'a AuditPayload,
    pub result: AuditResult,
}

/// Outcome of an action that an entry has announced.
#[derive(Debug)]
pub struct AuditOutcome {
    /// The state after it.
    pub after: Value,
    pub result: AuditResult,
}

/// Details of a change in an entry: JSON, without secrets, bounded.
#[derive(Debug)]
pub struct AuditPayload(String);

/// Something that an admin did, chained to the entry before by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = audit)]
pub struct AuditEntry {
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub target: String,
    /// A JSON object.
    pub payload: String,
    pub result: String,
    /// 64 hex digits.
    pub hash: String,
}

/// Which entries.
#[derive(Clone, Debug, Default)]
pub struct AuditPage {
    pub action: Option<String>,
    pub actor: Option<String>,
    pub target: Option<String>,
    /// Only entries of this time or later.
    pub since: Option<Timestamp>,
    /// Older than the entry of this time and id.
    pub before: Option<(Timestamp, i64)>,
    pub limit: usize,
}

/// The last entry: its id and hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditHead {
    pub id: i64,
    pub hash: String,
}

/// The last entry, which this transaction alone may follow.
#[derive(Debug)]
pub struct LockedHead(AuditHead);

/// Where the chain breaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainBreak {
    Missing(i64),
    /// This one is not as it was written, or not what followed the one before it.
    Changed(i64),
    /// The one that was written last is another one.
    OtherHead(i64),
}

impl fmt::Display for ChainBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(id) => write!(f, "entry {id} is missing"),
            Self::Changed(id) => write!(f, "entry {id} is not as it was written"),
            Self::OtherHead(id) => write!(f, "entry {id} is not the last one that was written"),
        }
    }
}

impl AuditPayload {
    /// `{ before, after }`.
    pub fn of_change(before: Value, after: Value) -> Self {
        Self(json!({ "before": bounded(before), "after": bounded(after) }).to_string())
    }

    /// `{ asked }`: what others are about to be asked.
    pub fn of_intent(asked: Value) -> Self {
        Self(json!({ "asked": bounded(asked) }).to_string())
    }

    /// `{ begun, after }`: what came of what the entry `begun` had announced.
    pub fn of_outcome(begun: i64, after: Value) -> Self {
        Self(json!({ "begun": begun.to_string(), "after": bounded(after) }).to_string())
    }
}

fn bounded(value: Value) -> Value {
    let value = redacted(value);
    let text = value.to_string();
    match text.len() {
        ..=SNAPSHOT_BYTES => value,
        bytes => json!({ "omitted": true, "bytes": bytes, "sha256": sha256_hex(text.as_bytes()) }),
    }
}

impl AuditEntry {
    /// The entry whose outcome this one is.
    pub fn begun(&self) -> Option<i64> {
        let payload: Value = serde_json::from_str(&self.payload).ok()?;
        payload["begun"].as_str()?.parse().ok()
    }

    /// The hash that this entry must have after the `previous` one.
    fn hash_after(&self, previous: &str) -> String {
        let Self { id, at, actor, action, target, payload, result, hash: _ } = self;
        let content = json!([id, at.timestamp_micros(), actor, action, target, payload, result]);
        sha256_hex(format!("{previous}\n{content}").as_bytes())
    }
}

impl LockedHead {
    /// The last entry.
    pub fn id(&self) -> i64 {
        self.0.id
    }
}

/// Takes the end of the chain, which no other writer then does before this transaction has ended: what it reads from here
/// on stays true.
pub fn lock(db: &mut Db) -> Result<LockedHead, DbError> {
    let head = audit_head::table.find(HEAD).select((audit_head::id, audit_head::hash));
    let (id, hash) = match db {
        Db::Pg(db) => head.for_update().first(db)?,
        // There is one writer.
        Db::Sqlite(db) => head.first(db)?,
    };
    Ok(LockedHead(AuditHead { id, hash }))
}

/// Appends an entry; its time is not before that of the last one. Gives its id.
pub fn append(
    db: &mut Db,
    LockedHead(head): LockedHead,
    entry: &NewAuditEntry<'_>,
    now: Timestamp,
) -> Result<i64, DbError> {
    let NewAuditEntry { actor, action, target, payload, result } = entry;
    // A writer that began before another one may have its turn after it, and a clock may be set back.
    let last = audit::table.filter(audit::id.eq(head.id)).select(AuditEntry::as_select()).first(db).optional()?;
    let mut entry = AuditEntry {
        id: head.id + 1,
        at: last.map_or(now, |last| last.at.max(now)),
        actor: actor.to_string(),
        action: action.word().to_owned(),
        target: (*target).to_owned(),
        payload: payload.0.clone(),
        result: result.word().to_owned(),
        hash: String::new(),
    };
    entry.hash = entry.hash_after(&head.hash);
    diesel::insert_into(audit::table)
        .values((
            audit::id.eq(entry.id),
            audit::at.eq(entry.at),
            audit::actor.eq(&entry.actor),
            audit::action.eq(&entry.action),
            audit::target.eq(&entry.target),
            audit::payload.eq(&entry.payload),
            audit::result.eq(&entry.result),
            audit::hash.eq(&entry.hash),
        ))
        .execute(db)?;
    diesel::update(audit_head::table.find(HEAD))
        .set((audit_head::id.eq(entry.id), audit_head::hash.eq(&entry.hash)))
        .execute(db)?;
    Ok(entry.id)
}

/// Appends what came of what the entry `begun` had announced, in the name of the same admin. Gives its id.
pub fn append_outcome(
    db: &mut Db,
    head: LockedHead,
    action: AdminAction,
    begun: &AuditEntry,
    AuditOutcome { after, result }: AuditOutcome,
    now: Timestamp,
) -> Result<i64, DbError> {
    let (actor, payload) = (PlatformId::from(begun.actor.as_str()), AuditPayload::of_outcome(begun.id, after));
    let outcome = NewAuditEntry { actor: &actor, action, target: &begun.target, payload: &payload, result };
    append(db, head, &outcome, now)
}

/// Number of matching entries on all pages, and the entries of this page, newest first.
pub fn list(db: &mut Db, page: &AuditPage) -> Result<(i64, Vec<AuditEntry>), DbError> {
    let AuditPage { action, actor, target, since, before, limit } = page;
    let matching = || {
        let mut query = audit::table.into_boxed();
        if let Some(action) = action {
            query = query.filter(audit::action.eq(action));
        }
        if let Some(actor) = actor {
            query = query.filter(audit::actor.eq(actor));
        }
        if let Some(target) = target {
            query = query.filter(audit::target.eq(target));
        }
        if let Some(since) = since {
            query = query.filter(audit::at.ge(since));
        }
        query
    };
    let total = match page {
        // Ids have no gaps.
        AuditPage { action: None, actor: None, target: None, since: None, .. } => head(db)?.id,
        _ => matching().count().get_result(db)?,
    };
    let mut query = matching();
    if let Some((at, id)) = before {
        // In a form that an index can serve.
        query = query.filter(audit::at.le(at).and(audit::at.lt(at).or(audit::id.lt(id))));
    }
    let query = query.order((audit::at.desc(), audit::id.desc())).limit(*limit as i64);
    Ok((total, query.select(AuditEntry::as_select()).load(db)?))
}

/// The entry of this id.
pub fn get(db: &mut Db, id: i64) -> Result<Option<AuditEntry>, DbError> {
    Ok(audit::table.find(id).select(AuditEntry::as_select()).first(db).optional()?)
}

/// The entries about this target with ids after this one, the oldest first, at most 1 000.
pub fn about_since(db: &mut Db, action: AdminAction, target: &str, after: i64) -> Result<Vec<AuditEntry>, DbError> {
    let entries = audit::table
        .filter(audit::target.eq(target).and(audit::action.eq(action.word())).and(audit::id.gt(after)))
        .order(audit::id)
        .limit(VERIFIED_AT_ONCE);
    Ok(entries.select(AuditEntry::as_select()).load(db)?)
}

/// The entries of this time that something was begun, of which the log does not say what came of it; the oldest first, of
/// the first 1 000.
pub fn without_outcome(
    db: &mut Db,
    action: AdminAction,
    (since, until): (Timestamp, Timestamp),
) -> Result<Vec<AuditEntry>, DbError> {
    let recent = audit::action.eq(action.word()).and(audit::at.ge(since));
    let entries = audit::table.filter(recent).order((audit::at, audit::id)).limit(VERIFIED_AT_ONCE);
    let entries: Vec<AuditEntry> = entries.select(AuditEntry::as_select()).load(db)?;
    let is_known = |entry: &&AuditEntry| entry.result != AuditResult::Unknown.word();
    let known: BTreeSet<i64> = entries.iter().filter(is_known).filter_map(AuditEntry::begun).collect();
    let is_open = |entry: &AuditEntry| {
        entry.result == AuditResult::Begun.word() && entry.at <= until && !known.contains(&entry.id)
    };
    Ok(entries.into_iter().filter(is_open).collect())
}

/// The id of the last entry; 0: there is none.
pub fn last(db: &mut Db) -> Result<i64, DbError> {
    Ok(head(db)?.id)
}

fn head(db: &mut Db) -> Result<AuditHead, DbError> {
    let (id, hash) = audit_head::table.find(HEAD).select((audit_head::id, audit_head::hash)).first(db)?;
    Ok(AuditHead { id, hash })
}

/// Computes the whole chain again: its last entry, or where it breaks first. Reports now and then how many entries are
/// checked, and of how many. Blocks.
pub fn verify(db: &mut Db, mut progress: impl FnMut(i64, i64)) -> Result<Result<AuditHead, ChainBreak>, DbError> {
    // In this order: entries may be appended in between.
    let newest: Option<i64> = audit::table.select(max(audit::id)).first(db)?;
    let head = head(db)?;
    let mut last = AuditHead { id: 0, hash: String::new() };
    while last.id < head.id {
        let entries = after(db, last.id)?;
        let Some(first) = entries.first() else { return Ok(Err(ChainBreak::Missing(last.id + 1))) };
        if first.id > head.id {
            return Ok(Err(ChainBreak::Missing(last.id + 1)));
        }
        for entry in entries.into_iter().take_while(|entry| entry.id <= head.id) {
            if entry.id != last.id + 1 {
                return Ok(Err(ChainBreak::Missing(last.id + 1)));
            }
            if entry.hash_after(&last.hash) != entry.hash {
                return Ok(Err(ChainBreak::Changed(entry.id)));
            }
            last = AuditHead { id: entry.id, hash: entry.hash };
        }
        progress(last.id, head.id);
    }
    if last.hash != head.hash || newest.is_some_and(|newest| newest > head.id) {
        return Ok(Err(ChainBreak::OtherHead(last.id)));
    }
    Ok(Ok(head))
}

fn after(db: &mut Db, id: i64) -> Result<Vec<AuditEntry>, DbError> {
    let entries = audit::table.filter(audit::id.gt(id)).order(audit::id).limit(VERIFIED_AT_ONCE);
    Ok(entries.select(AuditEntry::as_select()).load(db)?)
}

#[cfg(test)]
mod tests;
