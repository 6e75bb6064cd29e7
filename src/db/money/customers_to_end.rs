//! Customers of the payment provider whose users erased themselves, until nothing runs for them there. Kept because the
//! provider may not answer when they go; only its own id is.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::customers_to_end,
    },
    domain::{money::payment::retry_at, time::Timestamp},
};

/// A customer whose turn was taken: no other process takes it before `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomerTurn {
    pub customer: String,
    next: Timestamp,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = customers_to_end)]
pub(in crate::db) struct CustomerRow {
    customer_id: String,
    attempts: i32,
    next_attempt_at: Timestamp,
}

/// Adds a customer, or starts again with one that is there, and takes the first turn.
pub fn put(db: &mut Db, customer: &str, now: Timestamp) -> Result<CustomerTurn, DbError> {
    put_at(db, customer, retry_at(0, now))
}

/// Adds a customer as [`put`] does, but leaves the first turn to any process.
pub fn put_due(db: &mut Db, customer: &str, now: Timestamp) -> Result<(), DbError> {
    put_at(db, customer, now).map(drop)
}

fn put_at(db: &mut Db, customer: &str, next: Timestamp) -> Result<CustomerTurn, DbError> {
    let turn = (customers_to_end::attempts.eq(0), customers_to_end::next_attempt_at.eq(next));
    let put = diesel::insert_into(customers_to_end::table)
        .values((customers_to_end::customer_id.eq(customer), turn))
        .on_conflict(customers_to_end::customer_id)
        .do_update()
        .set(turn);
    on_backend!(db, |db| put.execute(db))?;
    Ok(CustomerTurn { customer: customer.to_owned(), next })
}

/// Takes the turn that is due first, for one of all processes. If nothing becomes of it, the next one comes later.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn claim(db: &mut Db, now: Timestamp) -> Result<Option<CustomerTurn>, DbError> {
    let due = || customers_to_end::next_attempt_at.le(now);
    loop {
        let first = customers_to_end::table
            .filter(due())
            .order(customers_to_end::next_attempt_at)
            .select(CustomerRow::as_select())
            .first(db)
            .optional()?;
        let Some(CustomerRow { customer_id: customer, attempts, .. }) = first else { return Ok(None) };
        let attempts = attempts.saturating_add(1);
        let next = retry_at(attempts, now);
        let taken = (customers_to_end::attempts.eq(attempts), customers_to_end::next_attempt_at.eq(next));
        let row = customers_to_end::table.find(&customer).filter(due());
        if diesel::update(row).set(taken).execute(db)? == 1 {
            return Ok(Some(CustomerTurn { customer, next }));
        }
        // Another process has taken it.
    }
}

/// Nothing runs for this customer any longer. One who was added again meanwhile stays.
pub fn remove(db: &mut Db, turn: &CustomerTurn) -> Result<(), DbError> {
    let row = customers_to_end::table.find(&turn.customer);
    let known: Option<CustomerRow> = row.select(CustomerRow::as_select()).first(db).optional()?;
    if known.is_some_and(|known| known.next_attempt_at == turn.next) {
        let same = row.filter(customers_to_end::next_attempt_at.eq(turn.next));
        diesel::delete(same).execute(db)?;
    }
    Ok(())
}

/// The number of rows.
pub fn count(db: &mut Db) -> Result<i64, DbError> {
    Ok(customers_to_end::table.count().get_result(db)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn a_customer_stays_until_nothing_runs_for_them() {
        testing::on_each_database(|pool| {
            let claim = |at| pool.write_blocking(|db| claim(db, at)).unwrap();
            let remove = |turn: &CustomerTurn| pool.write_blocking(|db| remove(db, turn)).unwrap();
            let count = || pool.read_blocking(count).unwrap();
            let first = pool.write_blocking(|db| put(db, "cus_1", now())).unwrap();
            assert_eq!((claim(later(29)), count()), (None, 1), "the turn is taken");
            let second = claim(later(30)).unwrap();
            assert_eq!((second.customer.as_str(), claim(later(89))), ("cus_1", None));
            remove(&first);
            assert_eq!(count(), 1, "another turn was taken since");
            pool.write_blocking(|db| put_due(db, "cus_1", later(40))).unwrap();
            remove(&second);
            let third = claim(later(40)).unwrap();
            remove(&third);
            assert_eq!((claim(later(9_999)), count()), (None, 0));
        });
    }
}
