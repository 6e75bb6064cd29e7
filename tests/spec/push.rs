//! The game's pushes: from the push service, through the worker, to the pairing, the sockets and the timeline.

use std::{collections::HashMap, net::Ipv4Addr};

use chrono::Duration;
use companion::{
    clock::Clock,
    db::{engine::pool::Db, failed_pushes, paired_servers},
    domain::{credential::RefusalReason, time::Timestamp},
    simulator::{
        game_server::{DEMO_TOKEN, GameServer},
        push_service::{PushService, PushedServer, news},
        world::{BASE_ALARM, GATE_SWITCH, TEAM, WALL_ALARM},
    },
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{
    browser::Browser,
    game::{self, ALICE, BOB, add_device, is_complete, is_connected},
    helper::HelperDevice,
    push::{
        BOBS_PHONE, LedgerRow, NEW_PHONE, PHONE, PushTest, TimelineRow, alarm_pairing, at, bundle, named, only_server,
        pairing, servers, session_is, upload,
    },
    relay_client::{PATIENCE, RelayClient},
};

const WRONG_TOKEN: (u64, u64) = (PHONE.0, 7);

/// Alice with a game server and its two alarms, paired by pushes, and a dashboard that watches it.
struct Watched {
    test: PushTest,
    alice: Browser,
    game: GameServer,
    /// As pushes name it, and as the service does.
    named: PushedServer,
    server: String,
    client: RelayClient,
}

async fn watched() -> Watched {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let game = game::still(&test.app).await;
    let named = named(&game);
    for (device, name) in [(BASE_ALARM, "Base alarm"), (WALL_ALARM, "Wall alarm")] {
        test.push(alarm_pairing(&named, device, name));
    }
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    let server = only_server(&mut alice).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 2)).await;
    Watched { test, alice, game, named, server, client }
}

/// Each entry of the timeline: kind, server, time, title, message.
fn entries(rows: &[TimelineRow]) -> Vec<(&str, Option<&str>, Timestamp, &str, &str)> {
    rows.iter().map(|row| (&*row.kind, row.server.as_deref(), row.ts, &*row.title, &*row.message)).collect()
}

#[actix_web::test]
async fn pairing_in_the_game_pairs_here_too() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, mut helper) = test.alice().await;
    let game = game::still(&test.app).await;
    let player = TEAM[0].0;
    game.push_through(test.push.clone(), "Sim Valley", HashMap::from([(player, PHONE.0)]));
    // Pressed before there is a session: the push waits.
    game.pair(player, &[GATE_SWITCH]);
    assert_eq!(upload(&mut helper, PHONE).await["staged"], false);
    test.until(|push| push.connected(PHONE.0) && push.unacknowledged(PHONE.0) == 0).await;
    assert_eq!(test.push.counts().logins, 1);

    let server = only_server(&mut alice).await;
    let shown = &servers(&mut alice).await[0];
    let port = game.addr().port();
    assert_eq!(
        (&shown["name"], &shown["address"], &shown["port"]),
        (&json!("Sim Valley"), &json!("127.0.0.1"), &json!(port))
    );
    assert_eq!((&shown["playerId"], &shown["role"]), (&json!(ALICE), &json!("owner")));
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    // Both pushes need the link, which opens once.
    let complete = |state: &Value| {
        assert_ne!(state["server"]["connection"], "unreachable", "{}", state["server"]);
        is_complete(state, 1)
    };
    client.until(&server, complete).await;
    let gate = &client.state(&server)["devices"][GATE_SWITCH.to_string()];
    assert_eq!((&gate["kind"], &gate["name"]), (&json!("switch"), &json!("Gate")));

    // A device that is paired later joins the others.
    game.pair(player, &[BASE_ALARM]);
    client.until(&server, |state| is_complete(state, 2)).await;
    assert_eq!(client.state(&server)["devices"][BASE_ALARM.to_string()]["kind"], "alarm");

    // A repetition leaves the link alone. An answer through the link comes after whatever the pairing did.
    let since = client.state(&server)["server"]["since"].clone();
    test.app.clock.advance(Duration::seconds(1));
    game.pair(player, &[GATE_SWITCH, BASE_ALARM]);
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    let toggle = json!({
        "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": "after",
    });
    client.send(toggle).await;
    assert_eq!(client.expect("ack").await["requestId"], "after");
    assert_eq!(client.state(&server)["server"]["since"], since);
    assert_eq!(only_server(&mut alice).await, server);

    // Another token opens the link again.
    test.app.clock.advance(Duration::seconds(1));
    game.set_token(player, Some(DEMO_TOKEN + 1));
    game.pair(player, &[]);
    let is_opened_again = |state: &Value| is_connected(state) && state["server"]["since"] == "2026-11-21T12:00:02.000Z";
    client.until(&server, is_opened_again).await;
    assert_eq!(only_server(&mut alice).await, server);
}

#[actix_web::test]
async fn pairing_the_same_by_hand_leaves_the_link_alone() {
    let Watched { test, mut alice, game: _game, named, server, mut client } = watched().await;
    test.push(named.entity_pairing(ALICE.parse().unwrap(), DEMO_TOKEN, GATE_SWITCH, 1, "Gate"));
    client.until(&server, |state| is_complete(state, 3)).await;
    let since = client.state(&server)["server"]["since"].clone();
    test.app.clock.advance(Duration::seconds(1));
    let same = json!({ "address": named.ip, "port": named.port, "playerId": ALICE, "playerToken": DEMO_TOKEN });
    let paired = alice.post("/paired-servers", Some(&same)).await;
    assert_eq!((paired.status, &paired.json()["id"]), (200, &json!(server)));
    // An answer through the link comes after whatever the pairing did.
    let toggle = json!({
        "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": "after",
    });
    client.send(toggle).await;
    assert_eq!(client.expect("ack").await["requestId"], "after");
    assert_eq!(client.state(&server)["server"]["since"], since);

    // Another token opens it again; no one has this one.
    let mut other = same;
    other["playerToken"] = json!(DEMO_TOKEN + 1);
    assert_eq!(alice.post("/paired-servers", Some(&other)).await.status, 200);
    client.until(&server, |state| state["server"]["connection"] == "rejected").await;
}

