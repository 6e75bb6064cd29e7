//! Channels: alarms reach a user who has no dashboard open, again and again until the user acknowledges.

mod devices;
mod disabled;
mod emergencies;
mod registration;
mod rules;
mod stuck;

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, rt, web};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::Duration;
use companion::simulator::{game_server::GameServer, world::BASE_ALARM};
use diesel::{Connection as _, SqliteConnection, connection::SimpleConnection as _};
use ring::hmac;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{self, ALICE, BOB, add_device, is_complete, pair, share},
    relay_client::{PATIENCE, RelayClient},
};

pub const PRIVATE: &str = "--allow-private-channel-targets=true";
const GAMES: &str = "--allow-private-game-servers=true";
/// A browser's keys (RFC 8291, section 5).
const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// The id of a message at Discord.
const MESSAGE: &str = "1109876543210987654";
/// The receipt of an emergency at Pushover.
pub const RECEIPT: &str = "rLqVuqTRh62UzxtmqiaLzQmVcPgiCy";

/// A message as the other side of a channel receives it.
pub struct Received {
    method: String,
    pub path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The other side of all channels of a test.
pub struct Receiver {
    base: String,
    /// Statuses of answers, by path; otherwise 200.
    statuses: Arc<Mutex<Vec<(String, u16)>>>,
    /// True: messages to Pushover wait for their answers.
    holds: watch::Sender<bool>,
    received: mpsc::UnboundedReceiver<Received>,
}

struct ReceiverState(mpsc::UnboundedSender<Received>, Arc<Mutex<Vec<(String, u16)>>>, watch::Sender<bool>);

async fn receive(req: HttpRequest, body: web::Bytes, state: web::Data<ReceiverState>) -> HttpResponse {
    let header = |(name, value): (&_, &actix_web::http::header::HeaderValue)| {
        (ToString::to_string(name), value.to_str().unwrap().to_owned())
    };
    let headers = req.headers().iter().map(header).collect();
    let path = req.path().to_owned();
    let status = state.1.lock().unwrap().iter().rev().find(|(known, _)| *known == path).map_or(200, |known| known.1);
    // As Pushover answers an emergency.
    let is_pushover = path.ends_with("/1/messages.json");
    let receipt = is_pushover && serde_json::from_slice::<Value>(&body).unwrap()["priority"] == 2;
    let method = req.method().to_string();
    let _ = state.0.send(Received { method, path, headers, body: body.to_vec() });
    if is_pushover {
        state.2.subscribe().wait_for(|holds| !holds).await.unwrap();
    }
    let mut answer = HttpResponse::build(status.try_into().unwrap());
    // As Discord answers one who waits for the message.
    if req.query_string().contains("wait=true") {
        return answer.json(json!({ "id": MESSAGE, "type": 0 }));
    }
    if receipt { answer.json(json!({ "status": 1, "receipt": RECEIPT })) } else { answer.finish() }
}

impl Receiver {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = mpsc::unbounded_channel();
        let statuses = Arc::<Mutex<Vec<(String, u16)>>>::default();
        let holds = watch::Sender::new(false);
        let state = web::Data::new(ReceiverState(sender, statuses.clone(), holds.clone()));
        let server = HttpServer::new(move || App::new().app_data(state.clone()).default_service(web::to(receive)));
        rt::spawn(server.workers(1).disable_signals().listen(listener).unwrap().run());
        Self { base, statuses, holds, received }
    }

    fn answer(&self, path: &str, status: u16) {
        self.statuses.lock().unwrap().push((path.to_owned(), status));
    }

