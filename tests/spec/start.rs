//! The start of the service: what it does while its database fails, and what it does not ask its neighbours for again.

use companion::{
    db::{engine::pool::Pool, paired_servers},
    simulator::{game_server::GameServer, world::BASE_ALARM},
};
use diesel::connection::SimpleConnection as _;
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{
    browser::Browser,
    game::{self, add_device, is_complete, is_connected, pair},
    push::{PHONE, PushTest},
    relay_client::{PATIENCE, RelayClient},
};

/// Reads of these tables fail while they have other names.
fn rename(pool: &Pool, tables: &[&str], from: &str, to: &str) {
    for table in tables {
        let rename = format!("ALTER TABLE {table}{from} RENAME TO {table}{to}");
        pool.write_blocking(|db| Ok(db.batch_execute(&rename)?)).unwrap();
    }
}

/// Alice, a game server whose world does not move, and its id as she has paired it.
async fn paired() -> (PushTest, Browser, GameServer, String) {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice().await;
    let game = game::still(&test.app).await;
    let server = pair(&mut alice, &game).await;
    (test, alice, game, server)
}

#[actix_web::test]
async fn a_database_that_fails_at_first_is_reported_and_delays_links_and_sessions_only() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let game = game::still(&test.app).await;
    pair(&mut alice, &game).await;
    assert_eq!(alice.get("/ready").await.json(), json!({ "ok": true, "warnings": [] }));

    let tables = ["paired_servers", "push_credentials"];
    let test = test.restart_after(move |pool| rename(pool, &tables, "", "_gone")).await;
    let mut browser = test.app.browser();
    let problem = browser.get("/ready").await.expect_problem(503, "not_ready");
    let missing = [
        ("database", "takes no alarms, which are kept in a file"),
        ("gameLinks", "not loaded yet"),
        ("pushSessions", "not loaded yet"),
    ];
    assert_eq!(problem["errors"], json!(missing.map(|(path, message)| json!({ "path": path, "message": message }))));
    for path in ["/health", "/health/db"] {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
    }

    rename(&test.pool, &tables, "_gone", "");
    test.app.clock.advance(chrono::TimeDelta::seconds(6));
    test.until(|push| push.connected(PHONE.0)).await;
    let opened = async {
        while game.connections() == 0 || browser.get("/ready").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, opened).await.expect("everything is loaded");
}

#[actix_web::test]
async fn a_link_hears_its_alarms_though_the_database_failed_when_it_came_about() {
    let (test, mut alice, game, server) = paired().await;
    add_device(&mut alice, &server, BASE_ALARM).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;

    rename(&test.pool, &["smart_devices"], "", "_gone");
    game.drop_connections();
    // The new link asks for markers after the devices, unless these take long.
    let marker = game.world(|world| world.add_marker(Default::default())).to_string();
    client.until(&server, |state| is_connected(state) && !state["mapMarkers"][&marker].is_null()).await;
    rename(&test.pool, &["smart_devices"], "_gone", "");
    game.world(|world| world.fire_alarm(BASE_ALARM));
    assert_eq!(client.expect("raid").await["alarmId"], BASE_ALARM.to_string());
}

#[actix_web::test]
async fn a_restart_within_a_wipe_does_not_ask_for_the_map_again() {
    let (test, mut alice, game, server) = paired().await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let stored = async {
        let id = server.as_str().into();
        while test.pool.read_blocking(|db| paired_servers::monuments(db, &id)).unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, stored).await.expect("the monuments are stored");
    assert_eq!(game.maps(), 1);

    let test = test.restart().await;
    let mut again = test.app.browser();
    again.cookies = alice.cookies.clone();
    let mut client = RelayClient::watching(&test.app, &mut again, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    assert_eq!(game.maps(), 1, "the markers are asked for after the map");
    game.wipe();
    client.expect_where("event", |message| message["event"]["kind"] == "wipe").await;
    client.until(&server, |state| is_complete(state, 0)).await;
    assert_eq!(game.maps(), 2);
}
