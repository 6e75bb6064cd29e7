//! Profiles of users, the export of all that is stored about them, and their erasure.

use std::{fs, path::Path};

use companion::{
    db::engine::{
        error::DbError,
        pool::{Db, Pool},
    },
    simulator::{
        payments::{PaymentFaults, SubscriptionChange},
        world::{BASE_ALARM, GATE_SWITCH, TEAM},
    },
};
use diesel::{
    Connection as _, PgConnection, QueryableByName, RunQueryDsl as _, connection::SimpleConnection as _, sql_query,
    sql_types::Text,
};
use reqwest::{Method, header::ORIGIN};
use serde_json::{Value, json};

use crate::harness::{
    app::{ADA, ADMINS, BASE, FRONTEND, LINKS, TestApp},
    browser::{Answer, Browser},
    database::Postgres,
    game::{self, ALICE, BOB, add_device, is_complete, pair, share},
    on_each_database,
    payments::PaymentTest,
    push::{self, PHONE, PushTest, alarm_pairing, only_server},
    relay_client::{self, PATIENCE, RelayClient},
};

async fn erase(browser: &mut Browser, confirm: &str) -> Answer {
    let body = json!({ "confirm": confirm });
    let request = browser.request(Method::DELETE, "/me").json(&body);
    browser.send(request).await
}

async fn id(browser: &mut Browser) -> String {
    browser.get("/me").await.json()["id"].as_str().unwrap().to_owned()
}

on_each_database!(time_zone_and_locale_are_set_and_taken_away, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let shown = |me: Value| json!([me["timeZone"], me["locale"]]);
    assert_eq!(shown(alice.get("/me").await.json()), json!([null, null]));
    let answer = alice.patch("/me", &json!({ "timeZone": "europe/berlin", "locale": "DE-ch" })).await;
    assert_eq!((answer.status, shown(answer.json())), (200, json!(["Europe/Berlin", "de-CH"])));
    let answer = alice.patch("/me", &json!({ "timeZone": null })).await;
    assert_eq!(shown(answer.json()), json!([null, "de-CH"]), "what is absent stays");
    assert_eq!(shown(alice.patch("/me", &json!({})).await.json()), json!([null, "de-CH"]));
    for (body, path) in [
        (json!({ "timeZone": "Mars/Olympus" }), "timeZone"),
        (json!({ "timeZone": "" }), "timeZone"),
        (json!({ "locale": "de_DE!" }), "locale"),
    ] {
        let refused = alice.patch("/me", &body).await.expect_problem(400, "invalid_request");
        assert_eq!(refused["errors"][0]["path"], path, "{refused}");
    }
    let me = alice.get("/me").await.json();
    assert_eq!((&me["locale"], &me["admin"], &me["chatLinked"]), (&json!("de-CH"), &json!(false), &json!(false)));
});

#[actix_web::test]
async fn clients_learn_what_there_is_without_a_session() {
    let app = TestApp::start_with(&["--relay-url=wss://relay.companion.test", "--enforce-tiers=true"]).await;
    let mut visitor = app.browser();
    let answer = visitor.get("/client-config").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let config = answer.json();
    let urls = json!({ "api": BASE, "relay": "wss://relay.companion.test", "frontend": FRONTEND });
    assert_eq!(config["urls"], urls);
    let features = json!({
        "payments": false, "chat": false, "playerStats": false, "registrations": false, "avatars": false,
        "tiersEnforced": true,
    });
    assert_eq!(config["features"], features);
    assert_eq!(config["tiers"][2]["tier"], "OVERLORD");
    assert_eq!(config["tiers"][0]["price"], Value::Null);
    assert_eq!(config["limits"]["relay"]["messagesOut"], 60);
    let tag = answer.header("etag").unwrap().to_owned();
    let again = visitor.request(Method::GET, "/client-config").header("if-none-match", tag);
    assert_eq!(visitor.send(again).await.status, 304);

    let test = PaymentTest::start().await;
    let config = test.app.browser().get("/client-config").await.json();
    assert_eq!(config["features"]["payments"], true);
    assert_eq!(config["urls"]["relay"], Value::Null, "it is not set");
    let prices: Vec<&Value> = config["tiers"].as_array().unwrap().iter().map(|tier| &tier["price"]["amount"]).collect();
    assert_eq!(prices[1], 700, "{config}");
    assert!(prices.iter().all(|price| price.is_i64()), "{config}");
}

