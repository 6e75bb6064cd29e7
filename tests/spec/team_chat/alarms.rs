//! Alarms in the team's chat: said once, stored as delivered, acknowledged there.

use companion::simulator::world::{BASE_ALARM, TEAM};
use serde_json::{Value, json};

use super::room::{APART, ChatRoom, MARLOW};
use crate::harness::game::{self, BOB};

const NOX: u64 = TEAM[0].0;

/// The room, with alarms announced: its links know that once they answer.
async fn announcing() -> ChatRoom {
    let mut room = ChatRoom::watching(&[BASE_ALARM]).await;
    room.set(json!({ "announcements": { "raid": true } })).await;
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    room.pass(APART);
    room
}

#[actix_web::test]
async fn an_alarm_is_said_in_the_team_and_acknowledged_there_by_its_user_alone() {
    let mut room = announcing().await;
    let readiness = format!("/paired-servers/{}/readiness", room.server);
    let before = room.alice.get(&readiness).await.json()["teamChat"].take();
    assert_eq!(before, json!({ "announces": true, "last": null }));
    room.game.world(|world| world.fire_alarm(BASE_ALARM));
    let said = room.answer().await;
    assert!(said.starts_with("ALARM: "), "{said}");
    let is_said = |ready: &Value| ready["teamChat"]["last"]["state"] == "accepted";
    room.alice.get_until(&readiness, is_said).await;
    let alarms = format!("/paired-servers/{}/alarms", room.server);
    let acks = |list: Value| list["alarms"][0]["acks"].as_object().unwrap().len();
    let incident = room.alice.get(&alarms).await.json()["alarms"][0]["incident"].as_str().unwrap().to_owned();
    let listed = room.alice.get(&format!("{alarms}/{incident}/deliveries")).await.json();
    assert_eq!((&listed["deliveries"], &listed["teamChat"]["state"]), (&json!([]), &json!("accepted")));

    assert!(room.ask("!ack").await.starts_with("only players who use this service"));
    assert_eq!(acks(room.alice.get(&alarms).await.json()), 0, "a teammate silences no phone");
    for expected in ["acknowledged for Nox: 1", "nothing rings for Nox"] {
        room.pass(APART);
        room.say(NOX, "!ack");
        assert_eq!(room.answer().await, expected);
        assert_eq!(acks(room.alice.get(&alarms).await.json()), 1);
    }
    let is_shown = |state: &Value| state["raids"][&incident]["acks"].as_object().is_some_and(|acks| acks.len() == 1);
    room.client.until(&room.server, is_shown).await;
    assert_eq!(room.answers.iter().filter(|(_, text)| text.starts_with("ALARM")).count(), 1);
}

#[actix_web::test]
async fn two_players_acknowledge_at_once_where_nothing_is_answered_and_the_owner_alone_asks() {
    let mut room = announcing().await;
    let mut bob = room.app.signed_in(BOB).await;
    game::share(&mut room.alice, &room.server, &mut bob).await;
    room.set(json!({ "questions": "owner" })).await;
    for number in 0..7 {
        room.pass(chrono::TimeDelta::milliseconds(2_100));
        room.say(NOX, &format!("!decay armored wall {}", 100 + number));
        room.answer().await;
    }
    room.until_noticed(Some("loop")).await;
    room.pass(chrono::TimeDelta::milliseconds(2_100));
    room.game.world(|world| world.fire_alarm(BASE_ALARM));
    assert!(room.answer().await.starts_with("ALARM: "));
    // Bob is a guest, and plays as Marlow.
    room.say(NOX, "!ack");
    room.say(MARLOW, "!ack");
    let are_both = |list: &Value| list["alarms"][0]["acks"].as_object().is_some_and(|acks| acks.len() == 2);
    room.alice.get_until(&format!("/paired-servers/{}/alarms", room.server), are_both).await;
    room.pass(chrono::TimeDelta::seconds(61));
    room.say(NOX, "!wipe");
    assert!(room.answer().await.starts_with("wiped "), "the silence had no answer");
}

#[actix_web::test]
async fn a_drill_is_said_as_one_and_its_answer_names_the_chat() {
    let mut room = announcing().await;
    let drill = format!("/paired-servers/{}/drill", room.server);
    let drilled = room.alice.post(&drill, None).await.json();
    assert_eq!(drilled["teamChat"]["state"], "accepted", "{drilled}");
    assert!(room.answer().await.starts_with("DRILL: "));
    room.set(json!({ "announcements": { "raid": false } })).await;
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    let drilled = room.alice.post(&drill, None).await.json();
    assert_eq!(drilled["teamChat"], Value::Null);
    room.pass(APART);
    room.say(MARLOW, "!pop");
    assert!(room.answer().await.contains("players"), "the drill was not said");
}

#[actix_web::test]
async fn a_line_that_no_link_can_say_has_failed_with_a_reason() {
    let mut room = ChatRoom::watching(&[]).await;
    room.set(json!({ "announcements": { "raid": true } })).await;
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    room.game.faults(|faults| faults.muted = true);
    let drilled = room.alice.post(&format!("/paired-servers/{}/drill", room.server), None).await.json();
    assert_eq!(drilled["teamChat"]["state"], "queued", "{drilled}");
    let incident = drilled["incident"].as_str().unwrap();
    room.pass(chrono::TimeDelta::seconds(61));
    let path = format!("/paired-servers/{}/alarms/{incident}/deliveries", room.server);
    let has_failed = |listed: &Value| listed["teamChat"]["state"] == "failed";
    let listed = room.alice.get_until(&path, has_failed).await;
    assert_eq!(listed["teamChat"]["reason"], "not_taken");
}

#[actix_web::test]
async fn an_alarm_that_rings_after_a_start_before_the_team_is_known_is_said_once_it_is() {
    let mut room = announcing().await;
    assert_eq!(room.ask("!timer 10m heli").await, "timer 1: heli in 10m");
    room.game.faults(|faults| faults.refuse = true);
    let mut room = room.restart().await;
    // The commands have been read from the database, with their settings.
    room.client.until(&room.server, |state| state["timers"] != json!({})).await;
    let drilled = room.alice.post(&format!("/paired-servers/{}/drill", room.server), None).await.json();
    assert_eq!(drilled["teamChat"]["state"], "queued", "{drilled}");
    room.game.faults(|faults| faults.refuse = false);
    room.retry().await;
    let said = room.late_answer().await;
    assert!(said.starts_with("DRILL: "), "{said}");
}
