//! Events on and around a paired game server: `/intel/{serverId}/timeline`.

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::ApiError,
            fields::rfc3339,
            list_page::{cursor, next_of},
        },
        context::ApiContext,
        extract::{paired_server::WatchedServer, query::Query},
    },
    db::{engine::pool::Db, markets, paired_servers, timeline},
    domain::{
        ids::GameServerId,
        reporting::{KnownReports, Reports},
        timeline::{TimelineEntry, TimelinePage},
        world_event::{EventKind, WorldEvent},
    },
};

/// Entries of a page when no `limit` is given.
const PAGE: usize = 200;

/// Filters and a page of entries.
#[derive(Deserialize, IntoParams, Validate)]
pub struct TimelineQuery {
    /// Only what happened then or later: RFC 3339.
    #[garde(skip)]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<String>,
    /// Only these kinds: a comma list.
    #[garde(length(max = 200))]
    #[param(max_length = 200, format = "event-kinds")]
    types: Option<String>,
    /// Most entries of the page; 200 if absent.
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
    /// Newest first, equal to the relay's `event`, under the same ids; a raid has that of its incident.
    #[schema(value_type = Vec<WorldEvent>)]
    entries: Vec<TimelineEntry>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
    /// The game server's reports. While it does not report events or shops, their absence here says nothing.
    reports: Reports,
}

/// The timeline of a paired server, newest first: its team, devices and raids, and what happened in the world of its
/// game server.
#[utoipa::path(get, path = "/intel/{serverId}/timeline", tag = "intel",
    params(("serverId" = String, Path), TimelineQuery), responses(
    (status = 200, body = Timeline),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(query): Query<TimelineQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let page = query.page()?;
    let limit = page.limit;
    let live = context.services.markets.clone();
    let read = move |db: &mut Db| {
        let paired = paired_servers::get(db, &id)?;
        let game_server = GameServerId::at(&paired.address, paired.port);
        let known = match live.reports(&game_server) {
            _ if !paired.is_accepted() => KnownReports::default(),
            Some(known) => known,
            None => markets::reports(db, &game_server)?,
        };
        Ok((timeline::list(db, &id, &page)?, known.reports()))
    };
    let (entries, reports) = context.pool.read(read).await?;
    let next = next_of(&entries, limit, |last| last.cursor().to_wire());
    Ok(HttpResponse::Ok().json(Timeline { entries, next, reports }))
}

impl TimelineQuery {
    fn page(self) -> Result<TimelinePage, ApiError> {
        let Self { since, types, limit, before } = self;
        let since = since.as_deref().map(|since| rfc3339("since", since));
        let before = cursor(before);
        let kinds = types.filter(|types| !types.trim().is_empty()).map(|types| {
            let mut kinds: Vec<String> = types.split(',').map(|kind| kind.trim().to_owned()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            let unknown = kinds.iter().find(|kind| EventKind::parse(kind).is_none());
            match unknown {
                Some(unknown) => Err(ApiError::invalid("types", format!("`{unknown}` is no kind of entry"))),
                None => Ok(kinds),
            }
        });
        Ok(TimelinePage {
            since: since.transpose()?,
            before: before?,
            kinds: kinds.transpose()?,
            limit: limit.unwrap_or(PAGE),
        })
    }
}
