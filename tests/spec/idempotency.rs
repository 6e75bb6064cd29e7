//! `Idempotency-Key`: a request that is sent again has its effect once.

use std::{collections::BTreeSet, fs};

use chrono::Duration;
use companion::{api::routes, simulator::payments::PaymentFaults};
use futures_util::future::join_all;
use reqwest::{Method, header::ORIGIN};
use serde_json::{Value, json};

use crate::{
    harness::{
        app::{ADA, ADMINS, FRONTEND, TestApp},
        browser::{Answer, Browser},
        database::Postgres,
        game::{ALICE, BOB},
        on_each_database,
        payments::PaymentTest,
    },
    openapi::route_table,
};

/// A key of the least length with which the answer to an activation is given again.
const KEY: &str = "0123456789abcdef";

async fn post(browser: &mut Browser, path: &str, key: &str, body: &Value) -> Answer {
    let request = browser.request(Method::POST, path).header(ORIGIN, FRONTEND).header("idempotency-key", key);
    browser.send(request.json(body)).await
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

/// Alice's paired server.
async fn paired(alice: &mut Browser) -> String {
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
    let answer = alice.post("/paired-servers", Some(&pairing)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn note(x: i64) -> Value {
    json!({ "x": x, "y": 1, "category": "stash" })
}

on_each_database!(the_same_request_is_done_once_and_answered_alike, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let server = paired(&mut alice).await;
    let notes = format!("/intel/{server}/map-notes");
    let first = post(&mut alice, &notes, "one", &note(1)).await;
    assert!(first.status == 201 && !is_replayed(&first), "{}", first.text());
    for key in ["one", "\"one\""] {
        let again = post(&mut alice, &notes, key, &note(1)).await;
        assert!(again.status == 201 && is_replayed(&again), "{}", again.text());
        assert_eq!((again.text(), again.header("content-type")), (first.text(), first.header("content-type")));
    }
    let count = alice.get(&notes).await.json()["notes"].as_array().unwrap().len();
    assert_eq!(count, 1);

    // Another body or path with the key is a mistake; another user's key is another key.
    post(&mut alice, &notes, "one", &note(2)).await.expect_problem(422, "idempotency_key_reused");
    let guests = format!("/paired-servers/{server}/guests");
    let guest = json!({ "platformId": BOB });
    post(&mut alice, &guests, "one", &guest).await.expect_problem(422, "idempotency_key_reused");
    let mut bob = app.signed_in(BOB).await;
    let invited = post(&mut alice, &guests, "guest", &guest).await;
    assert_eq!(invited.status, 201, "{}", invited.text());
    let invite = json!({ "id": invited.json()["id"] });
    assert_eq!(bob.post("/guest-invites/accept", Some(&invite)).await.status, 200);
    let other = post(&mut bob, &notes, "one", &note(1)).await;
    assert!(other.status == 201 && !is_replayed(&other), "{}", other.text());
    assert_ne!(other.json()["id"], first.json()["id"]);

    // A refused request was not done: the key is free, also for a better request.
    post(&mut alice, &guests, "two", &guest).await.expect_problem(409, "conflict");
    assert_eq!(post(&mut alice, &notes, "two", &note(3)).await.status, 201);
    for bad in ["", "a b", "\u{e9}", &"k".repeat(256)] {
        let problem = post(&mut alice, &notes, bad, &note(4)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], "Idempotency-Key");
    }
    let key = |key: &'static str| alice.request(Method::POST, &notes).header("idempotency-key", key);
    let twice = key("a").header("idempotency-key", "b").json(&note(4));
    alice.send(twice).await.expect_problem(400, "invalid_request");
});

on_each_database!(of_many_at_once_one_does_it, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let server = paired(&mut alice).await;
    let notes = format!("/intel/{server}/map-notes");
    let answers = join_all((0..8).map(|_| {
        let (mut browser, notes) = (alice.clone(), notes.clone());
        async move { post(&mut browser, &notes, "one", &note(1)).await }
    }));
    let answers = answers.await;
    let bodies: BTreeSet<String> = answers.iter().map(Answer::text).collect();
    assert!(bodies.len() == 1 && answers.iter().all(|answer| answer.status == 201), "{bodies:?}");
    assert_eq!(answers.iter().filter(|answer| !is_replayed(answer)).count(), 1);
    assert_eq!(alice.get(&notes).await.json()["notes"].as_array().unwrap().len(), 1);
});

