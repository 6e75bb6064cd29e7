//! The team's chat as a channel of the owner: a step of the rules, with the states of every channel.

use std::time::Duration;

use chrono::TimeDelta;
use companion::simulator::world::{BASE_ALARM, TEAM};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::room::{APART, ChatRoom};
use crate::harness::{
    browser::Browser,
    game::{self, BOB},
    relay_client::PATIENCE,
};

/// Adds the channel; its id.
async fn add(browser: &mut Browser) -> String {
    let added = browser.post("/channels", Some(&json!({ "kind": "teamChat", "name": "Team" }))).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let added = added.json();
    assert_eq!((&added["host"], &added["secret"]), (&json!(""), &Value::Null));
    added["id"].as_str().unwrap().to_owned()
}

fn rules(steps: &Value, kinds: &[&str]) -> Value {
    json!({ "enabled": true, "steps": steps, "repeatSeconds": 180, "rounds": 1, "kinds": kinds, "quiet": null })
}

impl ChatRoom {
    async fn put_rules(&mut self, rules: &Value) {
        let put = self.alice.put(&format!("/paired-servers/{}/alarm-rules", self.server), rules).await;
        assert_eq!(put.status, 200, "{}", put.text());
    }

    /// Alice's channel, once this holds.
    async fn until_channel(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        self.alice.get_until("/channels", |list| holds(&list["channels"][0])).await["channels"][0].take()
    }
}

#[actix_web::test]
async fn a_step_of_the_rules_says_an_alarm_that_no_one_has_acknowledged() {
    let mut room = ChatRoom::watching(&[BASE_ALARM]).await;
    let chat = add(&mut room.alice).await;
    room.put_rules(&rules(&json!([{ "afterSeconds": 60, "channels": [chat] }]), &["raid"])).await;
    room.game.world(|world| world.fire_alarm(BASE_ALARM));
    let alarms = format!("/paired-servers/{}/alarms", room.server);
    let list = room.alice.get_until(&alarms, |list| list["alarms"][0]["incident"].is_string()).await;
    let incident = list["alarms"][0]["incident"].as_str().unwrap().to_owned();
    assert!(room.ask("!wipe").await.starts_with("wiped "), "the alarm was said before its step");
    room.pass(TimeDelta::seconds(60));
    let said = room.answer().await;
    assert!(said.starts_with("ALARM: "), "{said}");
    let deliveries = format!("{alarms}/{incident}/deliveries");
    let is_taken = |listed: &Value| listed["deliveries"][0]["state"] == "accepted";
    let listed = room.alice.get_until(&deliveries, is_taken).await;
    let (delivery, line) = (&listed["deliveries"][0], &listed["teamChat"]);
    assert_eq!((&delivery["kind"], &delivery["channel"]), (&json!("teamChat"), &json!(chat)));
    // No answer of HTTP, and no announcement of the settings.
    assert_eq!((&delivery["status"], line), (&Value::Null, &Value::Null));
    let readiness = room.alice.get(&format!("/paired-servers/{}/readiness", room.server)).await.json();
    assert_eq!(readiness["channels"][0]["proof"], "accepted");
}

#[actix_web::test]
async fn without_a_link_a_line_has_failed_and_is_said_once_there_is_one() {
    let mut room = ChatRoom::watching(&[]).await;
    add(&mut room.alice).await;
    room.game.faults(|faults| faults.refuse = true);
    room.game.drop_connections();
    room.client.until(&room.server, |state| state["server"]["connection"]["state"] != "connected").await;
    let drilled = room.alice.post(&format!("/paired-servers/{}/drill", room.server), None).await.json();
    let channel = &drilled["channels"][0];
    assert_eq!((&channel["kind"], &channel["reach"]), (&json!("teamChat"), &json!("failed")), "{drilled}");
    assert_eq!((&channel["reason"], &channel["status"]), (&json!("no_link"), &Value::Null));
    assert!(channel["advice"].as_str().unwrap().contains("link"));
    room.game.faults(|faults| faults.refuse = false);
    room.retry().await;
    room.client.until(&room.server, |state| game::is_complete(state, 0)).await;
    let said = room.late_answer().await;
    assert!(said.starts_with("DRILL: "), "{said}");
    let channel = room.until_channel(|channel| channel["state"] == "active").await;
    assert!(channel["acceptedAt"].is_string(), "{channel}");
}

