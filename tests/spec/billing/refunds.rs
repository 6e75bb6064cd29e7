//! The client's refunds, which admins issue.

use companion::{
    clients::{
        http,
        payments::{PaymentsClient, PaymentsError, RefundOf, RefundRequest},
    },
    crypto::random::Random,
    net::tls_config,
};
use serde_json::Value;

use crate::harness::{
    app::TestApp,
    binary,
    payments::{PaymentTest, flags, provider},
};

#[actix_web::test]
async fn a_refund_names_who_issued_it_and_is_made_once_for_a_key() {
    let mut test = PaymentTest::start().await;
    test.subscribe("OPERATOR").await;
    let client = client(&test.provider);
    let charges: Value = binary::http()
        .get(format!("{}/v1/charges", test.provider.url()))
        .bearer_auth(companion::simulator::payments::PAYMENT_KEY)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let (charge, payment) =
        (charges["data"][0]["id"].as_str().unwrap(), charges["data"][0]["payment_intent"].as_str().unwrap());
    let request = RefundRequest {
        of: RefundOf::Charge(charge),
        amount: Some(200),
        reason: Some("requested_by_customer"),
        issued_by: "76561198000000009",
        issued_at: "2026-11-21T12:00:00.000Z",
        idempotency_key: "refund-1",
    };
    let refund = client.refund(&request).await.unwrap();
    assert_eq!((refund.amount, refund.currency.as_str(), refund.status.as_str()), (200, "usd", "succeeded"));
    assert_eq!(refund.charge.as_deref(), Some(charge));
    assert_eq!(refund.issued_by.as_deref(), Some("76561198000000009"));
    assert_eq!(refund.issued_at.as_deref(), Some("2026-11-21T12:00:00.000Z"));
    assert_eq!(client.refund(&request).await.unwrap(), refund, "the same key");
    let rest =
        RefundRequest { of: RefundOf::PaymentIntent(payment), amount: None, idempotency_key: "refund-2", ..request };
    let second = client.refund(&rest).await.unwrap();
    assert_eq!(second.amount, 500);
    let none_left = RefundRequest { idempotency_key: "refund-3", ..rest };
    match client.refund(&none_left).await {
        Err(PaymentsError::Refused { status: 400, code }) => assert_eq!(code, "charge_already_refunded"),
        other => panic!("{other:?}"),
    }
    let unknown = RefundRequest { of: RefundOf::Charge("ch_none"), idempotency_key: "refund-4", ..none_left };
    match client.refund(&unknown).await {
        Err(PaymentsError::Unknown { param }) => assert_eq!(param.as_deref(), Some("charge")),
        other => panic!("{other:?}"),
    }
    let listed: Vec<String> = client.refunds(None, 20).await.unwrap().0.into_iter().map(|refund| refund.id).collect();
    assert_eq!(listed, [second.id, refund.id]);
    // A refund changes no tier.
    test.until(|subscription| subscription["tier"] == "OPERATOR").await;
}

fn client(provider: &companion::simulator::payments::PaymentService) -> PaymentsClient {
    let directory = tempfile::TempDir::new().unwrap();
    let mut flags = flags(provider);
    flags.push(format!("--data-dir={}", directory.path().display()));
    let settings = binary::config(&flags).payments.unwrap();
    PaymentsClient::new(http::client(tls_config(None).unwrap()).unwrap(), settings, Random::system())
}

#[actix_web::test]
async fn prices_are_read_and_a_start_does_not_wait_for_them() {
    let provider = provider().await;
    let price = client(&provider).price("price_overlord").await.unwrap();
    assert!(price.is_active && price.is_recurring);
    assert_eq!((price.amount, price.currency.as_str()), (Some(1_500), "usd"));
    let away = [
        "--payment-api-url=http://127.0.0.1:9",
        "--payment-secret-key=sk_test_1",
        "--payment-webhook-secret=whsec_1",
        "--payment-price-scout=a",
        "--payment-price-operator=b",
        "--payment-price-overlord=c",
    ];
    let app = TestApp::start_with(&away).await;
    assert_eq!(app.browser().get("/health").await.status, 200);
}
