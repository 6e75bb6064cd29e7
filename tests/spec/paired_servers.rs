//! Paired game servers and their devices, as their owner sees them.

use serde_json::{Value, json};

use crate::harness::{app::TestApp, on_each_database};

const ALICE: &str = "76561198000000001";
const BOB: &str = "76561198000000002";

fn pairing() -> Value {
    json!({ "address": "Play.Example.com", "port": 28083, "playerId": ALICE, "playerToken": "1234567890" })
}

on_each_database!(an_owner_pairs_sees_and_deletes, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let created = alice.post("/paired-servers", Some(&pairing())).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let server = created.json();
    let id = server["id"].as_str().unwrap().to_owned();
    assert_eq!(
        server,
        json!({
            "id": id, "name": "play.example.com", "address": "play.example.com", "port": 28083, "playerId": ALICE,
            "role": "owner", "connection": { "state": "paused", "since": "2026-11-21T12:00:00.000Z" },
            "openIncidents": 0,
            "createdAt": "2026-11-21T12:00:00.000Z",
        })
    );
    assert_eq!(alice.get("/paired-servers").await.json(), json!({ "servers": [server], "next": null }));
    assert_eq!(alice.get(&format!("/paired-servers/{id}")).await.json(), server);

    // Pairing again replaces the token and keeps the server.
    let mut again = pairing();
    again["playerToken"] = json!(987_654_321);
    again["name"] = json!("Home");
    let replaced = alice.post("/paired-servers", Some(&again)).await;
    assert_eq!(replaced.status, 200);
    assert_eq!((&replaced.json()["id"], &replaced.json()["name"]), (&json!(id), &json!("Home")));
    assert_eq!(alice.get("/paired-servers").await.json()["servers"].as_array().unwrap().len(), 1);

    for answer in [created, replaced, alice.get("/paired-servers").await] {
        assert!(!answer.text().contains("1234567890") && !answer.text().contains("987654321"));
    }

    assert_eq!(alice.delete(&format!("/paired-servers/{id}")).await.json(), json!({ "ok": true }));
    alice.get(&format!("/paired-servers/{id}")).await.expect_problem(404, "not_found");
    alice.delete(&format!("/paired-servers/{id}")).await.expect_problem(404, "not_found");
    alice.get("/paired-servers/%00").await.expect_problem(404, "not_found");
    assert_eq!(alice.get("/paired-servers").await.json(), json!({ "servers": [], "next": null }));
});

on_each_database!(an_owner_adds_and_removes_devices, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let id = alice.post("/paired-servers", Some(&pairing())).await.json()["id"].as_str().unwrap().to_owned();
    let devices = format!("/paired-servers/{id}/devices");
    assert_eq!(alice.get(&devices).await.json(), json!({ "devices": [], "next": null }));

    let added = alice.post(&devices, Some(&json!({ "entityId": "18446744073709551615", "kind": "switch" }))).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let expected = json!({
        "deviceId": "18446744073709551615", "kind": "switch", "name": "18446744073709551615", "label": null,
        "customCommand": null, "onMessage": null, "offMessage": null, "createdAt": "2026-11-21T12:00:00.000Z",
        "x": null, "y": null, "grid": "", "value": null, "reachable": "pending", "asOf": null,
    });
    assert_eq!(added.json(), expected);

    let labelled = json!({ "entityId": "18446744073709551615", "label": "Front door" });
    let changed = alice.post(&devices, Some(&labelled)).await;
    assert_eq!(changed.status, 200);
    assert_eq!((&changed.json()["kind"], &changed.json()["label"]), (&json!("switch"), &json!("Front door")));
    assert_eq!(alice.post(&devices, Some(&json!({ "entityId": 7 }))).await.json()["kind"], "unknown");
    assert_eq!(alice.get(&devices).await.json()["devices"].as_array().unwrap().len(), 2);

    assert_eq!(alice.delete(&format!("{devices}/7")).await.status, 200);
    alice.delete(&format!("{devices}/7")).await.expect_problem(404, "not_found");
    assert_eq!(alice.get(&devices).await.json()["devices"].as_array().unwrap().len(), 1);
});

#[actix_web::test]
async fn the_server_of_another_user_does_not_exist() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut bob = app.signed_in(BOB).await;
    let id = alice.post("/paired-servers", Some(&pairing())).await.json()["id"].as_str().unwrap().to_owned();
    let devices = format!("/paired-servers/{id}/devices");
    alice.post(&devices, Some(&json!({ "entityId": 7 }))).await;

    let answers = [
        bob.get(&format!("/paired-servers/{id}")).await,
        bob.delete(&format!("/paired-servers/{id}")).await,
        bob.get(&devices).await,
        bob.post(&devices, Some(&json!({ "entityId": 8 }))).await,
        bob.delete(&format!("{devices}/7")).await,
        bob.get(&format!("/paired-servers/{id}/readiness")).await,
        bob.post(&format!("/paired-servers/{id}/drill"), None).await,
        bob.get("/paired-servers/no-such-server").await,
    ];
    for answer in answers {
        answer.expect_problem(404, "not_found");
    }
    let mut visitor = app.browser();
    let answers = [
        visitor.get(&format!("/paired-servers/{id}")).await,
        visitor.delete(&format!("/paired-servers/{id}")).await,
        visitor.get(&devices).await,
        visitor.post(&devices, Some(&json!({ "entityId": 8 }))).await,
        visitor.delete(&format!("{devices}/7")).await,
        visitor.get(&format!("/paired-servers/{id}/readiness")).await,
        visitor.post(&format!("/paired-servers/{id}/drill"), None).await,
    ];
    for answer in answers {
        answer.expect_problem(401, "unauthenticated");
    }
    assert_eq!(bob.get("/paired-servers").await.json(), json!({ "servers": [], "next": null }));
    assert_eq!(alice.get(&devices).await.json()["devices"].as_array().unwrap().len(), 1);
}

