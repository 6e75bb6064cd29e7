//! Transactions that change messages of the same channels at once: they wait for each other in the order of [`channels::lock`].

use super::{
    acknowledged::{rung, said},
    merged::merge,
    *,
};
use crate::db::notices::merged_notices;

/// Two nodes on one database; `None` without PostgreSQL: transactions of SQLite come one after the other.
fn two_nodes() -> Option<(testing::Postgres, [Pool; 2])> {
    let postgres = testing::Postgres::create_migrated()?;
    let nodes = [(); 2].map(|()| Pool::open(&postgres.database()).unwrap());
    Some((postgres, nodes))
}

#[test]
fn outcomes_of_a_part_and_of_the_acknowledgement_of_its_whole_are_stored_by_two_nodes_at_once() {
    let Some((_postgres, [pool, other])) = two_nodes() else { return };
    let server = furnish(&pool);
    pool.write_blocking(|db| incidents::write(db, &server, &testing::incident_write("whole", 1))).unwrap();
    step(&pool, later(0));
    for message in sent(&pool, later(0)) {
        end(&pool, &message, &ACCEPTED, later(1));
    }
    let acknowledge = |db: &mut Db| incidents::acknowledge(db, &server, "whole", &"guest".into(), later(2));
    pool.write_blocking(acknowledge).unwrap().unwrap();
    let before = said(&pool, later(2));
    assert_eq!(channels_of(&before), ["hook"]);
    let part = rung(&pool, &server).into_iter().find(|message| message.channel_id == "hook").unwrap();
    merge(&pool, &server);
    let (of_part, of_whole) = ([attempt(part, ACCEPTED)], [attempt(before[0].clone(), ACCEPTED)]);
    std::thread::scope(|scope| {
        let stored = pool.write_blocking(|db| {
            merged_notices::adopt(db, &of_part, later(3))?;
            scope.spawn(|| other.write_blocking(|db| note_outcomes(db, &of_whole, later(3))).unwrap());
            testing::until_another_waits(db);
            note_outcomes(db, &of_part, later(3))
        });
        stored.unwrap();
    });
    let again = said(&pool, later(4));
    assert_eq!(channels_of(&again), ["hook"], "the one under way has named no part");
    assert_ne!(again[0].id, before[0].id);
}

#[test]
fn a_merge_waits_for_outcomes_of_the_messages_of_its_part() {
    let Some((_postgres, [pool, other])) = two_nodes() else { return };
    let server = furnish(&pool);
    pool.write_blocking(|db| incidents::write(db, &server, &testing::incident_write("whole", 1))).unwrap();
    ring(&pool, &server, 1);
    step(&pool, later(0));
    let of_part = |message: &NoticeDelivery| message.incident_id == "incident" && message.channel_id == "browser";
    let message = sent(&pool, later(0)).into_iter().find(of_part).unwrap();
    let failed =
        DeliveryOutcome::Failed { status: Some(503), fault: ChannelFault::Unavailable, retry_at: Some(later(9)) };
    // The first locks the message, and the second, in the same transaction, the notice: its next step is sooner.
    let [first, second] = [ACCEPTED, failed].map(|outcome| [attempt(message.clone(), outcome)]);
    std::thread::scope(|scope| {
        let stored = pool.write_blocking(|db| {
            note_outcomes(db, &first, later(1))?;
            scope.spawn(|| merge(&other, &server));
            testing::until_another_waits(db);
            note_outcomes(db, &second, later(1))
        });
        stored.unwrap();
    });
    assert_eq!(pool.read_blocking(|db| incidents::get(db, "incident")).unwrap(), None);
}

#[test]
fn an_outcome_that_cannot_be_stored_waits_for_one_of_its_channel_that_can() {
    let Some((_postgres, [pool, other])) = two_nodes() else { return };
    let server = furnish(&pool);
    ring(&pool, &server, 1);
    step(&pool, later(0));
    let message = sent(&pool, later(0)).into_iter().find(|message| message.channel_id == "browser").unwrap();
    let gone = DeliveryOutcome::Failed { status: Some(410), fault: ChannelFault::Gone, retry_at: None };
    // Sent twice, by two nodes.
    let [taken, gone] = [ACCEPTED, gone].map(|outcome| [attempt(message.clone(), outcome)]);
    std::thread::scope(|scope| {
        let stored = pool.write_blocking(|db| {
            channels::lock(db, ["browser"].into_iter())?;
            scope.spawn(|| other.write_blocking(|db| end_alone(db, &gone[0], later(1))).unwrap());
            testing::until_another_waits(db);
            note_outcomes(db, &taken, later(1))
        });
        stored.unwrap();
    });
    let browser = pool.read_blocking(|db| channels::get(db, &"browser".into())).unwrap().unwrap();
    assert_eq!(browser.state, ChannelState::Gone.word());
}
