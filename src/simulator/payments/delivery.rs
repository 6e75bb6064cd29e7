//! Sends events to the service, signed, until it takes them.

use std::{
    fmt::Write as _,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use ring::hmac;
use serde_json::Value;
use tokio::time::sleep;

use super::setup::{PaymentFaults, WEBHOOK_SECRET};
use crate::{clock::Clock, simulator::loopback_client::loopback_client};

const DEADLINE: Duration = Duration::from_secs(20);
/// Attempts for one event: about an hour.
const ATTEMPTS: u32 = 16;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Between the events of one step that are sent in reverse.
const REVERSED: Duration = Duration::from_millis(100);

/// See the module.
pub struct EventDelivery {
    http: reqwest::Client,
    state: Arc<DeliveryState>,
}

#[derive(Default)]
struct DeliveryState {
    url: Mutex<Option<String>>,
    under_way: AtomicUsize,
    stopped: AtomicBool,
}

impl EventDelivery {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { http: loopback_client(DEADLINE)?, state: Arc::default() })
    }

    /// Sets where events are sent; before, none is.
    pub fn set_url(&self, url: String) {
        *self.state.url.lock().unwrap_or_else(PoisonError::into_inner) = Some(url);
    }

    /// Number of events that are not taken yet.
    pub fn under_way(&self) -> usize {
        self.state.under_way.load(Ordering::Relaxed)
    }

    /// Ends all attempts.
    pub fn stop(&self) {
        self.state.stopped.store(true, Ordering::Relaxed);
    }

    /// Sends the events of one step, each on its own.
    pub fn send(&self, events: Vec<Value>, faults: &PaymentFaults, clock: &Clock) {
        let count = events.len();
        for (place, event) in events.into_iter().enumerate() {
            let behind = if faults.reversed { count - 1 - place } else { place };
            let delay = Duration::from_millis(faults.event_delay) + REVERSED * u32::try_from(behind).unwrap_or(0);
            for _ in 0..=faults.duplicates {
                let (http, state, clock, body) =
                    (self.http.clone(), self.state.clone(), clock.clone(), event.to_string());
                state.under_way.fetch_add(1, Ordering::Relaxed);
                actix::spawn(async move {
                    sleep(delay).await;
                    deliver(&http, &state, &clock, body).await;
                    state.under_way.fetch_sub(1, Ordering::Relaxed);
                });
            }
        }
    }
}

async fn deliver(http: &reqwest::Client, state: &DeliveryState, clock: &Clock, body: String) {
    let mut pause = FIRST_PAUSE;
    for _ in 0..ATTEMPTS {
        let url = state.url.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(url) = url else { return };
        let signature = signature(WEBHOOK_SECRET, &body, clock.now().timestamp());
        let request = http.post(url).header("Stripe-Signature", signature).header("Content-Type", "application/json");
        match request.body(body.clone()).send().await {
            Ok(answer) if answer.status().is_success() => return,
            Ok(answer) => log::warn!("the service answered a payment event with {}", answer.status()),
            Err(error) => log::warn!("a payment event was not delivered: {}", error.without_url()),
        }
        if state.stopped.load(Ordering::Relaxed) {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The header of a webhook.
pub fn signature(secret: &str, body: &str, now: i64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{now}.{body}").as_bytes());
    tag.as_ref().iter().fold(format!("t={now},v1="), |mut header, byte| {
        // Writing into a String does not fail.
        let _ = write!(header, "{byte:02x}");
        header
    })
}
