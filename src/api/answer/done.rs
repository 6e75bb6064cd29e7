//! The answer of requests that succeed and have nothing to show.

use actix_web::HttpResponse;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::answer::error::ApiError;

/// `{ "ok": true }`.
#[derive(Serialize, ToSchema)]
pub struct Done {
    ok: bool,
}

impl Done {
    /// Body of every answer that says no more than success.
    pub const OK: Self = Self { ok: true };

    /// The answer of a request that deletes something, by whether that was there.
    pub fn if_found(found: bool) -> Result<HttpResponse, ApiError> {
        if found { Ok(HttpResponse::Ok().json(Self::OK)) } else { Err(ApiError::NotFound) }
    }
}
