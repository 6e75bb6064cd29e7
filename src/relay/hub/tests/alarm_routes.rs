//! Pushed alarms: straight to a game connection that runs, and by the hub where none takes them.

use std::cell::Cell;

use super::*;
use crate::{db::alarms::incidents, relay::alarms::alarm_routes::DeliverPushedAlarm};

/// Counts the alarms that come to it instead of the hub.
#[derive(Clone, Default)]
struct AlarmCounter(Rc<Cell<usize>>);

impl Actor for AlarmCounter {
    type Context = Context<Self>;
}

impl Handler<AlarmPushed> for AlarmCounter {
    type Result = ();

    fn handle(&mut self, _: AlarmPushed, _: &mut Self::Context) {
        self.0.update(|count| count + 1);
    }
}

impl Relay {
    fn deliver(&self, alarm: AlarmPushed) {
        self.alarm_routes.deliver(alarm, self.hub.clone().recipient());
    }

    /// The triggers of each stored incident of the server "one".
    fn triggers(&self) -> Vec<u32> {
        let stored = self.context.pool.read_blocking(|db| incidents::shown(db, &"one".into(), now())).unwrap();
        stored.iter().map(|stored| stored.incident.count).collect()
    }
}

/// An alarm of the server "one".
fn pushed(id: &str) -> AlarmPushed {
    let alarm =
        PushedAlarm { id: id.into(), title: "Raid".into(), message: String::new(), sent: now(), incident: None };
    AlarmPushed { server: "one".into(), alarm, received_at: ReceivedAt::now() }
}

#[test]
fn an_alarm_goes_straight_to_the_connection_that_runs() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
        relay.find("one").await.expect("a server");
        let by_hub = AlarmCounter::default();
        relay.alarm_routes.deliver(pushed("alarm"), by_hub.clone().start().recipient());
        sleep(Duration::from_secs(1)).await;
        assert_eq!((relay.triggers(), by_hub.0.get()), (vec![1], 0));
    });
}

#[test]
fn an_alarm_starts_a_connection_where_none_runs() {
    simulated(async {
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
        assert!(relay.status("one").await.is_none());
        relay.deliver(pushed("first"));
        sleep(Duration::from_secs(1)).await;
        assert!(relay.status("one").await.is_some());
        assert_eq!(relay.triggers(), [1]);
        relay.deliver(pushed("second"));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(relay.triggers(), [2]);
    });
}

#[test]
fn alarms_that_a_failed_connection_has_not_taken_start_another() {
    simulated(async {
        // Under this policy it is not started again by itself.
        let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
        let failing = relay.find("one").await.expect("a server").connection;
        failing.do_send(Panic);
        ["first", "second"].into_iter().for_each(|id| relay.deliver(pushed(id)));
        sleep(Duration::from_secs(60)).await;
        assert!(!failing.connected());
        assert_eq!(relay.triggers(), [2]);
        assert_ne!(relay.find("one").await.expect("a server").connection, failing);
    });
}

#[test]
fn an_alarm_on_its_way_to_a_connection_that_was_ended_starts_none() {
    simulated(async {
        for is_deleted in [false, true] {
            let relay = Relay::start(GameLinkPolicy::Subscribed, &["one"]);
            let connection = relay.find("one").await.expect("a server").connection;
            if is_deleted {
                relay.delete_row("one");
                relay.hub.send(ServerRemoved { server: "one".into() }).await.unwrap();
            } else {
                relay.hub.send(EndLinks).await.unwrap();
            }
            // The connection was looked up before its end.
            connection.do_send(DeliverPushedAlarm::new(pushed("first"), Some(relay.hub.clone().recipient())));
            relay.deliver(pushed("second"));
            sleep(Duration::from_secs(60)).await;
            assert!(!connection.connected() && relay.triggers().is_empty());
            assert!(!is_deleted || relay.status("one").await.is_none());
        }
    });
}
