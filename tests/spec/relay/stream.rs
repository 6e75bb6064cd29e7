//! Snapshot, patches, events, chat, raids and commands, as a dashboard sees them.

use companion::simulator::{
    point::Point,
    world::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, LOOT_BOX, TEAM, TOOL_CUPBOARD, WALL_ALARM},
};
use serde_json::{Value, json};

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{self, ALICE, add_device, is_complete, member, pair, watched},
    relay_client::RelayClient,
};

/// True if the two numbers are the same to the centimetre, as which they are sent.
fn near(sent: &Value, real: f32) -> bool {
    sent.as_f64().is_some_and(|sent| (sent - f64::from(real)).abs() < 0.011)
}

/// A client that comes now gets the very same as one that applied every patch.
async fn expect_converged(app: &TestApp, alice: &mut Browser, server: &str, client: &mut RelayClient) {
    let mut fresh = RelayClient::connect(app, alice).await;
    fresh.subscribe(server).await;
    let mut seen = fresh.expect_snapshot(server).await;
    // Either may be the first to get the next change.
    while client.known[server].seq != seen.seq {
        if client.known[server].seq < seen.seq {
            client.expect_patch(server).await;
        } else {
            fresh.expect_patch(server).await;
            seen = fresh.known[server].clone();
        }
    }
    assert_eq!(client.known[server].epoch, seen.epoch);
    assert_eq!(client.state(server), &seen.state);
}

#[actix_web::test]
async fn a_snapshot_shows_the_world_and_patches_follow_it() {
    let devices = [GATE_SWITCH, LIGHTS_SWITCH, BASE_ALARM, TOOL_CUPBOARD];
    let (app, mut alice, game, server, mut client) = watched(&devices).await;
    let state = client.state(&server);
    assert_eq!(state["team"]["leaderId"], TEAM[0].0.to_string());
    for (id, name) in TEAM {
        assert_eq!(state["team"]["members"][id.to_string()]["name"], name);
    }
    let kinds = [("switch", GATE_SWITCH), ("switch", LIGHTS_SWITCH), ("alarm", BASE_ALARM)];
    for (kind, device) in kinds {
        assert_eq!(state["devices"][device.to_string()]["kind"], kind);
    }
    assert_eq!(state["devices"][LIGHTS_SWITCH.to_string()]["value"], true);
    assert_eq!(state["devices"][TOOL_CUPBOARD.to_string()]["storage"]["hasProtection"], true);
    let real = game.world(|world| world.map_markers(TEAM[0].0).markers);
    assert_eq!(state["mapMarkers"].as_object().unwrap().len(), real.len());
    for marker in real {
        let sent = &state["mapMarkers"][marker.id.to_string()];
        assert!(near(&sent["x"], marker.x) && near(&sent["y"], marker.y), "{sent} is not {marker:?}");
    }
    let notes = state["mapNotes"].as_object().unwrap();
    for label in ["base", "boats"] {
        assert!(notes.values().any(|note| note["label"] == label && note["source"] == "game"), "{notes:?}");
    }

    let ship = game.world(|world| {
        let ship = world.send_cargo_ship();
        world.move_member(TEAM[1].0, Point::new(1234.5, 987.25));
        world.set_switch(GATE_SWITCH, true).unwrap();
        ship
    });
    client
        .until(&server, |state| {
            near(&state["team"]["members"][member(1)]["x"], 1234.5)
                && near(&state["team"]["members"][member(1)]["y"], 987.25)
                && state["devices"][GATE_SWITCH.to_string()]["value"] == true
                && state["mapMarkers"][ship.to_string()]["kind"] == "cargoShip"
        })
        .await;
    let event = client.expect_where("event", |message| message["event"]["kind"] == "cargo").await;
    assert_eq!(event["serverId"], json!(server));
    assert!(event["event"]["data"]["markerId"].is_string(), "{event}");
    assert!(event["event"]["grid"].is_string() && event["event"]["ts"].is_string());

    game.world(|world| {
        world.move_marker(ship, Point::new(100.0, 200.0));
        world.kill(TEAM[2].0);
        world.remove_marker(ship);
    });
    client
        .until(&server, |state| {
            state["mapMarkers"][ship.to_string()].is_null() && state["team"]["members"][member(2)]["alive"] == false
        })
        .await;
    expect_converged(&app, &mut alice, &server, &mut client).await;
}

