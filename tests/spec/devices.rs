//! Smart devices over HTTP: what is known of them, what their owner writes, and toggling.

use companion::simulator::world::{BASE_ALARM, GATE_SWITCH, TOOL_CUPBOARD};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    browser::{Answer, Browser},
    game::watched,
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
async fn http_tells_of_devices_what_the_relay_does() {
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
