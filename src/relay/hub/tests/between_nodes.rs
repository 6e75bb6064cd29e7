//! Facts that one node sends to the game connections of another.

use std::cell::Cell;

use super::{
    nodes::{Nodes, carry_unless},
    *,
};
use crate::{
    cluster::node_mail::Letter,
    db::incidents::{self, LedgerWrite},
    domain::world_event::{EventKind, WorldEvent},
    relay::remote::remote_message::{RemoteContent, RemoteMessage},
};

#[test]
fn the_players_of_a_look_go_to_the_node_of_their_server_in_one_message() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes } = Nodes::start().await;
        let asked = Rc::new(Cell::new(0));
        let counted = asked.clone();
        let count = move |letter: &Letter| {
            let (message, _) = RemoteMessage::read(letter.message.clone()).expect("a message");
            counted.set(counted.get() + u32::from(matches!(message.content, RemoteContent::Ask { .. })));
            false
        };
        actix::spawn(carry_unless(routes, count));
        let (_subscription, _socket, client) = watch(&relay.worker(), "one").await;
        sleep(Duration::from_secs(1)).await;
        received(&client);
        let title = |number: u32| format!("Player {number} came online");
        let seen = (0..40).map(|number| {
            let (kind, action, title) = (EventKind::Login, "login", title(number));
            let (grid, data) = (String::new(), Default::default());
            let event = WorldEvent { kind, action, grid, x: None, y: None, ts: now(), title, data };
            PlayerSeen { server: "one".into(), event }
        });
        hub.do_send(PlayersSeen(seen.collect()));
        sleep(Duration::from_secs(20)).await;
        let text = received(&client);
        let come = (0..40).filter(|number| text.contains(&title(*number))).count();
        assert_eq!((come, asked.get()), (40, 1));
    });
}

#[test]
fn an_acknowledgement_that_another_node_brings_to_the_ledger_is_shown() {
    simulated(async {
        let Nodes { relay, hub: _hub, here: _here, there: _there, routes: _routes } = Nodes::start().await;
        let (_subscription, _socket, client) = watch(&relay.worker(), "one").await;
        let incident = relay.hub.send(StartDrill { server: "one".into() }).await.unwrap().unwrap().incident;
        sleep(Duration::from_secs(5)).await;
        received(&client);
        let acks = [(incident.clone(), [("alice".into(), now())].into())].into();
        let kept = LedgerWrite { acks, ..LedgerWrite::default() };
        relay.write(|db| incidents::write_for_another_node(db, &"one".into(), &kept));
        sleep(Duration::from_secs(1)).await;
        let text = received(&client);
        assert!(text.contains(&incident) && text.contains("alice"), "{text}");
    });
}
