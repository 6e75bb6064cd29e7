//! Knowledge of a game server from the links of others is read only by those whose own link was up since the wipe.

use companion::simulator::game_server::{DEMO_TOKEN, GameServer};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    harness::{
        app::{LINKS, TestApp},
        browser::Browser,
        database::Postgres,
        game::{ALICE, BOB, is_complete, pair, share},
        helper::HelperDevice,
        relay_client::RelayClient,
    },
    maps::{self, map_where},
    overlays::overlay,
};

const CAROL: &str = "76561198000000003";
const BOBS_TOKEN: i32 = 4_711;

/// Pairs the game server as Bob's player, with this token.
async fn pair_bob(bob: &mut Browser, game: &GameServer, token: i32) -> String {
    let pairing = json!({ "address": "127.0.0.1", "port": game.addr().port(), "playerId": BOB, "playerToken": token });
    let answer = bob.post("/paired-servers", Some(&pairing)).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn is_refused(owner: &mut Browser, server: &str) {
    let refused = |shown: &Value| shown["connection"]["state"] == "rejected";
    owner.get_until(format!("/paired-servers/{server}"), refused).await;
}

fn shops(server: &str) -> String {
    format!("/paired-servers/{server}/shops")
}

fn timeline(server: &str) -> String {
    format!("/intel/{server}/timeline?types=cargo,wipe")
}

fn has_entries(shown: &Value, kind: &str) -> bool {
    shown["entries"].as_array().unwrap().iter().any(|entry| entry["kind"] == kind)
}

/// Whatever the game server's shops, map and world are, this reader of the server sees nothing of them.
async fn reads_nothing(reader: &mut Browser, server: &str) {
    for path in ["map", "map/image"] {
        reader.get(&format!("/paired-servers/{server}/{path}")).await.expect_problem(404, "map_unknown");
    }
    let evidence = "there was no link with the credentials of this pairing yet, or none since the wipe";
    let unknown = json!({ "shops": "unknown", "events": "unknown" });
    let delivery = |mut more: Value| {
        let delivery = [("reports", unknown.clone()), ("available", Value::Null), ("evidence", evidence.into())];
        for (name, value) in delivery.into_iter().chain([("asOf", Value::Null), ("next", Value::Null)]) {
            more[name] = value;
        }
        more
    };
    for (path, expected) in [
        (shops(server), json!({ "shops": [], "total": 0 })),
        (format!("{}/history", shops(server)), json!({ "entries": [] })),
        (format!("/intel/{server}/shops"), json!({ "shops": [] })),
        (format!("/intel/{server}/shops/scan"), json!({ "results": [] })),
    ] {
        let answer = reader.get(&path).await;
        assert_eq!((answer.status, answer.json()), (200, delivery(expected)), "{path}");
    }
}

async fn overlay_map(overlay: &mut HelperDevice, server: &str) -> u16 {
    let request = overlay.request(Method::GET, &format!("/paired-servers/{server}/map"));
    overlay.send(request).await.status
}

async fn a_wrong_token_reads_nothing_of_others(app: TestApp) {
    let game = maps::game(&app).await;
    game.set_token(BOB.parse().unwrap(), Some(BOBS_TOKEN));
    let (mut alice, mut bob, mut carol) =
        (app.signed_in(ALICE).await, app.signed_in(BOB).await, app.signed_in(CAROL).await);
    let alices = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &alices).await;
    client.until(&alices, |state| is_complete(state, 0)).await;
    game.world(|world| world.send_cargo_ship());
    let map = map_where(&mut alice, &alices, |_| true).await;
    alice.get_until(timeline(&alices), |shown| has_entries(shown, "cargo")).await;
    let known = alice.get_until(shops(&alices), |shown| shown["total"].as_u64() > Some(0)).await;

    let bobs = pair_bob(&mut bob, &game, BOBS_TOKEN + 1).await;
    share(&mut bob, &bobs, &mut carol).await;
    let mut overlay = overlay(&app, &mut bob, &bobs).await;
    is_refused(&mut bob, &bobs).await;
    let nothing = json!({ "entries": [], "next": null, "reports": { "shops": "unknown", "events": "unknown" } });
    for reader in [&mut bob, &mut carol] {
        reads_nothing(reader, &bobs).await;
        assert_eq!(reader.get(&timeline(&bobs)).await.json(), nothing);
    }
    assert_eq!(overlay_map(&mut overlay, &bobs).await, 404);
    let watch = json!({ "vendorId": known["shops"][0]["vendorId"], "itemId": known["shops"][0]["itemId"] });
    let watched = bob.post(&format!("/intel/{bobs}/shops"), Some(&watch)).await;
    assert_eq!((watched.status, &watched.json()["vendorKnown"]), (201, &Value::Null), "{}", watched.text());
    let watched = watched.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(bob.delete(&format!("/intel/{bobs}/shops/{watched}")).await.status, 200);

    // With the right one all of them read what is known, what was before included, and also when no link is up.
    assert_eq!(pair_bob(&mut bob, &game, BOBS_TOKEN).await, bobs);
    map_where(&mut bob, &bobs, |_| true).await;
    drop(client);
    game.stop().await;
    let app = app.restart().await;
    let (mut bob, mut carol) = (app.again(&bob), app.again(&carol));
    for reader in [&mut bob, &mut carol] {
        assert_eq!(reader.get(&format!("/paired-servers/{bobs}/map")).await.json()["monuments"], map["monuments"]);
        assert_eq!(reader.get(&shops(&bobs)).await.json()["total"], known["total"]);
        assert!(has_entries(&reader.get(&timeline(&bobs)).await.json(), "cargo"));
    }
    let before = overlay;
    let mut overlay = HelperDevice::new(app.browser(), "192.0.2.1");
    overlay.token = before.token;
    assert_eq!(overlay_map(&mut overlay, &bobs).await, 200);

    // Another token is not accepted because the one before was, also when that one's link ends after it.
    game.restart().await.unwrap();
    pair_bob(&mut bob, &game, BOBS_TOKEN).await;
    let connected = |shown: &Value| shown["connection"]["state"] == "connected";
    bob.get_until(format!("/paired-servers/{bobs}"), connected).await;
    pair_bob(&mut bob, &game, BOBS_TOKEN + 1).await;
    is_refused(&mut bob, &bobs).await;
    let app = app.restart().await;
    let (mut alice, mut bob, mut carol) = (app.again(&alice), app.again(&bob), app.again(&carol));
    for reader in [&mut bob, &mut carol] {
        reads_nothing(reader, &bobs).await;
        assert_eq!(reader.get(&timeline(&bobs)).await.json(), nothing);
    }

    // One that was accepted before the wipe reads nothing of the world after it.
    pair_bob(&mut bob, &game, BOBS_TOKEN).await;
    map_where(&mut bob, &bobs, |_| true).await;
    game.set_token(BOB.parse().unwrap(), None);
    game.drop_connections();
    is_refused(&mut bob, &bobs).await;
    assert_eq!(bob.get(&format!("/paired-servers/{bobs}/map")).await.status, 200, "it saw this world");
    game.world(|world| world.advance_to(world.now() + chrono::Duration::hours(1)));
    // The link that reported shops before may have been Bob's: another one takes over after a while.
    app.clock.advance(chrono::Duration::minutes(10));
    let _watching = RelayClient::watching(&app, &mut alice, &alices).await;
    game.wipe();
    assert_eq!(pair(&mut alice, &game).await, alices);
    map_where(&mut alice, &alices, |shown| shown["wipedAt"] != map["wipedAt"]).await;
    alice.get_until(timeline(&alices), |shown| has_entries(shown, "wipe")).await;
    alice.get_until(shops(&alices), |shown| shown["total"] != 0 && shown["shops"] != known["shops"]).await;
    for reader in [&mut bob, &mut carol] {
        reads_nothing(reader, &bobs).await;
        assert_eq!(reader.get(&timeline(&bobs)).await.json()["entries"], json!([]));
    }
    game.set_token(BOB.parse().unwrap(), Some(DEMO_TOKEN));
    pair_bob(&mut bob, &game, DEMO_TOKEN).await;
    map_where(&mut bob, &bobs, |shown| shown["wipedAt"] != map["wipedAt"]).await;
    assert!(has_entries(&carol.get(&timeline(&bobs)).await.json(), "wipe"));
}

#[actix_web::test]
async fn a_wrong_token_reads_nothing_that_others_learnt() {
    a_wrong_token_reads_nothing_of_others(TestApp::start_beside_games().await).await;
}

#[actix_web::test]
async fn a_wrong_token_reads_nothing_that_others_learnt_on_postgresql() {
    let Some(database) = Postgres::create() else { return };
    let flags = ["--allow-private-game-servers=true", LINKS];
    a_wrong_token_reads_nothing_of_others(TestApp::start_on(database.url(), &flags).await).await;
}
