//! Smart devices of a paired game server: `/paired-servers/{id}/devices/*`.

use std::{collections::HashMap, sync::Arc};

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{IntegerOrText, given, on_the_largest_map, one_line},
            list_page::{ListPage, ListPlace},
            map_places::{check_place, map_size},
        },
        context::ApiContext,
        extract::{
            idempotent::Idempotent,
            json::{Json, OptionalJson},
            paired_server::{OwnedServer, PermittedWrite, ServerPart, WatchedServer},
            query::Query,
            route_facts,
        },
        rate_limits::too_many_toggles,
        server::device_commands::{chat_word, check_free},
    },
    db::{
        device_groups,
        engine::pool::Db,
        paired_servers,
        smart_devices::{self, DeviceChange, SmartDevice},
    },
    domain::{
        camera::CameraId,
        device::{DeviceKind, DeviceReport, Reachable, ShownStorage},
        grid::{self, GridStyle},
        ids::ServerId,
        items::Catalogue,
        time::Timestamp,
    },
    pairings::{self, DeviceOutcome, DeviceRequest},
    relay::hub::{CommandError, DeviceToggle, DevicesChanged, ReadDevices, ToConnection, UserCommand, Wish},
};

/// Kinds of device that can be added by hand.
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

/// A device whose entity id the user knows, or a camera by its identifier.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "entityId": "1234567", "kind": "switch", "label": "Gate" }))]
pub struct CreateDevice {
    /// The game's entity id: decimal digits (a JSON integer is accepted too).
    #[garde(skip)]
    #[schema(value_type = Option<String>, format = "entity-id")]
    entity_id: Option<EntityId>,
    /// Instead of `entityId`: a camera, as a computer station in the game names it. Not all digits.
    #[garde(custom(identifier))]
    #[schema(pattern = "^[A-Za-z0-9_]{0,31}[A-Za-z_][A-Za-z0-9_]{0,31}$", max_length = 32)]
    camera_id: Option<String>,
    /// Read from the game when absent; not with `cameraId`.
    #[garde(skip)]
    kind: Option<NewKind>,
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    name: Option<String>,
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    label: Option<String>,
}

fn identifier(text: &Option<String>, _: &()) -> garde::Result {
    let checked = text.as_deref().map_or(Ok(()), |text| CameraId::parse(text).map(drop));
    checked.map_err(garde::Error::new)
}

/// Id of the added device: exactly one of the two.
enum NewId {
    Entity(EntityId),
    Camera(CameraId),
}

