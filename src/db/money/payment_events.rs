//! Events of the payment provider: which were taken, and which wait because something about them is unknown.
//!
//! An event is recorded in the transaction of its effect. A waiting ("parked") one keeps what it takes to find its
//! subscription again, and never expires.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::payment_events,
    },
    domain::{
        ids::UserId,
        money::payment::{ChargeReport, ParkReason, SubscriptionRef, retry_at},
        time::Timestamp,
        timeline::Cursor,
    },
};

const PARKED: &str = "parked";
const REPORTED: &str = "reported";

/// The effect of a payment event so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventState {
    /// Its effect is stored.
    Applied,
    /// The event has no effect, for this reason.
    Ignored(&'static str),
    Parked(ParkReason),
}

impl EventState {
    fn columns(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Applied => ("applied", None),
            Self::Ignored(reason) => ("ignored", Some(reason)),
            Self::Parked(reason) => (PARKED, Some(reason.word())),
        }
    }
}

/// An event that waits, or that an admin has to see.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = payment_events)]
pub struct ShownEvent {
    pub id: String,
    /// The provider's word.
    pub kind: String,
    pub subscription_id: Option<String>,
    pub customer_id: Option<String>,
    /// The user named at checkout, or the payer of the charge.
    pub user_hint: Option<String>,
    pub reason: Option<String>,
    pub received_at: Timestamp,
    pub attempts: i32,
    pub next_attempt_at: Option<Timestamp>,
    pub charge_id: Option<String>,
}

/// True if the event was taken and does not wait.
pub fn is_settled(db: &mut Db, id: &str) -> Result<bool, DbError> {
    let state: Option<String> = payment_events::table.find(id).select(payment_events::state).first(db).optional()?;
    Ok(state.is_some_and(|state| state != PARKED))
}

/// Records the state of an event; one that was parked is settled, or parked for longer when its turn had come and no
/// process had claimed it: the provider may send it many times meanwhile.
///
/// Call it in the transaction of the effect ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn record(
    db: &mut Db,
    id: &str,
    kind: &str,
    about: Option<&SubscriptionRef>,
    state: EventState,
    now: Timestamp,
) -> Result<(), DbError> {
    // A settled event stays so, also when another process has settled it since this one looked.
    let is_parked = payment_events::table.find(id).filter(payment_events::state.eq(PARKED));
    let known: Option<(i32, Option<Timestamp>)> = payment_events::table
        .find(id)
        .select((payment_events::attempts, payment_events::next_attempt_at))
        .first(db)
        .optional()?;
    if let (Some((_, Some(next))), EventState::Parked(reason)) = (known, state)
        && now < next
    {
        diesel::update(is_parked).set(payment_events::reason.eq(reason.word())).execute(db)?;
        return Ok(());
    }
    let is_new = known.is_none();
    let attempts = known.map_or(0, |(attempts, _)| attempts.saturating_add(1));
    let next = matches!(state, EventState::Parked(_)).then(|| retry_at(attempts, now));
    let (state, reason) = state.columns();
    let now_known = (
        payment_events::state.eq(state),
        payment_events::reason.eq(reason),
        payment_events::attempts.eq(attempts),
        payment_events::next_attempt_at.eq(next),
    );
    let row = (
        payment_events::id.eq(id),
        payment_events::kind.eq(kind),
        payment_events::subscription_id.eq(about.map(|about| about.id.as_str())),
        payment_events::customer_id.eq(about.and_then(|about| about.customer.as_deref())),
        payment_events::user_hint.eq(about.and_then(|about| about.user.as_deref())),
        payment_events::received_at.eq(now),
        now_known,
    );
    let insert = diesel::insert_into(payment_events::table).values(row).on_conflict_do_nothing();
    if !is_new || on_backend!(db, |db| insert.execute(db))? == 0 {
        diesel::update(is_parked).set(now_known).execute(db)?;
    }
    Ok(())
}

/// The payer of a charge, as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payer<'a> {
    pub customer: Option<&'a str>,
    pub user: Option<&'a UserId>,
}