#[actix_web::test]
async fn what_is_shown_once_is_shown_again_to_its_caller_and_kept_sealed() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let server = paired(&mut alice).await;
    let code = post(&mut alice, "/pairing/device/code", "code", &json!({})).await;
    let again = post(&mut alice, "/pairing/device/code", "code", &json!({})).await;
    assert!(is_replayed(&again) && again.text() == code.text());

    // The answer to an activation is lost: the code is used up, and the token was never shown.
    let mut helper = app.browser();
    let typed = json!({ "code": code.json()["code"] });
    let activated = post(&mut helper, "/pairing/device/activate", KEY, &typed).await;
    assert_eq!(activated.status, 200, "{}", activated.text());
    let again = post(&mut helper, "/pairing/device/activate", KEY, &typed).await;
    assert!(is_replayed(&again) && again.text() == activated.text());
    for (key, body) in [("another-key-of-16", &typed), (KEY, &json!({ "code": "LINK-2222" }))] {
        let refused = post(&mut helper, "/pairing/device/activate", key, body).await;
        refused.expect_problem(401, "invalid_pairing_code");
    }

    let link = json!({ "link": true });
    let guests = format!("/paired-servers/{server}/guests");
    let invited = post(&mut alice, &guests, "link", &link).await;
    assert_eq!(post(&mut alice, &guests, "link", &link).await.text(), invited.text());
    let secrets = [&activated.json()["token"], &invited.json()["token"], &code.json()["code"]];
    let secrets = secrets.map(|secret| secret.as_str().unwrap().to_owned());
    for file in fs::read_dir(app.directory()).unwrap().map(|file| file.unwrap().path()) {
        let bytes = if file.is_file() { fs::read(&file).unwrap() } else { continue };
        for secret in &secrets[..2] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{}", file.display());
        }
    }
}

/// Activates a device of this user; the answer, and what asks again.
async fn activated(app: &TestApp, user: &mut Browser) -> (Answer, Browser, Value) {
    let code = user.post("/pairing/device/code", None).await.json()["code"].take();
    let (mut helper, typed) = (app.browser(), json!({ "code": code }));
    let answer = post(&mut helper, "/pairing/device/activate", KEY, &typed).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    (answer, helper, typed)
}

#[actix_web::test]
async fn the_answer_to_an_activation_is_given_again_in_its_network_for_ten_minutes_under_a_long_key() {
    let app = TestApp::start_with(&["--trusted-proxies=127.0.0.1"]).await;
    let mut alice = app.signed_in(ALICE).await;
    let helper = app.browser();
    let activate = async |key: &str, network: &str, typed: &Value| {
        let request = helper.request(Method::POST, "/pairing/device/activate").header("idempotency-key", key);
        helper.clone().send(request.header("x-forwarded-for", network).json(typed)).await
    };
    let (home, short) = ("192.0.2.1", &KEY[..15]);
    let mut codes = Vec::new();
    for _ in 0..2 {
        codes.push(json!({ "code": alice.post("/pairing/device/code", None).await.json()["code"] }));
    }
    for (key, typed) in [(KEY, &codes[0]), (short, &codes[1])] {
        assert_eq!(activate(key, home, typed).await.status, 200);
    }
    assert!(is_replayed(&activate(KEY, home, &codes[0]).await));
    activate(KEY, "198.51.100.1", &codes[0]).await.expect_problem(401, "invalid_pairing_code");
    activate(short, home, &codes[1]).await.expect_problem(401, "invalid_pairing_code");
    app.clock.advance(chrono::Duration::minutes(10));
    activate(KEY, home, &codes[0]).await.expect_problem(401, "invalid_pairing_code");
}

on_each_database!(the_answer_to_an_activation_is_forgotten_with_its_device, |app| {
    let mut alice = app.signed_in(ALICE).await;
    let (removed, mut helper, typed) = activated(&app, &mut alice).await;
    let (kept, mut other, other_typed) = activated(&app, &mut alice).await;
    let device = format!("/pairing/device/{}", removed.json()["deviceId"].as_str().unwrap());
    assert_eq!(alice.delete(&device).await.status, 200);
    let again = post(&mut helper, "/pairing/device/activate", KEY, &typed).await;
    again.expect_problem(401, "invalid_pairing_code");
    let again = post(&mut other, "/pairing/device/activate", KEY, &other_typed).await;
    assert!(is_replayed(&again) && again.text() == kept.text(), "{}", again.text());

    let erasure = alice.request(Method::DELETE, "/me").json(&json!({ "confirm": ALICE }));
    assert_eq!(alice.send(erasure).await.status, 200);
    let again = post(&mut other, "/pairing/device/activate", KEY, &other_typed).await;
    again.expect_problem(401, "invalid_pairing_code");
});

#[actix_web::test]
async fn a_server_is_paired_once() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
    let first = post(&mut alice, "/paired-servers", "one", &pairing).await;
    let again = post(&mut alice, "/paired-servers", "one", &pairing).await;
    assert!(first.status == 201 && again.status == 201 && is_replayed(&again), "{}", again.text());
    assert_eq!(again.text(), first.text());
}

