//! Refunds, the charges to choose from, and payment events that wait.

use companion::simulator::payments::{PAYMENT_KEY, PaymentFaults};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{audited, start};
use crate::harness::{
    app::{ADA, ADMINS},
    binary,
    browser::Browser,
    payments::PaymentTest,
};

/// Alice has paid 700 cents; her charges' path and the charge.
pub async fn paid() -> (PaymentTest, Browser, String, Value) {
    let mut test = PaymentTest::start_with(&[ADMINS]).await;
    test.subscribe("OPERATOR").await;
    test.until(|subscription| subscription["tier"] == "OPERATOR").await;
    let mut ada = test.app.signed_in(ADA).await;
    let id = test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/admin/users/{id}/charges");
    let charge = ada.get(&path).await.json()["charges"][0].clone();
    (test, ada, path, charge)
}

#[actix_web::test]
async fn a_charge_is_paid_back_once_and_the_log_names_the_admin() {
    let (mut test, mut ada, charges, charge) = paid().await;
    let id = charge["id"].as_str().unwrap().to_owned();
    assert_eq!(
        charge,
        json!({
            "id": id, "amount": 700, "amountRefunded": 0, "currency": "usd", "status": "succeeded",
            "paymentIntentId": charge["paymentIntentId"], "createdAt": "2026-11-21T12:00:00.000Z",
        })
    );
    let part = json!({ "chargeId": id, "amount": 200, "reason": "requested_by_customer" });
    let answer = ada.post("/admin/refund", Some(&part)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let refund = answer.json();
    assert_eq!(
        refund,
        json!({
            "id": refund["id"], "amount": 200, "currency": "usd", "status": "succeeded", "chargeId": id,
            "paymentIntentId": charge["paymentIntentId"], "userId": refund["userId"], "issuedBy": ADA, "issuedAt": "2026-11-21T12:00:00.000Z",
        })
    );
    assert!(refund["userId"].as_str().is_some_and(|user| charges.contains(user)), "{refund}");
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 200);
    let log = audited(&mut ada, 9).await;
    let [outcome, begun] = &log[..] else { panic!("{log:?}") };
    for entry in [outcome, begun] {
        assert_eq!((&entry["actor"], &entry["action"], &entry["target"]), (&json!(ADA), &json!("refund"), &json!(id)));
    }
    let asked = &begun["payload"]["asked"];
    assert_eq!((&begun["result"], &asked["amount"], &asked["currency"]), (&json!("begun"), &json!(200), &json!("usd")));
    assert_eq!(outcome["result"], "done");
    assert_eq!(outcome["payload"], json!({ "begun": "1", "after": refund }));

    let rest = json!({ "paymentIntentId": charge["paymentIntentId"] });
    let answer = ada.post("/admin/refund", Some(&rest)).await;
    assert_eq!((answer.status, &answer.json()["amount"]), (201, &json!(500)));
    ada.post("/admin/refund", Some(&rest)).await.expect_problem(409, "already_refunded");
    let listed = ada.get("/admin/refunds").await.json();
    let amounts: Vec<&Value> = listed["refunds"].as_array().unwrap().iter().map(|refund| &refund["amount"]).collect();
    assert_eq!(amounts, [500, 200]);
    assert_eq!(listed["refunds"][0]["userId"], refund["userId"]);
    assert_eq!(ada.all_pages("/admin/refunds", "refunds", 1).await.len(), 2);
    assert_eq!(ada.all_pages(&charges, "charges", 1).await.len(), 1);
    for path in ["/admin/refunds", &charges] {
        let refused = ada.get(&format!("{path}?before=re_unknown")).await;
        assert_eq!(refused.expect_problem(400, "invalid_request")["errors"][0]["path"], "before");
    }
    test.until(|subscription| subscription["tier"] == "OPERATOR").await;
}

#[actix_web::test]
async fn two_clicks_at_once_pay_back_once() {
    let (_test, mut ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge["id"], "amount": 200 });
    let mut twin = ada.clone();
    let (one, two) = tokio::join!(ada.post("/admin/refund", Some(&part)), twin.post("/admin/refund", Some(&part)));
    let refunded = ada.get(&charges).await.json()["charges"][0]["amountRefunded"].clone();
    // One that came after the other was done has paid back a second time, as two refunds in a row do.
    let same = one.status == 201 && two.status == 201 && one.json()["id"] == two.json()["id"];
    assert_eq!(refunded, if same { 200 } else { 400 }, "{} {}", one.text(), two.text());
}