on_each_database!(an_export_is_all_that_is_stored_and_no_secret, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let helper = app.paired(&mut alice).await;
    let pairing =
        json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 987_654_321 });
    let server = alice.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned();
    for name in 0..9 {
        let player = json!({ "trackerName": format!("Vex {name}") });
        assert_eq!(alice.post(&format!("/intel/{server}/tracking"), Some(&player)).await.status, 201);
    }
    let mut note = json!({ "x": 1, "y": 1, "category": "stash", "label": "\"quoted\" \u{1F600}" });
    assert_eq!(alice.post(&format!("/intel/{server}/map-notes"), Some(&note)).await.status, 201);
    let mut bob = app.signed_in(BOB).await;
    let other = json!({ "address": "other.example.com", "port": 28083, "playerId": BOB, "playerToken": 1 });
    assert_eq!(bob.post("/paired-servers", Some(&other)).await.status, 201);

    let answer = alice.get("/me/export").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let disposition = answer.header("content-disposition").unwrap();
    assert!(disposition.starts_with("attachment") && disposition.contains(ALICE), "{disposition}");
    let text = answer.text();
    for foreign in ["987654321", &alice.cookies["rp_sess"], "other.example.com", BOB] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    let export = answer.json();
    assert_eq!(export["profile"][0]["platformId"], ALICE);
    assert_eq!(export["profile"][0]["createdAt"], "2026-11-21T12:00:00.000Z");
    assert_eq!(export["pairedServers"][0]["address"], "play.example.com");
    assert_eq!(export["helperDevices"][0]["id"], helper.id.as_str());
    assert_eq!(export["trackedPlayers"].as_array().unwrap().len(), 9);
    assert_eq!(export["mapNotes"][0]["label"], note["label"].take());
    assert_eq!(export["sessions"].as_array().unwrap().len(), 1);
    for list in ["alarms", "timeline", "chatLines", "subscriptions", "guests", "shopWatches"] {
        assert!(export[list].is_array(), "{list}");
    }
    alice.get("/me/export").await;
    alice.get("/me/export").await;
    alice.get("/me/export").await.expect_problem(429, "rate_limited");
});

async fn an_export_has_what_admins_did_to_the_user_and_their_servers(app: TestApp) {
    let (mut ada, mut alice, mut bob) =
        (app.signed_in(ADA).await, app.signed_in(ALICE).await, app.signed_in(BOB).await);
    for (owner, account) in [(&mut alice, ALICE), (&mut bob, BOB)] {
        let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": account, "playerToken": 1 });
        let server = owner.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(ada.delete(&format!("/admin/paired-servers/{server}")).await.status, 200);
    }
    let tester = json!({ "platformId": ALICE, "tier": "SCOUT" });
    assert_eq!(ada.post("/admin/beta-testers", Some(&tester)).await.status, 201);
    let export = alice.get("/me/export").await.json();
    let entries = export["adminActionsAboutMe"].as_array().unwrap();
    let actions: Vec<&Value> = entries.iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["paired_server.delete", "beta_tester.put"]);
    assert_eq!(entries[0]["payload"]["before"]["playerId"], ALICE, "not Bob's");
}

#[actix_web::test]
async fn an_export_has_what_admins_did() {
    an_export_has_what_admins_did_to_the_user_and_their_servers(TestApp::start_with(&[ADMINS]).await).await;
}

#[actix_web::test]
async fn an_export_has_what_admins_did_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    let app = TestApp::start_on(database.url(), &[ADMINS]).await;
    an_export_has_what_admins_did_to_the_user_and_their_servers(app).await;
}

on_each_database!(a_user_who_erases_themselves_is_gone_and_may_come_again, |app| {
    let (mut alice, mut there) = (app.signed_in(ALICE).await, app.signed_in(ALICE).await);
    let mut helper = app.paired(&mut alice).await;
    let before = id(&mut alice).await;
    for confirm in ["", "me", BOB] {
        let refused = erase(&mut alice, confirm).await.expect_problem(400, "invalid_request");
        assert_eq!(refused["errors"][0]["path"], "confirm");
    }
    assert_eq!(alice.delete("/me").await.status, 415, "a confirmation is needed");
    let mut again = alice.clone();
    let answer = erase(&mut alice, ALICE).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "ok": true, "payments": "none" })));
    assert!(answer.set_cookie("rp_sess").unwrap().contains("Max-Age=0"));
    erase(&mut again, ALICE).await.expect_problem(401, "unauthenticated");
    there.get("/me").await.expect_problem(401, "unauthenticated");
    let minted = helper.send(helper.request(Method::POST, "/relay/token")).await;
    minted.expect_problem(401, "unauthenticated");
    let mut fresh = app.signed_in(ALICE).await;
    assert_ne!(id(&mut fresh).await, before);
    assert_eq!(fresh.get("/paired-servers").await.json(), json!({ "servers": [], "next": null }));
});

