//! The page at the root, where a browser arrives after sign-in when no dashboard is configured.

use actix_web::{
    HttpResponse,
    http::header::{self, ContentType},
};

/// A page with links into the API.
#[utoipa::path(get, path = "/", tag = "health", responses((status = 200, content_type = "text/html")))]
pub async fn index() -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::html())
        .insert_header((
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ))
        .body(include_str!("index.html"))
}