#[actix_web::test]
async fn two_players_may_pair_the_same_server() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut bob = app.signed_in(BOB).await;
    let first = alice.post("/paired-servers", Some(&pairing())).await;
    let second = bob.post("/paired-servers", Some(&pairing())).await;
    assert_eq!((first.status, second.status), (201, 201));
    assert_ne!(first.json()["id"], second.json()["id"]);
}

#[actix_web::test]
async fn invalid_values_are_named_one_by_one() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    for (field, value) in [
        ("address", json!("")),
        ("address", json!("a b")),
        ("address", json!("http://play.example.com")),
        ("address", json!("127.0.0.1")),
        ("address", json!("127.1")),
        ("address", json!("localhost")),
        ("address", json!("10.1.2.3")),
        ("address", json!("::1")),
        ("address", json!("169.254.169.254")),
        ("port", json!(0)),
        ("playerId", json!("1")),
        ("playerId", json!("76561197960265727")),
        ("playerId", json!("76561202255233024")),
        ("name", json!("")),
        ("name", json!("  ")),
        ("name", json!("a\nb")),
        ("name", json!("x".repeat(101))),
    ] {
        let mut body = pairing();
        body[field] = value.clone();
        let problem = alice.post("/paired-servers", Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{value}: {problem}");
        assert!(problem["errors"][0]["message"].as_str().is_some_and(|text| !text.is_empty()));
    }
    // A value of the wrong type ends the reading of the body.
    for (field, value) in [
        ("port", json!(65536)),
        ("port", json!("28083")),
        ("playerId", json!(76_561_198_000_000_001_u64)),
        ("playerToken", json!("secret-token")),
        ("playerToken", json!(2_147_483_648_u64)),
    ] {
        let mut body = pairing();
        body[field] = value.clone();
        let answer = alice.post("/paired-servers", Some(&body)).await;
        answer.expect_problem(400, "invalid_request");
        assert!(!answer.text().contains("secret-token"));
    }
    for field in ["address", "port", "playerId", "playerToken"] {
        let mut body = pairing();
        body.as_object_mut().unwrap().remove(field);
        let problem = alice.post("/paired-servers", Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{problem}");
    }
    assert_eq!(alice.get("/paired-servers").await.json(), json!({ "servers": [], "next": null }));
}

#[actix_web::test]
async fn private_addresses_are_accepted_where_allowed() {
    let app = TestApp::start_with(&["--allow-private-game-servers=true"]).await;
    let mut alice = app.signed_in(ALICE).await;
    let mut body = pairing();
    body["address"] = json!("127.0.0.1");
    assert_eq!(alice.post("/paired-servers", Some(&body)).await.status, 201);
}

#[actix_web::test]
async fn a_user_pairs_ten_new_addresses_a_minute() {
    let app = TestApp::start().await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let at = |port: u16| {
        let mut body = pairing();
        body["port"] = json!(port);
        body
    };
    for port in 1..=10 {
        assert_eq!(alice.post("/paired-servers", Some(&at(port))).await.status, 201);
    }
    let refused = alice.post("/paired-servers", Some(&at(11))).await;
    refused.expect_problem(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("61"));
    assert!(refused.header("ratelimit-policy").unwrap().contains("\"new-game-servers\";q=10;w=60"));
    assert_eq!(alice.post("/paired-servers", Some(&at(10))).await.status, 200, "a known one can be paired again");
    assert_eq!(bob.post("/paired-servers", Some(&at(11))).await.status, 201);
    // One that was deleted is a new one.
    let id = alice.get("/paired-servers").await.json()["servers"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(alice.delete(&format!("/paired-servers/{id}")).await.status, 200);
    alice.post("/paired-servers", Some(&at(1))).await.expect_problem(429, "rate_limited");
    app.clock.advance(chrono::Duration::seconds(61));
    assert_eq!(alice.post("/paired-servers", Some(&at(11))).await.status, 201);
}

#[actix_web::test]
async fn a_user_pairs_fifty_servers_at_most() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut body = pairing();
    for port in 1..=50 {
        body["port"] = json!(port);
        assert_eq!(alice.post("/paired-servers", Some(&body)).await.status, 201);
        app.clock.advance(chrono::Duration::seconds(7));
    }
    assert_eq!(alice.post("/paired-servers", Some(&body)).await.status, 200, "a known one can be paired again");
    body["port"] = json!(51);
    alice.post("/paired-servers", Some(&body)).await.expect_problem(409, "limit_reached");
}
