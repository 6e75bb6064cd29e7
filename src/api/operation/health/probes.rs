//! Health of this process: it runs, reaches its database, and is ready for requests.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::{
    answer::{
        done::Done,
        error::{ApiError, FieldError},
    },
    context::ApiContext,
};

/// The process runs.
#[derive(Serialize, ToSchema)]
struct Liveness {
    ok: bool,
    /// `false`: another process serves, and this one waits to take over; it answers everything else with 503.
    serving: bool,
    /// Seconds since start.
    uptime: u64,
}

/// Everything has started.
#[derive(Serialize, ToSchema)]
struct ServiceReadiness {
    ok: bool,
    /// Needs the operator, and no reason to send traffic elsewhere: `database`, which is damaged, or the log of which was
    /// removed, `alarms`, which wait for the database for more than a minute, `storedSecrets`, some of which do not open,
    /// `node`, which has no lease, `storedRows`, some of which cannot be read, `erasures`, some of which are not on their list, `clock`, which differs from the identity provider's, `signIn`, for which
    /// that does not answer, `openFiles`, which are too few, `connections` of clients, of which few are left, `gameLinks` and `pushSessions`, most of which are not reached,
    /// `pushCredentials`, some of which cannot be read, `backup`, which is old, `images`, whose directory cannot be written,
    /// and `memory`, most of which is in use.
    #[schema(max_items = 16)]
    warnings: Vec<FieldError>,
}

/// The process runs. No I/O.
#[utoipa::path(get, path = "/health", tag = "health", responses((status = 200, body = Liveness)))]
pub async fn health(context: web::Data<ApiContext>) -> HttpResponse {
    HttpResponse::Ok().json(Liveness { ok: true, serving: true, uptime: context.health.started.elapsed().as_secs() })
}

/// The database takes what is written, and answers signed-in requests.
#[utoipa::path(get, path = "/health/db", tag = "health", responses(
    (status = 200, body = Done),
))]
pub async fn database(context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    context.check_database().await?;
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// Everything works: the database takes what is written and answers signed-in requests, the data directory has room, and the links of all
/// paired servers and the push sessions of all credentials are on their way. `not_ready` names in `errors` what is not:
/// `database`, `disk`, `gameLinks`, `pushSessions`, or `service` while it stops or waits for another process that serves. `warnings` need the operator.
#[utoipa::path(get, path = "/ready", tag = "health", responses(
    (status = 200, body = ServiceReadiness),
    (status = 503, description = "`not_ready`"),
))]
pub async fn ready(context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    match context.not_ready().await {
        missing if missing.is_empty() => {
            Ok(HttpResponse::Ok().json(ServiceReadiness { ok: true, warnings: context.warnings().await }))
        }
        missing => Err(ApiError::NotReady(missing)),
    }
}