#[actix_web::test]
async fn an_erased_text_is_in_no_file_of_the_database() {
    let app = TestApp::start_with(&["--platform-api-key=0123456789ABCDEF"]).await;
    let mut bob = app.signed_in(BOB).await;
    app.provider.set_profile(&format!(r#"{{"steamid":"{ALICE}","personaname":"Windflower Alice"}}"#));
    let mut alice = app.signed_in(ALICE).await;
    app.paired(&mut alice).await;
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
    let server = alice.post("/paired-servers", Some(&pairing)).await.json()["id"].as_str().unwrap().to_owned();
    // More than one page of the file has.
    for number in 0..40 {
        let label = format!("Snowdrop {number} {}", "x".repeat(60));
        let note = json!({ "x": number, "y": 1, "category": "stash", "label": label });
        assert_eq!(alice.post(&format!("/intel/{server}/map-notes"), Some(&note)).await.status, 201);
    }
    let player = json!({ "trackerName": "Cornflower", "note": "Foxglove" });
    assert_eq!(alice.post(&format!("/intel/{server}/tracking"), Some(&player)).await.status, 201);
    assert_eq!(bob.patch("/me", &json!({ "timeZone": "Pacific/Chatham" })).await.status, 200);
    let erased = ["windflower", "snowdrop", "cornflower", "foxglove", "play.example.com"];
    let kept = ["chatham"];
    assert_eq!(found(app.directory(), &erased).len(), erased.len());

    assert_eq!(erase(&mut alice, ALICE).await.status, 200);
    assert_eq!(found(app.directory(), &erased), [""; 0]);
    assert_eq!(found(app.directory(), &kept), kept);
}

/// Gives the ones of these lower-case words that are in a file of the database.
fn found<'a>(directory: &Path, words: &[&'a str]) -> Vec<&'a str> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let of_database = files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with("test.db"));
    let text: Vec<u8> = of_database.flat_map(|file| fs::read(file).unwrap()).collect();
    let text = text.to_ascii_lowercase();
    let is_in = |word: &&&str| text.windows(word.len()).any(|part| part == word.as_bytes());
    words.iter().filter(is_in).copied().collect()
}

#[actix_web::test]
async fn an_erasure_ends_sockets_links_and_what_guests_had() {
    let app = TestApp::start_with(&["--allow-private-game-servers=true", LINKS, ADMINS]).await;
    let game = game::still(&app).await;
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let (server, theirs) = (pair(&mut alice, &game).await, pair(&mut bob, &game).await);
    add_device(&mut alice, &server, GATE_SWITCH).await;
    share(&mut alice, &server, &mut bob).await;
    share(&mut bob, &theirs, &mut alice).await;
    let note = json!({ "x": 1, "y": 1, "category": "raid", "label": "Alice was here" });
    assert_eq!(alice.post(&format!("/intel/{theirs}/map-notes"), Some(&note)).await.status, 201);
    let mut own = RelayClient::watching(&app, &mut alice, &server).await;
    own.until(&server, |state| is_complete(state, 1)).await;
    let mut guest = RelayClient::watching(&app, &mut bob, &server).await;
    guest.subscribe(&theirs).await;
    guest.until(&server, |state| is_complete(state, 1)).await;
    let notes = |state: &Value| state["mapNotes"].as_object().unwrap().values().any(|n| n["label"] == "Alice was here");
    guest.until(&theirs, notes).await;

    let token = relay_client::token(&mut alice).await;
    assert_eq!(erase(&mut alice, ALICE).await.status, 200);
    assert_eq!(own.expect_close().await, 4501);
    assert_eq!(guest.expect_error("unknown_server").await["serverId"], server);
    guest.until(&theirs, |state| !notes(state)).await;
    let refused = relay_client::open(app.relay, relay_client::request(app.relay, Some(&token))).await;
    assert_eq!(refused.err().map(|refused| refused.status), Some(401));
    let mut admin = app.signed_in(ADA).await;
    let found = admin.get(&format!("/admin/users?q={ALICE}")).await.json();
    assert_eq!(found["total"], 0);
}

