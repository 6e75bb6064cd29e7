//! Clients that do not take what they are sent.

use std::time::{Duration, Instant};

use companion::simulator::{
    game_server::GameServer,
    world::{GATE_SWITCH, SimulatedWorld},
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{self, ALICE, BOB, add_device, is_complete, pair},
    raw_socket::{RawSocket, TEXT},
    relay_client::{self, RelayClient, open, request},
};

async fn active(app: &TestApp) -> u64 {
    app.relay_browser().get("/health").await.json()["activeConnections"].as_u64().unwrap()
}

/// Waits until this holds for the number of open sockets.
async fn until_active(app: &TestApp, holds: impl Fn(u64) -> bool) {
    let mut asked = 0;
    loop {
        let active = active(app).await;
        if holds(active) {
            return;
        }
        asked += 1;
        assert!(asked < 5_000, "there are still {active}");
    }
}

/// Alice's game server, whose state is larger than what the kernel holds for a client that does not read, and her client
/// that does.
async fn large() -> (TestApp, Browser, GameServer, String, RelayClient) {
    let app = TestApp::start_beside_games().await;
    let game = game::with_world(SimulatedWorld::new(7, app.clock.now()).with_markers(10_000)).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    (app, alice, game, server, client)
}

/// A client that watches the server and does not read.
async fn stalled(app: &TestApp, token: &str, server: &str) -> RawSocket {
    let subscribe = json!({ "type": "subscribe", "serverId": server }).to_string();
    let mut stalled = RawSocket::open(app.relay, token, Some(4 * 1024)).await;
    assert!(stalled.send(TEXT, subscribe.as_bytes()).await);
    stalled
}

/// Slow: a client has 10 s for what it is sent, and is looked at each 25 s.
#[actix_web::test]
async fn clients_that_never_read_are_dropped_and_cost_no_one_anything() {
    let (app, mut alice, game, server, mut client) = large().await;
    // One is silent, one goes on talking; neither reads.
    let token = relay_client::token(&mut alice).await;
    let began = Instant::now();
    let (silent, mut talking) = (stalled(&app, &token, &server).await, stalled(&app, &token, &server).await);
    until_active(&app, |active| active >= 3).await;
    let mut turn = 0;
    let mut dropped = false;
    while !dropped {
        turn += 1;
        let on = turn % 2 == 1;
        game.world(|world| world.set_switch(GATE_SWITCH, on)).unwrap();
        client.until(&server, |state| state["devices"][GATE_SWITCH.to_string()]["value"] == on).await;
        // Patches come four in a second: about every six seconds, which is no flood.
        if turn % 24 == 0 && !talking.send(TEXT, br#"{"type":"ping"}"#).await {
            break;
        }
        dropped = active(&app).await == 1;
        assert!(turn < 400, "they are still there");
    }
    assert!(began.elapsed() >= Duration::from_secs(10), "none is dropped at once");
    // They were sent what the kernel held, and no more.
    let size = client.state(&server).to_string().len();
    for mut stalled in [silent, talking] {
        let received = stalled.drain().await;
        assert!(received < size / 2, "{received} of {size} bytes");
    }
    client.ping().await;
}

/// The frame that was on its way comes first, and its end may have to wait for room.
#[actix_web::test]
async fn a_close_by_a_client_that_has_not_read_is_answered() {
    let (app, mut alice, _game, server, _client) = large().await;
    let token = relay_client::token(&mut alice).await;
    let mut stalled = stalled(&app, &token, &server).await;
    stalled.stream.peek(&mut [0]).await.unwrap();
    assert!(stalled.send(0x88, &4000_u16.to_be_bytes()).await);
    let (code, texts) = stalled.until_close().await;
    assert_eq!(code, 4000);
    assert!(texts.last().unwrap().contains("snapshot"));
}

#[actix_web::test]
async fn a_client_that_vanishes_gives_its_place_back() {
    let app = TestApp::start().await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let token = relay_client::token(&mut alice).await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(open(app.relay, request(app.relay, Some(&token))).await.expect("a 101").0);
    }
    let mut witness = RelayClient::connect(&app, &mut bob).await;
    assert_eq!(open(app.relay, request(app.relay, Some(&token))).await.map(|_| ()).unwrap_err().status, 429);
    // Without a goodbye.
    sockets.clear();
    until_active(&app, |active| active <= 1).await;
    for _ in 0..20 {
        sockets.push(open(app.relay, request(app.relay, Some(&token))).await.expect("a 101").0);
    }
    witness.ping().await;
}

/// Takes three seconds: the drill waits so long for the one that does not read.
#[actix_web::test]
async fn a_client_that_never_reads_keeps_neither_a_drill_nor_the_ledger_waiting() {
    let (app, mut alice, _game, server, mut client) = large().await;
    let token = relay_client::token(&mut alice).await;
    let mut stuck = stalled(&app, &token, &server).await;
    // Its snapshot has begun, and does not get through.
    stuck.stream.read_u8().await.unwrap();

    let began = Instant::now();
    let drill = alice.post(&format!("/paired-servers/{server}/drill"), None).await;
    assert_eq!((drill.status, &drill.json()["sockets"]), (200, &json!(1)));
    assert!(began.elapsed() < Duration::from_secs(12), "it waited for {:?}", began.elapsed());
    assert_eq!(client.expect("raid").await["incident"], drill.json()["incident"]);
    let delivered = |shown: &Value| shown["alarms"][0]["state"] == "delivered" && shown["alarms"][0]["sockets"] == 1;
    alice.get_until(format!("/paired-servers/{server}/alarms"), delivered).await;
}