#[actix_web::test]
async fn a_refund_whose_answer_was_lost_is_made_once_when_it_is_asked_for_again() {
    let (test, mut ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge["id"], "amount": 200 });
    test.provider.set_faults(PaymentFaults { lose_refunds: true, ..Default::default() });
    let lost = ada.post("/admin/refund", Some(&part)).await.expect_problem(503, "payment_provider_unavailable");
    let detail = lost["detail"].as_str().unwrap();
    assert!(detail.contains("it is not known whether the refund was made") && detail.contains("is safe"), "{detail}");
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 200, "it was made");
    let log = audited(&mut ada, 9).await;
    let unknown = json!({ "begun": "1", "after": { "error": "payment_provider_unavailable" } });
    assert_eq!((&log[0]["result"], &log[0]["payload"]), (&json!("unknown"), &unknown));

    test.provider.set_faults(PaymentFaults::default());
    test.advance(chrono::Duration::minutes(1));
    let answer = ada.post("/admin/refund", Some(&part)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.json()["issuedAt"], "2026-11-21T12:00:00.000Z", "the same refund");
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 200);
    let answer = ada.post("/admin/refund", Some(&part)).await;
    assert_eq!(
        answer.json()["issuedAt"],
        "2026-11-21T12:01:00.000Z",
        "what was answered is done, and this another one"
    );
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 400);
}

#[actix_web::test]
async fn a_refund_that_failed_at_the_bank_can_be_asked_for_again() {
    let (test, mut ada, charges, charge) = paid().await;
    // More than one page of the provider has.
    test.hold_events();
    let refund = form_urlencoded::Serializer::new(String::new())
        .append_pair("charge", charge["id"].as_str().unwrap())
        .append_pair("amount", "200")
        .finish();
    let (http, url) = (binary::http(), format!("{}/v1/refunds", test.provider.url()));
    for _ in 0..101 {
        let answer = http.post(&url).bearer_auth(PAYMENT_KEY).body(refund.clone()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        test.provider.fail_refund();
    }
    let of_payment = json!({ "paymentIntentId": charge["paymentIntentId"], "amount": 200 });
    let part = json!({ "chargeId": charge["id"], "amount": 200 });
    let mut ids = Vec::new();
    for part in [&part, &of_payment, &part] {
        let answer = ada.post("/admin/refund", Some(part)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        ids.push(answer.json()["id"].clone());
        assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 200);
        test.provider.fail_refund();
        assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 0);
        test.advance(chrono::Duration::minutes(1));
    }
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[2] != ids[0], "{ids:?}");

    // After one that failed, too, a lost answer is asked for with the same key.
    test.provider.set_faults(PaymentFaults { lose_refunds: true, ..Default::default() });
    ada.post("/admin/refund", Some(&part)).await.expect_problem(503, "payment_provider_unavailable");
    test.provider.set_faults(PaymentFaults::default());
    test.advance(chrono::Duration::minutes(1));
    assert_eq!(ada.post("/admin/refund", Some(&part)).await.status, 201);
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 200);
}

