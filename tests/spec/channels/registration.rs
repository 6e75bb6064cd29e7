//! The end of a registration for the game's pushes: its user is warned before, and when it has come.

use chrono::Duration;
use serde_json::json;

use super::{PRIVATE, Receiver, add_webhook};
use crate::harness::{app::TestApp, browser::Browser, game::ALICE, helper::HelperDevice};

/// Says that the user knows of the device: no channel announces it.
async fn see(browser: &mut Browser, device: &HelperDevice) {
    assert_eq!(browser.post(&format!("/pairing/device/{}/seen", device.id), None).await.status, 200);
}

#[actix_web::test]
async fn the_end_of_a_registration_is_said_72_and_24_hours_before_and_when_it_comes() {
    let app = TestApp::start_with(&[PRIVATE]).await;
    let mut receiver = Receiver::start();
    let mut alice = app.signed_in(ALICE).await;
    add_webhook(&mut alice, &receiver, "/hook").await;
    let ends = app.clock.now() + Duration::days(5);
    let bundle = json!({ "platformId": ALICE, "gcm": { "androidId": "1", "securityToken": "2" },
        "expiresAt": ends.to_wire() });
    let mut helper = app.paired(&mut alice).await;
    see(&mut alice, &helper).await;
    assert_eq!(helper.upload(&bundle).await.status, 200);

    for (days, kind, says) in [
        (2, "registration.ends", "within three days"),
        (2, "registration.ends", "within a day"),
        (1, "registration.ended", "has ended"),
    ] {
        app.clock.advance(Duration::days(days));
        let received = receiver.next().await;
        let message = received.json();
        let data = &message["data"];
        assert_eq!((&message["type"], &data["kind"]), (&json!(kind), &json!("gap")), "{message}");
        assert!(data["alarmName"].as_str().unwrap().contains(says), "{message}");
        assert_eq!((&data["ackUrl"], &data["serverId"]), (&json!(null), &json!("")));
        assert_eq!(data["firstAt"].as_str().unwrap()[..16], ends.to_wire()[..16]);
    }
    // Nothing more comes of it: the next message is that of a test.
    app.clock.advance(Duration::hours(1));
    let channels = alice.get("/channels").await.json();
    let path = format!("/channels/{}/test", channels["channels"][0]["id"].as_str().unwrap());
    assert_eq!(alice.post(&path, None).await.json()["accepted"], true);
    assert_eq!(receiver.next().await.json()["type"], "test");
}

#[actix_web::test]
async fn a_warning_that_no_channel_took_is_sent_again_and_a_renewal_ends_it() {
    let app = TestApp::start_with(&[PRIVATE]).await;
    let mut receiver = Receiver::start();
    let mut alice = app.signed_in(ALICE).await;
    add_webhook(&mut alice, &receiver, "/hook").await;
    receiver.answer("/hook", 503);
    let upload = |days| {
        json!({ "platformId": ALICE, "gcm": { "androidId": "1", "securityToken": "2" },
            "expiresAt": (app.clock.now() + Duration::days(days)).to_wire() })
    };
    let mut helper = app.paired(&mut alice).await;
    see(&mut alice, &helper).await;
    assert_eq!(helper.upload(&upload(2)).await.status, 200);
    app.clock.advance(Duration::minutes(2));
    let first = receiver.next().await;
    alice.get_until("/channels", |list| list["channels"][0]["state"] == "failing").await;
    receiver.answer("/hook", 200);
    app.clock.advance(Duration::minutes(16));
    let again = receiver.next().await;
    assert_eq!(again.header("webhook-id"), first.header("webhook-id"));
    alice.get_until("/channels", |list| list["channels"][0]["state"] == "active").await;

    // Another bundle, with another end.
    assert_eq!(helper.upload(&upload(5)).await.status, 200);
    app.clock.advance(Duration::days(2));
    let next = receiver.next().await;
    assert!(next.json()["data"]["alarmName"].as_str().unwrap().contains("within three days"));
    assert_ne!(next.header("webhook-id"), first.header("webhook-id"));
}
