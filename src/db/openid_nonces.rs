//! OpenID response nonces already used (OpenID Authentication 2.0 §11.3), so that no assertion works twice.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::openid_nonces,
    },
    domain::time::Timestamp,
};

/// Stores the nonce; false when it was used before.
pub fn insert(db: &mut Db, endpoint: &str, nonce: &str, now: Timestamp) -> Result<bool, DbError> {
    let row = (openid_nonces::endpoint.eq(endpoint), openid_nonces::nonce.eq(nonce), openid_nonces::seen_at.eq(now));
    let insert = diesel::insert_into(openid_nonces::table).values(row).on_conflict_do_nothing();
    Ok(on_backend!(db, |db| insert.execute(db))? == 1)
}

/// Deletes a batch of the nonces seen until this time, which must be older than any assertion still accepted; returns
/// how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, openid_nonces, seen_at, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn a_nonce_is_accepted_once_per_endpoint() {
        testing::on_each_database(|pool| {
            let insert = |endpoint: &str| pool.write_blocking(|db| insert(db, endpoint, "nonce", now())).unwrap();
            assert!(insert("https://one.test"));
            assert!(!insert("https://one.test"));
            assert!(insert("https://two.test"));
            assert_eq!(pool.write_blocking(|db| purge(db, later(-1))).unwrap(), 0);
            assert_eq!(pool.write_blocking(|db| purge(db, now())).unwrap(), 2);
            assert!(insert("https://one.test"));
        });
    }
}
