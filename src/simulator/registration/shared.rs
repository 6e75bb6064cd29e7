//! State that the sites share.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix_web::{HttpResponse, http::StatusCode};
use ring::hmac;
use tokio::{sync::watch, time::sleep};

use super::books::RegistrationBooks;
use crate::{clock::Clock, crypto::random::Random, simulator::push_service::PushService};

/// The key of the simulated app.
pub const SIMULATED_API_KEY: &str = "AIzaSimulated00000000000000000000000000";
/// Between two looks whether an answer that is late is due.
const LATE_PAUSE: Duration = Duration::from_millis(20);

/// Shared by all requests.
pub struct SharedSites {
    pub addr: SocketAddr,
    pub clock: Clock,
    pub random: Random,
    pub pushes: Arc<PushService>,
    /// Signs the tokens of logins.
    pub key: hmac::Key,
    pub identity_url: String,
    pub claimed_id_prefix: String,
    pub http: reqwest::Client,
    /// A request hangs, or did.
    pub hanging: watch::Sender<bool>,
    pub books: Mutex<RegistrationBooks>,
}

impl SharedSites {
    pub(crate) fn books(&self) -> MutexGuard<'_, RegistrationBooks> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer of a step that is out of order now, or none ever.
    pub async fn outage(&self, step: &str) -> Option<HttpResponse> {
        let hangs = self.books().faults.hangs.as_deref() == Some(step);
        if hangs {
            self.hanging.send_replace(true);
            std::future::pending::<()>().await;
        }
        while self.books().faults.late.as_deref() == Some(step) {
            self.hanging.send_replace(true);
            sleep(LATE_PAUSE).await;
        }
        let mut books = self.books();
        if books.faults.unavailable == 0 {
            return None;
        }
        books.faults.unavailable -= 1;
        Some(HttpResponse::build(StatusCode::SERVICE_UNAVAILABLE).finish())
    }
}