#[actix_web::test]
async fn what_waits_for_its_turn_becomes_one_patch_and_the_end_is_the_same() {
    let (app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    let patches = client.known[&server].patches;
    // Each of these is sent by the game server at once.
    for turn in 0..400 {
        game.world(|world| world.set_switch(GATE_SWITCH, turn % 2 == 0)).unwrap();
        tokio::task::yield_now().await;
    }
    game.world(|world| {
        world.set_switch(GATE_SWITCH, true).unwrap();
        world.set_online(TEAM[3].0, false);
    });
    client
        .until(&server, |state| {
            state["devices"][GATE_SWITCH.to_string()]["value"] == true
                && state["team"]["members"][member(3)]["online"] == false
        })
        .await;
    assert!(client.known[&server].patches - patches < 60, "many changes become few patches");
    expect_converged(&app, &mut alice, &server, &mut client).await;
}

#[actix_web::test]
async fn chat_is_mirrored_once_and_history_is_not() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    game.world(|world| world.say(TEAM[1].0, "said before anybody listened"));
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    game.world(|world| {
        world.say(TEAM[1].0, "  <b>hello</b>  ");
        world.say(TEAM[2].0, "bye");
    });
    let first = client.expect("chat").await;
    assert_eq!((&first["serverId"], &first["chat"]["author"]), (&json!(server), &json!(TEAM[1].1)));
    assert!(first["chat"]["text"].as_str().unwrap().contains("hello"), "{first}");
    assert_eq!(first["chat"]["ts"], "2026-11-21T12:00:00.000Z");
    let second = client.expect("chat").await["chat"].take();
    assert!(second["id"].is_string() && second["id"] != first["chat"]["id"], "{second}");
    assert_eq!((&second["author"], &second["text"]), (&json!(TEAM[2].1), &json!("bye")));
    assert_eq!(second["authorId"], json!(TEAM[2].0.to_string()));
    assert_eq!(second.as_object().unwrap().len(), 5, "id, author, authorId, text, ts");
    // The line comes again with the history after a reconnect, and is not delivered again.
    game.drop_connections();
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    client.until(&server, |state| is_complete(state, 0)).await;
    game.world(|world| world.say(TEAM[3].0, "third"));
    assert_eq!(client.expect("chat").await["chat"]["text"], "third");
}

#[actix_web::test]
async fn a_raid_is_announced_at_once_and_repeats_raise_its_count() {
    let (app, _alice, game, server, mut client) = watched(&[BASE_ALARM, WALL_ALARM]).await;
    let powered = |state: &Value| state["devices"][BASE_ALARM.to_string()]["value"] == true;
    // Patches that come in a row have to wait for their turns.
    for online in [false, true, false, true, false, true] {
        game.world(|world| world.set_online(TEAM[1].0, online));
        client.expect_patch(&server).await;
    }
    game.world(|world| world.fire_alarm(BASE_ALARM));
    let raid = client.expect("raid").await;
    assert_eq!(raid["serverId"], server);
    assert_eq!(raid["alarmId"], BASE_ALARM.to_string());
    assert_eq!(raid["alarmName"], BASE_ALARM.to_string(), "the name under which it was added");
    assert_eq!((&raid["count"], &raid["update"]), (&json!(1), &json!(false)));
    assert_eq!(raid["ts"], "2026-11-21T12:00:00.000Z");
    client.until(&server, powered).await;

    // Twice more within ten seconds: one update.
    for _ in 0..2 {
        app.clock.advance(chrono::Duration::seconds(2));
        game.world(|world| world.release_alarm(BASE_ALARM));
        client.until(&server, |state| !powered(state)).await;
        game.world(|world| world.fire_alarm(BASE_ALARM));
        client.until(&server, powered).await;
    }
    app.clock.advance(chrono::Duration::seconds(7));
    let update = client.expect("raid").await;
    assert_eq!((&update["incident"], &update["ts"]), (&raid["incident"], &raid["ts"]));
    assert_eq!((&update["count"], &update["update"]), (&json!(3), &json!(true)));

    // Another alarm is another incident; so is the same one after a minute and a half.
    game.world(|world| world.fire_alarm(WALL_ALARM));
    let other = client.expect("raid").await;
    assert_ne!(other["incident"], raid["incident"]);
    app.clock.advance(chrono::Duration::seconds(91));
    game.world(|world| world.release_alarm(BASE_ALARM));
    client.until(&server, |state| !powered(state)).await;
    game.world(|world| world.fire_alarm(BASE_ALARM));
    let next = client.expect("raid").await;
    assert_eq!((&next["alarmId"], &next["count"]), (&raid["alarmId"], &json!(1)));
    assert_ne!(next["incident"], raid["incident"]);
}