impl CreateDevice {
    fn id(&self) -> Result<NewId, ApiError> {
        match (self.entity_id, &self.camera_id) {
            (None, None) => Err(ApiError::invalid("entityId", "is required, or `cameraId`")),
            (Some(_), Some(_)) => Err(ApiError::invalid("cameraId", "must not be given together with `entityId`")),
            (None, Some(_)) if self.kind.is_some() => {
                Err(ApiError::invalid("kind", "must not be given with `cameraId`"))
            }
            (None, Some(id)) => {
                CameraId::parse(id).map(NewId::Camera).map_err(|message| ApiError::invalid("cameraId", message))
            }
            (Some(id), None) => Ok(NewId::Entity(id)),
        }
    }
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

/// The owner's edit of a device; absent fields stay, `null` removes a value.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "label": "Gate", "customCommand": "gate", "onMessage": "The gate opens" }))]
pub struct UpdateDevice {
    #[garde(inner(length(chars, min = 1, max = 100), custom(one_line)))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "one-line", min_length = 1, max_length = 100)]
    label: Option<Option<String>>,
    /// A word that a player types in the team's chat: letters, digits, `_` and `-`; no other device of the server has it.
    #[garde(inner(inner(length(chars, min = 1, max = 32), custom(chat_word))))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, pattern = "^[\\p{L}\\p{N}_-]{1,32}$")]
    custom_command: Option<Option<String>>,
    /// Said in the team's chat when it was switched on.
    #[garde(inner(length(chars, min = 1, max = 128), custom(one_line)))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "one-line", min_length = 1, max_length = 128)]
    on_message: Option<Option<String>>,
    #[garde(inner(length(chars, min = 1, max = 128), custom(one_line)))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "one-line", min_length = 1, max_length = 128)]
    off_message: Option<Option<String>>,
    /// Place of the device: metres from the south-west corner, at most 500 beyond the map. Together with `y`.
    #[garde(inner(inner(custom(on_the_largest_map))))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = -500, maximum = 20_500)]
    x: Option<Option<f64>>,
    #[garde(inner(inner(custom(on_the_largest_map))))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = -500, maximum = 20_500)]
    y: Option<Option<f64>>,
}

/// The body of a toggle: the wanted value.
#[derive(Default, Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "value": true }))]
pub struct ToggleRequest {
    /// The wanted state; without it the switch is flipped from what is true when its turn comes.
    #[garde(skip)]
    pub value: Option<bool>,
}

/// A smart device: its stored values and its latest report, as the relay's state has it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeviceView {
    /// The game's entity id, or a camera's identifier.
    device_id: String,
    /// `switch`, `alarm`, `storageMonitor`, `camera`, or `unknown` until the game has answered.
    kind: DeviceKind,
    name: String,
    label: Option<String>,
    custom_command: Option<String>,
    on_message: Option<String>,
    off_message: Option<String>,
    /// Metres from the south-west corner.
    x: Option<f64>,
    y: Option<f64>,
    /// `""` while its place or the size of the map is not known.
    grid: String,
    /// On or off, powered or not; `null` while unknown.
    value: Option<bool>,
    reachable: Reachable,
    /// When it was last heard of.
    as_of: Option<Timestamp>,
    /// Contents and upkeep of what a storage monitor is attached to.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<ShownStorage>,
    created_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct DeviceList {
    devices: Vec<DeviceView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// The state that was observed after a toggle.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Toggled {
    device_id: String,
    value: bool,
    as_of: Timestamp,
}

impl DeviceView {
    fn new(stored: SmartDevice, report: Option<DeviceReport>, catalogue: &Catalogue, map_size: u32) -> Self {
        let (heard, as_of) = report.map_or((None, None), |report| (Some(report.device), report.as_of));
        let kind = heard.as_ref().map_or(stored.kind, |heard| heard.kind);
        let value = heard.as_ref().and_then(|heard| heard.value);
        let reachable = heard.as_ref().map_or(Reachable::Pending, |heard| heard.reachable);
        let storage = heard.and_then(|heard| heard.storage).map(|storage| storage.shown(catalogue));
        // From the stored place: the report may be older than an edit.
        let grid = stored.x.zip(stored.y).map(|(x, y)| grid::label(GridStyle::InGame, map_size, x, y));
        Self {
            device_id: stored.device_id,
            kind,
            name: stored.name,
            label: stored.label,
            custom_command: stored.custom_command,
            on_message: stored.on_message,
            off_message: stored.off_message,
            x: stored.x,
            y: stored.y,
            grid: grid.unwrap_or_default(),
            value,
            reachable,
            as_of,
            storage,
            created_at: stored.created_at,
        }
    }
}

/// Latest reports of this server's devices from its game connection. `Unavailable` if the node that has that does not answer.
pub async fn reports(context: &ApiContext, server: &ServerId) -> Result<HashMap<Arc<str>, DeviceReport>, ApiError> {
    let reports = context.services.hub.send(ReadDevices { server: server.clone() }).await;
    let reports = reports.map_err(|error| ApiError::Unavailable(Box::new(error)))?;
    reports.map_err(|unanswered| ApiError::Unavailable(unanswered.into()))
}

/// The devices of a server this user may watch.
#[utoipa::path(get, path = "/paired-servers/{id}/devices", tag = "devices",
    params(("id" = String, Path), ListPage), responses(
    (status = 200, body = DeviceList),
))]
pub async fn list(
    server: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let mut reports = reports(&context, &server.id).await?;
    let read = move |db: &mut Db| Ok((smart_devices::list(db, &server.id)?, map_size(db, &server.id)?));
    let (devices, size) = context.pool.read(read).await?;
    let catalogue = context.caches.catalogue.current();
    let view = |device: SmartDevice| {
        let report = reports.remove(device.device_id.as_str());
        DeviceView::new(device, report, &catalogue, size)
    };
    let (devices, next) = page.cut(devices.into_iter().map(view).collect(), |device: &DeviceView| {
        ListPlace::oldest_first(device.created_at, &device.device_id)
    })?;
    Ok(HttpResponse::Ok().json(DeviceList { devices, next }))
}

/// Edits the owner's values of a device.
#[utoipa::path(patch, path = "/paired-servers/{id}/devices/{deviceId}", tag = "devices",
    params(("id" = String, Path), ("deviceId" = String, Path)), request_body = UpdateDevice, responses(
    (status = 200, body = DeviceView),
    (status = 403, description = "`owner_only`"),
))]
pub async fn update(
    server: OwnedServer,
    ServerPart(device): ServerPart,
    Json(edit): Json<UpdateDevice>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let UpdateDevice { label, custom_command, on_message, off_message, x, y } = edit;
    if x.is_some() != y.is_some() || x.flatten().is_some() != y.flatten().is_some() {
        return Err(ApiError::invalid(if x.is_none() { "x" } else { "y" }, "x and y belong together"));
    }
    let change = DeviceChange { label, custom_command, on_message, off_message, x, y };
    let (id, edited) = (server.id.clone(), device.clone());
    let edit = move |db: &mut Db, PermittedWrite { server, .. }: &PermittedWrite| {
        paired_servers::lock(db, server)?;
        let size = map_size(db, server)?;
        check_place(size, change.x.flatten(), change.y.flatten())?;
        if let Some(Some(command)) = &change.custom_command {
            let others = smart_devices::list(db, server)?.into_iter().filter(|other| other.device_id != edited);
            let groups = device_groups::list(db, server)?.into_iter().filter_map(|group| group.command);
            check_free(Some(command), others.filter_map(|other| other.custom_command).chain(groups))?;
        }
        let before = smart_devices::get(db, server, &edited)?;
        let stored = smart_devices::change(db, server, &edited, &change)?;
        let is_changed = stored != before;
        Ok(((stored, size), is_changed))
    };
    let (stored, size) = server
        .write_and_notify(edit, |hub, server| hub.do_send(ToConnection { server, message: DevicesChanged }))
        .await?;
    // The edit is stored, whatever the device says.
    let report = reports(&context, &id).await.unwrap_or_default().remove(device.as_str());
    Ok(HttpResponse::Ok().json(DeviceView::new(stored, report, &context.caches.catalogue.current(), size)))
}

