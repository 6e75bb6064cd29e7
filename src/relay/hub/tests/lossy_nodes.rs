//! Two nodes while messages are lost and a server passes from one to the other.

use std::cell::Cell;

use super::{
    nodes::{Nodes, carry_unless, take},
    *,
};
use crate::{
    cluster::node_mail::Letter,
    db::alarms::{
        alarm_ledger::{self, LedgerAlarm},
        incidents,
    },
    relay::remote::remote_message::{RemoteContent, RemoteMessage},
};

/// A push that the inbox has stored.
pub(super) fn store_push(relay: &Relay, id: &str) -> PushedAlarm {
    let (title, now) = (id.to_owned(), relay.context.clock.now());
    let row = LedgerAlarm { title, received_at: now, sent_at: Some(now), ..testing::received_alarm(id) };
    assert!(relay.write(|db| alarm_ledger::receive(db, &row)));
    PushedAlarm { id: id.into(), title: id.into(), message: String::new(), sent: now, incident: None }
}

/// Adds what has arrived to what this client has seen, and gives a sign of life.
fn take_frames(((_, socket, client), seen): (&(Rc<Subscription>, Rc<Socket>, Memory), &mut String)) {
    *seen += &received(client);
    socket.heard();
}

/// The server passes to and fro while messages are lost, alarms come to the right node and to the wrong one, and a node that
/// has lost the server does not know it yet. In the end each alarm is in one incident, and sockets at both nodes have all.
#[test]
fn whatever_is_lost_each_alarm_is_in_one_incident_and_reaches_the_sockets_of_both_nodes() {
    for seed in 0..6 {
        simulated(async move {
            let Nodes { relay, hub, here, there, routes, .. } = Nodes::without_parts(GameLinkPolicy::Always, &["one"]);
            let hubs = [relay.hub.clone(), hub];
            let (seats, random) = ([here, there], Random::seeded(seed));
            let is_calm = Rc::new(Cell::new(true));
            let (calm, chance) = (is_calm.clone(), random.clone());
            actix::spawn(carry_unless(routes, move |_| !calm.get() && chance.byte() < 50));
            seats[0].seat([take(&relay, "one", "here-1")]);
            seats[1].seat([]);
            sleep(Duration::from_secs(10)).await;
            let watches =
                [watch(&relay.worker_of(&hubs[0]), "one").await, watch(&relay.worker_of(&hubs[1]), "one").await];
            let mut seen = [String::new(), String::new()];
            let (mut owner, mut count) = (0, 0);
            is_calm.set(false);
            for step in 0..30_u32 {
                match random.byte() {
                    0..60 => {
                        let before = owner;
                        owner = 1 - owner;
                        let right = take(&relay, "one", ["here-1", "there-1"][owner]);
                        seats[owner].seat([right]);
                        sleep(Duration::from_millis(u64::from(random.byte()) * 4)).await;
                        seats[before].seat([]);
                    }
                    chosen => {
                        let alarm = store_push(&relay, &format!("alarm {step}"));
                        count += 1;
                        let pushed = AlarmPushed { server: "one".into(), alarm, received_at: ReceivedAt::now() };
                        hubs[usize::from(chosen) % 2].do_send(pushed);
                    }
                }
                sleep(Duration::from_millis(u64::from(random.byte()) * 10)).await;
                watches.iter().zip(&mut seen).for_each(take_frames);
            }
            is_calm.set(true);
            for _ in 0..300 {
                sleep(Duration::from_secs(1)).await;
                watches.iter().zip(&mut seen).for_each(take_frames);
            }
            let stored = relay.write(|db| incidents::list(db, &"one".into(), None, 100));
            let mut titles: Vec<&str> = stored.iter().map(|stored| &*stored.incident.alarm_name).collect();
            titles.sort_unstable();
            titles.dedup();
            assert_eq!((titles.len(), stored.len()), (count, count), "seed {seed}");
            assert!(relay.write(|db| alarm_ledger::all_waiting(db, None, 100)).pushes.is_empty(), "seed {seed}");
            for incident in &stored {
                let has = seen.each_ref().map(|seen| seen.contains(&incident.id));
                assert_eq!(has, [true, true], "seed {seed}: {incident:?}");
            }
        });
    }
}

#[test]
fn the_message_of_an_alarm_that_was_lost_is_sent_again() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes, .. } = Nodes::start().await;
        let is_lost = Rc::new(Cell::new(false));
        let lost = is_lost.clone();
        actix::spawn(carry_unless(routes, move |_| lost.get()));
        let (_subscription, _socket, client) = watch(&relay.worker_of(&hub), "one").await;
        sleep(Duration::from_secs(1)).await;
        received(&client);
        is_lost.set(true);
        let drill = relay.hub.send(StartDrill { server: "one".into() });
        let drilled = actix::spawn(drill);
        sleep(Duration::from_secs(1)).await;
        assert!(!received(&client).contains("\"type\":\"raid\""));
        is_lost.set(false);
        assert_eq!(drilled.await.unwrap().unwrap().unwrap().sockets, 1);
        let text = received(&client);
        assert_eq!(text.matches("\"type\":\"raid\"").count(), 1, "{text}");
    });
}

