//! Pushes to a user that are of no paired server: `/me/news`.

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::ApiError,
            list_page::{cursor, next_of},
        },
        context::ApiContext,
        extract::{query::Query, session_user::SessionUser},
    },
    db::{engine::pool::Db, timeline},
    domain::{
        time::Timestamp,
        timeline::{TimelineEntry, TimelinePage},
    },
};

/// Entries of a page when no `limit` is given.
const PAGE: usize = 50;

/// A page of the news.
#[derive(Deserialize, IntoParams, Validate)]
pub struct NewsQuery {
    /// Most entries of the page; 50 if absent.
    #[garde(range(min = 1, max = 200))]
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// Only older ones: the `next` of the page before.
    #[garde(length(max = 128))]
    #[param(max_length = 128, format = "cursor")]
    before: Option<String>,
}

/// A push of the game that is of no paired server.
#[derive(Serialize, ToSchema)]
struct AccountNews {
    id: String,
    /// `news` of the publisher; `death`, `login` or `raid` at a game server that is not paired; otherwise `other`.
    #[schema(pattern = "^(news|death|login|raid|other)$")]
    kind: String,
    /// When it was sent.
    ts: Timestamp,
    title: String,
    message: String,
}

impl AccountNews {
    fn new(entry: TimelineEntry) -> Self {
        let TimelineEntry { id, kind, ts, title, data, .. } = entry;
        let message = data.get("message").and_then(|message| message.as_str()).unwrap_or_default().to_owned();
        Self { id, kind, ts, title, message }
    }
}

#[derive(Serialize, ToSchema)]
struct NewsList {
    /// Newest first.
    #[schema(max_items = 200)]
    news: Vec<AccountNews>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// Pushes to the user that are of no paired server, newest first: news of the publisher, and deaths, logins and alarms at
/// game servers that are not paired.
#[utoipa::path(get, path = "/me/news", tag = "sign-in", params(NewsQuery), responses(
    (status = 200, body = NewsList),
))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    Query(NewsQuery { limit, before }): Query<NewsQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let limit = limit.unwrap_or(PAGE);
    let page = TimelinePage { since: None, before: cursor(before)?, kinds: None, limit };
    let entries = context.pool.read(move |db: &mut Db| timeline::list_of_user(db, &user.id, &page)).await?;
    let next = next_of(&entries, limit, |last| last.cursor().to_wire());
    Ok(HttpResponse::Ok().json(NewsList { news: entries.into_iter().map(AccountNews::new).collect(), next }))
}
