//! Answers of a process that waits for its database, or for another one that serves from it: it lives, is not ready, and
//! waits. The addresses are bound meanwhile, so that clients that connect during the takeover wait and are not refused.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::ServerHandle,
    http::{KeepAlive, StatusCode, header},
    rt, web,
};
use maud::html;
use serde_json::json;
use tokio::time::Instant;

use super::{listeners::Listeners, start_error::StartError};
use crate::{
    api::answer::page,
    clock::Clock,
    config::{BaseUrl, Config},
    crypto::random::Random,
    domain::problem::{self, ProblemCode},
};

/// Connections that are answered at the same time; others wait.
const CONNECTIONS: usize = 256;
/// Seconds after which a refused client may come again.
const RETRY_AFTER: u64 = 1;
/// Seconds after which a page loads itself again.
const RENEWED_AFTER: u64 = 5;

/// The listeners of a process that waits, and their answers.
pub struct WaitingService {
    listeners: Listeners,
    answers: Arc<WaitingAnswers>,
    server: ServerHandle,
}

struct WaitingAnswers {
    base: BaseUrl,
    clock: Clock,
    random: Random,
    started: Instant,
    /// Process or thing for which it waits.
    reason: Mutex<String>,
}

impl WaitingService {
    /// Binds both listeners and answers there.
    pub fn start(config: &Config, clock: &Clock) -> Result<Self, StartError> {
        let listeners = Listeners::bind(&config.listen)?;
        let urls = config.urls.clone().listening_at(listeners.api_addr, listeners.relay_addr);
        let answers = Arc::new(WaitingAnswers {
            base: urls.base,
            clock: clock.clone(),
            random: Random::system(),
            started: Instant::now(),
            reason: Mutex::default(),
        });
        let shared = answers.clone();
        let app = move || {
            App::new()
                .app_data(web::Data::from(shared.clone()))
                .service(web::resource("/health").to(health))
                .service(web::resource("/ready").to(ready))
                .service(web::resource("/metrics").to(metrics))
                .default_service(web::to(unavailable))
        };
        let server = || -> io::Result<_> {
            let server = HttpServer::new(app)
                .workers(1)
                .max_connections(CONNECTIONS)
                .client_request_timeout(Duration::from_secs(5))
                // A client that asks again reaches the process that serves by then.
                .keep_alive(KeepAlive::Disabled)
                .disable_signals()
                .shutdown_timeout(1)
                .listen(listeners.api.try_clone()?)?
                .listen(listeners.relay.try_clone()?)?;
            Ok(server.run())
        };
        let server = server().map_err(|cause| StartError::Bind {
            variable: "API_LISTEN",
            address: listeners.api_addr,
            cause,
        })?;
        let handle = server.handle();
        rt::spawn(server);
        Ok(Self { listeners, answers, server: handle })
    }

    /// Sets the process or thing for which it waits.
    pub fn waits_for(&self, reason: String) {
        *self.answers.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Stops answering; clients that connect from now on wait for the service.
    pub async fn end(self) -> Listeners {
        // First: who connects while the workers end would be cut off.
        self.server.pause().await;
        self.server.stop(true).await;
        self.listeners
    }
}

async fn health(answers: web::Data<WaitingAnswers>) -> HttpResponse {
    let uptime = answers.started.elapsed().as_secs();
    let health = json!({ "ok": true, "serving": false, "activeConnections": 0, "uptime": uptime });
    HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(health)
}

async fn ready(answers: web::Data<WaitingAnswers>) -> HttpResponse {
    answers.refusal(&problem::NOT_READY)
}

/// Says no more than `/health`, so it takes no token.
async fn metrics() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body("companion_serving 0\n")
}

async fn unavailable(req: HttpRequest, answers: web::Data<WaitingAnswers>) -> HttpResponse {
    match page::is_wanted(req.headers().get(header::ACCEPT)) {
        true => notice(),
        false => answers.refusal(&problem::UNAVAILABLE),
    }
}

/// For a person, who is not concerned with the reason.
fn notice() -> HttpResponse {
    let content = html! {
        p { "The operator is starting or repairing this service; there is nothing for you to do." }
        p { "This page tries again by itself." }
    };
    let again = [("Try again now", String::new())];
    let page = page::notice("Not there yet", &content, &again, &html! { "503" });
    let mut answer = page::answer(page);
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = answer.headers_mut();
    for (name, seconds) in [(header::RETRY_AFTER, RETRY_AFTER), (header::REFRESH, RENEWED_AFTER)] {
        headers.insert(name, seconds.into());
    }
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    answer
}

impl WaitingAnswers {
    /// A problem document (RFC 9457), as the API answers too.
    fn refusal(&self, code: &ProblemCode) -> HttpResponse {
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let body = json!({
            "type": self.base.at(&code.path()),
            "title": code.title,
            "status": status.as_u16(),
            "detail": "This process does not serve yet; see `errors`.",
            "code": code.code,
            "requestId": self.random.id::<String>(self.clock.now()),
            "errors": [{ "path": "service", "message": reason }],
        });
        HttpResponse::build(status)
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .insert_header((header::RETRY_AFTER, RETRY_AFTER))
            .content_type("application/problem+json")
            .body(body.to_string())
    }
}

#[cfg(test)]
mod tests {
    use actix_web::body;

    use super::*;

    #[tokio::test]
    async fn a_person_reads_that_there_is_nothing_to_do_and_the_page_comes_back_by_itself() {
        let answer = notice();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        for name in [header::REFRESH, header::RETRY_AFTER] {
            assert!(answer.headers().contains_key(&name), "{name}");
        }
        let bytes = body::to_bytes(answer.into_body()).await.unwrap_or_default();
        assert!(String::from_utf8_lossy(&bytes).contains("there is nothing for you to do"));
    }
}
