//! Guests of a paired server: how they come, what they see, and what happens when they go.

use std::time::{Duration, Instant};

use companion::simulator::world::{BASE_ALARM, GATE_SWITCH};
use futures_util::future::join_all;
use reqwest::{Method, header::ORIGIN};
use serde_json::{Value, json};

use crate::harness::{
    app::{FRONTEND, TestApp},
    browser::{Answer, Browser},
    game::{self, ALICE, BOB, add_device, is_complete, pair, share},
    on_each_database,
    relay_client::RelayClient,
};

const CAROL: &str = "76561198000000003";
/// Every guest has an address of their own.
const PROXY: &[&str] = &["--trusted-proxies=127.0.0.1"];
/// Longest time that a revoked watch may last; and a busy machine reads a little late.
const ENDS_WITHIN: Duration = Duration::from_millis(1_000 + 500);
const NOW: &str = "2026-11-21T12:00:00.000Z";

/// Pairs a server to which no client connects.
async fn server(owner: &mut Browser) -> String {
    pair_as(owner, None).await
}

async fn pair_as(owner: &mut Browser, name: Option<&str>) -> String {
    let body =
        json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": "1", "name": name });
    let answer = owner.post("/paired-servers", Some(&body)).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    text(&answer.json()["id"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

async fn invite(owner: &mut Browser, server: &str, body: Value) -> Answer {
    owner.post(&format!("/paired-servers/{server}/guests"), Some(&body)).await
}

/// Invites this account; the id.
async fn invite_account(owner: &mut Browser, server: &str, account: &str) -> String {
    let answer = invite(owner, server, json!({ "platformId": account })).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    text(&answer.json()["id"])
}

/// Accepts the invitation of this id.
async fn accept_account(guest: &mut Browser, id: &str) -> Answer {
    guest.post("/guest-invites/accept", Some(&json!({ "id": id }))).await
}

/// The invitations that this user is shown, by id.
async fn shown(browser: &mut Browser) -> Vec<String> {
    let list = browser.get("/guest-invites").await.json();
    let invited = list["servers"].as_array().unwrap().iter().filter(|shared| shared["state"] == "invited");
    invited.map(|shared| text(&shared["id"])).collect()
}

/// Id and token of a new link.
async fn link(owner: &mut Browser, server: &str) -> (String, String) {
    let answer = invite(owner, server, json!({ "link": true })).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let invite = answer.json();
    (text(&invite["id"]), text(&invite["token"]))
}

async fn accept(guest: &mut Browser, token: &str) -> Answer {
    guest.post("/guest-invites/accept", Some(&json!({ "token": token }))).await
}

async fn revoke(owner: &mut Browser, server: &str, guest: &str) -> Answer {
    owner.delete(&format!("/paired-servers/{server}/guests/{guest}")).await
}

async fn guests(browser: &mut Browser, server: &str) -> Vec<Value> {
    let answer = browser.get(&format!("/paired-servers/{server}/guests")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["guests"].as_array().unwrap().clone()
}

async fn user_id(browser: &mut Browser) -> String {
    text(&browser.get("/me").await.json()["id"])
}

on_each_database!(an_account_is_invited_before_its_first_sign_in, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let server = server(&mut alice).await;
    let invited = invite(&mut alice, &server, json!({ "platformId": BOB, "label": "Bob" })).await;
    assert_eq!(invited.status, 201, "{}", invited.text());
    let id = text(&invited.json()["id"]);
    let open = json!({
        "id": id, "state": "invited", "user": null, "platformId": BOB, "label": "Bob", "invitedAt": NOW,
        "expiresAt": null, "since": null,
    });
    assert_eq!(invited.json(), open);
    assert_eq!(guests(&mut alice, &server).await, [open]);

    app.clock.advance(chrono::Duration::days(20));
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let later = "2026-12-11T12:00:00.000Z";
    // Nothing is shared before he accepts.
    let owner = json!({ "id": user_id(&mut alice).await, "displayName": ALICE, "avatarUrl": null });
    let mut shared = json!({
        "id": id, "state": "invited", "serverId": server, "serverName": "Game server", "owner": owner, "invitedAt": NOW,
        "since": null,
    });
    assert_eq!(bob.get("/guest-invites").await.json(), json!({ "servers": [shared], "next": null }));
    bob.get(&format!("/paired-servers/{server}")).await.expect_problem(404, "not_found");
    assert_eq!(bob.get("/paired-servers").await.json(), json!({ "servers": [], "next": null }));
    assert_eq!(guests(&mut alice, &server).await[0]["state"], "invited");
    (shared["state"], shared["since"]) = (json!("guest"), json!(later));
    let accepted = accept_account(&mut bob, &id).await;
    assert_eq!((accepted.status, accepted.json()), (200, shared.clone()));
    assert_eq!(accept_account(&mut bob, &id).await.status, 200, "a second click");
    let me = json!({ "id": user_id(&mut bob).await, "displayName": BOB, "avatarUrl": null });
    let guest = json!({
        "id": id, "state": "guest", "user": me, "platformId": BOB, "label": "Bob", "invitedAt": NOW,
        "expiresAt": null, "since": later,
    });
    assert_eq!(guests(&mut alice, &server).await, [guest]);

    // The guest's view.
    assert_eq!(bob.get("/guest-invites").await.json(), json!({ "servers": [shared], "next": null }));
    let listed = bob.get("/paired-servers").await.json();
    let seen = &listed["servers"][0];
    assert_eq!((&seen["id"], &seen["role"], &seen["openIncidents"]), (&json!(server), &json!("guest"), &json!(0)));
    assert_eq!(*seen, bob.get(&format!("/paired-servers/{server}")).await.json());
    for hidden in ["address", "port"] {
        assert!(seen.get(hidden).is_none(), "{hidden}: {seen}");
    }
    assert_eq!(seen["name"], "Game server", "its name is its address");
    let own = &alice.get("/paired-servers").await.json()["servers"][0];
    assert_eq!((&own["port"], &own["name"]), (&json!(28083), &json!("play.example.com")));
    let about_himself = json!({
        "id": id, "state": "guest", "user": me, "platformId": null, "label": null, "invitedAt": null,
        "expiresAt": null, "since": later,
    });
    link(&mut alice, &server).await;
    assert_eq!(guests(&mut bob, &server).await, [about_himself], "no open invitations");

    // He leaves, and is no guest.
    let leave = format!("/guest-invites/{server}");
    assert_eq!(bob.delete(&leave).await.json(), json!({ "ok": true }));
    bob.delete(&leave).await.expect_problem(404, "not_found");
    bob.get(&format!("/paired-servers/{server}")).await.expect_problem(404, "not_found");
    assert_eq!(bob.get("/paired-servers").await.json(), json!({ "servers": [], "next": null }));
    assert_eq!(bob.get("/guest-invites").await.json(), json!({ "servers": [], "next": null }));
    alice.delete(&leave).await.expect_problem(404, "not_found");

    // A known account is asked again; removed, it is no guest again.
    let again = invite(&mut alice, &server, json!({ "platformId": BOB })).await;
    assert_eq!((again.status, &again.json()["state"]), (201, &json!("invited")));
    let id = text(&again.json()["id"]);
    assert_eq!(accept_account(&mut bob, &id).await.status, 200);
    assert_eq!(bob.get(&format!("/paired-servers/{server}")).await.status, 200);
    assert_eq!(revoke(&mut alice, &server, &id).await.json(), json!({ "ok": true }));
    revoke(&mut alice, &server, &id).await.expect_problem(404, "not_found");
    bob.get(&format!("/paired-servers/{server}")).await.expect_problem(404, "not_found");
});

on_each_database!(an_account_that_exists_looks_like_one_that_does_not_whatever_its_user_does, |app| {
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let mut carol = app.signed_in(CAROL).await;
    let server = server(&mut alice).await;
    let unknown = "76561198000000077";
    // The owner's view, without the account.
    let seen = async |alice: &mut Browser, id: &str| {
        let mut list = guests(alice, &server).await;
        let mut guest = list.remove(list.iter().position(|guest| guest["id"] == id).unwrap());
        guest["id"].take();
        guest["platformId"].take();
        guest
    };
    let invite_blank = async |alice: &mut Browser, account: &str| {
        let answer = invite(alice, &server, json!({ "platformId": account })).await;
        let (status, mut body) = (answer.status, answer.json());
        body["platformId"].take();
        (status, text(&body["id"].take()), body)
    };
    let (of_unknown, of_bob) = (invite_blank(&mut alice, unknown).await, invite_blank(&mut alice, BOB).await);
    assert_eq!((of_unknown.0, &of_unknown.2), (of_bob.0, &of_bob.2));
    let (unknown_id, mut id) = (of_unknown.1, of_bob.1);
    carol.post("/guest-invites/accept", Some(&json!({ "id": id }))).await.expect_problem(404, "unknown_invite");

    // He refuses, and it is not shown again, also when it is made again.
    assert_eq!(shown(&mut bob).await, [id.clone()]);
    let refuse = format!("/guest-invites/{server}");
    assert_eq!(bob.delete(&refuse).await.json(), json!({ "ok": true }));
    bob.delete(&refuse).await.expect_problem(404, "not_found");
    carol.delete(&refuse).await.expect_problem(404, "not_found");
    assert_eq!(seen(&mut alice, &id).await, seen(&mut alice, &unknown_id).await);
    invite(&mut alice, &server, json!({ "platformId": BOB })).await.expect_problem(409, "conflict");
    for _ in 0..2 {
        assert_eq!(shown(&mut bob).await, [""; 0]);
        assert_eq!(revoke(&mut alice, &server, &id).await.status, 200);
        id = invite_account(&mut alice, &server, BOB).await;
    }
    // He may change his mind.
    assert_eq!(accept_account(&mut bob, &id).await.status, 200);
    assert_eq!(revoke(&mut alice, &server, &id).await.status, 200);
    id = invite_account(&mut alice, &server, BOB).await;
    assert_eq!(shown(&mut bob).await, [id.clone()], "he refused before he accepted");

    // He blocks her.
    let owner = bob.get("/guest-invites").await.json()["servers"][0]["owner"].take();
    for (body, status, code) in [
        (json!({ "userId": "nobody" }), 404, "not_found"),
        (json!({ "userId": user_id(&mut bob).await }), 404, "not_found"),
        (json!({ "userId": "" }), 400, "invalid_request"),
        (json!({}), 400, "invalid_request"),
    ] {
        bob.post("/guest-invites/blocked", Some(&body)).await.expect_problem(status, code);
    }
    let block = json!({ "userId": owner["id"] });
    for _ in 0..2 {
        assert_eq!(bob.post("/guest-invites/blocked", Some(&block)).await.json(), json!({ "ok": true }));
    }
    let blocked = json!({ "blocked": [{ "user": owner, "blockedAt": NOW }], "next": null });
    assert_eq!(bob.get("/guest-invites/blocked").await.json(), blocked);
    assert_eq!(shown(&mut bob).await, [""; 0]);
    accept_account(&mut bob, &id).await.expect_problem(404, "unknown_invite");
    assert_eq!(seen(&mut alice, &id).await, seen(&mut alice, &unknown_id).await);
    let export = bob.get("/me/export").await.json();
    assert_eq!(export["blockedInviters"][0]["blockedUserId"], block["userId"]);
    // A link is another matter: he opens it himself.
    let (_, token) = link(&mut alice, &server).await;
    assert_eq!(accept(&mut bob, &token).await.status, 200);
    assert_eq!(guests(&mut alice, &server).await.len(), 2, "the invitation that was open is over");
    assert_eq!(bob.delete(&refuse).await.status, 200);
    let unblock = format!("/guest-invites/blocked/{}", owner["id"].as_str().unwrap());
    assert_eq!(bob.delete(&unblock).await.json(), json!({ "ok": true }));
    bob.delete(&unblock).await.expect_problem(404, "not_found");
    id = invite_account(&mut alice, &server, BOB).await;
    assert_eq!(shown(&mut bob).await, [id]);
});

#[actix_web::test]
async fn invitations_that_others_make_take_none_of_a_users_places() {
    let app = TestApp::start().await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let mut servers = Vec::new();
    for port in 1..=50 {
        let body = json!({ "address": "play.example.com", "port": port, "playerId": ALICE, "playerToken": "1" });
        let paired = alice.post("/paired-servers", Some(&body)).await.json();
        app.clock.advance(chrono::Duration::seconds(7));
        servers.push(text(&paired["id"]));
        let id = invite_account(&mut alice, servers.last().unwrap(), BOB).await;
        // Half of his places.
        if port % 2 == 0 {
            assert_eq!(accept_account(&mut bob, &id).await.status, 200);
        }
    }
    let mut carol = app.signed_in(CAROL).await;
    let (wanted, (_, token)) = {
        let server = server(&mut carol).await;
        let link = link(&mut carol, &server).await;
        (server, link)
    };
    assert_eq!((shown(&mut bob).await.len(), accept(&mut bob, &token).await.status), (25, 200));
    assert_eq!(bob.get(&format!("/paired-servers/{wanted}")).await.status, 200);
}

on_each_database!(a_link_is_for_one_guest_and_for_seven_days, |app| {
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let mut carol = app.signed_in(CAROL).await;
    let server = server(&mut alice).await;
    let made = invite(&mut alice, &server, json!({ "link": true, "label": "for Bob" })).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let token = text(&made["token"]);
    assert_eq!(made["url"], format!("{FRONTEND}/invite#token={token}"));
    assert_eq!((&made["state"], &made["expiresAt"]), (&json!("invited"), &json!("2026-11-28T12:00:00.000Z")));
    assert!(!alice.get(&format!("/paired-servers/{server}/guests")).await.text().contains(&token), "shown once");

    let preview = app.browser().get(&format!("/guest-invites/preview?token={token}")).await;
    let owner = json!({ "id": user_id(&mut alice).await, "displayName": ALICE, "avatarUrl": null });
    let expected = json!({ "serverName": "Game server", "owner": owner, "expiresAt": "2026-11-28T12:00:00.000Z" });
    assert_eq!(preview.json(), expected);

    accept(&mut alice, &token).await.expect_problem(409, "conflict");
    let accepted = accept(&mut bob, &token).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text());
    assert_eq!((&accepted.json()["serverId"], &accepted.json()["id"]), (&json!(server), &made["id"]));
    assert_eq!(accept(&mut bob, &token).await.status, 200, "a second click of his");
    accept(&mut carol, &token).await.expect_problem(410, "invite_used");
    let used = app.browser().get(&format!("/guest-invites/preview?token={token}")).await;
    used.expect_problem(410, "invite_used");
    carol.get(&format!("/paired-servers/{server}")).await.expect_problem(404, "not_found");

    pair_as(&mut alice, Some("Home")).await;
    let shared = bob.get("/guest-invites").await.json();
    assert_eq!(shared["servers"][0]["serverName"], "Home", "a name that was given is for all");

    let (taken_back, unwanted) = link(&mut alice, &server).await;
    assert_eq!(revoke(&mut alice, &server, &taken_back).await.status, 200);
    accept(&mut carol, &unwanted).await.expect_problem(404, "unknown_invite");

    let (_, late) = link(&mut alice, &server).await;
    assert_eq!(accept(&mut bob, &late).await.status, 200, "he is a guest, and leaves it to others");
    app.clock.advance(chrono::Duration::days(7));
    accept(&mut carol, &late).await.expect_problem(410, "invite_expired");
    assert_eq!(guests(&mut alice, &server).await.len(), 1, "only Bob");
});

#[actix_web::test]
async fn what_is_wrong_is_named_and_nothing_is_stored() {
    let app = TestApp::start().await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = server(&mut alice).await;
    for (body, path) in [
        (json!({}), "platformId"),
        (json!({ "label": "x" }), "platformId"),
        (json!({ "link": false }), "platformId"),
        (json!({ "platformId": BOB, "link": true }), "link"),
        (json!({ "platformId": "" }), "platformId"),
        (json!({ "platformId": "7656119800000000x" }), "platformId"),
        (json!({ "platformId": "11111111111111111" }), "platformId"),
        (json!({ "platformId": "7656119800000000\u{0}" }), "platformId"),
        (json!({ "platformId": ALICE }), "platformId"),
        (json!({ "link": true, "label": "" }), "label"),
        (json!({ "link": true, "label": " " }), "label"),
        (json!({ "link": true, "label": "a\nb" }), "label"),
        (json!({ "link": true, "label": "a\u{0}b" }), "label"),
        (json!({ "link": true, "label": "x".repeat(101) }), "label"),
        (json!({ "link": "yes" }), "link"),
        (json!({ "platformId": 7 }), "platformId"),
        (json!([]), ""),
    ] {
        let problem = invite(&mut alice, &server, body.clone()).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{body}: {problem}");
    }
    assert!(guests(&mut alice, &server).await.is_empty());
    for (body, path) in
        [(json!({}), "token"), (json!({ "token": "" }), "token"), (json!({ "token": "x".repeat(129) }), "token")]
    {
        let problem = bob.post("/guest-invites/accept", Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{body}: {problem}");
    }
    let both = bob.post("/guest-invites/accept", Some(&json!({ "token": "t", "id": "i" }))).await;
    assert_eq!(both.expect_problem(400, "invalid_request")["errors"][0]["path"], "id");
    for query in ["", "?token=", "?token=a&token=b"] {
        let answer = bob.get(&format!("/guest-invites/preview{query}")).await;
        answer.expect_problem(400, "invalid_request");
    }
    for path in ["/guest-invites/%00", "/guest-invites/nothing"] {
        bob.delete(path).await.expect_problem(404, "not_found");
    }
    invite_account(&mut alice, &server, BOB).await;
    invite(&mut alice, &server, json!({ "platformId": BOB })).await.expect_problem(409, "conflict");
    invite_account(&mut alice, &server, CAROL).await;
    invite(&mut alice, &server, json!({ "platformId": CAROL })).await.expect_problem(409, "conflict");
    for _ in 0..18 {
        link(&mut alice, &server).await;
    }
    invite(&mut alice, &server, json!({ "link": true })).await.expect_problem(409, "limit_reached");
}

#[actix_web::test]
async fn unknown_links_are_tried_five_times() {
    let app = TestApp::start().await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = server(&mut alice).await;
    let (_, token) = link(&mut alice, &server).await;
    let (_, used) = link(&mut alice, &server).await;
    let mut carol = app.signed_in(CAROL).await;
    assert_eq!(accept(&mut carol, &used).await.status, 200);
    let (id, revoked) = link(&mut alice, &server).await;
    assert_eq!(revoke(&mut alice, &server, &id).await.status, 200);
    for _ in 0..10 {
        accept(&mut bob, &used).await.expect_problem(410, "invite_used");
        // The owner took it back: no wrong guess.
        accept(&mut bob, &revoked).await.expect_problem(404, "unknown_invite");
        let preview = bob.get(&format!("/guest-invites/preview?token={revoked}")).await;
        preview.expect_problem(404, "unknown_invite");
    }
    for guess in 0..5 {
        match guess % 2 {
            0 => accept(&mut bob, "guess").await.expect_problem(404, "unknown_invite"),
            _ => bob.get("/guest-invites/preview?token=guess").await.expect_problem(404, "unknown_invite"),
        };
    }
    let refused = accept(&mut bob, "guess").await;
    refused.expect_problem(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("600"));
    // One that was made here is no guess.
    assert_eq!(accept(&mut bob, &token).await.status, 200);
    app.clock.advance(chrono::Duration::minutes(10));
    accept(&mut bob, "guess").await.expect_problem(404, "unknown_invite");
}

#[actix_web::test]
async fn a_guest_watches_live_until_the_owner_ends_it() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    // Both threads have to know who may watch, and that Bob may not.
    let mut owners = Vec::new();
    for _ in 0..4 {
        owners.push(RelayClient::watching(&app, &mut alice, &server).await);
    }
    let mut socket = RelayClient::connect(&app, &mut bob).await;
    socket.subscribe(&server).await;
    socket.expect_error("unknown_server").await;

    for round in 0..3 {
        let guest = share(&mut alice, &server, &mut bob).await;
        // At once: the answer is as good as the relay's knowledge.
        let mut fresh = RelayClient::connect(&app, &mut bob).await;
        for socket in [&mut socket, &mut fresh] {
            socket.subscribe(&server).await;
            socket.until(&server, |state| is_complete(state, 1)).await;
        }
        // The clock does not move: the same words would be the same line.
        let (hello, secret) = (format!("hello {round}"), format!("secret {round}"));
        game.world(|world| world.say(76561198000000002, &hello));
        for socket in [&mut socket, &mut fresh] {
            assert_eq!(socket.expect("chat").await["chat"]["text"], hello);
        }

        assert_eq!(revoke(&mut alice, &server, &guest).await.status, 200);
        let revoked = Instant::now();
        for socket in [&mut socket, &mut fresh] {
            assert_eq!(socket.expect_error("unknown_server").await["serverId"], server);
        }
        assert!(revoked.elapsed() < ENDS_WITHIN, "{:?}", revoked.elapsed());
        let patches = [socket.known[&server].patches, fresh.known[&server].patches];
        game.world(|world| {
            world.say(76561198000000002, &secret);
            world.set_switch(GATE_SWITCH, round % 2 == 0)
        })
        .unwrap();
        let now = json!(round % 2 == 0);
        for owner in &mut owners {
            owner.expect_where("chat", |message| message["chat"]["text"] == secret).await;
            owner.until(&server, |state| state["devices"][GATE_SWITCH.to_string()]["value"] == now).await;
        }
        for (socket, patches) in [&mut socket, &mut fresh].into_iter().zip(patches) {
            socket.send(json!({ "type": "ping" })).await;
            assert_eq!(socket.next_message().await["type"], "pong", "nothing came after the end");
            assert_eq!(socket.known[&server].patches, patches);
        }
    }
}

#[actix_web::test]
async fn a_guest_who_accepts_and_one_who_leaves_are_known_to_the_relay() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut owner = RelayClient::watching(&app, &mut alice, &server).await;
    let mut bob = app.signed_in(BOB).await;
    share(&mut alice, &server, &mut bob).await;
    let mut guest = RelayClient::watching(&app, &mut bob, &server).await;
    assert_eq!(bob.delete(&format!("/guest-invites/{server}")).await.status, 200);
    assert_eq!(guest.expect_error("unknown_server").await["serverId"], server);
    owner.ping().await;
}

#[actix_web::test]
async fn open_incidents_are_counted_for_owner_and_guest() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, BASE_ALARM).await;
    share(&mut alice, &server, &mut bob).await;
    let mut client = RelayClient::watching(&app, &mut bob, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    assert_eq!(alice.post(&format!("/paired-servers/{server}/drill"), None).await.status, 200);
    game.world(|world| world.fire_alarm(BASE_ALARM));
    let raid = client.expect_where("raid", |raid| raid["drill"].is_null()).await;
    // The ledger may be a moment behind the message; acknowledging waits for it.
    let ack = json!({ "type": "raidAck", "serverId": server, "incident": raid["incident"], "requestId": "r" });
    client.send(ack).await;
    client.expect("ack").await;
    for browser in [&mut alice, &mut bob] {
        assert_eq!(browser.get("/paired-servers").await.json()["servers"][0]["openIncidents"], 1);
        let one = browser.get(&format!("/paired-servers/{server}")).await.json();
        assert_eq!(one["openIncidents"], 1);
    }
}