#[actix_web::test]
async fn what_cannot_be_paid_back_is_refused() {
    let (test, mut ada, _, charge) = paid().await;
    for (body, path) in [
        (json!({}), "chargeId"),
        (json!({ "chargeId": "a", "paymentIntentId": "b" }), "chargeId"),
        (json!({ "chargeId": "../prices" }), "chargeId"),
        (json!({ "chargeId": charge["id"], "amount": 0 }), "amount"),
        (json!({ "chargeId": charge["id"], "amount": 701 }), "amount"),
        (json!({ "chargeId": charge["id"], "amount": 1_000_000_000_000_i64 }), "amount"),
        (json!({ "chargeId": charge["id"], "reason": "sorry" }), "reason"),
    ] {
        let problem = ada.post("/admin/refund", Some(&body)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{problem}");
    }
    for unknown in [json!({ "chargeId": "ch_none" }), json!({ "paymentIntentId": "pi_none" })] {
        ada.post("/admin/refund", Some(&unknown)).await.expect_problem(404, "unknown_charge");
    }
    for limit in ["0", "101", "x"] {
        ada.get(&format!("/admin/refunds?limit={limit}")).await.expect_problem(400, "invalid_request");
    }
    ada.get("/admin/users/nobody/charges").await.expect_problem(404, "not_found");
    assert!(audited(&mut ada, 9).await.is_empty(), "nothing was begun");

    test.provider.set_faults(PaymentFaults { status: Some(500), ..Default::default() });
    let body = json!({ "chargeId": charge["id"] });
    ada.post("/admin/refund", Some(&body)).await.expect_problem(503, "payment_provider_unavailable");
    ada.get("/admin/refunds").await.expect_problem(503, "payment_provider_unavailable");
}

#[actix_web::test]
async fn without_a_provider_nothing_is_paid_back() {
    let (_app, mut ada) = start().await;
    let id = ada.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    ada.post("/admin/refund", Some(&json!({ "chargeId": "ch_1" }))).await.expect_problem(503, "payments_disabled");
    for path in ["/admin/refunds".to_owned(), format!("/admin/users/{id}/charges")] {
        ada.get(&path).await.expect_problem(503, "payments_disabled");
    }
}

#[actix_web::test]
async fn one_who_never_paid_has_no_charges() {
    let (_test, mut ada, ..) = paid().await;
    let id = ada.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(ada.get(&format!("/admin/users/{id}/charges")).await.json(), json!({ "charges": [], "next": null }));
}

#[actix_web::test]
async fn an_event_that_waits_is_seen() {
    let test = PaymentTest::start_with(&[ADMINS]).await;
    let mut ada = test.app.signed_in(ADA).await;
    assert_eq!(
        ada.get("/admin/payment-events?state=parked").await.json(),
        json!({ "total": 0, "events": [], "next": null })
    );
    test.hold_events();
    test.provider.subscribe("cus_stranger", None, "price_scout");
    let events = test.provider.events();
    let event = events.iter().find(|event| event["type"] == "customer.subscription.updated").unwrap();
    assert_eq!(test.outcome(event).await, "parked");
    let list = ada.get("/admin/payment-events").await.json();
    assert_eq!((&list["total"], &list["events"][0]["id"]), (&json!(1), &event["id"]));
    let shown = &list["events"][0];
    assert_eq!((&shown["state"], &shown["customerId"]), (&json!("parked"), &json!("cus_stranger")));
    assert!(shown["reason"].is_string() && shown["nextAttemptAt"].is_string(), "{shown}");
    ada.get("/admin/payment-events?state=applied").await.expect_problem(400, "invalid_request");
}

#[actix_web::test]
async fn a_member_is_found_by_what_the_provider_calls_them() {
    let (test, mut ada, charges, _) = paid().await;
    let id = charges.split('/').nth(3).unwrap().to_owned();
    let detail = ada.get(&format!("/admin/users/{id}")).await.json()["user"].clone();
    let (subscription, customer) = (&detail["subscription"]["paymentSubscriptionId"], &detail["paymentCustomerId"]);
    let provided = test.provider.subscription(subscription.as_str().unwrap()).unwrap();
    assert_eq!(provided["customer"], *customer);
    assert_eq!(detail["subscription"]["source"], "paid");
    for named in [subscription, customer] {
        for path in ["/admin/users", "/admin/users/overview"] {
            let found = ada.get(&format!("{path}?q={}", named.as_str().unwrap())).await.json();
            assert_eq!(found["users"].as_array().unwrap().len(), 1, "{path} {found}");
            assert_eq!(found["users"][0]["id"], *id);
        }
        let found = ada.get(&format!("/admin/users?q={}&offset=1", named.as_str().unwrap())).await.json();
        assert_eq!((&found["total"], &found["users"]), (&json!(1), &json!([])));
    }
    assert_eq!(ada.get("/admin/users?q=cus_none").await.json()["total"], 0);
    let list = ada.get("/admin/users").await.json();
    let sources: Vec<&Value> =
        list["users"].as_array().unwrap().iter().map(|user| &user["subscription"]["source"]).collect();
    assert_eq!(sources, [&Value::Null, &json!("paid")]);
}

#[actix_web::test]
async fn a_refund_of_a_customer_who_is_no_member_says_so() {
    let (test, mut ada, ..) = paid().await;
    test.hold_events();
    test.provider.subscribe("cus_stranger", None, "price_scout");
    let answer = binary::http().get(format!("{}/v1/charges?customer=cus_stranger", test.provider.url()));
    let charged: Value = answer.bearer_auth(PAYMENT_KEY).send().await.unwrap().json().await.unwrap();
    let refund = ada.post("/admin/refund", Some(&json!({ "chargeId": charged["data"][0]["id"] }))).await.json();
    assert_eq!((&refund["amount"], &refund["userId"]), (&json!(300), &Value::Null));
    let list = ada.get("/admin/refunds").await.json();
    assert_eq!((&list["refunds"][0]["id"], &list["refunds"][0]["userId"]), (&refund["id"], &Value::Null));
}
