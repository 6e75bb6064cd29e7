//! One refund of a charge at a time, and what becomes of one that may or may not have been made.

use companion::simulator::payments::PaymentFaults;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{audited, refunds::paid};
use crate::harness::browser::{Answer, Browser};

/// The results of the audit log's entries, the newest first.
async fn results(ada: &mut Browser) -> Vec<String> {
    audited(ada, 20).await.iter().map(|entry| entry["result"].as_str().unwrap().to_owned()).collect()
}

async fn keyed(ada: &mut Browser, key: &str, body: &Value) -> Answer {
    let request = ada.request(Method::POST, "/admin/refund").header("idempotency-key", key).json(body);
    ada.send(request).await
}

#[actix_web::test]
async fn while_a_refund_is_under_way_the_same_is_joined_and_another_is_refused() {
    let (test, mut ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge["id"], "amount": 200 });
    test.provider.set_faults(PaymentFaults { refund_delay: 60_000, ..Default::default() });
    let (mut one, mut two) = (ada.clone(), ada.clone());
    let clicks = async {
        tokio::join!(one.post("/admin/refund", Some(&part)), async {
            test.provider.refunded_until(1).await;
            let of_payment = json!({ "paymentIntentId": charge["paymentIntentId"], "amount": 200 });
            two.post("/admin/refund", Some(&of_payment)).await
        })
    };
    let others = async {
        test.provider.refunded_until(1).await;
        for other in [json!({ "amount": 100 }), json!({}), json!({ "amount": 200, "reason": "duplicate" })] {
            let mut body = json!({ "chargeId": charge["id"] });
            body.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
            let refused = ada.post("/admin/refund", Some(&body)).await.expect_problem(409, "refund_open");
            assert!(refused["detail"].as_str().unwrap().contains("entry 1 of the audit log"), "{refused}");
        }
        keyed(&mut ada, "another", &part).await.expect_problem(409, "refund_open");
        test.provider.set_faults(PaymentFaults::default());
    };
    let ((one, two), ()) = tokio::join!(clicks, others);
    assert_eq!((one.status, two.status), (201, 201), "{} {}", one.text(), two.text());
    assert_eq!(one.json(), two.json());
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 200);
    assert_eq!(results(&mut ada).await, ["done", "begun"]);
}

#[actix_web::test]
async fn each_key_is_a_refund_of_its_own_or_refused() {
    let (test, ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge["id"], "amount": 100 });
    let answers = join_all((0..6).map(|number| {
        let (mut ada, part) = (ada.clone(), part.clone());
        async move { keyed(&mut ada, &format!("key-{number}"), &part).await }
    }))
    .await;
    let mut ids: Vec<String> = Vec::new();
    for answer in &answers {
        match answer.status {
            201 => ids.push(answer.json()["id"].as_str().unwrap().to_owned()),
            _ => drop(answer.expect_problem(409, "refund_open")),
        }
    }
    ids.sort();
    ids.dedup();
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!((ids.len(), test.provider.refunds().len()), (made, made), "each has its own");
    let mut ada = ada.clone();
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 100 * made);
    // The refused ones can be made now, each once.
    for number in 0..6 {
        for _ in 0..2 {
            assert_eq!(keyed(&mut ada, &format!("key-{number}"), &part).await.status, 201, "{number}");
        }
    }
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 600);
}

#[actix_web::test]
async fn a_refund_whose_answer_was_lost_is_settled_by_itself_and_then_answered_once() {
    let (test, mut ada, charges, charge) = paid().await;
    let part = json!({ "chargeId": charge["id"], "amount": 200 });
    let with_reason = json!({ "chargeId": charge["id"], "amount": 200, "reason": "duplicate" });
    test.provider.set_faults(PaymentFaults { lose_refunds: true, ..Default::default() });
    ada.post("/admin/refund", Some(&part)).await.expect_problem(503, "payment_provider_unavailable");
    assert_eq!(results(&mut ada).await, ["unknown", "begun"]);
    test.provider.set_faults(PaymentFaults::default());
    ada.post("/admin/refund", Some(&with_reason)).await.expect_problem(409, "refund_open");
    assert_eq!(test.provider.refunds().len(), 1);

    test.advance(chrono::Duration::minutes(2));
    let log = ada.get_until("/admin/audit?limit=9", |log| log["entries"].as_array().unwrap().len() == 3).await;
    let outcome = &log["entries"][0];
    assert_eq!((&outcome["result"], &outcome["payload"]["begun"]), (&json!("done"), &json!("1")));
    assert_eq!(outcome["payload"]["after"]["id"], test.provider.refunds()[0]["id"]);
    // The admin has not seen that: the same again is the same refund, once.
    let again = ada.post("/admin/refund", Some(&part)).await;
    assert_eq!((again.status, &again.json()["id"]), (201, &test.provider.refunds()[0]["id"]));
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 200);
    assert_eq!(ada.post("/admin/refund", Some(&part)).await.status, 201);
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], 400);
}

