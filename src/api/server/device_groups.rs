//! Groups of devices that are switched as one: `/paired-servers/{id}/device-groups/*`.

use std::{collections::HashMap, sync::Arc};

use actix::Addr;
use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use futures_util::future::join_all;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::ApiError,
            fields::{given, is_one_line},
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{
            idempotent::Idempotent,
            json::{Json, OptionalJson},
            paired_server::{OwnedServer, PermittedWrite, ServerPart, WatchedServer},
            query::Query,
            route_facts,
        },
        server::{
            device_commands::{chat_word, check_free},
            devices::{self, ToggleRequest},
        },
    },
    db::{
        device_groups::{self, DeviceGroup, MOST_GROUPS, MOST_MEMBERS},
        engine::{error::DbError, pool::Db},
        paired_servers, smart_devices,
    },
    domain::{
        device::{DeviceKind, DeviceReport},
        ids::ServerId,
        time::Timestamp,
    },
    relay::hub::{CommandError, DeviceToggle, DevicesChanged, Hub, ToConnection, UserCommand, Wish},
};

/// A new group.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "name": "Gates", "customCommand": "gates", "devices": ["4242", "4243"] }))]
pub struct CreateDeviceGroup {
    #[garde(length(chars, min = 1, max = 64), custom(is_one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 64)]
    name: String,
    /// A word that a player types in the team's chat; no device and no other group of the server has it.
    #[garde(inner(length(chars, min = 1, max = 32), custom(chat_word)))]
    #[schema(pattern = "^[\\p{L}\\p{N}_-]{1,32}$")]
    custom_command: Option<String>,
    /// Ids of devices of this server, in the order in which they are switched.
    #[garde(length(min = 1, max = MOST_MEMBERS))]
    #[schema(value_type = Vec<SwitchId>, min_items = 1, max_items = 32)]
    devices: Vec<String>,
}

/// A change of a group; absent fields stay, `null` removes the command.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "name": "All gates" }))]
pub struct UpdateDeviceGroup {
    #[garde(inner(length(chars, min = 1, max = 64), custom(is_one_line)))]
    #[schema(format = "one-line", min_length = 1, max_length = 64)]
    name: Option<String>,
    #[garde(inner(inner(length(chars, min = 1, max = 32), custom(chat_word))))]
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, pattern = "^[\\p{L}\\p{N}_-]{1,32}$")]
    custom_command: Option<Option<String>>,
    #[garde(inner(length(min = 1, max = MOST_MEMBERS)))]
    #[schema(value_type = Option<Vec<SwitchId>>, min_items = 1, max_items = 32)]
    devices: Option<Vec<String>>,
}

/// Id of a switch: its entity in the game.
#[derive(ToSchema)]
#[schema(pattern = "^[0-9]{1,20}$")]
#[allow(dead_code, reason = "only its schema is used")]
struct SwitchId(String);

/// A group of devices.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GroupView {
    id: String,
    name: String,
    custom_command: Option<String>,
    devices: Vec<String>,
    created_at: Timestamp,
}

impl From<DeviceGroup> for GroupView {
    fn from(DeviceGroup { id, name, command: custom_command, devices, created_at }: DeviceGroup) -> Self {
        Self { id, name, custom_command, devices, created_at }
    }
}

#[derive(Serialize, ToSchema)]
struct GroupList {
    groups: Vec<GroupView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

/// The outcome for one device of a group.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GroupedOutcome {
    device_id: String,
    /// The state that was observed; `null` if it is not known.
    value: Option<bool>,
    /// Code of the error, as the toggle of the device alone has it; `null` if it shows the wanted state.
    error: Option<&'static str>,
}

/// The outcomes of a group.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct GroupToggled {
    outcomes: Vec<GroupedOutcome>,
}

/// Devices of a server as its link reports them.
type LiveDevices = HashMap<Arc<str>, DeviceReport>;

