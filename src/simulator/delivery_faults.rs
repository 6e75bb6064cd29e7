//! Faults of a service that takes messages, for a test to choose.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::RETRY_AFTER},
};
use serde::Deserialize;
use tokio::sync::watch;

/// Faults of the service; none by default. Also the body of `POST /faults`, as JSON in camelCase.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DeliveryFaults {
    /// Status of the answer in place of the real one, as 404, 410, 413, 429 and 500.
    pub status: Option<u16>,
    /// Pause that these answers ask for, seconds.
    pub retry_after: Option<u32>,
    /// Messages that are answered so; absent: all.
    pub messages: Option<u32>,
    /// No message is answered before this fault is gone.
    pub slow: bool,
}

/// The faults that a service has now.
pub struct FaultyDelivery {
    faults: watch::Sender<DeliveryFaults>,
    /// Messages that wait, or did.
    held: watch::Sender<u64>,
}

impl Default for FaultyDelivery {
    fn default() -> Self {
        Self { faults: watch::Sender::new(DeliveryFaults::default()), held: watch::Sender::new(0) }
    }
}

impl FaultyDelivery {
    /// Sets the faults; messages that wait for an answer get it if they are no longer slow.
    pub fn set(&self, faults: DeliveryFaults) {
        self.faults.send_replace(faults);
    }

    /// Waits until a message waits for its answer.
    pub async fn until_held(&self) {
        let mut held = self.held.subscribe();
        held.wait_for(|held| *held > 0).await.expect("self owns the sender");
    }

    /// Waits while messages are slow. The answer to this message, if the faults have one.
    pub async fn answer(&self) -> Option<HttpResponse> {
        let mut faults = self.faults.subscribe();
        if faults.borrow().slow {
            self.held.send_modify(|held| *held += 1);
            faults.wait_for(|faults| !faults.slow).await.expect("self owns the sender");
        }
        let mut answer = None;
        self.faults.send_modify(|faults| {
            if let Some(status) = faults.status.filter(|_| faults.messages != Some(0)) {
                faults.messages = faults.messages.map(|left| left - 1);
                answer = Some((status, faults.retry_after));
            }
        });
        let (status, retry_after) = answer?;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = HttpResponse::build(status);
        if let Some(seconds) = retry_after {
            answer.insert_header((RETRY_AFTER, seconds.to_string()));
        }
        Some(answer.finish())
    }
}
