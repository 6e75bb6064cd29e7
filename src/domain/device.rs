//! Smart devices, as clients see them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::{
    change::Node,
    incident::DevicePlace,
    items::{self, Catalogue, ItemNames},
    time::Timestamp,
    words::words,
};

words! {
    /// Kind of a smart device.
    #[derive(Deserialize, ToSchema)]
    pub enum DeviceKind {
        Switch = "switch",
        Alarm = "alarm",
        StorageMonitor = "storageMonitor",
        Camera = "camera",
        /// Not asked yet, or a number this version does not know.
        Unknown = "unknown",
    }
}

impl DeviceKind {
    /// True for an alarm, and as long as the kind is not known.
    pub fn may_be_alarm(self) -> bool {
        matches!(self, Self::Alarm | Self::Unknown)
    }
}

/// Reachability of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// A stack in a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    pub item_id: i32,
    pub quantity: i32,
    pub is_blueprint: bool,
}

/// A stack as it is on the wire; names are `null` for an item that the catalogue does not know.
#[derive(Debug, Serialize, ToSchema)]
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

/// The container that a storage monitor is attached to.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// Slots; 0 while unpowered or not attached.
    pub capacity: i32,
    /// Slots in use.
    pub used: i32,
    /// Stacks added up by item, in a stable order.
    pub items: Vec<Item>,
    /// True on a tool cupboard.
    pub has_protection: bool,
    /// When upkeep runs out; `None` on a tool cupboard means decaying.
    pub protection_expires_at: Option<Timestamp>,
}

/// The container that a storage monitor is attached to.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Storage)]
#[serde(rename_all = "camelCase")]
pub struct ShownStorage {
    /// Slots; 0 while unpowered or not attached.
    capacity: i32,
    /// Slots in use.
    used: i32,
    /// Stacks added up by item, in a stable order.
    items: Vec<NamedItem>,
    /// True on a tool cupboard.
    has_protection: bool,
    /// When upkeep runs out; `null` on a tool cupboard means decaying.
    #[schema(required)]
    protection_expires_at: Option<Timestamp>,
}

impl Storage {
    /// As it is on the wire, with the names that this catalogue has.
    pub fn shown(&self, catalogue: &Catalogue) -> ShownStorage {
        let named = |&Item { item_id, quantity, is_blueprint }: &Item| NamedItem {
            item_id,
            names: catalogue.names(item_id),
            quantity,
            is_blueprint,
        };
        ShownStorage {
            capacity: self.capacity,
            used: self.used,
            items: self.items.iter().map(named).collect(),
            has_protection: self.has_protection,
            protection_expires_at: self.protection_expires_at,
        }
    }
}

/// A switch that was turned for a time gets this value then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TurnBack {
    pub value: bool,
    pub at: Timestamp,
}

/// A smart device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub kind: DeviceKind,
    pub name: String,
    pub label: Option<String>,
    /// On or off, powered or not; `None` while unknown.
    pub value: Option<bool>,
    pub reachable: Reachable,
    pub place: DevicePlace,
    pub storage: Option<Storage>,
    /// `None` on a switch that stays as it is.
    pub turns_back: Option<TurnBack>,
}

/// A smart device.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Device)]
#[serde(rename_all = "camelCase")]
pub struct ShownDevice<'a> {
    kind: DeviceKind,
    name: &'a str,
    #[schema(required)]
    label: Option<&'a str>,
    /// On or off, powered or not; `null` while unknown.
    #[schema(required)]
    value: Option<bool>,
    reachable: Reachable,
    /// `{ x, y, grid }`
    #[serde(flatten)]
    place: &'a DevicePlace,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<ShownStorage>,
    /// Absent on a switch that stays as it is. Any other command for the switch ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns_back: Option<TurnBack>,
}

impl Device {
    /// As it is on the wire, with the names that this catalogue has.
    pub fn shown(&self, catalogue: &Catalogue) -> ShownDevice<'_> {
        ShownDevice {
            kind: self.kind,
            name: &self.name,
            label: self.label.as_deref(),
            value: self.value,
            reachable: self.reachable,
            place: &self.place,
            storage: self.storage.as_ref().map(|storage| storage.shown(catalogue)),
            turns_back: self.turns_back,
        }
    }
}

impl Node for Device {
    fn json(&self, catalogue: &Catalogue) -> Box<RawValue> {
        self.shown(catalogue).json(catalogue)
    }
}

/// A device as it last answered.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    pub device: Device,
    pub as_of: Option<Timestamp>,
}
