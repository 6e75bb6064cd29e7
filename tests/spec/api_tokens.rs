//! API tokens: what a user's own programs may do, by scope and server, and how a token ends.

use chrono::Duration;
use companion::{domain::limits::API_TOKENS_PER_USER, simulator::world::GATE_SWITCH};
use reqwest::{Method, header::AUTHORIZATION};
use serde_json::{Value, json};

use crate::harness::{
    app::TestApp,
    browser::{Answer, Browser},
    game::{self, ALICE, BOB, is_complete, pair, share, watched},
    on_each_database,
    relay_client::{self, RelayClient},
};

/// A new token: its id and its secret.
async fn made(browser: &mut Browser, body: Value) -> (String, String) {
    let answer = browser.post("/me/tokens", Some(&body)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let made = answer.json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("token"))
}

async fn call(app: &TestApp, token: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let mut program = app.browser();
    let request = program.request(method, path).header(AUTHORIZATION, format!("Bearer {token}"));
    // From a page of anywhere.
    let request = request.header("origin", "null");
    program.send(if let Some(body) = body { request.json(&body) } else { request }).await
}

async fn get(app: &TestApp, token: &str, path: &str) -> Answer {
    call(app, token, Method::GET, path, None).await
}

async fn connect(app: &TestApp, token: &str) -> RelayClient {
    let minted = call(app, token, Method::POST, "/relay/token", None).await;
    assert_eq!(minted.status, 200, "{}", minted.text());
    let opening = relay_client::request(app.relay, minted.json()["token"].as_str());
    let opening = relay_client::with_header(opening, "origin", "https://deck.test");
    relay_client::open(app.relay, opening).await.expect("a 101").0
}

async fn tokens(browser: &mut Browser) -> Vec<Value> {
    browser.get("/me/tokens").await.json()["tokens"].as_array().unwrap().clone()
}

