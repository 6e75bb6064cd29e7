//! What is on the map: markers and notes, as clients see them.

use serde::Serialize;

use crate::domain::time::{self, Timestamp};

/// What a marker on the map means (protocol §2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MarkerKind {
    Player,
    Explosion,
    VendingMachine,
    Chinook,
    CargoShip,
    Crate,
    GenericRadius,
    PatrolHelicopter,
    TravellingVendor,
    /// A number this version does not know.
    Other,
}

/// One line of a vending machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SellOrder {
    pub item_id: i32,
    /// Pieces per purchase.
    pub quantity: i32,
    pub currency_id: i32,
    /// Price of one purchase, for `quantity` pieces.
    pub cost: i32,
    pub in_stock: i32,
    pub item_is_blueprint: bool,
    pub currency_is_blueprint: bool,
}

/// A marker on the map.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    pub kind: MarkerKind,
    /// Metres from the south-west corner; may lie outside the world.
    pub x: f64,
    pub y: f64,
    pub grid: String,
    /// Degrees; movers only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steam_id: Option<String>,
    /// Map scale value of a circle, not metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radius: Option<f64>,
    /// Colour of a circle, `#rrggbbaa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_stock: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sell_orders: Vec<SellOrder>,
}

/// A note on the map.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapNote {
    pub x: f64,
    pub y: f64,
    pub grid: String,
    pub category: String,
    pub label: Option<String>,
    /// `game` (placed in the game), `detector` or `user`.
    pub source: &'static str,
    /// User id, `null` for all but `user` notes.
    pub author: Option<String>,
    #[serde(serialize_with = "time::wire")]
    pub created_at: Timestamp,
    #[serde(serialize_with = "time::wire_option")]
    pub expires_at: Option<Timestamp>,
}
