//! The keys that have sealed rows, by fingerprint, numbered in the order in which they were first used.

use crate::{
    db::{
        engine::{
            error::DbError,
            lock_holder::{self, LockHold},
            pool::Db,
            prelude::*,
        },
        schema::encryption_keys,
    },
    domain::time::Timestamp,
};

/// The number of the key that the service now runs with: a new key gets the next one, and so does a key that is used
/// again after a newer one. So the key versions of rows only grow.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn take_into_use(db: &mut Db, fingerprint: &str, now: Timestamp) -> Result<i32, DbError> {
    loop {
        let next = match newest(db)? {
            Some((number, known)) if known == fingerprint => return Ok(number),
            Some((number, _)) => number + 1,
            None => 1,
        };
        diesel::delete(encryption_keys::table.filter(encryption_keys::fingerprint.eq(fingerprint))).execute(db)?;
        let row = (
            encryption_keys::number.eq(next),
            encryption_keys::fingerprint.eq(fingerprint),
            encryption_keys::first_seen_at.eq(now),
        );
        let insert = diesel::insert_into(encryption_keys::table).values(row).on_conflict_do_nothing();
        if on_backend!(db, |db| insert.execute(db))? == 1 {
            return Ok(next);
        }
        // Another process stored a key at the same moment; the next round reads it.
    }
}

/// Reasons for which a node may not seal with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeKeyRefused {
    #[error(
        "CREDS_ENCRYPTION_KEY is an older key than the one with which other nodes seal: set theirs, and this one as \
         CREDS_ENCRYPTION_KEY_PREV"
    )]
    Older,
    #[error(
        "CREDS_ENCRYPTION_KEY is another key than the one that was used last, and a node that serves opens nothing with it: \
         set it as CREDS_ENCRYPTION_KEY_PREV at all nodes first, beside the key that they have"
    )]
    UnknownToNodes,
}

/// [`take_into_use`] on one node of several, the `own` one, if all others that serve open what it seals.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)), while this node serves: of two that start
/// together, at least one sees the other.
pub fn take_into_use_on_node(
    db: &mut Db,
    fingerprint: &str,
    own: Option<&LockHold>,
    now: Timestamp,
) -> Result<Result<i32, NodeKeyRefused>, DbError> {
    let newest = newest(db)?.map(|(_, known)| known);
    if newest.as_deref() == Some(fingerprint) {
        return take_into_use(db, fingerprint, now).map(Ok);
    }
    if let Some(newest) = newest
        && number(db, fingerprint)?.is_some()
        && others_open(db, own, &newest)?.contains(&true)
    {
        return Ok(Err(NodeKeyRefused::Older));
    }
    if others_open(db, own, fingerprint)?.contains(&false) {
        return Ok(Err(NodeKeyRefused::UnknownToNodes));
    }
    take_into_use(db, fingerprint, now).map(Ok)
}

/// See [`lock_holder::others_open`]; nodes serve from PostgreSQL only.
fn others_open(db: &mut Db, own: Option<&LockHold>, fingerprint: &str) -> Result<Vec<bool>, DbError> {
    match db {
        Db::Pg(db) => lock_holder::others_open(db, own, fingerprint),
        Db::Sqlite(_) => Ok(Vec::new()),
    }
}

/// The number and fingerprint of the key that was taken into use last; none in a database from which none has served.
pub fn newest(db: &mut Db) -> Result<Option<(i32, String)>, DbError> {
    let newest = encryption_keys::table
        .order(encryption_keys::number.desc())
        .select((encryption_keys::number, encryption_keys::fingerprint))
        .first(db)
        .optional()?;
    Ok(newest)
}

/// The number of the key with this fingerprint, if the service has run with it.
pub fn number(db: &mut Db, fingerprint: &str) -> Result<Option<i32>, DbError> {
    let number = encryption_keys::table
        .filter(encryption_keys::fingerprint.eq(fingerprint))
        .select(encryption_keys::number)
        .first(db)
        .optional()?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use diesel::{connection::SimpleConnection as _, sql_query, sql_types::BigInt};

    use super::*;
    use crate::{
        config::Database,
        db::{
            engine::{
                self,
                lock_holder::{LockSharing, SERVING_LOCK},
                pool::Pool,
            },
            testing::{self, Postgres, now},
        },
    };

    #[test]
    fn keys_are_numbered_in_the_order_of_their_first_use() {
        testing::on_each_database(|pool| {
            assert_eq!(pool.read_blocking(newest).unwrap(), None);
            let take = |key: &str| pool.write_blocking(|db| take_into_use(db, key, now())).unwrap();
            assert_eq!([take("a"), take("a"), take("b"), take("b")], [1, 1, 2, 2]);
            // The older key again: a new generation.
            assert_eq!([take("a"), take("a")], [3, 3]);
            let take_on_node =
                |key: &str| pool.write_blocking(|db| take_into_use_on_node(db, key, None, now())).unwrap();
            assert_eq!([take_on_node("a"), take_on_node("b")], [Ok(3), Ok(4)], "no other node serves");
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| assert_eq!(take("d"), 5));
                }
            });
            let number = |key: &str| pool.read_blocking(|db| number(db, key)).unwrap();
            assert_eq!([number("a"), number("b"), number("c")], [Some(3), Some(4), None]);
        });
    }

    /// A connection of a node that serves, and says that it opens secrets with these keys.
    fn node(postgres: &Postgres, keys: &[&str]) -> PgConnection {
        let Database::Postgres(url) = postgres.database() else { panic!("it is a PostgreSQL") };
        let mut connection = engine::open_postgres(&url).unwrap();
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        lock_holder::say_keys(&mut connection, &keys).unwrap();
        let take = sql_query(LockSharing::WithNodes.try_to_take()).bind::<BigInt, _>(SERVING_LOCK);
        take.execute(&mut connection).unwrap();
        connection
    }

    #[test]
    fn a_node_seals_with_a_new_key_once_all_nodes_open_with_it() {
        let Some(postgres) = Postgres::create() else { return };
        let pool = Pool::open(&postgres.database()).unwrap();
        let take = |key: &str| pool.write_blocking(|db| take_into_use_on_node(db, key, None, now())).unwrap();
        assert_eq!(take("old"), Ok(1));
        let (_one, mut two) = (node(&postgres, &["old", "new"]), node(&postgres, &["old"]));
        assert_eq!((take("old"), take("new")), (Ok(1), Err(NodeKeyRefused::UnknownToNodes)));
        let end = |node: &mut PgConnection| node.batch_execute("SELECT pg_advisory_unlock_all()").unwrap();
        end(&mut two);
        // Its program does not say its keys.
        let mut silent = node(&postgres, &[]);
        assert_eq!(take("new"), Err(NodeKeyRefused::UnknownToNodes));
        end(&mut silent);
        assert_eq!((take("new"), take("old")), (Ok(2), Err(NodeKeyRefused::Older)));
        assert_eq!(take("newest"), Err(NodeKeyRefused::UnknownToNodes));
    }

    #[test]
    fn a_node_goes_back_to_the_earlier_key_when_no_other_one_has_the_newest() {
        let Some(postgres) = Postgres::create() else { return };
        let pool = Pool::open(&postgres.database()).unwrap();
        let take = |key: &str| pool.write_blocking(|db| take_into_use_on_node(db, key, None, now())).unwrap();
        assert_eq!((take("old"), take("new")), (Ok(1), Ok(2)));
        let _node = node(&postgres, &["old"]);
        assert_eq!(take("old"), Ok(3));
    }
}
