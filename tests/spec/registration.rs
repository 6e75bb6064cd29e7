//! Registrations for the game's pushes that the service makes itself: the user brings the end of a login, the service
//! does the rest, renews, and ends it.

mod endings;
mod faults;

use chrono::TimeDelta;
use companion::simulator::registration::{RegistrationFaults, SIMULATED_API_KEY, browser};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{
    app::TestApp,
    browser::Browser,
    database::Postgres,
    game::{ALICE, BOB},
    push::session_is,
    registration::{PATH, RegistrationTest, failed, states},
    relay_client::PATIENCE,
};

pub fn alice_id() -> u64 {
    ALICE.parse().unwrap()
}

/// The whole way, and that pushes of the game arrive.
async fn register_and_receive(test: RegistrationTest) {
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    let shown = alice.get(&format!("{PATH}/{id}")).await.json();
    assert_eq!(states(&shown)[..2], ["waiting", "pending"], "{shown}");
    assert_eq!(shown["expiresAt"], "2026-11-21T13:00:00.000Z");
    let answer = test.bring(&mut alice, &id, &address).await;
    assert_eq!((answer.status, states(&answer.json())), (200, vec!["done"; 7]), "{}", answer.text());
    session_is(&mut alice, "connected").await;
    let shown = alice.get(&format!("{PATH}/{id}")).await.json();
    let next = shown["next"].as_str().unwrap();
    assert!(next.contains("Pair with Server") && next.contains("phone app"), "{shown}");
    assert_eq!((&shown["endsAt"], &shown["continuesAt"]), (&json!("2026-12-05T12:00:00.000Z"), &Value::Null));
    let shown = alice.get("/credentials/push").await.json();
    assert_eq!(shown["expiresAt"], "2026-12-05T12:00:00.000Z");
    assert_eq!(shown["registration"]["renew"], false);

    let device = test.sites.devices(alice_id())[0];
    assert_eq!(test.sites.push(alice_id(), &[("channelId".to_owned(), "news".to_owned())]), 1);
    timeout(PATIENCE, test.push.until(|push| push.unacknowledged(device) == 0)).await.unwrap();
    let counts = test.sites.counts();
    assert_eq!(counts.violations, Vec::<String>::new());

    // Once more: the identity and the addresses stay, and the bundle in use has a new end.
    test.advance(TimeDelta::days(3));
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    assert_eq!(test.bring(&mut alice, &id, &address).await.status, 200);
    let again = test.sites.counts();
    assert_eq!((again.check_ins, again.expo_tokens, again.registrations), (1, 1, 2));
    assert_eq!(test.sites.devices(alice_id()), [device]);
    let shown = alice.get("/credentials/push").await.json();
    assert_eq!((&shown["expiresAt"], &shown["staged"]), (&json!("2026-12-08T12:00:00.000Z"), &Value::Null));

    // Without the token of the account nothing can be ended at the game.
    let deleted = alice.delete("/credentials/push").await;
    let ends = "2026-12-08T12:00:00.000Z";
    assert_eq!(deleted.json(), json!({ "ok": true, "unregistered": false, "endsAt": ends }));
    alice.get(&format!("{PATH}/{id}")).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn a_user_registers_and_receives_on_sqlite() {
    register_and_receive(RegistrationTest::start().await).await;
}

#[actix_web::test]
async fn a_user_registers_and_receives_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    register_and_receive(RegistrationTest::start_on(Some(database.url())).await).await;
}

#[actix_web::test]
async fn a_registration_that_is_begun_again_with_its_key_is_the_same() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let begin = async |browser: &mut Browser, key: &str, renew: bool| {
        let request = browser.request(Method::POST, PATH).header("idempotency-key", key);
        browser.send(request.json(&json!({ "renew": renew }))).await
    };
    let first = begin(&mut alice, "one", false).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (201, None), "{}", first.text());
    let login = first.json()["loginUrl"].as_str().unwrap().to_owned();
    let address = browser::sign_in(&login, alice_id()).await.unwrap().unwrap();
    let again = begin(&mut alice, "one", false).await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, Some("true")));
    assert_eq!(again.text(), first.text());
    begin(&mut alice, "one", true).await.expect_problem(422, "idempotency_key_reused");
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(
        test.bring(&mut alice, &id, &address).await.status,
        200,
        "the login that was begun is the one that ends"
    );
    let other = begin(&mut alice, "two", false).await;
    assert_ne!(other.json()["id"], first.json()["id"]);
}

