//! Shops of a game server: what they offer, what became of it, which are watched, and which are suspicious.

use companion::{
    game::wire::{AppMarker, AppMarkerType, app_marker::SellOrder},
    simulator::{game_server::GameServer, point::Point},
};
use serde_json::{Value, json};

use crate::harness::{
    app::{LINKS, TestApp},
    database::Postgres,
    game::{self, ALICE, BOB, is_complete, pair, watched},
    relay_client::RelayClient,
};

const WOOD: i32 = -151_838_493;
/// An item that no other shop of the world sells.
const FERTILIZER: i32 = -930_193_596;
const STONES: i32 = -2_099_697_608;
const SCRAP: i32 = -932_201_673;

/// Where Bob's and Eve's shops stand: on no other one, and far from the outpost.
const BOBS: (f32, f32) = (1_000.25, 3_900.0);
const EVES: (f32, f32) = (3_900.0, 1_000.5);
const BOBS_ID: &str = "100025_390000";
const EVES_ID: &str = "390000_100050";

fn order(item_id: i32, quantity: i32, cost_per_item: i32, amount_in_stock: i32) -> SellOrder {
    SellOrder { item_id, quantity, currency_id: SCRAP, cost_per_item, amount_in_stock, ..Default::default() }
}

/// Opens a shop; its marker id.
fn open(game: &GameServer, name: &str, (x, y): (f32, f32), sell_orders: &[SellOrder]) -> u64 {
    let r#type = AppMarkerType::VendingMachineMarker as i32;
    let (name, sell_orders) = (Some(name.to_owned()), sell_orders.to_vec());
    game.world(|world| world.add_marker(AppMarker { r#type, x, y, name, sell_orders, ..Default::default() }))
}

fn edit(game: &GameServer, marker: u64, edit: impl FnOnce(&mut SellOrder)) {
    game.world(|world| edit(&mut world.marker_mut(marker).unwrap().sell_orders[0]));
}

fn shops(answer: &Value) -> &Vec<Value> {
    answer["shops"].as_array().unwrap()
}

/// The next event about a watch.
async fn finding(client: &mut RelayClient, action: &str) -> Value {
    let is_it = |message: &Value| message["event"]["data"]["watchId"].is_string();
    let message = client.expect_where("event", is_it).await;
    assert_eq!((&message["event"]["kind"], &message["event"]["action"]), (&json!("shop"), &json!(action)), "{message}");
    message["event"].clone()
}

/// Bob's fertilizer is watched, and everything that becomes of it is found.
async fn watch_bobs_fertilizer(app: TestApp) {
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let bobs = open(&game, "Bob's", BOBS, &[order(FERTILIZER, 1000, 20, 5)]);
    let offers = format!("/paired-servers/{server}/shops?q=bob");
    let listed = alice.get_until(&offers, |shown| !shops(shown).is_empty()).await;
    let offer = &shops(&listed)[0];
    assert_eq!(
        (&offer["vendorId"], &offer["itemName"], &offer["npc"]),
        (&json!(BOBS_ID), &json!("Fertilizer"), &json!(false))
    );
    assert_eq!((&listed["available"], &listed["asOf"]), (&json!(true), &json!("2026-11-21T12:00:00.000Z")));

    let watches = format!("/intel/{server}/shops");
    let created = alice.post(&watches, Some(&json!({ "vendorId": BOBS_ID, "itemId": FERTILIZER }))).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let created = created.json();
    let id = created["id"].as_str().unwrap().to_owned();
    for (field, value) in [
        ("vendorId", json!(BOBS_ID)),
        ("itemId", json!(FERTILIZER.to_string())),
        ("itemName", json!("Fertilizer")),
        ("currencyId", json!(SCRAP.to_string())),
        ("expectedPrice", json!(null)),
        ("price", json!(20)),
        ("quantity", json!(1000)),
        ("vendorKnown", json!(true)),
        ("state", json!("ok")),
        ("soldOut", json!(false)),
        ("asOf", json!("2026-11-21T12:00:00.000Z")),
    ] {
        assert_eq!(created[field], value, "{field}");
    }
    assert_eq!(alice.get(&watches).await.json()["shops"], json!([created]));

    edit(&game, bobs, |offer| offer.cost_per_item = 25);
    let event = finding(&mut client, "changed").await;
    assert_eq!(
        (&event["data"]["watchId"], &event["data"]["itemName"], &event["data"]["price"]),
        (&json!(id), &json!("Fertilizer"), &json!(25))
    );
    assert_eq!(
        (&event["x"], &event["title"]),
        (&json!(1_000.25), &json!("Bob's: Fertilizer is now 1000 for 25 Scrap"))
    );
    app.clock.advance(chrono::Duration::seconds(1));
    let edited = alice.patch(&format!("{watches}/{id}"), &json!({ "expectedPrice": 25 })).await;
    assert_eq!(
        (edited.status, &edited.json()["state"], &edited.json()["expectedPrice"]),
        (200, &json!("ok"), &json!(25))
    );
    let eves = open(&game, "Eve's", EVES, &[order(FERTILIZER, 100, 2, 5)]);
    let event = finding(&mut client, "undercut").await;
    assert_eq!(event["data"]["undercutBy"], json!({ "vendorId": EVES_ID, "price": 2, "quantity": 100 }));
    edit(&game, eves, |offer| offer.amount_in_stock = 0);
    finding(&mut client, "ok").await;
    edit(&game, bobs, |offer| offer.amount_in_stock = 0);
    assert_eq!(finding(&mut client, "sold_out").await["data"]["soldOut"], true);

    // Another marker at the same place is the same shop, and half of it for half the price is the same offer.
    game.world(|world| world.remove_marker(bobs));
    let again = open(&game, "Bob's", BOBS, &[order(FERTILIZER, 200, 5, 5)]);
    assert_eq!(finding(&mut client, "restocked").await["data"]["quantity"], 200);

    edit(&game, again, |offer| offer.item_id = STONES);
    assert_eq!(finding(&mut client, "missing").await["data"]["price"], Value::Null);
    edit(&game, again, |offer| offer.item_id = FERTILIZER);
    let event = finding(&mut client, "returned").await;
    let returned = |shown: &Value| shops(shown)[0]["state"] == "returned";
    alice.get_until(&watches, returned).await;
    let timeline = alice.get(&format!("/intel/{server}/timeline?types=shop")).await.json();
    assert!(timeline["entries"].as_array().unwrap().iter().any(|entry| entry["id"] == event["id"]), "{timeline}");

    // All of it survives a restart, and nothing is found again.
    drop(client);
    let history = format!("/paired-servers/{server}/shops/history?vendorId={BOBS_ID}");
    let before = alice.get(&history).await.json();
    let cookies = alice.cookies.clone();
    let app = app.restart().await;
    let mut alice = app.browser();
    alice.cookies = cookies;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    // The clock is stopped, and what is newer must come after.
    app.clock.advance(chrono::Duration::seconds(1));
    edit(&game, again, |offer| offer.cost_per_item = 9);
    finding(&mut client, "changed").await;
    let price = |shown: &Value| shown["entries"][0]["price"] == 9;
    let after = alice.get_until(&history, price).await;
    assert_eq!(after["entries"].as_array().unwrap()[1..], before["entries"].as_array().unwrap()[..]);

    assert_eq!(alice.delete(&format!("{watches}/{id}")).await.json(), json!({ "ok": true }));
    alice.delete(&format!("{watches}/{id}")).await.expect_problem(404, "not_found");
    assert_eq!(alice.get(&watches).await.json()["shops"], json!([]));
}

#[actix_web::test]
async fn a_watched_offer_is_followed_on_sqlite() {
    watch_bobs_fertilizer(TestApp::start_beside_games().await).await;
}

#[actix_web::test]
async fn a_watched_offer_is_followed_on_postgresql() {
    let Some(database) = Postgres::create() else { return };
    let flags = ["--allow-private-game-servers=true", LINKS];
    watch_bobs_fertilizer(TestApp::start_on(database.url(), &flags).await).await;
}

#[actix_web::test]
async fn offers_are_listed_cheapest_first_with_their_history() {
    let (app, mut alice, game, server, mut client) = watched(&[]).await;
    open(&game, "Bob's", BOBS, &[order(WOOD, 1000, 30, 5), order(STONES, 1000, 10, 5)]);
    let eves = open(&game, "Eve's", EVES, &[order(WOOD, 100, 2, 5)]);
    let outpost = game.world(|world| world.terrain().monument("outpost"));
    let Point { x, y } = outpost;
    open(&game, "Outpost Wood", (x, y), &[order(WOOD, 10, 1, 5)]);
    let offers = format!("/paired-servers/{server}/shops");
    let ours = |shown: &Value| {
        let ours = shops(shown).iter().filter(|offer| {
            offer["itemName"] == "Wood" && ["Bob's", "Eve's", "Outpost Wood"].iter().any(|name| offer["name"] == *name)
        });
        ours.map(|offer| (offer["name"].as_str().unwrap().to_owned(), offer["npc"] == true)).collect::<Vec<_>>()
    };
    let path = format!("{offers}?q=WOO");
    let all = alice.get_until(&path, |shown| ours(shown).iter().any(|(_, npc)| *npc) && ours(shown).len() == 3);
    let all = all.await;
    let expected = [("Eve's", false), ("Bob's", false), ("Outpost Wood", true)];
    assert_eq!(ours(&all), expected.map(|(name, npc)| (name.to_owned(), npc)));
    let unit_prices: Vec<f64> = shops(&all)
        .iter()
        .filter(|offer| offer["itemName"] == "Wood")
        .map(|offer| offer["price"].as_f64().unwrap() / offer["quantity"].as_f64().unwrap())
        .collect();
    assert!(unit_prices.is_sorted(), "{unit_prices:?}");
    let first = alice.get(&format!("{offers}?q=wood&limit=1")).await.json();
    assert_eq!((&first["shops"][0], &first["total"]), (&shops(&all)[0], &all["total"]));
    assert_eq!(alice.all_pages(&path, "shops", 2).await, *shops(&all));
    assert_eq!(shops(&alice.get(&format!("{offers}?q=no+such+thing")).await.json()).len(), 0);

    // The relay names items, too.
    let marker =
        |state: &Value| state["mapMarkers"].as_object().unwrap().values().find(|m| m["name"] == "Eve's").cloned();
    client.until(&server, |state| marker(state).is_some()).await;
    let order = marker(client.state(&server)).unwrap()["sellOrders"][0].clone();
    assert_eq!(
        (&order["name"], &order["shortname"], &order["currencyName"]),
        (&json!("Wood"), &json!("wood"), &json!("Scrap"))
    );

    app.clock.advance(chrono::Duration::seconds(60));
    edit(&game, eves, |wood| wood.cost_per_item = 3);
    let history = format!("{offers}/history");
    let changed = |shown: &Value| shown["entries"][0]["action"] == "price_changed";
    let path = format!("{history}?itemId={WOOD}&vendorId={EVES_ID}");
    let eves_history = alice.get_until(&path, changed).await;
    let entries = eves_history["entries"].as_array().unwrap();
    let brief: Vec<_> = entries.iter().map(|entry| (&entry["action"], &entry["price"], &entry["at"])).collect();
    let (listed, changed) = ("2026-11-21T12:00:00.000Z", "2026-11-21T12:01:00.000Z");
    assert_eq!(
        brief,
        [(&json!("price_changed"), &json!(3), &json!(changed)), (&json!("listed"), &json!(2), &json!(listed))]
    );
    let newest = entries[0]["id"].as_str().unwrap();
    assert_eq!(alice.get(&format!("{path}&limit=1")).await.json()["next"], newest);
    assert_eq!(eves_history["next"], Value::Null);
    let older = alice.get(&format!("{path}&before={newest}&limit=1")).await.json();
    assert_eq!(older["entries"], json!([entries[1]]));
    let wood = alice.get(&format!("{history}?itemId={WOOD}&limit=500")).await.json();
    let id = json!(WOOD.to_string());
    assert!(wood["entries"].as_array().unwrap().iter().all(|entry| entry["itemId"] == id));
    assert_eq!(wood["entries"][0], entries[0]);
}

#[actix_web::test]
async fn a_shop_is_watched_by_the_id_of_its_marker() {
    let (_app, mut alice, game, server, mut client) = watched(&[]).await;
    open(&game, "Bob's", BOBS, &[order(FERTILIZER, 1000, 20, 5)]);
    let bobs = |state: &Value| {
        let markers = state["mapMarkers"].as_object().unwrap();
        markers.values().find(|marker| marker["name"] == "Bob's").cloned()
    };
    client.until(&server, |state| bobs(state).is_some()).await;
    let markers = client.state(&server)["mapMarkers"].as_object().unwrap().clone();
    for marker in markers.values() {
        assert_eq!(marker["vendorId"].is_string(), marker["kind"] == "vendingMachine", "{marker}");
    }
    let vendor = bobs(client.state(&server)).unwrap()["vendorId"].clone();
    assert_eq!(vendor, BOBS_ID);
    let opened = client.expect_where("event", |message| message["event"]["action"] == "opened").await;
    assert_eq!(opened["event"]["data"]["vendorId"], vendor);
    alice.get_until(&format!("/paired-servers/{server}/shops?q=bob"), |shown| !shops(shown).is_empty()).await;
    let watches = format!("/intel/{server}/shops");
    let known = alice.post(&watches, Some(&json!({ "vendorId": vendor, "itemId": FERTILIZER }))).await.json();
    assert_eq!((&known["vendorKnown"], &known["state"]), (&json!(true), &json!("ok")));
    let elsewhere = alice.post(&watches, Some(&json!({ "vendorId": "7_7", "itemId": FERTILIZER }))).await.json();
    assert_eq!((&elsewhere["vendorKnown"], &elsewhere["state"]), (&json!(false), &json!("missing")));
    let listed = alice.get(&watches).await.json();
    assert_eq!(listed["shops"], json!([known, elsewhere]));
}

/// An item is watched at any shop until it costs little enough, and from the side of those who sell it.
async fn watch_any_shop(app: TestApp) {
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 0)).await;
    let watches = format!("/intel/{server}/shops");
    let new = json!({ "itemId": FERTILIZER, "expectedPrice": 20, "direction": "atMost" });
    let created = alice.post(&watches, Some(&new)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let created = created.json();
    for (field, value) in [
        ("vendorId", Value::Null),
        ("vendorKnown", Value::Null),
        ("foundVendorId", Value::Null),
        ("side", json!("sells")),
        ("direction", json!("atMost")),
        ("state", json!("missing")),
    ] {
        assert_eq!(created[field], value, "{field}");
    }
    alice.post(&watches, Some(&new)).await.expect_problem(409, "conflict");

    // Too dear, and then less dear, is no news; that it is there for 20, at another shop, is.
    let bobs = open(&game, "Bob's", BOBS, &[order(FERTILIZER, 1000, 30, 5)]);
    let found = |vendor: &'static str, price: i32| {
        move |shown: &Value| {
            (&shops(shown)[0]["foundVendorId"], &shops(shown)[0]["price"]) == (&json!(vendor), &json!(price))
        }
    };
    alice.get_until(&watches, found(BOBS_ID, 30)).await;
    edit(&game, bobs, |offer| offer.cost_per_item = 25);
    alice.get_until(&watches, found(BOBS_ID, 25)).await;
    let eves = open(&game, "Eve's", EVES, &[order(FERTILIZER, 1000, 20, 5)]);
    let event = finding(&mut client, "ok").await;
    assert_eq!(
        (&event["data"]["vendorId"], &event["data"]["price"], &event["x"]),
        (&json!(EVES_ID), &json!(20), &json!(3_900.0))
    );
    edit(&game, eves, |offer| offer.cost_per_item = 15);
    assert_eq!(finding(&mut client, "ok").await["data"]["price"], 15, "one move is one event");
    edit(&game, eves, |offer| offer.amount_in_stock = 0);
    let event = finding(&mut client, "changed").await;
    assert_eq!((&event["data"]["vendorId"], &event["data"]["price"]), (&json!(BOBS_ID), &json!(25)));

    // The price that shops pay for it, by an edit.
    let one = format!("{watches}/{}", created["id"].as_str().unwrap());
    let edited = alice.patch(&one, &json!({ "side": "buys", "direction": "atLeast", "expectedPrice": 5 })).await;
    let edited = (edited.status, edited.json());
    assert_eq!((edited.0, &edited.1["state"], &edited.1["side"]), (200, &json!("missing"), &json!("buys")));
    let buys = SellOrder { item_id: SCRAP, currency_id: FERTILIZER, ..order(0, 6, 1000, 5) };
    open(&game, "Cid's", (3_000.0, 3_900.0), &[buys]);
    let event = finding(&mut client, "ok").await;
    assert_eq!(
        (
            &event["data"]["price"],
            &event["data"]["quantity"],
            &event["data"]["currencyName"],
            &event["data"]["direction"]
        ),
        (&json!(6), &json!(1000), &json!("Scrap"), &json!("atLeast"))
    );
    assert_eq!(event["title"], "Cid's: purchase of Fertilizer is as expected, 1000 for 6 Scrap");
    let listed = alice.get_until(&watches, found("300000_390000", 6)).await;
    assert_eq!(shops(&listed)[0]["expectedQuantity"], 1000);
}

#[actix_web::test]
async fn an_item_is_watched_at_any_shop_on_sqlite() {
    watch_any_shop(TestApp::start_beside_games().await).await;
}

#[actix_web::test]
async fn an_item_is_watched_at_any_shop_on_postgresql() {
    let Some(database) = Postgres::create() else { return };
    let flags = ["--allow-private-game-servers=true", LINKS];
    watch_any_shop(TestApp::start_on(database.url(), &flags).await).await;
}

#[actix_web::test]
async fn a_shop_that_is_too_cheap_to_be_honest_is_found() {
    let (_app, mut alice, game, server, _client) = watched(&[]).await;
    let scan = format!("/intel/{server}/shops/scan");
    let closing =
        |shown: &Value| shown["results"].as_array().unwrap().iter().any(|shop| shop["name"] == "Closing down!!!");
    let found = alice.get_until(&scan, closing).await;
    let results = found["results"].as_array().unwrap();
    let bait = results.iter().find(|shop| shop["name"] == "Closing down!!!").unwrap();
    assert!(bait["score"].as_u64().unwrap() >= 30, "{bait}");
    let reason = bait["reasons"].as_array().unwrap().iter().find(|reason| reason["reason"] == "below_crafting_cost");
    let offer = &reason.unwrap()["offer"];
    assert_eq!((&offer["itemName"], &offer["currencyName"]), (&json!("Timed Explosive Charge"), &json!("Scrap")));
    assert!(bait["vendorId"].is_string() && bait["x"].is_f64() && bait["grid"].is_string());
    assert_eq!((&found["available"], &found["asOf"]), (&json!(true), &json!("2026-11-21T12:00:00.000Z")));
    assert!(results.iter().all(|shop| shop["name"] != "Outpost"), "the map's own are not suspicious");
    assert_eq!(alice.all_pages(&scan, "results", 1).await.len(), results.len());
    drop(game);
}

#[actix_web::test]
async fn what_is_not_known_yet_is_said_and_can_be_watched() {
    let app = TestApp::start_with(&["--allow-private-game-servers=true"]).await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let watches = format!("/intel/{server}/shops");
    for path in [
        watches.clone(),
        format!("{watches}/scan"),
        format!("/paired-servers/{server}/shops"),
        format!("/paired-servers/{server}/shops/history"),
    ] {
        let answer = alice.get(&path).await.json();
        assert_eq!((&answer["available"], &answer["asOf"]), (&Value::Null, &Value::Null), "{path}");
        assert!(answer["evidence"].as_str().is_some_and(|evidence| !evidence.is_empty()), "{path}");
    }
    let new = |number: u32| {
        let vendor = format!("{number}_100");
        json!({ "vendorId": vendor, "itemId": SCRAP.to_string(), "expectedPrice": 0, "currencyId": WOOD })
    };
    let created = alice.post(&watches, Some(&new(0))).await.json();
    assert_eq!(
        (&created["state"], &created["price"], &created["currencyId"], &created["vendorKnown"]),
        (&json!("missing"), &Value::Null, &json!(WOOD.to_string()), &Value::Null)
    );
    alice.post(&watches, Some(&new(0))).await.expect_problem(409, "conflict");
    assert_eq!(shops(&alice.get(&watches).await.json()), &[created]);
}

#[actix_web::test]
async fn bad_input_and_strangers_are_refused_and_nothing_is_stored() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": "1" });
    let server = alice.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned();
    let (watches, offers) = (format!("/intel/{server}/shops"), format!("/paired-servers/{server}/shops"));
    let good = json!({ "vendorId": BOBS_ID, "itemId": WOOD, "expectedPrice": 20, "currencyId": SCRAP });
    let ids = [json!("wood"), json!(1.5), json!(2_147_483_648_u64), json!("+1"), json!(""), json!(true), json!({})];
    let prices = [json!(-1), json!(1.5), json!("20"), json!(2_147_483_648_u64), json!([])];
    let no_shops = ["", "  ", "a\nb", "bob", "12345", "1_2_3", "01_2", "1.5_2", " 1_2", "99999999999_1"];
    let vendors = [no_shops.map(|id| json!(id)).to_vec(), vec![json!([1]), json!(12345)]].concat();
    let words = |others: [&str; 2]| others.map(|word| json!(word));
    let of =
        |field: &'static str, values: &[Value]| values.iter().map(|value| (field, value.clone())).collect::<Vec<_>>();
    let bad = [
        of("vendorId", &vendors),
        of("itemId", &ids),
        of("expectedPrice", &prices),
        of("currencyId", &ids),
        of("direction", &words(["atmost", "below"])),
        of("side", &words(["sell", "both"])),
    ]
    .concat();
    for (field, value) in &bad {
        let mut body = good.clone();
        body[field] = value.clone();
        let problem = alice.post(&watches, Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], *field, "{value}: {problem}");
    }
    let mut body = good.clone();
    body.as_object_mut().unwrap().remove("itemId");
    let problem = alice.post(&watches, Some(&body)).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "itemId");
    assert_eq!(shops(&alice.get(&watches).await.json()).len(), 0);

    let created = alice.post(&watches, Some(&good)).await.json();
    let one = format!("{watches}/{}", created["id"].as_str().unwrap());
    for (field, value) in bad.iter().filter(|(field, _)| !matches!(*field, "vendorId" | "itemId")) {
        let answer = alice.patch(&one, &json!({ *field: value })).await;
        assert_eq!(answer.expect_problem(400, "invalid_request")["errors"][0]["path"], *field, "{value}");
    }
    assert_eq!(alice.get(&watches).await.json()["shops"], json!([created]));
    let edited = alice.patch(&one, &json!({ "expectedPrice": null })).await.json();
    assert_eq!((&edited["expectedPrice"], &edited["currencyId"]), (&Value::Null, &json!(SCRAP.to_string())));

    for (query, field) in [
        (format!("{offers}?q={}", "x".repeat(101)), "q"),
        (format!("{offers}?limit=0"), "limit"),
        (format!("{offers}?limit=5001"), "limit"),
        (format!("{offers}/history?limit=0"), "limit"),
        (format!("{offers}/history?limit=501"), "limit"),
        (format!("{offers}/history?itemId=wood"), "itemId"),
        (format!("{offers}/history?vendorId=bob"), "vendorId"),
        (format!("{offers}/history?before={}", "x".repeat(129)), "before"),
        (format!("{offers}/history?before=zz"), "before"),
        (format!("{offers}/history?before=%00"), "before"),
    ] {
        let problem = alice.get(&query).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{query}");
    }
    for odd in [format!("{offers}?limit=x"), format!("{offers}/history?limit=1&limit=2")] {
        alice.get(&odd).await.expect_problem(400, "invalid_request");
    }

    let (mut bob, mut visitor) = (app.signed_in(BOB).await, app.browser());
    for path in [&watches, &format!("{watches}/scan"), &offers, &format!("{offers}/history")] {
        bob.get(path).await.expect_problem(404, "not_found");
        visitor.get(path).await.expect_problem(401, "unauthenticated");
    }
    let edit = json!({ "expectedPrice": 1 });
    bob.post(&watches, Some(&good)).await.expect_problem(404, "not_found");
    bob.patch(&one, &edit).await.expect_problem(404, "not_found");
    bob.delete(&one).await.expect_problem(404, "not_found");
    visitor.post(&watches, Some(&good)).await.expect_problem(401, "unauthenticated");
    visitor.patch(&one, &edit).await.expect_problem(401, "unauthenticated");
    visitor.delete(&one).await.expect_problem(401, "unauthenticated");
    alice.patch(&format!("{watches}/nothing"), &edit).await.expect_problem(404, "not_found");
    assert_eq!(shops(&alice.get(&watches).await.json()), &[edited]);
}