#[actix_web::test]
async fn a_test_is_said_and_one_that_the_game_server_does_not_take_has_failed() {
    let mut room = ChatRoom::watching(&[]).await;
    let chat = add(&mut room.alice).await;
    let again = json!({ "kind": "teamChat", "name": "Once more" });
    room.alice.post("/channels", Some(&again)).await.expect_problem(409, "conflict");
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    room.pass(APART);
    let test = format!("/channels/{chat}/test");
    let tested = room.alice.post(&test, None).await.json();
    assert_eq!(tested, json!({ "accepted": true }));
    assert!(room.answer().await.starts_with("DRILL: "));
}

#[actix_web::test]
async fn players_who_want_silence_are_spared_events_but_no_alarm() {
    let mut room = ChatRoom::watching(&[BASE_ALARM]).await;
    let chat = add(&mut room.alice).await;
    room.put_rules(&rules(&json!([{ "afterSeconds": 0, "channels": [chat] }]), &["raid", "death"])).await;
    let (died, name) = TEAM[2];
    room.game.world(|world| world.kill(died));
    let said = room.late_answer().await;
    assert!(said.starts_with(name), "{said}");
    room.until_channel(|channel| channel["state"] == "active" && channel["acceptedAt"].is_string()).await;

    assert!(room.ask("!mute").await.starts_with("quiet for 30m"));
    let (died, _) = TEAM[3];
    room.game.world(|world| world.kill(died));
    let is_muted = |channel: &Value| channel["reason"] == "muted";
    room.client.until(&room.server, |state| state["team"]["members"][&game::member(3)]["alive"] == false).await;
    let mut channel = None;
    for _ in 0..PATIENCE.as_secs() {
        room.pass(TimeDelta::seconds(3));
        channel = timeout(Duration::from_secs(1), room.until_channel(is_muted)).await.ok();
        if channel.is_some() {
            break;
        }
    }
    let channel = channel.expect("the channel fails as it is muted");
    assert_eq!(channel["state"], "failing", "{channel}");
    room.game.world(|world| world.fire_alarm(BASE_ALARM));
    assert!(room.late_answer().await.starts_with("ALARM: "));
}

#[actix_web::test]
async fn a_guest_says_nothing_over_the_link_of_the_owner() {
    let mut room = ChatRoom::watching(&[]).await;
    let mut bob = room.app.signed_in(BOB).await;
    game::share(&mut room.alice, &room.server, &mut bob).await;
    let chat = add(&mut bob).await;
    let named = rules(&json!([{ "afterSeconds": 0, "channels": [chat] }]), &["raid"]);
    let path = format!("/paired-servers/{}", room.server);
    let problem = bob.put(&format!("{path}/alarm-rules"), &named).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "steps");
    let readiness = bob.get(&format!("{path}/readiness")).await.json()["channels"][0].take();
    assert_eq!(readiness["inRules"], false);
    assert!(readiness["advice"].as_str().unwrap().contains("owner"), "{readiness}");
    let tested = bob.post(&format!("/channels/{chat}/test"), None).await.json();
    assert_eq!((&tested["accepted"], &tested["reason"]), (&json!(false), &json!("no_link")));
    // An alarm of the owner is another matter, and its drill reaches no channel of Bob's.
    let drilled = room.alice.post(&format!("{path}/drill"), None).await.json();
    let incident = drilled["incident"].as_str().unwrap();
    let listed = bob.get(&format!("{path}/alarms/{incident}/deliveries")).await.json();
    assert_eq!(listed["deliveries"], json!([]));
}
