//! A channel that is switched off: its user hears of it by the others.

use chrono::Duration;
use companion::domain::time::Timestamp;
use serde_json::json;

use super::{PRIVATE, Receiver, add_webhook};
use crate::harness::{app::TestApp, game::ALICE};

#[actix_web::test]
async fn a_channel_that_is_switched_off_is_named_once_by_the_others() {
    let app = TestApp::start_with(&[PRIVATE]).await;
    let mut receiver = Receiver::start();
    let mut alice = app.signed_in(ALICE).await;
    let broken = add_webhook(&mut alice, &receiver, "/broken").await["id"].as_str().unwrap().to_owned();
    add_webhook(&mut alice, &receiver, "/works").await;
    receiver.answer("/broken", 503);
    let path = format!("/channels/{broken}/test");
    let began = app.clock.now();
    for _ in 0..2 {
        for _ in 0..6 {
            assert_eq!(alice.post(&path, None).await.json()["accepted"], false);
            assert_eq!(receiver.next().await.path, "/broken");
        }
        app.clock.advance(Duration::hours(25));
    }
    assert_eq!(alice.get("/channels").await.json()["channels"][0]["state"], "disabled");
    let received = receiver.next().await;
    let message = received.json();
    let data = &message["data"];
    assert_eq!((&*received.path, &message["type"]), ("/works", &json!("channel.disabled")), "{message}");
    assert_eq!(data["alarmName"], "Alarms no longer reach you by /broken");
    let since = Timestamp::parse_rfc3339(data["firstAt"].as_str().unwrap()).unwrap();
    assert!((began..began + Duration::hours(1)).contains(&since) && data["ackUrl"].is_null(), "{message}");
    alice.get_until("/channels", |list| list["channels"][1]["acceptedAt"].is_string()).await;

    let app = app.restart().await;
    let mut alice = app.again(&alice);
    app.clock.advance(Duration::hours(2));
    let list = alice.get("/channels").await.json();
    let path = format!("/channels/{}/test", list["channels"][1]["id"].as_str().unwrap());
    assert_eq!(alice.post(&path, None).await.json()["accepted"], true);
    assert_eq!(receiver.next().await.json()["type"], "test", "it was not said again");
}
