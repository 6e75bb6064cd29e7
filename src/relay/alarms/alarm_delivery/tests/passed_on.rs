//! Alarms that another node announced when it had the server no longer, or keeps in its journal.

use super::*;
use crate::{
    db::alarms::spoken_alarms,
    domain::channels::spoken_alarm::{SpokenLine, SpokenState},
};

/// A write of that node: this alarm opened this incident, and Alice has taken note of it or not.
fn of_another_node(world: &World, alarm: &str, incident: &str, is_acknowledged: bool) {
    let now = world.context.clock.now();
    let mut write = testing::incident_write(incident, 1);
    write.incidents.values_mut().for_each(|(facts, _)| (facts.first_at, facts.last_at) = (now, now));
    let title = String::from("Front door");
    let row = LedgerAlarm { title, received_at: now, ..testing::opened_alarm(alarm, incident) };
    write.alarms.insert(alarm.into(), row);
    if is_acknowledged {
        write.acks.insert(incident.into(), [("alice".into(), now)].into());
    }
    let store = |db: &mut Db| incidents::write_for_another_node(db, &"one".into(), &write);
    world.context.pool.write_blocking(store).unwrap();
}

/// The alarms that wait, as the hub gives them to the game connection.
fn waiting(world: &World) -> Vec<PushedAlarm> {
    let waiting = world.context.pool.read_blocking(|db| alarm_ledger::waiting(db, &"one".into())).unwrap();
    waiting.into_iter().map(PushedAlarm::from).collect()
}

/// Takes up what waits; the number of alarms.
async fn take_up(world: &World, life: &Life) -> usize {
    let pushes = waiting(world);
    let count = pushes.len();
    join_all(pushes.into_iter().map(|push| life.pushed_alarm(push))).await;
    life.alarms.ledger.idle().await;
    count
}

#[actix::test]
async fn an_alarm_that_another_node_has_announced_goes_on_in_its_incident() {
    let world = World::new();
    let life = world.start(1).await;
    of_another_node(&world, "a", "noted", true);
    assert_eq!(take_up(&world, &life).await, 1);
    assert_eq!(world.ledger(&life).await, [row("acknowledged", 1, 0)], "it has opened no second one");
    assert!(life.raids()["noted"]["acks"]["alice"].is_string());
    assert!(life.seen().is_empty(), "a user has taken note");
    assert_eq!((world.alarms(), take_up(&world, &life).await), (vec![("opened", 1)], 0));
}

#[actix::test]
async fn an_incident_of_another_node_that_no_one_heard_of_is_announced() {
    let world = World::new();
    let life = world.start(1).await;
    of_another_node(&world, "a", "silent", false);
    assert_eq!(take_up(&world, &life).await, 1);
    assert_eq!(life.seen(), [("silent".to_owned(), 1, true)]);
    assert_eq!(world.ledger(&life).await, [row("delivered", 1, 1)]);
    // The incident goes on here: its device rings again.
    world.later(2);
    life.link_alarm().await;
    assert_eq!(world.ledger(&life).await.len(), 1);
}

#[actix::test]
async fn an_acknowledgement_that_comes_while_the_incident_of_another_node_is_read_counts() {
    let world = World::new();
    let life = world.start(1).await;
    of_another_node(&world, "a", "elsewhere", false);
    // The incident is read as it was a moment ago.
    let acknowledge = async { life.acknowledged("elsewhere", "alice", world.context.clock.now()) };
    let (count, ()) = tokio::join!(take_up(&world, &life), acknowledge);
    assert_eq!(count, 1);
    assert!(life.raids()["elsewhere"]["acks"]["alice"].is_string());
    assert!(life.alarms.noted.borrow().is_empty(), "none waits for another reading");
}

#[actix::test]
async fn an_alarm_that_is_in_an_incident_already_makes_that_of_another_node_a_part_of_it() {
    let world = World::new();
    let life = world.start(1).await;
    let push = world.receive("a", "Front door");
    life.pushed_alarm(push).await;
    assert_eq!(world.ledger(&life).await, [row("delivered", 1, 1)]);
    of_another_node(&world, "a", "elsewhere", true);
    assert_eq!(take_up(&world, &life).await, 0);
    assert_eq!(world.ledger(&life).await, [row("acknowledged", 1, 1)]);
    // A journal may be read twice.
    of_another_node(&world, "a", "elsewhere", true);
    assert_eq!(world.ledger(&life).await.len(), 1);
}

#[actix::test]
async fn an_alarm_that_another_node_announces_while_it_opens_an_incident_here_is_in_one() {
    let world = World::new();
    let life = world.start(1).await;
    let push = world.receive("a", "Front door");
    of_another_node(&world, "a", "elsewhere", true);
    life.pushed_alarm(push).await;
    assert_eq!(world.ledger(&life).await, [row("acknowledged", 1, 1)]);
    assert_eq!((world.alarms(), take_up(&world, &life).await), (vec![("opened", 1)], 0));
}

#[actix::test]
async fn a_push_that_came_late_is_in_the_incident_of_the_node_whose_link_saw_its_alarm() {
    let world = World::new();
    let life = world.start(1).await;
    let push = world.receive("push", "Roof");
    // A moment later; this node knows nothing of it until it takes up what waits.
    world.context.clock.advance(TimeDelta::milliseconds(2));
    of_another_node(&world, "a", "0-elsewhere", false);
    world.later(13);
    life.pushed_alarm(push).await;
    assert_eq!(world.ledger(&life).await.len(), 2);
    assert_eq!(take_up(&world, &life).await, 1);
    assert_eq!(world.ledger(&life).await.len(), 1);
    assert_eq!(world.alarms(), [("opened", 1), ("merged", 1)]);
    let raids = life.raids();
    assert_eq!((raids.as_object().unwrap().len(), &raids["0-elsewhere"]["alarmId"]), (1, &"7".into()));
}

#[actix::test]
async fn the_line_of_an_alarm_that_another_node_has_left_unsaid_is_said_here() {
    for (ended_after, said_here) in [(None, 1), (Some(TimeDelta::seconds(1)), 0)] {
        let world = World::new();
        let life = world.start(1).await;
        of_another_node(&world, "a", "elsewhere", false);
        let queued_at = world.context.clock.now();
        let state = if ended_after.is_some() { SpokenState::Accepted } else { SpokenState::Queued };
        let line = SpokenLine { state, fault: None, queued_at, ended_at: ended_after.map(|after| queued_at + after) };
        let put = |db: &mut Db| spoken_alarms::put(db, &"one".into(), "elsewhere", line);
        world.context.pool.write_blocking(put).unwrap();
        let mut unsaid = Vec::new();
        for push in waiting(&world) {
            let taken_up = life.alarms.clone().take_up(push, ReceivedAt::now()).await.expect("it is new");
            let news = life.alarms.clone().pushed_alarm(taken_up, BTreeSet::new()).await;
            unsaid.extend(news.unsaid.into_iter().map(|raid| (raid.incident, raid.update)));
        }
        assert_eq!(unsaid, vec![("elsewhere".to_owned(), false); said_here]);
    }
}
