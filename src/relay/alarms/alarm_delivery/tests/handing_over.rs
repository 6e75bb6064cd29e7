//! A server passes to another node.

use super::*;

#[actix::test]
async fn an_alarm_that_is_on_is_stored_when_its_server_passes_on() {
    let world = World::new();
    let life = world.start(1).await;
    life.link_alarm().await;
    life.alarms.note_value("7", Some(false));
    life.alarms.note_value("7", Some(true));
    life.alarms.ledger.idle().await;
    let value = || {
        let device = world.context.pool.read_blocking(|db| smart_devices::get(db, &"one".into(), "7"));
        device.unwrap().last_value
    };
    assert_eq!(value(), Some(false), "it flutters");
    life.alarms.hand_over();
    life.alarms.ledger.idle().await;
    assert_eq!(value(), Some(true));
}

#[actix::test]
async fn the_push_of_a_trigger_that_another_node_saw_counts_once_also_before_the_ledger_is_read() {
    for is_read in [false, true] {
        let world = World::new();
        let before = world.start(1).await;
        before.link_alarm().await;
        before.alarms.ledger.idle().await;
        let life = world.start_unread(1);
        if is_read {
            life.load().await;
        }
        life.alarms.take_over(before.alarms.hand_over());
        if !is_read {
            life.load().await;
        }
        life.pushed_alarm(world.receive("push", "Front door")).await;
        let ledger = world.ledger(&life).await;
        assert_eq!(ledger.iter().map(|(_, count, _)| *count).collect::<Vec<_>>(), [1]);
    }
}
