//! A phone with an app for notifications: takes messages as ntfy does (`POST /`, JSON), and shows them on a page. `POST /faults`
//! takes [`DeliveryFaults`].

use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Mutex, PoisonError},
};

use actix_web::{
    HttpResponse,
    web::{self, ServiceConfig},
};
use maud::html;
use serde::Deserialize;
use serde_json::json;

use super::{
    delivery_faults::{DeliveryFaults, FaultyDelivery},
    http_server::NeighbourServer,
    page::{DARK_LIST, page},
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

impl SimulatedPhone {
    /// Binds and begins to serve; port 0 takes a free one. Call it inside an actix system.
    pub async fn start(listen: SocketAddr, clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let addr = listener.local_addr()?;
        let notifications = PhoneMessages { clock, faults: FaultyDelivery::default(), newest_first: Mutex::default() };
        let messages = web::Data::new(notifications);
        let notifications = messages.clone();
        let routes = move |config: &mut ServiceConfig| {
            config
                .app_data(notifications.clone())
                .service(web::resource("/faults").post(set_faults))
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
}

async fn set_faults(notifications: web::Data<PhoneMessages>, faults: web::Json<DeliveryFaults>) -> HttpResponse {
    notifications.faults.set(faults.into_inner());
    HttpResponse::Ok().json(json!({ "ok": true }))
}

async fn receive(sent: web::Json<PhoneMessage>, notifications: web::Data<PhoneMessages>) -> HttpResponse {
    if let Some(fault) = notifications.faults.answer().await {
        return fault;
    }
    let at = notifications.clock.now().format("%H:%M:%S UTC").to_string();
    let mut newest_first = notifications.newest_first.lock().unwrap_or_else(PoisonError::into_inner);
    newest_first.push_front((at, sent.into_inner()));
    newest_first.truncate(SHOWN);
    HttpResponse::Ok().json(json!({ "event": "message" }))
}

async fn show(notifications: web::Data<PhoneMessages>) -> HttpResponse {
    let newest_first = notifications.newest_first.lock().unwrap_or_else(PoisonError::into_inner);
    let body = html! {
        meta http-equiv="refresh" content="2";
        h1 { "A phone" }
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
    use crate::simulator::loopback_client::loopback_client;

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
}