#[actix_web::test]
async fn two_servers_are_two_streams_and_an_unsubscribed_one_is_silent() {
    let app = TestApp::start_beside_games().await;
    let (one, two) = (game::still(&app).await, game::still(&app).await);
    let mut alice = app.signed_in(ALICE).await;
    let (first, second) = (pair(&mut alice, &one).await, pair(&mut alice, &two).await);
    for server in [&first, &second] {
        add_device(&mut alice, server, GATE_SWITCH).await;
    }
    let mut client = RelayClient::watching(&app, &mut alice, &first).await;
    client.subscribe(&second).await;
    client.until(&first, |state| is_complete(state, 1)).await;
    client.until(&second, |state| is_complete(state, 1)).await;
    let gate = |state: &Value| state["devices"][GATE_SWITCH.to_string()]["value"] == true;
    one.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    client.until(&first, gate).await;
    assert!(!gate(client.state(&second)));

    client.unsubscribe(&first).await;
    client.ping().await;
    let seq = client.known[&first].seq;
    one.world(|world| {
        world.set_switch(GATE_SWITCH, false).unwrap();
        world.say(TEAM[1].0, "not for you");
    });
    // The second server's news go the same way, and a little later.
    let mut witness = RelayClient::watching(&app, &mut alice, &first).await;
    witness.until(&first, |state| !gate(state)).await;
    two.world(|world| world.say(TEAM[1].0, "for you"));
    assert_eq!(client.expect("chat").await["serverId"], second);
    assert_eq!(client.known[&first].seq, seq, "nothing came of the first server");
}

#[actix_web::test]
async fn a_subscribe_within_five_seconds_is_answered_with_the_state_of_then() {
    let (_app, _alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    client.unsubscribe(&server).await;
    client.subscribe(&server).await;
    let first = client.expect_snapshot(&server).await;
    client.unsubscribe(&server).await;
    client.subscribe(&server).await;
    client.subscribe(&server).await;
    client.ping().await;
    // The only change before the five seconds end, and after it nothing moves: the snapshot comes by itself.
    game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    let second = client.expect_snapshot(&server).await;
    assert_eq!(second.epoch, first.epoch);
    assert!(second.seq > first.seq);
    assert_eq!(second.state["devices"][GATE_SWITCH.to_string()]["value"], true);
}

#[actix_web::test]
async fn devices_that_are_added_or_removed_show_at_once() {
    let (_app, mut alice, _game, server, mut client) = watched(&[]).await;
    add_device(&mut alice, &server, LIGHTS_SWITCH).await;
    let id = LIGHTS_SWITCH.to_string();
    client.until(&server, |state| state["devices"][&id]["value"] == true).await;
    let device = &client.state(&server)["devices"][&id];
    assert_eq!((&device["kind"], &device["reachable"]), (&json!("switch"), &json!("ok")));
    add_device(&mut alice, &server, 999).await;
    client.until(&server, |state| state["devices"]["999"]["reachable"] == "removed").await;
    assert_eq!(alice.delete(&format!("/paired-servers/{server}/devices/{id}")).await.status, 200);
    client.until(&server, |state| state["devices"][&id].is_null()).await;
}

#[actix_web::test]
async fn a_toggle_is_acknowledged_and_seen() {
    let (_app, _alice, game, server, mut client) = watched(&[GATE_SWITCH, BASE_ALARM, LOOT_BOX]).await;
    let gate = GATE_SWITCH.to_string();
    let toggle = |device: &str, request: Option<&str>| {
        let mut message = json!({ "type": "deviceToggle", "serverId": server, "deviceId": device });
        if let Some(request) = request {
            message["requestId"] = json!(request);
        }
        message
    };
    client.send(toggle(&gate, Some("one"))).await;
    assert_eq!(client.expect("ack").await, json!({ "type": "ack", "requestId": "one" }));
    client.until(&server, |state| state["devices"][&gate]["value"] == true).await;
    client.send(toggle(&gate, None)).await;
    client.until(&server, |state| state["devices"][&gate]["value"] == false).await;
    assert!(game.world(|world| world.devices().any(|(id, _, device)| {
        id == GATE_SWITCH && matches!(device, companion::simulator::world::SimulatedDevice::Switch { on: false })
    })));

    for (request, device, code) in [
        ("alarm", BASE_ALARM.to_string(), "not_a_switch"),
        ("box", LOOT_BOX.to_string(), "not_a_switch"),
        ("none", "31337".to_owned(), "unknown_device"),
        ("odd", "x".to_owned(), "unknown_device"),
    ] {
        client.send(toggle(&device, Some(request))).await;
        let error = client.expect_error(code).await;
        assert_eq!((&error["requestId"], &error["serverId"]), (&json!(request), &json!(server)));
    }
    client.send(json!({ "type": "deviceToggle", "serverId": "no-such", "deviceId": gate, "requestId": "r" })).await;
    assert_eq!(client.expect_error("unknown_server").await["requestId"], "r");

    // Without a link, known device or not.
    game.stop().await;
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    for device in [gate.as_str(), "31337"] {
        client.send(toggle(device, Some("late"))).await;
        assert_eq!(client.expect_error("game_server_unavailable").await["requestId"], "late");
    }
}
