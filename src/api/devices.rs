//! Smart devices of a paired game server: `/paired-servers/{id}/devices/*`.

use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        context::ApiContext,
        error::{ApiError, Problem},
        extract::{
            json::Json,
            paired_server::{OwnedServer, WatchedServer},
        },
        fields::{IntegerOrText, one_line},
    },
    db::{
        access,
        error::DbError,
        pool::Db,
        smart_devices::{self, SmartDevice},
    },
    domain::{
        device::DeviceKind,
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
    /// Read from the game when absent.
    #[garde(skip)]
    kind: Option<NewKind>,
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(min_length = 1, max_length = 100)]
    label: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "IntegerOrText")]
struct EntityId(u64);

impl TryFrom<IntegerOrText> for EntityId {
    type Error = &'static str;

    fn try_from(value: IntegerOrText) -> Result<Self, Self::Error> {
        let text = value.into_text();
        // Not `+1`, which would parse.
        let id = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        id.filter(|id| *id != 0).map(Self).ok_or("an entity id is a positive integer or its decimal digits")
    }
}

/// A smart device as it is stored. Live values come over the relay.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeviceView {
    /// The game's entity id.
    device_id: String,
    /// `switch`, `alarm`, `storageMonitor`, `camera`, or `unknown` until the game has answered.
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
pub async fn list(server: WatchedServer, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let devices = context.pool.read(move |db| smart_devices::list(db, &server.id)).await?;
    Ok(HttpResponse::Ok().json(DeviceList { devices: devices.into_iter().map(DeviceView::from).collect() }))
}

/// Adds a device by hand, or replaces the given values of a known one.
#[utoipa::path(post, path = "/paired-servers/{id}/devices", tag = "devices", security(("session" = [])),
    params(("id" = String, Path)), request_body = NewDevice, responses(
    (status = 201, body = DeviceView),
    (status = 200, body = DeviceView, description = "Known before; the given values were replaced"),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`owner_only`"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`limit_reached`"),
))]
pub async fn add(
    OwnedServer { user, id: server }: OwnedServer,
    Json(new): Json<NewDevice>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let request = DeviceRequest {
        entity_id: new.entity_id.0,
        kind: new.kind.map(DeviceKind::from),
        name: new.name,
        label: new.label,
    };
    let (watched, now) = (server.clone(), context.clock.now());
    // Access was read before this transaction, and may have ended since.
    let add = move |db: &mut Db| {
        access::role(db, &user.id, &server)?.ok_or(DbError::NotFound)?;
        pairings::pair_device(db, &server, request, now)
    };
    let added = context.pool.write(add).await?;
    let DeviceOutcome { device, is_new } = added.map_err(|refused| ApiError::LimitReached(refused.to_string()))?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    context.hub.do_send(DevicesChanged { server: watched });
    Ok(HttpResponse::build(status).json(DeviceView::from(device)))
}

/// Deletes a device.
#[utoipa::path(delete, path = "/paired-servers/{id}/devices/{deviceId}", tag = "devices", security(("session" = [])),
    params(("id" = String, Path), ("deviceId" = String, Path)), responses(
    (status = 204),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`owner_only`"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn remove(
    OwnedServer { user, id: server }: OwnedServer,
    path: web::Path<(String, String)>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (_, device) = path.into_inner();
    let watched = server.clone();
    let remove = move |db: &mut Db| {
        access::role(db, &user.id, &server)?.ok_or(DbError::NotFound)?;
        smart_devices::delete(db, &server, &device)
    };
    if !context.pool.write(remove).await? {
        return Err(ApiError::NotFound);
    }
    context.hub.do_send(DevicesChanged { server: watched });
    Ok(HttpResponse::NoContent().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_id_is_a_positive_integer_or_its_digits() {
        let read = |json: &str| serde_json::from_str::<EntityId>(json).map(|id| id.0).ok();
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        assert_eq!(read("\"18446744073709551615\""), Some(u64::MAX));
        for bad in ["0", "\"0\"", "-1", "1.0", "1e3", "\"+1\"", "\" 1\"", "\"\"", "18446744073709551616", "null", "[]"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
