//! Alarms that are said in the team's chat: their delivery, as [`deliveries`](crate::db::notices::deliveries) has that
//! of channels.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::spoken_alarms,
    },
    domain::{
        channels::spoken_alarm::{SpokenFault, SpokenLine, SpokenState},
        ids::ServerId,
        time::Timestamp,
    },
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = spoken_alarms)]
pub(in crate::db) struct SpokenRow {
    state: String,
    reason: Option<String>,
    queued_at: Timestamp,
    ended_at: Option<Timestamp>,
}

impl TryFrom<SpokenRow> for SpokenLine {
    type Error = DbError;

    fn try_from(row: SpokenRow) -> Result<Self, DbError> {
        let SpokenRow { state, reason, queued_at, ended_at } = row;
        let state = SpokenState::parse(&state).ok_or_else(|| DbError::malformed("state"))?;
        Ok(Self { state, fault: reason.as_deref().and_then(SpokenFault::parse), queued_at, ended_at })
    }
}

/// Stores how far the line of an incident came. One that was said stays so.
pub fn put(db: &mut Db, server: &ServerId, incident: &str, line: SpokenLine) -> Result<(), DbError> {
    let of = (spoken_alarms::incident_id.eq(incident), spoken_alarms::server_id.eq(server.as_str()));
    let news = (
        spoken_alarms::state.eq(line.state.word()),
        spoken_alarms::reason.eq(line.fault.map(SpokenFault::word)),
        spoken_alarms::ended_at.eq(line.ended_at),
    );
    let row = spoken_alarms::table
        .find((incident, server.as_str()))
        .filter(spoken_alarms::state.ne(SpokenState::Accepted.word()));
    if diesel::update(row).set(news).execute(db)? == 0 {
        let insert = diesel::insert_into(spoken_alarms::table)
            .values((of, news, spoken_alarms::queued_at.eq(line.queued_at)))
            .on_conflict_do_nothing();
        on_backend!(db, |db| insert.execute(db))?;
    }
    Ok(())
}

/// The line of an incident; `None`: there was none.
pub fn get(db: &mut Db, server: &ServerId, incident: &str) -> Result<Option<SpokenLine>, DbError> {
    let row = spoken_alarms::table.find((incident, server.as_str())).select(SpokenRow::as_select());
    row.first(db).optional()?.map(SpokenLine::try_from).transpose()
}

/// The newest line of the server.
pub fn newest(db: &mut Db, server: &ServerId) -> Result<Option<SpokenLine>, DbError> {
    let of_server = spoken_alarms::table.filter(spoken_alarms::server_id.eq(server.as_str()));
    let newest = of_server.order(spoken_alarms::queued_at.desc()).select(SpokenRow::as_select());
    newest.first(db).optional()?.map(SpokenLine::try_from).transpose()
}

/// Deletes a batch of the lines before this time; returns how many.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, spoken_alarms, queued_at, before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn a_line_that_was_said_stays_so_and_the_newest_counts() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            let server = testing::server(pool, "alice", "a").id;
            let line = |state, at| SpokenLine { state, fault: None, queued_at: later(at), ended_at: None };
            let put = |incident: &str, line| pool.write_blocking(|db| put(db, &server, incident, line)).unwrap();
            put("one", line(SpokenState::Queued, 0));
            put("one", line(SpokenState::Accepted, 0));
            put("one", line(SpokenState::Failed, 0));
            put("two", line(SpokenState::Failed, 5));
            let get = |incident: &str| pool.read_blocking(|db| get(db, &server, incident)).unwrap();
            assert_eq!(get("one"), Some(line(SpokenState::Accepted, 0)));
            assert_eq!(get("three"), None);
            let newest = pool.read_blocking(|db| newest(db, &server)).unwrap();
            assert_eq!(newest, Some(line(SpokenState::Failed, 5)));
            assert_eq!(pool.write_blocking(|db| purge(db, now() + chrono::TimeDelta::seconds(1))).unwrap(), 1);
            assert_eq!((get("one"), get("two").is_some()), (None, true));
        });
    }
}