#[actix_web::test]
async fn a_pairing_that_comes_after_a_newer_one_keeps_its_token_and_adds_its_device() {
    let Watched { test, alice: _alice, game, named, server, mut client } = watched().await;
    let old = named.entity_pairing(ALICE.parse().unwrap(), DEMO_TOKEN - 1, GATE_SWITCH, 1, "Gate");
    test.push_sent(PHONE, old, test.ago(5));
    client.until(&server, |state| is_complete(state, 3)).await;
    test.push_sent(PHONE, named.pairing(ALICE.parse().unwrap(), DEMO_TOKEN - 1), test.ago(4));
    test.push(pairing(&named));
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    let read = |db: &mut Db| Ok(paired_servers::get(db, &server.as_str().into())?.credentials_version);
    assert_eq!(test.pool.read_blocking(read).unwrap(), 0, "they never changed");
    assert!(game.addresses().values().all(|usage| usage.bad_tokens == 0));
}

#[actix_web::test]
async fn a_push_replaces_the_player_of_a_server_that_was_paired_by_hand() {
    let test = PushTest::start().await;
    let (mut alice, _) = test.alice_receiving().await;
    let named = at("play.example.com", 28_083);
    let by_hand = json!({ "address": named.ip, "port": named.port, "playerId": BOB, "playerToken": 1, "name": "Home" });
    let server = alice.post("/paired-servers", Some(&by_hand)).await.json()["id"].as_str().unwrap().to_owned();
    test.deliver(pairing(&named)).await;
    assert_eq!(only_server(&mut alice).await, server);
    assert_eq!(servers(&mut alice).await[0]["playerId"], ALICE);
    // Pushes after it arrive too.
    test.deliver(named.alarm("Base alarm", "")).await;
    test.ledger_until(&[("push", "Base alarm", "opened", Some(0))]).await;
}

#[actix_web::test]
async fn a_pushed_alarm_reaches_every_dashboard_and_is_in_the_ledger() {
    let Watched { test, named, server, mut client, .. } = watched().await;
    // Alice is signed in a second time.
    let mut elsewhere = test.app.signed_in(ALICE).await;
    let mut second = RelayClient::watching(&test.app, &mut elsewhere, &server).await;
    test.push(named.alarm("Base alarm", "<b>They</b> are here"));
    let raid = client.expect("raid").await;
    assert_eq!(raid, second.expect("raid").await);
    assert_eq!((&raid["serverId"], &raid["alarmName"]), (&json!(server), &json!("Base alarm")));
    assert_eq!((&raid["count"], &raid["update"], &raid["drill"]), (&json!(1), &json!(false), &Value::Null));
    assert_eq!(raid["ts"], "2026-11-21T12:00:00.000Z");

    drop(second);
    let rows = test.ledger_until(&[("push", "Base alarm", "opened", Some(2))]).await;
    assert_eq!(rows[0].incident.as_deref(), raid["incident"].as_str());
}

#[actix_web::test]
async fn an_alarm_by_push_and_by_link_is_delivered_once() {
    let Watched { test, game, named, server, mut client, .. } = watched().await;
    game.world(|world| world.fire_alarm(BASE_ALARM));
    let live = client.expect("raid").await;
    assert_eq!((&live["alarmId"], &live["update"]), (&json!(BASE_ALARM.to_string()), &json!(false)));
    test.deliver(named.alarm("Base alarm", "")).await;
    let both = [("link", "Base alarm", "opened", Some(1)), ("push", "Base alarm", "merged", None)];
    let rows = test.ledger_until(&both).await;
    assert_eq!(rows[0].incident, rows[1].incident);

    // The other way round; the first raid that comes now is this one, so the push above delivered nothing.
    test.push(named.alarm("Wall alarm", ""));
    let pushed = client.expect("raid").await;
    assert_eq!((&pushed["alarmId"], &pushed["update"]), (&json!("push:Wall alarm"), &json!(false)));
    game.world(|world| world.fire_alarm(WALL_ALARM));
    client.until(&server, |state| state["devices"][WALL_ALARM.to_string()]["value"] == true).await;
    let wall = [("push", "Wall alarm", "opened", Some(1)), ("link", "Wall alarm", "merged", None)];
    test.ledger_until(&[both, wall].concat()).await;
    // An update names its alarm.
    test.app.clock.advance(Duration::seconds(10));
    let update = client.expect("raid").await;
    assert_eq!((&update["incident"], &update["alarmId"]), (&pushed["incident"], &json!(WALL_ALARM.to_string())));
    assert_eq!((&update["count"], &update["update"]), (&json!(1), &json!(true)));
}

#[actix_web::test]
async fn an_alarm_by_push_while_the_link_is_down_is_one_with_what_the_link_finds() {
    let Watched { test, mut alice, game, named, server, mut client } = watched().await;
    game.faults(|faults| faults.refuse = true);
    game.drop_connections();
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    test.app.clock.advance(Duration::seconds(1));
    game.world(|world| world.fire_alarm(BASE_ALARM));
    test.push(named.alarm("Base alarm", ""));
    let pushed = client.expect("raid").await;
    let (incident, alarm) = (pushed["incident"].as_str().unwrap(), BASE_ALARM.to_string());
    test.app.clock.advance(Duration::seconds(91));
    client.until(&server, |state| state["raids"][incident]["endedAt"].is_string()).await;

    // The alarm is still on when the link is back.
    game.faults(|faults| faults.refuse = false);
    assert_eq!(game::pair(&mut alice, &game).await, server, "it is tried at once");
    client.until(&server, |state| state["raids"][incident]["alarmId"] == alarm).await;
    let raids = client.state(&server)["raids"].as_object().unwrap();
    assert_eq!((raids.len(), &raids[incident]["count"]), (1, &json!(1)), "{raids:?}");
    let alarms = format!("/paired-servers/{server}/alarms");
    let by_both = |shown: &Value| shown["alarms"][0]["paths"].as_array().is_some_and(|paths| paths.len() == 2);
    let shown = alice.get_until(&alarms, by_both).await;
    let alarms = shown["alarms"].as_array().unwrap();
    assert_eq!((alarms.len(), &alarms[0]["incident"]), (1, &pushed["incident"]), "{shown}");
}