#[actix_web::test]
async fn a_registration_is_renewed_for_ever_and_ends_with_its_credential() {
    let test = RegistrationTest::start().await;
    let (mut alice, _) = test.registered(true).await;
    session_is(&mut alice, "connected").await;
    let device = test.sites.devices(alice_id())[0];
    for renewal in 1..=3 {
        test.advance(TimeDelta::hours(10 * 24 + 12));
        let mut alice = test.app.signed_in(ALICE).await;
        let ends = (test.app.clock.now() + TimeDelta::days(14)).to_wire();
        alice.get_until("/credentials/push", |shown| shown["expiresAt"] == ends.as_str()).await;
        assert_eq!(test.sites.counts().registrations, 1 + renewal);
        assert_eq!(test.sites.devices(alice_id()), [device]);
        let shown = alice.get("/credentials/push").await.json();
        assert_eq!((&shown["warning"], &shown["registration"]["code"]), (&Value::Null, &Value::Null));
        assert_eq!(shown["session"]["state"], "connected");
    }
    let counts = test.sites.counts();
    assert_eq!((counts.check_ins, counts.addresses, counts.expo_tokens), (1, 1, 1));
    let mut alice = test.app.signed_in(ALICE).await;
    let deleted = alice.delete("/credentials/push").await.json();
    assert_eq!(deleted, json!({ "ok": true, "unregistered": true }));
    assert!(test.sites.devices(alice_id()).is_empty());
    alice.delete("/credentials/push").await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn a_renewal_that_fails_is_shown_and_tried_again_until_the_login_is_refused() {
    let test = RegistrationTest::start().await;
    test.registered(true).await;
    test.set_faults(|faults| faults.game_status = Some(429));
    test.advance(TimeDelta::hours(10 * 24 + 12));
    let mut alice = test.app.signed_in(ALICE).await;
    let code = |code: &'static str| move |shown: &Value| shown["registration"]["code"] == code;
    let shown = alice.get_until("/credentials/push", code("game_unavailable")).await;
    assert!(shown["registration"]["continuesAt"].is_string(), "{shown}");
    test.set_faults(|_| {});
    test.advance(TimeDelta::minutes(1));
    alice.get_until("/credentials/push", |shown| shown["registration"]["code"].is_null()).await;

    // The game withdraws the login: only the user can go on.
    test.set_faults(|faults| faults.game_status = Some(403));
    test.advance(TimeDelta::hours(10 * 24 + 12));
    let mut alice = test.app.signed_in(ALICE).await;
    let shown = alice.get_until("/credentials/push", code("game_login_refused")).await;
    assert_eq!(
        (&shown["registration"]["continuesAt"], &shown["registration"]["renew"]),
        (&Value::Null, &Value::Bool(false))
    );
    let count = test.sites.counts().registrations;
    test.set_faults(|_| {});
    test.advance(TimeDelta::hours(2));
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    let answer = test.bring(&mut alice, &id, &address).await;
    assert_eq!(states(&answer.json()), ["done"; 7]);
    assert_eq!(test.sites.counts().registrations, count + 1);
}

#[actix_web::test]
async fn a_first_registration_is_tried_again_until_its_login_ends() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    test.set_faults(|faults| faults.address_refused = Some("BUSY".to_owned()));
    let shown = test.bring(&mut alice, &id, &address).await.json();
    assert!(failed(&shown)["code"] == "google_push_address_refused" && shown["continuesAt"].is_string(), "{shown}");
    test.advance(TimeDelta::days(15));
    let mut alice = test.app.signed_in(ALICE).await;
    let shown = alice.get_until(format!("{PATH}/{id}"), |shown| shown["continuesAt"].is_null()).await;
    assert_eq!(failed(&shown)["code"], "game_login_refused", "{shown}");

    let (id, address) = test.login(&mut alice, true, ALICE).await;
    test.set_faults(|faults| faults.address_refused = Some("TOO_MANY_REGISTRATIONS".to_owned()));
    let shown = test.bring(&mut alice, &id, &address).await.json();
    assert!(failed(&shown)["code"] == "google_push_address_refused" && shown["continuesAt"].is_null(), "{shown}");
}

