//! What is shared with a user, and the links by which it comes: `/guest-invites/*`.

use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        context::ApiContext,
        done::Done,
        error::{ApiError, Problem},
        extract::{json::Json, query::Query, session_user::SessionUser},
        guests::PersonView,
        rate_limits::{Guessed, guess_refused},
    },
    crypto::digest::sha256_hex,
    db::{
        guests::{self, LinkRefused, OpenLink, SharedServer},
        pool::Db,
    },
    domain::{
        access::Role,
        ids::ServerId,
        limits::SHARED_SERVERS_PER_USER,
        pairing::WRONG_PER_ADDRESS,
        time::{self, Timestamp},
    },
    relay::hub::AccessChanged,
};

/// The token of an invitation link.
#[derive(Deserialize, IntoParams, ToSchema, Validate)]
#[into_params(parameter_in = Query)]
#[schema(example = json!({ "token": "q0JH3mJrT1mYw5nqk2rXzA" }))]
pub struct InviteToken {
    #[garde(length(min = 1, max = 128))]
    #[schema(min_length = 1, max_length = 128)]
    #[param(min_length = 1, max_length = 128)]
    token: String,
}

/// A server that somebody shares with this user.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SharedServerView {
    /// The id of this user as a guest, as the owner sees it.
    id: String,
    server_id: String,
    server_name: String,
    /// Who shares it.
    owner: PersonView,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct SharedServerList {
    /// Oldest first.
    servers: Vec<SharedServerView>,
}

/// What a link opens.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct InvitePreview {
    server_name: String,
    /// Who invites.
    owner: PersonView,
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

impl From<SharedServer> for SharedServerView {
    fn from(SharedServer { guest, since, server, owner }: SharedServer) -> Self {
        Self {
            id: guest.to_string(),
            server_id: server.id.to_string(),
            server_name: server.name_for(Role::Guest).to_owned(),
            owner: owner.into(),
            since,
        }
    }
}

/// The servers that others share with this user.
#[utoipa::path(get, path = "/guest-invites", tag = "guests", security(("session" = [])), responses(
    (status = 200, body = SharedServerList),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let shared = context.pool.read(move |db| guests::shared_with(db, &user.id)).await?;
    let servers = shared.into_iter().map(SharedServerView::from).collect();
    Ok(HttpResponse::Ok().json(SharedServerList { servers }))
}

/// What a link opens, for whoever has it. The token is the credential.
#[utoipa::path(get, path = "/guest-invites/preview", tag = "guests", params(InviteToken), responses(
    (status = 200, body = InvitePreview),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_invite`"),
    (status = 410, body = Problem, content_type = "application/problem+json",
        description = "`invite_used` or `invite_expired`"),
    (status = 429, body = Problem, content_type = "application/problem+json",
        description = "`rate_limited`: too many unknown links"),
))]
pub async fn preview(
    req: HttpRequest,
    Query(InviteToken { token }): Query<InviteToken>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (hash, now, pool) = (sha256_hex(token.as_bytes()), context.clock.now(), context.pool.clone());
    let found = async move { Ok(pool.read(move |db| guests::preview(db, &hash, now)).await?) };
    let OpenLink { expires_at, server, owner } = guessing(&context, &req, found).await?;
    let server_name = server.name_for(Role::Guest).to_owned();
    let preview = InvitePreview { server_name, owner: owner.into(), expires_at };
    Ok(HttpResponse::Ok().json(preview))
}

/// Accepts a link: this user is a guest of its server from now on. One who is a guest already stays one, and leaves the
/// link to others.
#[utoipa::path(post, path = "/guest-invites/accept", tag = "guests", security(("session" = [])),
    request_body = InviteToken, responses(
    (status = 200, body = SharedServerView),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`unknown_invite`"),
    (status = 409, body = Problem, content_type = "application/problem+json",
        description = "`limit_reached`; `conflict`: the server is the user's own"),
    (status = 410, body = Problem, content_type = "application/problem+json",
        description = "`invite_used` or `invite_expired`"),
    (status = 429, body = Problem, content_type = "application/problem+json",
        description = "`rate_limited`: too many unknown links"),
))]
pub async fn accept(
    SessionUser { user, .. }: SessionUser,
    req: HttpRequest,
    Json(InviteToken { token }): Json<InviteToken>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (hash, now) = (sha256_hex(token.as_bytes()), context.clock.now());
    let (pool, hub, guest) = (context.pool.clone(), context.hub.clone(), user.id.clone());
    let tell = move |accepted: &Result<ServerId, LinkRefused>| {
        if let Ok(server) = accepted {
            hub.do_send(AccessChanged { server: server.clone() });
        }
    };
    let accept = move |db: &mut Db| guests::accept(db, &hash, &guest, now);
    let accepted = async move { Ok(pool.write_and_tell(accept, tell).await?) };
    let server = guessing(&context, &req, accepted).await?;
    let shared = context.pool.read(move |db| guests::shared_with(db, &user.id)).await?;
    // None if the owner was quicker.
    let shared = shared.into_iter().find(|shared| shared.server.id == server).ok_or(ApiError::UnknownInvite)?;
    Ok(HttpResponse::Ok().json(SharedServerView::from(shared)))
}

/// Leaves a server that somebody shares with this user; their watches of it end at once.
#[utoipa::path(delete, path = "/guest-invites/{serverId}", tag = "guests", security(("session" = [])),
    params(("serverId" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn leave(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let server = ServerId::from(path.into_inner());
    let (hub, watched) = (context.hub.clone(), server.clone());
    let tell = move |left: &bool| {
        if *left {
            hub.do_send(AccessChanged { server: watched });
        }
    };
    if context.pool.write_and_tell(move |db| guests::leave(db, &user.id, &server), tell).await? {
        Ok(HttpResponse::Ok().json(Done::OK))
    } else {
        Err(ApiError::NotFound)
    }
}

/// The outcome of a look-up of a link, paid for as a guess, and paid back unless there is no such link.
async fn guessing<T>(
    context: &ApiContext,
    req: &HttpRequest,
    look_up: impl Future<Output = Result<Result<T, LinkRefused>, ApiError>>,
) -> Result<T, ApiError> {
    let guess = context.rate_limits.begin_guess(Guessed::Invite, req, context.clock.moment())?;
    let outcome = look_up.await;
    if !matches!(outcome, Ok(Err(LinkRefused::Unknown))) {
        context.rate_limits.pay_back_guess(Guessed::Invite, guess);
    }
    outcome?.map_err(|refused| match refused {
        LinkRefused::Unknown if !guess.within_global => {
            guess_refused(Guessed::Invite, WRONG_PER_ADDRESS.every.to_std().unwrap_or_default())
        }
        LinkRefused::Unknown => ApiError::UnknownInvite,
        LinkRefused::Used => ApiError::InviteUsed,
        LinkRefused::Expired => ApiError::InviteExpired,
        LinkRefused::Owner => ApiError::Conflict,
        LinkRefused::Full => ApiError::LimitReached(format!(
            "One user can be a guest of {SHARED_SERVERS_PER_USER} servers at most. Leave one first."
        )),
    })
}