/// Alice has paid 700 cents; Ada is an admin.
async fn paid() -> (PaymentTest, Browser, String, String) {
    paid_on(None).await
}

/// A paid subscription on this database.
async fn paid_on(database_url: Option<String>) -> (PaymentTest, Browser, String, String) {
    let mut test = PaymentTest::start_on(database_url, &[ADMINS]).await;
    test.subscribe("OPERATOR").await;
    test.until(|subscription| subscription["tier"] == "OPERATOR").await;
    let mut ada = test.app.signed_in(ADA).await;
    let user = test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    let charges = format!("/admin/users/{user}/charges");
    let charge = ada.get(&charges).await.json()["charges"][0]["id"].as_str().unwrap().to_owned();
    (test, ada, charges, charge)
}

async fn refunded(ada: &mut Browser, charges: &str) -> Value {
    ada.get(charges).await.json()["charges"][0]["amountRefunded"].clone()
}

#[actix_web::test]
async fn two_equal_refunds_with_one_key_pay_back_once() {
    let (_test, mut ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge, "amount": 200 });
    let first = post(&mut ada, "/admin/refund", "one", &part).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let again = post(&mut ada, "/admin/refund", "one", &part).await;
    assert!(is_replayed(&again) && again.text() == first.text(), "{}", again.text());
    assert_eq!(refunded(&mut ada, &charges).await, 200);
    let log = ada.get("/admin/audit?action=refund").await.json();
    assert_eq!(log["total"], 2, "begun and done, once: {log}");
    let other = json!({ "chargeId": charge, "amount": 100 });
    post(&mut ada, "/admin/refund", "one", &other).await.expect_problem(422, "idempotency_key_reused");
    assert_eq!(post(&mut ada, "/admin/refund", "two", &part).await.status, 201);
    assert_eq!(refunded(&mut ada, &charges).await, 400, "another key is another refund");

    let rest = json!({ "chargeId": charge });
    assert_eq!(post(&mut ada, "/admin/refund", "rest", &rest).await.status, 201);
    assert!(is_replayed(&post(&mut ada, "/admin/refund", "rest", &rest).await), "though nothing is left");
    post(&mut ada, "/admin/refund", "more", &rest).await.expect_problem(409, "already_refunded");
    post(&mut ada, "/admin/refund", "more", &part).await.expect_problem(409, "already_refunded");
}

#[actix_web::test]
async fn clicks_at_once_with_one_key_pay_back_once() {
    let (_test, mut ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge, "amount": 200 });
    let answers = join_all((0..4).map(|_| {
        let (mut browser, part) = (ada.clone(), part.clone());
        async move { post(&mut browser, "/admin/refund", "one", &part).await }
    }));
    for answer in answers.await {
        match answer.status {
            201 => {}
            _ => drop(answer.expect_problem(409, "idempotency_key_in_use")),
        }
    }
    assert_eq!(refunded(&mut ada, &charges).await, 200);
}

#[actix_web::test]
async fn a_refund_whose_answer_was_lost_is_finished_with_its_key() {
    let (test, mut ada, charges, charge) = paid().await;
    // All of it: looked at again, there would be nothing left to pay back.
    let all = json!({ "chargeId": charge });
    test.provider.set_faults(PaymentFaults { lose_refunds: true, ..Default::default() });
    let lost = post(&mut ada, "/admin/refund", "one", &all).await;
    lost.expect_problem(503, "payment_provider_unavailable");
    test.provider.set_faults(PaymentFaults::default());
    let answer = post(&mut ada, "/admin/refund", "one", &all).await;
    assert_eq!((answer.status, &answer.json()["amount"]), (201, &json!(700)), "{}", answer.text());
    assert_eq!(refunded(&mut ada, &charges).await, 700);
    assert!(is_replayed(&post(&mut ada, "/admin/refund", "one", &all).await));
}