/// Toggles a smart switch, and waits until the game shows the wanted state, five seconds at most: a game server that says
/// yes and then does not show it is answered with `game_server_timeout`. Toggles of one switch are carried out one after the other; those that want the same value and follow each other are one.
#[utoipa::path(post, path = "/paired-servers/{id}/devices/{deviceId}/toggle", tag = "devices",
    params(("id" = String, Path), ("deviceId" = String, Path)),
    request_body = Option<ToggleRequest>, responses(
    (status = 200, body = Toggled),
    (status = 403, description = "`owner_only`"),
    (status = 409, description = "`not_a_switch` or `device_removed`"),
    (status = 503, description = "`game_server_unavailable`"),
    (status = 504, description = "`game_server_timeout`"),
))]
pub async fn toggle(
    OwnedServer { user, id: server, .. }: OwnedServer,
    ServerPart(device_id): ServerPart,
    OptionalJson(ToggleRequest { value }): OptionalJson<ToggleRequest>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    route_facts::take_limit(&req, &user.id)?;
    let stored = (server.clone(), device_id.clone());
    let stored = context.pool.read(move |db| smart_devices::get(db, &stored.0, &stored.1)).await?;
    if !matches!(stored.kind, DeviceKind::Switch | DeviceKind::Unknown) {
        return Err(ApiError::NotASwitch);
    }
    let toggle = DeviceToggle { device: device_id.clone(), wish: Wish { value, by: user.id } };
    let toggled = context.services.hub.send(UserCommand { server, toggle }).await;
    let value = toggled.map_err(|error| ApiError::Unavailable(Box::new(error)))?.map_err(|error| match error {
        CommandError::UnknownServer | CommandError::UnknownDevice | CommandError::UnknownIncident => ApiError::NotFound,
        CommandError::OwnerOnly => ApiError::OwnerOnly,
        CommandError::NotASwitch => ApiError::NotASwitch,
        CommandError::DeviceRemoved => ApiError::DeviceRemoved,
        CommandError::TooMany => too_many_toggles(),
        CommandError::Unavailable => ApiError::GameServerUnavailable,
        CommandError::TimedOut => ApiError::GameServerTimeout,
        CommandError::Internal => ApiError::Unavailable("the command was not carried out".into()),
    })?;
    Ok(HttpResponse::Ok().json(Toggled { device_id, value, as_of: context.clock.now() }))
}

/// Adds a device or a camera by hand, or replaces the given values of a known one.
#[utoipa::path(post, path = "/paired-servers/{id}/devices", tag = "devices",
    params(("id" = String, Path)), request_body = CreateDevice, responses(
    (status = 201, body = DeviceView),
    (status = 200, body = DeviceView, description = "Known before; the given values were replaced"),
    (status = 403, description = "`owner_only`"),
    (status = 409, description = "`limit_reached`"),
))]
pub async fn create(
    server: OwnedServer,
    once: Idempotent,
    Json(new): Json<CreateDevice>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let id = new.id()?;
    let CreateDevice { kind, name, label, .. } = new;
    let (now, catalogue) = (context.clock.now(), context.caches.catalogue.current());
    let add = move |db: &mut Db, PermittedWrite { server, .. }: &PermittedWrite| {
        let added = match id {
            NewId::Entity(EntityId(entity_id)) => {
                let request = DeviceRequest { entity_id, kind: kind.map(DeviceKind::from), name, label };
                pairings::pair_device(db, server, request, now)?
            }
            NewId::Camera(camera) => pairings::add_camera(db, server, &camera, name.as_deref(), label.as_deref(), now)?,
        };
        let DeviceOutcome { device, is_new } = added.map_err(|refused| ApiError::LimitReached(refused.to_string()))?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, DeviceView::new(device, None, &catalogue, map_size(db, server)?)))
    };
    server.write_once(once, add, |hub, server| hub.do_send(ToConnection { server, message: DevicesChanged })).await
}

/// Deletes a device.
#[utoipa::path(delete, path = "/paired-servers/{id}/devices/{deviceId}", tag = "devices",
    params(("id" = String, Path), ("deviceId" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, description = "`owner_only`"),
))]
pub async fn delete(server: OwnedServer, ServerPart(device): ServerPart) -> Result<HttpResponse, ApiError> {
    let remove = move |db: &mut Db, PermittedWrite { server, .. }: &PermittedWrite| {
        paired_servers::lock(db, server)?;
        device_groups::remove_device(db, server, &device)?;
        smart_devices::delete(db, server, &device)
    };
    server.delete(remove, |hub, server| hub.do_send(ToConnection { server, message: DevicesChanged })).await
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
