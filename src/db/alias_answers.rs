//! Answers of the player-statistics service about the names of a player: it is paid, so they are kept.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::alias_answers,
    },
    domain::{player_name::NameKey, time::Timestamp},
};

/// A kept answer.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = alias_answers)]
pub struct StoredAnswer {
    /// JSON.
    pub answer: String,
    pub as_of: Timestamp,
}

/// The answer for this name at a server of the service (`""`: at any).
pub fn get(db: &mut Db, name: &NameKey, stats_server: &str) -> Result<Option<StoredAnswer>, DbError> {
    let row = alias_answers::table.find((name.as_str(), stats_server));
    Ok(row.select(StoredAnswer::as_select()).first(db).optional()?)
}

/// Keeps an answer in place of the one before.
pub fn put(db: &mut Db, name: &NameKey, stats_server: &str, answer: &str, now: Timestamp) -> Result<(), DbError> {
    let kept = (alias_answers::answer.eq(answer), alias_answers::as_of.eq(now));
    let row = (alias_answers::name_key.eq(name.as_str()), alias_answers::stats_server.eq(stats_server), kept);
    let put = diesel::insert_into(alias_answers::table)
        .values(row)
        .on_conflict((alias_answers::name_key, alias_answers::stats_server))
        .do_update()
        .set(kept);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// Deletes a batch of those until then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, alias_answers, as_of, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn the_latest_answer_for_a_name_and_server_is_kept() {
        testing::on_each_database(|pool| {
            let (name, other) = (NameKey::of("Löwe").unwrap(), NameKey::of("Ada").unwrap());
            let put = |server: &str, answer: &str, at| {
                pool.write_blocking(|db| put(db, &name, server, answer, at)).unwrap();
            };
            let read = |name: &NameKey, server: &str| pool.read_blocking(|db| get(db, name, server)).unwrap();
            put("7", "{}", now());
            put("7", "[]", later(1));
            put("", "0", now());
            assert_eq!(read(&name, "7"), Some(StoredAnswer { answer: "[]".into(), as_of: later(1) }));
            assert_eq!(read(&name, "").unwrap().answer, "0");
            assert_eq!(read(&other, "7"), None);
            assert_eq!(pool.write_blocking(|db| purge(db, now())).unwrap(), 1);
            assert_eq!(read(&name, ""), None);
        });
    }
}