/// Checks that all are devices of the server that can be switched, each once. The link knows the kind of a device whose
/// kind was not given.
fn check_members(db: &mut Db, server: &ServerId, devices: &[String], live: &LiveDevices) -> Result<(), ApiError> {
    let known = smart_devices::list(db, server)?;
    let is_switch = |kind| matches!(kind, DeviceKind::Switch | DeviceKind::Unknown);
    for (place, id) in devices.iter().enumerate() {
        let is_known = known.iter().any(|device| device.device_id == *id && is_switch(device.kind));
        if !is_known || live.get(id.as_str()).is_some_and(|report| !is_switch(report.device.kind)) {
            return Err(ApiError::invalid(&format!("devices[{place}]"), "is no switch of this server"));
        }
        if devices[..place].contains(id) {
            return Err(ApiError::invalid(&format!("devices[{place}]"), "comes twice"));
        }
    }
    Ok(())
}

/// Checks that the command is free.
fn check_command(db: &mut Db, server: &ServerId, group: &DeviceGroup) -> Result<(), ApiError> {
    let known = smart_devices::list(db, server)?;
    let groups = device_groups::list(db, server)?;
    let others = groups.into_iter().filter(|other| other.id != group.id).filter_map(|other| other.command);
    let taken = others.chain(known.into_iter().filter_map(|device| device.custom_command));
    check_free(group.command.as_deref(), taken)
}

fn group(db: &mut Db, server: &ServerId, id: &str) -> Result<DeviceGroup, ApiError> {
    let group = device_groups::list(db, server)?.into_iter().find(|group| group.id == id);
    Ok(group.ok_or(DbError::NotFound)?)
}

/// The groups of a server's devices.
#[utoipa::path(get, path = "/paired-servers/{id}/device-groups", tag = "devices",
    params(("id" = String, Path), ListPage), responses(
    (status = 200, body = GroupList),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let groups = context.pool.read(move |db| device_groups::list(db, &id)).await?;
    let groups = groups.into_iter().map(GroupView::from).collect();
    let (groups, next) = page.cut(groups, |group: &GroupView| ListPlace::oldest_first(group.created_at, &group.id))?;
    Ok(HttpResponse::Ok().json(GroupList { groups, next }))
}

/// Adds a group of devices.
#[utoipa::path(post, path = "/paired-servers/{id}/device-groups", tag = "devices",
    params(("id" = String, Path)), request_body = CreateDeviceGroup, responses(
    (status = 201, body = GroupView),
    (status = 403, description = "`owner_only`"),
    (status = 409, description = "`limit_reached`"),
))]
pub async fn create(
    server: OwnedServer,
    once: Idempotent,
    Json(CreateDeviceGroup { name, custom_command: command, devices }): Json<CreateDeviceGroup>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let live = devices::reports(&context, &server.id).await?;
    let group = DeviceGroup { id: context.random.id(now), name, command, devices, created_at: now };
    let add = move |db: &mut Db, PermittedWrite { server, .. }: &PermittedWrite| {
        paired_servers::lock(db, server)?;
        check_members(db, server, &group.devices, &live)?;
        check_command(db, server, &group)?;
        if device_groups::list(db, server)?.len() >= MOST_GROUPS {
            return Err(ApiError::LimitReached(format!("a server has at most {MOST_GROUPS} groups")));
        }
        device_groups::put(db, server, &group)?;
        Ok((StatusCode::CREATED, GroupView::from(group)))
    };
    server.write_once(once, add, report).await
}

/// Commands of the chat may have changed.
fn report(hub: &Addr<Hub>, server: ServerId) {
    hub.do_send(ToConnection { server, message: DevicesChanged });
}

