//! Refunds that are under way: at most one of a charge. One stays until it is over, and longer when it ended without
//! the admin who asked for it being shown that: then the same again is answered with what became of it.
//!
//! Rows are made and settled while the end of the audit log is locked ([`audit::lock`](crate::db::audit::lock)).

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::refund_attempts,
    },
    domain::time::Timestamp,
};

/// A refund that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = refund_attempts)]
pub struct RefundAttempt {
    /// The entry of the audit log that it was begun.
    pub begun: i64,
    pub charge_id: String,
    pub issued_at: Timestamp,
    /// Until then a process is at it.
    pub claimed_until: Timestamp,
    /// The entry of the audit log that it is over.
    pub outcome: Option<i64>,
    /// When its end was named to an admin who asked for another refund of the charge.
    pub named_at: Option<Timestamp>,
}

/// The attempts at this charge or payment, the open ones first.
pub fn of_charge(db: &mut Db, charge_or_payment: &str) -> Result<Vec<RefundAttempt>, DbError> {
    let is_of =
        refund_attempts::charge_id.eq(charge_or_payment).or(refund_attempts::payment_intent_id.eq(charge_or_payment));
    let rows = refund_attempts::table.filter(is_of).order(refund_attempts::begun);
    let mut attempts: Vec<RefundAttempt> = rows.select(RefundAttempt::as_select()).load(db)?;
    attempts.sort_by_key(|attempt| attempt.outcome.is_some());
    Ok(attempts)
}

/// The attempt that began with this entry.
pub fn get(db: &mut Db, begun: i64) -> Result<Option<RefundAttempt>, DbError> {
    Ok(refund_attempts::table.find(begun).select(RefundAttempt::as_select()).first(db).optional()?)
}

/// Begins one, which this process is at until then.
pub fn insert(db: &mut Db, attempt: &RefundAttempt, payment_intent: Option<&str>) -> Result<(), DbError> {
    let RefundAttempt { begun, charge_id, issued_at, claimed_until, .. } = attempt;
    let row = (
        refund_attempts::begun.eq(begun),
        refund_attempts::charge_id.eq(charge_id),
        refund_attempts::payment_intent_id.eq(payment_intent),
        refund_attempts::issued_at.eq(issued_at),
        refund_attempts::claimed_until.eq(claimed_until),
    );
    diesel::insert_into(refund_attempts::table).values(row).execute(db)?;
    Ok(())
}

/// Moves the end of a claim; false when another process has done so, or it is over.
pub fn claim(db: &mut Db, begun: i64, before: Timestamp, until: Timestamp) -> Result<bool, DbError> {
    let open = refund_attempts::table
        .find(begun)
        .filter(refund_attempts::outcome.is_null().and(refund_attempts::claimed_until.eq(before)));
    let moved = diesel::update(open).set(refund_attempts::claimed_until.eq(until)).execute(db)?;
    Ok(moved == 1)
}

/// Notes that it is over.
pub fn settle(db: &mut Db, begun: i64, outcome: i64) -> Result<(), DbError> {
    diesel::update(refund_attempts::table.find(begun)).set(refund_attempts::outcome.eq(outcome)).execute(db)?;
    Ok(())
}

/// Its admin is shown what became of it, if it is over.
pub fn delete_shown(db: &mut Db, begun: i64) -> Result<(), DbError> {
    let over = refund_attempts::table.find(begun).filter(refund_attempts::outcome.is_not_null());
    diesel::delete(over).execute(db)?;
    Ok(())
}

/// Notes that it was named to an admin who asked for another refund of the charge.
pub fn name(db: &mut Db, begun: i64, now: Timestamp) -> Result<(), DbError> {
    let named = refund_attempts::named_at.eq(now);
    diesel::update(refund_attempts::table.find(begun)).set(named).execute(db)?;
    Ok(())
}

/// The first `limit` open attempts that no process works on.
pub fn abandoned(db: &mut Db, limit: i64, now: Timestamp) -> Result<Vec<RefundAttempt>, DbError> {
    let open = refund_attempts::claimed_until.le(now).and(refund_attempts::outcome.is_null());
    let rows = refund_attempts::table.filter(open).order(refund_attempts::claimed_until).limit(limit);
    Ok(rows.select(RefundAttempt::as_select()).load(db)?)
}

/// Deletes those that are over and were issued until this time; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    let over = refund_attempts::issued_at.le(until).and(refund_attempts::outcome.is_not_null());
    Ok(diesel::delete(refund_attempts::table.filter(over)).execute(db)?)
}