#[actix_web::test]
async fn every_step_that_the_outside_refuses_has_its_own_answer() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    type Change = fn(&mut RegistrationFaults);
    let rows: [(Change, &str, &str, Option<&str>); 8] = [
        (
            |faults| faults.check_in_without_ids = true,
            "google_check_in",
            "google_check_in_unreadable",
            Some("status_200"),
        ),
        (
            |faults| faults.installation_refused = Some("API_KEY_ANDROID_APP_BLOCKED".into()),
            "google_installation",
            "google_app_blocked",
            Some("API_KEY_ANDROID_APP_BLOCKED"),
        ),
        (
            |faults| faults.installation_refused = Some("API_KEY_SERVICE_BLOCKED".into()),
            "google_installation",
            "google_service_blocked",
            Some("API_KEY_SERVICE_BLOCKED"),
        ),
        (
            |faults| faults.address_refused = Some("TOO_MANY_REGISTRATIONS".into()),
            "google_push_address",
            "google_push_address_refused",
            Some("TOO_MANY_REGISTRATIONS"),
        ),
        (|faults| faults.expo_refused = Some("API_ERROR".into()), "expo_token", "expo_refused", Some("API_ERROR")),
        (|faults| faults.game_status = Some(400), "game_registration", "game_refused", Some("status_400")),
        (|faults| faults.game_status = Some(403), "game_registration", "game_login_refused", Some("status_403")),
        (|faults| faults.token_seconds = Some(-1), "game_registration", "game_refused", Some("no_token")),
    ];
    for (change, step, code, word) in rows {
        test.set_faults(|_| {});
        let (id, address) = test.login(&mut alice, false, ALICE).await;
        test.set_faults(change);
        let answer = test.bring(&mut alice, &id, &address).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let shown = answer.json();
        let failed = failed(&shown);
        assert_eq!((&failed["name"], &failed["code"], failed["answer"].as_str()), (&json!(step), &json!(code), word));
        for text in [&failed["detail"], &failed["advice"], &shown["next"]] {
            assert!(text.as_str().unwrap().ends_with('.'), "{shown}");
        }
    }
    // One address is enough, and the steps that succeeded are not repeated.
    test.set_faults(|_| {});
    let before = test.sites.counts();
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    let answer = test.bring(&mut alice, &id, &address).await;
    assert_eq!(states(&answer.json()), ["done"; 7], "{}", answer.text());
    let after = test.sites.counts();
    assert_eq!((after.check_ins, after.expo_tokens), (before.check_ins, before.expo_tokens));
    assert_eq!(after.violations, Vec::<String>::new());
}

#[actix_web::test]
async fn a_fresh_device_that_google_does_not_know_yet_is_waited_for() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    test.set_faults(|faults| (faults.not_yet, faults.unavailable) = (2, 1));
    test.bring(&mut alice, &id, &address).await;
    let path = format!("{PATH}/{id}");
    alice.get_until(&path, |shown| states(shown) == ["done"; 7]).await;
    assert_eq!((test.sites.counts().check_ins, test.sites.counts().addresses), (1, 3));
}

/// Slow, as each answer waits for its steps.
#[actix_web::test]
async fn users_who_wait_for_google_keep_out_no_others() {
    let test = RegistrationTest::start().await;
    test.set_faults(|faults| faults.not_yet = u32::MAX);
    let test = &test;
    let waiting = (0..9_u64).map(|number| async move {
        let player = 76_561_198_000_000_100 + number;
        let mut user = test.app.signed_in(&player.to_string()).await;
        let opened = user.post(PATH, Some(&json!({ "renew": false }))).await.json();
        let answer = test.bring(&mut user, opened["id"].as_str().unwrap(), &test.sites.token(player)).await;
        states(&answer.json()).contains(&"running")
    });
    assert_eq!(join_all(waiting).await, [true; 9]);
    test.set_faults(|_| {});
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    let answer = test.bring(&mut alice, &id, &address).await;
    assert_eq!(states(&answer.json()), ["done"; 7], "{}", answer.text());
}

/// A first login that fails and may succeed later, and a second one with another answer.
async fn answer_twice(first: bool, second: bool) {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, first, ALICE).await;
    test.set_faults(|faults| faults.game_status = Some(500));
    test.bring(&mut alice, &id, &address).await;
    let shown = alice.get_until(format!("{PATH}/{id}"), |shown| states(shown).contains(&"failed")).await;
    assert!(failed(&shown)["code"] == "game_unavailable" && shown["continuesAt"].is_string(), "{shown}");
    let (id, address) = test.login(&mut alice, second, ALICE).await;
    let shown = alice.get(&format!("{PATH}/{id}")).await.json();
    let waits = (states(&shown)[0], &shown["renew"], &shown["continuesAt"]);
    assert_eq!(waits, ("waiting", &json!(false), &Value::Null), "{shown}");
    test.set_faults(|_| {});
    let shown = test.bring(&mut alice, &id, &address).await.json();
    assert_eq!((states(&shown), &shown["renew"]), (vec!["done"; 7], &json!(second)), "{shown}");
    assert_eq!(shown["continuesAt"].is_string(), second, "{shown}");
    assert_eq!((test.sites.counts().check_ins, test.sites.devices(alice_id()).len()), (1, 1));
}

