//! The game's items for signed-in users: `/items`.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;

use crate::{
    api::{
        answer::{
            error::ApiError,
            etags::{self, Caching},
            list_page::ListPage,
        },
        caches::item_responses::{ItemList, ItemView, SentItems},
        context::ApiContext,
        extract::{caller::Caller, query::Query},
    },
    crypto::digest::sha256_hex,
};

/// All items of the game.
#[utoipa::path(get, path = "/items", tag = "content",
    params(ListPage, ("if-none-match" = Option<String>, Header, description = "The `ETag` of what the client has")), responses(
    (status = 200, body = ItemList, headers(("ETag" = String))),
    (status = 304, description = "The client has them"),
))]
pub async fn list(
    _: Caller,
    Query(page): Query<ListPage>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (catalogue, urls) = (context.caches.catalogue.current(), &context.settings.urls);
    if page.is_whole() {
        let SentItems { digest, body, .. } = context.caches.items_answer.get(&catalogue, urls)?;
        return Ok(etags::json(&req, &digest, Caching::Private, || body));
    }
    tagged(&req, &ItemList::page(&page, &catalogue, urls)?)
}

/// An item of the game.
#[utoipa::path(get, path = "/items/{id}", tag = "content", params(("id" = String, Path)),
    responses(
    (status = 200, body = ItemView, headers(("ETag" = String))),
    (status = 304, description = "The client has it"),
))]
pub async fn get(
    _: Caller,
    id: web::Path<String>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let catalogue = context.caches.catalogue.current();
    let item = id.parse().ok().and_then(|id| catalogue.item(id)).ok_or(ApiError::NotFound)?;
    tagged(&req, &ItemView::new(item, &context.settings.urls))
}

/// This, or that the client has it.
fn tagged<T: Serialize>(req: &HttpRequest, view: &T) -> Result<HttpResponse, ApiError> {
    let body = serde_json::to_vec(view).map_err(|error| ApiError::Internal(error.into()))?;
    Ok(etags::json(req, &sha256_hex(&body), Caching::Private, || body.clone().into()))
}