#[actix_web::test]
async fn another_refund_is_refused_once_when_one_was_made_unseen() {
    let (test, mut ada, ..) = paid().await;
    let charge = ada.get("/admin/refunds").await.json();
    assert_eq!(charge["refunds"], json!([]));
    let (id, part) = {
        let me = test.alice.clone().get("/me").await.json()["id"].as_str().unwrap().to_owned();
        let charges = ada.get(&format!("/admin/users/{me}/charges")).await.json();
        let id = charges["charges"][0]["id"].clone();
        (id.clone(), json!({ "chargeId": id, "amount": 200 }))
    };
    test.provider.set_faults(PaymentFaults { lose_refunds: true, ..Default::default() });
    ada.post("/admin/refund", Some(&part)).await.expect_problem(503, "payment_provider_unavailable");
    test.provider.set_faults(PaymentFaults::default());
    test.advance(chrono::Duration::minutes(2));
    ada.get_until("/admin/audit?limit=9", |log| log["entries"].as_array().unwrap().len() == 3).await;
    let other = json!({ "chargeId": id, "amount": 100 });
    let refused = ada.post("/admin/refund", Some(&other)).await.expect_problem(409, "refund_open");
    assert!(refused["detail"].as_str().unwrap().contains("was made"), "{refused}");
    let made = ada.post("/admin/refund", Some(&other)).await.json();
    assert_eq!(made["amount"], 100);
    // The answer to the first request said that the same again is safe.
    let first = ada.post("/admin/refund", Some(&part)).await.json();
    assert_eq!((&first["amount"], first["id"] == made["id"]), (&json!(200), false));
    assert_eq!(test.provider.refunds().len(), 2);
    assert_eq!(ada.post("/admin/refund", Some(&part)).await.status, 201);
    assert_eq!(test.provider.refunds().len(), 3, "it was shown");
}

#[actix_web::test]
async fn a_key_of_its_own_is_refused_once_when_one_was_made_unseen() {
    let (test, mut ada, _, charge) = paid().await;
    let part = json!({ "chargeId": charge["id"], "amount": 200 });
    test.provider.set_faults(PaymentFaults { lose_refunds: true, ..Default::default() });
    keyed(&mut ada, "one", &part).await.expect_problem(503, "payment_provider_unavailable");
    test.provider.set_faults(PaymentFaults::default());
    test.advance(chrono::Duration::minutes(2));
    ada.get_until("/admin/audit?limit=9", |log| log["entries"].as_array().unwrap().len() == 3).await;
    keyed(&mut ada, "two", &part).await.expect_problem(409, "refund_open");
    assert_eq!(keyed(&mut ada, "one", &part).await.json()["id"], test.provider.refunds()[0]["id"]);
    assert_eq!(keyed(&mut ada, "two", &part).await.status, 201);
    assert_eq!(test.provider.refunds().len(), 2);
}

#[actix_web::test]
async fn an_answer_of_something_in_between_says_nothing_of_a_refund() {
    let (test, mut ada, charges, charge) = paid().await;
    for (number, status) in [201, 204, 302, 307, 400, 402, 404, 408, 413, 421].into_iter().enumerate() {
        let part = json!({ "chargeId": charge["id"], "amount": 10 + number });
        test.provider.set_faults(PaymentFaults { refund_answer: Some(status), ..Default::default() });
        ada.post("/admin/refund", Some(&part)).await.expect_problem(503, "payment_provider_unavailable");
        test.provider.set_faults(PaymentFaults::default());
        let answer = ada.post("/admin/refund", Some(&part)).await;
        assert_eq!(answer.status, 201, "{status}: {}", answer.text());
        assert_eq!(test.provider.refunds().len(), number + 1, "{status}");
    }
    let sum: usize = (10..20).sum();
    assert_eq!(ada.get(&charges).await.json()["charges"][0]["amountRefunded"], sum);
}
