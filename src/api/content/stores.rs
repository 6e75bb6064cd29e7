//! The stores as the dashboard and the bot read them: `/store/{name}`.

use actix_web::{HttpRequest, HttpResponse, web};

use crate::api::{
    answer::{error::ApiError, etags::Caching},
    caches::store_responses::{StoreView, named},
    context::ApiContext,
};

/// A store: `messages`, `crafting`, `raid` or `faq`. Needs no session.
#[utoipa::path(get, path = "/store/{name}", tag = "content",
    params(("name" = String, Path),
        ("if-none-match" = Option<String>, Header, description = "The `ETag` of what the client has")),
    responses(
    (status = 200, body = StoreView, headers(("ETag" = String), ("Cache-Control" = String))),
    (status = 304, description = "The client has it"),
))]
pub async fn get(
    name: web::Path<String>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let answer = context.caches.store_responses.get(&context.pool, named(&name)?).await?;
    Ok(answer.respond(&req, Caching::Public))
}