#[actix_web::test]
async fn the_newest_answer_about_renewal_counts() {
    tokio::join!(answer_twice(true, false), answer_twice(false, true));
}

#[actix_web::test]
async fn an_address_that_comes_again_registers_nothing_more() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    for _ in 0..2 {
        assert_eq!(states(&test.bring(&mut alice, &id, &address).await.json()), ["done"; 7]);
    }
    assert_eq!(test.sites.counts().registrations, 1);
    // Each of these may make the service call others: there is a budget.
    loop {
        let answer = alice.post(PATH, Some(&json!({ "renew": true }))).await;
        if answer.status != 201 {
            answer.expect_problem(429, "rate_limited");
            break;
        }
    }
}

#[actix_web::test]
async fn what_is_refused_for_good_is_made_once_more() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    test.set_faults(|faults| faults.address_refused = Some("AUTHENTICATION_FAILED".to_owned()));
    let answer = test.bring(&mut alice, &id, &address).await.json();
    assert_eq!((&failed(&answer)["code"], test.sites.counts().check_ins), (&json!("google_push_address_refused"), 2));
    test.set_faults(|_| {});
    let (id, address) = test.login(&mut alice, false, ALICE).await;
    assert_eq!(states(&test.bring(&mut alice, &id, &address).await.json()), ["done"; 7]);
}

#[actix_web::test]
async fn the_end_of_another_login_is_refused() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, false, BOB).await;
    let problem = test.bring(&mut alice, &id, &address).await.expect_problem(400, "mismatched_platform_id");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(ALICE) && detail.contains(BOB), "{detail}");

    let (second, good) = test.login(&mut alice, false, ALICE).await;
    test.bring(&mut alice, &id, &address).await.expect_problem(404, "not_found");
    let cut = &good[..good.len() - 130];
    for wrong in [address.as_str(), "https://steamcommunity.com/", "http://localhost:1/?steamId=1", cut, "a.b"] {
        test.bring(&mut alice, &second, wrong).await.expect_problem(400, "invalid_login_address");
    }
    // The site refuses to return to anything but this machine.
    test.set_faults(|faults| faults.app_page_only = true);
    let opened = alice.post(PATH, Some(&json!({ "renew": false }))).await.json();
    let login = opened["loginUrl"].as_str().unwrap();
    let page = companion::simulator::registration::browser::sign_in(login, alice_id()).await.unwrap().unwrap_err();
    assert!(page.contains("Failed to send login message"), "{page}");

    let third = opened["id"].as_str().unwrap().to_owned();
    let mut bob = test.app.signed_in(BOB).await;
    bob.get(&format!("{PATH}/{third}")).await.expect_problem(404, "not_found");
    test.bring(&mut bob, &third, &good).await.expect_problem(404, "not_found");
    // A bare token does as well, and an old one does not.
    let token = test.sites.token(alice_id());
    test.advance(TimeDelta::hours(1));
    test.bring(&mut alice, &third, &token).await.expect_problem(410, "registration_closed");
    test.set_faults(|_| {});
    let (id, _) = test.login(&mut alice, false, ALICE).await;
    assert_eq!(test.bring(&mut alice, &id, &token).await.status, 200);
    let old = test.sites.token(alice_id());
    test.advance(TimeDelta::days(14));
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, _) = test.login(&mut alice, false, ALICE).await;
    test.bring(&mut alice, &id, &old).await.expect_problem(400, "login_expired");
}

/// The process ends while a step hangs; what was made before is not made again.
async fn end_during(step: &'static str, shown_as: &'static str) {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let (id, address) = test.login(&mut alice, true, ALICE).await;
    test.set_faults(|faults| faults.hangs = Some(step.to_owned()));
    let answer = test.bring(&mut alice, &id, &address).await.json();
    let running = answer["steps"].as_array().unwrap().iter().find(|step| step["state"] == "running").unwrap();
    assert_eq!(running["name"], shown_as, "{answer}");
    let request = alice.request(Method::POST, &format!("{PATH}/{id}")).json(&json!({ "address": address }));
    alice.send(request).await.expect_problem(409, "registration_running");
    alice.post(PATH, Some(&json!({ "renew": false }))).await.expect_problem(409, "registration_running");
    // The request that hangs is never answered; the next one is.
    test.set_faults(|_| {});
    let test = test.restart().await;
    let mut alice = test.app.again(&alice);
    alice.get_until(format!("{PATH}/{id}"), |shown| states(shown) == ["done"; 7]).await;
    let counts = test.sites.counts();
    let counted = [counts.check_ins, counts.installations, counts.addresses, counts.expo_tokens, counts.registrations];
    assert_eq!(counted, [1; 5], "{step}");
}

