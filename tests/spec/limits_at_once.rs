//! Limits of what a server or a user has, when more is added by many requests at once: on PostgreSQL, where
//! transactions run side by side.

use companion::{
    config::Database,
    db::{
        engine::pool::Pool,
        map_notes,
        money::beta_testers,
        shop_watches,
        tracked_players::{self, NewTrackedPlayer},
    },
    domain::{
        ids::UserId,
        limits::{MAP_NOTES_PER_SERVER, PAIRED_SERVERS_PER_USER, SHOP_WATCHES_PER_SERVER, TRACKED_PLAYERS_PER_SERVER},
        money::tier::{BetaEntry, Tier},
        player_name::NameKey,
        shop::watch::{Finding, PriceDirection, ShopWatch, WatchSide},
        time::Timestamp,
    },
};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    app::{ADA, ADMINS, TestApp},
    browser::Browser,
    database::Postgres,
    game::{ALICE, BOB, add_device},
};

const AT_ONCE: usize = 12;

/// Sends all at once; how many were taken. The others were refused with this code.
async fn taken(browser: &Browser, requests: Vec<(Method, String, Value)>, refused: (u16, &str)) -> usize {
    let sent = requests.into_iter().map(|(method, path, body)| {
        let mut browser = browser.clone();
        async move {
            let request = browser.request(method, &path);
            let request = if body.is_null() { request } else { request.json(&body) };
            browser.send(request).await
        }
    });
    let mut taken = 0;
    for answer in join_all(sent).await {
        match answer.status {
            200 | 201 => taken += 1,
            _ => drop(answer.expect_problem(refused.0, refused.1)),
        }
    }
    taken
}

fn posts(path: &str, body: impl Fn(usize) -> Value) -> Vec<(Method, String, Value)> {
    (0..AT_ONCE).map(|number| (Method::POST, path.to_owned(), body(number))).collect()
}

fn pairing(port: usize) -> Value {
    json!({ "address": "play.example.com", "port": port, "playerId": ALICE, "playerToken": 1 })
}

