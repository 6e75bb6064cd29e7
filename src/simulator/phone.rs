//! A phone with an app for notifications: takes messages as ntfy (`POST /`, JSON) and Pushover do (`POST /1/messages.json`), and
//! signed webhooks (`POST /hook`), and shows them on a page. `POST /faults` takes [`DeliveryFaults`].

use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Mutex, PoisonError},
};

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, ServiceConfig},
};
use maud::html;
use serde::Deserialize;
use serde_json::json;

use super::{
    delivery_faults::{DeliveryFaults, FaultyDelivery},
    http_server::NeighbourServer,
    page::{DARK_LIST, page},
    pushover::{PushoverCancellation, PushoverEmergencies, PushoverMessage},
    signed_receiver::{SignedMessage, SignedReceiver},
};
use crate::clock::Clock;

/// Messages that are shown, the newest.
const SHOWN: usize = 50;

/// A running phone; stops when dropped.
pub struct SimulatedPhone {
    addr: SocketAddr,
    messages: web::Data<PhoneMessages>,
    _server: NeighbourServer,
}

struct PhoneMessages {
    clock: Clock,
    faults: FaultyDelivery,
    newest_first: Mutex<VecDeque<(String, PhoneMessage)>>,
    webhooks: Mutex<SignedReceiver>,
    emergencies: Mutex<PushoverEmergencies>,
}

/// A message as ntfy takes it.
#[derive(Deserialize)]
struct PhoneMessage {
    topic: String,
    title: String,
    message: String,
    #[serde(default)]
    actions: Vec<PhoneAction>,
}

#[derive(Deserialize)]
struct PhoneAction {
    label: String,
    url: String,
}

/// The part of a webhook's message that is shown.
#[derive(Deserialize)]
struct WebhookMessage {
    #[serde(rename = "type")]
    event: String,
    data: WebhookAlarm,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebhookAlarm {
    server_name: String,
    alarm_name: String,
    grid: String,
    ack_url: Option<String>,
}

impl From<WebhookMessage> for PhoneMessage {
    fn from(WebhookMessage { event, data }: WebhookMessage) -> Self {
        let WebhookAlarm { server_name, alarm_name, grid, ack_url } = data;
        Self {
            topic: "signed webhook".to_owned(),
            title: format!("{event}: {alarm_name}"),
            message: format!("{server_name} {grid}"),
            actions: ack_url.map(|url| PhoneAction { label: "Acknowledge".to_owned(), url }).into_iter().collect(),
        }
    }
}

impl From<PushoverMessage> for PhoneMessage {
    fn from(sent: PushoverMessage) -> Self {
        let actions = vec![PhoneAction { label: sent.url_title, url: sent.url }];
        Self { topic: format!("Pushover {}", sent.priority), title: sent.title, message: sent.message, actions }
    }
}

impl PhoneMessages {
    fn show(&self, message: PhoneMessage) {
        let at = self.clock.now().format("%H:%M:%S UTC").to_string();
        let mut newest_first = self.newest_first.lock().unwrap_or_else(PoisonError::into_inner);
        newest_first.push_front((at, message));
        newest_first.truncate(SHOWN);
    }
}

impl SimulatedPhone {
    /// Binds and begins to serve; port 0 takes a free one. Call it inside an actix system.
    pub async fn start(listen: SocketAddr, clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let faults = FaultyDelivery::default();
        let (newest_first, webhooks, emergencies) = (Mutex::default(), Mutex::default(), Mutex::default());
        let notifications = PhoneMessages { clock, faults, newest_first, webhooks, emergencies };
        let messages = web::Data::new(notifications);
        let notifications = messages.clone();
        let routes = move |config: &mut ServiceConfig| {
            config
                .app_data(notifications.clone())
                .service(web::resource("/faults").post(set_faults))
                .service(web::resource("/hook").post(receive_webhook))
                .service(web::resource("/1/messages.json").post(receive_pushover))
                .service(web::resource("/1/receipts/{receipt}/cancel.json").post(cancel_emergency))
                .service(web::resource("/").get(show).post(receive));
        };
        Ok(Self { addr, messages, _server: NeighbourServer::start(listener, routes)? })
    }

    /// Waits until a message waits for its answer.
    pub async fn until_held(&self) {
        self.messages.faults.until_held().await;
    }