#[actix_web::test]
async fn an_alarm_that_no_socket_receives_is_stored_as_unheard() {
    let test = PushTest::start().await;
    let (mut alice, _) = test.alice_receiving().await;
    let server = at("play.example.com", 28_083);
    test.push(pairing(&server));
    test.push(server.alarm("Base alarm", ""));
    let rows = test.ledger_until(&[("push", "Base alarm", "opened", Some(0))]).await;
    assert_eq!(rows[0].heard, Some(("unheard".to_owned(), 0)));
    // The numbers are of the process; other services in it may have set them meanwhile.
    for _ in 0..100 {
        if test.metric("companion_incidents{state=\"unheard\"}").await == 1 {
            only_server(&mut alice).await;
            return;
        }
    }
    panic!("it is not counted");
}

#[actix_web::test]
async fn an_alarm_of_an_unknown_server_is_stored_and_one_of_long_ago_is_marked_late() {
    let Watched { test, named, server, mut client, .. } = watched().await;
    let (night, fresh) = (test.ago(21), test.ago(19));
    let stranger = PushedServer { name: "Elsewhere".to_owned(), ..at("strange.example.com", 28_083) };
    test.push(stranger.alarm("Of a stranger", "Not paired"));
    test.push_sent(PHONE, named.alarm("Of the night", "It was here"), night);
    let late = client.expect("raid").await;
    assert_eq!((&late["alarmName"], &late["late"]), (&json!("Of the night"), &json!(true)));
    assert_eq!(late["ts"], json!(night.to_wire()), "when it was sent");
    client.until(&server, |state| state["raids"].as_object().is_some_and(|raids| raids.len() == 1)).await;
    let shown = &client.state(&server)["raids"][late["incident"].as_str().unwrap()];
    assert_eq!((&shown["late"], &shown["firstAt"]), (&json!(true), &json!(night.to_wire())));
    assert!(shown["endedAt"].is_string(), "it does not open as fresh");
    test.push_sent(PHONE, named.alarm("Just now", ""), fresh);
    let raid = client.expect("raid").await;
    assert_eq!((&raid["alarmName"], &raid["late"]), (&json!("Just now"), &Value::Null));

    let expected = [
        ("push", "Of a stranger", "unmatched", None),
        ("push", "Of the night", "opened", Some(1)),
        ("push", "Just now", "opened", Some(1)),
    ];
    test.ledger_until(&expected).await;
    let rows = test.timeline().await;
    assert_eq!(entries(&rows), [("raid", None, test.app.clock.now(), "Of a stranger", "Not paired")]);
}

#[actix_web::test]
async fn a_push_that_comes_again_changes_nothing() {
    let Watched { test, alice, named, server, mut client, .. } = watched().await;
    test.push.faults(|faults| faults.duplicate = true);
    test.deliver(named.alarm("First", "")).await;
    test.deliver(news("Once", "")).await;
    assert_eq!(client.expect("raid").await["alarmName"], "First");

    // At the next login everything comes again.
    test.push.faults(|faults| (faults.duplicate, faults.replay) = (false, true));
    test.push.drop_connections();
    test.push(named.alarm("Second", ""));
    let raid = client.expect("raid").await;
    assert_eq!((&raid["alarmName"], &raid["update"]), (&json!("Second"), &json!(false)));
    let both = [("push", "First", "opened", Some(1)), ("push", "Second", "opened", Some(1))];
    test.ledger_until(&both).await;

    // Also after a restart.
    let test = test.restart().await;
    let mut alice = elsewhere(&test, &alice);
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    test.push(named.alarm("Third", ""));
    assert_eq!(client.expect("raid").await["alarmName"], "Third");
    test.ledger_until(&[&both[..], &[("push", "Third", "opened", Some(1))]].concat()).await;
    assert_eq!(test.timeline().await.len(), 1);
    assert_eq!(only_server(&mut alice).await, server);
}

#[actix_web::test]
async fn a_push_that_always_fails_is_kept_aside_and_the_next_alarm_comes_through() {
    let test = PushTest::start().await;
    let (_, mut helper) = test.alice().await;
    let before = test.metric("companion_push_dead_letters_total{reason=\"query_refused\"}").await;
    test.refuse("no such alarm");
    // The push failed once in another session.
    let poison = test.push(at("play.example.com", 28_083).alarm("Poison", "C4 on the airlock"));
    let (user, id) = (test.user_of(ALICE), poison.clone());
    test.pool
        .write(move |db| failed_pushes::count(db, &user, &id, "panicked", chrono::Utc::now().into()))
        .await
        .expect("the user is there");
    upload(&mut helper, PHONE).await;
    test.push(at("play.example.com", 28_083).alarm("Behind it", ""));
    test.until(|push| push.connected(PHONE.0) && push.unacknowledged(PHONE.0) == 0).await;
    assert_eq!(test.push.counts().logins, 1, "the session lives on");
    let behind = ("push", "Behind it", "unmatched", None);
    test.ledger_until(&[behind]).await;
    let after = test.metric("companion_push_dead_letters_total{reason=\"query_refused\"}").await;
    assert!(after > before);

    // The push does not come again.
    test.push.faults(|faults| faults.replay = true);
    test.push.drop_connections();
    test.push(at("play.example.com", 28_083).alarm("Last", ""));
    test.ledger_until(&[behind, ("push", "Last", "unmatched", None)]).await;
    let printed = test.printed(&["alarms"]);
    let (user, at) = (test.user_of(ALICE), "2026-11-21T12:00:00.000Z");
    assert!(printed.contains("dead letters: 1\n"), "{printed}");
    let line = format!("dead letter: {at}, user {user}, push {poison}, query_refused after 3 attempts: {{");
    let line = printed.lines().find(|printed| printed.starts_with(&line)).unwrap_or_else(|| panic!("{printed}"));
    assert!(line.contains("C4 on the airlock"), "{line}");
}