/// 25 links are accepted and taken back at the same time, by five users with open sockets.
async fn accept_and_revoke_at_once(app: TestApp) {
    let mut alice = app.signed_in(ALICE).await;
    let ports = [28_083, 28_084];
    let mut servers = Vec::new();
    for port in ports {
        let body = json!({ "address": "play.example.com", "port": port, "playerId": ALICE, "playerToken": "1" });
        servers.push(text(&alice.post("/paired-servers", Some(&body)).await.json()["id"]));
    }
    let mut users = Vec::new();
    for number in 11..16 {
        users.push(app.signed_in(&format!("765611980000000{number}")).await);
    }
    let mut links = Vec::new();
    for number in 0..25 {
        let server = &servers[number % 2];
        let (id, token) = link(&mut alice, server).await;
        links.push((server.clone(), id, token));
    }
    let accepting = links.iter().enumerate().map(|(number, (_, _, token))| {
        let mut user = users[number % users.len()].clone();
        let request = user.request(Method::POST, "/guest-invites/accept").header(ORIGIN, FRONTEND);
        // Links that are gone count as guesses of an address.
        let request = request.header("x-forwarded-for", format!("198.51.100.{number}"));
        let request = request.json(&json!({ "token": token }));
        async move { user.send(request).await }
    });
    // One link in five stays.
    let revoking = links.iter().enumerate().filter(|(number, _)| number % 5 != 0).map(|(_, (server, id, _))| {
        let mut alice = alice.clone();
        async move { revoke(&mut alice, server, id).await }
    });
    let (accepted, revoked) = tokio::join!(join_all(accepting), join_all(revoking));
    for answer in revoked {
        assert_eq!(answer.status, 200, "an invitation or a guest, it is gone: {}", answer.text());
    }
    for answer in accepted {
        assert!(matches!(answer.status, 200 | 404), "{}", answer.text());
    }
    for server in &servers {
        let left = guests(&mut alice, server).await;
        let kept: Vec<&String> = links.iter().step_by(5).filter(|(of, ..)| of == server).map(|(_, id, _)| id).collect();
        let ids: Vec<String> = left.iter().map(|guest| text(&guest["id"])).collect();
        assert_eq!(ids.iter().collect::<Vec<_>>(), kept);
        let inside: Vec<String> =
            left.iter().filter(|guest| guest["state"] == "guest").map(|guest| text(&guest["user"]["id"])).collect();
        for user in &mut users {
            let id = user_id(user).await;
            let is_guest = inside.contains(&id);
            assert_eq!(inside.iter().filter(|inside| **inside == id).count(), usize::from(is_guest), "once at most");
            let status = user.get(&format!("/paired-servers/{server}")).await.status;
            assert_eq!(status, if is_guest { 200 } else { 404 });
            let mut socket = RelayClient::connect(&app, user).await;
            socket.subscribe(server).await;
            match is_guest {
                true => drop(socket.expect_snapshot(server).await),
                false => drop(socket.expect_error("unknown_server").await),
            }
        }
    }
}

