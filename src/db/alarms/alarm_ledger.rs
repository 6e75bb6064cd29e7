//! The ledger of alarms: each alarm that reached us and what it became. An alarm is stored here before it
//! is delivered, so that no crash loses one; what became of its incident is in [`incidents`](super::incidents).
//!
//! An alarm is `received` (a push that its game connection does not have yet, or an alarm of a node that no longer has the
//! server), then it has `opened` an incident or was `merged` into one, and is finished with that. A push that fits no
//! paired server is `unmatched`. Repeats that the link reports within an incident are counted by the incident and have no
//! row of their own.

use diesel::dsl::min;
use serde::{Deserialize, Serialize};

use crate::{
    db::{
        PURGE_BATCH,
        engine::{error::DbError, pool::Db, prelude::*},
        schema::alarms,
    },
    domain::{
        ids::{ServerId, UserId},
        incident::AlarmPath,
        time::{self, Timestamp},
    },
};

/// The way of an alarm through the ledger so far: into no incident yet, into one, or of no known server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AlarmState {
    Received,
    Opened,
    Merged,
    Unmatched,
}

impl AlarmState {
    /// The stored word.
    pub fn word(self) -> &'static str {
        match self {
            AlarmState::Received => "received",
            AlarmState::Opened => "opened",
            AlarmState::Merged => "merged",
            AlarmState::Unmatched => "unmatched",
        }
    }
}

/// An alarm as the ledger has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerAlarm {
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
    #[serde(serialize_with = "time::exact")]
    pub received_at: Timestamp,
    /// When the push was sent.
    #[serde(serialize_with = "time::exact_option")]
    pub sent_at: Option<Timestamp>,
}

/// A push that was received and has no incident yet.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = alarms)]
pub struct WaitingPush {
    pub id: String,
    pub title: String,
    pub message: String,
    pub received_at: Timestamp,
    pub sent_at: Option<Timestamp>,
    /// The incident that it waits in ([`wait_in`]).
    pub incident: Option<String>,
}

/// Stores an alarm before anything else is done with it. False if it is stored already; it stays as it is.
pub fn receive(db: &mut Db, alarm: &LedgerAlarm) -> Result<bool, DbError> {
    let finished = (alarm.state != AlarmState::Received).then_some(alarm.received_at);
    let row = (
        alarms::id.eq(&alarm.id),
        alarms::user_id.eq(alarm.user.as_str()),
        alarms::server_id.eq(alarm.server.as_ref().map(ServerId::as_str)),
        alarms::path.eq(alarm.path.word()),
        alarms::alarm_id.eq(&alarm.alarm_id),
        alarms::title.eq(&alarm.title),
        alarms::message.eq(&alarm.message),
        alarms::received_at.eq(alarm.received_at),
        alarms::sent_at.eq(alarm.sent_at),
        alarms::state.eq(alarm.state.word()),
        alarms::incident.eq(alarm.incident.as_deref()),
        alarms::finished_at.eq(finished),
    );
    let insert = diesel::insert_into(alarms::table).values(row).on_conflict_do_nothing();
    Ok(on_backend!(db, |db| insert.execute(db))? == 1)
}

/// Stores which incident a received alarm opened or was merged into. False if it is not stored, or if that is known.
pub fn assign(
    db: &mut Db,
    server: &ServerId,
    id: &str,
    state: AlarmState,
    incident: &str,
    now: Timestamp,
) -> Result<bool, DbError> {
    let received = alarms::table.find(id).filter(alarms::incident.is_null().or(alarms::finished_at.is_null()));
    // When stored, it may have matched no server: the one of its incident is paired since.
    let set = (
        alarms::server_id.eq(server.as_str()),
        alarms::state.eq(state.word()),
        alarms::incident.eq(incident),
        alarms::finished_at.eq(now),
    );
    Ok(diesel::update(received).set(set).execute(db)? == 1)
}

