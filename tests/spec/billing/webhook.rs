//! The provider's events: whose they are, what they do, and what happens to unexpected ones.

use companion::simulator::payments::{PaymentFaults, SubscriptionChange, WEBHOOK_SECRET};
use serde_json::{Value, json};

use crate::harness::{game::ALICE, payments::PaymentTest};

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[actix_web::test]
async fn only_the_provider_is_believed() {
    let test = PaymentTest::start().await;
    let event = json!({ "id": "evt_1", "object": "event", "type": "a.b", "data": { "object": {} } });
    let body = event.to_string();
    let right = test.provider.signature(&body);
    let old = {
        test.clock.advance(chrono::Duration::seconds(-301));
        let old = test.provider.signature(&body);
        test.clock.advance(chrono::Duration::seconds(301));
        old
    };
    let changed = format!("{body} ");
    for (sent, signatures) in [
        (&body, &[] as &[&str]),
        (&body, &["nonsense"]),
        (&body, &[&right.replace("v1=", "v0=")]),
        (&body, &[&right.replace("t=", "t=1")]),
        (&body, &[&old]),
        (&changed, &[&right]),
        (&body, &[&right, &right]),
    ] {
        let refused = test.deliver_as(sent, signatures).await;
        refused.expect_problem(400, "invalid_signature");
    }
    assert_eq!(test.outcome(&event).await, "ignored");
    assert_eq!(test.outcome(&event).await, "duplicate");
}

