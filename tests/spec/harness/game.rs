//! Simulated game servers, and pairing them with the service.

use bytes::Bytes;
use companion::simulator::{
    game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
    world::{SimulatedWorld, TEAM},
};
use serde_json::{Value, json};

use super::{app::TestApp, browser::Browser, relay_client::RelayClient};

/// The paired player, who also signs in to the service.
pub const ALICE: &str = "76561198000000001";
pub const BOB: &str = "76561198000000002";

/// A game server whose world does not move until the test moves it.
pub async fn still(app: &TestApp) -> GameServer {
    with_world(SimulatedWorld::new(7, app.clock.now())).await
}

/// A game server with this world, which does not move until the test moves it.
pub async fn with_world(world: SimulatedWorld) -> GameServer {
    // Drawing the map's picture would hold up everything else on the test's thread.
    let map_picture = Some(Bytes::from_static(b"a picture"));
    let options = GameServerOptions { time_scale: 0.0, map_picture, ..GameServerOptions::new(world) };
    GameServer::start(options).await.unwrap()
}

/// Shares the server with this user, who accepts; the id of the guest.
pub async fn share(owner: &mut Browser, server: &str, guest: &mut Browser) -> String {
    let account = guest.get("/me").await.json()["platformId"].take();
    let guests = format!("/paired-servers/{server}/guests");
    let invited = owner.post(&guests, Some(&json!({ "platformId": account }))).await;
    assert_eq!(invited.status, 201, "{}", invited.text());
    let id = invited.json()["id"].take();
    let accepted = guest.post("/guest-invites/accept", Some(&json!({ "id": id }))).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text());
    id.as_str().unwrap().to_owned()
}

/// Pairs the game server; pairing it again tries its link again. The id of the paired server.
pub async fn pair(browser: &mut Browser, game: &GameServer) -> String {
    pair_port(browser, game.addr().port()).await
}

/// Pairs whatever listens on this port of loopback.
pub async fn pair_port(browser: &mut Browser, port: u16) -> String {
    let pairing = json!({ "address": "127.0.0.1", "port": port, "playerId": ALICE, "playerToken": DEMO_TOKEN });
    let answer = browser.post("/paired-servers", Some(&pairing)).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// A game server whose world does not move, paired by Alice with these devices, and her client that knows all of it.
pub async fn watched(devices: &[u64]) -> (TestApp, Browser, GameServer, String, RelayClient) {
    let app = TestApp::start_beside_games().await;
    let game = still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    for device in devices {
        add_device(&mut alice, &server, *device).await;
    }
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, devices.len())).await;
    (app, alice, game, server, client)
}

/// Adds one device; its kind comes from the game server.
pub async fn add_device(browser: &mut Browser, server: &str, device: u64) {
    let answer = browser.post(&format!("/paired-servers/{server}/devices"), Some(&json!({ "entityId": device }))).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// The key of a team member in the state.
pub fn member(index: usize) -> String {
    TEAM[index].0.to_string()
}

/// True if the state says that the link is up.
pub fn is_connected(state: &Value) -> bool {
    state["server"]["connection"] == "connected"
}

/// True if everything that is asked after a connect is here: the team, markers, and the values of this many devices.
pub fn is_complete(state: &Value, devices: usize) -> bool {
    let known = |section: &Value| section.as_object().is_some_and(|section| !section.is_empty());
    let answered = state["devices"].as_object().unwrap().values().filter(|device| device["reachable"] == "ok");
    is_connected(state)
        && known(&state["team"]["members"])
        && known(&state["mapMarkers"])
        && answered.count() == devices
}