#[actix_web::test]
async fn no_step_is_repeated_after_an_end_during_the_check_in() {
    end_during("check_in", "google_check_in").await;
}

#[actix_web::test]
async fn no_step_is_repeated_after_an_end_during_the_installation() {
    end_during("installation", "google_installation").await;
}

#[actix_web::test]
async fn no_step_is_repeated_after_an_end_before_the_push_address() {
    end_during("push_address", "google_push_address").await;
}

#[actix_web::test]
async fn no_step_is_repeated_after_an_end_before_the_expo_token() {
    end_during("expo_token", "expo_token").await;
}

#[actix_web::test]
async fn no_step_is_repeated_after_an_end_during_the_registration() {
    end_during("game_registration", "game_registration").await;
}

#[actix_web::test]
async fn a_helper_device_alone_gets_the_game_s_app() {
    let test = RegistrationTest::start().await;
    let mut alice = test.app.signed_in(ALICE).await;
    let mut helper = test.app.paired(&mut alice).await;
    let request = helper.request(Method::GET, "/credentials/push/app");
    let answer = helper.send(request).await;
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let expected = json!({ "apiKey": SIMULATED_API_KEY, "project": "rust-companion-app", "senderId": "976529667804",
        "appId": "1:976529667804:android:d6f1ddeb4403b338fea619", "package": "com.facepunch.rust.companion",
        "certificate": "E28D05345FB78A7A1A63D70F4A302DBF426CA5AD",
        "expoProject": "49451aca-a822-41e6-ad59-955718d0ff9c" });
    assert_eq!(answer.json(), expected);
    alice.get("/credentials/push/app").await.expect_problem(401, "unauthenticated");
    for path in ["/credentials/push", "/me", "/client-config"] {
        assert!(!alice.get(path).await.text().contains(SIMULATED_API_KEY), "{path}");
    }
    let device = helper.id.clone();
    assert_eq!(alice.delete(&format!("/pairing/device/{device}")).await.status, 200);
    let request = helper.request(Method::GET, "/credentials/push/app");
    assert_eq!(helper.send(request).await.status, 401, "a device that was deleted");

    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let mut helper = app.paired(&mut alice).await;
    let request = helper.request(Method::GET, "/credentials/push/app");
    helper.send(request).await.expect_problem(503, "registration_disabled");
}

#[actix_web::test]
async fn without_the_key_of_the_app_there_is_no_registration() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let problem = alice.post(PATH, Some(&json!({ "renew": true }))).await.expect_problem(503, "registration_disabled");
    assert!(problem["detail"].as_str().unwrap().contains("registration tool"));
    alice.get(&format!("{PATH}/x")).await.expect_problem(503, "registration_disabled");
}

#[actix_web::test]
async fn an_uploaded_bundle_ends_the_renewals_of_the_one_before() {
    let test = RegistrationTest::start().await;
    let (mut alice, _) = test.registered(true).await;
    let mut helper = test.app.paired(&mut alice).await;
    let state = helper.request(Method::GET, "/credentials/push");
    assert!(helper.send(state).await.json()["state"].is_string());
    test.push.set_token(1, 2);
    session_is(&mut alice, "connected").await;
    let bundle = json!({ "platformId": ALICE, "gcm": { "androidId": "1", "securityToken": "2" } });
    assert_eq!(helper.upload(&bundle).await.status, 200);
    alice.get_until("/credentials/push", |shown| shown["staged"].is_null() && shown["state"] == "proven").await;
    test.advance(TimeDelta::minutes(1));
    let renewals = |shown: &Value| shown["registration"]["renew"] == false;
    let shown = alice.get_until("/credentials/push", renewals).await;
    assert_eq!(shown["registration"]["continuesAt"], Value::Null);
    assert_eq!(test.sites.counts().registrations, 1, "nothing is renewed for it");
    assert!(test.sites.devices(alice_id()).is_empty(), "nothing is sent to the device");
}
