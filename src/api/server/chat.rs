//! The team chat of a paired server: `/paired-servers/{id}/chat`.

use std::{cell::Cell, rc::Rc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::ApiError,
            fields::rfc3339,
            list_page::{cursor, next_of},
        },
        context::ApiContext,
        extract::{
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::Json,
            paired_server::{OwnedServer, WatchedServer},
            query::Query,
            route_facts,
        },
    },
    db::chat_lines,
    domain::chat::StoredLine,
    relay::hub::{ChatError, SendChat, shown_text},
};

/// The relay has a deadline of its own, 5 s; this one is for a relay that does not answer.
const RELAY_DEADLINE: Duration = Duration::from_secs(8);
/// Lines of a page when no `limit` is given.
const PAGE: usize = 50;
/// UTF-16 units of a line, as the game counts; older game servers cut longer ones (protocol §3.3).
const LINE: usize = 128;

/// A page of lines.
#[derive(Deserialize, IntoParams, Validate)]
pub struct ChatQuery {
    /// Most lines of the page; 50 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Only lines said then or later: RFC 3339. With it, a client that was away gets the lines that it missed.
    #[garde(skip)]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<String>,
    /// Only older ones: the `next` of the page before.
    #[garde(length(max = 128))]
    #[param(max_length = 128, format = "cursor")]
    before: Option<String>,
}

/// A line to say.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "text": "Raid at K12" }))]
pub struct CreateChatLine {
    /// One line of at most 128 UTF-16 units.
    #[garde(length(utf16, min = 1, max = LINE), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 128)]
    text: String,
}

fn one_line(text: &str, _: &()) -> garde::Result {
    if text.chars().any(char::is_control) {
        return Err(garde::Error::new("must be one line of text"));
    }
    // The game takes it and says nothing.
    if shown_text(text).is_empty() { Err(garde::Error::new("must not be blank")) } else { Ok(()) }
}

#[derive(Serialize, ToSchema)]
struct ChatView {
    /// Newest first.
    #[schema(value_type = Vec<ChatLineSchema>)]
    lines: Vec<StoredLine>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// A line of the team's chat, as the relay's `chat` has it.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
#[serde(rename_all = "camelCase")]
struct ChatLineSchema {
    id: String,
    author: String,
    /// SteamID64 of who said it; `null` on a line that was kept by an earlier version.
    #[schema(required, format = "steamid64")]
    author_id: Option<String>,
    text: String,
    #[schema(format = DateTime)]
    ts: String,
}

/// The last lines of the team's chat, newest first: at most 1000 of 90 days.
#[utoipa::path(get, path = "/paired-servers/{id}/chat", tag = "paired servers",
    params(("id" = String, Path), ChatQuery), responses(
    (status = 200, body = ChatView),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(ChatQuery { limit, since, before }): Query<ChatQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let limit = limit.unwrap_or(PAGE);
    let (since, before) = (since.as_deref().map(|since| rfc3339("since", since)).transpose()?, cursor(before)?);
    let lines = context.pool.read(move |db| chat_lines::list(db, &id, since, before.as_ref(), limit)).await?;
    let next = next_of(&lines, limit, |last| last.cursor().to_wire());
    Ok(HttpResponse::Ok().json(ChatView { lines, next }))
}

/// Says a line in the team's chat, as the paired player, and waits until the game repeats it, five seconds at most. The
/// line is kept then.
#[utoipa::path(post, path = "/paired-servers/{id}/chat", tag = "paired servers",
    params(("id" = String, Path)), request_body = CreateChatLine, responses(
    (status = 201, body = ChatLineSchema, description = "As the team hears it"),
    (status = 403, description = "`owner_only`"),
    (status = 409,
        description = "`no_team`: the paired player is in none; `message_not_sent`: the game server refuses it; `conflict`: with this `Idempotency-Key` it was said or not, look at the chat"),
    (status = 503, description = "`game_server_unavailable`"),
    (status = 504, description = "`game_server_timeout`"),
))]
pub async fn create(
    OwnedServer { user, id: server, .. }: OwnedServer,
    once: Idempotent,
    Json(CreateChatLine { text }): Json<CreateChatLine>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    route_facts::take_limit(&req, &user.id)?;
    let (caller, hub) = (user.id.clone(), context.services.hub.clone());
    let is_first = Rc::new(Cell::new(false));
    let first = is_first.clone();
    let plan = async move |_: Option<&str>| {
        first.set(true);
        Ok(text)
    };
    let say = move |text: String| async move {
        // The outcome of the first attempt is unknown, and the game would say the line once more.
        if !is_first.get() {
            return Err(ApiError::Conflict);
        }
        let said = timeout(RELAY_DEADLINE, hub.send(SendChat { server, user: user.id, text })).await;
        let said = said.map_err(|elapsed| ApiError::Unavailable(elapsed.into()))?;
        let line = said.map_err(|error| ApiError::Unavailable(error.into()))?.map_err(|error| match error {
            ChatError::UnknownServer => ApiError::NotFound,
            ChatError::OwnerOnly => ApiError::OwnerOnly,
            ChatError::NoTeam => ApiError::NoTeam,
            ChatError::Refused => ApiError::MessageNotSent,
            ChatError::Unavailable => ApiError::GameServerUnavailable,
            ChatError::TimedOut => ApiError::GameServerTimeout,
            ChatError::Internal => ApiError::Unavailable("the line was not said".into()),
        })?;
        Ok(ReplayableAnswer::new(StatusCode::CREATED, &line))
    };
    once.effect(KeyCaller::User(caller), plan, say).await
}