    pub async fn next(&mut self) -> Received {
        timeout(PATIENCE, self.received.recv()).await.expect("a message in time").unwrap()
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

pub async fn add(browser: &mut Browser, channel: &Value) -> Value {
    let answer = browser.post("/channels", Some(channel)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

async fn add_webhook(browser: &mut Browser, receiver: &Receiver, path: &str) -> Value {
    add(browser, &json!({ "kind": "webhook", "name": path, "url": receiver.url(path) })).await
}

struct Base {
    app: TestApp,
    alice: Browser,
    game: GameServer,
    server: String,
    receiver: Receiver,
}

/// Alice with a paired server, and no dashboard.
async fn base() -> Base {
    let app = TestApp::start_with(&[PRIVATE, GAMES, "--vapid-subject=mailto:operator@companion.test"]).await;
    let game = game::still(&app).await;
    let mut alice = app.signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    Base { app, alice, game, server, receiver: Receiver::start() }
}

impl Base {
    /// An alarm of the base goes off; the dashboard that shows it.
    async fn raid(&mut self) -> RelayClient {
        add_device(&mut self.alice, &self.server, BASE_ALARM).await;
        let mut client = RelayClient::watching(&self.app, &mut self.alice, &self.server).await;
        client.until(&self.server, |state| is_complete(state, 1)).await;
        self.game.world(|world| world.fire_alarm(BASE_ALARM));
        client
    }

    /// The id of its incident.
    async fn drill(&mut self) -> String {
        let answer = self.alice.post(&format!("/paired-servers/{}/drill", self.server), None).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["incident"].as_str().unwrap().to_owned()
    }
}

/// The path of the link in a message.
fn ack_path(message: &Value) -> String {
    let url = message["data"]["ackUrl"].as_str().unwrap();
    url[url.find("/a/").unwrap()..].to_owned()
}

#[actix_web::test]
async fn an_alarm_is_sent_until_its_user_acknowledges_it_by_the_link() {
    let mut base = base().await;
    let made = add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    drop(base.raid().await);
    let first = base.receiver.next().await;
    let message = first.json();
    assert_eq!(
        (&message["type"], &message["data"]["alarmName"]),
        (&json!("raid.opened"), &json!(BASE_ALARM.to_string()))
    );
    assert_eq!((&message["data"]["drill"], &message["data"]["serverId"]), (&json!(false), &json!(base.server)));
    // As the specification of Standard Webhooks has it.
    let key = STANDARD.decode(made["secret"].as_str().unwrap().strip_prefix("whsec_").unwrap()).unwrap();
    let signed = [first.header("webhook-id"), ".", first.header("webhook-timestamp"), "."].concat();
    let signed = [signed.as_bytes(), &first.body].concat();
    let signature = STANDARD.decode(first.header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed, &signature).unwrap();

    base.app.clock.advance(Duration::seconds(180));
    let second = base.receiver.next().await;
    assert_eq!(second.json()["type"], "raid.repeated");
    assert_ne!(second.header("webhook-id"), first.header("webhook-id"));

    // A preview of the link changes nothing.
    let path = ack_path(&message);
    let mut stranger = base.app.browser();
    let page = stranger.get(&path).await;
    assert!(page.status == 200 && page.text().contains("<form method=\"post\">"), "{}", page.text());
    let alarms = format!("/paired-servers/{}/alarms", base.server);
    assert_eq!(base.alice.get(&alarms).await.json()["alarms"][0]["acks"], json!({}));
    let page = stranger.post(&path, None).await;
    assert!(page.status == 200 && !page.text().contains("<form"), "{}", page.text());
    let acknowledged = base.alice.get(&alarms).await.json();
    assert_eq!(acknowledged["alarms"][0]["acks"].as_object().unwrap().len(), 1);

    // The program behind the webhook hears of it once.
    let incident = &message["data"]["incident"];
    let said = base.receiver.next().await.json();
    assert_eq!((&said["type"], &said["data"]["incident"]), (&json!("raid.acknowledged"), incident));
    assert_eq!(said["data"]["ackUrl"], Value::Null);
    stranger.post(&path, None).await;

    base.app.clock.advance(Duration::seconds(600));
    let another = base.drill().await;
    assert_eq!(base.receiver.next().await.json()["data"]["incident"], another, "of the first nothing more is sent");
    let deliveries = format!("{alarms}/{}/deliveries", incident.as_str().unwrap());
    let listed = base.alice.get(&deliveries).await.json();
    assert_eq!(listed["deliveries"].as_array().unwrap().len(), 2, "messages of the alarm alone: {listed}");
    stranger.get(&path[..path.len() - 1]).await.expect_problem(404, "not_found");
    base.app.clock.advance(Duration::hours(24));
    stranger.get(&path).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn the_link_of_an_incident_that_was_merged_acknowledges_the_whole() {
    let mut base = base().await;
    add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    let part = base.drill().await;
    let path = ack_path(&base.receiver.next().await.json());
    let alarms = format!("/paired-servers/{}/alarms", base.server);
    assert!(base.app.browser().post(&path, None).await.status == 200);
    assert_eq!(base.receiver.next().await.json()["type"], "raid.acknowledged");
    base.app.clock.advance(Duration::seconds(600));
    let whole = base.drill().await;
    base.receiver.next().await;
    // As after a restart that finds out that both are one, without a notice of the whole for its user.
    let file = base.app.directory().join("test.db");
    let mut db = SqliteConnection::establish(file.to_str().unwrap()).unwrap();
    let merge = format!(
        "PRAGMA busy_timeout = 10000; INSERT INTO merged_incidents VALUES ('{part}', '{whole}');
         DELETE FROM incidents WHERE id = '{part}'; DELETE FROM notices WHERE incident_id = '{whole}'"
    );
    db.batch_execute(&merge).unwrap();
    let page = base.app.browser().post(&path, None).await;
    assert!(page.status == 200 && !page.text().contains("<form"), "{}", page.text());
    let list = base.alice.get(&alarms).await.json();
    let acks = list["alarms"].as_array().unwrap().iter().find(|alarm| alarm["incident"] == whole.as_str()).unwrap();
    assert_eq!(acks["acks"].as_object().unwrap().len(), 1);
}

#[actix_web::test]
async fn an_open_dashboard_acknowledges_for_the_channels_too() {
    let mut base = base().await;
    add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    let mut client = base.raid().await;
    let incident = base.receiver.next().await.json()["data"]["incident"].as_str().unwrap().to_owned();
    client.send(json!({ "type": "raidAck", "serverId": base.server, "incident": incident })).await;
    let is_acknowledged =
        |state: &Value| state["raids"][&incident]["acks"].as_object().is_some_and(|acks| !acks.is_empty());
    client.until(&base.server, is_acknowledged).await;
    assert_eq!(base.receiver.next().await.json()["type"], "raid.acknowledged");
    base.app.clock.advance(Duration::seconds(180));
    let another = base.drill().await;
    assert_eq!(base.receiver.next().await.json()["data"]["incident"], another);
}

#[actix_web::test]
async fn a_channel_that_fails_passes_the_alarm_on_and_is_tried_again() {
    let mut base = base().await;
    for path in ["/broken", "/works"] {
        add_webhook(&mut base.alice, &base.receiver, path).await;
    }
    base.receiver.answer("/broken", 503);
    base.drill().await;
    let first = base.receiver.next().await;
    let second = base.receiver.next().await;
    assert_eq!((&*first.path, &*second.path), ("/broken", "/works"), "at once, not after a minute");
    let channels = base.alice.get_until("/channels", |list| list["channels"][1]["acceptedAt"].is_string()).await;
    let broken = &channels["channels"][0];
    assert_eq!((&broken["state"], &broken["reason"]), (&json!("failing"), &json!("unavailable")));
    assert!(broken["advice"].is_string());
    base.receiver.answer("/broken", 200);
    base.app.clock.advance(Duration::seconds(10));
    let again = base.receiver.next().await;
    assert_eq!((&*again.path, again.header("webhook-id")), ("/broken", first.header("webhook-id")));
    base.alice.get_until("/channels", |list| list["channels"][0]["state"] == "active").await;
}

#[actix_web::test]
async fn a_channel_that_works_again_brings_the_alarm_that_goes_on() {
    let mut base = base().await;
    let channel = add_webhook(&mut base.alice, &base.receiver, "/moved").await["id"].as_str().unwrap().to_owned();
    base.receiver.answer("/moved", 410);
    let path = format!("/channels/{channel}/test");
    assert_eq!(base.alice.post(&path, None).await.json()["reason"], "gone");
    assert_eq!(base.receiver.next().await.json()["type"], "test");
    base.raid().await.expect("raid").await;
    base.receiver.answer("/moved", 200);
    assert_eq!(base.alice.post(&path, None).await.json()["accepted"], true);
    assert_eq!(base.receiver.next().await.json()["type"], "test");
    let alarm = base.receiver.next().await.json();
    assert_eq!((&alarm["type"], &alarm["data"]["drill"]), (&json!("raid.opened"), &json!(false)));
}

#[actix_web::test]
async fn a_browser_is_woken_and_one_that_is_gone_is_never_tried_again() {
    let mut base = base().await;
    let key = base.alice.get("/channels/web-push/key").await.json()["key"].as_str().unwrap().to_owned();
    let browser = |endpoint: String| json!({ "kind": "webPush", "name": "Phone", "subscription": { "endpoint": endpoint, "keys": { "p256dh": P256DH, "auth": AUTH } } });
    add(&mut base.alice, &browser(base.receiver.url("/push"))).await;
    add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    base.receiver.answer("/push", 410);
    drop(base.raid().await);
    let push = base.receiver.next().await;
    assert_eq!((&*push.path, push.header("ttl"), push.header("urgency")), ("/push", "3600", "high"));
    assert_eq!(push.header("content-encoding"), "aes128gcm");
    assert!(push.header("authorization").ends_with(&format!(", k={key}")));
    assert_eq!(base.receiver.next().await.path, "/hook", "the next step comes at once");
    let channels = base.alice.get_until("/channels", |list| list["channels"][0]["state"] == "gone").await;
    assert_eq!(channels["channels"][0]["reason"], "gone");
    base.app.clock.advance(Duration::seconds(400));
    assert_eq!(base.receiver.next().await.path, "/hook");

    // The key outlives the process: it is a part of each subscription.
    base.app = base.app.restart().await;
    let mut alice = base.app.again(&base.alice);
    assert_eq!(alice.get("/channels/web-push/key").await.json()["key"], key);
}

#[actix_web::test]
async fn an_endpoint_with_other_keys_takes_no_browser_from_its_owner() {
    let mut base = base().await;
    let browser = |endpoint: String, auth: &str| json!({ "kind": "webPush", "name": "Phone", "subscription": { "endpoint": endpoint, "keys": { "p256dh": P256DH, "auth": auth } } });
    let endpoint = base.receiver.url("/push");
    let kept = add(&mut base.alice, &browser(endpoint.clone(), AUTH)).await;
    let mut bob = base.app.signed_in(BOB).await;
    add(&mut bob, &browser(endpoint.clone(), "AAAAAAAAAAAAAAAAAAAAAA")).await;
    let list = base.alice.get("/channels").await.json();
    assert_eq!(list["channels"][0]["id"], kept["id"]);
    add(&mut bob, &browser(endpoint, AUTH)).await;
    let list = base.alice.get("/channels").await.json();
    assert_eq!(list["channels"], json!([]), "the same subscription: they share the browser");
}

#[actix_web::test]
async fn a_channel_is_tested_renamed_and_deleted() {
    let mut base = base().await;
    let made = add_webhook(&mut base.alice, &base.receiver, "/hook").await;
    let path = format!("/channels/{}", made["id"].as_str().unwrap());
    let test = base.alice.post(&format!("{path}/test"), None).await.json();
    assert_eq!((&test["accepted"], &test["status"]), (&json!(true), &json!(200)));
    let received = base.receiver.next().await;
    assert_eq!(received.json()["type"], "test");
    assert_eq!(received.header("traceparent"), "", "a host of a user's learns nothing of the request");
    base.receiver.answer("/hook", 401);
    let test = base.alice.post(&format!("{path}/test"), None).await.json();
    assert_eq!((&test["accepted"], &test["status"], &test["reason"]), (&json!(false), &json!(401), &json!("refused")));
    base.receiver.next().await;

    let rotated = base.alice.post(&format!("{path}/rotate-secret"), None).await.json();
    assert_ne!(rotated["secret"], made["secret"]);
    base.alice.post(&format!("{path}/test"), None).await;
    let signatures = base.receiver.next().await.header("webhook-signature").to_owned();
    assert_eq!(signatures.split(' ').count(), 2, "by the new secret and the one before");

    let renamed = base.alice.patch(&path, &json!({ "name": "Porch" })).await.json();
    assert_eq!(renamed["name"], "Porch");
    let mut bob = base.app.signed_in(BOB).await;
    bob.patch(&path, &json!({ "name": "Mine" })).await.expect_problem(404, "not_found");
    bob.post(&format!("{path}/test"), None).await.expect_problem(404, "not_found");
    bob.delete(&path).await.expect_problem(404, "not_found");
    assert_eq!(base.alice.delete(&path).await.status, 200);
    base.alice.delete(&path).await.expect_problem(404, "not_found");
    assert_eq!(base.alice.get("/channels").await.json(), json!({ "channels": [] }));
    base.drill().await;
    base.receiver.received.try_recv().err().expect("no message is sent");
}

#[actix_web::test]
async fn a_webhook_speaks_the_form_of_a_telephone_gateway() {
    let mut base = base().await;
    let template = json!({
        "contentType": "application/json",
        "headers": [{ "name": "X-Api-Key", "value": "of the user" }],
        "body": r#"{"to":"+49123","text":"{title} at {server}"}"#,
    });
    let gateway =
        json!({ "kind": "webhook", "name": "Telephone", "url": base.receiver.url("/call"), "template": template });
    let made = add(&mut base.alice, &gateway).await;
    let path = format!("/channels/{}", made["id"].as_str().unwrap());
    assert_eq!(base.alice.post(&format!("{path}/rotate-secret"), None).await.status, 200);
    drop(base.raid().await);
    let call = base.receiver.next().await;
    let said = call.json();
    assert_eq!((&*call.path, call.header("content-type")), ("/call", "application/json"));
    assert_eq!((call.header("x-api-key"), &said["to"]), ("of the user", &json!("+49123")));
    let text = said["text"].as_str().unwrap();
    assert!(text.starts_with(&format!("RAID {BASE_ALARM}")) && text.contains(" at "), "{text}");
    assert_eq!(call.header("webhook-signature").split(' ').count(), 2, "signed all the same");

    let listed = base.alice.get("/channels").await.text();
    assert!(!listed.contains("of the user") && !made.to_string().contains("of the user"), "{listed}");
    base.alice.post("/channels", Some(&gateway)).await.expect_problem(409, "conflict");
    let mut another = gateway.clone();
    another["template"]["body"] = json!(r#"{"to":"+49124","text":"{title}"}"#);
    add(&mut base.alice, &another).await;
    for (field, value, path) in [
        ("body", json!(r#"{"text":{title}}"#), "template.body"),
        ("body", json!(r#"{"text":"{titel}"}"#), "template.body"),
        ("headers", json!([{ "name": "Host", "value": "internal" }]), "template.headers"),
        ("headers", json!([{ "name": "x", "value": "a\r\nb: c" }]), "template.headers"),
    ] {
        let mut wrong = gateway.clone();
        wrong["template"][field] = value;
        let problem = base.alice.post("/channels", Some(&wrong)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{wrong}");
    }
}

#[actix_web::test]
async fn a_target_is_checked_before_it_is_taken() {
    let app = TestApp::start().await;
    let mut alice = app.signed_in(ALICE).await;
    for (channel, field) in [
        (json!({ "kind": "webhook", "name": "x" }), "url"),
        (json!({ "kind": "webhook", "name": "x", "url": "http://example.com" }), "url"),
        (json!({ "kind": "webhook", "name": "x", "url": "https://127.0.0.1/" }), "url"),
        (json!({ "kind": "discord", "name": "x", "url": "https://metadata.internal/" }), "url"),
        (
            json!({ "kind": "discord", "name": "x", "url": "https://a.example/1", "quietUrl": "https://b.example/2" }),
            "quietUrl",
        ),
        (json!({ "kind": "ntfy", "name": "x" }), "topic"),
        (json!({ "kind": "ntfy", "name": "x", "topic": "a/b" }), "topic"),
        (json!({ "kind": "gotify", "name": "x", "url": "https://example.com" }), "token"),
        (json!({ "kind": "telegram", "name": "x", "token": "1:a/../b", "recipient": "1" }), "token"),
        (json!({ "kind": "pushover", "name": "x", "token": "t" }), "recipient"),
        (json!({ "kind": "webPush", "name": "x" }), "subscription"),
        (
            json!({ "kind": "webPush", "name": "x", "subscription": {
                "endpoint": "https://example.com/1", "keys": { "p256dh": "AAAA", "auth": AUTH }
            } }),
            "subscription.keys",
        ),
    ] {
        let problem = alice.post("/channels", Some(&channel)).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], field, "{channel}");
    }
    let ntfy = json!({ "kind": "ntfy", "name": "Phone", "topic": "my-topic" });
    assert_eq!(add(&mut alice, &ntfy).await["host"], "ntfy.sh");
    alice.post("/channels", Some(&ntfy)).await.expect_problem(409, "conflict");
    for number in 1..20 {
        add(&mut alice, &json!({ "kind": "ntfy", "name": "Phone", "topic": format!("t{number}") })).await;
    }
    let more = json!({ "kind": "ntfy", "name": "Phone", "topic": "more" });
    alice.post("/channels", Some(&more)).await.expect_problem(409, "limit_reached");
}

#[actix_web::test]
async fn each_watcher_has_rules_of_their_own() {
    let mut base = base().await;
    let mut bob = base.app.signed_in(BOB).await;
    share(&mut base.alice, &base.server, &mut bob).await;
    let path = format!("/paired-servers/{}/alarm-rules", base.server);
    let default = base.alice.get(&path).await.json();
    let without =
        json!({ "enabled": true, "steps": [], "repeatSeconds": 180, "rounds": 10, "kinds": ["raid"], "quiet": null });
    assert_eq!(default, without);
    let (first, second) = (
        add_webhook(&mut base.alice, &base.receiver, "/first").await,
        add_webhook(&mut base.alice, &base.receiver, "/second").await,
    );
    add_webhook(&mut bob, &base.receiver, "/bob").await;
    let step = |after: u32, channel: &Value| json!({ "afterSeconds": after, "channels": [channel["id"]] });
    let rules = json!({
        "enabled": true, "steps": [step(0, &second), step(30, &first)], "repeatSeconds": 60, "rounds": 1,
        "kinds": ["raid"], "quiet": null
    });
    assert_eq!(base.alice.put(&path, &rules).await.json(), rules);
    let problem = bob.put(&path, &rules).await.expect_problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["path"], "steps", "they are not his channels");
    let silent = json!({ "enabled": false, "steps": [], "repeatSeconds": 60, "rounds": 1 });
    assert_eq!(bob.put(&path, &silent).await.status, 200);

    base.drill().await;
    assert_eq!(base.receiver.next().await.path, "/second");
    base.app.clock.advance(Duration::seconds(30));
    assert_eq!(base.receiver.next().await.path, "/first");
    base.app.clock.advance(Duration::seconds(300));
    let another = base.drill().await;
    let next = base.receiver.next().await;
    assert_eq!((&*next.path, &next.json()["data"]["incident"]), ("/second", &json!(another)), "one round only");

    // Not at once, if the user wants it so.
    let later = json!({ "enabled": true, "steps": [step(20, &second)], "repeatSeconds": 60, "rounds": 1 });
    assert_eq!(base.alice.put(&path, &later).await.status, 200);
    let drilled = base.alice.post(&format!("/paired-servers/{}/drill", base.server), None).await.json();
    let reach = |channel: usize| drilled["channels"][channel]["reach"].clone();
    assert_eq!((reach(0), reach(1)), (json!("unused"), json!("later")));
    base.app.clock.advance(Duration::seconds(20));
    let next = base.receiver.next().await;
    assert_eq!((&*next.path, &next.json()["data"]["incident"]), ("/second", &drilled["incident"]));
    // Other rules count at once for an alarm that waits.
    let another = base.drill().await;
    let now = json!({ "enabled": true, "steps": [step(0, &first)], "repeatSeconds": 60, "rounds": 1 });
    assert_eq!(base.alice.put(&path, &now).await.status, 200);
    let next = base.receiver.next().await;
    assert_eq!((&*next.path, &next.json()["data"]["incident"]), ("/first", &json!(another)));
}
