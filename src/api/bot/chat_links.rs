//! Linking an account of the chat platform: `/chat/link`.

use actix_web::{HttpRequest, HttpResponse, web};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            chat_problem::ChatProblem,
            done::Done,
            error::{ApiError, Problem},
        },
        context::ApiContext,
        extract::{json::Json, session_user::SessionUser},
        rate_limits::Guessed,
    },
    crypto::digest::sha256_hex,
    db::{bot_links, engine::error::DbError},
    domain::bot::chat_link::ChatLinkCode,
};

/// The code that the bot gave.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "code": "ABCD-2345" }))]
pub struct TypedChatCode {
    /// `XXXX-XXXX`; spaces around it, case and the hyphen do not matter.
    #[garde(length(max = 64))]
    #[schema(max_length = 64)]
    code: String,
}

/// Links the account of the chat platform that asked the bot for this code (`/link`) with the user, in place of one that
/// the user has. A code works once, and for ten minutes.
#[utoipa::path(post, path = "/chat/link", tag = "chat platform",
    request_body = TypedChatCode, responses(
    (status = 200, body = Done),
    (status = 404, description = "`unknown_chat_code`: unknown, used or expired"),
    (status = 409, description = "`chat_account_taken`: it is linked with another user"),
    (status = 429, description = "`rate_limited`: too many wrong codes"),
    (status = 503, description = "`chat_disabled`"),
))]
pub async fn create(
    SessionUser { user, .. }: SessionUser,
    req: HttpRequest,
    Json(TypedChatCode { code }): Json<TypedChatCode>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    context.chat_bot()?;
    let now = context.clock.now();
    // Paid before the look-up, as wherever something can be guessed.
    let guess = context.limits.rate_limits.begin_guess(Guessed::ChatCode, &req, context.clock.moment())?;
    let limits = &context.limits.rate_limits;
    let wrong = || limits.guessed_wrong(Guessed::ChatCode, guess, ApiError::Chat(ChatProblem::UnknownCode));
    let hash = sha256_hex(ChatLinkCode::parse(&code).ok_or_else(wrong)?.as_str().as_bytes());
    let id = user.id.clone();
    let linked = context.pool.write(move |db| {
        let Some(account) = bot_links::take(db, &hash, now)? else { return Ok(false) };
        bot_links::link(db, &id, &account, now)?;
        Ok(true)
    });
    let linked = linked.await;
    if !matches!(linked, Ok(false)) {
        context.limits.rate_limits.pay_back_guess(Guessed::ChatCode, guess);
    }
    match linked {
        Ok(true) => {
            log::info!(user:% = user.id; "a chat account was linked");
            Ok(HttpResponse::Ok().json(Done::OK))
        }
        Ok(false) => Err(wrong()),
        Err(DbError::Conflict) => Err(ApiError::Chat(ChatProblem::AccountTaken)),
        Err(error) => Err(error.into()),
    }
}

/// Ends the link: the bot no longer knows the user.
#[utoipa::path(delete, path = "/chat/link", tag = "chat platform", responses(
    (status = 200, body = Done),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`not_found`"),
))]
pub async fn delete(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    Done::if_found(context.pool.write(move |db| bot_links::unlink(db, &user.id)).await?)
}
