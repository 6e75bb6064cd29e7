//! Cameras of a paired game server: `/paired-servers/{id}/devices/{deviceId}/camera-frame` and
//! `/paired-servers/{id}/cameras`.

use std::{collections::HashSet, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, Accept, Header as _, Quality},
    web,
};
use garde::Validate;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::ApiError,
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{
            paired_server::{ServerPart, WatchedServer},
            query::Query,
            route_facts,
        },
        server::devices::reports,
    },
    db::{engine::pool::Db, paired_servers, smart_devices},
    domain::{
        camera::{self, MonumentCamera},
        device::Reachable,
    },
    game::camera_picture::PictureFormat,
    relay::hub::{CameraError, PullCameraFrame},
};

/// The relay has a deadline of its own, 5 s; this one is for a relay that does not answer.
const RELAY_DEADLINE: Duration = Duration::from_secs(8);
/// Query of a camera's frame.
#[derive(Deserialize, IntoParams, Validate)]
pub struct FrameOptions {
    /// Draws trees, persons and names over the picture; `true` if absent.
    #[garde(custom(true_or_false))]
    #[param(value_type = Option<bool>)]
    entities: Option<String>,
}

fn true_or_false(text: &Option<String>, _: &()) -> garde::Result {
    match text.as_deref() {
        None | Some("true" | "false") => Ok(()),
        Some(_) => Err(garde::Error::new("must be `true` or `false`")),
    }
}

/// The present frame of a camera: one picture, at most some seconds old. Requests at the same time get the same one.
#[utoipa::path(get, path = "/paired-servers/{id}/devices/{deviceId}/camera-frame", tag = "devices",
    params(("id" = String, Path), ("deviceId" = String, Path, description = "The camera's identifier"), FrameOptions,
        ("accept" = Option<String>, Header, description = "`image/png` for PNG, otherwise JPEG")),
    responses(
    (status = 200, description = "The picture, as large as the game draws it, mostly 160 × 90", content(
        (Vec<u8> = "image/jpeg"), (Vec<u8> = "image/png"),
    ), headers(
        ("X-Frame-At" = String, description = "When the game server sent it, RFC 3339"),
        ("Cache-Control" = String, description = "`no-store`"),
    )),
    (status = 404,
        description = "`not_found`; `unknown_camera`: the game server knows none by this identifier, or it is out of range"),
    (status = 409,
        description = "`not_a_camera`; `player_online`: the paired player is in the game; `no_player`: has no body there; \
            `camera_access_denied`; `cameras_disabled`"),
    (status = 502, description = "`camera_unreadable`"),
    (status = 503, description = "`game_server_unavailable`: there is no link"),
    (status = 504, description = "`game_server_timeout`"),
))]
pub async fn get_frame(
    WatchedServer { id, user, .. }: WatchedServer,
    ServerPart(device): ServerPart,
    Query(options): Query<FrameOptions>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    route_facts::take_limit(&req, &user.id)?;
    let pull = PullCameraFrame { server: id, user: user.id, device };
    let pulled = match timeout(RELAY_DEADLINE, context.services.hub.send(pull)).await {
        Ok(pulled) => pulled.map_err(|error| ApiError::Unavailable(error.into()))?,
        Err(elapsed) => return Err(ApiError::Unavailable(elapsed.into())),
    };
    let shot = pulled.map_err(ApiError::from)?;
    let (at, format) = (shot.at.to_wire(), wanted_format(&req));
    let with_entities = options.entities.as_deref() != Some("false");
    let file = context.limits.render_limit.draw(shot, format, with_entities).await?;
    Ok(HttpResponse::Ok()
        .content_type(format.media_type())
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::VARY, "Accept"))
        .insert_header(("x-frame-at", at))
        .body(file))
}

/// PNG where it is preferred to JPEG, and JPEG everywhere else.
fn wanted_format(req: &HttpRequest) -> PictureFormat {
    let Ok(Accept(ranges)) = Accept::parse(req) else { return PictureFormat::Jpeg };
    // The most exact of the ranges that contain a type counts (RFC 9110 §12.5.1).
    let preference = |media_type: &str| {
        let matching = ranges.iter().filter_map(|range| {
            let exactness =
                ["*/*", "image/*", media_type].iter().position(|known| range.item.essence_str() == *known)?;
            Some((exactness, range.quality))
        });
        let (exactness, quality) = matching.max()?;
        (quality > Quality::ZERO).then_some((quality, exactness))
    };
    let [png, jpeg] = [PictureFormat::Png, PictureFormat::Jpeg].map(|format| preference(format.media_type()));
    if png > jpeg { PictureFormat::Png } else { PictureFormat::Jpeg }
}