#[actix_web::test]
async fn what_cannot_be_read_is_refused() {
    let test = PaymentTest::start().await;
    let refused = |body: &str| {
        let (body, signature) = (body.to_owned(), test.provider.signature(body));
        let test = &test;
        async move { test.deliver_as(&body, &[&signature]).await }
    };
    refused("{").await.expect_problem(400, "malformed_json");
    let problem = refused(r#"{"id":"evt_1"}"#).await;
    assert_eq!(problem.expect_problem(400, "invalid_request")["errors"][0]["path"], "type");
    let bare = json!({ "id": "evt_1", "type": "customer.subscription.deleted", "data": { "object": {} } });
    let problem = refused(&bare.to_string()).await;
    assert_eq!(problem.expect_problem(400, "invalid_request")["errors"][0]["path"], "data.object");
    // Larger than any other body may be, and then too large.
    let padded = |bytes: usize| json!({ "id": "evt_2", "type": "a.b", "padding": "x".repeat(bytes) }).to_string();
    assert_eq!(refused(&padded(1_000_000)).await.status, 200);
    refused(&padded(1024 * 1024)).await.expect_problem(413, "body_too_large");
}

#[actix_web::test]
async fn any_of_several_secrets_may_have_signed() {
    let both = format!("--payment-webhook-secret=whsec_new,{WEBHOOK_SECRET}");
    let test = PaymentTest::start_with(&[&both]).await;
    assert_eq!(test.outcome(&json!({ "id": "evt_1", "type": "a.b" })).await, "ignored");
    let other = PaymentTest::start_with(&["--payment-webhook-secret=whsec_new"]).await;
    let refused = other.deliver(&json!({ "id": "evt_1", "type": "a.b" })).await;
    refused.expect_problem(400, "invalid_signature");
}

#[actix_web::test]
async fn every_event_is_taken_in_its_current_and_its_older_shape() {
    for older_shape in [false, true] {
        let mut test = PaymentTest::start().await;
        test.provider.set_faults(PaymentFaults { hold_events: true, older_shape, ..Default::default() });
        let id = test.subscribe("SCOUT").await;
        let events = test.provider.events();
        let made = ["customer.subscription.created", "customer.subscription.updated", "checkout.session.completed"];
        assert_eq!(kinds(&events), made);
        assert_eq!(test.outcome(&events[0]).await, "ignored", "of an unknown type");
        assert_eq!(test.outcome(&events[2]).await, "applied", "before the others");
        let subscription = test.subscription().await;
        assert_eq!((&subscription["tier"], &subscription["status"]), (&json!("SCOUT"), &json!("ACTIVE")));
        assert_eq!(subscription["currentPeriodEnd"], "2026-12-21T12:00:00.000Z");
        assert_eq!(test.outcome(&events[1]).await, "applied");
        assert_eq!(test.outcome(&events[1]).await, "duplicate");

        test.provider.change(&id, &SubscriptionChange::FailPayment);
        let events = test.provider.events();
        assert_eq!(kinds(&events[3..]), ["invoice.payment_failed", "customer.subscription.updated"]);
        assert_eq!(test.outcome(&events[3]).await, "applied");
        assert_eq!(test.subscription().await["status"], "PAST_DUE");

        test.provider.change(&id, &SubscriptionChange::End);
        let events = test.provider.events();
        assert_eq!(kinds(&events[5..]), ["customer.subscription.deleted"]);
        let asked = test.provider.asked();
        assert_eq!(test.outcome(&events[5]).await, "applied");
        assert_eq!(test.provider.asked(), asked, "an end needs no question");
        assert_eq!(test.subscription().await["status"], "CANCELED");
        // Nothing revives it.
        assert_eq!(test.outcome(&events[4]).await, "applied");
        assert_eq!(test.subscription().await["status"], "CANCELED");
        let trial = json!({ "id": "evt_t", "type": "customer.subscription.trial_will_end", "data": { "object": {} } });
        assert_eq!(test.outcome(&trial).await, "ignored");
    }
}

#[actix_web::test]
async fn what_ends_at_once_leaves_no_tier() {
    let mut test = PaymentTest::start().await;
    for cancelled_before in [false, true] {
        let id = test.subscribe("OPERATOR").await;
        test.until(|subscription| subscription["tier"] == "OPERATOR").await;
        if cancelled_before {
            test.provider.change(&id, &SubscriptionChange::Cancel);
        }
        test.provider.change(&id, &SubscriptionChange::End);
        let ended = test.until(|subscription| subscription["status"] == "CANCELED").await;
        assert_eq!(ended["tier"], Value::Null);
        assert_eq!(ended["currentPeriodEnd"], "2026-11-21T12:00:00.000Z");
        assert_eq!(ended["why"], json!(["The subscription to OPERATOR has ended."]));
    }
}

#[actix_web::test]
async fn what_was_cancelled_stays_until_the_end_of_its_period() {
    let mut test = PaymentTest::start().await;
    let id = test.subscribe("OPERATOR").await;
    test.until(|subscription| subscription["tier"] == "OPERATOR").await;
    test.provider.change(&id, &SubscriptionChange::EndWithPeriod);
    let ended = test.until(|subscription| subscription["status"] == "CANCELED").await;
    assert_eq!(ended["tier"], "OPERATOR");
    let why = ["The subscription to OPERATOR was cancelled; its tier stays until 2026-12-21T12:00:00.000Z."];
    assert_eq!(ended["why"], json!(why));
    test.advance(chrono::Duration::days(30));
    test.alice = test.app.signed_in(ALICE).await;
    let over = test.subscription().await;
    assert_eq!((&over["tier"], &over["status"]), (&Value::Null, &json!("CANCELED")));
}

#[actix_web::test]
async fn the_end_of_an_old_subscription_leaves_the_new_one() {
    let mut test = PaymentTest::start().await;
    test.hold_events();
    let old = test.subscribe("SCOUT").await;
    test.provider.change(&old, &SubscriptionChange::End);
    let new = test.subscribe("OVERLORD").await;
    let events = test.provider.events();
    let of = |id: &str, kind: &str| {
        let is = |event: &&Value| event["type"] == kind && event["data"]["object"]["id"] == id;
        events.iter().find(is).unwrap().clone()
    };
    test.outcome(&of(&new, "customer.subscription.updated")).await;
    test.outcome(&of(&old, "customer.subscription.deleted")).await;
    let subscription = test.subscription().await;
    assert_eq!((&subscription["tier"], &subscription["status"]), (&json!("OVERLORD"), &json!("ACTIVE")));
}

#[actix_web::test]
async fn events_of_the_other_mode_change_nothing() {
    let mut test = PaymentTest::start().await;
    test.hold_events();
    test.subscribe("SCOUT").await;
    let mut event = test.provider.events()[1].clone();
    event["livemode"] = json!(true);
    assert_eq!(test.outcome(&event).await, "ignored");
    assert_eq!(test.subscription().await["tier"], Value::Null);
}

#[actix_web::test]
async fn late_doubled_and_reversed_events_end_in_the_truth() {
    let mut test = PaymentTest::start().await;
    let faults = PaymentFaults { event_delay: 50, duplicates: 2, reversed: true, ..Default::default() };
    test.provider.set_faults(faults);
    let id = test.subscribe("SCOUT").await;
    test.provider.change(&id, &SubscriptionChange::FailPayment);
    test.provider.change(&id, &SubscriptionChange::PayAgain);
    test.provider.change(&id, &SubscriptionChange::Plan("price_operator".into()));
    test.provider.delivered().await;
    let subscription = test.subscription().await;
    assert_eq!((&subscription["tier"], &subscription["status"]), (&json!("OPERATOR"), &json!("ACTIVE")));
}
