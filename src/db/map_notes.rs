//! Notes on the map of a paired server: those of users, those of the detector of deaths, and those that the team placed
//! in the game, as the game server last showed them.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::map_notes,
    },
    domain::{ids::ServerId, time::Timestamp},
};

/// A note on a map, as its row has it.
#[derive(Clone, Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = map_notes)]
pub struct StoredNote {
    pub id: String,
    /// User id.
    pub author_id: Option<String>,
    /// `user`, `detector` or `game`.
    pub source: String,
    /// Metres from the south-west corner.
    pub x: f64,
    pub y: f64,
    pub category: String,
    pub label: Option<String>,
    pub created_at: Timestamp,
    /// None: until the wipe.
    pub expires_at: Option<Timestamp>,
}

/// Change of a note; what is absent stays.
#[derive(Clone, Debug, Default, AsChangeset)]
#[diesel(table_name = map_notes)]
pub struct NoteChange {
    pub x: Option<f64>,
    pub y: Option<f64>,
    pub category: Option<String>,
    /// `Some(None)`: the label is removed.
    pub label: Option<Option<String>>,
    /// `Some(None)`: until the wipe.
    pub expires_at: Option<Option<Timestamp>>,
}

/// The server's notes that have not expired, oldest first.
pub fn list(db: &mut Db, server: &ServerId, now: Timestamp) -> Result<Vec<StoredNote>, DbError> {
    let notes = map_notes::table.filter(map_notes::server_id.eq(server.as_str()));
    let lives = map_notes::expires_at.is_null().or(map_notes::expires_at.gt(now));
    let notes = notes.filter(lives).order((map_notes::created_at, map_notes::id));
    Ok(notes.select(StoredNote::as_select()).load(db)?)
}

/// The note, or `NotFound`; an expired one is not there.
pub fn get(db: &mut Db, server: &ServerId, id: &str, now: Timestamp) -> Result<StoredNote, DbError> {
    let note: StoredNote = map_notes::table.find((server.as_str(), id)).select(StoredNote::as_select()).first(db)?;
    if note.expires_at.is_some_and(|at| at <= now) { Err(DbError::NotFound) } else { Ok(note) }
}

/// Number of notes that users have made on the server.
pub fn count(db: &mut Db, server: &ServerId) -> Result<usize, DbError> {
    let notes: i64 = map_notes::table
        .filter(map_notes::server_id.eq(server.as_str()).and(map_notes::source.eq("user")))
        .count()
        .get_result(db)?;
    Ok(notes as usize)
}