/// Records an event that an admin has to see.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn report(
    db: &mut Db,
    id: &str,
    kind: &str,
    report: &ChargeReport,
    payer: Payer<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    let row = (
        payment_events::id.eq(id),
        payment_events::kind.eq(kind),
        payment_events::customer_id.eq(payer.customer),
        payment_events::user_hint.eq(payer.user.map(UserId::as_str)),
        payment_events::charge_id.eq(report.charge.as_deref()),
        payment_events::state.eq(REPORTED),
        payment_events::reason.eq(report.kind.word()),
        payment_events::received_at.eq(now),
        payment_events::attempts.eq(0),
    );
    diesel::insert_into(payment_events::table).values(row).execute(db)?;
    Ok(())
}

/// The number of events that an admin has to see, and the newest of them, or of those before this place.
pub fn reported(db: &mut Db, before: Option<&Cursor>, limit: usize) -> Result<(usize, Vec<ShownEvent>), DbError> {
    let reported = || payment_events::table.filter(payment_events::state.eq(REPORTED));
    let count: i64 = reported().count().get_result(db)?;
    let order = (payment_events::received_at.desc(), payment_events::id.desc());
    let mut newest = reported().order(order).limit(limit as i64).into_boxed();
    if let Some(Cursor { ts, id }) = before {
        // In a form that an index can serve.
        let (at, received_at) = (ts, payment_events::received_at);
        newest = newest.filter(received_at.le(at).and(received_at.lt(at).or(payment_events::id.lt(id))));
    }
    Ok((usize::try_from(count).unwrap_or(usize::MAX), newest.select(ShownEvent::as_select()).load(db)?))
}

/// At most `limit` parked events whose turn has come.
pub fn due(db: &mut Db, limit: i64, now: Timestamp) -> Result<Vec<ShownEvent>, DbError> {
    let due = payment_events::table
        .filter(payment_events::next_attempt_at.le(now))
        .order(payment_events::next_attempt_at)
        .limit(limit)
        .select(ShownEvent::as_select());
    Ok(due.load(db)?)
}

/// Takes the turn of the parked event that is due first, for one of all processes. It is to be tried then: if nothing
/// becomes of that, also because the process ends, its next turn comes as after every attempt.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn claim(db: &mut Db, now: Timestamp) -> Result<Option<ShownEvent>, DbError> {
    while let Some(event) = due(db, 1, now)?.pop() {
        let attempts = event.attempts.saturating_add(1);
        let is_due = payment_events::table.find(&event.id).filter(payment_events::next_attempt_at.le(now));
        let taken =
            (payment_events::attempts.eq(attempts), payment_events::next_attempt_at.eq(retry_at(attempts, now)));
        if diesel::update(is_due).set(taken).execute(db)? == 1 {
            return Ok(Some(event));
        }
        // Another process has taken it.
    }
    Ok(None)
}

/// The number of parked events, and the oldest of them, or of those after this place.
pub fn parked(db: &mut Db, after: Option<&Cursor>, limit: usize) -> Result<(usize, Vec<ShownEvent>), DbError> {
    let parked = || payment_events::table.filter(payment_events::state.eq(PARKED));
    let count: i64 = parked().count().get_result(db)?;
    let order = (payment_events::received_at, payment_events::id);
    let mut oldest = parked().order(order).limit(limit as i64).into_boxed();
    if let Some(Cursor { ts, id }) = after {
        let (at, received_at) = (ts, payment_events::received_at);
        oldest = oldest.filter(received_at.ge(at).and(received_at.gt(at).or(payment_events::id.gt(id))));
    }
    Ok((usize::try_from(count).unwrap_or(usize::MAX), oldest.select(ShownEvent::as_select()).load(db)?))
}