/// Waits until the ledger has these pushes, each with an incident that one socket heard of, in whichever order.
async fn opened(test: &PushTest, titles: &[&str]) {
    let expected: Vec<_> = titles.iter().map(|title| ("push", *title, "opened", Some(1))).collect();
    let stored = async {
        loop {
            let mut rows = test.ledger().await;
            rows.sort_by(|a, b| a.title.cmp(&b.title));
            if rows.iter().map(LedgerRow::brief).eq(expected.iter().copied()) {
                return;
            }
        }
    };
    timeout(PATIENCE, stored).await.expect("the ledger has them");
}

#[actix_web::test]
async fn a_database_that_hangs_holds_up_no_alarm_and_no_push_is_acknowledged_before_it_is_stored() {
    let Watched { test, named, mut client, .. } = watched().await;
    let hanging = test.hang();
    for title in ["A", "B", "C"] {
        test.push(named.alarm(title, ""));
        assert_eq!(client.expect("raid").await["alarmName"], title);
    }
    assert_eq!((test.push.unacknowledged(PHONE.0), test.push.counts().logins), (3, 1));
    drop(hanging);
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    opened(&test, &["A", "B", "C"]).await;
    // None of them rings again, and the session lives on.
    test.push(named.alarm("D", ""));
    assert_eq!(client.expect("raid").await["alarmName"], "D");
    assert_eq!(test.push.counts().logins, 1);
}

#[actix_web::test]
async fn a_push_that_comes_again_while_the_database_hangs_does_not_ring_again() {
    let Watched { test, named, mut client, .. } = watched().await;
    let hanging = test.hang();
    test.push(named.alarm("A", ""));
    assert_eq!(client.expect("raid").await["alarmName"], "A");
    test.push.drop_connections();
    test.until(|push| push.counts().logins == 2).await;
    test.push(named.alarm("B", ""));
    assert_eq!(client.expect("raid").await["alarmName"], "B");
    drop(hanging);
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    opened(&test, &["A", "B"]).await;
    test.push(named.alarm("C", ""));
    assert_eq!(client.expect("raid").await["alarmName"], "C");
}

#[actix_web::test]
async fn a_database_that_refuses_holds_up_no_alarm_and_each_push_is_tried_until_it_is_stored() {
    let Watched { test, mut alice, named, mut client, .. } = watched().await;
    test.refuse("database or disk is full");
    for title in ["Poison", "Quite another"] {
        test.push(named.alarm(title, ""));
        assert_eq!(client.expect("raid").await["alarmName"], title);
    }
    alice.get_until("/credentials/push", |shown| shown["session"]["lastError"] == "push_not_stored").await;
    session_is(&mut alice, "connected").await;
    assert_eq!((test.push.unacknowledged(PHONE.0), test.push.counts().logins), (2, 1));
    test.refuse_nothing();
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    opened(&test, &["Poison", "Quite another"]).await;
    assert!(test.printed(&["alarms"]).contains("dead letters: 0\n"));
}

#[actix_web::test]
async fn an_alarm_that_can_never_be_stored_rings_once() {
    let Watched { test, named, mut client, .. } = watched().await;
    test.refuse_received("no such alarm");
    test.push(named.alarm("Poison", ""));
    test.push(named.alarm("Quite another", ""));
    let mut rung = [client.expect("raid").await, client.expect("raid").await];
    rung.sort_by_key(|raid| raid["alarmName"].to_string());
    assert_eq!(rung.map(|raid| raid["alarmName"].clone()), ["Poison", "Quite another"]);
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    test.push(named.alarm("The last", ""));
    assert_eq!(client.expect("raid").await["alarmName"], "The last");
}

#[actix_web::test]
async fn a_server_paired_by_hand_has_its_alarms_while_the_database_hangs() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let game = game::still(&test.app).await;
    let server = game::pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, is_connected).await;
    let _hanging = test.hang();
    test.push(named(&game).alarm("Base alarm", ""));
    assert_eq!(client.expect("raid").await["alarmName"], "Base alarm");
}

#[actix_web::test]
async fn an_alarm_finds_a_server_that_was_paired_by_its_host_name() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let game = game::still(&test.app).await;
    let named = named(&game);
    let by_hand = json!({ "address": "localhost", "port": named.port, "playerId": ALICE, "playerToken": DEMO_TOKEN, "name": "Home" });
    let server = alice.post("/paired-servers", Some(&by_hand)).await.json()["id"].as_str().unwrap().to_owned();
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    test.push(named.alarm("Base alarm", ""));
    let raid = client.expect("raid").await;
    assert_eq!((&raid["serverId"], &raid["alarmName"]), (&json!(server), &json!("Base alarm")));
}

#[actix_web::test]
async fn a_service_that_stops_leaves_what_is_pushed_for_its_next_start() {
    let test = PushTest::start().await;
    test.alice_receiving().await;
    let PushTest { app, push, .. } = test;
    app.stop().await;
    timeout(PATIENCE, push.until(|push| !push.connected(PHONE.0))).await.expect("its session ends");
    push.push(PHONE.0, news("For the next start", ""));
    assert_eq!(push.unacknowledged(PHONE.0), 1);
}

/// This browser, where the service listens now.
fn elsewhere(test: &PushTest, browser: &Browser) -> Browser {
    let mut there = test.app.browser();
    there.cookies = browser.cookies.clone();
    there
}

/// A pairing with another body.
fn pairing_body(body: &str) -> Vec<(String, String)> {
    let with = |(key, value): (String, String)| if key == "body" { (key, body.to_owned()) } else { (key, value) };
    pairing(&at("play.example.com", 1)).into_iter().map(with).collect()
}

