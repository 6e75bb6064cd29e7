//! Pairing of helper devices, and what their tokens open.

use chrono::Duration;
use companion::domain::{guessing, limits::HELPER_DEVICES_PER_USER, pairing::PairingCode};
use futures_util::{StreamExt as _, future::join_all, stream};
use reqwest::{
    Method,
    header::{AUTHORIZATION, ORIGIN},
};
use serde_json::{Value, json};
use tokio_tungstenite::{connect_async, tungstenite};

use crate::harness::{
    app::{FRONTEND, TestApp},
    browser::Browser,
    database::Postgres,
    helper::HelperDevice,
    on_each_database,
    relay_client::RelayClient,
};

const ALICE: &str = "76561198000000001";
const BOB: &str = "76561198000000002";
/// Every helper has an address of its own.
const PROXY: &[&str] = &["--trusted-proxies=127.0.0.1"];

async fn code(browser: &mut Browser) -> String {
    let answer = browser.post("/pairing/device/code", None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["code"].as_str().unwrap().to_owned()
}

async fn devices(browser: &mut Browser) -> Vec<Value> {
    browser.get("/pairing/device").await.json()["devices"].as_array().unwrap().clone()
}

on_each_database!(a_code_makes_one_device_whose_token_lives_until_it_is_deleted, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let issued = alice.post("/pairing/device/code", Some(&json!({ "label": "Gaming PC" }))).await;
    assert_eq!(issued.status, 200, "{}", issued.text());
    let issued = issued.json();
    assert_eq!(issued["expiresAt"], "2026-11-21T12:10:00.000Z");
    let code = issued["code"].as_str().unwrap();
    assert!(PairingCode::parse("LINK", code).is_some(), "{code}");
    assert_eq!(devices(&mut alice).await, Vec::<Value>::new());

    let mut helper = HelperDevice::new(app.browser(), "");
    let activated = helper.activate(&format!(" {} \n", code.to_lowercase())).await;
    assert_eq!(activated.status, 200, "{}", activated.text());
    let user = alice.get("/me").await.json()["id"].clone();
    assert_eq!(activated.json(), json!({ "token": helper.token, "userId": user, "deviceId": helper.id }));
    assert!(helper.token.len() == 96 && helper.token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", helper.token);
    helper.clone().activate(code).await.expect_problem(401, "invalid_pairing_code");

    let listed = |last_used: Value| json!({ "id": helper.id, "label": "Gaming PC", "scope": "helper", "serverId": null, "sections": null, "createdAt": "2026-11-21T12:00:00.000Z", "lastUsedAt": last_used, "seenAt": null });
    assert_eq!(devices(&mut alice).await, [listed(Value::Null)]);
    // The last use is stored to the minute.
    for (seconds, seen) in [(5, "12:00:05"), (54, "12:00:05"), (10, "12:01:09")] {
        app.clock.advance(Duration::seconds(seconds));
        let request = helper.request(Method::POST, "/relay/token");
        assert_eq!(helper.clone().send(request).await.status, 200);
        assert_eq!(devices(&mut alice).await, [listed(json!(format!("2026-11-21T{seen}.000Z")))]);
    }
    app.clock.advance(Duration::days(400));
    let request = helper.request(Method::POST, "/relay/token");
    assert_eq!(helper.send(request).await.status, 200, "a device token does not age");

    let mut alice = app.signed_in(ALICE).await;
    let path = format!("/pairing/device/{}", helper.id);
    let mut bob = app.signed_in(BOB).await;
    bob.delete(&path).await.expect_problem(404, "not_found");
    assert_eq!(devices(&mut bob).await, Vec::<Value>::new());
    let deleted = alice.delete(&path).await;
    assert_eq!((deleted.status, deleted.json()), (200, json!({ "ok": true })));
    alice.delete(&path).await.expect_problem(404, "not_found");
    assert_eq!(devices(&mut alice).await, Vec::<Value>::new());
    let request = helper.request(Method::POST, "/relay/token");
    helper.send(request).await.expect_problem(401, "unauthenticated");
});

on_each_database!(a_fourth_code_invalidates_the_oldest_and_codes_expire, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(code(&mut alice).await);
    }
    let mut helper = HelperDevice::new(app.browser(), "");
    helper.activate(&codes[0]).await.expect_problem(401, "invalid_pairing_code");
    assert_eq!(helper.activate(&codes[1]).await.status, 200);
    app.clock.advance(Duration::minutes(10) - Duration::milliseconds(1));
    assert_eq!(helper.activate(&codes[2]).await.status, 200);
    app.clock.advance(Duration::milliseconds(1));
    helper.activate(&codes[3]).await.expect_problem(401, "invalid_pairing_code");
});

