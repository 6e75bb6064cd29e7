//! Pushes to browsers, at a simulated push service that is as strict as the strictest real one. `tests/peers/web_push`
//! decrypts them by a third party's library.

use std::net::Ipv4Addr;

use chrono::Duration;
use companion::{
    crypto::random::Random,
    simulator::{
        browser_push::BrowserPushService, delivery_faults::DeliveryFaults, game_server::GameServer, world::BASE_ALARM,
    },
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{self, ALICE, BOB, add_device, is_complete, pair},
    relay_client::{PATIENCE, RelayClient},
};

const FLAGS: [&str; 3] = [
    "--allow-private-channel-targets=true",
    "--allow-private-game-servers=true",
    "--vapid-subject=mailto:operator@companion.test",
];
/// A browser's keys (RFC 8291, section 5).
const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// Alice with a paired server, and a push service for her browsers.
struct Woken {
    app: TestApp,
    alice: Browser,
    game: GameServer,
    server: String,
    service: BrowserPushService,
    key: String,
}

async fn woken() -> Woken {
    let app = TestApp::start_with(&FLAGS).await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let key = alice.get("/channels/web-push/key").await.json()["key"].as_str().unwrap().to_owned();
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let service = BrowserPushService::start(local, app.clock.clone(), Random::system()).await.unwrap();
    Woken { app, alice, game, server, service, key }
}

/// As `PushSubscription.toJSON()` of a browser gives it.
fn subscription(endpoint: &str) -> Value {
    json!({ "endpoint": endpoint, "expirationTime": null, "keys": { "p256dh": P256DH, "auth": AUTH } })
}

impl Woken {
    /// The endpoint of a new browser of Alice's, and the path of its channel.
    async fn browser(&mut self, key: &str) -> (String, String) {
        let endpoint = self.service.subscribe(Some(key));
        let channel = json!({ "kind": "webPush", "name": "Laptop", "subscription": subscription(&endpoint) });
        let made = self.alice.post("/channels", Some(&channel)).await;
        assert_eq!(made.status, 201, "{}", made.text());
        (endpoint, format!("/channels/{}", made.json()["id"].as_str().unwrap()))
    }

