//! Facts that one node sends to the game connections of another.

use std::cell::Cell;

use super::{
    nodes::{Nodes, came_online, carry_unless, take},
    *,
};
use crate::{
    cluster::node_mail::Letter,
    db::{
        alarms::incidents::{self, LedgerWrite},
        held_parts,
    },
    relay::remote::remote_message::{RemoteContent, RemoteMessage},
};

#[test]
fn the_players_of_a_look_go_to_the_node_of_their_server_in_one_message() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes, .. } = Nodes::start().await;
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
        hub.do_send(PlayersSeen((0..40).map(title).map(came_online).collect()));
        sleep(Duration::from_secs(20)).await;
        let text = received(&client);
        let come = (0..40).filter(|number| text.contains(&title(*number))).count();
        assert_eq!((come, asked.get()), (40, 1));
    });
}

#[test]
fn an_acknowledgement_that_another_node_brings_to_the_ledger_is_shown() {
    simulated(async {
        let Nodes { relay, hub: _hub, here: _here, there: _there, routes: _routes, .. } = Nodes::start().await;
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

#[test]
fn a_server_that_is_on_its_way_to_a_node_is_asked_for_once_more_and_is_not_taken_for_none() {
    simulated(async {
        let Nodes { relay, hub, here, there, routes, .. } = Nodes::start().await;
        actix::spawn(carry_unless(routes, |_| false));
        let devices = || hub.send(ReadDevices { server: "one".into() });
        let all_refuse = async |when: &str| {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(devices().await.unwrap().map(|devices| devices.len()), Err(Unanswered), "{when}");
            let find = FindRaid { server: "one".into(), incident: "unknown".to_owned() };
            assert_eq!(hub.send(find).await.unwrap(), Err(Unanswered), "{when}");
            let wish = Wish { value: None, by: "alice".into() };
            let toggle = UserCommand { server: "one".into(), toggle: DeviceToggle { device: "7".into(), wish } };
            assert_eq!(hub.send(toggle).await.unwrap(), Err(CommandError::Unavailable), "{when}");
            let links = hub.send(LinkStatuses { servers: vec!["one".into()] }).await.unwrap();
            let reasons: Vec<_> = links.into_values().map(|link| link.reason).collect();
            assert_eq!(reasons, [Some(LinkReason::NodeSilent)], "{when}");
        };
        here.seat([]);
        all_refuse("the node that has it by the database has it no longer").await;
        let right = relay.write(|db| held_parts::of_node(db, &"here-1".into())).remove(0);
        assert!(relay.write(|db| held_parts::release(db, &right)));
        all_refuse("no node has it").await;
        let answer = actix::spawn(devices());
        sleep(Duration::from_millis(500)).await;
        let right = take(&relay, "one", "there-1");
        there.seat([right.clone()]);
        assert_eq!(answer.await.unwrap().unwrap().map(|devices| devices.len()), Ok(0), "it has come here");
        there.seat([]);
        all_refuse("the node itself does not know yet that it has it").await;
        let answer = actix::spawn(devices());
        sleep(Duration::from_millis(500)).await;
        here.seat([take(&relay, "one", "here-1")]);
        assert_eq!(answer.await.unwrap().unwrap().map(|devices| devices.len()), Ok(0), "it has come to the other node");
    });
}

#[test]
fn of_a_server_that_no_one_watches_its_node_says_at_once_that_it_knows_nothing() {
    simulated(async {
        let nodes = Nodes::start_with(GameLinkPolicy::Subscribed).await;
        actix::spawn(carry_unless(nodes.routes, |_| false));
        let devices = nodes.hub.send(ReadDevices { server: "one".into() }).await.unwrap();
        assert_eq!(devices.map(|devices| devices.len()), Ok(0));
        let find = FindRaid { server: "one".into(), incident: "unknown".to_owned() };
        assert_eq!(nodes.hub.send(find).await.unwrap(), Ok(None));
    });
}

#[test]
fn a_node_that_has_ended_its_links_does_not_say_that_nothing_is_known() {
    simulated(async {
        let Nodes { relay, hub, here: _here, there: _there, routes, .. } = Nodes::start().await;
        actix::spawn(carry_unless(routes, |_| false));
        relay.hub.send(EndLinks).await.unwrap();
        for hub in [&hub, &relay.hub] {
            let devices = hub.send(ReadDevices { server: "one".into() }).await.unwrap();
            assert_eq!(devices.map(|devices| devices.len()), Err(Unanswered));
            let find = FindRaid { server: "one".into(), incident: "unknown".to_owned() };
            assert_eq!(hub.send(find).await.unwrap(), Err(Unanswered));
        }
    });
}
