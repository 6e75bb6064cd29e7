//! The alarms of a paired server: `/paired-servers/{id}/alarms/*`.

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{error::ApiError, fields::own_id, list_page::next_of},
        context::ApiContext,
        extract::{
            paired_server::{ServerPart, WatchedServer},
            query::Query,
        },
    },
    db::alarms::incidents::{self, StoredIncident},
    domain::{incident::Incident, time::Timestamp},
    relay::hub::{AcknowledgeRaid, CommandError},
};

/// A page of incidents.
#[derive(Deserialize, IntoParams, Validate)]
pub struct Page {
    /// Most incidents of the page; 50 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// Only older ones than this incident: the `next` of the page before.
    #[garde(inner(custom(own_id)))]
    #[param(format = Uuid)]
    before: Option<String>,
}

/// An incident, and how far it came.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct IncidentView {
    /// Its id.
    incident: String,
    #[serde(flatten)]
    #[schema(value_type = IncidentSchema)]
    facts: Incident,
    /// `unheard`, `delivered`, `delivered_later` (a snapshot held it), `acknowledged` or `expired` (unheard for a day).
    #[schema(format = "incident-state")]
    state: String,
    /// Sockets that took its first message.
    sockets: i64,
    /// When a socket first took its message, or a snapshot with it.
    heard_at: Option<Timestamp>,
}

/// An incident, as `state.raids` of the relay has it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[allow(dead_code, reason = "only its schema is used")]
struct IncidentSchema {
    /// The device id of the alarm, or `push:` and the title where only a push message knows of it.
    alarm_id: String,
    alarm_name: String,
    /// Metres from the south-west corner; `null` while no user has given the device's place.
    x: Option<f64>,
    y: Option<f64>,
    grid: String,
    #[schema(format = DateTime)]
    first_at: String,
    #[schema(format = DateTime)]
    last_at: String,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// Triggers.
    count: u32,
    /// `link`, `push`, `drill`.
    paths: Vec<String>,
    /// True if it reached us more than twenty minutes after it was sent.
    late: bool,
    drill: bool,
    /// Time of each acknowledgement, by user id.
    acks: std::collections::BTreeMap<String, String>,
}

#[derive(Serialize, ToSchema)]
struct AlarmList {
    /// Newest first.
    alarms: Vec<IncidentView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl From<StoredIncident> for IncidentView {
    fn from(stored: StoredIncident) -> Self {
        let StoredIncident { id, incident, state, sockets, heard_at, .. } = stored;
        Self { incident: id, facts: incident, state, sockets, heard_at }
    }
}

/// The incidents of a paired server, newest first.
#[utoipa::path(get, path = "/paired-servers/{id}/alarms", tag = "alarms",
    params(("id" = String, Path), Page), responses(
    (status = 200, body = AlarmList),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(page): Query<Page>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let Page { limit, before } = page;
    let limit = limit.unwrap_or(50);
    let stored = context.pool.read(move |db| incidents::list(db, &id, before.as_deref(), limit)).await?;
    let alarms: Vec<IncidentView> = stored.into_iter().map(IncidentView::from).collect();
    let next = next_of(&alarms, limit as usize, |last| last.incident.clone());
    Ok(HttpResponse::Ok().json(AlarmList { alarms, next }))
}

/// Acknowledges an incident: it no longer rings this user. The first time counts.
#[utoipa::path(post, path = "/paired-servers/{id}/alarms/{incident}/ack", tag = "alarms",
    params(("id" = String, Path), ("incident" = String, Path)), responses(
    (status = 200, body = IncidentView),
))]
pub async fn acknowledge(
    WatchedServer { id, user, .. }: WatchedServer,
    ServerPart(incident): ServerPart,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    own_id(&incident, &()).map_err(|_| ApiError::NotFound)?;
    let acknowledge = AcknowledgeRaid { server: id, user: user.id, incident, by_link: false };
    let acknowledged = context.services.hub.send(acknowledge).await;
    match acknowledged.map_err(|error| ApiError::Unavailable(Box::new(error)))? {
        Ok(stored) => Ok(HttpResponse::Ok().json(IncidentView::from(stored))),
        Err(CommandError::UnknownServer | CommandError::UnknownIncident) => Err(ApiError::NotFound),
        Err(_) => Err(ApiError::Unavailable("the acknowledgement was not stored".into())),
    }
}
