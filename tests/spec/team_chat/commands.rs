//! Commands of one user's team.

use std::time::Duration;

use chrono::TimeDelta;
use companion::simulator::world::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, TEAM, TOOL_CUPBOARD};
use serde_json::{Value, json};

use super::room::{APART, ChatRoom, MARLOW};
use crate::harness::{
    app::{ADA, ADMINS, LINKS, TestApp},
    game::{self, ALICE, BOB, is_complete, pair},
    relay_client::RelayClient,
};

#[actix_web::test]
async fn every_question_is_answered_in_the_game() {
    let mut room = ChatRoom::watching(&[TOOL_CUPBOARD]).await;
    let head = room.client.state(&room.server)["server"].clone();
    let players = format!("{}/{} players", head["players"], head["maxPlayers"]);
    let pop = room.ask("!pop").await;
    assert!(pop.starts_with(&players), "{pop}");
    let mut wrong = Vec::new();
    for (line, has) in [
        ("!TIME", "08:"),
        ("!wipe", "wiped "),
        ("!cargo", "no cargo ship seen yet"),
        ("!heli", "no patrol helicopter seen yet"),
        ("!alive", "Nox 3h"),
        ("!alive mar", "Marlow alive for 3h"),
        ("!afk", "no member is AFK"),
        ("!team", "online 3/4: Marlow "),
        ("!online", "online 3/4: Marlow "),
        ("!leader nox", "Nox leads already"),
        ("!leader", "only Nox can pass it on, and has not allowed it here"),
        ("!upkeep", " 23h 5"),
        ("!decay", "no tool cupboard is low"),
        ("!decay armored wall 450", "armored wall 450/2000: "),
        ("!timers", "no timer runs"),
        ("!timer 90m heli", "timer 1: heli in 1h 30m"),
        ("!timer off 1", "timer 1 is off"),
        ("!notes", "there are no notes"),
        ("!note enemy roof camper", "note 1 at "),
        ("!notes", "note 1 at "),
        ("!mute", "quiet for 30m; I still answer"),
        ("!unmute", "announcements are back"),
        ("!ack", "only players who use this service can acknowledge"),
        ("!help", "commands after ! pop time wipe"),
    ] {
        let said = room.ask(line).await;
        if !said.contains(has) {
            wrong.push(format!("{line}: {said}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let is_noted = |state: &Value| {
        let notes = state["mapNotes"].as_object().unwrap();
        notes.values().any(|note| note["label"] == "roof camper" && note["category"] == "enemy")
    };
    room.client.until(&room.server, is_noted).await;
    assert_eq!(room.answers.len(), 25, "one line each");
}

#[actix_web::test]
async fn an_answer_has_the_words_that_admins_gave_it() {
    let app = TestApp::start_with(&["--allow-private-game-servers=true", LINKS, ADMINS]).await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let mut room = ChatRoom::new(app, alice, game, server, client);
    let shipped = room.ask("!wipe").await;
    let (_, span) = shipped.split_once(' ').unwrap();
    let mut ada = room.app.signed_in(ADA).await;
    let texts = json!({ "data": { "team.wipe": "seit {time} frisch", "team.timers.none": "" } });
    let put = ada.put("/admin/store/messages", &texts).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(room.ask("!wipe").await, format!("seit {} frisch", span.trim_end_matches(" ago")));
    assert_eq!(room.ask("!timers").await, "no timer runs", "an empty text is that which ships");
    assert!(room.ask("!pop").await.contains(" players"), "as is one that is left out");
}

#[actix_web::test]
async fn a_note_is_known_after_a_restart() {
    let mut room = ChatRoom::watching(&[]).await;
    assert!(room.ask("!note enemy roof camper").await.starts_with("note 1 at "));
    assert!(room.ask("!note stash boat base").await.starts_with("note 2 at "));
    let mut room = room.restart().await;
    let labels = |state: &Value| {
        let notes = state["mapNotes"].as_object().into_iter().flatten().map(|(_, note)| &note["label"]);
        notes.filter(|label| **label == "roof camper" || **label == "boat base").count()
    };
    room.client.until(&room.server, |state| is_complete(state, 0) && labels(state) == 2).await;
    let mut notes = vec![room.ask("!notes").await, room.late_answer().await];
    notes.sort_unstable();
    assert!(notes[0].starts_with("note 1 at ") && notes[0].ends_with(": roof camper"), "{notes:?}");
    assert!(notes[1].starts_with("note 2 at ") && notes[1].ends_with(": boat base"), "{notes:?}");
}

#[actix_web::test]
async fn a_line_that_comes_before_its_team_is_known_is_answered() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut lines = game.chat();
    // The game server takes its time for its first answer, and the service does not know yet that the link is up.
    game.faults(|faults| faults.delay = Some(Duration::from_secs(1)));
    let mut alice = app.signed_in(ALICE).await;
    pair(&mut alice, &game).await;
    while game.connections_of(TEAM[0].0) == 0 {
        alice.get("/me").await;
    }
    game.faults(|faults| faults.delay = None);
    game.world(|world| world.say(MARLOW, "!wipe"));
    assert_eq!(lines.recv().await.unwrap().message, "!wipe");
    let answer = lines.recv().await.unwrap();
    assert_eq!((answer.steam_id, &answer.message[..6]), (TEAM[0].0, "wiped "));
}

#[actix_web::test]
async fn a_device_is_switched_by_its_word_and_turns_back_after_a_restart() {
    let mut room = ChatRoom::watching(&[GATE_SWITCH, LIGHTS_SWITCH, BASE_ALARM]).await;
    let gate = json!({ "customCommand": "Gate", "onMessage": "The gate opens" });
    room.edit_device(GATE_SWITCH, gate).await;
    room.edit_device(BASE_ALARM, json!({ "customCommand": "base" })).await;
    let server = format!("/paired-servers/{}", room.server);
    for taken in ["pop", "Online", "GATE"] {
        let edit = json!({ "customCommand": taken });
        let path = format!("{server}/devices/{LIGHTS_SWITCH}");
        room.alice.patch(&path, &edit).await.expect_problem(400, "invalid_request");
    }
    room.edit_device(LIGHTS_SWITCH, json!({ "label": "Lights" })).await;
    assert_eq!(room.ask("!gate on").await, "The gate opens");
    // The game says no name to a user who adds a device by its id.
    assert_eq!(room.ask("!gate on").await, "Gate is already on");
    assert_eq!(room.ask("!gate").await, "Gate is off");
    assert_eq!(room.ask("!gate status").await, "Gate is off");
    assert_eq!(room.ask("!base").await, "base was not triggered yet");
    assert!(room.ask("!gate please").await.starts_with("gate on, off or status"));

    let groups = format!("{server}/device-groups");
    let ids = json!([GATE_SWITCH.to_string(), LIGHTS_SWITCH.to_string()]);
    let group = json!({ "name": "All", "customCommand": "all", "devices": ids });
    let group = room.alice.post(&groups, Some(&group)).await;
    assert_eq!(group.status, 201, "{}", group.text());
    let group = format!("{groups}/{}", group.json()["id"].as_str().unwrap());
    assert_eq!(room.ask("!all on").await, "All: The gate opens, Lights is already on");
    let toggled = room.alice.post(&format!("{group}/toggle"), Some(&json!({ "value": false }))).await.json();
    assert_eq!(toggled["outcomes"][0], json!({ "deviceId": GATE_SWITCH.to_string(), "value": false, "error": null }));
    let named = room.alice.patch(&group, &json!({ "name": "Both" })).await.json();
    assert_eq!((&named["name"], &named["devices"]), (&json!("Both"), &ids));

    assert_eq!(room.ask("!gate on 60s").await, "The gate opens, off again in 60s");
    let gate = GATE_SWITCH.to_string();
    let shown = |state: &Value| state["devices"][&gate]["turnsBack"].clone();
    room.client.until(&room.server, |state| shown(state)["value"] == false).await;
    let due = shown(room.client.state(&room.server));
    let mut room = room.restart().await;
    room.client.until(&room.server, |state| is_complete(state, 3) && shown(state) == due).await;
    room.pass(TimeDelta::seconds(61));
    assert_eq!(room.answer().await, "Gate is off again");
    room.client.until(&room.server, |state| shown(state).is_null()).await;
    // A command that leaves it as it is ends that, too.
    assert_eq!(room.ask("!gate on 60s").await, "The gate opens, off again in 60s");
    room.client.until(&room.server, |state| !shown(state).is_null()).await;
    let stay = format!("{server}/devices/{gate}/toggle");
    assert_eq!(room.alice.post(&stay, Some(&json!({ "value": true }))).await.status, 200);
    room.client.until(&room.server, |state| shown(state).is_null()).await;
    assert_eq!(room.alice.delete(&group).await.status, 200);
    assert_eq!(room.alice.get(&groups).await.json()["groups"], json!([]));
}

/// Slow, as the toggle waits for its deadline.
#[actix_web::test]
async fn a_switch_that_has_not_answered_turns_back_all_the_same() {
    let mut room = ChatRoom::watching(&[GATE_SWITCH]).await;
    room.edit_device(GATE_SWITCH, json!({ "customCommand": "gate", "label": "Gate" })).await;
    room.game.faults(|faults| faults.stuck = true);
    assert_eq!(room.ask("!gate on 60s").await, "Gate does not answer");
    let gate = GATE_SWITCH.to_string();
    room.client.until(&room.server, |state| state["devices"][&gate]["turnsBack"]["value"] == false).await;
    room.game.faults(|faults| faults.stuck = false);
    room.game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    room.client.until(&room.server, |state| state["devices"][&gate]["value"] == true).await;
    room.pass(TimeDelta::seconds(61));
    assert_eq!(room.answer().await, "Gate is off again");
}

#[actix_web::test]
async fn a_switch_turns_back_although_the_service_ends_before_the_answer() {
    let mut room = ChatRoom::watching(&[GATE_SWITCH]).await;
    room.edit_device(GATE_SWITCH, json!({ "customCommand": "gate", "label": "Gate" })).await;
    room.game.faults(|faults| faults.stuck = true);
    room.pass(TimeDelta::seconds(10));
    room.say(MARLOW, "!gate on 60s");
    let gate = GATE_SWITCH.to_string();
    room.client.until(&room.server, |state| state["devices"][&gate]["turnsBack"]["value"] == false).await;
    let mut room = room.restart().await;
    room.client.until(&room.server, |state| is_complete(state, 1)).await;
    room.game.faults(|faults| faults.stuck = false);
    room.game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    room.client.until(&room.server, |state| state["devices"][&gate]["value"] == true).await;
    room.pass(TimeDelta::seconds(61));
    // The service may have said before its end that there is no answer.
    while room.answer().await != "Gate is off again" {}
}

#[actix_web::test]
async fn timers_are_in_the_state_and_end_late_after_a_restart() {
    let mut room = ChatRoom::watching(&[]).await;
    assert_eq!(room.ask("!timer 10m heli").await, "timer 1: heli in 10m");
    let has_timer = |state: &Value| state["timers"].as_object().unwrap().values().any(|timer| timer["text"] == "heli");
    room.client.until(&room.server, has_timer).await;
    let mut room = room.restart().await;
    room.app.clock.advance(TimeDelta::minutes(12));
    assert_eq!(room.answer().await, "timer (2m late): heli");
    room.client.until(&room.server, |state| state["timers"] == json!({})).await;
}

#[actix_web::test]
async fn a_timer_whose_line_still_waits_when_the_service_ends_is_said_once_by_the_next() {
    let mut room = ChatRoom::watching(&[]).await;
    assert_eq!(room.ask("!timer 10m heli").await, "timer 1: heli in 10m");
    let runs = |state: &Value| !state["timers"].as_object().unwrap().is_empty();
    room.client.until(&room.server, runs).await;
    room.game.faults(|faults| faults.muted = true);
    room.pass(TimeDelta::seconds(601));
    room.client.until(&room.server, |state| !runs(state)).await;
    let mut room = room.restart().await;
    room.game.faults(|faults| faults.muted = false);
    assert_eq!(room.late_answer().await, "timer: heli");
    assert_eq!(room.ask("!timers").await, "no timer runs");
    // Its row has gone with the line.
    let mut room = room.restart().await;
    room.client.until(&room.server, |state| is_complete(state, 0)).await;
    assert_eq!(room.ask("!timers").await, "no timer runs");
    assert_eq!(room.texts().iter().filter(|text| text.starts_with("timer: ")).count(), 1, "{:?}", room.texts());
}

#[actix_web::test]
async fn a_timer_that_ended_an_hour_ago_is_not_said() {
    let mut room = ChatRoom::watching(&[]).await;
    assert_eq!(room.ask("!timer 10m heli").await, "timer 1: heli in 10m");
    let ChatRoom { app, alice, game, server, client, .. } = room;
    drop(client);
    let clock = app.clock.clone();
    let app = app.restart_after(|| clock.advance(TimeDelta::minutes(71))).await;
    let mut alice = app.again(&alice);
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0) && state["timers"] == json!({})).await;
    let mut room = ChatRoom::new(app, alice, game, server, client);
    assert_eq!(room.ask("!timers").await, "no timer runs");
}

