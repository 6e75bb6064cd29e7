//! The ledger of alarms: every alarm that arrived, and what became of it. An alarm is stored here before it is
//! delivered, so that no crash loses one. When the ledger cannot be written, an alarm is delivered all the same.
//!
//! An alarm is `received` (a push that its game connection does not have yet), then it has `opened` an incident or was
//! `merged` into one, and it is finished when it was written to `sockets` sockets (0: nobody was connected). A push that
//! came too late is `late`, one that fits no paired server is `unmatched`; both are finished at once and sent to nobody.

use diesel::{dsl::count_star, prelude::*};

use crate::{
    db::{error::DbError, pool::Db, schema::alarms, timestamp::StoredTimestamp},
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
};

/// How an alarm reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmPath {
    Link,
    Push,
    /// Asked for by the user, to test the whole way.
    Drill,
}

impl AlarmPath {
    /// The stored word.
    pub fn word(self) -> &'static str {
        match self {
            AlarmPath::Link => "link",
            AlarmPath::Push => "push",
            AlarmPath::Drill => "drill",
        }
    }
}

/// What has become of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmState {
    Received,
    Opened,
    Merged,
    Late,
    Unmatched,
}

impl AlarmState {
    /// The stored word.
    pub fn word(self) -> &'static str {
        match self {
            AlarmState::Received => "received",
            AlarmState::Opened => "opened",
            AlarmState::Merged => "merged",
            AlarmState::Late => "late",
            AlarmState::Unmatched => "unmatched",
        }
    }
}

/// An alarm as it arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Our own id of the alarm.
    pub id: String,
    pub user: UserId,
    pub server: Option<ServerId>,
    pub path: AlarmPath,
    /// The device id of the alarm; empty where a push does not say.
    pub alarm_id: String,
    /// The device's name, or the title of the push.
    pub title: String,
    pub message: String,
    pub state: AlarmState,
    /// The incident it opened or was merged into.
    pub incident: Option<String>,
}

/// An alarm that is not finished.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = alarms)]
pub struct Unfinished {
    pub id: String,
    pub alarm_id: String,
    pub title: String,
    pub path: String,
    pub state: String,
    pub incident: Option<String>,
    #[diesel(deserialize_as = StoredTimestamp)]
    pub received_at: Timestamp,
}

/// Stores an alarm before anything else is done with it. Late and unmatched ones are finished with that.
pub fn receive(db: &mut Db, arrival: &Arrival, now: Timestamp) -> Result<(), DbError> {
    let finished = matches!(arrival.state, AlarmState::Late | AlarmState::Unmatched).then_some(now.naive_utc());
    let row = (
        alarms::id.eq(&arrival.id),
        alarms::user_id.eq(arrival.user.as_str()),
        alarms::server_id.eq(arrival.server.as_ref().map(ServerId::as_str)),
        alarms::path.eq(arrival.path.word()),
        alarms::alarm_id.eq(&arrival.alarm_id),
        alarms::title.eq(&arrival.title),
        alarms::message.eq(&arrival.message),
        alarms::received_at.eq(now.naive_utc()),
        alarms::state.eq(arrival.state.word()),
        alarms::incident.eq(arrival.incident.as_deref()),
        alarms::finished_at.eq(finished),
    );
    diesel::insert_into(alarms::table).values(row).execute(db)?;
    Ok(())
}

/// Stores which incident a received alarm opened or was merged into. False if that is known already.
pub fn assign(db: &mut Db, id: &str, state: AlarmState, incident: &str) -> Result<bool, DbError> {
    let received = alarms::table.find(id).filter(alarms::incident.is_null());
    let set = (alarms::state.eq(state.word()), alarms::incident.eq(incident));
    Ok(diesel::update(received).set(set).execute(db)? == 1)
}

/// The alarm is finished: written to so many sockets, or merged into an incident that was sent before (`None`).
pub fn finish(db: &mut Db, id: &str, sockets: Option<usize>, now: Timestamp) -> Result<(), DbError> {
    let sockets = sockets.map(|sockets| i64::try_from(sockets).unwrap_or(i64::MAX));
    let unfinished = alarms::table.find(id).filter(alarms::finished_at.is_null());
    let set = (alarms::sockets.eq(sockets), alarms::finished_at.eq(now.naive_utc()));
    diesel::update(unfinished).set(set).execute(db)?;
    Ok(())
}

