//! Where devices stand: at first where the player stood who paired them in the game, then where the owner says.

use companion::simulator::{
    game_server::DEMO_TOKEN,
    point::Point,
    world::{BASE_ALARM, GATE_SWITCH, TEAM, WALL_ALARM},
};
use serde_json::{Value, json};

use crate::harness::{
    game::{self, ALICE, add_device, is_complete, member},
    push::{PHONE, PushTest, alarm_pairing, named, only_server, pairing},
    relay_client::RelayClient,
};

fn place(state: &Value, device: u64) -> (&Value, &Value) {
    let device = &state["devices"][device.to_string()];
    (&device["x"], &device["y"])
}

const NOWHERE: (&Value, &Value) = (&Value::Null, &Value::Null);

#[actix_web::test]
async fn a_device_that_is_paired_in_the_game_is_where_its_player_stood() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let game = game::still(&test.app).await;
    let named = named(&game);
    test.deliver(pairing(&named)).await;
    let server = only_server(&mut alice).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let placed_at = |x: f64| move |state: &Value| state["team"]["members"][member(0)]["x"] == x;
    game.world(|world| world.move_member(TEAM[0].0, Point::new(1_500.0, 900.0)));
    client.until(&server, placed_at(1_500.0)).await;

    // By hand, and late: where the player was then is unknown.
    add_device(&mut alice, &server, WALL_ALARM).await;
    let gate = named.entity_pairing(ALICE.parse().unwrap(), DEMO_TOKEN, GATE_SWITCH, 1, "Gate");
    test.push_sent(PHONE, gate, test.ago(20));
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    test.deliver(alarm_pairing(&named, BASE_ALARM, "Base alarm")).await;
    client.until(&server, |state| place(state, BASE_ALARM) == (&json!(1_500.0), &json!(900.0))).await;
    client.until(&server, |state| is_complete(state, 3)).await;
    let state = client.state(&server);
    assert_ne!(state["devices"][BASE_ALARM.to_string()]["grid"], "");
    assert_eq!((place(state, WALL_ALARM), place(state, GATE_SWITCH)), (NOWHERE, NOWHERE));
    game.world(|world| world.fire_alarm(BASE_ALARM));
    let raid = client.expect("raid").await;
    assert_eq!((&raid["x"], &raid["y"]), (&json!(1_500.0), &json!(900.0)));

    // The owner's word stays, also when it is paired again somewhere else; so does its absence.
    let path = |device: u64| format!("/paired-servers/{server}/devices/{device}");
    let moved = alice.patch(&path(BASE_ALARM), &json!({ "x": 100, "y": 200 })).await;
    assert_eq!(moved.status, 200, "{}", moved.text());
    client.until(&server, |state| place(state, BASE_ALARM) == (&json!(100.0), &json!(200.0))).await;
    game.world(|world| world.move_member(TEAM[0].0, Point::new(700.0, 800.0)));
    client.until(&server, placed_at(700.0)).await;
    for device in [BASE_ALARM, WALL_ALARM] {
        test.deliver(alarm_pairing(&named, device, "Renamed")).await;
    }
    client.until(&server, |state| state["devices"][WALL_ALARM.to_string()]["name"] == "Renamed").await;
    let state = client.state(&server);
    assert_eq!(place(state, BASE_ALARM), (&json!(100.0), &json!(200.0)));
    assert_eq!(place(state, WALL_ALARM), NOWHERE);
}