/// Loses what comes back of an alarm while `is_lossy`, except for the answer that it has come; counts the messages with alarms.
fn loses_answers(is_lossy: &Rc<Cell<bool>>, sent: &Rc<Cell<u32>>) -> impl Fn(&Letter) -> bool + use<> {
    let (lossy, counted) = (is_lossy.clone(), sent.clone());
    move |letter| {
        let content = RemoteMessage::read(letter.message.clone()).map(|(message, _)| message.content);
        let is_taken =
            matches!(content, Some(RemoteContent::AlarmTaken { sockets, ended, .. }) if sockets > 0 || ended);
        counted.set(counted.get() + u32::from(matches!(content, Some(RemoteContent::Alarm { .. }))));
        is_taken && lossy.get()
    }
}

#[test]
fn an_alarm_whose_answers_are_lost_for_a_while_is_heard_all_the_same() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes, .. } = Nodes::start().await;
        let (is_lossy, sent) = (Rc::new(Cell::new(true)), Rc::default());
        actix::spawn(carry_unless(routes, loses_answers(&is_lossy, &sent)));
        let (_subscription, _socket, client) = watch(&relay.worker_of(&hub), "one").await;
        sleep(Duration::from_secs(1)).await;
        received(&client);
        let drilled = actix::spawn(relay.hub.send(StartDrill { server: "one".into() }));
        sleep(Duration::from_secs(1)).await;
        let mut text = received(&client);
        is_lossy.set(false);
        let drill = drilled.await.unwrap().unwrap().unwrap();
        assert_eq!((drill.sockets, sent.get()), (1, 1), "the node has said that it has it");
        sleep(Duration::from_secs(10)).await;
        text += &received(&client);
        assert_eq!(text.matches("\"type\":\"raid\"").count(), 1, "{text}");
        let stored = relay.write(|db| incidents::get(db, &drill.incident)).unwrap();
        assert_eq!((&*stored.state, stored.sockets), ("delivered", 1));
    });
}

#[test]
fn a_feed_that_begins_again_while_an_alarm_is_open_rings_it_no_second_time() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, outbox, routes } = Nodes::start().await;
        let (is_lossy, sent) = (Rc::new(Cell::new(true)), Rc::default());
        actix::spawn(carry_unless(routes, loses_answers(&is_lossy, &sent)));
        let (_subscription, _socket, client) = watch(&relay.worker_of(&hub), "one").await;
        sleep(Duration::from_secs(1)).await;
        received(&client);
        let drilled = actix::spawn(relay.hub.send(StartDrill { server: "one".into() }));
        sleep(Duration::from_secs(1)).await;
        let gone = RemoteMessage { server: "one".into(), from: "here".into(), content: RemoteContent::NotHere };
        gone.write(&[], 0).into_iter().for_each(|part| outbox.send("there", part));
        is_lossy.set(false);
        let drill = drilled.await.unwrap().unwrap().unwrap();
        sleep(Duration::from_secs(10)).await;
        let text = received(&client);
        assert_eq!((text.matches("\"type\":\"raid\"").count(), sent.get()), (1, 2), "the new feed asks for it: {text}");
        let stored = relay.write(|db| incidents::get(db, &drill.incident)).unwrap();
        assert_eq!((&*stored.state, stored.sockets), ("delivered", 1));
    });
}

#[test]
fn an_alarm_waits_for_no_silence_of_a_node_that_is_gone() {
    simulated(async {
        let Nodes { relay, hub, here, there: _there, routes, .. } = Nodes::start().await;
        let is_silent = Rc::new(Cell::new(false));
        let silent = is_silent.clone();
        actix::spawn(carry_unless(routes, move |_| silent.get()));
        let (_subscription, _socket, _client) = watch(&relay.worker_of(&hub), "one").await;
        sleep(Duration::from_secs(1)).await;
        is_silent.set(true);
        let drill = relay.hub.send(StartDrill { server: "one".into() }).await.unwrap().unwrap();
        assert_eq!(drill.sockets, 0);
        let is_delivered = async || {
            let delivered = relay.context.journal.unsaved_alarms.deliver_all(Duration::from_secs(60));
            timeout(Duration::from_secs(2), delivered).await.is_ok()
        };
        assert!(!is_delivered().await, "a socket of the other node may still take it");
        here.sees_gone(&["there-1"]);
        assert!(is_delivered().await);
    });
}

#[test]
fn sockets_wait_for_no_silence_of_a_node_that_is_gone() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there, routes, .. } = Nodes::start().await;
        let is_asked = Rc::new(Cell::new(false));
        let asked = is_asked.clone();
        actix::spawn(carry_unless(routes, move |letter| {
            asked.set(asked.get() || letter.to == "yonder");
            false
        }));
        let (_subscription, _socket, _client) = watch(&relay.worker_of(&hub), "one").await;
        sleep(Duration::from_secs(6)).await;
        take(&relay, "one", "yonder-1");
        sleep(Duration::from_secs(4)).await;
        assert!(!is_asked.get(), "the node from which the server comes still answers");
        there.sees_gone(&["here-1"]);
        sleep(Duration::from_secs(4)).await;
        assert!(is_asked.get());
    });
}