/// Whether an alarm still waits to be delivered.
pub fn is_unfinished(db: &mut Db, id: &str) -> Result<bool, DbError> {
    let waiting = alarms::table.find(id).filter(alarms::finished_at.is_null());
    Ok(waiting.count().get_result::<i64>(db)? == 1)
}

/// What a crash left unfinished for this server, oldest first.
pub fn unfinished(db: &mut Db, server: &ServerId) -> Result<Vec<Unfinished>, DbError> {
    let rows = alarms::table
        .filter(alarms::server_id.eq(server.as_str()))
        .filter(alarms::finished_at.is_null())
        .order((alarms::received_at, alarms::id))
        .limit(1_000)
        .select(Unfinished::as_select())
        .load(db)?;
    Ok(rows)
}

/// How many alarms are in each state, and since when the oldest unfinished one waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// (state, whether finished, how many).
    pub counts: Vec<(String, bool, i64)>,
    /// How many finished ones were written to no socket.
    pub unheard: i64,
    pub oldest_unfinished: Option<Timestamp>,
}

/// The ledger in numbers.
pub fn tally(db: &mut Db) -> Result<Tally, DbError> {
    let mut counts: Vec<(String, bool, i64)> = Vec::new();
    for finished in [false, true] {
        let in_states: Vec<(String, i64)> = if finished {
            let rows = alarms::table.filter(alarms::finished_at.is_not_null()).group_by(alarms::state);
            rows.order(alarms::state).select((alarms::state, count_star())).load(db)?
        } else {
            let rows = alarms::table.filter(alarms::finished_at.is_null()).group_by(alarms::state);
            rows.order(alarms::state).select((alarms::state, count_star())).load(db)?
        };
        counts.extend(in_states.into_iter().map(|(state, count)| (state, finished, count)));
    }
    let unheard = alarms::table.filter(alarms::sockets.eq(0)).count().get_result(db)?;
    let oldest: Option<chrono::NaiveDateTime> =
        alarms::table.filter(alarms::finished_at.is_null()).select(diesel::dsl::min(alarms::received_at)).first(db)?;
    Ok(Tally { counts, unheard, oldest_unfinished: oldest.map(|at| at.and_utc()) })
}

/// Deletes what was finished before this time.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    Ok(diesel::delete(alarms::table.filter(alarms::finished_at.lt(before.naive_utc()))).execute(db)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    fn arrival(id: &str, state: AlarmState, incident: Option<&str>) -> Arrival {
        Arrival {
            id: id.into(),
            user: "alice".into(),
            server: Some("one".into()),
            path: AlarmPath::Push,
            alarm_id: String::new(),
            title: "North wall".into(),
            message: "C4".into(),
            state,
            incident: incident.map(str::to_owned),
        }
    }

    #[test]
    fn an_alarm_is_received_assigned_and_finished_once() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            pool.write_blocking(|db| {
                receive(db, &arrival("a", AlarmState::Received, None), now())?;
                assert_eq!(unfinished(db, &"one".into())?.len(), 1);
                assert!(assign(db, "a", AlarmState::Opened, "incident")?);
                assert!(!assign(db, "a", AlarmState::Merged, "another")?, "an alarm has one incident");
                assert!(is_unfinished(db, "a")?);
                finish(db, "a", Some(3), later(1))?;
                finish(db, "a", Some(0), later(2))?;
                assert!(!is_unfinished(db, "a")?);
                assert!(unfinished(db, &"one".into())?.is_empty());
                let tally = tally(db)?;
                assert_eq!(tally.counts, [("opened".to_owned(), true, 1)]);
                assert_eq!((tally.unheard, tally.oldest_unfinished), (0, None));
                Ok(())
            })
            .unwrap();
        });
    }

    #[test]
    fn late_and_unmatched_alarms_are_finished_at_once() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            pool.write_blocking(|db| {
                receive(db, &arrival("a", AlarmState::Late, None), now())?;
                receive(db, &Arrival { server: None, ..arrival("b", AlarmState::Unmatched, None) }, now())?;
                receive(db, &arrival("c", AlarmState::Opened, Some("incident")), later(5))?;
                let tally = tally(db)?;
                let count = |state: &str, finished| (state.to_owned(), finished, 1);
                assert_eq!(tally.counts, [count("opened", false), count("late", true), count("unmatched", true)]);
                assert_eq!(tally.oldest_unfinished, Some(later(5)));
                assert_eq!(purge(db, later(100))?, 2, "what is unfinished stays");
                Ok(())
            })
            .unwrap();
        });
    }
}
