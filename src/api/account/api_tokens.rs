//! Tokens for a user's own programs: `/me/tokens`. Which routes they open is in
//! [`route_facts`](crate::api::extract::route_facts).

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        account::ended_credentials,
        answer::{
            done::Done,
            error::ApiError,
            fields::{is_one_line, one_line},
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{
            bearer::{API_TOKEN_BYTES, API_TOKEN_PREFIX},
            json::Json,
            query::Query,
            session_user::SessionUser,
        },
    },
    crypto::digest::sha256_hex,
    db::{
        access,
        api_tokens::{self, ApiToken},
        engine::pool::Db,
    },
    domain::{
        ids::{ApiTokenId, ServerId, SessionId},
        limits::API_TOKENS_PER_USER,
        time::Timestamp,
        token_scope::{TokenScope, TokenScopes},
    },
};

/// A token to be made.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "label": "Stream deck", "scopes": ["read", "devices"] }))]
pub struct CreateApiToken {
    /// The token's name in the list.
    #[garde(length(chars, min = 1, max = 100), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    label: String,
    /// The permitted actions.
    #[garde(length(min = 1, max = 3))]
    #[schema(min_items = 1, max_items = 3)]
    scopes: Vec<TokenScope>,
    /// The one server that it is for, which the user may watch; absent: all that the user may watch.
    #[garde(length(max = 128), custom(one_line))]
    #[schema(format = "one-line", max_length = 128)]
    server_id: Option<String>,
    /// In the future; absent: it does not end.
    #[garde(skip)]
    expires_at: Option<Timestamp>,
}

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ApiTokenView {
    id: String,
    label: String,
    scopes: Vec<TokenScope>,
    /// The one server that it is for; null: all that the user may watch.
    server_id: Option<String>,
    created_at: Timestamp,
    /// Null: it does not end.
    expires_at: Option<Timestamp>,
    /// To the minute; null when it was never used.
    last_used_at: Option<Timestamp>,
}

/// A new token, whose secret is not shown again.
#[derive(Serialize, ToSchema)]
struct MadeApiToken {
    /// `companion_` and 64 hex digits, for `Authorization: Bearer`.
    token: String,
    #[serde(flatten)]
    view: ApiTokenView,
}

#[derive(Serialize, ToSchema)]
struct ApiTokenList {
    tokens: Vec<ApiTokenView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl From<ApiToken> for ApiTokenView {
    fn from(token: ApiToken) -> Self {
        let ApiToken { id, label, scopes, server, created_at, expires_at, last_used_at, .. } = token;
        let server_id = server.map(|server| server.to_string());
        let scopes = scopes.iter().collect();
        Self { id: id.to_string(), label, scopes, server_id, created_at, expires_at, last_used_at }
    }
}

/// This user's tokens, oldest first, also those that have ended.
#[utoipa::path(get, path = "/me/tokens", tag = "tokens", operation_id = "list_api_tokens",
    params(ListPage), responses(
    (status = 200, body = ApiTokenList),
))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let tokens = context.pool.read(move |db| api_tokens::list(db, &user.id)).await?;
    let (tokens, next) = page.cut(tokens, |token| ListPlace::oldest_first(token.created_at, token.id.as_str()))?;
    Ok(HttpResponse::Ok().json(ApiTokenList { tokens: tokens.into_iter().map(Into::into).collect(), next }))
}

/// Makes a token for a program of the user's own. It may do what its scopes say, on servers that its user may watch, and
/// never more than its user.
#[utoipa::path(post, path = "/me/tokens", tag = "tokens", operation_id = "make_api_token",
    request_body = CreateApiToken, responses(
    (status = 201, body = MadeApiToken),
    (status = 404, description = "No such `serverId`"),
    (status = 409, description = "`limit_reached`"),
))]
pub async fn create(
    SessionUser { user, .. }: SessionUser,
    Json(CreateApiToken { label, scopes, server_id, expires_at }): Json<CreateApiToken>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    if expires_at.is_some_and(|end| end <= now) {
        return Err(ApiError::invalid("expiresAt", "must be in the future"));
    }
    if expires_at.is_some_and(|end| !end.is_storable()) {
        return Err(ApiError::invalid("expiresAt", "must be before the year 10000, and no leap second"));
    }
    let made = ApiToken {
        id: context.random.id::<ApiTokenId>(now),
        user_id: user.id,
        label,
        scopes: scopes.into_iter().collect::<TokenScopes>(),
        server: server_id.map(ServerId::from),
        created_at: now,
        expires_at,
        last_used_at: None,
    };
    let token = format!("{API_TOKEN_PREFIX}{}", context.random.hex::<API_TOKEN_BYTES>());
    let (hash, stored) = (sha256_hex(token.as_bytes()), made.clone());
    let make = move |db: &mut Db| {
        if let Some(server) = &stored.server
            && !access::may_watch(db, &stored.user_id, server)?
        {
            return Err(ApiError::NotFound);
        }
        match api_tokens::insert(db, &stored, &hash, API_TOKENS_PER_USER)? {
            true => Ok(()),
            false => Err(ApiError::LimitReached(format!(
                "One user can have {API_TOKENS_PER_USER} API tokens at most. Delete one first."
            ))),
        }
    };
    context.pool.write(make).await?;
    log::info!(user:% = made.user_id, token:% = made.id; "an API token was made");
    Ok(HttpResponse::Created().json(MadeApiToken { token, view: made.into() }))
}

/// Deletes a token: it is invalid from then on, and its sockets at the relay close.
#[utoipa::path(delete, path = "/me/tokens/{id}", tag = "tokens", operation_id = "delete_api_token",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let token = ApiTokenId::from(path.into_inner());
    let session = SessionId::of_token(&token);
    ended_credentials::end(&context, session, move |db| api_tokens::delete(db, &user.id, &token)).await
}