#[actix_web::test]
async fn the_prefix_is_a_setting_and_labels_are_checked() {
    let app = TestApp::start_with(&["--pairing-code-prefix=base"]).await;
    let mut alice = app.signed_in(ALICE).await;
    assert!(code(&mut alice).await.starts_with("BASE-"));
    let mut issue = async |body: Value| alice.post("/pairing/device/code", Some(&body)).await;
    assert_eq!(issue(json!({})).await.status, 200);
    assert_eq!(issue(json!({ "label": null })).await.status, 200);
    for label in [json!(""), json!(" "), json!("a\nb"), json!("x".repeat(101)), json!(7)] {
        issue(json!({ "label": label })).await.expect_problem(400, "invalid_request");
    }
    app.browser().post("/pairing/device/code", None).await.expect_problem(401, "unauthenticated");
}

#[actix_web::test]
async fn every_wrong_code_gets_the_same_answer_and_five_are_enough() {
    let app = TestApp::start_with(PROXY).await;
    let mut alice = app.signed_in(ALICE).await;
    let mut guesser = HelperDevice::new(app.browser(), "198.51.100.1");
    let mut answers = Vec::new();
    for guess in ["LINK-2222", "ROOM-2222", "", "LINK-22222", "💥"] {
        let mut problem = guesser.activate(guess).await.expect_problem(401, "invalid_pairing_code");
        problem["requestId"] = Value::Null;
        answers.push(problem);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");

    let good = code(&mut alice).await;
    let refused = guesser.activate(&good).await;
    refused.expect_problem(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("600"));
    // Another address, and after a while the same one.
    assert_eq!(HelperDevice::new(app.browser(), "198.51.100.2").activate(&good).await.status, 200);
    app.clock.advance(Duration::minutes(10));
    assert_eq!(guesser.activate(&code(&mut alice).await).await.status, 200);
}

#[actix_web::test]
async fn one_user_has_a_limited_number_of_devices() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    for _ in 0..HELPER_DEVICES_PER_USER {
        app.paired(&mut alice).await;
    }
    alice.post("/pairing/device/code", None).await.expect_problem(409, "limit_reached");
    let first = devices(&mut alice).await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(alice.delete(&format!("/pairing/device/{first}")).await.status, 200);
    app.paired(&mut alice).await;
}

async fn two_hundred_at_once(app: TestApp) {
    let mut alice = app.signed_in(ALICE).await;
    let code = code(&mut alice).await;
    let answers = join_all((0..200).map(|number| {
        let mut helper = HelperDevice::new(app.browser(), &format!("198.{number}.100.7"));
        let code = &code;
        async move { helper.activate(code).await }
    }))
    .await;
    let won = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(won, 1);
    // This many guesses without an answer yet look like an attack.
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        match answer.status {
            429 => answer.expect_problem(429, "confirmation_needed"),
            _ => answer.expect_problem(401, "invalid_pairing_code"),
        };
    }
    assert_eq!(devices(&mut alice).await.len(), 1);
}

#[actix_web::test]
async fn of_two_hundred_activations_at_once_one_succeeds_on_sqlite() {
    two_hundred_at_once(TestApp::start_with(PROXY).await).await;
}

#[actix_web::test]
async fn of_two_hundred_activations_at_once_one_succeeds_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    two_hundred_at_once(TestApp::start_on(database.url(), PROXY).await).await;
}

/// The statuses of a wrong guess from each of these addresses; `live` are right.
async fn guess_from(app: &TestApp, live: &[&str], addresses: impl Iterator<Item = String>) -> Vec<u16> {
    let guesses = addresses.enumerate().map(|(number, address)| {
        let part = number as u64 * 104_729;
        let code = PairingCode::new("LINK", [part, part / 32, part / 1_024, part / 32_768].map(|part| part as u8));
        let guess = if live.contains(&code.as_str()) { "" } else { code.as_str() }.to_owned();
        let mut guesser = HelperDevice::new(app.browser(), &address);
        async move { guesser.activate(&guess).await.status }
    });
    stream::iter(guesses).buffer_unordered(32).collect().await
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|other| **other == status).count()
}

