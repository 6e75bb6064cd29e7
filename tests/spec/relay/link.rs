//! The link to a game server that sends too much, or in another order than it happened.

use std::net::Ipv4Addr;

use chrono::TimeDelta;
use companion::simulator::{
    game_server::{GameServer, GameServerOptions, Limits},
    point::Point,
    world::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH, LOOT_BOX, SimulatedWorld, TEAM, TOOL_CUPBOARD},
};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::harness::{
    app::TestApp,
    game::{self, ALICE, add_device, is_complete, is_connected, pair, pair_port, watched},
    relay_client::RelayClient,
};

fn device(state: &Value, id: u64) -> &Value {
    &state["devices"][id.to_string()]
}

#[actix_web::test]
async fn markers_beyond_the_limit_are_refused_shown_as_stale_and_hold_up_nothing_else() {
    let (app, _alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    assert!(client.state(&server)["server"].get("stale").is_none(), "while all is fresh, nothing is said");
    let known = client.state(&server)["mapMarkers"].clone();
    game.faults(|faults| faults.extra_markers = 25_000);
    let as_of = app.clock.now().to_wire();
    app.clock.advance(TimeDelta::seconds(10));
    client.until(&server, |state| state["server"]["stale"]["mapMarkers"]["asOf"] == as_of.as_str()).await;
    game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    client.until(&server, |state| device(state, GATE_SWITCH)["value"] == true).await;
    // Two answers about the team, with one about markers between them.
    for x in [500.0, 600.0] {
        game.world(|world| world.move_member(TEAM[1].0, Point::new(x, 600.0)));
        client.until(&server, |state| state["team"]["members"][TEAM[1].0.to_string()]["x"] == x).await;
    }
    let state = client.state(&server);
    assert!(is_connected(state) && state["server"]["stale"]["mapMarkers"]["asOf"] == as_of.as_str());
    assert_eq!(state["mapMarkers"], known, "as they were");
    game.faults(|faults| faults.extra_markers = 0);
    client.until(&server, |state| state["server"].get("stale").is_none()).await;
}

#[actix_web::test]
async fn without_a_link_everything_becomes_stale_and_is_fresh_again_with_it() {
    let (app, _alice, game, server, mut client) = watched(&[GATE_SWITCH]).await;
    let known_at = app.clock.now().to_wire();
    game.stop().await;
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    app.clock.advance(TimeDelta::hours(1));
    let as_of = json!({ "asOf": known_at });
    let all = json!({ "server": as_of, "team": as_of, "mapMarkers": as_of, "devices": as_of });
    client.until(&server, |state| state["server"]["stale"] == all).await;
    game.restart().await.unwrap();
    client.until(&server, |state| is_connected(state) && state["server"].get("stale").is_none()).await;
}

#[actix_web::test]
async fn a_tool_cupboard_that_changes_all_the_time_does_not_hold_up_the_map() {
    let (_app, _alice, game, server, mut client) = watched(&[TOOL_CUPBOARD]).await;
    // Its broadcasts say that it changes; what it became, only an answer says.
    game.world(|world| (1..=300).for_each(|stone| world.set_storage(TOOL_CUPBOARD, vec![(-2_099_697_608, stone)])));
    client.until(&server, |state| device(state, TOOL_CUPBOARD)["storage"]["items"][0]["quantity"] == 300).await;
    let ship = game.world(SimulatedWorld::send_cargo_ship);
    client.until(&server, |state| !state["mapMarkers"][ship.to_string()].is_null()).await;
}

#[actix_web::test]
async fn alarms_are_asked_before_everything_else() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    // For the first two questions: what it is, and one more.
    let limits = Limits { player_tokens: (2.0, 0.0), ..Limits::default() };
    let world = SimulatedWorld::new(7, app.clock.now());
    let options = GameServerOptions { time_scale: 0.0, limits, ..GameServerOptions::new(world) };
    let game = GameServer::start(options).await.unwrap();
    game.stop().await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| state["server"]["connection"] == "unreachable").await;
    for (id, kind) in [(GATE_SWITCH, "switch"), (LIGHTS_SWITCH, "switch"), (BASE_ALARM, "alarm")] {
        let new = json!({ "entityId": id, "kind": kind });
        let answer = alice.post(&format!("/paired-servers/{server}/devices"), Some(&new)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    game.restart().await.unwrap();
    client.until(&server, |state| device(state, BASE_ALARM)["reachable"] == "ok").await;
    let state = client.state(&server);
    assert!(is_connected(state) && state["team"]["members"] == json!({}) && state["mapMarkers"] == json!({}));
}

#[actix_web::test]
async fn an_answer_that_a_broadcast_has_overtaken_does_not_undo_it() {
    let (_app, mut alice, game, server, mut client) = watched(&[GATE_SWITCH, BASE_ALARM]).await;
    let gate = device(client.state(&server), GATE_SWITCH)["value"].as_bool().unwrap();
    game.faults(|faults| faults.overtaken = true);
    // A new link asks all of them again, the alarm first.
    game.drop_connections();
    // The alarm went off once.
    let raid = client.expect("raid").await;
    assert_eq!((&raid["alarmId"], &raid["count"]), (&json!(BASE_ALARM.to_string()), &json!(1)));
    client.until(&server, |state| device(state, GATE_SWITCH)["value"] == !gate).await;
    // Answered after both.
    add_device(&mut alice, &server, LOOT_BOX).await;
    client.until(&server, |state| device(state, LOOT_BOX)["reachable"] == "ok").await;
    let real = |id| game.world(|world| world.entity_info(id).unwrap().payload.value);
    for id in [GATE_SWITCH, BASE_ALARM] {
        assert_eq!(device(client.state(&server), id)["value"].as_bool(), real(id), "{id}");
    }
    game.faults(|faults| faults.overtaken = false);
    add_device(&mut alice, &server, LIGHTS_SWITCH).await;
    client.until(&server, |state| is_complete(state, 4)).await;
    game.world(|world| world.release_alarm(BASE_ALARM));
    client.until(&server, |state| device(state, BASE_ALARM)["value"] == false).await;
}

#[actix_web::test]
async fn the_reason_for_no_link_is_in_our_words() {
    let app = TestApp::start_beside_games().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut client = RelayClient::connect(&app, &mut alice).await;
    // Bound, so that no other test gets the port, but it does not listen.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let closed = silent.local_addr().unwrap().port();
    let full_game = game::still(&app).await;
    full_game.faults(|faults| faults.refuse = true);
    let (closed, full) = (pair_port(&mut alice, closed).await, pair(&mut alice, &full_game).await);
    // Before a game server has answered, all reasons are one: they do not reveal what is at an address.
    let unknown = "no game server has answered at this address yet: it may be down, or its address or companion port is \
                   another one";
    for server in [&closed, &full] {
        client.subscribe(server).await;
        client.until(server, |state| state["server"]["reason"] == unknown).await;
        let seen = alice.get(&format!("/paired-servers/{server}")).await.json();
        assert_eq!(seen["connection"]["reason"], unknown);
    }
    full_game.faults(|faults| faults.refuse = false);
    pair(&mut alice, &full_game).await;
    client.until(&full, is_connected).await;
    full_game.faults(|faults| faults.refuse = true);
    full_game.drop_connections();
    let refused = "the game server refuses the connection: it is full, or we are banned";
    client.until(&full, |state| state["server"]["reason"] == refused).await;
    full_game.stop().await;
    pair(&mut alice, &full_game).await;
    let gone = "the game server cannot be reached: it may be down or restarting";
    client.until(&full, |state| state["server"]["reason"] == gone).await;
}
