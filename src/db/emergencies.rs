//! Messages at Pushover that repeat until someone opens them, and the receipts by which they are ended before.

use std::collections::BTreeSet;

use diesel::prelude::*;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        notice_subjects,
        notices::NoticeKey,
        schema::deliveries,
    },
    domain::time::Timestamp,
};

/// A message that repeats.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = deliveries)]
pub struct Emergency {
    /// Id of the message.
    pub id: String,
    pub incident_id: String,
    pub user_id: String,
    pub channel_id: String,
    pub receipt: Option<String>,
    /// When it ends by itself.
    pub rings_until: Option<Timestamp>,
}

/// The place of an emergency in their order: when it ends by itself, and its id.
pub type EmergencyPlace = (Timestamp, String);

/// A page of emergencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emergencies {
    /// Emergencies whose raid is acknowledged or over, or whose user may no longer watch the server.
    pub over: Vec<Emergency>,
    /// The end of the page; `None`: there is no further one.
    pub next: Option<EmergencyPlace>,
}

/// The emergencies after this place that still repeat and are over, of at most `limit`.
pub fn over(db: &mut Db, now: Timestamp, after: Option<EmergencyPlace>, limit: i64) -> Result<Emergencies, DbError> {
    let (from, id) = after.unwrap_or((now, String::new()));
    let is_later = deliveries::rings_until.gt(from);
    let is_behind = deliveries::rings_until.eq(from).and(deliveries::id.gt(id));
    let ringing = deliveries::table
        .filter(deliveries::rings_until.ge(from))
        .filter(is_later.or(is_behind))
        .order((deliveries::rings_until, deliveries::id))
        .limit(limit);
    let mut over: Vec<Emergency> = ringing.select(Emergency::as_select()).load(db)?;
    let is_full = i64::try_from(over.len()).is_ok_and(|count| count == limit);
    let last = over.last().filter(|_| is_full);
    let next = last.and_then(|last| Some((last.rings_until?, last.id.clone())));
    if !over.is_empty() {
        let keys: BTreeSet<NoticeKey> = over.iter().map(Emergency::key).collect();
        let rows = notice_subjects::rows(db, &keys)?;
        let concerns = notice_subjects::concerns(db, &rows, now)?;
        over.retain(|emergency| !concerns.contains_key(&emergency.key()));
    }
    Ok(Emergencies { over, next })
}

/// Stores that nothing more is done about this message.
pub fn note_ended(db: &mut Db, id: &str) -> Result<(), DbError> {
    let ended = (deliveries::receipt.eq(None::<String>), deliveries::rings_until.eq(None::<Timestamp>));
    diesel::update(deliveries::table.find(id)).set(ended).execute(db)?;
    Ok(())
}

impl Emergency {
    fn key(&self) -> NoticeKey {
        NoticeKey { incident: self.incident_id.clone(), user: self.user_id.as_str().into() }
    }
}