/// Deletes a batch of what was settled before; returns how many. The provider sends an event again for 30 days.
pub fn purge(db: &mut Db, before: Timestamp) -> Result<usize, DbError> {
    let mut purged = 0;
    for state in ["applied", "ignored", REPORTED] {
        let ids: Vec<String> = payment_events::table
            .filter(payment_events::state.eq(state))
            .filter(payment_events::received_at.le(before))
            .order(payment_events::received_at)
            .limit((crate::db::PURGE_BATCH - purged) as i64)
            .select(payment_events::id)
            .load(db)?;
        if ids.is_empty() {
            continue;
        }
        purged += diesel::delete(payment_events::table.filter(payment_events::id.eq_any(ids))).execute(db)?;
    }
    Ok(purged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn the_turn_of_a_parked_event_is_taken_once() {
        testing::on_each_database(|pool| {
            let record = |id: &str, state, at| {
                pool.write_blocking(|db| record(db, id, "updated", None, state, at)).unwrap();
            };
            for id in ["evt_1", "evt_2", "evt_3"] {
                record(id, EventState::Parked(ParkReason::ProviderUnavailable), now());
            }
            let claim = |at| pool.write_blocking(|db| claim(db, at)).unwrap().map(|event| event.id);
            assert_eq!(claim(later(29)), None);
            let mut claimed = std::thread::scope(|scope| {
                let threads = [0; 8].map(|_| scope.spawn(|| claim(later(30))));
                threads.map(|thread| thread.join().unwrap()).to_vec()
            });
            claimed.sort();
            let once = ["evt_1", "evt_2", "evt_3"].map(|id| Some(id.to_owned()));
            assert_eq!((&claimed[..5], &claimed[5..]), (&[const { None }; 5][..], &once[..]));
            // One is parked again, one settled; of the third is heard no more.
            let place = Cursor { ts: now(), id: "evt_1".to_owned() };
            let (count, after) = pool.read_blocking(|db| parked(db, Some(&place), 1)).unwrap();
            assert_eq!((count, after[0].id.as_str()), (3, "evt_2"), "of the same time");
            record("evt_1", EventState::Parked(ParkReason::UnknownUser), later(31));
            record("evt_2", EventState::Applied, later(31));
            let (count, oldest) = pool.read_blocking(|db| parked(db, None, 9)).unwrap();
            let shown: Vec<_> = oldest.iter().map(|event| (event.attempts, event.reason.as_deref())).collect();
            assert_eq!((count, shown), (2, vec![(1, Some("unknown_user")), (1, Some("provider_unavailable"))]));
            assert_eq!(claim(later(89)), None, "after another minute");
            assert!(claim(later(90)).is_some() && claim(later(90)).is_some() && claim(later(90)).is_none());
        });
    }

    #[test]
    fn a_parked_event_waits_longer_each_time_and_is_never_purged() {
        testing::on_each_database(|pool| {
            let about = SubscriptionRef { id: "sub_1".into(), customer: Some("cus_1".into()), user: Some("u".into()) };
            let record = |state, at| {
                pool.write_blocking(|db| record(db, "evt_1", "updated", Some(&about), state, at)).unwrap();
            };
            let due = |at| pool.read_blocking(|db| due(db, 9, at)).unwrap();
            let settled = || pool.read_blocking(|db| is_settled(db, "evt_1")).unwrap();
            let parked = EventState::Parked(ParkReason::UnknownUser);
            assert!(!settled());
            record(parked, now());
            assert_eq!((due(later(29)).len(), due(later(30)).len(), settled()), (0, 1, false));
            record(parked, later(29));
            assert_eq!(due(later(30)).len(), 1, "one that comes again keeps its turn");
            record(parked, later(30));
            assert_eq!((due(later(89)).len(), due(later(90)).len()), (0, 1));
            let (count, oldest) = pool.read_blocking(|db| super::parked(db, None, 9)).unwrap();
            assert_eq!((count, oldest[0].attempts, oldest[0].received_at), (1, 1, now()));
            assert_eq!(oldest[0].reason.as_deref(), Some("unknown_user"));
            assert_eq!(pool.write_blocking(|db| purge(db, later(99))).unwrap(), 0);
            record(EventState::Applied, later(90));
            record(parked, later(91));
            assert_eq!((due(later(9_999)).len(), settled()), (0, true), "it stays settled");
            assert_eq!(pool.write_blocking(|db| purge(db, later(99))).unwrap(), 1);
        });
    }
}