/// Keeps these alarms as they are for all others until the transaction ends: of two nodes that store the same alarm at once,
/// the second finds the incident of the first.
pub fn lock<'a>(db: &mut Db, ids: impl Iterator<Item = &'a str>) -> Result<(), DbError> {
    let ids: Vec<&str> = ids.collect();
    if let Db::Pg(db) = db
        && !ids.is_empty()
    {
        let alarms = alarms::table.filter(alarms::id.eq_any(ids)).order(alarms::id);
        alarms.select(alarms::id).for_update().load::<String>(db)?;
    }
    Ok(())
}

/// These alarms wait in the incident that a node opened for them when it had the server no longer. The node that has it
/// takes up the incident.
pub fn wait_in(db: &mut Db, ids: &[&str], incident: &str) -> Result<(), DbError> {
    let waiting = alarms::table.filter(alarms::id.eq_any(ids.iter().copied())).filter(alarms::finished_at.is_null());
    diesel::update(waiting.filter(alarms::incident.is_null())).set(alarms::incident.eq(incident)).execute(db)?;
    Ok(())
}

/// The incident that this alarm waits in, if it does.
pub fn waits_in(db: &mut Db, id: &str) -> Result<Option<String>, DbError> {
    let waiting = alarms::table.find(id).filter(alarms::finished_at.is_null());
    let incident: Option<Option<String>> = waiting.select(alarms::incident).first(db).optional()?;
    Ok(incident.flatten())
}

/// The incident of the first of these alarms that has one.
pub fn incident_of(db: &mut Db, ids: &[&str]) -> Result<Option<String>, DbError> {
    let known = alarms::table.filter(alarms::id.eq_any(ids.iter().copied())).filter(alarms::incident.is_not_null());
    let incident: Option<Option<String>> = known.order(alarms::id).select(alarms::incident).first(db).optional()?;
    Ok(incident.flatten())
}

/// The alarms of one incident belong to another one, which an older alarm has opened.
pub fn merge(db: &mut Db, incident: &str, into: &str) -> Result<(), DbError> {
    let moved = alarms::table.filter(alarms::incident.eq(incident));
    let set = (alarms::incident.eq(into), alarms::state.eq(AlarmState::Merged.word()));
    diesel::update(moved).set(set).execute(db)?;
    Ok(())
}

/// The pushes of this server that wait for their incident, oldest first.
pub fn waiting(db: &mut Db, server: &ServerId) -> Result<Vec<WaitingPush>, DbError> {
    let rows = alarms::table
        .filter(alarms::server_id.eq(server.as_str()))
        .filter(alarms::finished_at.is_null())
        .order((alarms::received_at, alarms::id))
        .limit(1_000)
        .select(WaitingPush::as_select())
        .load(db)?;
    Ok(rows)
}

/// Some of the alarms of all servers that wait for their incident.
#[derive(Debug)]
pub struct WaitingPage {
    pub pushes: Vec<(ServerId, WaitingPush)>,
    /// Where the next page begins; `None`: from the oldest on again.
    pub last: Option<(Timestamp, String)>,
}

/// The alarms of all servers that wait for their incident, at most this number, oldest first, after this one. If more wait,
/// as many of the newest follow: one that has just come waits for no page.
pub fn all_waiting(db: &mut Db, after: Option<(Timestamp, String)>, most: i64) -> Result<WaitingPage, DbError> {
    let waiting = |after: Option<(Timestamp, String)>| {
        let mut waiting = alarms::table.filter(alarms::finished_at.is_null()).into_boxed();
        if let Some((at, id)) = after {
            // In a form that the index serves.
            waiting = waiting.filter(alarms::received_at.ge(at));
            waiting = waiting.filter(alarms::received_at.gt(at).or(alarms::id.gt(id)));
        }
        waiting.limit(most).select((alarms::server_id, WaitingPush::as_select()))
    };
    let mut rows: Vec<(Option<String>, WaitingPush)> =
        waiting(after).order((alarms::received_at, alarms::id)).load(db)?;
    let last = rows.last().filter(|_| rows.len() as i64 >= most).map(|(_, push)| (push.received_at, push.id.clone()));
    if last.is_some() {
        let newest = waiting(last.clone()).order((alarms::received_at.desc(), alarms::id.desc()));
        rows.extend(newest.load(db)?.into_iter().rev());
    }
    let pushes = rows.into_iter().filter_map(|(server, push)| Some((server?.into(), push))).collect();
    Ok(WaitingPage { pushes, last })
}