impl From<CameraError> for ApiError {
    fn from(error: CameraError) -> Self {
        match error {
            CameraError::UnknownServer | CameraError::UnknownDevice => Self::NotFound,
            CameraError::NotACamera => Self::NotACamera,
            CameraError::Unavailable => Self::GameServerUnavailable,
            CameraError::TimedOut => Self::GameServerTimeout,
            CameraError::UnknownCamera => Self::UnknownCamera,
            CameraError::PlayerOnline => Self::PlayerOnline,
            CameraError::NoPlayer => Self::NoPlayer,
            CameraError::AccessDenied => Self::CameraAccessDenied,
            CameraError::Disabled => Self::CamerasDisabled,
            CameraError::Unreadable => Self::CameraUnreadable,
            CameraError::Internal => Self::Unavailable("the camera could not be looked up".into()),
        }
    }
}

/// A camera at a monument.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MonumentCameraView {
    camera_id: &'static str,
    /// The name of the monument.
    monument: String,
    /// The camera's view, in words.
    name: &'static str,
    /// Metres from the south-west corner, of the monument.
    x: f64,
    y: f64,
    /// True if it is one of the server's devices.
    added: bool,
}

#[derive(Serialize, ToSchema)]
struct MonumentCameraList {
    cameras: Vec<MonumentCameraView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// The cameras that the monuments of this server's map are known to have, without those that the game server said it
/// does not know when a frame was pulled; empty until the map is known. Only a frame proves that the game shows one of
/// the others.
#[utoipa::path(get, path = "/paired-servers/{id}/cameras", tag = "devices",
    params(("id" = String, Path), ListPage), responses(
    (status = 200, body = MonumentCameraList),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let of = id.clone();
    let read = move |db: &mut Db| {
        let monuments = paired_servers::monuments(db, &of)?.unwrap_or_default();
        Ok((monuments, smart_devices::list(db, &of)?))
    };
    let heard = reports(&context, &id).await?;
    let (monuments, devices) = context.pool.read(read).await?;
    let added: HashSet<&str> = devices.iter().map(|device| device.device_id.as_str()).collect();
    let is_known = |camera: &MonumentCamera<'_>| {
        heard.get(camera.id).is_none_or(|report| report.device.reachable != Reachable::Removed)
    };
    let view = |MonumentCamera { id, name, monument }| MonumentCameraView {
        camera_id: id,
        monument: monument.name().to_owned(),
        name,
        x: monument.x,
        y: monument.y,
        added: added.contains(id),
    };
    let cameras = camera::of_monuments(&monuments).into_iter().filter(is_known).map(view).collect();
    let (cameras, next) = page.cut(cameras, |camera: &MonumentCameraView| {
        ListPlace::new(0, format!("{} {}", camera.monument, camera.camera_id))
    })?;
    Ok(HttpResponse::Ok().json(MonumentCameraList { cameras, next }))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn png_is_for_those_who_prefer_it() {
        let format =
            |accept: &str| wanted_format(&TestRequest::get().insert_header(("accept", accept)).to_http_request());
        for jpeg in [
            "",
            "*/*",
            "image/*",
            "image/jpeg",
            "image/jpeg, image/png;q=0.9",
            "image/png;q=0",
            "image/png;q=0, image/jpeg;q=0",
            "image/png;q=0, image/*",
            "image/png;q=0.1, image/*",
            "image/png, image/jpeg",
            "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
            "application/json",
            "nonsense",
        ] {
            assert_eq!(format(jpeg), PictureFormat::Jpeg, "{jpeg}");
        }
        for png in [
            "image/png",
            "image/png, image/jpeg;q=0.9",
            "image/png,*/*;q=0.5",
            "image/*, image/jpeg;q=0.5",
            "image/jpeg;q=0, */*;q=0.1",
        ] {
            assert_eq!(format(png), PictureFormat::Png, "{png}");
        }
        assert_eq!(wanted_format(&TestRequest::get().to_http_request()), PictureFormat::Jpeg);
    }
}
