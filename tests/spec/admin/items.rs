//! Items as admins edit them, and the conveyor map.
//!
//! The catalogue is one for the process, and with it for all services of these tests: each test edits items of its own.

use companion::{
    domain::items::SCRAP,
    game::wire::{AppMarker, AppMarkerType, app_marker::SellOrder},
    simulator::world::LOOT_BOX,
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{audited, done, start};
use crate::harness::{
    app::{ADA, ADMINS, BASE, LINKS, TestApp},
    browser::Browser,
    catalogue,
    game::{self, ALICE, add_device, is_complete, pair},
    pictures::png,
    relay_client::RelayClient,
};

/// An item of the embedded catalogue.
const HORIZONTAL_TANK: &str = "-880494890";
const VERTICAL_TANK: &str = "-919882824";
const GRILL: &str = "floor.grill";

fn item(shortname: &str, name: &str) -> Value {
    json!({ "shortname": shortname, "name": name, "category": "Test", "stackSize": 5 })
}

async fn found(ada: &mut Browser, q: &str) -> Vec<String> {
    let results = ada.get(&format!("/admin/items-search?q={q}")).await.json()["results"].clone();
    results.as_array().unwrap().iter().map(|item| item["shortname"].as_str().unwrap().to_owned()).collect()
}

#[actix_web::test]
async fn an_edited_item_is_seen_at_once_and_is_as_before_when_taken_back() {
    let _catalogue = catalogue::alone().await;
    let (app, mut ada) = start().await;
    let mut alice = app.signed_in(ALICE).await;
    let list = alice.get("/items").await;
    assert_eq!(list.header("cache-control"), Some("private, no-cache"));
    let items = list.json()["items"].as_array().unwrap().clone();
    assert!(items.len() >= 1_131);
    let path = format!("/items/{HORIZONTAL_TANK}");
    let before = alice.get(&path).await.json();
    let embedded = json!({
        "id": HORIZONTAL_TANK, "shortname": "abyss.barrel.horizontal", "name": "Abyss Horizontal Storage Tank",
        "category": "Items", "iconUrl": null, "stackSize": 1, "source": "catalogue",
    });
    assert_eq!(before, embedded);
    assert!(items.contains(&before));
    assert!(alice.all_pages("/items", "items", 400).await.contains(&before));
    assert!(ada.all_pages("/admin/items", "items", 500).await.contains(&before));
    assert!(ada.all_pages("/admin/items-search?q=ceiling", "results", 1).await.len() > 1);
    let page = alice.get("/items?limit=2").await;
    assert!(page.header("etag").is_some_and(|tag| list.header("etag") != Some(tag)));

    let admin_path = format!("/admin/items/{HORIZONTAL_TANK}");
    let edited = ada.put(&admin_path, &json!({ "name": "Lying Tank", "category": "Tanks" })).await;
    assert_eq!(edited.status, 200, "{}", edited.text());
    let mut expected = embedded.clone();
    for (field, value) in [
        ("name", json!("Lying Tank")),
        ("category", json!("Tanks")),
        ("stackSize", Value::Null),
        ("source", json!("admin")),
    ] {
        expected[field] = value;
    }
    assert_eq!(edited.json(), expected);
    let tag = list.header("etag").unwrap();
    let again = alice.send(alice.request(Method::GET, "/items").header("if-none-match", tag)).await;
    assert_eq!(again.status, 200, "it has changed");
    assert!(again.json()["items"].as_array().unwrap().contains(&expected));
    let tag = again.header("etag").unwrap();
    let same = alice.send(alice.request(Method::GET, "/items").header("if-none-match", tag)).await;
    assert!(same.status == 304 || same.header("etag") != Some(tag), "another test may have edited one");
    assert_eq!(found(&mut ada, "lying").await, ["abyss.barrel.horizontal"]);

    let app = app.restart().await;
    let (mut ada, mut alice) = (app.again(&ada), app.again(&alice));
    assert_eq!(alice.get(&path).await.json(), expected);
    assert_eq!(ada.delete(&admin_path).await.json(), json!({ "ok": true }));
    assert_eq!(alice.get(&path).await.json(), embedded);
    ada.delete(&admin_path).await.expect_problem(404, "not_found");
    let entries = audited(&mut ada, 9).await;
    assert_eq!(entries.len(), 2);
    let recorded = json!({
        "id": HORIZONTAL_TANK, "shortname": "abyss.barrel.horizontal", "name": "Lying Tank", "category": "Tanks",
        "stackSize": null, "icon": null,
    });
    assert_eq!(entries[1], done("item.put", HORIZONTAL_TANK, Value::Null, recorded.clone()));
    assert_eq!(entries[0], done("item.delete", HORIZONTAL_TANK, recorded, Value::Null));
    app.browser().get("/items").await.expect_problem(401, "unauthenticated");
    for missing in ["/items/x", "/items/99999999999", "/items/5"] {
        alice.get(missing).await.expect_problem(404, "not_found");
    }
}

#[actix_web::test]
async fn an_item_that_the_game_got_later_can_be_added() {
    let _catalogue = catalogue::alone().await;
    let (_app, mut ada) = start().await;
    let added = ada.put("/admin/items/700001", &item("test.later", "Later Item")).await;
    assert_eq!(added.status, 200, "{}", added.text());
    assert_eq!(added.json()["source"], "admin");
    assert!(ada.get("/admin/items").await.json()["items"].as_array().unwrap().contains(&added.json()));
    ada.put("/admin/items/700002", &item("test.later", "Other")).await.expect_problem(409, "conflict");
    ada.put("/admin/items/700002", &item("rifle.ak", "Other")).await.expect_problem(409, "conflict");
    assert_eq!(ada.put("/admin/items/700001", &item("test.sooner", "Sooner Item")).await.status, 200);
    assert_eq!(found(&mut ada, "sooner").await, ["test.sooner"]);
    assert_eq!(found(&mut ada, "test.later").await, [""; 0]);
    assert_eq!(ada.delete("/admin/items/700001").await.status, 200);
    ada.get("/items/700001").await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn what_is_no_item_is_refused() {
    let (_app, mut ada) = start().await;
    let with = |field: &str, value: Value| {
        let mut item = item("test.refused", "Refused");
        item[field] = value;
        item
    };
    let digest = "a".repeat(64);
    for (path, body, field) in [
        ("700003", with("name", json!(" ")), "name"),
        ("700003", with("name", json!("x".repeat(101))), "name"),
        ("700003", with("shortname", Value::Null), "shortname"),
        ("700003", with("shortname", json!("Test")), "shortname"),
        ("700003", with("category", json!("a\nb")), "category"),
        ("700003", with("category", json!("")), "category"),
        ("700003", with("category", json!(" ")), "category"),
        ("700003", with("stackSize", json!(0)), "stackSize"),
        ("700003", with("iconUrl", json!("https://evil.test/icon.png")), "iconUrl"),
        ("700003", with("iconUrl", json!(format!("https://evil.test/images/{digest}.png"))), "iconUrl"),
        ("700003", with("iconUrl", json!(format!("/images/{digest}.png"))), "iconUrl"),
        (VERTICAL_TANK, with("shortname", json!("test.refused")), "shortname"),
    ] {
        let problem = ada.put(&format!("/admin/items/{path}"), &body).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{body}: {problem}");
    }
    ada.put("/admin/items/x", &item("test.refused", "Refused")).await.expect_problem(404, "not_found");
    assert!(audited(&mut ada, 9).await.is_empty());
    ada.get("/items/700003").await.expect_problem(404, "not_found");
    for query in ["limit=0", "limit=101", &format!("q={}", "x".repeat(101))] {
        ada.get(&format!("/admin/items-search?{query}")).await.expect_problem(400, "invalid_request");
    }
    assert_eq!(ada.get("/admin/items-search").await.json(), json!({ "results": [], "next": null }));
    assert_eq!(ada.get("/admin/items-search?q=ak&limit=1").await.json()["results"].as_array().unwrap().len(), 1);
    assert_eq!(found(&mut ada, "ak").await[0], "rifle.ak");
}

#[actix_web::test]
async fn an_icon_goes_with_the_last_item_that_has_it() {
    let _catalogue = catalogue::alone().await;
    let (app, mut ada) = start().await;
    let mut visitor = app.browser();
    let url = |answer: crate::harness::browser::Answer| {
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["url"].as_str().unwrap().to_owned()
    };
    let first = url(ada.upload("/admin/items/upload-icon", &png(1)).await);
    let second = url(ada.upload("/admin/items/upload-icon", &png(2)).await);
    let path = |url: &str| url.strip_prefix(BASE).unwrap().to_owned();
    let with_icon = |shortname: &str, icon: &str| {
        let mut item = item(shortname, "With Icon");
        item["iconUrl"] = icon.into();
        item
    };
    for (id, shortname) in [("700004", "test.icon.a"), ("700005", "test.icon.b")] {
        let put = ada.put(&format!("/admin/items/{id}"), &with_icon(shortname, &first)).await;
        assert_eq!(put.json()["iconUrl"], first, "{}", put.text());
    }
    assert_eq!(
        ada.put("/admin/items/700004", &with_icon("test.icon.a", &path(&second))).await.json()["iconUrl"],
        second
    );
    assert_eq!(visitor.get(&path(&first)).await.status, 200, "the other item has it");
    assert_eq!(ada.delete("/admin/items/700005").await.status, 200);
    visitor.get(&path(&first)).await.expect_problem(404, "not_found");
    assert_eq!(visitor.get(&path(&second)).await.status, 200);
    let again = ada.put("/admin/items/700004", &with_icon("test.icon.a", &second)).await;
    assert_eq!(again.json()["iconUrl"], second, "the same icon again");
    assert_eq!(visitor.get(&path(&second)).await.status, 200);
    assert_eq!(ada.delete("/admin/items/700004").await.status, 200);
    visitor.get(&path(&second)).await.expect_problem(404, "not_found");
    let uploaded_again = url(ada.upload("/admin/items/upload-icon", &png(1)).await);
    assert_eq!(uploaded_again, first, "the same bytes have the same name");
    assert_eq!(visitor.get(&path(&first)).await.status, 200);
}

#[actix_web::test]
async fn the_live_state_calls_an_item_as_admins_do() {
    let _catalogue = catalogue::alone().await;
    let app = TestApp::start_with(&["--allow-private-game-servers=true", LINKS, ADMINS]).await;
    let game = game::still(&app).await;
    let tank: i32 = VERTICAL_TANK.parse().unwrap();
    game.world(|world| world.set_storage(LOOT_BOX, vec![(tank, 1)]));
    let (mut alice, mut ada) = (app.signed_in(ALICE).await, app.signed_in(ADA).await);
    let server = pair(&mut alice, &game).await;
    add_device(&mut alice, &server, LOOT_BOX).await;
    let mut client = RelayClient::watching(&app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    let stored = &client.state(&server)["devices"][LOOT_BOX.to_string()]["storage"]["items"][0];
    assert_eq!(stored["name"], "Abyss Vertical Storage Tank", "{stored}");

    let edit = json!({ "name": "Standing Tank", "category": "Tanks" });
    assert_eq!(ada.put(&format!("/admin/items/{VERTICAL_TANK}"), &edit).await.status, 200);
    let devices = alice.get(&format!("/paired-servers/{server}/devices")).await.json();
    assert_eq!(devices["devices"][0]["storage"]["items"][0]["name"], "Standing Tank", "{devices}");
    let order = SellOrder { item_id: tank, quantity: 1, currency_id: SCRAP, cost_per_item: 5, ..Default::default() };
    let (r#type, sell_orders) = (AppMarkerType::VendingMachineMarker as i32, vec![order]);
    let shop =
        AppMarker { r#type, x: 1_500.0, y: 1_500.0, name: Some("Tanks".into()), sell_orders, ..Default::default() };
    let shop = game.world(|world| world.add_marker(shop));
    client
        .until(&server, |state| state["mapMarkers"][shop.to_string()]["sellOrders"][0]["name"] == "Standing Tank")
        .await;
    assert_eq!(ada.delete(&format!("/admin/items/{VERTICAL_TANK}")).await.status, 200);
    let devices = alice.get(&format!("/paired-servers/{server}/devices")).await.json();
    assert_eq!(devices["devices"][0]["storage"]["items"][0]["name"], "Abyss Vertical Storage Tank");
}

#[actix_web::test]
async fn the_conveyor_map_has_a_row_for_each_item() {
    let (_app, mut ada) = start().await;
    assert_eq!(ada.get("/admin/conveyor-map").await.json(), json!({ "rows": [], "next": null }));
    let grill = ada.get(&format!("/admin/items-search?q={GRILL}")).await.json()["results"][0].clone();
    let added = ada.post("/admin/conveyor-map", Some(&json!({ "itemId": grill["id"] }))).await;
    let row = |category: &str| {
        json!({
            "shortname": GRILL, "itemId": grill["id"], "name": "Floor grill", "category": category,
            "updatedAt": "2026-11-21T12:00:00.000Z",
        })
    };
    assert_eq!((added.status, added.json()), (201, row(grill["category"].as_str().unwrap())));
    ada.post("/admin/conveyor-map", Some(&json!({ "itemId": grill["id"] }))).await.expect_problem(409, "conflict");
    for wrong in [json!(5), json!("x"), json!(1.5)] {
        let refused = ada.post("/admin/conveyor-map", Some(&json!({ "itemId": wrong }))).await;
        assert_eq!(refused.expect_problem(400, "invalid_request")["errors"][0]["path"], "itemId");
    }
    assert_eq!(
        ada.post("/admin/conveyor-map", Some(&json!({ "itemId": -932_201_673 }))).await.json()["shortname"],
        "scrap"
    );

    let put = ada.put(&format!("/admin/conveyor-map/{GRILL}"), &json!({ "category": "Floors" })).await;
    assert_eq!((put.status, put.json()), (200, row("Floors")));
    ada.put("/admin/conveyor-map/wood", &json!({ "category": "a" })).await.expect_problem(404, "not_found");
    for category in [json!(""), json!("  "), json!("a\tb"), json!("x".repeat(51))] {
        let path = format!("/admin/conveyor-map/{GRILL}");
        ada.put(&path, &json!({ "category": category })).await.expect_problem(400, "invalid_request");
    }

    let bulk = |shortnames: Value| json!({ "shortnames": shortnames, "category": "All" });
    let path = "/admin/conveyor-map/bulk-category";
    let partly = ada.post(path, Some(&bulk(json!(["scrap", "wood"])))).await.expect_problem(400, "invalid_request");
    assert_eq!(partly["errors"][0]["path"], "shortnames[1]");
    let rows = ada.get("/admin/conveyor-map").await.json()["rows"].clone();
    assert_eq!((&rows[0]["category"], &rows[1]["shortname"]), (&json!("Floors"), &json!("scrap")));
    assert_ne!(rows[1]["category"], "All", "all or none");
    for limit in [1, 2] {
        assert_eq!(ada.all_pages("/admin/conveyor-map", "rows", limit).await.len(), 2);
    }
    for wrong in [json!([]), json!(["scrap\u{0}"]), json!(["Scrap"]), json!(vec!["scrap"; 501])] {
        ada.post(path, Some(&bulk(wrong))).await.expect_problem(400, "invalid_request");
    }
    let all = ada.post(path, Some(&bulk(json!(["scrap", GRILL])))).await;
    assert_eq!((all.status, &all.json()["rows"][1]), (200, &row("All")));
    assert_eq!(ada.delete(&format!("/admin/conveyor-map/{GRILL}")).await.json(), json!({ "ok": true }));
    ada.delete(&format!("/admin/conveyor-map/{GRILL}")).await.expect_problem(404, "not_found");
    let rows = ada.get("/admin/conveyor-map").await.json()["rows"].clone();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["category"]), (1, &json!("All")));

    let actions: Vec<_> = audited(&mut ada, 9).await.iter().map(|entry| entry["action"].clone()).collect();
    let expected =
        ["conveyor_row.delete", "conveyor_rows.put", "conveyor_row.put", "conveyor_row.add", "conveyor_row.add"];
    assert_eq!(actions, expected);
}
