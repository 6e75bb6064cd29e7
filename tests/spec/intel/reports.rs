//! Kinds of things that a game server reports at all: "nothing there" and "not reported" are two answers.

use companion::{
    config::Database,
    db::{
        engine::pool::Pool,
        markets::{self, MarketStep},
    },
    domain::{
        ids::GameServerId,
        reporting::{Evidence, KnownReports},
        shop::market::MarketWrite,
    },
    game::wire::{AppMarker, AppMarkerType, app_marker::SellOrder},
    simulator::{game_server::GameServer, world::TEAM},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    app::{LINKS, TestApp},
    database::Postgres,
    game::{self, ALICE, is_connected, pair, watched},
    relay_client::RelayClient,
};

fn is_there(state: &Value, kind: &str) -> bool {
    state["mapMarkers"].as_object().unwrap().values().any(|marker| marker["kind"] == kind)
}

fn silence(game: &GameServer, is_silent: bool) {
    game.faults(|faults| (faults.no_events, faults.no_shops) = (is_silent, is_silent));
}

/// The next event of the world is the death of a mate, and nothing left, opened or went missing before.
async fn only_a_death(game: &GameServer, client: &mut RelayClient, mate: usize) {
    game.world(|world| world.kill(TEAM[mate].0));
    let reported = ["left", "removed", "missing", "opened", "returned", "located", "entered", "died"];
    let is_reported = |message: &Value| reported.iter().any(|action| message["event"]["action"] == *action);
    let event = client.expect_where("event", is_reported).await;
    assert_eq!(event["event"]["action"], "died", "{event}");
}

#[actix_web::test]
async fn a_game_server_that_stops_to_report_takes_nothing_away() {
    let (_app, mut alice, game, server, mut client) = watched(&[]).await;
    let sells = SellOrder {
        item_id: 7,
        quantity: 1,
        currency_id: 8,
        cost_per_item: 5,
        amount_in_stock: 1,
        ..Default::default()
    };
    let (ship, circle) = game.world(|world| {
        world.add_marker(AppMarker {
            r#type: AppMarkerType::VendingMachineMarker as i32,
            x: 1_000.0,
            y: 3_900.0,
            sell_orders: vec![sells],
            ..Default::default()
        });
        let circle = AppMarker { r#type: AppMarkerType::GenericRadiusMarker as i32, ..Default::default() };
        (world.send_cargo_ship(), circle)
    });
    client.expect_where("event", |message| message["event"]["kind"] == "cargo").await;
    client.expect_where("event", |message| message["event"]["action"] == "opened").await;
    client.until(&server, |state| state["server"]["reports"] == json!({ "events": "yes", "shops": "yes" })).await;
    let watches = format!("/intel/{server}/shops");
    let watch = alice.post(&watches, Some(&json!({ "vendorId": "100000_390000", "itemId": 7 }))).await.json();
    assert_eq!((&watch["state"], &watch["paused"]), (&json!("ok"), &json!(false)));

    silence(&game, true);
    for round in 0..4 {
        let there = round % 2 == 0;
        if there {
            game.world(|world| world.add_marker(AppMarker { id: 90_000, ..circle.clone() }));
        } else {
            game.world(|world| world.remove_marker(90_000));
        }
        client.until(&server, |state| is_there(state, "genericRadius") == there).await;
    }
    assert!(!is_there(client.state(&server), "cargoShip") && !is_there(client.state(&server), "vendingMachine"));
    only_a_death(&game, &mut client, 2).await;
    let listed = alice.get(&watches).await.json();
    assert_eq!((&listed["shops"], &listed["reports"]["shops"]), (&json!([watch]), &json!("yes")));

    silence(&game, false);
    client.until(&server, |state| state["mapMarkers"][ship.to_string()].is_object()).await;
    only_a_death(&game, &mut client, 3).await;
}

/// Knowledge of a game server is remembered, said everywhere, and given up with the first marker.
async fn remember(app: TestApp, database: Database) {
    let game = game::still(&app).await;
    silence(&game, true);
    let evidence = || Evidence { reported: false, words: "none for long".into(), as_of: app.clock.now() };
    let reports = Some(KnownReports { events: Some(evidence()), shops: Some(evidence()) });
    let step = MarketStep {
        game_server: GameServerId::at("127.0.0.1", game.addr().port()),
        wipe: 0,
        world: None,
        write: MarketWrite { reports, ..MarketWrite::default() },
        record_ids: Vec::new(),
        at: app.clock.now(),
    };
    Pool::open(&database).unwrap().write_blocking(|db| markets::write(db, &step)).unwrap();

    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    let neither = json!({ "events": "no", "shops": "no" });
    let says = |said: Value| move |state: &Value| is_connected(state) && state["server"]["reports"] == said;
    client.until(&server, says(neither.clone())).await;
    let paths = [
        format!("/paired-servers/{server}/shops"),
        format!("/paired-servers/{server}/shops/history"),
        format!("/intel/{server}/shops"),
        format!("/intel/{server}/shops/scan"),
        format!("/intel/{server}/timeline"),
    ];
    for path in &paths {
        assert_eq!(alice.get(path).await.json()["reports"], neither, "{path}");
    }
    let new = json!({ "vendorId": "1_2", "itemId": 69511070 });
    let watch = alice.post(&paths[2], Some(&new)).await.json();
    assert_eq!((&watch["paused"], &watch["vendorKnown"]), (&json!(true), &Value::Null));

    silence(&game, false);
    game.world(|world| world.send_cargo_ship());
    let both = json!({ "events": "yes", "shops": "yes" });
    client.until(&server, says(both.clone())).await;
    for path in &paths {
        assert_eq!(alice.get_until(path, |shown| shown["reports"] == both).await["reports"], both, "{path}");
    }
    let watch = &alice.get(&paths[2]).await.json()["shops"][0];
    assert_eq!((&watch["paused"], &watch["vendorKnown"]), (&json!(false), &json!(false)));

    // Also over a restart, while the game server is away.
    drop(client);
    game.stop().await;
    let app = app.restart().await;
    let mut alice = app.again(&alice);
    for path in &paths {
        assert_eq!(alice.get(path).await.json()["reports"], both, "{path}");
    }
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| state["server"]["reports"] == both).await;
}

#[actix_web::test]
async fn what_is_not_reported_is_said_and_remembered_on_sqlite() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("reports.db");
    let flags = ["--allow-private-game-servers=true", LINKS];
    let app = TestApp::start_on(format!("sqlite:{}", path.display()), &flags).await;
    remember(app, Database::Sqlite(path)).await;
}

#[actix_web::test]
async fn what_is_not_reported_is_said_and_remembered_on_postgresql() {
    let Some(database) = Postgres::create() else { return };
    let flags = ["--allow-private-game-servers=true", LINKS];
    let app = TestApp::start_on(database.url(), &flags).await;
    remember(app, Database::Postgres(database.url().into())).await;
}