#[actix_web::test]
async fn the_same_offer_is_watched_once_however_it_is_named() {
    let (_app, mut alice, game, server, _client) = watched(&[]).await;
    open(&game, "Bob's", BOBS, &[order(FERTILIZER, 1000, 20, 5)]);
    alice.get_until(&format!("/paired-servers/{server}/shops?q=bob"), |shown| !shops(shown).is_empty()).await;
    let watches = format!("/intel/{server}/shops");
    let plain = json!({ "vendorId": BOBS_ID, "itemId": FERTILIZER });
    let created = alice.post(&watches, Some(&plain)).await.json();
    let id = created["id"].as_str().unwrap();
    let mut named = plain.clone();
    named["currencyId"] = json!(SCRAP);
    for twin in [&plain, &named] {
        let problem = alice.post(&watches, Some(twin)).await.expect_problem(409, "conflict");
        assert!(problem["detail"].as_str().unwrap().contains(id), "{problem}");
    }
    let mut bought = plain;
    bought["side"] = json!("buys");
    let other = alice.post(&watches, Some(&bought)).await;
    assert_eq!(other.status, 201, "{}", other.text());
    let one = format!("{watches}/{}", other.json()["id"].as_str().unwrap());
    let problem = alice.patch(&one, &json!({ "side": "sells" })).await.expect_problem(409, "conflict");
    assert!(problem["detail"].as_str().unwrap().contains(id), "{problem}");
    let listed = alice.get(&watches).await.json();
    assert_eq!(listed["shops"], json!([created, other.json()]), "nothing was changed");
    assert_eq!(alice.patch(&one, &json!({ "expectedPrice": 3 })).await.status, 200, "itself is no twin");
}

