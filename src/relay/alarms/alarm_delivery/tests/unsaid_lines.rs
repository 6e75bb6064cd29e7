//! Lines in the team's chat that a process has left unsaid.

use super::*;
use crate::{
    db::alarms::spoken_alarms,
    domain::channels::spoken_alarm::{SpokenLine, SpokenState},
};

/// Incidents that a start says in the team's chat.
async fn unsaid(world: &World) -> Vec<String> {
    let loaded = world.start_unread(0).alarms.clone().load().await;
    loaded.news.unsaid.into_iter().map(|raid| raid.incident).collect()
}

#[actix::test]
async fn a_start_says_alarms_of_the_last_minute_whose_lines_have_no_end() {
    let world = World::new();
    let rung = world.rang_before().await;

    world.later(10);
    assert_eq!(
        unsaid(&world).await,
        std::slice::from_ref(&rung),
        "the process ended before it stored anything of the line"
    );
    let line =
        SpokenLine { state: SpokenState::Queued, fault: None, queued_at: world.context.clock.now(), ended_at: None };
    let put =
        |line| world.context.pool.write_blocking(|db| spoken_alarms::put(db, &"one".into(), &rung, line)).unwrap();
    put(line);
    assert_eq!(unsaid(&world).await, std::slice::from_ref(&rung));
    world.later(50);
    assert!(unsaid(&world).await.is_empty(), "too old");
    world.context.clock.advance(TimeDelta::seconds(-50));
    put(SpokenLine { state: SpokenState::Accepted, ended_at: Some(world.context.clock.now()), ..line });
    assert!(unsaid(&world).await.is_empty(), "it was said");
}

#[actix::test]
async fn the_line_of_an_alarm_that_rang_here_before_the_ledger_was_read_is_said_once() {
    let world = World::new();
    let life = world.start_unread(1);
    life.link_alarm().await;
    life.alarms.ledger.idle().await;
    assert!(life.alarms.clone().load().await.news.unsaid.is_empty(), "it was, when it rang");
}
