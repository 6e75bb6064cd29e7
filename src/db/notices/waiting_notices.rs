//! Figures of [notices](crate::db::notices::notice_queue) that wait, for operators.

use diesel::dsl::{count_star, min};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{deliveries, notices},
    },
    domain::time::Timestamp,
};

/// Messages that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingNotices {
    /// Number of messages that are queued or tried again.
    pub messages: i64,
    /// When the oldest of them was due first.
    pub oldest: Option<Timestamp>,
    /// When the step or the first attempt was due that has waited longest; in the future if none is overdue.
    pub due_since: Option<Timestamp>,
}

/// Figures of all that waits to be sent.
pub fn read(db: &mut Db) -> Result<WaitingNotices, DbError> {
    let waiting = deliveries::table.filter(deliveries::due_at.is_not_null());
    let (messages, oldest) = waiting.select((count_star(), min(deliveries::queued_at))).first(db)?;
    let untried: Option<Timestamp> =
        waiting.filter(deliveries::attempts.eq(0)).select(min(deliveries::due_at)).first(db)?;
    let step: Option<Timestamp> = notices::table.select(min(notices::due_at)).first(db)?;
    Ok(WaitingNotices { messages, oldest, due_since: untried.into_iter().chain(step).min() })
}