#[actix_web::test]
async fn a_ship_from_before_a_restart_is_known() {
    let mut room = ChatRoom::watching(&[]).await;
    room.game.world(|world| world.send_cargo_ship());
    let timeline = format!("/intel/{}/timeline?types=cargo", room.server);
    room.alice.get_until(&timeline, |shown| shown["entries"].as_array().is_some_and(|all| !all.is_empty())).await;
    // The ship leaves while the service is away.
    room.game.faults(|faults| faults.no_events = true);
    let mut room = room.restart().await;
    room.client.until(&room.server, |state| is_complete(state, 0)).await;
    let answer = room.ask("!cargo").await;
    assert!(answer.starts_with("cargo last seen "), "{answer}");
    assert_eq!(room.ask("!heli").await, "no patrol helicopter seen yet");
}

#[actix_web::test]
async fn timers_that_end_together_are_all_said() {
    let mut room = ChatRoom::watching(&[]).await;
    for number in 1..=9 {
        room.ask(&format!("!timer 10m errand {number}")).await;
    }
    let mut room = room.restart().await;
    room.pass(TimeDelta::minutes(12));
    let mut said = String::new();
    while (1..=9).any(|number| !said.contains(&format!("errand {number}"))) {
        said += &room.late_answer().await;
    }
    assert_eq!(room.ask("!timers").await, "no timer runs", "it is no loop");
    assert!(room.answers.len() < 9 + 9, "{:?}", room.texts());
}