#[actix_web::test]
async fn what_comes_late_for_an_erased_user_is_kept_nowhere() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let game = game::still(&test.app).await;
    let named = push::named(&game);
    test.deliver(alarm_pairing(&named, BASE_ALARM, "Base alarm")).await;
    let server = only_server(&mut alice).await;
    let mut client = RelayClient::watching(&test.app, &mut alice, &server).await;
    client.until(&server, |state| is_complete(state, 1)).await;
    let user = id(&mut alice).await;
    let names = [user.as_str(), &server, ALICE];
    assert!(rows_naming(&test.pool, &names).len() > 3 && game.connections() == 1);

    // The game has taken a line and has not answered yet; a push is on its way.
    game.faults(|faults| faults.delay = Some(std::time::Duration::from_secs(1)));
    let line = alice.request(Method::POST, &format!("/paired-servers/{server}/chat")).header(ORIGIN, FRONTEND);
    let line = line.header("idempotency-key", "late").json(&json!({ "text": "is anybody there" }));
    let mut other = alice.clone();
    let saying = actix_web::rt::spawn(async move { other.send(line).await });
    let until = async |holds: &dyn Fn() -> bool| {
        let held = async {
            while !holds() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, held).await.expect("it holds");
    };
    until(&|| game.world(|world| world.team_chat(TEAM[0].0).is_ok_and(|chat| !chat.messages.is_empty()))).await;
    test.push(named.alarm("Base alarm", "sent before"));
    assert_eq!(erase(&mut alice, ALICE).await.status, 200);
    assert_eq!(client.expect_close().await, 4501);
    test.until(|push| !push.connected(PHONE.0)).await;
    until(&|| game.connections() == 0).await;
    game.world(|world| {
        world.fire_alarm(BASE_ALARM);
        world.say(TEAM[0].0, "late");
    });
    test.push(named.alarm("Base alarm", "sent after"));
    assert_ne!(saying.await.unwrap().status, 401, "it was let in before");

    // A stop ends all that is under way, and a start would begin it again.
    let data = test.app.directory().to_owned();
    let mut kept = Vec::new();
    let test = test
        .restart_after(|pool| {
            kept = rows_naming(pool, &names);
            for file in ["alarms.journal", "alarms.refused"] {
                let text = fs::read_to_string(data.join(file)).unwrap_or_default();
                kept.extend(names.iter().filter(|name| text.contains(**name)).map(|_| file.to_owned()));
            }
        })
        .await;
    assert_eq!(kept, [""; 0]);
    assert_eq!(test.app.browser().get("/ready").await.status, 200);
    assert!(!test.push.connected(PHONE.0) && game.connections() == 0);
}

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = Text)]
    found: String,
}

/// The columns in which a row has one of these words.
fn rows_naming(pool: &Pool, words: &[&str]) -> Vec<String> {
    let found = |db: &mut Db, query: &str| -> Result<Vec<String>, DbError> {
        let rows: Vec<Found> = sql_query(query).load(db)?;
        Ok(rows.into_iter().map(|row| row.found).collect())
    };
    let columns = "SELECT m.name || ' ' || c.name AS found FROM sqlite_master m, pragma_table_info(m.name) c
        WHERE m.type = 'table' AND lower(c.type) = 'text'";
    let read = |db: &mut Db| {
        let mut naming = Vec::new();
        for place in found(db, columns)? {
            let (table, column) = place.split_once(' ').unwrap();
            let has = words.iter().map(|word| format!("{column} LIKE '%{word}%'")).collect::<Vec<_>>().join(" OR ");
            let rows = found(db, &format!("SELECT {column} AS found FROM {table} WHERE {has}"))?;
            naming.extend(rows.into_iter().map(|row| format!("{place}: {row}")));
        }
        Ok(naming)
    };
    pool.read_blocking(read).unwrap()
}

#[actix_web::test]
async fn a_subscription_must_be_cancelled_before_and_late_events_are_about_no_user() {
    let mut test = PaymentTest::start().await;
    let subscription = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["status"] == "ACTIVE").await;
    erase(&mut test.alice, ALICE).await.expect_problem(409, "subscription_runs");
    assert_eq!(test.alice.get("/me").await.status, 200, "nothing happened");
    test.provider.change(&subscription, &SubscriptionChange::Cancel);
    test.until(|subscription| subscription["cancelAtPeriodEnd"] == true).await;
    test.hold_events();
    assert_eq!(erase(&mut test.alice, ALICE).await.status, 200);
    let event = test.provider.events().pop().unwrap();
    assert_eq!(test.outcome(&event).await, "ignored");
    let mut fresh = test.app.signed_in(ALICE).await;
    assert_eq!(fresh.get("/me").await.json()["subscription"]["status"], Value::Null);
}