/// The server of this alarm, if it waits for its incident.
pub fn waits_for(db: &mut Db, id: &str) -> Result<Option<ServerId>, DbError> {
    let waiting = alarms::table.find(id).filter(alarms::finished_at.is_null());
    let server: Option<Option<String>> = waiting.select(alarms::server_id).first(db).optional()?;
    Ok(server.flatten().map(ServerId::from))
}

/// The ids of the alarms of this server that were finished last, oldest first.
pub fn newest_finished(db: &mut Db, server: &ServerId, limit: usize) -> Result<Vec<String>, DbError> {
    let finished =
        alarms::table.filter(alarms::server_id.eq(server.as_str())).filter(alarms::finished_at.is_not_null());
    let ids = finished.order(alarms::finished_at.desc()).limit(limit as i64).select(alarms::id);
    let mut ids: Vec<String> = ids.load(db)?;
    ids.reverse();
    Ok(ids)
}

/// The newest alarm of this user since then that fits none of their paired servers: what it says, and when it came.
pub fn last_unmatched(db: &mut Db, user: &UserId, since: Timestamp) -> Result<Option<(String, Timestamp)>, DbError> {
    let newest = alarms::table
        .filter(alarms::user_id.eq(user.as_str()))
        .filter(alarms::state.eq(AlarmState::Unmatched.word()))
        .filter(alarms::received_at.ge(since))
        .order((alarms::received_at.desc(), alarms::id.desc()))
        .select((alarms::title, alarms::received_at));
    Ok(newest.first(db).optional()?)
}

/// Number of alarms in each state, and since when the oldest unfinished one waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    pub counts: Vec<(&'static str, i64)>,
    pub oldest_unfinished: Option<Timestamp>,
}

/// The alarms in numbers.
pub fn tally(db: &mut Db) -> Result<Tally, DbError> {
    let mut counts = Vec::new();
    for state in [AlarmState::Received, AlarmState::Opened, AlarmState::Merged, AlarmState::Unmatched] {
        let count = alarms::table.filter(alarms::state.eq(state.word())).count().get_result(db)?;
        counts.push((state.word(), count));
    }
    let oldest: Option<Timestamp> =
        alarms::table.filter(alarms::finished_at.is_null()).select(min(alarms::received_at)).first(db)?;
    Ok(Tally { counts, oldest_unfinished: oldest })
}

