//! The game's items for signed-in users: `/items`.

use actix_web::{HttpRequest, HttpResponse, web};

use crate::{
    api::{
        context::ApiContext,
        error::{ApiError, Problem},
        etags::{self, Caching},
        extract::session_user::SessionUser,
        item_answers::{ItemList, ItemView, SentItems},
    },
    crypto::digest::sha256_hex,
    domain::items,
};

/// All items of the game.
#[utoipa::path(get, path = "/items", tag = "content", security(("session" = [])),
    params(("if-none-match" = Option<String>, Header, description = "The `ETag` of what the client has")), responses(
    (status = 200, body = ItemList, headers(("ETag" = String))),
    (status = 304, description = "The client has them"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn list(_: SessionUser, req: HttpRequest, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let SentItems { digest, body, .. } = context.items_answer.get(&context.catalogue, &context.urls)?;
    Ok(etags::json(&req, &digest, Caching::Private, || body))
}

/// An item of the game.
#[utoipa::path(get, path = "/items/{id}", tag = "content", security(("session" = [])), params(("id" = String, Path)),
    responses(
    (status = 200, body = ItemView, headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn get(
    _: SessionUser,
    id: web::Path<String>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let item = id.parse().ok().and_then(items::item).ok_or(ApiError::NotFound)?;
    let body =
        serde_json::to_vec(&ItemView::new(&item, &context.urls)).map_err(|error| ApiError::Internal(error.into()))?;
    Ok(etags::json(&req, &sha256_hex(&body), Caching::Private, || body.clone().into()))
}