/// Adds a note; one with a known id is there already.
pub fn insert(db: &mut Db, server: &ServerId, note: &StoredNote) -> Result<(), DbError> {
    let row = (
        map_notes::server_id.eq(server.as_str()),
        map_notes::id.eq(&note.id),
        map_notes::author_id.eq(&note.author_id),
        map_notes::source.eq(&note.source),
        map_notes::x.eq(note.x),
        map_notes::y.eq(note.y),
        map_notes::category.eq(&note.category),
        map_notes::label.eq(&note.label),
        map_notes::created_at.eq(note.created_at),
        map_notes::expires_at.eq(note.expires_at),
    );
    let insert = diesel::insert_into(map_notes::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    Ok(())
}

/// Makes these the game's own notes of the server; of those before, none stays.
pub fn replace_game_notes(db: &mut Db, server: &ServerId, notes: &[StoredNote]) -> Result<(), DbError> {
    let known = map_notes::table.filter(map_notes::server_id.eq(server.as_str()).and(map_notes::source.eq("game")));
    diesel::delete(known).execute(db)?;
    notes.iter().try_for_each(|note| insert(db, server, note))
}

/// Changes a note, and gives it as it now is.
pub fn update(
    db: &mut Db,
    server: &ServerId,
    id: &str,
    change: &NoteChange,
    now: Timestamp,
) -> Result<StoredNote, DbError> {
    let NoteChange { x, y, category, label, expires_at } = change;
    let is_nothing = x.or(*y).is_none() && category.is_none() && label.is_none() && expires_at.is_none();
    if !is_nothing {
        diesel::update(map_notes::table.find((server.as_str(), id))).set(change).execute(db)?;
    }
    get(db, server, id, now)
}

/// Deletes a note; false when there was none.
pub fn delete(db: &mut Db, server: &ServerId, id: &str) -> Result<bool, DbError> {
    Ok(diesel::delete(map_notes::table.find((server.as_str(), id))).execute(db)? == 1)
}

/// The world was wiped at this time: what was noted before is gone. Deaths and the game's own notes reach the database in
/// their order, so they are all of the old world, also when the clock was set back. Users note past that queue, and only
/// their time says of which world it is.
pub fn wipe(db: &mut Db, server: &ServerId, at: Timestamp) -> Result<usize, DbError> {
    let of_server = map_notes::table.filter(map_notes::server_id.eq(server.as_str()));
    let is_old = map_notes::source.ne("user").or(map_notes::created_at.lt(at));
    Ok(diesel::delete(of_server.filter(is_old)).execute(db)?)
}

/// Deletes what has expired, a batch of it; returns how many.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, map_notes, expires_at, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    fn note(id: &str, expires_at: Option<Timestamp>) -> StoredNote {
        StoredNote {
            id: id.into(),
            author_id: Some("owner".into()),
            source: "user".into(),
            x: 1.5,
            y: -2.0,
            category: "stash".into(),
            label: Some("Under the tree".into()),
            created_at: now(),
            expires_at,
        }
    }

    #[test]
    fn notes_are_kept_until_they_expire_are_deleted_or_the_world_is_wiped() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            for note in [note("1", None), note("2", Some(later(10))), note("1", Some(later(5)))] {
                pool.write_blocking(|db| insert(db, &server, &note)).unwrap();
            }
            let list = |at| pool.read_blocking(|db| list(db, &server, at)).unwrap();
            assert_eq!(list(now()), [note("1", None), note("2", Some(later(10)))]);
            assert_eq!(list(later(10)), [note("1", None)]);
            let get = |id: &str, at| pool.read_blocking(|db| get(db, &server, id, at));
            assert!(matches!(get("2", later(10)), Err(DbError::NotFound)));
            let change = NoteChange { label: Some(None), x: Some(9.0), ..Default::default() };
            let changed = pool.write_blocking(|db| update(db, &server, "1", &change, now())).unwrap();
            assert_eq!(changed, StoredNote { label: None, x: 9.0, ..note("1", None) });
            let same = pool.write_blocking(|db| update(db, &server, "1", &NoteChange::default(), now())).unwrap();
            assert_eq!(same, changed);
            assert_eq!(pool.write_blocking(|db| purge(db, later(10))).unwrap(), 1);
            assert_eq!(pool.read_blocking(|db| count(db, &server)).unwrap(), 1);
            assert!(!pool.write_blocking(|db| delete(db, &server, "2")).unwrap());
            let game = |id: &str| StoredNote { author_id: None, source: "game".into(), ..note(id, None) };
            for notes in [vec![game("3"), game("4")], vec![game("4"), game("5")]] {
                pool.write_blocking(|db| replace_game_notes(db, &server, &notes)).unwrap();
                assert_eq!(list(now())[1..], notes, "those of users stay");
            }
            assert_eq!(pool.read_blocking(|db| count(db, &server)).unwrap(), 1, "only users' notes count");
            assert_eq!(pool.write_blocking(|db| wipe(db, &server, later(1))).unwrap(), 3);
            assert_eq!(list(now()), []);
        });
    }

    /// The clock may have been set back since they were made.
    #[test]
    fn a_wipe_deletes_what_the_game_showed_whatever_the_clock_says() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            let of = |id: &str, source: &str| StoredNote { source: source.into(), ..note(id, None) };
            for note in [of("1", "user"), of("2", "detector"), of("3", "game")] {
                pool.write_blocking(|db| insert(db, &server, &note)).unwrap();
            }
            assert_eq!(pool.write_blocking(|db| wipe(db, &server, now())).unwrap(), 2);
            let list = pool.read_blocking(|db| list(db, &server, now())).unwrap();
            assert_eq!(list, [note("1", None)], "a user may have noted it in the new world");
        });
    }
}
