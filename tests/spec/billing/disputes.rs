//! Disputes, and refunds that fail at the bank.

use companion::simulator::payments::PaymentFaults;
use serde_json::{Value, json};

use crate::harness::{
    app::{ADA, ADMINS},
    browser::Browser,
    payments::PaymentTest,
};

#[actix_web::test]
async fn a_dispute_is_shown_to_admins_and_a_lost_one_ends_the_tier() {
    let mut test = PaymentTest::start_with(&[ADMINS]).await;
    let id = test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    let mut ada = test.app.signed_in(ADA).await;
    let path = "/admin/payment-events?state=reported";
    assert_eq!(ada.get(path).await.json(), json!({ "total": 0, "events": [], "next": null }));
    for (status, count) in [("needs_response", 1), ("won", 2)] {
        test.provider.dispute(status);
        ada.get_until(path, move |list| list["total"] == count).await;
    }
    assert_eq!(test.subscription().await["status"], "ACTIVE");

    // While the provider does not answer, nothing is taken, and it sends the event again.
    test.hold_events();
    test.provider.take_held();
    test.provider.dispute("lost");
    let event = test.provider.take_held().pop().unwrap();
    test.provider.set_faults(PaymentFaults { status: Some(500), hold_events: true, ..Default::default() });
    test.deliver(&event).await.expect_problem(503, "unavailable");
    assert_eq!(ada.get(path).await.json()["total"], 2);
    test.hold_events();
    assert_eq!(test.outcome(&event).await, "applied");
    assert_eq!(test.outcome(&event).await, "duplicate");
    let ended = test.subscription().await;
    assert_eq!((&ended["tier"], &ended["status"]), (&json!(null), &json!("CANCELED")));
    assert_eq!(test.provider.subscription(&id).unwrap()["status"], "canceled");
    let list = ada.get(path).await.json();
    let reasons: Vec<_> = list["events"].as_array().unwrap().iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, ["dispute_lost", "dispute_closed", "dispute_opened"], "{list}");
    assert_eq!(ada.all_pages(path, "events", 2).await.len(), 3);
    let shown = &list["events"][0];
    assert_eq!((&shown["state"], &shown["chargeId"]), (&json!("reported"), &event["data"]["object"]["charge"]));
    let me = test.alice.get("/me").await.json();
    assert_eq!((&shown["userId"], &shown["kind"]), (&me["id"], &json!("charge.dispute.closed")));
    assert_eq!(shown["customerId"], test.provider.subscription(&id).unwrap()["customer"]);
}

/// A subscriber with one charge, an admin, and the id of the charge.
async fn paid_charge() -> (PaymentTest, Browser, Value) {
    let mut test = PaymentTest::start_with(&[ADMINS]).await;
    test.subscribe("SCOUT").await;
    test.until(|subscription| subscription["tier"] == "SCOUT").await;
    let mut ada = test.app.signed_in(ADA).await;
    let me = test.alice.get("/me").await.json()["id"].as_str().unwrap().to_owned();
    let charges = ada.get(&format!("/admin/users/{me}/charges")).await.json();
    let charge = charges["charges"][0]["id"].clone();
    (test, ada, charge)
}

#[actix_web::test]
async fn a_disputed_charge_is_not_paid_back() {
    let (test, mut ada, charge) = paid_charge().await;
    let refund = json!({ "chargeId": charge });
    test.provider.dispute("needs_response");
    for _ in 0..2 {
        ada.post("/admin/refund", Some(&refund)).await.expect_problem(409, "charge_disputed");
    }
}

#[actix_web::test]
async fn a_refund_that_the_bank_did_not_take_is_shown_to_admins() {
    let (mut test, mut ada, charge) = paid_charge().await;
    assert_eq!(ada.post("/admin/refund", Some(&json!({ "chargeId": charge }))).await.status, 201);
    test.provider.fail_refund();
    let path = "/admin/payment-events?state=reported";
    let list = ada.get_until(path, |list| list["total"] == 1).await;
    assert_eq!((&list["events"][0]["reason"], &list["events"][0]["chargeId"]), (&json!("refund_failed"), &charge));
    assert_eq!(test.subscription().await["tier"], "SCOUT");
}
