//! Smart devices over HTTP: what is known of them, what their owner writes, and toggling.

use std::time::Duration;

use companion::{
    relay::wire::schema,
    simulator::world::{
        BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, LOOT_BOX, SimulatedDevice, SimulatedWorld, TOOL_CUPBOARD,
    },
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    app::FRONTEND,
    browser::{Answer, Browser},
    game::{ALICE, pair, watched},
    relay_client::RelayClient,
};

async fn edit(browser: &mut Browser, path: &str, change: Value) -> Answer {
    let request = browser.request(Method::PATCH, path).json(&change);
    browser.send(request).await
}

fn device(list: &Value, id: u64) -> &Value {
    list["devices"]
        .as_array()
        .unwrap()
        .iter()
        .find(|device| device["deviceId"].as_str() == Some(&id.to_string()))
        .unwrap()
}

#[actix_web::test]
async fn http_shows_of_devices_what_the_relay_does() {
    let (_app, mut alice, _game, server, client) = watched(&[GATE_SWITCH, BASE_ALARM, TOOL_CUPBOARD]).await;
    let list = alice.get(&format!("/paired-servers/{server}/devices")).await.json();
    for id in [GATE_SWITCH, BASE_ALARM, TOOL_CUPBOARD] {
        let (listed, shown) = (device(&list, id), &client.state(&server)["devices"][id.to_string()]);
        for field in ["kind", "name", "label", "value", "reachable", "x", "y", "grid"] {
            assert_eq!(listed[field], shown[field], "{field}");
        }
        assert!(listed["asOf"].is_string(), "{listed}");
    }
    assert_eq!(device(&list, TOOL_CUPBOARD)["storage"]["hasProtection"], true);
}

#[actix_web::test]
async fn a_switch_is_toggled_and_the_answer_is_what_the_game_then_shows() {
    let (_app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH, BASE_ALARM]).await;
    let path = |id: u64| format!("/paired-servers/{server}/devices/{id}/toggle");
    let before = client.state(&server)["devices"][GATE_SWITCH.to_string()]["value"].as_bool().unwrap();
    let toggled = alice.post(&path(GATE_SWITCH), None).await;
    assert_eq!(toggled.status, 200, "{}", toggled.text());
    assert_eq!(toggled.json()["value"], !before);
    assert_eq!(toggled.json()["deviceId"], GATE_SWITCH.to_string());
    client.until(&server, |state| state["devices"][GATE_SWITCH.to_string()]["value"] == !before).await;
    let listed = alice.get_until(&format!("/paired-servers/{server}/devices"), |_| true).await;
    assert_eq!(device(&listed, GATE_SWITCH)["value"], !before);
    alice.post(&path(BASE_ALARM), None).await.expect_problem(409, "not_a_switch");
    alice.post(&path(4), None).await.expect_problem(404, "not_found");
    game.drop_connections();
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    alice.post(&path(GATE_SWITCH), None).await.expect_problem(503, "game_server_unavailable");
    alice.post(&path(BASE_ALARM), None).await.expect_problem(409, "not_a_switch");
}

