//! Accounts that had a subscription and have erased themselves, as marks
//! ([`AccountMarks`](crate::crypto::account_mark::AccountMarks)): there is one trial for an account.

use crate::db::{
    engine::{error::DbError, pool::Db, prelude::*},
    schema::former_subscribers,
};

/// Adds a mark.
pub fn put(db: &mut Db, mark: &str) -> Result<(), DbError> {
    let row = former_subscribers::account_mark.eq(mark);
    let put = diesel::insert_into(former_subscribers::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// True when this mark is stored.
pub fn is_known(db: &mut Db, mark: &str) -> Result<bool, DbError> {
    let row = former_subscribers::table.find(mark).select(former_subscribers::account_mark);
    Ok(row.first::<String>(db).optional()?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn a_mark_stays() {
        testing::on_each_database(|pool| {
            let known = |mark: &str| pool.read_blocking(|db| is_known(db, mark)).unwrap();
            assert!(!known("a"));
            for _ in 0..2 {
                pool.write_blocking(|db| put(db, "a")).unwrap();
            }
            assert!(known("a") && !known("b"));
        });
    }
}
