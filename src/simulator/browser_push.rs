//! The push service of a browser (RFC 8030): takes encrypted pushes for subscriptions, as strictly as the strictest real
//! one, and fails on demand. It cannot read a message; a browser, or the test in place of one, fetches and decrypts it.
//! Its page is such a browser: each time it is opened it subscribes, and is given to the owner of the service.
//!
//! `POST /subscriptions` makes a subscription, `DELETE /subscriptions/{id}` ends it, `GET /subscriptions/{id}/messages`
//! lists what waits, and `DELETE /messages/{id}` says that one arrived. `POST /faults` takes [`DeliveryFaults`].

mod books;
mod push_request;
mod refused;
mod sender;

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{AUTHORIZATION, LOCATION},
    web::{self, Bytes, ServiceConfig},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use maud::html;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use self::{books::PushBooks, push_request::check_body};
pub use self::{books::TakenPush, push_request::PushHeaders, refused::RefusedPush, sender::PushSender};
use super::{
    delivery_faults::{DeliveryFaults, FaultyDelivery},
    http_server::NeighbourServer,
};
use crate::{
    clock::Clock,
    crypto::random::Random,
    simulator::page::{DARK_LIST, page},
};

/// Browsers that wait to be taken; the page is refused beyond.
const MOST_JOINED: usize = 8;

/// A running service; stops when dropped.
pub struct BrowserPushService {
    shared: Arc<SharedPushes>,
    joined: mpsc::Receiver<JoinedBrowser>,
    _server: NeighbourServer,
}

struct SharedPushes {
    addr: SocketAddr,
    clock: Clock,
    random: Random,
    books: Mutex<PushBooks>,
    faults: FaultyDelivery,
    /// Pushes that were taken or refused.
    asked: watch::Sender<u64>,
    joining: mpsc::Sender<JoinedBrowser>,
}

/// A subscription that the page has made.
#[derive(Clone, Debug)]
pub struct JoinedBrowser {
    pub endpoint: String,
    pub keys: JoinedKeys,
}

/// Keys of the page, base64url.
#[derive(Clone, Debug, Deserialize)]
pub struct JoinedKeys {
    pub p256dh: String,
    pub auth: String,
}

/// A subscription that a browser asks for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NewSubscription {
    /// The key whose pushes it takes, base64url; absent: that of the first push.
    application_server_key: Option<String>,
}

impl BrowserPushService {
    /// Binds and begins to serve; port 0 takes a free one. Call it inside an actix system.
    pub async fn start(listen: SocketAddr, clock: Clock, random: Random) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let (joining, joined) = mpsc::channel(MOST_JOINED);
        let shared = Arc::new(SharedPushes {
            addr: listener.local_addr()?,
            clock,
            random,
            books: Mutex::default(),
            faults: FaultyDelivery::default(),
            asked: watch::Sender::new(0),
            joining,
        });
        let data = web::Data::from(shared.clone());
        let routes = move |config: &mut ServiceConfig| {
            config
                .app_data(data.clone())
                .service(web::resource("/").get(show_browser))
                .service(web::resource("/browser.js").get(script))
                .service(web::resource("/browsers").post(join))
                .service(web::resource("/faults").post(set_faults))
                .service(web::resource("/subscriptions").post(subscribe))
                .service(web::resource("/subscriptions/{id}").delete(unsubscribe))
                .service(web::resource("/subscriptions/{id}/messages").get(list))
                .service(web::resource("/messages/{id}").delete(remove))
                .service(web::resource("/push/{id}").post(push));
        };
        Ok(Self { _server: NeighbourServer::start(listener, routes)?, shared, joined })
    }

    /// The base URL.
    pub fn url(&self) -> String {
        self.shared.origin()
    }

    /// Makes a subscription that takes pushes of this key, or of any; its endpoint.
    pub fn subscribe(&self, key: Option<&str>) -> String {
        self.shared.subscribe(key.map(str::to_owned)).1
    }

    /// The next browser that has opened the page.
    pub async fn next_browser(&mut self) -> Option<JoinedBrowser> {
        self.joined.recv().await
    }

    /// Ends the subscription of an endpoint; false if there is none.
    pub fn end(&self, endpoint: &str) -> bool {
        self.shared.books().end(id_of(endpoint))
    }

    /// Pushes that wait for an endpoint, oldest first.
    pub fn waiting(&self, endpoint: &str) -> Vec<TakenPush> {
        let now = self.shared.clock.now();
        self.shared.books().waiting(id_of(endpoint), now).unwrap_or_default()
    }

    /// Number of pushes that were not taken, by reason.
    pub fn refused(&self) -> BTreeMap<String, u64> {
        self.shared.books().refused.clone()
    }

    /// From now on pushes meet these faults.
    pub fn set_faults(&self, faults: DeliveryFaults) {
        self.shared.faults.set(faults);
    }

    /// Waits until a push waits for its answer.
    pub async fn until_held(&self) {
        self.shared.faults.until_held().await;
    }

    /// Waits until this many pushes were answered, with a fault or without.
    pub async fn until_asked(&self, count: u64) {
        let mut asked = self.shared.asked.subscribe();
        asked.wait_for(|asked| *asked >= count).await.expect("self owns the sender");
    }
}

