//! Emergencies at Pushover: they repeat there, and end with an acknowledgement here.

use chrono::Duration;
use serde_json::{Value, json};

use super::{Base, RECEIPT, Received, add, base};

async fn add_pushover(base: &mut Base) {
    let url = base.receiver.url("");
    add(
        &mut base.alice,
        &json!({ "kind": "pushover", "name": "Phone", "url": url, "token": "app", "recipient": "user" }),
    )
    .await;
}

/// The path of the link in an emergency.
fn ack_path(message: &Value) -> String {
    let url = message["url"].as_str().unwrap();
    url[url.find("/a/").unwrap()..].to_owned()
}

fn is_cancellation(received: &Received) -> bool {
    assert_eq!(received.path, format!("/1/receipts/{RECEIPT}/cancel.json"));
    received.header("content-type") == "application/x-www-form-urlencoded" && received.body == b"token=app"
}

/// Waits until the message about the only incident is stored as taken.
async fn taken(base: &mut Base) {
    let alarms = base.alice.get(&format!("/paired-servers/{}/alarms", base.server)).await.json();
    let incident = alarms["alarms"][0]["incident"].as_str().unwrap().to_owned();
    let path = format!("/paired-servers/{}/alarms/{incident}/deliveries", base.server);
    base.alice.get_until(&path, |list| list["deliveries"][0]["state"] == "accepted").await;
}

#[actix_web::test]
async fn an_emergency_is_ended_once_its_alarm_is_acknowledged_also_after_a_restart() {
    let mut base = base().await;
    add_pushover(&mut base).await;
    drop(base.raid().await);
    let message = base.receiver.next().await.json();
    assert_eq!((&message["priority"], &message["retry"], &message["expire"]), (&json!(2), &json!(60), &json!(180)));
    taken(&mut base).await;

    base.app = base.app.restart().await;
    base.alice = base.app.again(&base.alice);
    base.receiver.answer(&format!("/1/receipts/{RECEIPT}/cancel.json"), 503);
    assert_eq!(base.app.browser().post(&ack_path(&message), None).await.status, 200);
    assert!(is_cancellation(&base.receiver.next().await));
    base.receiver.answer(&format!("/1/receipts/{RECEIPT}/cancel.json"), 200);
    let again = loop {
        tokio::select! {
            again = base.receiver.next() => break again,
            _ = base.alice.get("/channels") => base.app.clock.advance(Duration::seconds(1)),
        }
    };
    assert!(is_cancellation(&again), "it did not answer before");
    base.drill().await;
    assert_eq!(base.receiver.next().await.json()["priority"], 1, "it is ended once");
}

#[actix_web::test]
async fn an_emergency_that_has_expired_is_left_alone() {
    let mut base = base().await;
    add_pushover(&mut base).await;
    let client = base.raid().await;
    let message = base.receiver.next().await.json();
    taken(&mut base).await;
    base.app.clock.advance(Duration::seconds(179));
    drop(client);
    base.app.clock.advance(Duration::seconds(2));
    // The second round, whose emergency rings.
    assert_eq!(base.receiver.next().await.json()["priority"], 2);
    base.app.clock.advance(Duration::seconds(170));
    assert_eq!(base.app.browser().post(&ack_path(&message), None).await.status, 200);
    assert!(is_cancellation(&base.receiver.next().await));
    base.drill().await;
    assert_eq!(base.receiver.next().await.json()["priority"], 1, "one of two was ended");
}
