//! Access of watchers, and its end.

use companion::simulator::world::GATE_SWITCH;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, net::TcpListener, time::timeout};

use crate::harness::{
    app::TestApp,
    game::{self, ALICE, BOB, add_device, is_complete, pair},
    relay_client::{PATIENCE, RelayClient},
};

#[actix_web::test]
async fn the_server_of_another_user_is_unknown() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut owner = RelayClient::watching(&app, &mut alice, &server).await;
    owner.until(&server, |state| is_complete(state, 1)).await;

    let mut stranger = RelayClient::connect(&app, &mut bob).await;
    for server in [server.as_str(), "no-such-server", ""] {
        stranger.subscribe(server).await;
        assert_eq!(stranger.expect_error("unknown_server").await["serverId"], server, "the same answer for both");
    }
    let toggle = json!({
        "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": "mine"
    });
    stranger.send(toggle).await;
    assert_eq!(stranger.expect_error("unknown_server").await["requestId"], "mine");
    assert!(stranger.known.is_empty(), "nothing of it was shown");
    owner.ping().await;
    assert_eq!(owner.state(&server)["devices"][GATE_SWITCH.to_string()]["value"], false, "nothing was switched");

    // His own pairing of the same game server is another one.
    let own = pair(&mut bob, &game).await;
    assert_ne!(own, server);
    stranger.subscribe(&own).await;
    stranger.until(&own, |state| is_complete(state, 0)).await;
}

#[actix_web::test]
async fn deleting_a_server_ends_its_watches_and_nothing_else() {
    let app = TestApp::start_beside_games().await;
    let (game, other_game) = (game::still(&app).await, game::still(&app).await);
    let mut alice = app.signed_in(ALICE).await;
    let (server, other) = (pair(&mut alice, &game).await, pair(&mut alice, &other_game).await);
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = RelayClient::watching(&app, &mut alice, &server).await;
        client.subscribe(&other).await;
        client.until(&server, |state| is_complete(state, 0)).await;
        client.until(&other, |state| is_complete(state, 0)).await;
        clients.push(client);
    }
    assert_eq!(alice.delete(&format!("/paired-servers/{server}")).await.status, 200);
    for client in &mut clients {
        assert_eq!(client.expect_error("unknown_server").await["serverId"], server);
    }
    other_game.world(|world| world.say(76561198000000002, "still here"));
    for client in &mut clients {
        assert_eq!(client.expect("chat").await["serverId"], other);
        client.subscribe(&server).await;
        client.expect_error("unknown_server").await;
    }
    // The link is given up as well.
    let mut asked = 0;
    while game.connections() > 0 {
        clients[0].next_frame().await;
        asked += 1;
        assert!(asked < 100, "the link to the game server stays open");
    }
}

#[actix_web::test]
async fn a_deletion_beside_a_drill_and_a_subscription_leaves_no_link() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    for _ in 0..10 {
        let server = pair(&mut alice, &game).await;
        let mut client = RelayClient::connect(&app, &mut alice).await;
        let (mut deleting, mut drilling) = (alice.clone(), alice.clone());
        let (path, drill) = (format!("/paired-servers/{server}"), format!("/paired-servers/{server}/drill"));
        let (deleted, drilled, ()) =
            tokio::join!(deleting.delete(&path), drilling.post(&drill, None), client.subscribe(&server));
        assert_eq!(deleted.status, 200);
        assert!(matches!(drilled.status, 200 | 404 | 503), "{}", drilled.text());
        client.expect_error("unknown_server").await;
        drilling.post(&drill, None).await.expect_problem(404, "not_found");
        // Drills are twenty an hour.
        app.clock.advance(chrono::Duration::minutes(6));
    }
    let gone = async {
        while game.connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.expect("no link stays open");
}

#[actix_web::test]
async fn deleting_a_server_ends_a_link_that_is_being_made() {
    let app = TestApp::start_beside_games().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut alice = app.signed_in(ALICE).await;
    let server = game::pair_port(&mut alice, listener.local_addr().unwrap().port()).await;
    let (mut connecting, _) = listener.accept().await.unwrap();
    assert_eq!(alice.delete(&format!("/paired-servers/{server}")).await.status, 200);
    let mut handshake = Vec::new();
    let ended = timeout(PATIENCE, connecting.read_to_end(&mut handshake)).await.expect("it ends");
    assert!(ended.is_ok() && handshake.starts_with(b"GET / HTTP/1.1"), "{ended:?}");
}

#[actix_web::test]
async fn a_restart_is_announced_and_the_state_comes_back() {
    let app = TestApp::start_beside_games().await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, GATE_SWITCH).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    let before = client.state(&server).clone();

    let restarting = actix_web::rt::spawn(app.restart());
    assert_eq!(client.expect_close().await, 4412);
    let app = restarting.await.unwrap();
    game.world(|world| world.set_switch(GATE_SWITCH, true)).unwrap();
    let mut again = app.browser();
    again.cookies = alice.cookies.clone();
    let mut client = RelayClient::watching(&app, &mut again, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    let after = client.state(&server);
    assert_eq!(after["devices"][GATE_SWITCH.to_string()]["value"], true, "also what happened meanwhile");
    for section in ["team", "mapMarkers", "mapNotes"] {
        assert_eq!(after[section], before[section]);
    }
}