#[actix_web::test]
async fn malicious_pushes_change_nothing_and_are_counted() {
    let test = PushTest::start().await;
    let (mut alice, _) = test.alice_receiving().await;
    for number in 1..=50u16 {
        test.push(pairing(&at("play.example.com", 28_000 + number)));
        // No more than ten new ones a minute.
        if number % 10 == 0 {
            test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
            test.app.clock.advance(chrono::Duration::seconds(61));
        }
    }
    let before = servers(&mut alice).await;
    assert_eq!(before.len(), 50);
    let reasons = ["malformed", "private_address", "another_player", "too_many_servers"];
    let mut counts = Vec::new();
    for reason in reasons {
        counts.push(test.ignored(reason).await);
    }

    let long = json!({ "type": "server", "name": "x".repeat(16 * 1024) }).to_string();
    let malformed = [
        "{",
        "[]",
        "null",
        r#"{"type":"server","ip":"other.example.com","port":1,"playerId":"76561198000000001","playerToken":"1"}"#,
        r#"{"type":"server","ip":["other.example.com"],"port":"1","playerId":"76561198000000001","playerToken":"1"}"#,
        r#"{"type":"server","ip":"other.example.com","port":"0","playerId":"76561198000000001","playerToken":"1"}"#,
        r#"{"type":"server","ip":"other.example.com","port":"1","playerId":"76561198000000001","playerToken":"x"}"#,
        r#"{"type":"server","ip":"other.example.com","port":"1","playerId":"1","playerToken":"1"}"#,
        r#"{"type":"entity","ip":"play.example.com","port":"28001","playerId":"76561198000000001","playerToken":"1"}"#,
        &long,
    ];
    for body in malformed {
        test.push(pairing_body(body));
    }
    let private =
        ["10.0.0.1", "127.0.0.1", "192.168.1.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00::1", "localhost"];
    for address in private {
        test.push(pairing(&at(address, 28_082)));
    }
    let known = at("play.example.com", 28_001);
    test.push(known.pairing(BOB.parse().unwrap(), 1));
    test.push(known.entity_pairing(BOB.parse().unwrap(), 1, GATE_SWITCH, 1, "Gate"));
    test.push(pairing(&at("other.example.com", 28_082)));
    test.push(alarm_pairing(&at("other.example.com", 28_082), BASE_ALARM, "Base alarm"));
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;

    assert_eq!(servers(&mut alice).await, before);
    let first = before.iter().find(|server| server["port"] == 28_001).unwrap()["id"].as_str().unwrap();
    let devices = alice.get(&format!("/paired-servers/{first}/devices")).await.json();
    assert_eq!(devices, json!({ "devices": [], "next": null }));
    assert_eq!((test.ledger().await, test.timeline().await), (Vec::new(), Vec::new()));
    let expected = [malformed.len(), private.len(), 2, 2];
    for ((reason, before), expected) in reasons.into_iter().zip(counts).zip(expected) {
        assert_eq!(test.ignored(reason).await - before, expected as u64, "{reason}");
    }
    // This session still receives.
    test.deliver(news("After all that", "")).await;
    assert_eq!(test.timeline().await.len(), 1);
    assert_eq!(test.push.counts().logins, 1);
}

