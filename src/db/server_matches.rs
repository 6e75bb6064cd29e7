//! Which server of the player-statistics service a game server is, and when it was last asked who is online there. One
//! row for each game server, however many users paired it.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::server_matches,
    },
    domain::{server_match::ServerMatch, time::Timestamp},
};

/// Match of a game server at the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMatch {
    /// `None`: none was found.
    pub matched: Option<ServerMatch>,
    /// Its players cannot be found by name.
    pub names_hidden: bool,
    /// When the match was looked for.
    pub checked_at: Timestamp,
    /// When it was last known who is online.
    pub polled_at: Option<Timestamp>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = server_matches)]
pub(in crate::db) struct MatchRow {
    matched: Option<String>,
    names_hidden: bool,
    checked_at: Timestamp,
    polled_at: Option<Timestamp>,
}

/// The row of this game server; `None` if it was never looked for.
pub fn get(db: &mut Db, address: &str, port: u16) -> Result<Option<StoredMatch>, DbError> {
    let row = server_matches::table.find((address, i32::from(port)));
    let row: Option<MatchRow> = row.select(MatchRow::as_select()).first(db).optional()?;
    Ok(row.map(|MatchRow { matched, names_hidden, checked_at, polled_at }| {
        // A match that cannot be read is looked for again.
        let matched = matched.and_then(|matched| serde_json::from_str(&matched).ok());
        StoredMatch { matched, names_hidden, checked_at, polled_at }
    }))
}

/// Stores the outcome of a search.
pub fn put(
    db: &mut Db,
    address: &str,
    port: u16,
    matched: Option<&ServerMatch>,
    now: Timestamp,
) -> Result<(), DbError> {
    let matched = matched.map(|matched| serde_json::json!(matched).to_string());
    let found = (server_matches::matched.eq(matched), server_matches::checked_at.eq(now));
    let row = (
        server_matches::address.eq(address),
        server_matches::port.eq(i32::from(port)),
        server_matches::names_hidden.eq(false),
        found.clone(),
    );
    let put = diesel::insert_into(server_matches::table)
        .values(row)
        .on_conflict((server_matches::address, server_matches::port))
        .do_update()
        .set(found);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// Records that the players online are known, unless the server hides them.
pub fn polled(db: &mut Db, address: &str, port: u16, names_hidden: bool, now: Timestamp) -> Result<(), DbError> {
    let row = server_matches::table.find((address, i32::from(port)));
    let polled = (server_matches::names_hidden.eq(names_hidden), server_matches::polled_at.eq(now));
    diesel::update(row).set(polled).execute(db)?;
    Ok(())
}

/// Deletes a batch of those that were not looked for since then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, server_matches, checked_at, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::testing::{self, later, now},
        domain::server_match::{Confidence, MatchedBy},
    };

    #[test]
    fn a_match_is_kept_for_its_address_and_port() {
        testing::on_each_database(|pool| {
            let read = |port| pool.read_blocking(|db| get(db, "203.0.113.9", port)).unwrap();
            let put = |matched: Option<&ServerMatch>, at| {
                pool.write_blocking(|db| put(db, "203.0.113.9", 28_082, matched, at)).unwrap();
            };
            assert_eq!(read(28_082), None);
            put(None, now());
            let nothing = StoredMatch { matched: None, names_hidden: false, checked_at: now(), polled_at: None };
            assert_eq!(read(28_082), Some(nothing.clone()));
            let found = ServerMatch {
                id: "7".into(),
                name: "Rusty Moose".into(),
                confidence: Confidence::Certain,
                by: vec![MatchedBy::Address, MatchedBy::Port],
            };
            put(Some(&found), later(1));
            pool.write_blocking(|db| polled(db, "203.0.113.9", 28_082, true, later(2))).unwrap();
            let known = StoredMatch {
                matched: Some(found.clone()),
                names_hidden: true,
                checked_at: later(1),
                polled_at: Some(later(2)),
            };
            assert_eq!(read(28_082), Some(known.clone()));
            put(Some(&found), later(3));
            assert_eq!(read(28_082), Some(StoredMatch { checked_at: later(3), ..known }), "what was seen stays");
            assert_eq!(read(1), None);
            assert_eq!(pool.write_blocking(|db| purge(db, later(3))).unwrap(), 1);
        });
    }
}
