//! Emergencies at Pushover: they repeat there, and end with an acknowledgement here.

use chrono::Duration;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ALICE, Base, RECEIPT, Received, add, base};

/// Adds a channel; its id.
async fn add_pushover(base: &mut Base) -> String {
    let url = base.receiver.url("");
    let made = add(
        &mut base.alice,
        &json!({ "kind": "pushover", "name": "Phone", "url": url, "token": "app", "recipient": "user" }),
    )
    .await;
    made["id"].as_str().unwrap().to_owned()
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

/// The next message, however often the clock must move on for it.
async fn later(base: &mut Base) -> Received {
    loop {
        tokio::select! {
            next = base.receiver.next() => return next,
            _ = base.alice.get("/channels") => base.app.clock.advance(Duration::seconds(1)),
        }
    }
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
    assert!(is_cancellation(&later(&mut base).await), "it did not answer before");
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

#[actix_web::test]
async fn an_emergency_is_ended_when_its_channel_is_deleted_also_after_a_failure() {
    let mut base = base().await;
    let id = add_pushover(&mut base).await;
    drop(base.raid().await);
    assert_eq!(base.receiver.next().await.json()["priority"], 2);
    taken(&mut base).await;
    base.receiver.answer(&format!("/1/receipts/{RECEIPT}/cancel.json"), 503);
    assert_eq!(base.alice.delete(&format!("/channels/{id}")).await.status, 200);
    assert!(is_cancellation(&base.receiver.next().await));
    base.receiver.answer(&format!("/1/receipts/{RECEIPT}/cancel.json"), 200);
    assert!(is_cancellation(&later(&mut base).await), "it did not answer before");
}

#[actix_web::test]
async fn an_emergency_that_is_under_way_while_its_channel_is_deleted_is_ended() {
    let mut base = base().await;
    let id = add_pushover(&mut base).await;
    base.receiver.holds.send_replace(true);
    drop(base.raid().await);
    assert_eq!(base.receiver.next().await.json()["priority"], 2);
    assert_eq!(base.alice.delete(&format!("/channels/{id}")).await.status, 200);
    base.receiver.holds.send_replace(false);
    assert!(is_cancellation(&base.receiver.next().await));
}

#[actix_web::test]
async fn an_emergency_is_ended_when_its_user_is_erased() {
    let mut base = base().await;
    add_pushover(&mut base).await;
    drop(base.raid().await);
    assert_eq!(base.receiver.next().await.json()["priority"], 2);
    taken(&mut base).await;
    let erasure = base.alice.request(Method::DELETE, "/me").json(&json!({ "confirm": ALICE }));
    assert_eq!(base.alice.send(erasure).await.status, 200);
    assert!(is_cancellation(&base.receiver.next().await));
}
