//! Smart devices, as clients see them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    incident::DevicePlace,
    items::{self, ItemNames},
    time::Timestamp,
    words::words,
};

words! {
    /// Kind of a smart device.
    #[derive(ToSchema)]
    pub enum DeviceKind {
        Switch = "switch",
        Alarm = "alarm",
        StorageMonitor = "storageMonitor",
        Camera = "camera",
        /// Not asked yet, or a number this version does not know.
        Unknown = "unknown",
    }
}

/// Reachability of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reachable {
    Ok,
    /// Not asked yet: there was no link since it was added, or since the start. A camera is asked when it is looked
    /// through.
    Pending,
    /// Destroyed, picked up, or the paired player lost the tool cupboard.
    Removed,
    /// The game does not show it to the paired player. Used for cameras alone: for every other device that the player
    /// has no tool cupboard for, the game gives the same answer as for one that is gone.
    NoPrivilege,
    /// Asked, and no answer came.
    NoResponse,
}

/// A stack in a container. In JSON with its names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "NamedItem")]
pub struct Item {
    pub item_id: i32,
    pub quantity: i32,
    pub is_blueprint: bool,
}

/// A stack as it is on the wire; names are `null` for an item that the catalogue does not know.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NamedItem {
    #[serde(serialize_with = "items::id_text")]
    #[schema(value_type = String, pattern = "^(0|-?[1-9][0-9]{0,9})$")]
    item_id: i32,
    #[serde(flatten)]
    names: ItemNames,
    quantity: i32,
    is_blueprint: bool,
}

impl From<Item> for NamedItem {
    fn from(Item { item_id, quantity, is_blueprint }: Item) -> Self {
        Self { item_id, names: ItemNames::of(item_id), quantity, is_blueprint }
    }
}

/// The container that a storage monitor is attached to.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Slots; 0 while unpowered or not attached.
    pub capacity: i32,
    /// Slots in use.
    pub used: i32,
    /// Stacks added up by item, in a stable order.
    #[schema(value_type = Vec<NamedItem>)]
    pub items: Vec<Item>,
    /// True on a tool cupboard.
    pub has_protection: bool,
    /// When upkeep runs out; `null` on a tool cupboard means decaying.
    #[schema(required)]
    pub protection_expires_at: Option<Timestamp>,
}

/// A switch that was turned for a time gets this value then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TurnBack {
    pub value: bool,
    pub at: Timestamp,
}

/// A smart device.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    pub kind: DeviceKind,
    pub name: String,
    #[schema(required)]
    pub label: Option<String>,
    /// On or off, powered or not; `null` while unknown.
    #[schema(required)]
    pub value: Option<bool>,
    pub reachable: Reachable,
    /// `{ x, y, grid }`
    #[serde(flatten)]
    pub place: DevicePlace,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Absent on a switch that stays as it is. Any other command for the switch ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_back: Option<TurnBack>,
}

/// A device as it last answered.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    pub device: Device,
    pub as_of: Option<Timestamp>,
}