    /// Its page, and the root of its server for messages.
    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// Takes webhooks that are signed by this secret at the URL that it returns.
    pub fn take_webhooks(&self, secret: &str) -> String {
        self.messages.webhooks.lock().unwrap_or_else(PoisonError::into_inner).trust(secret);
        format!("{}hook", self.url())
    }
}

async fn set_faults(notifications: web::Data<PhoneMessages>, faults: web::Json<DeliveryFaults>) -> HttpResponse {
    notifications.faults.set(faults.into_inner());
    HttpResponse::Ok().json(json!({ "ok": true }))
}

async fn receive(sent: web::Json<PhoneMessage>, notifications: web::Data<PhoneMessages>) -> HttpResponse {
    if let Some(fault) = notifications.faults.answer().await {
        return fault;
    }
    notifications.show(sent.into_inner());
    HttpResponse::Ok().json(json!({ "event": "message" }))
}

async fn receive_pushover(sent: web::Json<PushoverMessage>, notifications: web::Data<PhoneMessages>) -> HttpResponse {
    if let Some(fault) = notifications.faults.answer().await {
        return fault;
    }
    let now = notifications.clock.now();
    let taken = notifications.emergencies.lock().unwrap_or_else(PoisonError::into_inner).take(&sent, now);
    match taken {
        Err(fault) => HttpResponse::BadRequest().json(json!({ "status": 0, "errors": [fault] })),
        Ok(receipt) => {
            notifications.show(sent.into_inner().into());
            HttpResponse::Ok()
                .json(receipt.map_or(json!({ "status": 1 }), |known| json!({ "status": 1, "receipt": known })))
        }
    }
}

async fn cancel_emergency(
    receipt: web::Path<String>,
    sent: web::Form<PushoverCancellation>,
    notifications: web::Data<PhoneMessages>,
) -> HttpResponse {
    if let Some(fault) = notifications.faults.answer().await {
        return fault;
    }
    let mut emergencies = notifications.emergencies.lock().unwrap_or_else(PoisonError::into_inner);
    match emergencies.cancel(&receipt, &sent.token) {
        true => HttpResponse::Ok().json(json!({ "status": 1 })),
        false => HttpResponse::NotFound().json(json!({ "status": 0, "errors": ["receipt not found"] })),
    }
}

/// Shows a webhook's message that is signed, and once, however often it comes.
async fn receive_webhook(req: HttpRequest, body: web::Bytes, notifications: web::Data<PhoneMessages>) -> HttpResponse {
    if let Some(fault) = notifications.faults.answer().await {
        return fault;
    }
    let header = |name: &str| req.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let sent = SignedMessage {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signatures: header("webhook-signature"),
        body: &body,
    };
    let now = notifications.clock.now();
    let taken = notifications.webhooks.lock().unwrap_or_else(PoisonError::into_inner).take(&sent, now);
    match (taken, serde_json::from_slice::<WebhookMessage>(&body)) {
        (Err(fault), _) => return HttpResponse::Unauthorized().json(json!({ "error": fault.to_string() })),
        (Ok(_), Err(fault)) => return HttpResponse::BadRequest().json(json!({ "error": fault.to_string() })),
        (Ok(false), Ok(_)) => {}
        (Ok(true), Ok(message)) => notifications.show(message.into()),
    }
    HttpResponse::Ok().json(json!({ "ok": true }))
}

async fn show(notifications: web::Data<PhoneMessages>) -> HttpResponse {
    let now = notifications.clock.now();
    let ringing = notifications.emergencies.lock().unwrap_or_else(PoisonError::into_inner).ringing(now);
    let newest_first = notifications.newest_first.lock().unwrap_or_else(PoisonError::into_inner);
    let body = html! {
        meta http-equiv="refresh" content="2";
        h1 { "A phone" }
        @if ringing > 0 { p { "Emergencies that ring: " (ringing) } }
        @if newest_first.is_empty() { p { "No alarm yet." } }
        ul {
            @for (at, PhoneMessage { topic, title, message, actions }) in newest_first.iter() {
                li {
                    time { (at) " · " (topic) }
                    h2 { (title) }
                    p { (message) }
                    @for PhoneAction { label, url } in actions { a href=(url) { (label) } }
                }
            }
        }
    };
    page("A phone", DARK_LIST, &body)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{crypto::signed_webhook, domain::time::Timestamp, simulator::loopback_client::loopback_client};

    const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

    #[actix_web::test]
    async fn a_phone_takes_messages_and_fails_on_demand() {
        let phone = SimulatedPhone::start((Ipv4Addr::LOCALHOST, 0).into(), Clock::system()).await.unwrap();
        let http = loopback_client(DEADLINE).unwrap();
        let send = |path: &str, body: serde_json::Value| {
            let request = http.post(format!("{}{path}", phone.url())).json(&body);
            async move { request.send().await.unwrap() }
        };
        let message = |title: &str| json!({ "topic": "demo", "title": title, "message": "At H12." });
        send("faults", json!({ "status": 429, "retryAfter": 9, "messages": 1 })).await;
        let throttled = send("", message("first")).await;
        assert_eq!(throttled.status(), 429);
        assert_eq!(throttled.headers()["retry-after"], "9");
        assert_eq!(send("", message("second")).await.status(), 200);

        send("faults", json!({ "slow": true })).await;
        let (slow, _) = tokio::join!(send("", message("third")), async {
            phone.until_held().await;
            send("faults", json!({ "status": 500 })).await;
        });
        assert_eq!(slow.status(), 500);
        assert_eq!(send("faults", json!({ "slwo": true })).await.status(), 400);
        let page = http.get(phone.url()).send().await.unwrap().text().await.unwrap();
        assert!(page.contains("second") && !page.contains("first") && !page.contains("third"), "{page}");
    }

    #[actix_web::test]
    async fn an_emergency_rings_until_its_application_ends_it_or_it_expires() {
        let clock = Clock::adjustable(Timestamp::from_timestamp(1_700_000_000, 0).unwrap());
        let phone = SimulatedPhone::start((Ipv4Addr::LOCALHOST, 0).into(), clock.clone()).await.unwrap();
        let http = loopback_client(DEADLINE).unwrap();
        let send = async |priority: i8, retry: u32| {
            let message = json!({ "token": "t", "user": "u", "title": "RAID", "message": "H12", "priority": priority,
                "retry": retry, "expire": 180 });
            let answer = http.post(format!("{}1/messages.json", phone.url())).json(&message).send().await.unwrap();
            let answer: serde_json::Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            answer["receipt"].as_str().map(str::to_owned)
        };
        let rings = async || {
            let page = http.get(phone.url()).send().await.unwrap().text().await.unwrap();
            page.contains("Emergencies that ring: 1")
        };
        let cancel = async |receipt: &str, token: &str| {
            let url = format!("{}1/receipts/{receipt}/cancel.json", phone.url());
            http.post(url).form(&[("token", token)]).send().await.unwrap().status().as_u16()
        };
        assert_eq!((send(1, 0).await, send(2, 29).await), (None, None));
        let receipt = send(2, 60).await.unwrap();
        assert!(rings().await);
        assert_eq!([cancel(&receipt, "another").await, cancel(&receipt, "t").await], [404, 200]);
        assert!(!rings().await);
        send(2, 60).await.unwrap();
        assert!(rings().await);
        clock.advance(chrono::TimeDelta::seconds(180));
        assert!(!rings().await);
    }

    #[actix_web::test]
    async fn a_signed_webhook_is_shown_once_and_a_forged_one_never() {
        const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let clock = Clock::system();
        let phone = SimulatedPhone::start((Ipv4Addr::LOCALHOST, 0).into(), clock.clone()).await.unwrap();
        let url = phone.take_webhooks(SECRET);
        let http = loopback_client(DEADLINE).unwrap();
        let send = async |alarm: &str, secret: &str| {
            let data =
                json!({ "serverName": "Demo Island", "alarmName": alarm, "grid": "H12", "ackUrl": "http://a/1" });
            let (body, now) = (json!({ "type": "raid.opened", "data": data }).to_string(), clock.now());
            let signed = signed_webhook::signatures(&[secret.into()], alarm, now, body.as_bytes());
            let request = http.post(&url).body(body).header("webhook-id", alarm);
            let request = request.header("webhook-timestamp", now.timestamp().to_string());
            request.header("webhook-signature", signed).send().await.unwrap().status().as_u16()
        };
        assert_eq!(send("Forged", "whsec_AAAA").await, 401);
        assert_eq!([send("Door", SECRET).await, send("Door", SECRET).await], [200, 200]);
        assert_eq!(http.post(&url).body("{}").send().await.unwrap().status(), 401);
        let page = http.get(phone.url()).send().await.unwrap().text().await.unwrap();
        assert_eq!((page.matches("raid.opened: Door").count(), page.contains("Forged")), (1, false), "{page}");
        assert!(page.contains("http://a/1"), "{page}");
    }
}
