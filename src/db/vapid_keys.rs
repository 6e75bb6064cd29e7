//! The key by which push services of browsers know this service: one row. It stays sealed here, for (`vapid_keys`,
//! `sealed`, [`ROW`]).

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::vapid_keys,
    },
    domain::time::Timestamp,
};

/// Id of the row.
pub const ROW: &str = "web_push";

/// The private key that signs pushes to browsers (VAPID), sealed.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = vapid_keys)]
pub struct SealedVapidKey {
    pub sealed: Vec<u8>,
    /// The number of the key that sealed it.
    pub key_version: i32,
}

/// The stored key.
pub fn get(db: &mut Db) -> Result<Option<SealedVapidKey>, DbError> {
    Ok(vapid_keys::table.find(ROW).select(SealedVapidKey::as_select()).first(db).optional()?)
}

/// True if a key before this one sealed it.
pub fn is_older(db: &mut Db, key_version: i32) -> Result<bool, DbError> {
    Ok(get(db)?.is_some_and(|key| key.key_version < key_version))
}

/// Stores the first key, and returns the one that is stored then: another start may have been quicker.
pub fn get_or_insert(db: &mut Db, key: &SealedVapidKey, now: Timestamp) -> Result<SealedVapidKey, DbError> {
    let new = (
        vapid_keys::id.eq(ROW),
        vapid_keys::sealed.eq(&key.sealed),
        vapid_keys::key_version.eq(key.key_version),
        vapid_keys::created_at.eq(now),
    );
    let insert = diesel::insert_into(vapid_keys::table).values(new).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    get(db)?.ok_or(DbError::NotFound)
}

/// Stores the same key, sealed again, unless the row no longer holds `before`; the answer is false then.
pub fn replace_sealed(db: &mut Db, before: &[u8], sealed: &[u8], key_version: i32) -> Result<bool, DbError> {
    let row = vapid_keys::table.find(ROW).filter(vapid_keys::sealed.eq(before));
    let set = (vapid_keys::sealed.eq(sealed), vapid_keys::key_version.eq(key_version));
    Ok(diesel::update(row).set(set).execute(db)? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, now};

    #[test]
    fn the_first_key_stays() {
        testing::on_each_database(|pool| {
            let key = |sealed: &[u8]| SealedVapidKey { sealed: sealed.to_vec(), key_version: 1 };
            let insert = |sealed| pool.write_blocking(|db| get_or_insert(db, &key(sealed), now())).unwrap();
            assert_eq!((insert(b"one"), insert(b"two")), (key(b"one"), key(b"one")));
            let replace = |before| pool.write_blocking(|db| replace_sealed(db, before, b"again", 2)).unwrap();
            assert!(!replace(b"two") && replace(b"one"));
            let stored = pool.read_blocking(get).unwrap();
            assert_eq!(stored, Some(SealedVapidKey { sealed: b"again".to_vec(), key_version: 2 }));
        });
    }
}
