//! Rules of users: kinds of events, quiet hours; and the proof that channels work.

use companion::{domain::limits::DRILLS_PER_USER, simulator::world::TEAM};

use super::*;

/// A webhook that Alice or Bob adds, and its id.
async fn hook(browser: &mut Browser, receiver: &Receiver, path: &str) -> String {
    add_webhook(browser, receiver, path).await["id"].as_str().unwrap().to_owned()
}

fn rules(steps: &Value, kinds: &[&str], quiet: &Value) -> Value {
    json!({
        "enabled": true, "steps": steps, "repeatSeconds": 180, "rounds": 10, "kinds": kinds, "quiet": quiet
    })
}

/// Quiet hours at the time of the app, of three hours.
fn quiet_now(app: &TestApp, raids_pierce: bool) -> Value {
    let at = |hours| (app.clock.now() + Duration::hours(hours)).format("%H:00").to_string();
    json!({ "from": at(-1), "to": at(2), "timeZone": "UTC", "raidsPierce": raids_pierce })
}

impl Base {
    async fn put_rules(&mut self, rules: &Value) {
        let put = self.alice.put(&format!("/paired-servers/{}/alarm-rules", self.server), rules).await;
        assert_eq!(put.status, 200, "{}", put.text());
    }

    /// Alice's dashboard, once the link is up.
    async fn dashboard(&mut self) -> RelayClient {
        let mut client = RelayClient::watching(&self.app, &mut self.alice, &self.server).await;
        client.until(&self.server, |state| is_complete(state, 0)).await;
        client
    }
}

#[actix_web::test]
async fn a_drill_names_each_channel_and_readiness_has_what_it_proved() {
    let mut base = base().await;
    let mut ids = Vec::new();
    for path in ["/works", "/broken", "/later", "/unused"] {
        ids.push(hook(&mut base.alice, &base.receiver, path).await);
    }
    base.receiver.answer("/broken", 401);
    let path = format!("/paired-servers/{}/readiness", base.server);
    let proofs = |readiness: &Value| -> Vec<Value> {
        readiness["channels"].as_array().unwrap().iter().map(|channel| channel["proof"].clone()).collect()
    };
    assert_eq!(proofs(&base.alice.get(&path).await.json()), ["untested"; 4]);
    let steps = json!([
        { "afterSeconds": 0, "channels": [ids[0], ids[1]] }, { "afterSeconds": 600, "channels": [ids[2]] }
    ]);
    base.put_rules(&rules(&steps, &["raid"], &Value::Null)).await;
    let drilled = base.alice.post(&format!("/paired-servers/{}/drill", base.server), None).await.json();
    let reached: Vec<(&str, &str)> = drilled["channels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|channel| (channel["name"].as_str().unwrap(), channel["reach"].as_str().unwrap()))
        .collect();
    // The channel that fails passes the drill on to the next one, which may have taken it by then.
    assert_eq!(reached[..2], [("/works", "accepted"), ("/broken", "failed")]);
    assert_eq!(reached[3], ("/unused", "unused"));
    let broken = &drilled["channels"][1];
    assert_eq!((&broken["status"], &broken["reason"]), (&json!(401), &json!("refused")));
    assert!(broken["advice"].as_str().unwrap().contains("token"));

    let proved = |readiness: &Value| proofs(readiness) == ["accepted", "failed", "accepted", "untested"];
    let readiness = base.alice.get_until(&path, proved).await;
    let channels = &readiness["channels"];
    assert_eq!((&channels[1]["reason"], &channels[3]["inRules"]), (&json!("refused"), &json!(false)));
    assert!(channels[0]["advice"].is_null() && channels[3]["advice"].as_str().unwrap().contains("Test it"));
    let incident = drilled["incident"].as_str().unwrap();
    let deliveries = format!("/paired-servers/{}/alarms/{incident}/deliveries", base.server);
    let listed = base.alice.get(&deliveries).await.json()["deliveries"].take();
    let states: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| (one["name"].clone(), one["state"].clone())).collect();
    assert_eq!(states.len(), 3, "{listed}");
    assert!(
        states.contains(&(json!("/broken"), json!("failed"))) && states.contains(&(json!("/later"), json!("accepted")))
    );
    let mut bob = base.app.signed_in(BOB).await;
    bob.get(&deliveries).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn an_event_that_is_wanted_is_sent_once_and_quietly_and_each_watcher_chooses() {
    let mut base = base().await;
    let mut bob = base.app.signed_in(BOB).await;
    share(&mut base.alice, &base.server, &mut bob).await;
    hook(&mut base.alice, &base.receiver, "/alice").await;
    hook(&mut bob, &base.receiver, "/bob").await;
    let _dashboard = base.dashboard().await;
    let path = format!("/paired-servers/{}/alarm-rules", base.server);
    let unknown = rules(&json!([]), &["raid", "dragon"], &Value::Null);
    bob.put(&path, &unknown).await.expect_problem(400, "invalid_request");
    let nowhere = json!({ "from": "22:00", "to": "06:00", "timeZone": "Europe/Nowhere" });
    let problem = bob.put(&path, &rules(&json!([]), &[], &nowhere)).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "quiet");
    let none = rules(&json!([]), &[], &Value::Null);
    let problem = bob.put(&path, &none).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "kinds", "no alarm would be sent, and nothing said it");
    base.put_rules(&rules(&json!([]), &["death", "raid"], &Value::Null)).await;
    let quiet = quiet_now(&base.app, true);
    let wanted = rules(&json!([]), &["death", "raid"], &quiet);
    assert_eq!(bob.put(&path, &wanted).await.json(), wanted);

    base.game.world(|world| world.kill(TEAM[2].0));
    base.app.clock.advance(Duration::seconds(30));
    let delivered = base.receiver.next().await;
    let message = delivered.json();
    assert_eq!(
        (&*delivered.path, &message["type"], &message["data"]["kind"]),
        ("/alice", &json!("event"), &json!("death"))
    );
    assert!(message["data"]["alarmName"].as_str().unwrap().starts_with(TEAM[2].1), "{message}");
    assert!(message["data"]["ackUrl"].is_null());

    // Bob's hours are quiet, and a raid pierces them. No one hears of the death again.
    base.app.clock.advance(Duration::seconds(400));
    drop(base.raid().await);
    for _ in 0..2 {
        assert_eq!(base.receiver.next().await.json()["data"]["alarmName"], BASE_ALARM.to_string());
    }
}

