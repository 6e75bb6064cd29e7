//! Servers that are shared with a user, and the invitations by which they come: `/guest-invites/*`.

use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::one_line,
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{json::Json, query::Query, session_user::SessionUser},
        rate_limits::Guessed,
        server::guests::{GuestState, PersonView},
    },
    crypto::digest::sha256_hex,
    db::{
        engine::pool::Db,
        guests::{self, InviteKey, LinkRefused, OpenLink, SharedServer},
        notices::early_changes::EndedWay,
    },
    domain::{access::Role, ids::ServerId, limits::SHARED_SERVERS_PER_USER, time::Timestamp},
    relay::hub::AccessChanged,
};

/// The token of an invitation link.
#[derive(Deserialize, IntoParams, ToSchema, Validate)]
#[into_params(parameter_in = Query)]
#[schema(example = json!({ "token": "q0JH3mJrT1mYw5nqk2rXzA4hW8Zb1cD2eF3gH4iJ5kL" }))]
pub struct InviteToken {
    #[garde(length(min = 1, max = 128))]
    #[schema(min_length = 1, max_length = 128)]
    #[param(min_length = 1, max_length = 128)]
    token: String,
}

/// The invitation to accept: by the token of its link, or by its id where it is for this user's account. One of the two.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "id": "019aa6f0-8c00-7000-8000-000000000001" }))]
pub struct AcceptedInvite {
    #[garde(inner(length(min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    token: Option<String>,
    /// From `GET /guest-invites`.
    #[garde(length(max = 128), custom(one_line))]
    #[schema(format = "one-line", max_length = 128)]
    id: Option<String>,
}

/// A server that another user shares with this one, or an invitation to it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SharedServerView {
    /// The id of this user as a guest, or of the invitation, as the owner sees it.
    id: String,
    /// `invited`: nothing of the server is shared until this user accepts.
    state: GuestState,
    server_id: String,
    server_name: String,
    /// The user who shares it.
    owner: PersonView,
    invited_at: Timestamp,
    /// Since when this user is a guest; null while invited.
    since: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
struct SharedServerList {
    /// The servers of which the user is a guest, oldest first, then the invitations of the user's account.
    servers: Vec<SharedServerView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// Preview of an invitation link.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct InvitePreview {
    server_name: String,
    /// The user who invites.
    owner: PersonView,
    expires_at: Option<Timestamp>,
}

impl SharedServerView {
    /// Shared servers come before invitations, each the oldest first.
    fn place(&self) -> ListPlace {
        let at = self.since.unwrap_or(self.invited_at).timestamp_micros();
        ListPlace::new(u64::from(self.since.is_none()), format!("{at:016} {}", self.id))
    }
}

impl From<SharedServer> for SharedServerView {
    fn from(SharedServer { guest, invited_at, since, server, owner }: SharedServer) -> Self {
        Self {
            id: guest.to_string(),
            state: if since.is_some() { GuestState::Guest } else { GuestState::Invited },
            server_id: server.id.to_string(),
            server_name: server.name_for(Role::Guest).to_owned(),
            owner: owner.into(),
            invited_at,
            since,
        }
    }
}

/// The servers that others share with this user, and the open invitations of the user's account: the newest 200, without
/// those that the user refused or whose inviter the user blocks.
#[utoipa::path(get, path = "/guest-invites", tag = "guests", params(ListPage), responses(
    (status = 200, body = SharedServerList),
))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let read = move |db: &mut Db| {
        let mut shared = guests::shared_with(db, &user.id)?;
        shared.append(&mut guests::invitations(db, &user)?);
        Ok(shared)
    };
    let servers = context.pool.read(read).await?.into_iter().map(SharedServerView::from).collect();
    let (servers, next) = page.cut(servers, SharedServerView::place)?;
    Ok(HttpResponse::Ok().json(SharedServerList { servers, next }))
}

/// Preview of an invitation link, for anyone who has it. The token is the credential.
#[utoipa::path(get, path = "/guest-invites/preview", tag = "guests", params(InviteToken), responses(
    (status = 200, body = InvitePreview),
    (status = 404, description = "`unknown_invite`"),
    (status = 410, description = "`invite_used` or `invite_expired`"),
    (status = 429, description = "`rate_limited`: too many unknown links"),
))]
pub async fn preview(
    req: HttpRequest,
    Query(InviteToken { token }): Query<InviteToken>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (hash, now, pool) = (sha256_hex(token.as_bytes()), context.clock.now(), context.pool.clone());
    let found = async move { Ok(pool.read(move |db| guests::preview(db, &hash, now)).await?) };
    let OpenLink { expires_at, server, owner } = guessing(&context, &req, &token, found).await?;
    let server_name = server.name_for(Role::Guest).to_owned();
    let preview = InvitePreview { server_name, owner: owner.into(), expires_at };
    Ok(HttpResponse::Ok().json(preview))
}

