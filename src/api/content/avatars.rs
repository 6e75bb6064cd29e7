//! Pictures of players: `/players/{platformId}/avatar`.

use actix_web::{HttpRequest, HttpResponse, web};

use crate::{
    api::{
        answer::{
            error::ApiError,
            etags::{self, Caching},
        },
        context::ApiContext,
        extract::session_user::SessionUser,
    },
    domain::ids::PlatformId,
};

/// The picture of a player's account at the platform, which anybody can see there. The service fetches it, so that
/// browsers ask no other origin; `features.avatars` of `/client-config` says if it does.
#[utoipa::path(get, path = "/players/{platformId}/avatar", tag = "content",
    params(("platformId" = String, Path, description = "SteamID64"),
        ("if-none-match" = Option<String>, Header, description = "The `ETag` of the picture that the client has")),
    responses(
    (status = 200, description = "64 by 64 pixels", content((Vec<u8> = "image/jpeg")), headers(
        ("ETag" = String), ("Cache-Control" = String, description = "A day, in the browser that asked"),
    )),
    (status = 304, description = "The client has it"),
    (status = 404, description = "`not_found`: there is no such account, or it has no picture"),
    (status = 503, description = "`unavailable`: the platform does not answer, or was asked too often"),
))]
pub async fn get(
    SessionUser { user, .. }: SessionUser,
    player: web::Path<String>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let player = PlatformId::parse(&player).ok_or(ApiError::NotFound)?;
    let avatar =
        context.caches.avatars.get(&context.services.identity, &user.id, &player).await?.ok_or(ApiError::NotFound)?;
    let (mut answer, is_known) = etags::begin(&req, &etags::tag(&avatar.digest), Caching::PrivateDay);
    if is_known {
        return Ok(answer.finish());
    }
    Ok(answer.content_type("image/jpeg").body(avatar.jpeg.clone()))
}