#[actix_web::test]
async fn discord_has_raids_apart_from_other_events() {
    let mut base = base().await;
    let (loud, quiet) = (base.receiver.url("/raids"), base.receiver.url("/rest"));
    add(&mut base.alice, &json!({ "kind": "discord", "name": "Discord", "url": loud, "quietUrl": quiet })).await;
    let _dashboard = base.dashboard().await;
    base.put_rules(&rules(&json!([]), &["death", "raid"], &Value::Null)).await;
    base.game.world(|world| world.kill(TEAM[2].0));
    base.app.clock.advance(Duration::seconds(30));
    assert_eq!(base.receiver.next().await.path, "/rest");
    drop(base.raid().await);
    assert_eq!(base.receiver.next().await.path, "/raids");
}

#[actix_web::test]
async fn discord_has_the_count_of_an_alarm_in_the_message_that_is_there() {
    let mut base = base().await;
    let (loud, quiet) = (base.receiver.url("/raids"), base.receiver.url("/rest"));
    add(&mut base.alice, &json!({ "kind": "discord", "name": "Discord", "url": loud, "quietUrl": quiet })).await;
    let mut client = base.raid().await;
    let first = base.receiver.next().await;
    assert_eq!((&*first.method, &*first.path), ("POST", "/raids"));
    base.alice.get_until("/channels", |list| list["channels"][0]["acceptedAt"].is_string()).await;
    let alarms = format!("/paired-servers/{}/alarms", base.server);
    for count in 2..=3 {
        base.game.world(|world| world.release_alarm(BASE_ALARM));
        client.until(&base.server, |state| state["devices"][BASE_ALARM.to_string()]["value"] == false).await;
        base.app.clock.advance(Duration::seconds(11));
        base.game.world(|world| world.fire_alarm(BASE_ALARM));
        base.alice.get_until(&alarms, |list| list["alarms"][0]["count"] == count).await;
        base.app.clock.advance(Duration::seconds(30));
        let edit = base.receiver.next().await;
        assert_eq!((&*edit.method, &edit.path), ("PATCH", &format!("/raids/messages/{MESSAGE}")));
        let embed = edit.json()["embeds"][0].take();
        assert!(embed["description"].as_str().unwrap().contains(&format!("{count} times")), "{embed}");
        assert_eq!(embed["color"], first.json()["embeds"][0]["color"]);
        // The message was deleted there: the channel works all the same, and the next edit is tried.
        base.receiver.answer(&format!("/raids/messages/{MESSAGE}"), 404);
    }
}

#[actix_web::test]
async fn a_drill_is_sent_in_quiet_hours_of_its_owner_and_wakes_no_guest_in_theirs() {
    let mut base = base().await;
    let mut bob = base.app.signed_in(BOB).await;
    share(&mut base.alice, &base.server, &mut bob).await;
    hook(&mut bob, &base.receiver, "/bob").await;
    let path = format!("/paired-servers/{}/alarm-rules", base.server);
    let pierced = quiet_now(&base.app, true);
    assert_eq!(bob.put(&path, &rules(&json!([]), &["raid"], &pierced)).await.status, 200);
    hook(&mut base.alice, &base.receiver, "/alice").await;
    let quiet = quiet_now(&base.app, false);
    base.put_rules(&rules(&json!([]), &["raid"], &quiet)).await;
    // A drill is asked for, and is sent.
    let drill = base.drill().await;
    let message = base.receiver.next().await;
    assert_eq!((&*message.path, &message.json()["data"]["incident"]), ("/alice", &json!(drill)));
    let deliveries = format!("/paired-servers/{}/alarms/{drill}/deliveries", base.server);
    bob.get_until(&deliveries, |listed| listed["deliveries"][0]["state"] == "suppressed").await;
    // One round, and no more than a few at once; the first one's place is free again by then.
    base.app.clock.advance(Duration::seconds(200));
    for _ in 0..DRILLS_PER_USER {
        let another = base.drill().await;
        let message = base.receiver.next().await;
        assert_eq!((&*message.path, &message.json()["data"]["incident"]), ("/alice", &json!(another)));
    }
    let path = format!("/paired-servers/{}/drill", base.server);
    base.alice.post(&path, None).await.expect_problem(429, "rate_limited");
    let readiness = base.alice.get(&format!("/paired-servers/{}/readiness", base.server)).await.json();
    assert_eq!(readiness["channels"][0]["inRules"], true);
    let stored = base.alice.get(&format!("/paired-servers/{}/alarm-rules", base.server)).await.json();
    assert_eq!(stored["quiet"], quiet);
}