    async fn drill(&mut self) {
        let answer = self.alice.post(&format!("/paired-servers/{}/drill", self.server), None).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// An alarm of the base goes off.
    async fn raid(&mut self) -> RelayClient {
        add_device(&mut self.alice, &self.server, BASE_ALARM).await;
        let mut client = RelayClient::watching(&self.app, &mut self.alice, &self.server).await;
        client.until(&self.server, |state| is_complete(state, 1)).await;
        self.game.world(|world| world.fire_alarm(BASE_ALARM));
        client
    }

    async fn test(&mut self, channel: &str) -> Value {
        self.alice.post(&format!("{channel}/test"), None).await.json()
    }

    /// Waits until the only channel has this state; its reason.
    async fn until_state(&mut self, state: &str) -> Value {
        let list = self.alice.get_until("/channels", |list| list["channels"][0]["state"] == state).await;
        list["channels"][0]["reason"].clone()
    }

    /// Waits until the service has answered this many pushes.
    async fn until_asked(&self, count: u64) {
        timeout(PATIENCE, self.service.until_asked(count)).await.expect("a push in time");
    }

    async fn until_held(&self) {
        timeout(PATIENCE, self.service.until_held()).await.expect("a push in time");
    }

    fn fails(&self, faults: DeliveryFaults) {
        self.service.set_faults(faults);
    }
}

#[actix_web::test]
async fn the_strictest_push_service_takes_an_alarm_and_a_test() {
    let mut woken = woken().await;
    let key = woken.key.clone();
    let (endpoint, channel) = woken.browser(&key).await;
    let tested = woken.test(&channel).await;
    assert_eq!((&tested["accepted"], &tested["status"]), (&json!(true), &json!(201)), "{:?}", woken.service.refused());
    woken.raid().await;
    woken.until_asked(2).await;
    let [test, alarm] = &woken.service.waiting(&endpoint)[..] else { panic!("{:?}", woken.service.waiting(&endpoint)) };
    assert_eq!((test.headers.ttl, alarm.headers.ttl, &*alarm.headers.urgency), (60, 3_600, "high"));
    assert_ne!(test.headers.topic, alarm.headers.topic);
    assert_eq!((&*alarm.sender.contact, &alarm.sender.key), ("mailto:operator@companion.test", &key));
    assert!(woken.service.refused().is_empty());

    // Said once more, while the first one still waits: it takes its place.
    woken.app.clock.advance(Duration::seconds(180));
    woken.until_asked(3).await;
    let waiting = woken.service.waiting(&endpoint);
    assert_eq!((waiting.len(), &waiting[0].headers.topic), (1, &alarm.headers.topic), "the test's time is over");
    assert_ne!(waiting[0].id, alarm.id);
}

#[actix_web::test]
async fn an_acknowledgement_takes_the_place_of_the_alarm_on_each_device_without_a_sound() {
    let mut woken = woken().await;
    let key = woken.key.clone();
    let mut endpoints = Vec::new();
    for _ in 0..2 {
        let endpoint = woken.service.subscribe(Some(&key));
        let channel = json!({ "kind": "webPush", "name": "Phone", "subscription": subscription(&endpoint) });
        assert_eq!(woken.alice.post("/channels", Some(&channel)).await.status, 201);
        endpoints.push(endpoint);
    }
    woken.raid().await;
    woken.until_asked(2).await;
    let topic = woken.service.waiting(&endpoints[0])[0].headers.topic.clone();
    let alarms = format!("/paired-servers/{}/alarms", woken.server);
    let list = woken.alice.get_until(&alarms, |list| list["alarms"][0]["incident"].is_string()).await;
    let incident = list["alarms"][0]["incident"].as_str().unwrap().to_owned();
    let ack = format!("{alarms}/{incident}/ack");
    for _ in 0..2 {
        assert_eq!(woken.alice.post(&ack, None).await.status, 200);
    }
    woken.until_asked(4).await;
    for endpoint in &endpoints {
        let [push] = &woken.service.waiting(endpoint)[..] else { panic!("one took the place of the other") };
        assert_eq!((&push.headers.topic, &*push.headers.urgency), (&topic, "normal"));
    }
    woken.drill().await;
    woken.until_asked(6).await;
    assert!(woken.service.refused().is_empty());
    let waiting = endpoints.iter().map(|endpoint| woken.service.waiting(endpoint).len());
    assert_eq!(waiting.collect::<Vec<_>>(), [2, 2], "the alarm's and the drill's");
}

#[actix_web::test]
async fn an_alarm_that_goes_off_again_changes_the_count_on_the_device_without_a_sound() {
    let mut woken = woken().await;
    let key = woken.key.clone();
    let (endpoint, _) = woken.browser(&key).await;
    let mut client = woken.raid().await;
    woken.until_asked(1).await;
    woken.alice.get_until("/channels", |list| list["channels"][0]["acceptedAt"].is_string()).await;
    woken.game.world(|world| world.release_alarm(BASE_ALARM));
    client.until(&woken.server, |state| state["devices"][BASE_ALARM.to_string()]["value"] == false).await;
    woken.app.clock.advance(Duration::seconds(11));
    woken.game.world(|world| world.fire_alarm(BASE_ALARM));
    let counts = |list: &Value| list["alarms"][0]["count"] == 2;
    woken.alice.get_until(&format!("/paired-servers/{}/alarms", woken.server), counts).await;
    assert_eq!(woken.service.waiting(&endpoint).len(), 1, "not at once");
    woken.app.clock.advance(Duration::seconds(30));
    woken.until_asked(2).await;
    let [alarm, count] = &woken.service.waiting(&endpoint)[..] else { panic!("the alarm waits as it was") };
    assert_eq!((&*alarm.headers.urgency, &*count.headers.urgency, count.headers.ttl), ("high", "normal", 60));
    assert_ne!(alarm.headers.topic, count.headers.topic);
    assert!(woken.service.refused().is_empty());
}

#[actix_web::test]
async fn faults_that_pass_are_tried_again_after_the_pause_that_is_asked_for() {
    let mut woken = woken().await;
    let key = woken.key.clone();
    let (endpoint, _) = woken.browser(&key).await;
    woken.fails(DeliveryFaults { status: Some(429), retry_after: Some(100), messages: Some(1), ..Default::default() });
    woken.drill().await;
    assert_eq!(woken.until_state("failing").await, "throttled");
    // The pause is of the push service: another browser of it waits, too, for a minute at most.
    woken.app.clock.advance(Duration::seconds(50));
    let another = woken.service.subscribe(None);
    let channel = json!({ "kind": "webPush", "name": "Tablet", "subscription": subscription(&another) });
    assert_eq!(woken.alice.post("/channels", Some(&channel)).await.status, 201);
    woken.drill().await;
    woken.app.clock.advance(Duration::seconds(20));
    woken.until_asked(3).await;
    assert_eq!((woken.service.waiting(&endpoint).len(), woken.service.waiting(&another).len()), (1, 1));
    // The browser that was refused waits as it was asked to.
    woken.app.clock.advance(Duration::seconds(40));
    woken.until_asked(4).await;
    assert_eq!(woken.service.waiting(&endpoint).len(), 2);

    woken.fails(DeliveryFaults { status: Some(500), messages: Some(1), ..Default::default() });
    let tablet = woken.service.waiting(&another).len();
    woken.drill().await;
    woken.until_asked(6).await;
    // The pause begins when the answer is stored: either browser has got it.
    let has_failed = |list: &Value| list["channels"].as_array().unwrap().iter().any(|one| one["state"] == "failing");
    woken.alice.get_until("/channels", has_failed).await;
    woken.app.clock.advance(Duration::seconds(10));
    woken.until_asked(7).await;
    assert_eq!((woken.service.waiting(&endpoint).len(), woken.service.waiting(&another).len()), (3, tablet + 1));
}

#[actix_web::test]
async fn a_push_service_that_is_slow_holds_nothing_else_up() {
    let mut woken = woken().await;
    let key = woken.key.clone();
    let (endpoint, channel) = woken.browser(&key).await;
    woken.fails(DeliveryFaults { slow: true, ..Default::default() });
    woken.drill().await;
    woken.until_held().await;
    let renamed = woken.alice.patch(&channel, &json!({ "name": "Desk" })).await;
    assert_eq!((renamed.status, renamed.json()["state"].clone()), (200, json!("active")));
    woken.fails(DeliveryFaults::default());
    woken.until_asked(1).await;
    let list = woken.alice.get_until("/channels", |list| list["channels"][0]["acceptedAt"].is_string()).await;
    assert_eq!(list["channels"][0]["name"], "Desk");
    assert_eq!(woken.service.waiting(&endpoint).len(), 1);

    // One that never answers is given up after the deadline of a call, and tried again.
    woken.fails(DeliveryFaults { slow: true, ..Default::default() });
    woken.drill().await;
    assert_eq!(woken.until_state("failing").await, "unavailable");
    woken.fails(DeliveryFaults::default());
    woken.app.clock.advance(Duration::seconds(10));
    woken.until_state("active").await;
    assert_eq!(woken.service.waiting(&endpoint).len(), 2);
}

#[actix_web::test]
async fn only_a_subscription_that_has_ended_is_given_up() {
    let mut woken = woken().await;
    let key = woken.key.clone();
    let (endpoint, channel) = woken.browser(&key).await;
    for (status, reason) in
        [(400, "rejected"), (413, "rejected"), (401, "refused"), (403, "refused"), (302, "rejected")]
    {
        woken.fails(DeliveryFaults { status: Some(status), ..Default::default() });
        assert_eq!(woken.test(&channel).await["reason"], reason, "{status}");
        assert_eq!(woken.until_state("failing").await, reason, "{status}");
    }
    woken.fails(DeliveryFaults::default());
    assert_eq!(woken.test(&channel).await["accepted"], true);
    woken.until_state("active").await;
    assert!(woken.service.end(&endpoint));
    let tested = woken.test(&channel).await;
    assert_eq!((&tested["status"], &tested["reason"]), (&json!(410), &json!("gone")));
    assert_eq!(woken.until_state("gone").await, "gone");
}

#[actix_web::test]
async fn a_browser_that_subscribes_again_keeps_its_channel() {
    let mut woken = woken().await;
    let (_, channel) = woken.browser("the key of another service").await;
    let tested = woken.test(&channel).await;
    assert_eq!(
        (&tested["status"], &tested["reason"]),
        (&json!(403), &json!("refused")),
        "a subscription is of one key"
    );
    let endpoint = woken.service.subscribe(Some(&woken.key));
    let path = format!("{channel}/subscription");
    let replaced = woken.alice.put(&path, &subscription(&endpoint)).await;
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    let replaced = replaced.json();
    assert_eq!(
        (&replaced["state"], replaced.get("reason"), &replaced["name"]),
        (&json!("active"), None, &json!("Laptop"))
    );
    assert!(channel.ends_with(replaced["id"].as_str().unwrap()));
    assert_eq!(woken.alice.put(&path, &subscription(&endpoint)).await.status, 200, "and may be sent twice");
    assert_eq!(woken.test(&channel).await["accepted"], true);
    assert_eq!(woken.service.waiting(&endpoint).len(), 1);

    let mut bad = subscription(&endpoint);
    bad["keys"]["auth"] = json!("AAAA");
    let problem = woken.alice.put(&path, &bad).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "keys");
    let mut bob = woken.app.signed_in(BOB).await;
    bob.put(&path, &subscription(&endpoint)).await.expect_problem(404, "not_found");
    let ntfy = json!({ "kind": "ntfy", "name": "Phone", "topic": "my-topic" });
    let ntfy = woken.alice.post("/channels", Some(&ntfy)).await.json();
    let path = format!("/channels/{}/subscription", ntfy["id"].as_str().unwrap());
    woken.alice.put(&path, &subscription(&endpoint)).await.expect_problem(409, "conflict");

    // One browser, now in the hands of Bob: it is his channel then.
    let channel =
        json!({ "kind": "webPush", "name": "Shared", "subscription": subscription(&woken.service.subscribe(None)) });
    let shared = bob.post("/channels", Some(&channel)).await.json();
    let path = format!("/channels/{}/subscription", shared["id"].as_str().unwrap());
    assert_eq!(bob.put(&path, &subscription(&endpoint)).await.status, 200);
    let kinds: Vec<Value> = woken.alice.get("/channels").await.json()["channels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|channel| channel["kind"].clone())
        .collect();
    assert_eq!(kinds, ["ntfy"]);
}