async fn paired(browser: &mut Browser, port: usize) -> String {
    let answer = browser.post("/paired-servers", Some(&pairing(port))).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn offer(number: usize) -> Value {
    json!({ "vendorId": format!("{}_2", 1_000 + number), "itemId": "-151838493" })
}

fn watch(server: &str, number: usize, now: Timestamp) -> ShopWatch {
    ShopWatch {
        id: format!("{server} {number}"),
        vendor: Some("1_2".into()),
        side: WatchSide::Sells,
        direction: PriceDirection::Changes,
        item_id: i32::try_from(number).unwrap(),
        expected_price: None,
        currency_id: None,
        baseline: None,
        finding: Finding::NOTHING,
        as_of: now,
        created_at: now,
        version: 0,
    }
}

#[actix_web::test]
async fn admins_who_write_at_once_write_one_after_the_other() {
    let Some(database) = Postgres::create() else { return };
    let app = TestApp::start_on(database.url(), &[ADMINS]).await;
    let ada = app.signed_in(ADA).await;
    let puts = |path: &str, body: &dyn Fn(usize) -> Value| {
        (0..AT_ONCE).map(|number| (Method::PUT, path.to_owned(), body(number))).collect::<Vec<_>>()
    };
    let stores = puts("/admin/store/faq", &|number| json!({ "data": number }));
    assert_eq!(taken(&ada, stores, (0, "")).await, AT_ONCE, "versions of a store");
    let page = |number| json!({ "slug": "doors", "frontmatter": {}, "body": format!("Door {number}") });
    assert_eq!(taken(&ada, puts("/admin/wiki/page", &page), (0, "")).await, AT_ONCE, "versions of a page");
}

#[actix_web::test]
async fn the_last_place_is_taken_once() {
    let Some(database) = Postgres::create() else { return };
    let app = TestApp::start_on(database.url(), &["--enforce-tiers=true"]).await;
    let pool = Pool::open(&Database::Postgres(database.url().into())).unwrap();
    let now = app.clock.now();
    for (account, tier) in [(ALICE, Tier::Overlord), (BOB, Tier::Scout)] {
        let entry = BetaEntry { tier, expires_at: None };
        pool.write_blocking(|db| beta_testers::put(db, &account.into(), &entry, None, now)).unwrap();
    }
    let mut alice = app.signed_in(ALICE).await;
    let user = UserId::from(alice.get("/me").await.json()["id"].as_str().unwrap());
    let server = paired(&mut alice, 28_082).await;
    let full = (409, "limit_reached");

    pool.write_blocking(|db| {
        for number in 1..MAP_NOTES_PER_SERVER {
            let note = map_notes::StoredNote {
                id: number.to_string(),
                author_id: None,
                source: "user".into(),
                x: 1.0,
                y: 1.0,
                category: "farm".into(),
                label: None,
                created_at: now,
                expires_at: None,
            };
            map_notes::insert(db, &server.as_str().into(), &note)?;
        }
        for number in 1..TRACKED_PLAYERS_PER_SERVER {
            let name = format!("Known {number}");
            let new = NewTrackedPlayer {
                id: number.to_string(),
                server: server.as_str().into(),
                key: NameKey::of(&name).unwrap(),
                tracker_name: name,
                tag: None,
                note: None,
                author: user.clone(),
            };
            tracked_players::insert(db, &new, now)?;
        }
        (1..SHOP_WATCHES_PER_SERVER)
            .try_for_each(|number| shop_watches::insert(db, &server.as_str().into(), &watch(&server, number, now)))
    })
    .unwrap();
    let path = |what: &str| format!("/intel/{server}/{what}");
    // Then all connections to the database are open.
    let reads = (0..AT_ONCE).map(|_| (Method::GET, path("map-notes"), Value::Null)).collect();
    assert_eq!(taken(&alice, reads, full).await, AT_ONCE);
    let notes = posts(&path("map-notes"), |_| json!({ "x": 1, "y": 1, "category": "farm" }));
    assert_eq!(taken(&alice, notes, full).await, 1, "map notes");
    let players = posts(&path("tracking"), |number| json!({ "trackerName": format!("New {number}") }));
    assert_eq!(taken(&alice, players, full).await, 1, "tracked players");
    assert_eq!(taken(&alice, posts(&path("shops"), offer), full).await, 1, "watched shops");

    // A word is the command of one device.
    for device in 1..=AT_ONCE {
        add_device(&mut alice, &server, device as u64).await;
    }
    let command = |device| {
        (Method::PATCH, format!("/paired-servers/{server}/devices/{device}"), json!({ "customCommand": "gate" }))
    };
    let commands = (1..=AT_ONCE).map(command).collect();
    assert_eq!(taken(&alice, commands, (400, "invalid_request")).await, 1, "commands");

    // A tier's watched shops are those of all servers: ten, of which nine are there.
    let mut bob = app.signed_in(BOB).await;
    let servers = [paired(&mut bob, 998).await, paired(&mut bob, 999).await];
    pool.write_blocking(|db| {
        (1..10).try_for_each(|number| {
            let server = &servers[number % 2];
            shop_watches::insert(db, &server.as_str().into(), &watch(server, number, now))
        })
    })
    .unwrap();
    let offer = |number: usize| (Method::POST, format!("/intel/{}/shops", servers[number % 2]), offer(number));
    let offers = (0..AT_ONCE).map(offer).collect();
    assert_eq!(taken(&bob, offers, full).await, 1, "the tier's watched shops");

    for port in 1_000..997 + PAIRED_SERVERS_PER_USER {
        paired(&mut bob, port).await;
        app.clock.advance(chrono::Duration::seconds(10));
    }
    let pairings = posts("/paired-servers", |number| pairing(2_000 + number));
    assert_eq!(taken(&bob, pairings, full).await, 1, "paired servers");
}