#[actix_web::test]
async fn one_ipv6_48_gets_twenty_lookups_and_users_elsewhere_pair_as_ever() {
    let app = TestApp::start_with(PROXY).await;
    let mut alice = app.signed_in(ALICE).await;
    let live = code(&mut alice).await;
    let of_48 = |client_networks| (0..client_networks).map(|number| format!("2001:db8:1:{number:x}::1"));
    let statuses = guess_from(&app, &[&live], of_48(2_000)).await;
    assert_eq!((count(&statuses, 401), count(&statuses, 429)), (20, 1_980));
    HelperDevice::new(app.browser(), "2001:db8:1:ffff::1").activate(&live).await.expect_problem(429, "rate_limited");
    assert_eq!(HelperDevice::new(app.browser(), "2001:db8:2::1").activate(&live).await.status, 200);
    // In ten minutes it may guess again.
    app.clock.advance(Duration::minutes(10));
    assert_eq!(count(&guess_from(&app, &[], of_48(100)).await, 401), 10, "they are one /56");
}

#[actix_web::test]
async fn a_code_works_where_it_was_issued_however_much_is_guessed_there() {
    let app = TestApp::start_with(PROXY).await;
    let mut alice = app.signed_in(ALICE).await;
    let issue = alice.request(Method::POST, "/pairing/device/code").header(ORIGIN, FRONTEND);
    let issued = alice.send(issue.header("x-forwarded-for", "2001:db8:1:7::1")).await.json();
    let live = issued["code"].as_str().unwrap();
    let around = (0..100).map(|number| format!("2001:db8:1:{:x}07::2", number % 10));
    let statuses = guess_from(&app, &[live], around).await;
    assert_eq!(count(&statuses, 401), 20, "{statuses:?}");
    let mut neighbour = HelperDevice::new(app.browser(), "2001:db8:1:8::1");
    neighbour.activate(live).await.expect_problem(429, "rate_limited");
    let mut at_home = HelperDevice::new(app.browser(), "2001:db8:1:7::3");
    at_home.activate("LINK-2222").await.expect_problem(429, "rate_limited");
    let paired = at_home.activate(live).await;
    assert_eq!(paired.status, 200, "{}", paired.text());
}

async fn confirmed_under_attack(app: TestApp) {
    let (mut alice, mut bob) = (app.signed_in(ALICE).await, app.signed_in(BOB).await);
    let mut dashboard = RelayClient::connect(&app, &mut alice).await;
    let mut of_bob = RelayClient::connect(&app, &mut bob).await;
    let codes = [code(&mut alice).await, code(&mut alice).await];
    let everywhere = (0..2 * guessing::CEILING).map(|number| format!("127.{}.{}.1", number / 250, number % 250));
    let statuses = guess_from(&app, &codes.each_ref().map(String::as_str), everywhere).await;
    assert_eq!(count(&statuses, 200), 0, "near the ceiling a code that is found opens nothing");
    assert!(count(&statuses, 401) <= guessing::CEILING && count(&statuses, 429) > 0, "{statuses:?}");

    // From where it was issued a code works at once; from elsewhere once its user has confirmed the device.
    assert_eq!(HelperDevice::new(app.browser(), "127.0.0.1").activate(&codes[0]).await.status, 200);
    let news = dashboard.expect("devicePaired").await;
    assert_eq!(news["device"]["network"], "127.0.0.1");
    let mut helper = HelperDevice::new(app.browser(), "203.0.113.7");
    let refused = helper.activate(&codes[1]).await;
    refused.expect_problem(429, "confirmation_needed");
    assert_eq!(refused.header("retry-after"), Some("1"));
    helper.activate(&codes[1]).await.expect_problem(429, "confirmation_needed");
    let listed = alice.get("/pairing/device").await.json()["requests"].take();
    let news = dashboard.expect("pairingRequest").await;
    assert_eq!(listed, json!([news["request"]]), "once, however often it asks");
    assert_eq!((&news["request"]["network"], &news["request"]["confirmed"]), (&json!("203.0.113.7"), &json!(false)));

    let path = format!("/pairing/device/requests/{}", news["request"]["id"].as_str().unwrap());
    bob.post(&path, None).await.expect_problem(404, "not_found");
    assert_eq!(bob.get("/pairing/device").await.json()["requests"], json!([]));
    helper.activate(&codes[1]).await.expect_problem(429, "confirmation_needed");
    let confirmed = alice.post(&path, None).await;
    assert_eq!((confirmed.status, confirmed.json()), (200, json!({ "ok": true })));
    // Another network that knows the code is not confirmed thereby.
    HelperDevice::new(app.browser(), "203.0.113.8")
        .activate(&codes[1])
        .await
        .expect_problem(429, "confirmation_needed");
    let paired = helper.activate(&codes[1]).await;
    assert_eq!(paired.status, 200, "{}", paired.text());
    assert_eq!(dashboard.expect("devicePaired").await["device"]["id"], helper.id.as_str());
    alice.post(&path, None).await.expect_problem(404, "not_found");
    assert_eq!(alice.get("/pairing/device").await.json()["requests"], json!([]));
    of_bob.ping().await;

    app.clock.advance(Duration::minutes(10));
    let code = code(&mut alice).await;
    assert_eq!(HelperDevice::new(app.browser(), "203.0.113.9").activate(&code).await.status, 200, "it is over");
}

