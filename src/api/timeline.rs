//! What happened on and around a paired game server: `/intel/{serverId}/timeline`.

use actix_web::{HttpResponse, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        context::ApiContext,
        error::{ApiError, Problem},
        extract::{paired_server::WatchedServer, query::Query},
    },
    db::timeline,
    domain::{
        timeline::{Cursor, TimelineEntry, TimelinePage},
        world_event::EventKind,
    },
};

/// Entries of a page when no `limit` is given.
const PAGE: usize = 200;

/// Which entries.
#[derive(Deserialize, IntoParams, Validate)]
pub struct TimelineQuery {
    /// Only what happened then or later: RFC 3339.
    #[garde(skip)]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<String>,
    /// Only these kinds: a comma list of `cargo`, `heli`, `chinook`, `crate`, `oilrig`, `vendor`, `explosion`, `death`,
    /// `raid`, `login`, `logout`, `team`, `wipe`, `shop`, `device`, `gap`.
    #[garde(length(max = 200))]
    #[param(max_length = 200, format = "event-kinds")]
    types: Option<String>,
    /// At most so many; 200 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Only older ones: the `next` of the page before.
    #[garde(length(max = 128))]
    #[param(max_length = 128, format = "cursor")]
    before: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct Timeline {
    /// Newest first.
    #[schema(value_type = Vec<EntrySchema>)]
    entries: Vec<TimelineEntry>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// An entry of the timeline.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct EntrySchema {
    /// The `id` of the relay's event, or of the incident.
    id: String,
    kind: String,
    action: String,
    #[schema(format = DateTime)]
    ts: String,
    grid: String,
    /// Metres from the south-west corner.
    x: Option<f64>,
    y: Option<f64>,
    title: String,
    /// Further facts of this kind.
    #[schema(value_type = Object)]
    data: serde_json::Value,
}

/// The timeline of a paired server, newest first: its team, devices and raids, and what happened in the world of its
/// game server.
#[utoipa::path(get, path = "/intel/{serverId}/timeline", tag = "intel", security(("session" = [])),
    params(("serverId" = String, Path), TimelineQuery), responses(
    (status = 200, body = Timeline),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(query): Query<TimelineQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let page = query.page()?;
    let limit = page.limit;
    let entries = context.pool.read(move |db| timeline::list(db, &id, &page)).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|last| last.cursor().to_wire());
    Ok(HttpResponse::Ok().json(Timeline { entries, next }))
}

impl TimelineQuery {
    fn page(self) -> Result<TimelinePage, ApiError> {
        let Self { since, types, limit, before } = self;
        let since = since.map(|since| {
            let since = DateTime::parse_from_rfc3339(&since).map(|since| since.with_timezone(&Utc));
            since.map_err(|_| ApiError::invalid("since", "must be a time like 2026-01-31T12:00:00Z"))
        });
        let before = before.map(|before| {
            Cursor::parse(&before).ok_or_else(|| ApiError::invalid("before", "must be the `next` of another page"))
        });
        let kinds = types.filter(|types| !types.trim().is_empty()).map(|types| {
            let mut kinds: Vec<String> = types.split(',').map(|kind| kind.trim().to_owned()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            let unknown = kinds.iter().find(|kind| !EventKind::ALL.iter().any(|known| known.word() == *kind));
            match unknown {
                Some(unknown) => Err(ApiError::invalid("types", format!("`{unknown}` is no kind of entry"))),
                None => Ok(kinds),
            }
        });
        Ok(TimelinePage {
            since: since.transpose()?,
            before: before.transpose()?,
            kinds: kinds.transpose()?,
            limit: limit.unwrap_or(PAGE),
        })
    }
}
