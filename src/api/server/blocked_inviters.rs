//! Users whose invitations by account a user does not want to see: `/guest-invites/blocked`.

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::is_one_line,
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{json::Json, query::Query, session_user::SessionUser},
        server::guests::PersonView,
    },
    db::invite_refusals::{self, BlockRefused},
    domain::{ids::UserId, limits::BLOCKED_INVITERS_PER_USER, time::Timestamp},
};

/// The user to block.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "userId": "019aa6f0-8c00-7000-8000-000000000001" }))]
pub struct CreateBlock {
    /// The `owner.id` of an invitation.
    #[garde(length(min = 1, max = 128), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 128)]
    user_id: String,
}

/// A user whose invitations are not shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct BlockedInviter {
    user: PersonView,
    blocked_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct BlockedInviterList {
    /// The latest first.
    blocked: Vec<BlockedInviter>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// The users whose invitations this user blocks.
#[utoipa::path(get, path = "/guest-invites/blocked", tag = "guests", operation_id = "list_blocked_inviters",
    params(ListPage), responses(
    (status = 200, body = BlockedInviterList),
))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let blocked = context.pool.read(move |db| invite_refusals::blocked(db, &user.id)).await?;
    let blocked = blocked.into_iter().map(|(user, blocked_at)| BlockedInviter { user: user.into(), blocked_at });
    let (blocked, next) = page.cut(blocked.collect(), |blocked: &BlockedInviter| {
        ListPlace::newest_first(blocked.blocked_at, &blocked.user.id)
    })?;
    Ok(HttpResponse::Ok().json(BlockedInviterList { blocked, next }))
}

/// Blocks a user: none of their invitations by account is shown, those that are open neither. They do not learn of it.
/// Servers that they share with this user already stay shared.
#[utoipa::path(post, path = "/guest-invites/blocked", tag = "guests", operation_id = "block_inviter",
    request_body = CreateBlock, responses(
    (status = 200, body = Done),
    (status = 404, description = "No such user"),
    (status = 409, description = "`limit_reached`"),
))]
pub async fn create(
    SessionUser { user, .. }: SessionUser,
    Json(CreateBlock { user_id }): Json<CreateBlock>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (blocked, now) = (UserId::from(user_id), context.clock.now());
    let outcome = context.pool.write(move |db| invite_refusals::block(db, &user.id, &blocked, now)).await?;
    outcome.map_err(|refused| match refused {
        BlockRefused::Unknown => ApiError::NotFound,
        BlockRefused::Full => ApiError::LimitReached(format!(
            "One user can block {BLOCKED_INVITERS_PER_USER} inviters at most. Unblock one first."
        )),
    })?;
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// Ends a block: invitations of that user are shown again.
#[utoipa::path(delete, path = "/guest-invites/blocked/{userId}", tag = "guests", operation_id = "unblock_inviter",
    params(("userId" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let blocked = UserId::from(path.into_inner());
    Done::if_found(context.pool.write(move |db| invite_refusals::unblock(db, &user.id, &blocked)).await?)
}