/// Changes a group of devices.
#[utoipa::path(patch, path = "/paired-servers/{id}/device-groups/{groupId}", tag = "devices",
    params(("id" = String, Path), ("groupId" = String, Path)), request_body = UpdateDeviceGroup,
    responses(
    (status = 200, body = GroupView),
    (status = 403, description = "`owner_only`"),
))]
pub async fn update(
    server: OwnedServer,
    ServerPart(id): ServerPart,
    Json(UpdateDeviceGroup { name, custom_command, devices }): Json<UpdateDeviceGroup>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let live = devices::reports(&context, &server.id).await?;
    let edit = move |db: &mut Db, PermittedWrite { server, .. }: &PermittedWrite| {
        paired_servers::lock(db, server)?;
        let known = group(db, server, &id)?;
        check_members(db, server, devices.as_deref().unwrap_or_default(), &live)?;
        let group = DeviceGroup {
            name: name.unwrap_or_else(|| known.name.clone()),
            command: custom_command.unwrap_or_else(|| known.command.clone()),
            devices: devices.unwrap_or_else(|| known.devices.clone()),
            ..known.clone()
        };
        check_command(db, server, &group)?;
        device_groups::put(db, server, &group)?;
        let is_changed = group != known;
        Ok((group, is_changed))
    };
    Ok(HttpResponse::Ok().json(GroupView::from(server.write_and_notify(edit, report).await?)))
}

/// Deletes a group; its devices stay.
#[utoipa::path(delete, path = "/paired-servers/{id}/device-groups/{groupId}", tag = "devices",
    params(("id" = String, Path), ("groupId" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, description = "`owner_only`"),
))]
pub async fn delete(server: OwnedServer, ServerPart(id): ServerPart) -> Result<HttpResponse, ApiError> {
    let remove = move |db: &mut Db, write: &PermittedWrite| device_groups::delete(db, &write.server, &id);
    server.delete(remove, report).await
}

/// Switches all devices of a group, to the wanted state or to the opposite of the first one's, and says what became of
/// each: five seconds at most.
#[utoipa::path(post, path = "/paired-servers/{id}/device-groups/{groupId}/toggle", tag = "devices",
    params(("id" = String, Path), ("groupId" = String, Path)),
    request_body = Option<ToggleRequest>, responses(
    (status = 200, body = GroupToggled),
    (status = 403, description = "`owner_only`"),
))]
pub async fn toggle(
    OwnedServer { user, id: server, .. }: OwnedServer,
    ServerPart(id): ServerPart,
    OptionalJson(ToggleRequest { value }): OptionalJson<ToggleRequest>,
    req: HttpRequest,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let stored = server.clone();
    let group = context.pool.read(move |db| Ok(group(db, &stored, &id))).await??;
    route_facts::take_limits(&req, &user.id, u32::try_from(group.devices.len()).unwrap_or(u32::MAX))?;
    let first = match (value, group.devices.first()) {
        (None, Some(first)) => {
            let known = devices::reports(&context, &server).await?;
            known.get(first.as_str()).and_then(|report| report.device.value)
        }
        _ => None,
    };
    let wanted = value.unwrap_or(!first.unwrap_or_default());
    let outcomes = group.devices.into_iter().map(|device_id| {
        let wish = Wish { value: Some(wanted), by: user.id.clone() };
        let toggle = DeviceToggle { device: device_id.clone(), wish };
        let toggled = context.services.hub.send(UserCommand { server: server.clone(), toggle });
        async move {
            let (value, error) = match toggled.await.unwrap_or(Err(CommandError::Internal)) {
                Ok(value) => (Some(value), None),
                Err(error) => (None, Some(code(error))),
            };
            GroupedOutcome { device_id, value, error }
        }
    });
    let outcomes = join_all(outcomes.collect::<Vec<_>>()).await;
    Ok(HttpResponse::Ok().json(GroupToggled { outcomes }))
}

fn code(error: CommandError) -> &'static str {
    match error {
        CommandError::UnknownServer | CommandError::UnknownDevice | CommandError::UnknownIncident => "not_found",
        CommandError::OwnerOnly => "owner_only",
        CommandError::NotASwitch => "not_a_switch",
        CommandError::DeviceRemoved => "device_removed",
        CommandError::TooMany => "rate_limited",
        CommandError::Unavailable | CommandError::Internal => "game_server_unavailable",
        CommandError::TimedOut => "game_server_timeout",
    }
}