/// The last part of an endpoint.
fn id_of(endpoint: &str) -> &str {
    endpoint.rsplit_once('/').map_or("", |(_, id)| id)
}

impl SharedPushes {
    fn books(&self) -> MutexGuard<'_, PushBooks> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn origin(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The id of a new subscription, and its endpoint.
    fn subscribe(&self, key: Option<String>) -> (String, String) {
        let id = self.random.hex::<16>();
        self.books().add(id.clone(), key);
        let endpoint = format!("{}/push/{id}", self.origin());
        (id, endpoint)
    }

    /// Takes a push; its id and the seconds for which it is kept.
    fn take(&self, subscription: &str, req: &HttpRequest, body: &Bytes) -> Result<(String, u32), RefusedPush> {
        let now = self.clock.now();
        check_body(body)?;
        let headers = PushHeaders::read(req)?;
        let authorization = req.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let sender = PushSender::read(authorization.unwrap_or_default(), &self.origin(), now)?;
        let (id, ttl) = (self.random.hex::<16>(), headers.ttl);
        let push = TakenPush { id: id.clone(), headers, sender, body: body.to_vec(), taken_at: now };
        self.books().take(subscription, push)?;
        Ok((id, ttl))
    }
}

async fn show_browser() -> HttpResponse {
    let body = html! {
        h1 { "A browser" }
        p { "Subscribing…" }
        ul {}
        script type="module" src="/browser.js" {}
    };
    page("A browser", DARK_LIST, &body)
}

async fn script() -> HttpResponse {
    HttpResponse::Ok().content_type("text/javascript").body(include_str!("browser_push/browser.js"))
}

async fn join(shared: web::Data<SharedPushes>, keys: web::Json<JoinedKeys>) -> HttpResponse {
    let (id, endpoint) = shared.subscribe(None);
    match shared.joining.try_send(JoinedBrowser { endpoint, keys: keys.into_inner() }) {
        Ok(()) => HttpResponse::Created().json(json!({ "id": id })),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}

async fn set_faults(shared: web::Data<SharedPushes>, faults: web::Json<DeliveryFaults>) -> HttpResponse {
    shared.faults.set(faults.into_inner());
    HttpResponse::Ok().json(json!({ "ok": true }))
}

async fn subscribe(shared: web::Data<SharedPushes>, new: Option<web::Json<NewSubscription>>) -> HttpResponse {
    let NewSubscription { application_server_key } = new.map(web::Json::into_inner).unwrap_or_default();
    let (id, endpoint) = shared.subscribe(application_server_key);
    HttpResponse::Created().json(json!({ "id": id, "endpoint": endpoint }))
}

async fn unsubscribe(shared: web::Data<SharedPushes>, id: web::Path<String>) -> HttpResponse {
    found(shared.books().end(&id))
}

async fn remove(shared: web::Data<SharedPushes>, id: web::Path<String>) -> HttpResponse {
    found(shared.books().remove(&id))
}

fn found(is_found: bool) -> HttpResponse {
    if is_found { HttpResponse::NoContent().finish() } else { HttpResponse::NotFound().finish() }
}

async fn list(shared: web::Data<SharedPushes>, id: web::Path<String>) -> HttpResponse {
    let Some(waiting) = shared.books().waiting(&id, shared.clock.now()) else { return found(false) };
    let shown = |push: TakenPush| {
        json!({
            "id": push.id, "headers": push.headers, "contact": push.sender.contact, "key": push.sender.key,
            "body": URL_SAFE_NO_PAD.encode(push.body),
        })
    };
    HttpResponse::Ok().json(waiting.into_iter().map(shown).collect::<Value>())
}

async fn push(shared: web::Data<SharedPushes>, id: web::Path<String>, req: HttpRequest, body: Bytes) -> HttpResponse {
    let answer = match shared.faults.answer().await {
        Some(fault) => fault,
        None => match shared.take(&id, &req, &body) {
            Ok((message, ttl)) => HttpResponse::Created()
                .insert_header((LOCATION, format!("{}/messages/{message}", shared.origin())))
                .insert_header(("ttl", ttl.to_string()))
                .finish(),
            Err(refusal) => {
                shared.books().note(refusal);
                refusal.answer()
            }
        },
    };
    shared.asked.send_modify(|asked| *asked += 1);
    answer
}