#[actix_web::test]
async fn the_owner_decides_what_is_answered_and_to_which_players() {
    let mut room = ChatRoom::watching(&[]).await;
    let path = format!("/paired-servers/{}/chat-settings", room.server);
    let known = room.alice.get(&path).await.json();
    let defaults = (&known["prefix"], &known["devices"], &known["mutedUntil"]);
    assert_eq!(defaults, (&json!("!"), &json!("everyone"), &json!(null)));
    assert_eq!(known["announcements"]["raid"], false);
    for wrong in [json!({ "prefix": "/" }), json!({ "prefix": "a" }), json!({ "blocked": ["me"] })] {
        room.alice.patch(&path, &wrong).await.expect_problem(400, "invalid_request");
    }
    let mut bob = room.app.signed_in(BOB).await;
    game::share(&mut room.alice, &room.server, &mut bob).await;
    bob.get(&path).await.expect_problem(403, "owner_only");
    let edit = json!({ "prefix": "?", "commands": ["wipe", "pop"], "blocked": [TEAM[2].0.to_string()] });
    assert_eq!(room.set(edit).await["commands"], json!(["pop", "wipe"]));
    // Only the last is answered.
    room.pass(APART);
    for (author, line) in [(MARLOW, "!pop"), (MARLOW, "?time"), (TEAM[2].0, "?pop"), (TEAM[3].0, "?wipe")] {
        room.say(author, line);
    }
    let answer = room.answer().await;
    assert!(answer.starts_with("wiped "), "{answer}");
    room.set(json!({ "questions": "users", "prefix": "!" })).await;
    room.pass(APART);
    room.say(TEAM[3].0, "!pop");
    // Bob is a guest, and plays as Marlow.
    assert!(room.ask("!wipe").await.starts_with("wiped "));
    room.set(json!({ "questions": "owner", "commands": ["pop", "time"] })).await;
    room.pass(APART);
    room.say(MARLOW, "!pop");
    room.pass(APART);
    room.say(TEAM[0].0, "!time");
    assert!(room.answer().await.starts_with("08:"));
    assert_eq!(room.answers.len(), 3, "{:?}", room.texts());
    // A client that comes later has the same.
    let later = RelayClient::watching(&room.app, &mut room.alice, &room.server).await;
    assert_eq!(later.state(&room.server)["team"]["chatNotice"], json!(null));
}
