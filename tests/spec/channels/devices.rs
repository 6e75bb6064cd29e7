//! A device that is paired while its user is away: they hear of it by their channels, and see it later.

use chrono::Duration;
use serde_json::{Value, json};

use super::{PRIVATE, Receiver, add_webhook};
use crate::harness::{
    app::TestApp,
    browser::Browser,
    database::Postgres,
    game::{ALICE, BOB},
    helper::HelperDevice,
};

/// A device of the user of this browser.
async fn paired(app: &TestApp, browser: &mut Browser, label: &str) -> HelperDevice {
    let issued = browser.post("/pairing/device/code", Some(&json!({ "label": label }))).await.json();
    let mut device = HelperDevice::new(app.browser(), "");
    assert_eq!(device.activate(issued["code"].as_str().unwrap()).await.status, 200);
    device
}

async fn seen_at(browser: &mut Browser) -> Vec<Value> {
    let listed = browser.get("/pairing/device").await.json();
    listed["devices"].as_array().unwrap().iter().map(|device| device["seenAt"].clone()).collect()
}

async fn users_are_notified(app: TestApp) {
    let mut receiver = Receiver::start();
    let mut alice = app.signed_in(ALICE).await;
    add_webhook(&mut alice, &receiver, "/phone").await;
    let seen = paired(&app, &mut alice, "Known PC").await;
    paired(&app, &mut alice, "Unknown PC").await;
    let path = format!("/pairing/device/{}/seen", seen.id);
    app.signed_in(BOB).await.post(&path, None).await.expect_problem(404, "not_found");
    assert_eq!(alice.post(&path, None).await.status, 200);
    let at = "2026-11-21T12:00:00.000Z";
    assert_eq!(seen_at(&mut alice).await, [json!(at), Value::Null]);

    app.clock.advance(Duration::minutes(2));
    let message = receiver.next().await.json();
    assert_eq!(message["type"], "device.paired", "{message}");
    let data = &message["data"];
    assert_eq!(data["alarmName"], "Paired with your account: Unknown PC");
    assert_eq!((&data["firstAt"], &data["ackUrl"]), (&json!(at), &Value::Null), "{message}");
    alice.get_until("/channels", |list| list["channels"][0]["acceptedAt"].is_string()).await;
    assert_eq!(seen_at(&mut alice).await[1], Value::Null, "a channel is no eye");

    let app = app.restart().await;
    let mut alice = app.again(&alice);
    app.clock.advance(Duration::hours(2));
    let list = alice.get("/channels").await.json();
    let path = format!("/channels/{}/test", list["channels"][0]["id"].as_str().unwrap());
    assert_eq!(alice.post(&path, None).await.json()["accepted"], true);
    assert_eq!(receiver.next().await.json()["type"], "test", "it was not said again, and the other one not at all");
}

#[actix_web::test]
async fn a_new_device_is_announced_by_channels_until_it_is_seen() {
    users_are_notified(TestApp::start_with(&[PRIVATE]).await).await;
    let Some(database) = Postgres::create() else { return };
    users_are_notified(TestApp::start_on(database.url(), &[PRIVATE]).await).await;
}