#[actix_web::test]
async fn deaths_logins_news_and_unknown_kinds_are_stored_in_the_timeline() {
    let test = PushTest::start().await;
    let (mut alice, _) = test.alice_receiving().await;
    let known = at("play.example.com", 28_083);
    test.deliver(pairing(&known)).await;
    let server = only_server(&mut alice).await;
    let died = test.ago(90);
    test.push_sent(PHONE, known.death((0, "bear")), died);
    test.push(at("strange.example.com", 1).death((76_561_198_000_000_009, "<color=red>Eve</color>")));
    test.push(known.login((76_561_198_000_000_002, "Bob")));
    test.push(news("Wipe day", "A <b>new</b> map\nfor all"));
    let unknown = [("channelId", "clan"), ("title", "Clan"), ("message", "War"), ("body", "{")];
    test.push(unknown.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;

    let rows = test.timeline().await;
    let (now, server) = (test.app.clock.now(), Some(server.as_str()));
    let expected = [
        ("death", server, died, "You were killed by bear", "Sim Valley"),
        ("death", None, now, "You were killed by Eve", "Sim Valley"),
        ("login", server, now, "Bob is now online", "Sim Valley"),
        ("news", None, now, "Wipe day", "A new map for all"),
        ("other", None, now, "Clan", "War"),
    ];
    assert_eq!(entries(&rows), expected);
    assert_eq!(test.ledger().await, []);
    // Entries without a paired server are the user's own, in pages.
    let mut paged = Vec::new();
    let mut next = String::new();
    loop {
        let page = alice.get(&format!("/me/news?limit=2{next}")).await.json();
        let shown = |entry: &Value| format!("{} {}: {}", entry["kind"], entry["title"], entry["message"]);
        paged.extend(page["news"].as_array().unwrap().iter().map(shown));
        let Some(before) = page["next"].as_str() else { break };
        next = format!("&before={before}");
    }
    paged.sort();
    let own = [
        r#""death" "You were killed by Eve": "Sim Valley""#,
        r#""news" "Wipe day": "A new map for all""#,
        r#""other" "Clan": "War""#,
    ];
    assert_eq!(paged, own);
    let mut bob = test.app.signed_in(BOB).await;
    assert_eq!(bob.get("/me/news").await.json(), json!({ "news": [], "next": null }));
}

#[actix_web::test]
async fn history_is_forgotten_after_ninety_days() {
    let test = PushTest::start().await;
    test.alice_receiving().await;
    test.deliver(news("Old", "")).await;
    test.deliver(at("strange.example.com", 1).alarm("Old", "")).await;
    test.app.clock.advance(Duration::days(90));
    test.deliver(news("New", "")).await;
    assert_eq!((test.timeline().await.len(), test.ledger().await.len()), (3, 1));
    test.app.clock.advance(Duration::seconds(1));
    // The sweep comes with the start.
    let test = test.restart().await;
    let swept = async { while test.timeline().await.len() > 1 || !test.ledger().await.is_empty() {} };
    timeout(PATIENCE, swept).await.expect("the old ones go");
    assert_eq!(test.timeline().await[0].title, "New");
}

#[actix_web::test]
async fn a_refused_login_asks_for_a_new_upload_and_affects_no_other_user() {
    let test = PushTest::start().await;
    let mut bob = test.app.signed_in(BOB).await;
    let mut bobs = test.app.paired(&mut bob).await;
    assert_eq!(bobs.upload(&bundle(BOB, BOBS_PHONE)).await.status, 200);
    test.until(|push| push.connected(BOBS_PHONE.0)).await;

    let (mut alice, mut helper) = test.alice().await;
    upload(&mut helper, WRONG_TOKEN).await;
    test.until(|push| push.counts().refused == 1).await;
    let shown = session_is(&mut alice, "refresh_needed").await;
    assert_eq!((&shown["state"], &shown["session"]["since"]), (&json!("unproven"), &json!("2026-11-21T12:00:00.000Z")));
    assert_eq!(
        (&shown["session"]["lastError"], &shown["refusal"]["reason"]),
        (&json!("login_refused"), &json!("login_refused"))
    );
    test.push_sent(BOBS_PHONE, news("For Bob", ""), test.app.clock.now());
    test.until(|push| push.unacknowledged(BOBS_PHONE.0) == 0).await;
    assert_eq!(test.timeline().await.len(), 1);

    // A bundle without a credential.
    let nonsense = helper.upload(&json!({ "platformId": ALICE })).await;
    assert_eq!(nonsense.status, 200);
    test.refused(RefusalReason::UnusableBundle).await;
    let shown = session_is(&mut alice, "unreadable").await;
    assert_eq!(shown["session"]["lastError"], "unusable_bundle");

    upload(&mut helper, PHONE).await;
    test.until(|push| push.connected(PHONE.0)).await;
    let shown = session_is(&mut alice, "connected").await;
    assert_eq!(shown["session"]["lastError"], Value::Null);
    let shown = alice.get_until("/credentials/push", |shown| shown["state"] == "proven").await;
    assert_eq!(shown["refusal"], Value::Null);
    assert_eq!(test.push.counts().logins, 3, "Bob's session never ended");
}

#[actix_web::test]
async fn an_unreachable_push_service_is_tried_until_it_is_back() {
    let test = PushTest::start().await;
    let (mut alice, _) = test.alice_receiving().await;
    session_is(&mut alice, "connected").await;
    alice.get_until("/credentials/push", |shown| shown["state"] == "proven").await;
    test.app.clock.advance(Duration::minutes(1));
    test.push.stop().await;
    let shown = session_is(&mut alice, "unreachable").await;
    assert_eq!(shown["state"], "proven");
    // In a fixed word, whichever of them came first.
    let words = ["closed", "connection_broke", "no_connection"];
    assert!(words.contains(&shown["session"]["lastError"].as_str().unwrap()), "{shown}");
    assert_eq!(shown["session"]["since"], "2026-11-21T12:01:00.000Z");
    test.push(news("Meanwhile", ""));
    test.push.restart().await.unwrap();
    test.until(|push| push.connected(PHONE.0) && push.unacknowledged(PHONE.0) == 0).await;
    let shown = session_is(&mut alice, "connected").await;
    assert_eq!(shown["session"]["lastMessageAt"], "2026-11-21T12:01:00.000Z");
    assert_eq!(test.timeline().await.len(), 1);
}

#[actix_web::test]
async fn a_push_service_with_a_foreign_certificate_gets_no_credential() {
    let start = || PushService::start((Ipv4Addr::LOCALHOST, 0).into(), vec![PHONE], Clock::system());
    let (push, other) = (start().await.unwrap(), start().await.unwrap());
    let test = PushTest::start_trusting(push, other.ca_pem(), &[]).await;
    let (mut alice, mut helper) = test.alice().await;
    upload(&mut helper, PHONE).await;
    let shown = session_is(&mut alice, "unreachable").await;
    assert_eq!(shown["session"]["lastError"], "untrusted_certificate");
    assert_eq!(test.push.counts().logins, 0);
}

#[actix_web::test]
async fn a_new_bundle_replaces_the_old_one_when_it_has_logged_in() {
    let test = PushTest::start().await;
    let (mut alice, mut helper) = test.alice_receiving().await;
    let first = alice.get_until("/credentials/push", |shown| shown["state"] == "proven").await;

    // While no login is answered, both are kept.
    test.app.clock.advance(Duration::hours(1));
    test.push.faults(|faults| faults.mute_login = true);
    let uploaded = upload(&mut helper, NEW_PHONE).await;
    assert_eq!(uploaded["staged"], true);
    test.until(|push| push.counts().logins == 3).await;
    let shown = alice.get("/credentials/push").await.json();
    assert_eq!((&shown["state"], &shown["uploadedAt"]), (&json!("proven"), &first["uploadedAt"]));
    assert_eq!(shown["staged"]["uploadedAt"], uploaded["uploadedAt"]);

    test.push.faults(|faults| faults.mute_login = false);
    test.push.restart().await.unwrap();
    test.until(|push| push.connected(NEW_PHONE.0) && !push.connected(PHONE.0)).await;
    let shown = alice.get_until("/credentials/push", |shown| shown["staged"].is_null()).await;
    assert_eq!((&shown["state"], &shown["uploadedAt"]), (&json!("proven"), &uploaded["uploadedAt"]));
    session_is(&mut alice, "connected").await;
    test.push_sent(NEW_PHONE, news("To the new phone", ""), test.app.clock.now());
    test.until(|push| push.unacknowledged(NEW_PHONE.0) == 0).await;
    assert_eq!(test.timeline().await.len(), 1);

    // A repetition: one account, of which the push service keeps one session.
    let again = upload(&mut helper, NEW_PHONE).await;
    assert_eq!(again["staged"], true);
    let used = |shown: &Value| shown["uploadedAt"] == again["uploadedAt"] && shown["session"]["state"] == "connected";
    alice.get_until("/credentials/push", used).await;
}

#[actix_web::test]
async fn a_new_bundle_that_is_refused_is_deleted_and_the_old_one_still_receives() {
    let test = PushTest::start().await;
    let (mut alice, mut helper) = test.alice_receiving().await;
    let first = alice.get_until("/credentials/push", |shown| shown["state"] == "proven").await;
    test.app.clock.advance(Duration::hours(1));
    assert_eq!(upload(&mut helper, WRONG_TOKEN).await["staged"], true);
    test.until(|push| push.counts().refused == 1 && push.connected(PHONE.0)).await;
    let shown = alice.get_until("/credentials/push", |shown| shown["staged"].is_null()).await;
    assert_eq!((&shown["state"], &shown["uploadedAt"]), (&json!("proven"), &first["uploadedAt"]));
    test.deliver(news("Still here", "")).await;
    assert_eq!(test.timeline().await.len(), 1);
    session_is(&mut alice, "connected").await;
}

#[actix_web::test]
async fn a_refused_bundle_is_shown_until_a_newer_one_works_or_its_owner_dismisses_it() {
    const PATH: &str = "/credentials/push";
    let test = PushTest::start().await;
    let (mut alice, paired) = test.alice_receiving().await;
    test.deliver(pairing(&at("play.example.com", 28_083))).await;
    let server = only_server(&mut alice).await;
    alice.get_until(PATH, |shown| shown["state"] == "proven").await;
    let code = alice.post("/pairing/device/code", Some(&json!({ "label": "Living room" }))).await.json();
    let mut other = HelperDevice::new(test.app.browser(), "192.0.2.2");
    assert_eq!(other.activate(code["code"].as_str().unwrap()).await.status, 200);

    test.app.clock.advance(Duration::hours(1));
    upload(&mut other, WRONG_TOKEN).await;
    test.refused(RefusalReason::LoginRefused).await;
    let shown = alice.get_until(PATH, |shown| !shown["refusal"].is_null()).await;
    let refusal = &shown["refusal"];
    let at = json!("2026-11-21T13:00:00.000Z");
    assert_eq!((&refusal["deviceLabel"], &refusal["reason"]), (&json!("Living room"), &json!("login_refused")));
    assert_eq!((&refusal["uploadedAt"], &refusal["refusedAt"]), (&at, &at));
    assert!(refusal["advice"].as_str().unwrap().contains("sign in with the game again"), "{refusal}");
    assert_eq!((&shown["staged"], &shown["state"]), (&Value::Null, &json!("proven")));

    // The old one logs in again, and the service restarts: it is still there.
    test.push.drop_connections();
    test.until(|push| push.counts().logins == 3).await;
    let test = test.restart().await;
    let mut alice = elsewhere(&test, &alice);
    test.until(|push| push.counts().logins == 4).await;
    let shown = session_is(&mut alice, "connected").await;
    assert_eq!(&shown["refusal"], refusal);
    readiness(&test, &mut alice, &server, (true, false, true), [Some("until a dashboard"), Some("was refused")]).await;
    let shown = alice.get(&format!("/paired-servers/{server}/readiness")).await.json();
    assert_eq!(&shown["pushRefusal"], refusal);

    let mut bob = test.app.signed_in(BOB).await;
    bob.delete("/credentials/push/refusal").await.expect_problem(404, "not_found");
    assert_eq!(alice.delete("/credentials/push/refusal").await.json(), json!({ "ok": true }));
    alice.delete("/credentials/push/refusal").await.expect_problem(404, "not_found");
    assert_eq!(alice.get(PATH).await.json()["refusal"], Value::Null);

    // A bundle without a credential, then one that works.
    let mut helper = HelperDevice::new(test.app.browser(), "192.0.2.1");
    helper.token = paired.token;
    assert_eq!(helper.upload(&json!({ "platformId": ALICE })).await.json()["staged"], true);
    test.refused(RefusalReason::UnusableBundle).await;
    assert_eq!(alice.get(PATH).await.json()["refusal"]["reason"], "unusable_bundle");
    upload(&mut helper, NEW_PHONE).await;
    test.until(|push| push.connected(NEW_PHONE.0)).await;
    alice.get_until(PATH, |shown| shown["refusal"].is_null()).await;
}

#[actix_web::test]
async fn a_busy_main_thread_holds_up_no_push() {
    let (started, starting) = std::sync::mpsc::channel();
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let beside = std::thread::spawn(move || {
        actix::System::new().block_on(async {
            let push = PushService::start((Ipv4Addr::LOCALHOST, 0).into(), vec![PHONE], Clock::system()).await;
            started.send(push.unwrap()).unwrap();
            let _ = stopping.await;
        });
    });
    let push = starting.recv().unwrap();
    let ca = push.ca_pem().to_owned();
    let test = PushTest::start_trusting(push, &ca, &[]).await;
    test.alice_receiving().await;
    test.push(news("Meanwhile", ""));
    // This is the main thread.
    let began = std::time::Instant::now();
    while test.push.unacknowledged(PHONE.0) > 0 {
        assert!(began.elapsed() < PATIENCE, "it waits for this thread");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(test.timeline().await.len(), 1);
    drop((test, stop));
    beside.join().unwrap();
}

#[actix_web::test]
async fn a_new_bundle_takes_over_from_one_that_no_longer_works() {
    let test = PushTest::start().await;
    let (mut alice, mut helper) = test.alice_receiving().await;
    alice.get_until("/credentials/push", |shown| shown["state"] == "proven").await;
    test.push.set_token(PHONE.0, 1);
    test.push.drop_connections();
    test.until(|push| push.counts().refused == 1).await;
    session_is(&mut alice, "refresh_needed").await;

    assert_eq!(upload(&mut helper, NEW_PHONE).await["staged"], true);
    test.until(|push| push.connected(NEW_PHONE.0)).await;
    let shown = session_is(&mut alice, "connected").await;
    assert_eq!((&shown["state"], &shown["staged"]), (&json!("proven"), &Value::Null));
}

#[actix_web::test]
async fn a_deleted_credential_ends_its_session() {
    let test = PushTest::start().await;
    let (mut alice, mut helper) = test.alice_receiving().await;
    assert_eq!(alice.delete("/credentials/push").await.status, 200);
    test.until(|push| !push.connected(PHONE.0)).await;
    let shown = alice.get("/credentials/push").await.json();
    assert_eq!((&shown["state"], &shown["session"]), (&json!("missing"), &Value::Null));
    test.push(news("Nobody is there", ""));

    upload(&mut helper, PHONE).await;
    test.until(|push| push.connected(PHONE.0) && push.unacknowledged(PHONE.0) == 0).await;
    assert_eq!(test.timeline().await.len(), 1);
    assert_eq!(test.push.counts().logins, 2);
}

/// Asks for the readiness until (ready, the link's up, the push's up) is so; what is advised for either.
#[track_caller]
fn readiness(
    test: &PushTest,
    alice: &mut Browser,
    server: &str,
    expected: (bool, bool, bool),
    words: [Option<&'static str>; 2],
) -> impl Future<Output = ()> {
    // Restores the budget of requests.
    test.app.clock.advance(Duration::minutes(1));
    let path = format!("/paired-servers/{server}/readiness");
    let caller = std::panic::Location::caller();
    async move {
        alice
            .get_until(path, move |shown| {
                let [link, push] = shown["paths"].as_array().unwrap().as_slice() else {
                    panic!("{shown}, at {caller}")
                };
                assert_eq!((&link["path"], &push["path"]), (&json!("link"), &json!("push")));
                let is = [&shown["ready"], &link["up"], &push["up"]].map(|value| value.as_bool().unwrap());
                let advised = [link, push].into_iter().zip(words).all(|(path, word)| match (&path["advice"], word) {
                    (Value::Null, None) => true,
                    (Value::String(advice), Some(word)) => advice.contains(word),
                    _ => false,
                });
                is == [expected.0, expected.1, expected.2] && advised
            })
            .await;
    }
}

#[actix_web::test]
async fn readiness_reports_which_paths_are_up_and_what_to_do() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, mut helper) = test.alice().await;
    let game = game::still(&test.app).await;
    let server = game::pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, is_connected).await;
    const NO_PUSH: Option<&str> = Some("pair a helper device");
    readiness(&test, &mut alice, &server, (false, false, false), [Some("Pair a smart alarm"), NO_PUSH]).await;
    add_device(&mut alice, &server, BASE_ALARM).await;
    readiness(&test, &mut alice, &server, (true, true, false), [None, NO_PUSH]).await;
    upload(&mut helper, PHONE).await;
    test.until(|push| push.connected(PHONE.0)).await;
    readiness(&test, &mut alice, &server, (true, true, true), [None, None]).await;

    // The game server stops, then the push service.
    game.stop().await;
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    readiness(&test, &mut alice, &server, (true, false, true), [Some("does not answer"), None]).await;
    test.push.stop().await;
    let away = [Some("does not answer"), Some("not reached")];
    readiness(&test, &mut alice, &server, (false, false, false), away).await;

    // Both come back and refuse the credentials.
    test.push.set_token(PHONE.0, 1);
    test.push.restart().await.unwrap();
    test.until(|push| push.counts().refused == 1).await;
    game.set_token(TEAM[0].0, None);
    game.restart().await.unwrap();
    client.until(&server, |state| state["server"]["connection"] == "rejected").await;
    let refused = [Some("press pair in the game"), Some("run the helper again")];
    readiness(&test, &mut alice, &server, (false, false, false), refused).await;

    let mut bob = test.app.signed_in(BOB).await;
    bob.get(&format!("/paired-servers/{server}/readiness")).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn readiness_reports_a_link_that_is_not_wanted() {
    let test = PushTest::start().await;
    let (mut alice, _) = test.alice_receiving().await;
    test.deliver(pairing(&at("play.example.com", 28_083))).await;
    let server = only_server(&mut alice).await;
    readiness(&test, &mut alice, &server, (true, false, true), [Some("until a dashboard"), None]).await;
}

#[actix_web::test]
async fn readiness_reports_an_alarm_of_a_game_server_that_is_not_paired() {
    let test = PushTest::start().await;
    let (mut alice, _) = test.alice_receiving().await;
    test.deliver(pairing(&at("play.example.com", 28_083))).await;
    let server = only_server(&mut alice).await;
    let stranger = PushedServer { name: "Elsewhere".to_owned(), ..at("strange.example.com", 28_083) };
    test.deliver(stranger.alarm("North wall", "")).await;
    let unpaired = "a game server that is not paired: \"North wall\", at 2026-11-21T12:00:00.000Z";
    readiness(&test, &mut alice, &server, (true, false, true), [Some("until a dashboard"), Some(unpaired)]).await;
    test.app.clock.advance(Duration::days(1));
    readiness(&test, &mut alice, &server, (true, false, true), [Some("until a dashboard"), None]).await;
}

#[actix_web::test]
async fn a_drill_is_delivered_like_an_alarm_and_counts_its_sockets() {
    let Watched { test, mut alice, named, server, mut client, .. } = watched().await;
    let path = format!("/paired-servers/{server}/drill");
    // During a raid, to which it does not belong.
    test.push(named.alarm("Base alarm", ""));
    let raid = client.expect("raid").await;
    let answer = alice.post(&path, None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let drill = client.expect("raid").await;
    assert_eq!(
        answer.json(),
        json!({ "incident": drill["incident"], "sockets": 1, "channels": [], "teamChat": null, "waysKnown": true })
    );
    assert_eq!((&drill["drill"], &drill["count"], &drill["update"]), (&json!(true), &json!(1), &json!(false)));
    assert_ne!(drill["incident"], raid["incident"]);
    test.ledger_until(&[("push", "Base alarm", "opened", Some(1)), ("drill", "Drill", "opened", Some(1))]).await;

    client.unsubscribe(&server).await;
    client.ping().await;
    assert_eq!(alice.post(&path, None).await.json()["sockets"], 0);
    let mut bob = test.app.signed_in(BOB).await;
    bob.post(&path, None).await.expect_problem(404, "not_found");
    test.app.browser().post(&path, None).await.expect_problem(401, "unauthenticated");
}