on_each_database!(a_token_is_shown_once_listed_and_gone_when_it_is_deleted, |app| {
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    assert_eq!(tokens(&mut alice).await, Vec::<Value>::new());
    let body = json!({ "label": "Board", "scopes": ["chat", "read", "read"] });
    let answer = alice.post("/me/tokens", Some(&body)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let mut answer = answer.json();
    let token = answer["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("companion_") && token.len() == "companion_".len() + 64, "{token}");
    let id = answer["id"].as_str().unwrap().to_owned();
    let mut listed = json!({
        "id": id, "label": "Board", "scopes": ["read", "chat"], "serverId": null,
        "createdAt": "2026-11-21T12:00:00.000Z", "expiresAt": null, "lastUsedAt": null,
    });
    answer.as_object_mut().unwrap().remove("token");
    assert_eq!(answer, listed);
    assert_eq!(tokens(&mut alice).await, [listed.clone()], "the secret is not in the list");
    for (seconds, seen) in [(5, "12:00:05"), (54, "12:00:05"), (10, "12:01:09")] {
        app.clock.advance(Duration::seconds(seconds));
        assert_eq!(get(&app, &token, "/paired-servers").await.status, 200);
        listed["lastUsedAt"] = json!(format!("2026-11-21T{seen}.000Z"));
        assert_eq!(tokens(&mut alice).await, [listed.clone()]);
    }
    let export = alice.get("/me/export").await.text();
    assert!(export.contains("\"apiTokens\"") && export.contains("Board") && !export.contains(&token), "{export}");

    let mut socket = connect(&app, &token).await;
    let path = format!("/me/tokens/{id}");
    bob.delete(&path).await.expect_problem(404, "not_found");
    get(&app, &token, "/me/tokens").await.expect_problem(401, "unauthenticated");
    call(&app, &token, Method::DELETE, &path, None).await.expect_problem(401, "unauthenticated");
    let deleted = alice.delete(&path).await;
    assert_eq!((deleted.status, deleted.json()), (200, json!({ "ok": true })));
    alice.delete(&path).await.expect_problem(404, "not_found");
    assert_eq!(socket.expect_close().await, 4501);
    get(&app, &token, "/paired-servers").await.expect_problem(401, "unauthenticated");
    call(&app, &token, Method::POST, "/relay/token", None).await.expect_problem(401, "unauthenticated");
});

#[actix_web::test]
async fn each_scope_opens_its_part_at_the_api_and_at_the_relay() {
    let (app, mut alice, _game, server, _watching) = watched(&[GATE_SWITCH]).await;
    let drill = alice.post(&format!("/paired-servers/{server}/drill"), None).await.json();
    let incident = drill["incident"].as_str().unwrap();
    let toggle = format!("/paired-servers/{server}/devices/{GATE_SWITCH}/toggle");
    let (chat, alarms) = (format!("/paired-servers/{server}/chat"), format!("/paired-servers/{server}/alarms"));
    let calls = [
        (Method::GET, "/paired-servers".to_owned(), None),
        (Method::GET, format!("/paired-servers/{server}/devices"), None),
        (Method::POST, toggle, None),
        (Method::POST, format!("{alarms}/{incident}/ack"), None),
        (Method::GET, alarms, None),
        (Method::GET, chat.clone(), None),
        (Method::POST, chat, Some(json!({ "text": "hello" }))),
    ];
    for (scope, opens, watches, commands) in [
        ("read", [true, true, false, false, true, true, false], true, false),
        ("devices", [true, true, true, true, false, false, false], false, true),
        ("chat", [true, false, false, false, false, true, true], false, false),
    ] {
        let (_, token) = made(&mut alice, json!({ "label": scope, "scopes": [scope] })).await;
        for ((method, path, body), opens) in calls.iter().zip(opens) {
            let answer = call(&app, &token, method.clone(), path, body.clone()).await;
            match opens {
                true => assert!(matches!(answer.status, 200 | 201), "{scope} {path}: {}", answer.text()),
                false => drop(answer.expect_problem(403, "insufficient_scope")),
            }
            assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{path}");
        }
        let mut socket = connect(&app, &token).await;
        socket.subscribe(&server).await;
        match watches {
            true => socket.until(&server, |state| is_complete(state, 1)).await,
            false => drop(socket.expect_error("insufficient_scope").await),
        }
        let device = GATE_SWITCH.to_string();
        for message in [
            json!({ "type": "deviceToggle", "serverId": server, "deviceId": device, "requestId": "r" }),
            json!({ "type": "raidAck", "serverId": server, "incident": incident, "requestId": "r" }),
        ] {
            socket.send(message).await;
            let answer = match commands {
                true => socket.expect("ack").await,
                false => socket.expect_error("insufficient_scope").await,
            };
            assert_eq!(answer["requestId"], "r");
        }
    }
}

#[actix_web::test]
async fn a_token_of_one_server_knows_no_other_and_ends_with_the_access() {
    let app = TestApp::start_beside_games().await;
    let (game, other_game) = (game::still(&app).await, game::still(&app).await);
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let (server, other) = (pair(&mut alice, &game).await, pair(&mut alice, &other_game).await);
    let mut invited = Vec::new();
    for server in [&server, &other] {
        invited.push(share(&mut alice, server, &mut bob).await);
    }
    let scopes = ["read", "devices", "chat"];
    let of_one = json!({ "label": "One", "scopes": scopes, "serverId": server });
    let (_, one) = made(&mut bob, of_one).await;
    let (_, all) = made(&mut bob, json!({ "label": "All", "scopes": scopes })).await;
    for (token, servers) in [(&one, vec![&server]), (&all, vec![&server, &other])] {
        let listed = get(&app, token, "/paired-servers").await.json();
        let listed: Vec<&str> =
            listed["servers"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap()).collect();
        assert_eq!(listed, servers);
    }
    get(&app, &one, &format!("/paired-servers/{other}/devices")).await.expect_problem(404, "not_found");
    // The token may not do what its user may not.
    let say = |server: &str| format!("/paired-servers/{server}/chat");
    let said = call(&app, &one, Method::POST, &say(&server), Some(json!({ "text": "hello" }))).await;
    said.expect_problem(403, "owner_only");

    let (mut one_socket, mut all_socket) = (connect(&app, &one).await, connect(&app, &all).await);
    for socket in [&mut one_socket, &mut all_socket] {
        socket.subscribe(&server).await;
        socket.expect_snapshot(&server).await;
    }
    one_socket.subscribe(&other).await;
    assert_eq!(one_socket.expect_error("unknown_server").await["serverId"], other);
    assert_eq!(alice.delete(&format!("/paired-servers/{server}/guests/{}", invited[0])).await.status, 200);
    assert_eq!(one_socket.expect_close().await, 4501);
    assert_eq!(all_socket.expect_error("unknown_server").await["serverId"], server);
    get(&app, &one, "/paired-servers").await.expect_problem(401, "unauthenticated");
    assert_eq!(get(&app, &all, "/paired-servers").await.json()["servers"].as_array().unwrap().len(), 1);
    assert_eq!(tokens(&mut bob).await.len(), 1, "that of one server went with the access");

    // The user erases themselves, and every token with them.
    all_socket.ping().await;
    let erased = bob
        .send(
            bob.request(Method::DELETE, "/me")
                .header("origin", crate::harness::app::FRONTEND)
                .json(&json!({ "confirm": BOB })),
        )
        .await;
    assert_eq!(erased.status, 200, "{}", erased.text());
    assert_eq!(all_socket.expect_close().await, 4501);
    get(&app, &all, "/paired-servers").await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn a_token_ends_when_it_was_said_to_and_its_socket_with_it() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let ends = (app.clock.now() + Duration::milliseconds(1_500)).to_rfc3339();
    let (_, token) = made(&mut alice, json!({ "label": "Short", "scopes": ["read"], "expiresAt": ends })).await;
    let mut socket = connect(&app, &token).await;
    assert_eq!(socket.expect_close().await, 4501, "the socket's own time");
    assert_eq!(get(&app, &token, "/paired-servers").await.status, 200, "the service's time stands still");
    app.clock.advance(Duration::milliseconds(1_500));
    get(&app, &token, "/paired-servers").await.expect_problem(401, "unauthenticated");
    assert_eq!(tokens(&mut alice).await.len(), 1, "it is still listed");
}

#[actix_web::test]
async fn what_makes_no_token_is_refused_and_a_user_has_a_limited_number() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    for (body, path) in [
        (json!({ "label": "x", "scopes": [] }), "scopes"),
        (json!({ "label": "", "scopes": ["read"] }), "label"),
        (json!({ "label": "a\nb", "scopes": ["read"] }), "label"),
        (json!({ "label": "x".repeat(101), "scopes": ["read"] }), "label"),
        (json!({ "label": "x", "scopes": ["read"], "expiresAt": "2026-11-21T12:00:00Z" }), "expiresAt"),
        (json!({ "label": "x", "scopes": ["read"], "serverId": "" }), "serverId"),
    ] {
        let problem = alice.post("/me/tokens", Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{body}: {problem}");
    }
    for body in [json!({}), json!({ "label": "x" }), json!({ "label": "x", "scopes": ["admin"] })] {
        alice.post("/me/tokens", Some(&body)).await.expect_problem(400, "invalid_request");
    }
    let unknown = json!({ "label": "x", "scopes": ["read"], "serverId": "no-such-server" });
    alice.post("/me/tokens", Some(&unknown)).await.expect_problem(404, "not_found");
    for _ in 0..API_TOKENS_PER_USER {
        made(&mut alice, json!({ "label": "x", "scopes": ["read"] })).await;
    }
    let more = json!({ "label": "x", "scopes": ["read"] });
    alice.post("/me/tokens", Some(&more)).await.expect_problem(409, "limit_reached");
    assert_eq!(alice.all_pages("/me/tokens", "tokens", 20).await.len(), API_TOKENS_PER_USER);
    let first = tokens(&mut alice).await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(alice.delete(&format!("/me/tokens/{first}")).await.status, 200);
    made(&mut alice, more).await;
    // Another's, and one of the right form that is none.
    let none = format!("companion_{}", "0".repeat(64));
    get(&app, &none, "/paired-servers").await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn a_busy_program_leaves_its_user_the_budget_of_requests() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let (_, token) = made(&mut alice, json!({ "label": "Busy", "scopes": ["read"] })).await;
    let mut refused = None;
    for _ in 0..1_000 {
        let answer = get(&app, &token, "/paired-servers").await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("it has a budget");
    refused.expect_problem(429, "rate_limited");
    assert!(refused.header("ratelimit").unwrap().contains("\"token\""), "{:?}", refused.headers);
    assert_eq!(alice.get("/paired-servers").await.status, 200);
}
