//! Metrics for operators, in the text format of Prometheus.

use std::sync::{OnceLock, atomic::Ordering};

use actix_web::{HttpResponse, guard::GuardContext, http::header::HeaderMap, web};
use metrics::gauge;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::{
    api::{context::ApiContext, error::ApiError},
    db::{alarms, incidents},
};

/// The process's recorder; the first call installs it.
pub fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().ok()).as_ref()
}

/// Whether a request comes straight from this machine: not through a proxy that says it is one. For
/// `Resource::guard`.
pub fn is_local(request: &GuardContext<'_>) -> bool {
    let peer = request.head().peer_addr;
    peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) && !is_forwarded(request.head().headers())
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(|name| name.as_str());
    names.any(|name| matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-"))
}

/// Counters since start, and the ledger of alarms. Only for this machine: for a request from elsewhere, or through a
/// reverse proxy, there is no such route.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, content_type = "text/plain")))]
pub async fn metrics(context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let recorder = recorder().ok_or(ApiError::NotFound)?;
    let now = context.clock.now();
    let (tally, states) = context.pool.read(|db| Ok((alarms::tally(db)?, incidents::tally(db)?))).await?;
    for (state, count) in tally.counts {
        gauge!("companion_alarms", "state" => state).set(count as f64);
    }
    for (state, count) in states {
        gauge!("companion_incidents", "state" => state).set(count as f64);
    }
    let oldest = tally.oldest_unfinished.map_or(0.0, |since| (now - since).num_milliseconds() as f64 / 1_000.0);
    gauge!("companion_alarms_oldest_unfinished_seconds").set(oldest);
    gauge!("companion_relay_connections").set(context.relay_health.active.load(Ordering::Relaxed) as f64);
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(recorder.render()))
}