/// Deletes what was finished before this time, a batch of it.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    let old = alarms::table.filter(alarms::finished_at.lt(before));
    let ids: Vec<String> = old.limit(PURGE_BATCH as i64).select(alarms::id).load(db)?;
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(diesel::delete(alarms::table.filter(alarms::id.eq_any(ids))).execute(db)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    fn alarm(id: &str, state: AlarmState) -> LedgerAlarm {
        LedgerAlarm { state, ..testing::received_alarm(id) }
    }

    #[test]
    fn an_alarm_is_received_once_and_has_one_incident() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            pool.write_blocking(|db| {
                assert!(receive(db, &alarm("a", AlarmState::Received))?);
                assert!(!receive(db, &alarm("a", AlarmState::Received))?, "it is stored");
                let waits = waiting(db, &"one".into())?;
                assert_eq!((waits.len(), waits[0].sent_at), (1, Some(now())));
                let page = all_waiting(db, None, 9)?;
                let all: Vec<_> = page.pushes.into_iter().map(|(server, push)| (server, push.id)).collect();
                assert_eq!((all, page.last), (vec![("one".into(), "a".to_owned())], None));
                assert_eq!(tally(db)?.oldest_unfinished, Some(now()));
                assert_eq!(waits_for(db, "a")?, Some("one".into()));
                assert!(assign(db, &"one".into(), "a", AlarmState::Opened, "incident", later(1))?);
                assert!(
                    !assign(db, &"one".into(), "a", AlarmState::Merged, "another", later(1))?,
                    "an alarm has one incident"
                );
                assert!(!assign(db, &"one".into(), "b", AlarmState::Merged, "another", later(1))?, "not stored");
                assert!(waiting(db, &"one".into())?.is_empty() && waits_for(db, "a")?.is_none());
                receive(db, &alarm("c", AlarmState::Received))?;
                wait_in(db, &["a", "c"], "of another node")?;
                assert_eq!(incident_of(db, &["none", "a"])?, Some("incident".into()), "it has one");
                let waits: Vec<_> =
                    waiting(db, &"one".into())?.into_iter().map(|push| (push.id, push.incident)).collect();
                assert_eq!(waits, [("c".to_owned(), Some("of another node".to_owned()))]);
                assert_eq!([waits_in(db, "a")?, waits_in(db, "c")?], [None, Some("of another node".to_owned())]);
                assert!(assign(db, &"one".into(), "c", AlarmState::Opened, "whole", later(1))?);
                assert_eq!(incident_of(db, &["c"])?, Some("whole".into()));
                assert!(all_waiting(db, None, 9)?.pushes.is_empty());
                let counts = vec![("received", 0), ("opened", 2), ("merged", 0), ("unmatched", 0)];
                assert_eq!(tally(db)?, Tally { counts, oldest_unfinished: None });
                Ok(())
            })
            .unwrap();
        });
    }

    #[test]
    fn the_newest_alarm_that_fits_no_server_is_the_user_s_own() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::user(pool, "bob");
            testing::server(pool, "alice", "one");
            pool.write_blocking(|db| {
                let unmatched = |id: &str, at| LedgerAlarm {
                    server: None,
                    title: id.into(),
                    received_at: at,
                    ..alarm(id, AlarmState::Unmatched)
                };
                receive(db, &unmatched("old", later(1)))?;
                receive(db, &unmatched("new", later(2)))?;
                receive(db, &LedgerAlarm { user: "bob".into(), ..unmatched("of bob", later(3)) })?;
                receive(db, &LedgerAlarm { received_at: later(4), ..alarm("fits", AlarmState::Received) })?;
                assert_eq!(last_unmatched(db, &"alice".into(), later(2))?, Some(("new".to_owned(), later(2))));
                assert_eq!(last_unmatched(db, &"alice".into(), later(3))?, None);
                Ok(())
            })
            .unwrap();
        });
    }

    #[test]
    fn alarms_that_wait_are_read_in_pages_over_and_over() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            pool.write_blocking(|db| {
                for (id, at) in [("b", now()), ("a", now()), ("c", later(1)), ("d", later(2)), ("e", later(3))] {
                    receive(db, &LedgerAlarm { received_at: at, ..alarm(id, AlarmState::Received) })?;
                }
                let (mut after, mut read) = (None, Vec::new());
                for _ in 0..4 {
                    let page = all_waiting(db, after, 2)?;
                    read.push(page.pushes.into_iter().map(|(_, push)| push.id).collect::<String>());
                    after = page.last;
                }
                assert_eq!(read, ["abde", "cde", "e", "abde"], "the newest do not wait for their page");
                Ok(())
            })
            .unwrap();
        });
    }

    #[test]
    fn what_is_unfinished_is_never_purged() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            testing::server(pool, "alice", "one");
            pool.write_blocking(|db| {
                receive(db, &LedgerAlarm { server: None, ..alarm("a", AlarmState::Unmatched) })?;
                receive(db, &alarm("b", AlarmState::Received))?;
                assert_eq!(purge(db, later(100))?, 1);
                assert_eq!(waiting(db, &"one".into())?.len(), 1);
                Ok(())
            })
            .unwrap();
        });
    }
}
