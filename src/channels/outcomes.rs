//! Outcomes of attempts, stored in batches. One that cannot be stored holds up no other.

use crate::{
    channels::orphaned_emergencies::OrphanedEmergencies,
    db::{
        alarms::emergencies,
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        notices::{
            merged_notices,
            notice_queue::{self, EndedAttempt},
        },
    },
    domain::time::Timestamp,
};

/// Stores these outcomes; emergencies among them whose rows are gone are `orphaned`. Returns those that are stored: the messages
/// of the others are still due although they were sent.
pub async fn store<'a>(
    pool: &Pool,
    orphaned: &OrphanedEmergencies,
    ended: &'a [EndedAttempt],
    now: Timestamp,
) -> Result<Vec<&'a EndedAttempt>, DbError> {
    match write(pool, orphaned, ended.to_vec(), now).await {
        Ok(()) => return Ok(ended.iter().collect()),
        Err(error) if is_of_rows(&error) => {}
        Err(error) => return Err(error),
    }
    let mut kept = Vec::new();
    for attempt in ended {
        let stored = match write(pool, orphaned, vec![attempt.clone()], now).await {
            Err(error) if is_of_rows(&error) => end_alone(pool, attempt, error, now).await,
            stored => stored,
        };
        match stored {
            Ok(()) => kept.push(attempt),
            Err(error) if is_of_rows(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

async fn write(
    pool: &Pool,
    orphaned: &OrphanedEmergencies,
    ended: Vec<EndedAttempt>,
    now: Timestamp,
) -> Result<(), DbError> {
    let store = move |db: &mut Db| {
        merged_notices::adopt(db, &ended, now)?;
        notice_queue::note_outcomes(db, &ended, now)?;
        emergencies::unkept(db, &ended, now)
    };
    orphaned.add(pool.write(store).await?);
    Ok(())
}

async fn end_alone(pool: &Pool, attempt: &EndedAttempt, error: DbError, now: Timestamp) -> Result<(), DbError> {
    let (incident, channel) = (&*attempt.delivery.incident_id, &*attempt.delivery.channel_id);
    log::error!(incident, channel; "what came of an alarm by a channel cannot be stored: {error}");
    let attempt = attempt.clone();
    pool.write(move |db: &mut Db| notice_queue::end_alone(db, &attempt, now)).await
}

/// True if rows, or what is stored of them, may be at fault: others can be stored.
fn is_of_rows(error: &DbError) -> bool {
    match error {
        DbError::NotFound | DbError::Conflict | DbError::Query(_) | DbError::Malformed(_) | DbError::Panicked => true,
        DbError::Unavailable(_) | DbError::Damaged(_) | DbError::NewerSchema(_) | DbError::Fenced => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            alarms::{incidents, notice_messages, notice_steps},
            engine::prelude::*,
            notices::{
                channels::{self, tests::channel},
                deliveries,
                notice_queue::DeliveryOutcome,
            },
            testing::{self, later, now},
        },
        domain::channels::{
            channel_lane::{ChannelLane, LaneLoad},
            user_channel::{ChannelFault, ChannelKind},
        },
    };

    const USERS: [&str; 3] = ["alice", "bob", "carol"];

    /// Messages of an alarm to three users, each by a channel with the user's name, as attempts that failed.
    fn failed(pool: &Pool) -> Vec<EndedAttempt> {
        USERS.iter().for_each(|user| testing::user(pool, user));
        let server = testing::server(pool, "alice", "server").id;
        for user in &USERS[1..] {
            testing::guest(pool, user, "server", user);
        }
        let ring = |db: &mut Db| {
            for user in USERS {
                channels::insert(db, &channel(user, user, ChannelKind::Ntfy, user), 9)?.unwrap();
            }
            incidents::write(db, &server, &testing::incident_write("incident", 1))?;
            notice_steps::make_due(db, now(), 9)?;
            notice_messages::due(db, now(), ChannelLane::Unproven, &LaneLoad { room: 9, ..LaneLoad::default() })
        };
        let fault = ChannelFault::Unavailable;
        let outcome = DeliveryOutcome::Failed { status: None, fault, retry_at: Some(later(60)) };
        let attempt = |message: notice_messages::SendableMessage| EndedAttempt {
            channel: message.channel,
            delivery: message.delivery,
            outcome: outcome.clone(),
        };
        pool.write_blocking(ring).unwrap().sendable.into_iter().map(attempt).collect()
    }

    /// No failure of Bob's channel can be stored from now on.
    fn spoil_channel_of_bob(pool: &Pool) {
        let spoil = |db: &mut Db| {
            let spoil = match db {
                Db::Sqlite(_) => "UPDATE channels SET failing_since = 'no time' WHERE id = 'bob'",
                Db::Pg(_) => "ALTER TABLE channels ADD CHECK (id <> 'bob' OR failures = 0)",
            };
            Ok(diesel::sql_query(spoil).execute(db)?)
        };
        pool.write_blocking(spoil).unwrap();
    }

    #[test]
    fn an_outcome_that_cannot_be_stored_holds_up_no_other_and_its_message_is_not_sent_again() {
        testing::on_each_database(|pool| {
            let ended = failed(pool);
            spoil_channel_of_bob(pool);
            let kept = actix::System::new().block_on(store(pool, &Default::default(), &ended, later(1))).unwrap();
            let mut free: Vec<&str> = kept.iter().map(|attempt| attempt.delivery.channel_id.as_str()).collect();
            free.sort_unstable();
            assert_eq!(free, USERS);
            let states = USERS.map(|user| {
                let list = pool.read_blocking(|db| deliveries::list(db, "incident", &user.into())).unwrap();
                let [message] = &*list else { panic!("{list:?}") };
                (message.state.clone(), message.attempts)
            });
            let queued = ("queued".to_owned(), 1);
            assert_eq!(states, [queued.clone(), ("failed".to_owned(), 0), queued]);
        });
    }

    #[test]
    fn a_channel_is_gone_also_if_its_outcome_cannot_be_stored() {
        testing::on_each_database(|pool| {
            let mut ended = failed(pool);
            let gone = DeliveryOutcome::Failed { status: Some(410), fault: ChannelFault::Gone, retry_at: None };
            ended.iter_mut().for_each(|attempt| attempt.outcome = gone.clone());
            spoil_channel_of_bob(pool);
            let kept = actix::System::new().block_on(store(pool, &Default::default(), &ended, later(1))).unwrap();
            let known = pool.read_blocking(|db| channels::get_all(db, &USERS)).unwrap();
            let states: Vec<&str> = known.iter().map(|channel| channel.state.as_str()).collect();
            assert_eq!((kept.len(), states), (3, vec!["gone"; 3]));
        });
    }

    #[test]
    fn an_emergency_is_ended_whose_channel_was_deleted_while_it_was_under_way() {
        testing::on_each_database(|pool| {
            let mut ended = failed(pool);
            for attempt in &mut ended {
                let id = attempt.channel.id.clone();
                attempt.channel.kind = ChannelKind::Pushover.word().to_owned();
                attempt.outcome = DeliveryOutcome::Accepted { status: Some(200), receipt: Some(format!("r{id}")) };
            }
            let delete = |db: &mut Db| emergencies::delete_channel(db, &"bob".into(), &"bob".into(), later(1));
            assert_eq!(pool.write_blocking(delete).unwrap(), (true, vec![]), "it has not begun");
            let orphaned = OrphanedEmergencies::default();
            actix::System::new().block_on(store(pool, &orphaned, &ended, later(2))).unwrap();
            let receipts = orphaned.take().into_iter().map(|one| (one.channel.id, one.emergency.receipt.unwrap()));
            assert_eq!(receipts.collect::<Vec<_>>(), [("bob".to_owned(), "rbob".to_owned())]);
            let over = pool.read_blocking(|db| emergencies::over(db, later(3), None, 9)).unwrap();
            assert_eq!(over, emergencies::Emergencies::default(), "the others go on");
        });
    }

    #[test]
    fn of_two_emergencies_that_a_message_has_begun_at_two_nodes_one_is_ended_at_once() {
        testing::on_each_database(|pool| {
            let mut ended = failed(pool);
            ended.truncate(1);
            ended[0].channel.kind = ChannelKind::Pushover.word().to_owned();
            let orphaned = OrphanedEmergencies::default();
            for receipt in ["first", "second"] {
                let receipt = Some(receipt.to_owned());
                ended[0].outcome = DeliveryOutcome::Accepted { status: Some(200), receipt };
                actix::System::new().block_on(store(pool, &orphaned, &ended, later(1))).unwrap();
            }
            let receipts: Vec<_> = orphaned.take().into_iter().map(|one| one.emergency.receipt.unwrap()).collect();
            assert_eq!(receipts, ["second"]);
            let user = ended[0].delivery.user_id.as_str().into();
            let acknowledge = |db: &mut Db| incidents::acknowledge(db, &"server".into(), "incident", &user, later(2));
            pool.write_blocking(acknowledge).unwrap().unwrap();
            let over = pool.read_blocking(|db| emergencies::over(db, later(3), None, 9)).unwrap().over;
            let receipts: Vec<_> = over.into_iter().map(|one| one.receipt.unwrap()).collect();
            assert_eq!(receipts, ["first"]);
        });
    }
}
