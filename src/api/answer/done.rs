//! The answer of requests that succeed and have nothing to show.

use serde::Serialize;
use utoipa::ToSchema;

/// `{ "ok": true }`.
#[derive(Serialize, ToSchema)]
pub struct Done {
    ok: bool,
}

impl Done {
    pub const OK: Self = Self { ok: true };
}