#[actix_web::test]
async fn under_attack_a_device_elsewhere_is_paired_with_a_click_on_sqlite() {
    confirmed_under_attack(TestApp::start_with(PROXY).await).await;
}

#[actix_web::test]
async fn under_attack_a_device_elsewhere_is_paired_with_a_click_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    confirmed_under_attack(TestApp::start_on(database.url(), PROXY).await).await;
}

#[actix_web::test]
async fn a_device_opens_the_relay_and_its_sockets_end_with_it() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let (mut helper, mut other) = (app.paired(&mut alice).await, app.paired(&mut alice).await);
    let relay_url = app.relay_url();
    let open = async |helper: &mut HelperDevice| {
        let request = helper.request(Method::POST, "/relay/token");
        let token = helper.send(request).await.json()["token"].as_str().unwrap().to_owned();
        let url = format!("{relay_url}?token={token}");
        (connect_async(&url).await.unwrap().0, url)
    };
    let (mut socket, url) = open(&mut helper).await;
    let (mut stays, _) = open(&mut other).await;

    assert_eq!(alice.delete(&format!("/pairing/device/{}", helper.id)).await.status, 200);
    let closed = loop {
        match socket.next().await.unwrap().unwrap() {
            tungstenite::Message::Close(frame) => break frame.unwrap(),
            _ => continue,
        }
    };
    assert_eq!(u16::from(closed.code), 4501);
    let Err(tungstenite::Error::Http(refused)) = connect_async(&url).await else {
        panic!("the token outlived its device")
    };
    assert_eq!(refused.status(), 401);

    use futures_util::SinkExt as _;
    stays.send(tungstenite::Message::text(r#"{"type":"ping"}"#)).await.unwrap();
    assert_eq!(stays.next().await.unwrap().unwrap().into_text().unwrap(), r#"{"type":"pong"}"#);
}

#[actix_web::test]
async fn an_invalid_token_is_refused_whatever_else_the_request_has() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let helper = app.paired(&mut alice).await;
    let (zeros, short) = ("0".repeat(96), helper.token[..94].to_owned());
    let basic = format!("Basic {}", helper.token);
    for authorization in [format!("Bearer {zeros}"), format!("Bearer {short}"), "Bearer".into(), basic, "é".into()] {
        let mut browser = app.browser();
        let request = browser.request(Method::PUT, "/credentials/push").header(AUTHORIZATION, &authorization);
        browser.send(request.json(&json!({}))).await.expect_problem(401, "unauthenticated");
    }
    // With a valid cookie beside it.
    let request = alice.request(Method::POST, "/relay/token").header(ORIGIN, FRONTEND);
    let request = request.header(AUTHORIZATION, format!("Bearer {zeros}"));
    alice.send(request).await.expect_problem(401, "unauthenticated");
    // A device token is no session.
    let mut device = helper.clone();
    let request = device.request(Method::GET, "/me");
    device.send(request).await.expect_problem(401, "unauthenticated");
    // Bearer calls need no origin, not even beside a cookie.
    let request = alice.request(Method::POST, "/relay/token").header(ORIGIN, "https://overlay.test");
    let answer = alice.send(request.header(AUTHORIZATION, format!("Bearer {}", helper.token))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}
