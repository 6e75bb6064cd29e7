//! Acknowledgements that the database does not take in time.

use super::*;
use crate::{db::notices::notice_queue::NoticeKey, relay::alarms::alarm_delivery::acknowledging::KeptAcknowledgement};

impl Life {
    async fn keep(&self, incident: &str, user: &str) -> KeptAcknowledgement {
        let at = self.alarms.context.clock.now();
        let (kept, news) = self.alarms.clone().keep_acknowledgement(incident.to_owned(), user.into(), at).await;
        self.publish(news).all.await;
        kept
    }

    /// The users who have taken note, as the state shows them.
    fn acks(&self, incident: &str) -> Vec<String> {
        self.raids()[incident]["acks"].as_object().unwrap().keys().cloned().collect()
    }
}

/// A start at which an alarm has rung before the ledger was read, the incident there to which it belongs, and its own.
async fn rung_before_the_ledger(world: &World) -> (Life, String, String) {
    let known = world.rang_before().await;
    world.later(20);
    let life = world.start_unread(1);
    life.link_alarm().await;
    let part = life.seen()[0].0.clone();
    life.alarms.ledger.idle().await;
    (life, known, part)
}

/// Alice has taken note of the incident, of which that one is a part: nothing of it rings for her.
async fn assert_noted(world: &World, life: &Life, incident: &str, part: &str) {
    assert_eq!(life.acks(incident), ["alice"]);
    for id in [incident, part] {
        let notice = NoticeKey { incident: id.to_owned(), user: "alice".into() };
        assert!(world.context.early_alarms.changes.is_acknowledged(&notice), "{id} rings by channels");
    }
    world.later(15);
    life.link_alarm().await;
    assert_eq!((life.seen().len(), &life.raids()[incident]["count"]), (1, &3.into()), "it counts on");
}

#[actix::test]
async fn an_acknowledgement_on_its_way_while_its_alarm_becomes_a_part_is_one_of_the_whole() {
    let world = World::new();
    let (life, known, part) = rung_before_the_ledger(&world).await;
    life.load().await;
    life.acknowledged(&part, "alice", world.context.clock.now());
    assert_noted(&world, &life, &known, &part).await;
}

#[actix::test]
async fn an_acknowledgement_that_comes_while_the_ledger_is_read_counts_for_what_is_found_there() {
    let world = World::new();
    let (life, known, part) = rung_before_the_ledger(&world).await;
    // The ledger is read as it was a moment ago.
    life.acknowledged(&known, "alice", world.context.clock.now());
    life.load().await;
    assert_noted(&world, &life, &known, &part).await;
}

#[actix::test]
async fn an_acknowledgement_that_is_kept_while_its_alarm_becomes_a_part_is_one_of_the_whole() {
    let world = World::new();
    let (life, known, part) = rung_before_the_ledger(&world).await;
    let lock = world.freeze();
    let (kept, ()) = tokio::join!(life.keep(&part, "alice"), life.load());
    assert!(matches!(kept, KeptAcknowledgement::Kept(_)));
    assert_eq!(life.acks(&known), ["alice"]);
    drop(lock);
    assert_eq!(world.ledger(&life).await, [row("acknowledged", 2, 1)]);
}

#[actix::test]
async fn an_acknowledgement_in_a_frozen_database_counts_at_once_and_outlives_a_kill() {
    let world = World::new();
    let life = world.start(1).await;
    let lock = world.freeze();
    life.link_alarm().await;
    let incident = life.seen()[0].0.clone();
    assert_eq!(life.keep("unknown", "alice").await, KeptAcknowledgement::UnknownIncident);
    let KeptAcknowledgement::Kept(known) = life.keep(&incident, "alice").await else { panic!("it is kept") };
    assert_eq!((&*known.id, &*known.state, known.incident.acks.len()), (&*incident, "acknowledged", 1));
    assert_eq!(life.acks(&incident), ["alice"]);
    let notice = NoticeKey { incident: incident.clone(), user: "alice".into() };
    assert!(world.context.early_alarms.changes.is_acknowledged(&notice), "no channel rings for it");

    let length = || world.directory.path().join(journal::JOURNAL).metadata().unwrap().len();
    let kept = length();
    assert!(matches!(life.keep(&incident, "alice").await, KeptAcknowledgement::Kept(_)));
    assert_eq!(length(), kept, "it is kept once");

    let killed = world.after_a_kill();
    let again = killed.start(1).await;
    assert_eq!(again.acks(&incident), ["alice"]);
    assert_eq!(killed.ledger(&again).await, [row("acknowledged", 1, 0)]);

    drop(lock);
    assert_eq!(world.ledger(&life).await, [row("acknowledged", 1, 1)]);
    // The line goes after the database has it.
    let gone = async {
        while length() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.expect("the database has it");
}

#[actix::test]
async fn an_acknowledgement_that_nothing_keeps_is_no_success_and_given_again_it_is() {
    let world = World::new();
    let life = world.start(1).await;
    life.link_alarm().await;
    let incident = life.seen()[0].0.clone();
    life.alarms.ledger.idle().await;
    let path = world.directory.path().join(journal::JOURNAL);
    let lock = world.freeze();
    // Where the journal was is a directory: it can be neither written nor brought back.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(life.keep(&incident, "alice").await, KeptAcknowledgement::NotKept);
    assert!(life.acks(&incident).is_empty());
    std::fs::remove_dir(&path).unwrap();
    assert!(matches!(life.keep(&incident, "alice").await, KeptAcknowledgement::Kept(_)));
    drop(lock);
    assert_eq!(world.ledger(&life).await, [row("acknowledged", 1, 1)]);
}
