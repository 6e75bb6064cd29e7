//! Tracked players: kept, looked for, reported.

use companion::simulator::player_stats::{Habit, ListedGame, PlayerStatsFaults};
use serde_json::{Value, json};

use super::{PORT, STATS_SERVER, Tracked};
use crate::harness::{
    app::TestApp,
    database::Postgres,
    game::{ALICE, BOB, pair_port},
    relay_client::RelayClient,
};

const NOON: &str = "2026-11-21T12:00:00.000Z";

#[actix_web::test]
async fn a_player_is_tracked_changed_and_forgotten() {
    let mut test = Tracked::start_with(&[]).await;
    let me = test.alice.get("/me").await.json()["id"].clone();
    let body = json!({ "trackerName": " Vex ", "tag": "raider", "note": "two lines\nof notes" });
    let answer = test.alice.post(&test.path(), Some(&body)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let vex = answer.json();
    let expected = json!({
        "id": vex["id"], "trackerName": "Vex", "tag": "raider", "note": "two lines\nof notes", "platformId": null,
        "author": me, "createdAt": NOON, "online": false, "onlineSince": null, "lastSeenAt": null,
    });
    assert_eq!(vex, expected);
    let same = json!({ "trackerName": "VEX" });
    test.alice.post(&test.path(), Some(&same)).await.expect_problem(409, "conflict");

    let path = format!("{}/{}", test.path(), vex["id"].as_str().unwrap());
    let changed = test.alice.patch(&path, &json!({ "tag": null, "platformId": ALICE })).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let changed = changed.json();
    assert_eq!(
        (&changed["tag"], &changed["note"], &changed["platformId"]),
        (&json!(null), &vex["note"], &json!(ALICE))
    );
    test.track("Ada").await;
    let list = test.alice.get(&test.path()).await.json();
    assert_eq!((&list["players"][0]["trackerName"], &list["players"][1]), (&json!("Ada"), &changed));

    let deleted = test.alice.delete(&path).await;
    assert_eq!((deleted.status, deleted.json()), (200, json!({ "ok": true })));
    test.alice.delete(&path).await.expect_problem(404, "not_found");
    test.alice.patch(&path, &json!({ "tag": "x" })).await.expect_problem(404, "not_found");
    test.alice.get(&format!("{path}/sessions")).await.expect_problem(404, "not_found");
    assert_eq!(test.alice.get(&test.path()).await.json()["players"].as_array().unwrap().len(), 1);
}

#[actix_web::test]
async fn a_value_that_is_not_allowed_is_named_and_nothing_is_stored() {
    let mut test = Tracked::start_with(&[]).await;
    let long = |length: usize| json!("x".repeat(length));
    for (field, value) in [
        ("trackerName", json!("")),
        ("trackerName", json!("  ")),
        ("trackerName", json!("\u{200b}")),
        ("trackerName", json!("a\nb")),
        ("trackerName", json!("a\u{0}b")),
        ("trackerName", long(65)),
        ("tag", json!("")),
        ("tag", json!("a\nb")),
        ("tag", long(33)),
        ("note", json!("")),
        ("note", json!(" \n ")),
        ("note", json!("a\u{0}b")),
        ("note", long(1_001)),
    ] {
        let mut body = json!({ "trackerName": "Vex" });
        body[field] = value.clone();
        let problem = test.alice.post(&test.path(), Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{value}: {problem}");
    }
    let missing = test.alice.post(&test.path(), Some(&json!({}))).await.expect_problem(400, "invalid_request");
    assert_eq!(missing["errors"][0]["path"], "trackerName");
    assert_eq!(test.alice.get(&test.path()).await.json()["players"], json!([]));

    let vex = test.track("Vex").await;
    let path = format!("{}/{}", test.path(), vex["id"].as_str().unwrap());
    for (field, value) in [
        ("tag", json!("")),
        ("tag", long(33)),
        ("note", json!("a\u{7}")),
        ("note", long(1_001)),
        ("platformId", json!("1")),
        ("platformId", json!("")),
        ("platformId", json!("76561197960265727")),
    ] {
        let problem = test.alice.patch(&path, &json!({ field: value })).await;
        let problem = problem.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{value}: {problem}");
    }
    for body in [json!({ "tag": 1 }), json!({ "platformId": 76_561_198_000_000_001_u64 })] {
        test.alice.patch(&path, &body).await.expect_problem(400, "invalid_request");
    }
    assert_eq!(test.alice.get(&test.path()).await.json()["players"], json!([vex]));
    for wrong in ["limit=0", "limit=501", "limit=x", "limit=1&limit=2"] {
        let sessions = test.alice.get(&format!("{path}/sessions?{wrong}")).await;
        sessions.expect_problem(400, "invalid_request");
    }
}

#[actix_web::test]
async fn a_server_has_a_hundred_tracked_players_at_most() {
    let mut test = Tracked::start_with(&[]).await;
    for number in 0..100 {
        test.track(&format!("Player {number}")).await;
    }
    let one_more = json!({ "trackerName": "One more" });
    test.alice.post(&test.path(), Some(&one_more)).await.expect_problem(409, "limit_reached");
}

#[actix_web::test]
async fn only_the_owner_finds_tracked_players() {
    let mut test = Tracked::start_with(&[]).await;
    let vex = test.track("Vex").await;
    let list = test.path();
    let (one, body) = (format!("{list}/{}", vex["id"].as_str().unwrap()), json!({ "trackerName": "Ada", "tag": "x" }));
    let aliases = format!("/intel/{}/aliases?name=Vex", test.server);
    let (mut visitor, mut bob) = (test.app.browser(), test.app.signed_in(BOB).await);
    for (browser, status, code) in [(&mut visitor, 401, "unauthenticated"), (&mut bob, 404, "not_found")] {
        browser.get(&list).await.expect_problem(status, code);
        browser.post(&list, Some(&body)).await.expect_problem(status, code);
        browser.patch(&one, &json!({ "tag": "x" })).await.expect_problem(status, code);
        browser.delete(&one).await.expect_problem(status, code);
        browser.get(&format!("{one}/sessions")).await.expect_problem(status, code);
        browser.get(&aliases).await.expect_problem(status, code);
    }
    // Nor through a server of one's own.
    let other = pair_port(&mut bob, PORT + 1).await;
    let through = format!("/intel/{other}/tracking/{}", vex["id"].as_str().unwrap());
    bob.delete(&through).await.expect_problem(404, "not_found");
    bob.get(&format!("{through}/sessions")).await.expect_problem(404, "not_found");
    assert_eq!(test.alice.get(&list).await.json()["players"].as_array().unwrap().len(), 1);
    assert_eq!(test.asked("/players"), 0);
}

/// Players who come and go are reported and kept.
async fn watch_a_player_come_and_go(mut test: Tracked) {
    let mut client = RelayClient::watching(&test.app, &mut test.alice, &test.server).await;
    let vex = test.track("vex").await;
    let id = vex["id"].as_str().unwrap().to_owned();
    let list = test.until(|list| list["asOf"] == NOON).await;
    let matched =
        json!({ "id": STATS_SERVER, "name": "Sim Valley", "confidence": "certain", "by": ["address", "port"] });
    assert_eq!((&list["match"], &list["namesHidden"], &list["stale"]), (&matched, &json!(false), &json!(false)));
    assert_eq!(list["players"], json!([vex]));

    test.service.set_habit("Vex", Habit::Online);
    let message = client.expect("event").await;
    assert_eq!(message["serverId"], test.server);
    let event = &message["event"];
    assert_eq!(
        (&event["kind"], &event["action"], &event["title"]),
        (&json!("login"), &json!("login"), &json!("vex came online"))
    );
    assert_eq!(
        (&event["data"]["trackedPlayer"], &event["data"]["name"], &event["ts"]),
        (&json!(id), &json!("vex"), &json!(NOON))
    );
    let list = test.until(|list| list["players"][0]["online"] == true).await;
    assert_eq!(list["players"][0]["onlineSince"], NOON);
    let path = format!("{}/{id}/sessions", test.path());
    let sessions = test.alice.get(&path).await.json();
    assert_eq!(sessions["sessions"], json!([{ "from": NOON, "to": null }]));

    test.app.clock.advance(chrono::Duration::minutes(10));
    let later = "2026-11-21T12:10:00.000Z";
    test.until(|list| list["players"][0]["lastSeenAt"] == later).await;
    test.service.set_habit("Vex", Habit::Offline);
    let event = client.expect("event").await["event"].clone();
    assert_eq!((&event["kind"], &event["data"]["lastSeenAt"]), (&json!("logout"), &json!(later)));
    let sessions = test.alice.get(&path).await.json();
    assert_eq!(sessions["sessions"], json!([{ "from": NOON, "to": later }]));
    let timeline = format!("/intel/{}/timeline?types=login,logout", test.server);
    let kept = test.alice.get_until(&timeline, |kept| kept["entries"].as_array().unwrap().len() == 2).await;
    assert_eq!((&kept["entries"][0]["id"], &kept["entries"][0]["data"]["name"]), (&event["id"], &json!("vex")));
    let hours: Vec<i64> = serde_json::from_value(sessions["playTimeByHour"].clone()).unwrap();
    assert_eq!((hours.len(), hours[12], hours.iter().sum::<i64>()), (24, 600, 600));
    assert_eq!(
        (&sessions["online"], &sessions["onlineSince"], &sessions["lastSeenAt"]),
        (&json!(false), &Value::Null, &json!(later))
    );
    assert_eq!(client.state(&test.server)["mapMarkers"], json!({}), "no patch comes of it");
}

#[actix_web::test]
async fn who_comes_and_goes_is_reported_and_kept() {
    watch_a_player_come_and_go(Tracked::start().await).await;
}

#[actix_web::test]
async fn the_same_on_postgresql() {
    let Some(database) = Postgres::create() else { return };
    let service = super::service(&[&["Vex"]]).await;
    let url = format!("--player-stats-url={}", service.url());
    let flags =
        ["--allow-private-game-servers=true", "--player-stats-token=t", "--player-stats-poll-seconds=1", url.as_str()];
    let app = TestApp::start_on(database.url(), &flags).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair_port(&mut alice, PORT).await;
    watch_a_player_come_and_go(Tracked { app, service, alice, server }).await;
}

#[actix_web::test]
async fn a_game_server_is_asked_once_for_all_who_track_there() {
    let mut test = Tracked::start_with(&["--player-stats-poll-seconds=300"]).await;
    test.track("Vex").await;
    test.until(|list| list["asOf"] == NOON).await;
    let mut bob = test.app.signed_in(BOB).await;
    let server = pair_port(&mut bob, PORT).await;
    let path = format!("/intel/{server}/tracking");
    assert_eq!(bob.post(&path, Some(&json!({ "trackerName": "Vex" }))).await.status, 201);
    assert_eq!(bob.get(&path).await.json()["asOf"], NOON, "Bob's server is the same");
    // Asked after the worker knew Bob's player, and answered: a look of Bob's own would have come before.
    assert_eq!(bob.get(&format!("/intel/{server}/aliases?name=Vex")).await.status, 200);
    assert_eq!((test.asked(&format!("/servers/{STATS_SERVER}")), test.asked("/servers")), (1, 1));
}

#[actix_web::test]
async fn a_service_that_fails_leaves_what_is_known_and_says_so() {
    let mut test = Tracked::start().await;
    test.track("Vex").await;
    test.service.set_habit("Vex", Habit::Online);
    test.until(|list| list["players"][0]["online"] == true).await;
    test.service.set_faults(PlayerStatsFaults { status: Some(502), ..Default::default() });
    test.until_asked_again().await;
    test.until_asked_again().await;
    test.app.clock.advance(chrono::Duration::minutes(16));
    let list = test.alice.get(&test.path()).await.json();
    assert_eq!((&list["stale"], &list["asOf"]), (&json!(true), &json!(NOON)));
    assert_eq!((&list["players"][0]["online"], &list["match"]["id"]), (&json!(true), &json!(STATS_SERVER)));

    test.service.set_faults(PlayerStatsFaults::default());
    let list = test.until(|list| list["stale"] == false).await;
    assert_eq!(list["players"][0]["onlineSince"], "2026-11-21T12:16:00.000Z", "what was between is not known");
    let path = format!("{}/{}/sessions", test.path(), list["players"][0]["id"].as_str().unwrap());
    let sessions = test.alice.get(&path).await.json();
    assert_eq!(sessions["sessions"][1], json!({ "from": NOON, "to": NOON }));
}

#[actix_web::test]
async fn a_spent_budget_leaves_what_is_known_too() {
    // A search and a look; the day's second half has just begun.
    let mut test = Tracked::start_with(&["--player-stats-poll-seconds=1", "--player-stats-daily-requests=2"]).await;
    test.track("Vex").await;
    // Three quarters of two requests are one, for the search.
    let list = test.until(|list| list["match"]["id"] == STATS_SERVER).await;
    assert_eq!((&list["stale"], &list["asOf"]), (&json!(true), &json!(null)));
    test.app.clock.advance(chrono::Duration::hours(8));
    let list = test.until(|list| list["stale"] == false).await;
    assert_eq!(list["asOf"], "2026-11-21T20:00:00.000Z");
    test.app.clock.advance(chrono::Duration::minutes(20));
    assert_eq!(test.alice.get(&test.path()).await.json()["stale"], true);
    assert_eq!(test.service.asked().len(), 2);
}

#[actix_web::test]
async fn a_server_that_hides_names_is_said_to() {
    let mut test = Tracked::start().await;
    let companion = std::net::SocketAddr::from(([127, 0, 0, 1], PORT + 10));
    let hidden = ListedGame { hides_names: true, ..ListedGame::at("7002", "Incognito", companion) };
    test.service.list(hidden);
    test.server = pair_port(&mut test.alice, PORT + 10).await;
    test.track("diana").await;
    let list = test.until(|list| list["asOf"] == NOON).await;
    assert_eq!((&list["namesHidden"], &list["match"]["id"]), (&json!(true), &json!("7002")));
    test.until_asked_again().await;
    assert_eq!(test.alice.get(&test.path()).await.json()["players"][0]["online"], false, "a made-up name is no one");
}

#[actix_web::test]
async fn a_server_that_the_service_does_not_list_has_no_match() {
    let mut test = Tracked::start().await;
    // At another address than the listed one, where two servers leave nothing to guess.
    let companion = std::net::SocketAddr::from(([127, 0, 0, 1], PORT + 20));
    test.service.list(ListedGame::at("7003", "Another", companion));
    test.server = pair_port(&mut test.alice, PORT + 40).await;
    test.track("Vex").await;
    let list = test.until(|list| list["checkedAt"] == NOON).await;
    assert_eq!((&list["match"], &list["stale"]), (&json!(null), &json!(true)));
    assert_eq!(test.asked("/servers"), 2, "by address and by name");
}

#[actix_web::test]
async fn tracking_goes_on_after_a_restart_and_ends_with_the_server() {
    let mut test = Tracked::start().await;
    test.track("Vex").await;
    test.service.set_habit("Vex", Habit::Online);
    test.until(|list| list["players"][0]["online"] == true).await;
    let Tracked { app, service, alice, server } = test;
    let (cookies, app) = (alice.cookies.clone(), app.restart().await);
    let mut alice = app.browser();
    alice.cookies = cookies;
    let mut test = Tracked { app, service, alice, server };
    let mut client = RelayClient::watching(&test.app, &mut test.alice, &test.server).await;
    test.until_asked_again().await;
    test.service.set_habit("Vex", Habit::Offline);
    assert_eq!(client.expect("event").await["event"]["kind"], "logout", "no second login before it");

    assert_eq!(test.alice.delete(&format!("/paired-servers/{}", test.server)).await.status, 200);
    test.alice.get(&test.path()).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn without_a_service_players_are_kept_and_none_is_looked_for() {
    let app = TestApp::start_with(&["--allow-private-game-servers=true"]).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair_port(&mut alice, PORT).await;
    let path = format!("/intel/{server}/tracking");
    assert_eq!(alice.post(&path, Some(&json!({ "trackerName": "Vex" }))).await.status, 201);
    let list = alice.get(&path).await.json();
    assert_eq!((&list["match"], &list["stale"], &list["asOf"]), (&json!(null), &json!(true), &json!(null)));
    let aliases = alice.get(&format!("/intel/{server}/aliases?name=Vex")).await;
    aliases.expect_problem(503, "player_stats_unavailable");
}