#[actix_web::test]
async fn toggles_of_one_user_are_limited() {
    let (app, mut alice, _game, server, _client) = watched(&[GATE_SWITCH]).await;
    let path = |id: u64| format!("/paired-servers/{server}/devices/{id}/toggle");
    let first = alice.post(&path(GATE_SWITCH), None).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert!(first.header("ratelimit").unwrap().contains(r#""toggle";r=59;"#));
    assert!(first.header("ratelimit-policy").unwrap().ends_with(r#""toggle";q=60;w=60"#));
    // Also those that toggle nothing.
    for _ in 1..60 {
        alice.post(&path(4), None).await.expect_problem(404, "not_found");
    }
    let refused = alice.post(&path(GATE_SWITCH), None).await;
    refused.expect_problem(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("1"));
    app.clock.advance(chrono::Duration::seconds(1));
    assert_eq!(alice.post(&path(GATE_SWITCH), None).await.status, 200);
}

#[actix_web::test]
async fn the_relay_and_http_take_from_the_same_budget() {
    let (app, mut alice, _game, server, mut client) = watched(&[GATE_SWITCH]).await;
    let path = format!("/paired-servers/{server}/devices/4/toggle");
    for _ in 0..59 {
        alice.post(&path, None).await.expect_problem(404, "not_found");
    }
    let toggle = json!({
        "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": "t",
    });
    client.send(toggle.clone()).await;
    client.expect("ack").await;
    alice.post(&path, None).await.expect_problem(429, "rate_limited");
    client.send(toggle.clone()).await;
    assert_eq!(client.expect_error("rate_limited").await["requestId"], "t");
    app.clock.advance(chrono::Duration::seconds(1));
    client.send(toggle).await;
    client.expect("ack").await;
}

/// Slow, as each toggle waits for its deadline.
#[actix_web::test]
async fn a_switch_that_does_not_turn_is_no_success() {
    let (_app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    let path = format!("/paired-servers/{server}/devices/{GATE_SWITCH}/toggle");
    let before = client.state(&server)["devices"][GATE_SWITCH.to_string()]["value"].as_bool().unwrap();
    game.faults(|faults| faults.stuck = true);
    let toggle = json!({
        "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": "t",
    });
    client.send(toggle).await;
    alice.post(&path, Some(&json!({ "value": !before }))).await.expect_problem(504, "game_server_timeout");
    assert_eq!(client.expect_error("game_server_timeout").await["requestId"], "t");
    assert_eq!(alice.post(&path, Some(&json!({ "value": before }))).await.json()["value"], before, "it is so");

    // The switch turns a moment after the game has said yes.
    let before_it = game.toggles();
    let later = async {
        while game.toggles() == before_it {
            tokio::task::yield_now().await;
        }
        game.world(|world| world.set_switch(GATE_SWITCH, !before)).unwrap();
    };
    let wish = json!({ "value": !before });
    let (toggled, ()) = tokio::join!(alice.post(&path, Some(&wish)), later);
    assert_eq!((toggled.status, &toggled.json()["value"]), (200, &json!(!before)), "{}", toggled.text());
    game.faults(|faults| faults.stuck = false);
    assert_eq!(alice.post(&path, None).await.json()["value"], before);
}

#[actix_web::test]
async fn what_the_owner_writes_is_kept_and_shown() {
    let (_app, mut alice, _game, server, mut client) = watched(&[GATE_SWITCH, BASE_ALARM]).await;
    let path = |id: u64| format!("/paired-servers/{server}/devices/{id}");
    let change = json!({
        "label": "Gate", "customCommand": "gate", "onMessage": "open", "offMessage": "shut", "x": 100, "y": 200.5,
    });
    let answer = edit(&mut alice, &path(GATE_SWITCH), change.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for (field, value) in change.as_object().unwrap() {
        let kept = &answer.json()[field];
        assert!(kept == value || kept.as_f64() == value.as_f64() && value.is_number(), "{field}: {kept}");
    }
    let shown = |state: &Value| state["devices"][GATE_SWITCH.to_string()].clone();
    client.until(&server, |state| shown(state)["label"] == "Gate" && shown(state)["x"] == 100.0).await;
    assert_ne!(shown(client.state(&server))["grid"], "");
    assert_eq!(answer.json()["grid"], shown(client.state(&server))["grid"], "of where it stands now");
    let moved = edit(&mut alice, &path(GATE_SWITCH), json!({ "x": 1_000, "y": 1_500 })).await.json();
    client.until(&server, |state| shown(state)["x"] == 1_000.0).await;
    assert_eq!(moved["grid"], shown(client.state(&server))["grid"]);
    assert_ne!(moved["grid"], answer.json()["grid"]);
    let same = edit(&mut alice, &path(BASE_ALARM), json!({ "customCommand": "GATE" })).await;
    assert_eq!(same.expect_problem(400, "invalid_request")["errors"][0]["path"], "customCommand");
    let cleared = edit(&mut alice, &path(GATE_SWITCH), json!({ "label": null, "x": null, "y": null })).await.json();
    assert_eq!((&cleared["label"], &cleared["x"], &cleared["onMessage"]), (&Value::Null, &Value::Null, &json!("open")));
    client.until(&server, |state| shown(state)["label"].is_null() && shown(state)["x"].is_null()).await;
    let map = client.state(&server)["server"]["mapSize"].as_i64().unwrap();
    for (field, value) in [
        ("label", json!("")),
        ("customCommand", json!("two words")),
        ("customCommand", json!("x".repeat(33))),
        ("onMessage", json!("a\nb")),
        ("offMessage", json!("x".repeat(129))),
        ("x", json!(30_000)),
        // Beyond this map, though not beyond the largest one.
        ("x", json!(map + 501)),
        ("y", json!(map + 501)),
        ("y", json!(-501)),
    ] {
        let mut change = json!({ "x": 1, "y": 1 });
        change[field] = value;
        let problem = edit(&mut alice, &path(GATE_SWITCH), change).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field);
    }
    let beside = json!({ "x": map + 500, "y": -500 });
    assert_eq!(edit(&mut alice, &path(GATE_SWITCH), beside).await.status, 200);
    let half = edit(&mut alice, &path(GATE_SWITCH), json!({ "x": 1 })).await.expect_problem(400, "invalid_request");
    assert_eq!(half["errors"][0]["path"], "y");
    edit(&mut alice, &path(4), json!({ "label": "Nothing" })).await.expect_problem(404, "not_found");
}

/// Answers to the toggles of all of these browsers at the same instant.
async fn at_once(browsers: &[Browser], path: &str, wish: Option<Value>) -> Vec<bool> {
    let toggle = |browser: &Browser| {
        let request = browser.request(Method::POST, path).header("origin", FRONTEND);
        match &wish {
            Some(wish) => request.json(wish),
            None => request,
        }
    };
    let answers = browsers.iter().map(|browser| async {
        let answer = toggle(browser).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json::<Value>().await.unwrap()["value"].as_bool().unwrap()
    });
    futures_util::future::join_all(answers).await
}

/// Slow, as a link asks a game server three times a second.
#[actix_web::test]
async fn toggles_at_once_are_carried_out_one_after_the_other() {
    let (app, mut alice, game, server, _) = watched(&[GATE_SWITCH]).await;
    let path = format!("/paired-servers/{server}/devices/{GATE_SWITCH}/toggle");
    let is_open = || {
        let gate = |world: &mut SimulatedWorld| world.devices().find(|(id, ..)| *id == GATE_SWITCH).unwrap().2.clone();
        game.world(gate) == SimulatedDevice::Switch { on: true }
    };
    let mut browsers = Vec::new();
    for _ in 0..6 {
        browsers.push(app.signed_in(ALICE).await);
    }
    for round in 0..20 {
        // A user may toggle 60 times a minute.
        app.clock.advance(chrono::TimeDelta::seconds(6));
        let before = is_open();
        let seen = at_once(&browsers, &path, None).await;
        assert_eq!(is_open(), before, "round {round}: six flips");
        assert_eq!(seen.iter().filter(|value| **value).count(), 3, "{seen:?}: each has seen its own");
    }
    // Equal wishes are one: a flip of a third does not come between.
    assert_eq!(at_once(&browsers, &path, Some(json!({ "value": true }))).await, [true; 6]);
    assert!(is_open());
    assert_eq!(at_once(&browsers[..2], &path, Some(json!({ "value": true }))).await, [true; 2]);
    assert!(is_open(), "two friends who open the door leave it open");

    let shut = json!({
        "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "value": false, "requestId": "s",
    });
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    for _ in 0..2 {
        client.send(shut.clone()).await;
    }
    for _ in 0..2 {
        assert_eq!(client.expect("ack").await["requestId"], "s");
    }
    assert!(!is_open());
    let odd = alice.post(&path, Some(&json!({ "value": "on" }))).await.expect_problem(400, "invalid_request");
    assert_eq!(odd["errors"][0]["path"], "value");
}

#[actix_web::test]
async fn devices_change_at_once_without_a_link_too_and_new_ones_are_pending() {
    let (_app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH, BASE_ALARM]).await;
    let devices = format!("/paired-servers/{server}/devices");
    let (gate, alarm, lights) = (GATE_SWITCH.to_string(), BASE_ALARM.to_string(), LIGHTS_SWITCH.to_string());
    game.stop().await;
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;

    edit(&mut alice, &format!("{devices}/{gate}"), json!({ "label": "Front gate" })).await;
    client.until(&server, |state| state["devices"][&gate]["label"] == "Front gate").await;
    assert_eq!(client.state(&server)["devices"][&gate]["value"], false, "as it was last known");
    let added = alice.post(&devices, Some(&json!({ "entityId": LIGHTS_SWITCH }))).await.json();
    assert_eq!((&added["reachable"], &added["asOf"]), (&json!("pending"), &Value::Null));
    client.until(&server, |state| state["devices"][&lights]["reachable"] == "pending").await;
    assert_eq!(device(&alice.get(&devices).await.json(), LIGHTS_SWITCH)["reachable"], "pending");
    assert_eq!(alice.delete(&format!("{devices}/{alarm}")).await.status, 200);
    client.until(&server, |state| state["devices"][&alarm].is_null()).await;

    game.restart().await.unwrap();
    pair(&mut alice, &game).await;
    client.until(&server, |state| state["devices"][&lights]["reachable"] == "ok").await;
}

#[actix_web::test]
async fn what_happens_to_devices_is_said_and_kept() {
    let (app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH, LOOT_BOX, TOOL_CUPBOARD]).await;
    let validator = {
        let mut schema = schema::document();
        schema["oneOf"] = json!([{ "$ref": "#/$defs/ServerMessage" }]);
        jsonschema::draft202012::new(&schema).unwrap()
    };
    let mut said = Vec::new();
    let mut hear = async |client: &mut RelayClient, action: &str| {
        let event = loop {
            let event = client.expect("event").await["event"].take();
            if event["kind"] == "device" {
                break event;
            }
        };
        assert_eq!(event["action"], action, "{event}");
        let message = json!({ "type": "event", "serverId": server, "event": event });
        if let Err(fault) = validator.validate(&message) {
            panic!("not in the schema: {fault}: {event}");
        }
        said.push(event["id"].clone());
        event
    };
    let me = alice.get("/me").await.json()["id"].clone();
    let toggle = format!("/paired-servers/{server}/devices/{GATE_SWITCH}/toggle");
    assert_eq!(alice.post(&toggle, Some(&json!({ "value": true }))).await.status, 200);
    let opened = hear(&mut client, "turned_on").await;
    assert_eq!((&opened["data"]["by"], &opened["data"]["deviceId"]), (&me, &json!(GATE_SWITCH.to_string())));
    assert!(me.is_string());
    game.world(|world| world.set_switch(GATE_SWITCH, false).unwrap());
    assert_eq!(hear(&mut client, "turned_off").await["data"]["by"], Value::Null, "in the game");

    // A change that lasts a moment, with the contents that come half a second after the change.
    game.world(|world| world.set_storage(LOOT_BOX, Vec::new()));
    game.advance(Duration::from_secs(1));
    let emptied = |state: &Value| state["devices"][LOOT_BOX.to_string()]["storage"]["used"] == 0;
    client.until(&server, emptied).await;
    let mut time_passes = async || {
        loop {
            app.clock.advance(chrono::Duration::seconds(6));
            alice.get("/me").await;
        }
    };
    for action in ["empty", "upkeep_low"] {
        let event = tokio::select! {
            event = hear(&mut client, action) => event,
            () = time_passes() => unreachable!(),
        };
        let capacity = if action == "empty" { json!(48) } else { Value::Null };
        assert_eq!(event["data"]["capacity"], capacity);
    }

    let path = format!("/intel/{server}/timeline?types=device");
    let kept = alice.get_until(&path, |page| page["entries"].as_array().unwrap().len() == 4).await;
    let kept: Vec<&Value> = kept["entries"].as_array().unwrap().iter().rev().collect();
    assert_eq!(kept.iter().map(|entry| &entry["id"]).collect::<Vec<_>>(), said.iter().collect::<Vec<_>>());
    assert_eq!((&kept[0]["action"], &kept[0]["data"]["by"]), (&json!("turned_on"), &me));
    assert_eq!(kept[3]["data"]["hours"], 24);
}

#[actix_web::test]
async fn a_group_follows_its_devices_and_pays_for_each() {
    let (_app, mut alice, _game, server, _client) = watched(&[GATE_SWITCH, LIGHTS_SWITCH, BASE_ALARM]).await;
    let path = format!("/paired-servers/{server}/device-groups");
    let group = |devices: &[u64]| {
        let devices: Vec<String> = devices.iter().map(u64::to_string).collect();
        json!({ "name": "Gates", "devices": devices })
    };
    // The kind of the alarm was never given; its link knows it.
    let refused =
        alice.post(&path, Some(&group(&[GATE_SWITCH, BASE_ALARM]))).await.expect_problem(400, "invalid_request");
    assert_eq!(refused["errors"][0]["path"], "devices[1]");
    let made = alice.post(&path, Some(&group(&[GATE_SWITCH, LIGHTS_SWITCH]))).await.json();
    let one = format!("{path}/{}", made["id"].as_str().unwrap());

    let toggled = alice.post(&format!("{one}/toggle"), Some(&json!({ "value": true }))).await;
    assert_eq!(toggled.status, 200, "{}", toggled.text());
    let left = toggled.headers["ratelimit"].to_str().unwrap();
    assert!(left.contains("\"toggle\";r=58"), "{left}");

    alice.delete(&format!("/paired-servers/{server}/devices/{LIGHTS_SWITCH}")).await;
    let renamed = edit(&mut alice, &one, json!({ "name": "Gate" })).await;
    assert_eq!(renamed.json()["devices"], json!([GATE_SWITCH.to_string()]), "{}", renamed.text());
    alice.delete(&format!("/paired-servers/{server}/devices/{GATE_SWITCH}")).await;
    assert_eq!(alice.get(&path).await.json()["groups"], json!([]));
}
