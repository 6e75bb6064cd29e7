//! Smart devices of a paired game server: `/paired-servers/{id}/devices/*`.

use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        error::{ApiError, Problem},
        extract::{json::Json, session_user::SessionUser},
        paired_servers::{plain_text, require_role},
        state::AppState,
    },
    db::{
        access::Role,
        smart_devices::{self, SmartDevice},
    },
    domain::{
        ids::ServerId,
        server_state::DeviceKind,
        time::{self, Timestamp},
    },
    pairings::{self, DeviceOutcome, DeviceRequest},
    relay::hub::DevicesChanged,
};

/// What can be added by hand.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum NewKind {
    Switch,
    Alarm,
    StorageMonitor,
}

impl From<NewKind> for DeviceKind {
    fn from(kind: NewKind) -> Self {
        match kind {
            NewKind::Switch => Self::Switch,
            NewKind::Alarm => Self::Alarm,
            NewKind::StorageMonitor => Self::StorageMonitor,
        }
    }
}

/// A device whose entity id the user knows.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
pub struct NewDevice {
    /// The game's entity id: decimal digits (a JSON integer is accepted too).
    #[garde(skip)]
    #[schema(value_type = String, pattern = "^[0-9]{1,20}$")]
    entity_id: EntityId,
    /// Found out from the game when left out.
    #[garde(skip)]
    kind: Option<NewKind>,
    #[garde(length(chars, min = 1, max = 100), custom(plain_text))]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    #[garde(length(chars, min = 1, max = 100), custom(plain_text))]
    #[schema(min_length = 1, max_length = 100)]
    label: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "IntegerOrText")]
struct EntityId(u64);

#[derive(Deserialize)]
#[serde(untagged, expecting = "an entity id is a positive integer or its decimal digits")]
enum IntegerOrText {
    Integer(u64),
    Text(String),
}

impl TryFrom<IntegerOrText> for EntityId {
    type Error = &'static str;

    fn try_from(value: IntegerOrText) -> Result<Self, Self::Error> {
        let id = match value {
            IntegerOrText::Integer(integer) => Some(integer),
            IntegerOrText::Text(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            IntegerOrText::Text(_) => None,
        };
        id.filter(|id| *id != 0).map(Self).ok_or("an entity id is a positive integer or its decimal digits")
    }
}

/// A smart device as it is stored. Live values come over the relay.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeviceView {
    /// The game's entity id.
    device_id: String,
    /// `switch`, `alarm`, `storageMonitor`, `camera`, or `unknown` until the game was asked.
    #[schema(value_type = String)]
    kind: DeviceKind,
    name: String,
    label: Option<String>,
    custom_command: Option<String>,
    on_message: Option<String>,
    off_message: Option<String>,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct DeviceList {
    devices: Vec<DeviceView>,
}

impl From<SmartDevice> for DeviceView {
    fn from(device: SmartDevice) -> Self {
        Self {
            device_id: device.device_id,
            kind: device.kind,
            name: device.name,
            label: device.label,
            custom_command: device.custom_command,
            on_message: device.on_message,
            off_message: device.off_message,
            created_at: device.created_at,
        }
    }
}

/// The devices of a server this user may watch.
#[utoipa::path(get, path = "/paired-servers/{id}/devices", tag = "devices", security(("session" = [])),
    params(("id" = String, Path)), responses(
    (status = 200, body = DeviceList),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn list(
    user: SessionUser,
    path: web::Path<String>,
    state: web::Data<AppState>,
) -> Result<HttpResponse, ApiError> {
    let server = ServerId::from(path.into_inner());
    let devices = state
        .pool
        .read(move |db| {
            require_role(db, &user.user.id, &server)?;
            smart_devices::list(db, &server)
        })
        .await?;
    Ok(HttpResponse::Ok().json(DeviceList { devices: devices.into_iter().map(DeviceView::from).collect() }))
}

/// Adds a device by hand, or changes what is given of one that is there.
#[utoipa::path(post, path = "/paired-servers/{id}/devices", tag = "devices", security(("session" = [])),
    params(("id" = String, Path)), request_body = NewDevice, responses(
    (status = 201, body = DeviceView),
    (status = 200, body = DeviceView, description = "It was there; what was given was replaced"),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`limit_reached`"),
))]
pub async fn add(
    user: SessionUser,
    path: web::Path<String>,
    Json(new): Json<NewDevice>,
    state: web::Data<AppState>,
) -> Result<HttpResponse, ApiError> {
    let server = ServerId::from(path.into_inner());
    let request = DeviceRequest {
        entity_id: new.entity_id.0,
        kind: new.kind.map(DeviceKind::from),
        name: new.name,
        label: new.label,
    };
    let (watched, now) = (server.clone(), state.clock.now());
    let added = state
        .pool
        .write(move |db| {
            let Role::Owner = require_role(db, &user.user.id, &server)?;
            pairings::pair_device(db, &server, request, now)
        })
        .await?;
    let DeviceOutcome { device, is_new } = added.map_err(|refused| ApiError::LimitReached(refused.to_string()))?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    state.hub.do_send(DevicesChanged { server: watched });
    Ok(HttpResponse::build(status).json(DeviceView::from(device)))
}

/// Forgets a device.
#[utoipa::path(delete, path = "/paired-servers/{id}/devices/{deviceId}", tag = "devices", security(("session" = [])),
    params(("id" = String, Path), ("deviceId" = String, Path)), responses(
    (status = 204),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn remove(
    user: SessionUser,
    path: web::Path<(String, String)>,
    state: web::Data<AppState>,
) -> Result<HttpResponse, ApiError> {
    let (server, device) = path.into_inner();
    let server = ServerId::from(server);
    let watched = server.clone();
    let removed = state
        .pool
        .write(move |db| {
            let Role::Owner = require_role(db, &user.user.id, &server)?;
            smart_devices::delete(db, &server, &device)
        })
        .await?;
    if !removed {
        return Err(ApiError::NotFound);
    }
    state.hub.do_send(DevicesChanged { server: watched });
    Ok(HttpResponse::NoContent().finish())
}