/// Accepts an invitation: this user is a guest of its server from now on. A user who is a guest already stays one, and
/// leaves a link to others. An invitation that the user refused before can be accepted all the same.
#[utoipa::path(post, path = "/guest-invites/accept", tag = "guests",
    request_body = AcceptedInvite, responses(
    (status = 200, body = SharedServerView),
    (status = 404, description = "`unknown_invite`"),
    (status = 409, description = "`limit_reached`; `conflict`: the server is the user's own"),
    (status = 410, description = "`invite_used` or `invite_expired`"),
    (status = 429, description = "`rate_limited`: too many unknown links"),
))]
pub async fn accept(
    SessionUser { user, .. }: SessionUser,
    req: HttpRequest,
    Json(AcceptedInvite { token, id }): Json<AcceptedInvite>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let invite = match (&token, id) {
        (Some(_), Some(_)) => return Err(ApiError::invalid("id", "is not for a link: accept by one of the two")),
        (None, None) => return Err(ApiError::invalid("token", "is required, unless there is an `id`")),
        (Some(token), None) => InviteKey::Link { token_hash: sha256_hex(token.as_bytes()) },
        (None, Some(id)) => InviteKey::Account(id.into()),
    };
    let now = context.clock.now();
    let (pool, hub, guest) = (context.pool.clone(), context.services.hub.clone(), user.clone());
    let (alarms, admitted) = (context.services.channels.early_alarms.clone(), user.id.clone());
    let notify = move |accepted: &Result<ServerId, LinkRefused>| {
        if let Ok(server) = accepted {
            alarms.changes.admit(server, &admitted);
            hub.do_send(AccessChanged { server: server.clone() });
        }
    };
    let accept = move |db: &mut Db| guests::accept(db, &invite, &guest, now);
    let accepted = async move { Ok(pool.write_and_notify(accept, notify).await?) };
    let server = match &token {
        Some(token) => guessing(&context, &req, token, accepted).await?,
        // There is nothing to guess: the id is of an invitation of this account.
        None => accepted.await?.map_err(refusal)?,
    };
    let shared = context.pool.read(move |db| guests::shared_with(db, &user.id)).await?;
    // None if the owner was quicker.
    let shared = shared.into_iter().find(|shared| shared.server.id == server).ok_or(ApiError::UnknownInvite)?;
    Ok(HttpResponse::Ok().json(SharedServerView::from(shared)))
}

/// Leaves a server that another user shares with this one, whose watches of it end at once; or refuses the open invitation
/// to it. A refused invitation is not shown to the user again; the owner of the server still sees it as open.
#[utoipa::path(delete, path = "/guest-invites/{serverId}", tag = "guests",
    params(("serverId" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let server = ServerId::from(path.into_inner());
    let (hub, watched, now) = (context.services.hub.clone(), server.clone(), context.clock.now());
    let (alarms, leaving) = (context.services.channels.early_alarms.clone(), user.id.clone());
    let leave = move |db: &mut Db| -> Result<_, ApiError> {
        let left = guests::leave(db, &user.id, &server)?;
        Ok((left, !left && guests::refuse(db, &user, &server, now)?))
    };
    let notify = move |(left, _): &(bool, bool)| {
        if *left {
            alarms.changes.end(EndedWay::Guest(watched.clone(), leaving));
            hub.do_send(AccessChanged { server: watched });
        }
    };
    match context.pool.write_and_notify(leave, notify).await? {
        (false, false) => Err(ApiError::NotFound),
        _ => Ok(HttpResponse::Ok().json(Done::OK)),
    }
}

/// Looks a link up. One that bears our mark is no guess, and is looked up however much others guess; any other is paid
/// for, and paid back if there is such a link all the same.
async fn guessing<T>(
    context: &ApiContext,
    req: &HttpRequest,
    token: &str,
    look_up: impl Future<Output = Result<Result<T, LinkRefused>, ApiError>>,
) -> Result<T, ApiError> {
    let guess = match context.keys.invite_tokens.is_ours(token) {
        true => None,
        false => Some(context.limits.rate_limits.begin_guess(Guessed::Invite, req, context.clock.moment())?),
    };
    let outcome = look_up.await;
    let is_wrong = matches!(outcome, Ok(Err(LinkRefused::Unknown)));
    if let Some(guess) = guess.filter(|_| !is_wrong) {
        context.limits.rate_limits.pay_back_guess(Guessed::Invite, guess);
    }
    outcome?.map_err(|refused| match (refused, guess) {
        (LinkRefused::Unknown, Some(guess)) => {
            context.limits.rate_limits.guessed_wrong(Guessed::Invite, guess, ApiError::UnknownInvite)
        }
        (refused, _) => refusal(refused),
    })
}

fn refusal(refused: LinkRefused) -> ApiError {
    match refused {
        LinkRefused::Unknown => ApiError::UnknownInvite,
        LinkRefused::Used => ApiError::InviteUsed,
        LinkRefused::Expired => ApiError::InviteExpired,
        LinkRefused::Owner => ApiError::Conflict,
        LinkRefused::Full => ApiError::LimitReached(format!(
            "One user can be a guest of {SHARED_SERVERS_PER_USER} servers at most. Leave one first."
        )),
    }
}