#[actix_web::test]
async fn accepting_and_revoking_at_once_ends_consistent_on_sqlite() {
    accept_and_revoke_at_once(TestApp::start_with(PROXY).await).await;
}

#[actix_web::test]
async fn accepting_and_revoking_at_once_ends_consistent_on_postgres() {
    let Some(database) = crate::harness::database::Postgres::create() else { return };
    accept_and_revoke_at_once(TestApp::start_on(database.url(), PROXY).await).await;
}

#[actix_web::test]
async fn twenty_guests_lose_their_sockets_within_a_second_of_one_another() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut owner = RelayClient::watching(&app, &mut alice, &server).await;
    let (mut ids, mut sockets) = (Vec::new(), Vec::new());
    for number in 11..31 {
        app.clock.advance(chrono::Duration::seconds(10)); // sign-ins are limited
        let account = format!("765611980000000{number}");
        let mut guest = app.signed_in(&account).await;
        ids.push(share(&mut alice, &server, &mut guest).await);
        sockets.push(RelayClient::watching(&app, &mut guest, &server).await);
    }
    let revoking = ids.iter().map(|id| {
        let mut alice = alice.clone();
        let server = &server;
        async move { assert_eq!(revoke(&mut alice, server, id).await.status, 200) }
    });
    join_all(revoking).await;
    let revoked = Instant::now();
    join_all(sockets.iter_mut().map(|socket| socket.expect_error("unknown_server"))).await;
    assert!(revoked.elapsed() < ENDS_WITHIN, "{:?}", revoked.elapsed());
    owner.ping().await;
    assert!(guests(&mut alice, &server).await.is_empty());
}