#[actix_web::test]
async fn what_cannot_be_is_not_watched() {
    let (_app, mut alice, game, server, client) = watched(&[]).await;
    let watches = format!("/intel/{server}/shops");
    let end = client.state(&server)["server"]["mapSize"].as_u64().unwrap() * 100;
    let far = format!("{}_100", end + 60_000);
    for (body, path) in [
        (json!({ "itemId": 0 }), "itemId"),
        (json!({ "itemId": "-0" }), "itemId"),
        (json!({ "itemId": 7 }), "itemId"),
        (json!({ "itemId": WOOD, "currencyId": WOOD }), "currencyId"),
        (json!({ "itemId": WOOD, "currencyId": 7 }), "currencyId"),
        (json!({ "itemId": WOOD, "vendorId": far }), "vendorId"),
    ] {
        let problem = alice.post(&watches, Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{body}");
    }
    assert_eq!(shops(&alice.get(&watches).await.json()).len(), 0);
    // An item that is new in the game.
    open(&game, "Bob's", BOBS, &[order(7, 1, 20, 5)]);
    alice.get_until(&format!("/paired-servers/{server}/shops?q=bob"), |shown| !shops(shown).is_empty()).await;
    assert_eq!(alice.post(&watches, Some(&json!({ "itemId": 7 }))).await.status, 201);
    let edge = json!({ "itemId": WOOD, "vendorId": format!("{end}_0") });
    assert_eq!(alice.post(&watches, Some(&edge)).await.status, 201);
}
