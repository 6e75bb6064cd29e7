//! The end of the process and alarms that have just come.

use super::*;

#[actix::test]
async fn the_end_of_the_process_waits_for_an_alarm_before_it_is_polled() {
    let world = World::new();
    let life = world.start(1).await;
    let all_saved = || world.context.journal.unsaved_alarms.flush(Duration::ZERO, Duration::ZERO);
    assert!(all_saved().await);
    let taken_up = life.alarms.clone().take_up(world.receive("p", "Front door"), ReceivedAt::now());
    assert!(!all_saved().await);
    drop(taken_up);
    assert!(all_saved().await);
    let _alarm = life.alarms.clone().link_alarm(trigger("7"));
    assert!(!all_saved().await);
}
