//! The published schema of the relay's messages, against what the relay says and takes. Every client of the tests holds
//! what it gets against it; here are the schema itself, and every kind of message once.

use std::collections::BTreeSet;

use companion::{
    relay::wire::schema,
    simulator::world::{BASE_ALARM, GATE_SWITCH, TEAM},
};
use serde_json::{Value, json};

use crate::harness::{
    app::TestApp,
    binary,
    game::{is_complete, watched},
    relay_client,
};

#[actix_web::test]
async fn the_schema_is_served_printed_and_cached() {
    let app = TestApp::start().await;
    let mut visitor = app.browser();
    let answer = visitor.get("/relay.schema.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/schema+json")));
    assert_eq!(answer.json(), schema::document());
    let tag = answer.header("etag").unwrap().to_owned();
    let again = visitor.request(reqwest::Method::GET, "/relay.schema.json").header("if-none-match", tag);
    assert_eq!(visitor.send(again).await.status, 304);
    let printed = binary::companion(app.directory()).arg("relay-schema").output().unwrap().stdout;
    assert_eq!(serde_json::from_slice::<Value>(&printed).unwrap(), schema::document());
}

/// The client of the harness validates all that it gets; this makes sure that it gets everything there is.
#[actix_web::test]
async fn every_message_of_the_relay_is_as_the_schema_says() {
    let (app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH, BASE_ALARM]).await;
    client.until(&server, |state| is_complete(state, 2)).await;
    let note = json!({ "x": 1, "y": 2, "category": "raid", "label": "here" });
    assert_eq!(alice.post(&format!("/intel/{server}/map-notes"), Some(&note)).await.status, 201);
    client.until(&server, |state| state["mapNotes"].as_object().unwrap().values().any(|n| n["label"] == "here")).await;
    game.world(|world| {
        world.send_cargo_ship();
        world.say(TEAM[1].0, "hello");
        world.fire_alarm(BASE_ALARM);
    });
    let mut kinds: BTreeSet<String> = ["snapshot", "patch"].map(str::to_owned).into();
    assert!(client.known[&server].patches > 0);
    for kind in ["event", "chat", "raid"] {
        kinds.insert(client.expect(kind).await["type"].as_str().unwrap().to_owned());
    }
    client.send(json!({ "type": "ping" })).await;
    kinds.insert(client.expect("pong").await["type"].as_str().unwrap().to_owned());
    let toggle =
        json!({ "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": "1" });
    client.send(toggle).await;
    kinds.insert(client.expect("ack").await["type"].as_str().unwrap().to_owned());
    for (message, words) in [
        (json!(["ping", null, null, null, null]), "a message is a JSON object"),
        (json!({ "type": "subscribe", "serverId": 7 }), "serverId must be a string"),
        (json!("ping"), "a message is a JSON object"),
    ] {
        client.send(message).await;
        let error = client.expect_error("malformed").await;
        assert_eq!(error["message"], words);
        kinds.insert("error".to_owned());
    }
    app.paired(&mut alice).await;
    kinds.insert(client.expect("devicePaired").await["type"].as_str().unwrap().to_owned());
    // Only while codes are tried out: the tests of pairing get it, by the same client.
    kinds.insert("pairingRequest".to_owned());
    assert_eq!(kinds, relay_client::published_kinds("ServerMessage"));
}

#[actix_web::test]
async fn what_the_relay_does_not_serve_is_answered_by_a_problem() {
    let app = TestApp::start().await;
    let mut browser = app.relay_browser();
    for (path, allowed) in [("/v1", "GET"), ("/health", "GET, HEAD")] {
        let request = browser.request(reqwest::Method::POST, path);
        let answer = browser.send(request).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)), "{path}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.json()["code"], "method_not_allowed");
    }
    let answer = browser.get("/v2").await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("not_found")));
}
