//! A check that the caller is an admin: `/admin/ping`.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::{answer::error::ApiError, context::ApiContext, extract::admin::Admin};

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AdminPing {
    admin: bool,
    /// The caller's platform id.
    platform_id: String,
    /// Number of admins.
    allowlist_size: usize,
}

/// Says that the caller is an admin. Like every route below `/admin`, it needs a session of an account on the allowlist.
#[utoipa::path(get, path = "/admin/ping", tag = "admin", responses(
    (status = 200, body = AdminPing),
    (status = 503, description = "`admin_disabled`: the allowlist is empty; on every admin route, for every caller"),
))]
pub async fn ping(admin: Admin, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let (platform_id, allowlist_size) = (admin.platform_id.to_string(), context.settings.admins.len());
    Ok(HttpResponse::Ok().json(AdminPing { admin: true, platform_id, allowlist_size }))
}
