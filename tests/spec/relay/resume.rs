//! Clients that come back: those who say which state they have get a patch from there.

use chrono::TimeDelta;
use companion::simulator::{
    game_server::GameServer,
    world::{BASE_ALARM, GATE_SWITCH, LIGHTS_SWITCH},
};
use serde_json::{Value, json};

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{self, ALICE, add_device, is_complete, pair},
    relay_client::{Known, RelayClient},
};

/// A still world of two switches and an alarm, known to a client that then left.
async fn left() -> (TestApp, Browser, GameServer, String, Known) {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    for device in [GATE_SWITCH, LIGHTS_SWITCH, BASE_ALARM] {
        add_device(&mut alice, &server, device).await;
    }
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 3)).await;
    let known = client.known[&server].clone();
    (app, alice, game, server, known)
}

/// A fresh client that has this state of the gate and the lights.
async fn seen(app: &TestApp, alice: &mut Browser, server: &str, on: [bool; 2]) -> Known {
    let mut client = RelayClient::watching(app, alice, server).await;
    let is_so = |state: &Value| {
        let values = [GATE_SWITCH, LIGHTS_SWITCH].map(|device| state["devices"][device.to_string()]["value"].clone());
        values == on.map(Value::from)
    };
    client.until(server, is_so).await;
    client.known[server].clone()
}

#[actix_web::test]
async fn who_was_away_gets_one_patch_on_whichever_thread() {
    let (app, mut alice, game, server, known) = left().await;
    for switch in [GATE_SWITCH, LIGHTS_SWITCH] {
        game.world(|world| world.set_switch(switch, switch == GATE_SWITCH)).unwrap();
    }
    let now = seen(&app, &mut alice, &server, [true, false]).await;
    assert!(now.seq > known.seq, "{} is not later than {}", now.seq, known.seq);
    // More than there are threads.
    for _ in 0..4 {
        let mut client = RelayClient::connect(&app, &mut alice).await;
        client.resume(&server, known.clone()).await;
        let patch = client.expect_patch(&server).await;
        assert_eq!((&patch["base"], client.frames), (&json!(known.seq), 1), "nothing comes before it: {patch}");
        assert_eq!((client.known[&server].seq, client.state(&server)), (now.seq, &now.state));
    }
}

#[actix_web::test]
async fn a_client_that_missed_nothing_is_answered_so_and_goes_on() {
    let (app, mut alice, game, server, known) = left().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = RelayClient::connect(&app, &mut alice).await;
        client.resume(&server, known.clone()).await;
        let patch = client.expect_patch(&server).await;
        assert_eq!((&patch["base"], &patch["seq"]), (&json!(known.seq), &json!(known.seq)));
        clients.push(client);
    }
    game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    for client in &mut clients {
        client.until(&server, |state| state["devices"][GATE_SWITCH.to_string()]["value"] == true).await;
        assert_eq!(client.known[&server].patches, known.patches + 2, "no snapshot was needed");
    }
    // More may be on its way than the client knows of when it says where it is.
    let mut client = clients.remove(0);
    client.unsubscribe(&server).await;
    client.resume(&server, known).await;
    client.expect_snapshot(&server).await;
}

#[actix_web::test]
async fn a_position_that_leads_nowhere_is_answered_with_a_snapshot() {
    let (app, mut alice, game, server, known) = left().await;
    let Known { epoch, seq, .. } = known;
    for (epoch, seq) in [(epoch + 1, seq), (epoch, seq + 1_000), (0, 0), (u64::MAX, u64::MAX)] {
        let mut from = known.clone();
        (from.epoch, from.seq) = (epoch, seq);
        let mut client = RelayClient::connect(&app, &mut alice).await;
        client.resume(&server, from).await;
        let snapshot = client.expect_snapshot(&server).await;
        assert_eq!(snapshot.state, known.state);
        // While it is watched, what the client says it has is old by the time it arrives.
        client.resume(&server, snapshot).await;
        client.ping().await;
        assert_eq!(client.frames, 2, "the next snapshot is for later");
    }
    app.clock.advance(TimeDelta::seconds(1));
    let app = app.restart().await;
    let mut back = app.browser();
    back.cookies = alice.cookies.clone();
    let mut client = RelayClient::connect(&app, &mut back).await;
    client.resume(&server, known.clone()).await;
    assert_ne!(client.expect_snapshot(&server).await.epoch, known.epoch, "a restart is another epoch");
    client.send(json!({ "type": "subscribe", "serverId": server, "seq": -1 })).await;
    client.expect_error("malformed").await;
    drop(game);
}

#[actix_web::test]
async fn an_unheard_alarm_is_heard_by_a_client_that_comes_back() {
    let (app, mut alice, game, server, known) = left().await;
    game.world(|world| world.fire_alarm(BASE_ALARM));
    let path = format!("/paired-servers/{server}/alarms");
    let shown = |state: &'static str| move |shown: &Value| shown["alarms"][0]["state"] == state;
    alice.get_until(path.clone(), shown("unheard")).await;
    let mut client = RelayClient::connect(&app, &mut alice).await;
    client.resume(&server, known).await;
    client.until(&server, |state| state["raids"].as_object().is_some_and(|raids| !raids.is_empty())).await;
    alice.get_until(path, shown("delivered_later")).await;
}
