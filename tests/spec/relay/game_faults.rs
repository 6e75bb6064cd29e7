//! Game servers that misbehave: its watchers see it, the link comes back by itself, and no other user notices.

use std::time::Duration;

use companion::{
    game::wire::{AppMessage, AppRequest, AppResponse},
    simulator::{
        game_server::DEMO_TOKEN,
        point::Point,
        world::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, SimulatedWorld, TEAM},
    },
};
use futures_util::{SinkExt as _, StreamExt as _};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::{accept_async, tungstenite::Message};

use crate::harness::{
    app::TestApp,
    game::{self, ALICE, add_device, is_complete, is_connected, pair, pair_port, watched},
    relay_client::RelayClient,
};

fn gate(state: &Value) -> &Value {
    &state["devices"][GATE_SWITCH.to_string()]["value"]
}

/// Down, in this way, with a reason to show and a time to come back.
fn is_down(state: &Value, how: &str) -> bool {
    let head = &state["server"];
    head["connection"] == how
        && head["reason"].as_str().is_some_and(|reason| !reason.is_empty())
        && head["nextAttemptAt"].is_string()
}

/// A game server that takes connections and never says a word.
async fn mute() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    actix_web::rt::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    port
}

/// A game server that answers every request with these messages.
async fn answering(answers: fn(u32) -> Vec<Message>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    actix_web::rt::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            actix_web::rt::spawn(async move {
                let Ok(mut socket) = accept_async(stream).await else { return };
                while let Some(Ok(message)) = socket.next().await {
                    let Message::Binary(request) = message else { continue };
                    for answer in answers(AppRequest::decode(request).unwrap().seq) {
                        if socket.send(answer).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

/// Messages of the wrong kind, and an answer to a question that was never asked.
fn beside_the_point(seq: u32) -> Vec<Message> {
    let answer = AppResponse { seq: seq + 1_000, ..Default::default() };
    let message = AppMessage { response: Some(answer), ..Default::default() };
    vec![Message::text("hello"), Message::binary(message.encode_to_vec()), Message::Ping(b"?"[..].into())]
}

/// An answer without content.
fn empty(seq: u32) -> Vec<Message> {
    let message = AppMessage { response: Some(AppResponse { seq, ..Default::default() }), ..Default::default() };
    vec![Message::binary(message.encode_to_vec())]
}

/// Slow, as the liveness limits are.
#[actix_web::test]
async fn every_fault_is_visible_and_healed_and_the_healthy_server_does_not_notice() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut client = RelayClient::connect(&app, &mut alice).await;
    let mut games = Vec::new();
    for fault in ["none", "frozen", "rubbish", "truncated", "full", "rejected"] {
        let game = game::still(&app).await;
        let server = pair(&mut alice, &game).await;
        add_device(&mut alice, &server, GATE_SWITCH).await;
        client.subscribe(&server).await;
        games.push((fault, game, server));
    }
    for (_, _, server) in &games {
        client.until(server, |state| is_complete(state, 1)).await;
    }
    let (healthy_game, healthy) = (&games[0].1, games[0].2.clone());
    let since = client.state(&healthy)["server"]["since"].clone();
    let mut strangers = Vec::new();
    for port in [mute().await, answering(beside_the_point).await, answering(empty).await] {
        let server = pair_port(&mut alice, port).await;
        client.subscribe(&server).await;
        strangers.push(server);
    }

    for (fault, game, _) in &games[1..] {
        match *fault {
            "rejected" => game.set_token(TEAM[0].0, None),
            fault => game.faults(|faults| match fault {
                "frozen" => faults.frozen = true,
                "rubbish" => faults.rubbish = true,
                "truncated" => faults.truncate = true,
                _ => faults.refuse = true,
            }),
        }
        // The frozen one keeps its link: two answers in a row must fail to come, ten seconds each.
        if *fault != "frozen" {
            game.drop_connections();
        }
    }
    let toggle = |server: &str| {
        let device = GATE_SWITCH.to_string();
        json!({ "type": "deviceToggle", "serverId": server, "deviceId": device, "requestId": "r" })
    };
    client.send(toggle(&games[1].2)).await;
    client.expect_error("game_server_timeout").await;
    for server in &strangers {
        client.until(server, |state| is_down(state, "unreachable")).await;
    }
    for (fault, _, server) in &games[1..] {
        let how = if *fault == "rejected" { "rejected" } else { "unreachable" };
        client.until(server, |state| is_down(state, how)).await;
        assert!(client.state(server)["mapMarkers"].as_object().unwrap().len() > 10, "what was known stays");
        let seen = alice.get(&format!("/paired-servers/{server}")).await.json();
        assert_eq!(seen["connection"]["state"], how, "{fault}: {seen}");
        assert!(seen["connection"]["reason"].is_string() && seen["connection"]["nextAttemptAt"].is_string());
        client.send(toggle(server)).await;
        client.expect_error("game_server_unavailable").await;
    }

    // The healthy one is as quick as ever, and was up all the time.
    healthy_game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    client.until(&healthy, |state| gate(state) == true).await;
    let head = &client.state(&healthy)["server"];
    assert_eq!((&head["connection"], &head["since"]), (&json!("connected"), &since));

    for (fault, game, _) in &games[1..] {
        game.faults(|faults| *faults = Default::default());
        game.set_token(TEAM[0].0, Some(DEMO_TOKEN));
        game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
        // A refused token or a full server is tried again in minutes only, or as soon as the user pairs again.
        if matches!(*fault, "full" | "rejected") {
            pair(&mut alice, game).await;
        }
    }
    for (_, _, server) in &games {
        client.until(server, |state| is_connected(state) && gate(state) == true).await;
    }
}

#[actix_web::test]
async fn a_line_of_chat_whose_broadcast_cannot_be_read_comes_with_the_history() {
    let (_app, _alice, game, server, mut client) = watched(&[]).await;
    client.until(&server, is_connected).await;
    game.faults(|faults| faults.rubbish_broadcasts = true);
    for text in ["first", "second"] {
        game.world(|world| world.say(TEAM[1].0, text));
        client.expect_where("chat", |message| message["chat"]["text"] == text).await;
    }
}

#[actix_web::test]
async fn a_toggle_whose_link_ends_may_have_happened() {
    let (_app, _alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    client.until(&server, |state| gate(state) == false).await;
    // The effect of the switch is seen; the answer does not come.
    game.faults(|faults| faults.delay = Some(Duration::from_secs(60)));
    let device = GATE_SWITCH.to_string();
    client.send(json!({ "type": "deviceToggle", "serverId": server, "deviceId": device, "requestId": "r" })).await;
    client.until(&server, |state| gate(state) == true).await;
    game.drop_connections();
    assert_eq!(client.expect_error("game_server_timeout").await["requestId"], "r");
}

#[actix_web::test]
async fn after_a_gap_everything_is_as_the_game_has_it() {
    let (_app, _alice, game, server, mut client) = watched(&[GATE_SWITCH, BASE_ALARM]).await;
    for round in 0..2 {
        game.stop().await;
        client.until(&server, |state| is_down(state, "unreachable")).await;
        let ship = game.world(|world| {
            world.set_switch(GATE_SWITCH, round == 0).unwrap();
            world.move_member(TEAM[1].0, Point::new(500.0 + round as f32, 600.0));
            world.say(TEAM[2].0, &format!("said while no one listened {round}"));
            if round == 0 {
                world.fire_alarm(BASE_ALARM)
            } else {
                world.release_alarm(BASE_ALARM)
            }
            world.send_cargo_ship()
        });
        game.restart().await.unwrap();
        // An alarm that went off meanwhile is a raid all the same; so is a line of chat a line.
        let text = format!("said while no one listened {round}");
        client.expect_where("chat", |message| message["chat"]["text"] == text.as_str()).await;
        if round == 0 {
            assert_eq!(client.expect("raid").await["alarmId"], BASE_ALARM.to_string());
        }
        client
            .until(&server, |state| {
                is_connected(state)
                    && gate(state) == (round == 0)
                    && state["team"]["members"][TEAM[1].0.to_string()]["x"] == 500.0 + f64::from(round)
                    && state["mapMarkers"][ship.to_string()]["kind"] == "cargoShip"
                    && state["devices"][BASE_ALARM.to_string()]["value"] == (round == 0)
            })
            .await;
    }
}

#[actix_web::test]
async fn a_wipe_is_an_event_and_leaves_nothing_of_the_old_world() {
    let (_app, _alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    let old = game.world(|world| world.add_marker(Default::default()));
    client.until(&server, |state| !state["mapMarkers"][old.to_string()].is_null()).await;
    game.wipe();
    let wipe = client.expect_where("event", |message| message["event"]["kind"] == "wipe").await;
    assert_eq!(wipe["serverId"], server);
    client
        .until(&server, |state| {
            is_connected(state)
                && state["devices"][GATE_SWITCH.to_string()]["reachable"] == "removed"
                && state["mapMarkers"].as_object().is_some_and(|markers| !markers.is_empty())
        })
        .await;
    let state = client.state(&server);
    assert!(gate(state).is_null() && state["mapMarkers"][old.to_string()].is_null());
    let real = game.world(|world| world.map_markers(TEAM[0].0).markers.len());
    assert_eq!(state["mapMarkers"].as_object().unwrap().len(), real);
}

#[actix_web::test]
async fn ten_thousand_markers_slow_answers_and_fields_of_the_future_are_no_fault() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let game = game::with_world(SimulatedWorld::new(7, app.clock.now()).with_markers(10_000)).await;
    game.faults(|faults| {
        faults.unknown_fields = true;
        faults.delay = Some(Duration::from_millis(50));
    });
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    let real = game.world(|world| world.map_markers(TEAM[0].0).markers.len());
    assert_eq!(client.state(&server)["mapMarkers"].as_object().unwrap().len(), real);
    add_device(&mut alice, &server, LIGHTS_SWITCH).await;
    client.until(&server, |state| is_complete(state, 2)).await;
}

#[actix_web::test]
async fn an_alarm_that_was_refused_for_the_rate_is_asked_again() {
    let (_app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    game.faults(|faults| faults.rate_limit = true);
    add_device(&mut alice, &server, BASE_ALARM).await;
    let alarm = |state: &Value| state["devices"][BASE_ALARM.to_string()]["reachable"].clone();
    client.until(&server, |state| alarm(state) == "no_response").await;
    let readiness = alice.get(&format!("/paired-servers/{server}/readiness")).await.json();
    let advice = readiness["paths"][0]["advice"].as_str().unwrap_or_default();
    assert!(advice.contains("than it answers: alarms still come"), "{readiness}");
    let metrics = alice.get("/metrics").await.text();
    let refused = r#"companion_requests_over_budget_total{priority="entity_sync",outcome="refused"}"#;
    let count = metrics.lines().find_map(|line| line.strip_prefix(refused)?.trim().parse::<f64>().ok());
    assert!(count.is_some_and(|count| count > 0.0), "{metrics}");
    game.faults(|faults| faults.rate_limit = false);
    client.until(&server, |state| alarm(state) == "ok").await;
}

#[actix_web::test]
async fn an_alarm_that_was_paired_while_the_game_server_was_slow_is_asked_again() {
    let (_app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    // Too slow for a device that is paired, and quick enough for the link.
    game.faults(|faults| faults.delay = Some(Duration::from_secs(6)));
    add_device(&mut alice, &server, BASE_ALARM).await;
    let alarm = |state: &Value| state["devices"][BASE_ALARM.to_string()]["reachable"].clone();
    client.until(&server, |state| alarm(state) == "no_response").await;
    game.faults(|faults| faults.delay = None);
    client.until(&server, |state| alarm(state) == "ok").await;
}
