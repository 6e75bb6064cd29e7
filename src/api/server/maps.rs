//! The map of a paired game server: `/paired-servers/{id}/map` and its picture.

use actix_web::{HttpRequest, HttpResponse, http::header::EntityTag, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::ApiError,
            etags::{self, Caching},
        },
        caches::map_pictures::PictureKey,
        context::ApiContext,
        extract::{paired_server::WatchedServer, query::Query},
    },
    db::{
        engine::pool::Db,
        maps::{self, AS_SENT, StoredMap, StoredPicture},
        paired_servers,
    },
    domain::{ids::ServerId, monument::Monument, time::Timestamp},
};

/// The sizes that a picture is drawn in.
const SIZES: [u32; 3] = [512, 1_024, 2_048];

/// Place of a monument.
#[derive(Serialize, ToSchema)]
struct MonumentView {
    /// In English.
    name: String,
    /// The game's token, for example `launchsite`.
    kind: String,
    /// Metres from the south-west corner.
    x: f64,
    y: f64,
}

/// The picture of the map.
#[derive(Serialize, ToSchema)]
struct PictureView {
    /// URL of the picture as the game server sent it; with `&size=` of a smaller one. Another picture has another URL.
    url: String,
    /// Pixels.
    width: u32,
    height: u32,
}

/// The map of the world as it is now. A place is drawn at `margin + x * (width - 2 * margin) / size` pixels from the left
/// of the picture, and at `margin + y * (height - 2 * margin) / size` from its bottom.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MapView {
    /// Edge length of the world, metres.
    size: Option<u32>,
    /// Pixels of ocean on each side of the picture.
    margin: u32,
    /// Colour around the picture, `#` and hex digits.
    background: Option<String>,
    #[schema(max_items = 1024)]
    monuments: Vec<MonumentView>,
    /// `null`: the game server sent none that can be shown.
    image: Option<PictureView>,
    wiped_at: Option<Timestamp>,
}

/// Choice of a picture.
#[derive(Deserialize, IntoParams, Validate)]
pub struct PictureOptions {
    /// Longest edge in pixels, at most: 512, 1024 or 2048; absent: as the game server sent it.
    #[garde(custom(offered_size))]
    #[param(value_type = Option<String>, pattern = "^(512|1024|2048)$")]
    size: Option<String>,
    /// The version, as in the `url` of the map; one that is out of date is answered with the picture of now.
    #[garde(length(max = 64))]
    #[param(max_length = 64)]
    v: Option<String>,
}

fn offered_size(size: &Option<String>, _: &()) -> garde::Result {
    match size {
        Some(size) if parse_size(size).is_none() => Err(garde::Error::new("must be 512, 1024 or 2048")),
        _ => Ok(()),
    }
}

fn parse_size(text: &str) -> Option<u32> {
    SIZES.into_iter().find(|size| size.to_string() == text)
}

/// The map of a server, and where its game server is.
struct KnownMap {
    address: String,
    port: u16,
    map: StoredMap,
}

/// The map of the server's world; an error if it is not known, or the pairing's own link has not been up in it.
async fn known(context: &ApiContext, id: ServerId) -> Result<KnownMap, ApiError> {
    let read = move |db: &mut Db| {
        let paired = paired_servers::get(db, &id)?;
        let map = maps::get(db, &paired.address, paired.port)?;
        Ok((paired, map))
    };
    let (paired, map) = context.pool.read(read).await?;
    let map =
        map.filter(|map| paired.is_accepted() && paired.world().is_same(&map.world)).ok_or(ApiError::MapUnknown)?;
    Ok(KnownMap { address: paired.address, port: paired.port, map })
}

/// The map of a paired server: size, monuments, and where its picture is. Overlays of the server may read it, too.
#[utoipa::path(get, path = "/paired-servers/{id}/map", tag = "paired servers",
    params(("id" = String, Path)), responses(
    (status = 200, body = MapView),
    (status = 404,
        description = "`not_found`; `map_unknown`: there was no link to the game server with these credentials yet, or none since the wipe"),
))]
pub async fn get(
    WatchedServer { id, .. }: WatchedServer,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let KnownMap { map, .. } = known(&context, id.clone()).await?;
    let StoredMap { world, monuments, background, picture } = map;
    let margin = picture.as_ref().map_or(0, |picture| picture.margin);
    let image = picture.map(|StoredPicture { width, height, version, .. }| {
        let url = context.settings.urls.base.at(&format!("/paired-servers/{id}/map/image?v={version}"));
        PictureView { url, width, height }
    });
    let monument = |monument: Monument| {
        let (name, kind) = (monument.name().to_owned(), monument.token().to_owned());
        MonumentView { name, kind, x: monument.x, y: monument.y }
    };
    let monuments = monuments.into_iter().map(monument).collect();
    let (size, wiped_at) = (world.map_size, world.wiped_at);
    Ok(HttpResponse::Ok().json(MapView { size, margin, background, monuments, image, wiped_at }))
}

/// The picture of a paired server's map, a JPEG. Overlays of the server may read it, too: a page fetches it with its token and shows the bytes.
#[utoipa::path(get, path = "/paired-servers/{id}/map/image", tag = "paired servers",
    params(("id" = String, Path), PictureOptions,
        ("if-none-match" = Option<String>, Header, description = "The `ETag` of the picture that the client has")),
    responses(
    (status = 200, description = "The picture; never larger than the game server sent it",
        content((Vec<u8> = "image/jpeg")), headers(
        ("ETag" = String),
        ("Cache-Control" = String, description = "A year under the `url` of the map; otherwise asked again each time"),
    )),
    (status = 304, description = "The client has it"),
    (status = 404, description = "`not_found`; `map_unknown`: as for the map, or it has no picture"),
    (status = 502, description = "`map_unreadable`"),
))]
pub async fn get_image(
    WatchedServer { id, user, .. }: WatchedServer,
    Query(options): Query<PictureOptions>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let KnownMap { address, port, map } = known(&context, id).await?;
    let StoredPicture { width, height, version, .. } = map.picture.ok_or(ApiError::MapUnknown)?;
    let size = options.size.as_deref().and_then(parse_size).filter(|size| *size < width.max(height));
    let size = size.unwrap_or(AS_SENT);
    // A client that asks without the version learns of the next wipe.
    let caching = match options.v.as_deref() == Some(version.as_str()) {
        true => Caching::PrivateImmutable,
        false => Caching::Private,
    };
    let tag = EntityTag::new_strong(format!("{version}-{size}"));
    let (mut answer, is_known) = etags::begin(&req, &tag, caching);
    if is_known {
        return Ok(answer.finish());
    }
    let key = PictureKey { address, port, version, size };
    let jpeg = context.caches.map_pictures.get(&context.pool, &user.id, key).await?.ok_or(ApiError::MapUnknown)?;
    Ok(answer.content_type("image/jpeg").body(jpeg))
}