#[actix_web::test]
async fn an_open_checkout_is_closed_with_the_account() {
    let mut test = PaymentTest::start().await;
    let session = test.checkout("SCOUT").await;
    assert_eq!(erase(&mut test.alice, ALICE).await.status, 200);
    assert!(test.provider.pay(&session).is_none(), "no one can pay there now");
}

async fn a_checkout_is_opened_while_another_is_closed_for_good(database_url: Option<String>) {
    let mut test = PaymentTest::start_on(database_url, &[]).await;
    let first = test.checkout("SCOUT").await;
    let asked = test.provider.asked();
    test.provider.set_faults(PaymentFaults { answer_delay: 4_000, ..Default::default() });
    let mut there = test.alice.clone();
    let erasing = actix_web::rt::spawn(async move { erase(&mut there, ALICE).await.status });
    test.provider.asked_until(asked + 1).await;
    // Both have asked for the first one to be closed, and either may go on before the other.
    let body = json!({ "tier": "OPERATOR" });
    let both_asked = async {
        test.provider.asked_until(asked + 2).await;
        test.provider.set_faults(PaymentFaults::default());
    };
    let (answer, ()) = tokio::join!(test.alice.post("/billing/checkout", Some(&body)), both_asked);
    assert!(matches!(answer.status, 200 | 401), "{}", answer.text());
    assert_eq!(erasing.await.unwrap(), 200);
    assert_eq!(test.provider.pay(&first), None);
    assert_eq!(test.provider.open_checkouts(), 0);
}

#[actix_web::test]
async fn no_checkout_outlives_the_account() {
    a_checkout_is_opened_while_another_is_closed_for_good(None).await;
}

#[actix_web::test]
async fn no_checkout_outlives_the_account_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    a_checkout_is_opened_while_another_is_closed_for_good(Some(database.url())).await;
}

/// Until another connection waits for a lock of this one.
async fn until_a_caller_waits(db: &mut PgConnection) {
    let waits = "SELECT 'waits' AS found FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let until_it_waits = async {
        while sql_query(waits).load::<Found>(db).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, until_it_waits).await.expect("it waits for a lock");
}

/// SQLite has one writer.
#[actix_web::test]
async fn a_change_that_meets_an_erasure_is_of_no_user() {
    let Some(database) = Postgres::create() else { return };
    let app = TestApp::start_on(database.url(), &[]).await;
    let mut alice = app.signed_in(ALICE).await;
    let mut other = PgConnection::establish(&database.url()).unwrap();
    other.batch_execute("BEGIN; DELETE FROM users").unwrap();
    let changing = actix_web::rt::spawn(async move { alice.patch("/me", &json!({ "locale": "en" })).await });
    until_a_caller_waits(&mut other).await;
    other.batch_execute("COMMIT").unwrap();
    changing.await.unwrap().expect_problem(401, "unauthenticated");
}

/// SQLite has one writer.
#[actix_web::test]
async fn an_erasure_that_another_write_is_in_the_way_of_begins_again() {
    let Some(database) = Postgres::create() else { return };
    let app = TestApp::start_on(database.url(), &[]).await;
    let mut alice = app.signed_in(ALICE).await;
    let user = id(&mut alice).await;
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
    assert_eq!(alice.post("/paired-servers", Some(&pairing)).await.status, 201);
    let mut other = PgConnection::establish(&database.url()).unwrap();
    other.batch_execute("BEGIN; SELECT id FROM paired_servers FOR UPDATE").unwrap();
    let erasing = actix_web::rt::spawn(async move { erase(&mut alice, ALICE).await.status });
    until_a_caller_waits(&mut other).await;
    let session = format!(
        "INSERT INTO sessions (id, user_id, created_at, last_seen_at, expires_at)
         VALUES ('late', '{user}', '2026-11-21', '2026-11-21', '2026-11-22'); COMMIT"
    );
    other.batch_execute(&session).expect("it is no erasure");
    assert_eq!(erasing.await.unwrap(), 200);
    assert!(sql_query("SELECT id AS found FROM sessions").load::<Found>(&mut other).unwrap().is_empty());
}