#[actix_web::test]
async fn a_refund_whose_process_ended_is_finished_by_the_next_one() {
    let (mut test, mut ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge, "amount": 200 });
    test.provider.set_faults(PaymentFaults { lose_refunds: true, ..Default::default() });
    post(&mut ada, "/admin/refund", "one", &part).await.expect_problem(503, "payment_provider_unavailable");
    assert_eq!(refunded(&mut ada, &charges).await, 200, "it was made");
    // The next attempt asks a provider that does not answer, and ends with its process.
    test.provider.set_faults(PaymentFaults { answer_delay: 60_000, ..Default::default() });
    let (asking, asked) = (ada.clone(), part.clone());
    let under_way = actix_web::rt::spawn(async move {
        let request = asking.request(Method::POST, "/admin/refund").header("idempotency-key", "one").json(&asked);
        request.header(ORIGIN, FRONTEND).send().await.is_ok()
    });
    loop {
        // Under way once the claim is taken over.
        let answer = post(&mut ada, "/admin/refund", "one", &part);
        if let Ok(answer) = tokio::time::timeout(std::time::Duration::from_millis(500), answer).await {
            answer.expect_problem(409, "idempotency_key_in_use");
            break;
        }
    }
    test.app = test.app.restart().await;
    under_way.abort();
    test.provider.set_faults(PaymentFaults::default());
    let mut ada = test.app.again(&ada);
    post(&mut ada, "/admin/refund", "one", &part).await.expect_problem(409, "idempotency_key_in_use");
    test.advance(Duration::seconds(61));
    let answer = post(&mut ada, "/admin/refund", "one", &part).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(refunded(&mut ada, &charges).await, 200, "the same refund");
}

/// Ada erases herself while her request is between its session and its key.
async fn erased_meanwhile(database_url: Option<String>) {
    let (test, mut ada, charges, charge) = paid_on(database_url).await;
    let part = json!({ "chargeId": charge, "amount": 200 });
    let asked = test.provider.asked();
    test.provider.set_faults(PaymentFaults { answer_delay: 60_000, ..Default::default() });
    let (mut asking, body) = (ada.clone(), part.clone());
    let under_way = actix_web::rt::spawn(async move { post(&mut asking, "/admin/refund", "one", &body).await });
    test.provider.asked_until(asked + 1).await;
    let erasure = ada.request(Method::DELETE, "/me").json(&json!({ "confirm": ADA }));
    assert_eq!(ada.send(erasure).await.status, 200);
    test.provider.set_faults(PaymentFaults::default());
    under_way.await.unwrap().expect_problem(401, "unauthenticated");

    // Nothing was done, and nothing kept.
    let mut ada = test.app.signed_in(ADA).await;
    assert_eq!(refunded(&mut ada, &charges).await, 0);
    let answer = post(&mut ada, "/admin/refund", "one", &part).await;
    assert!(answer.status == 201 && !is_replayed(&answer), "{}", answer.text());
}

#[actix_web::test]
async fn no_key_names_who_was_erased_on_sqlite() {
    erased_meanwhile(None).await;
}

#[actix_web::test]
async fn no_key_names_who_was_erased_on_postgres() {
    let Some(database) = Postgres::create() else { return };
    erased_meanwhile(Some(database.url())).await;
}

#[actix_web::test]
async fn a_checkout_is_opened_once() {
    let mut test = PaymentTest::start().await;
    let body = json!({ "tier": "SCOUT" });
    let first = post(&mut test.alice, "/billing/checkout", "one", &body).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let again = post(&mut test.alice, "/billing/checkout", "one", &body).await;
    assert!(is_replayed(&again) && again.text() == first.text());
    let session = |answer: &Answer| answer.json()["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    // Without the key it is another one, and only the last can be paid.
    let other = test.checkout("SCOUT").await;
    assert_ne!(other, session(&first));
    assert!(test.provider.pay(&session(&first)).is_none() && test.provider.pay(&other).is_some());
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    // Refused, and forgotten.
    for _ in 0..2 {
        post(&mut test.alice, "/billing/checkout", "two", &body).await.expect_problem(409, "already_subscribed");
    }
}

#[actix_web::test]
async fn the_document_lists_the_routes_that_take_a_key() {
    let app = TestApp::start_with(&[ADMINS]).await;
    let mut ada = app.signed_in(ADA).await;
    let document = ada.get("/openapi.json").await.json();
    // A server that does not exist might be noticed first.
    let server = paired(&mut ada).await;
    let mut taking = BTreeSet::new();
    for route in route_table() {
        // Ada stays signed in.
        let Some(path) = route.strip_prefix("POST ").filter(|path| *path != "/auth/signout") else { continue };
        let operation = &document["paths"][path]["post"];
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_listed = parameters.iter().any(|parameter| parameter["name"] == "Idempotency-Key");
        assert_eq!(is_listed, operation["responses"]["422"].is_object(), "{path}");
        let filled = path.replace("{id}", &server).replace("{serverId}", &server).replace(['{', '}'], "");
        let problem = post(&mut ada, &filled, "no key", &json!({})).await;
        let is_refused = problem.status == 400 && problem.json()["errors"][0]["path"] == "Idempotency-Key";
        assert_eq!(is_listed, is_refused, "{path}: {}", problem.text());
        if is_listed {
            taking.insert(path.to_owned());
        }
    }
    let keyed = routes::routes().iter().filter(|route| route.takes_key);
    assert_eq!(taking, keyed.map(|route| route.path.clone()).collect());
}
