//! What is on the map: markers and notes, as clients see them.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    grid::GridLabel,
    items::ItemNames,
    time::{self, Timestamp},
};

/// Edge of the largest map there may be, metres.
pub const LARGEST_MAP: f64 = 20_000.0;
/// How far beyond the map something may be noted, metres.
pub const BEYOND_THE_MAP: f64 = 500.0;

/// What a marker on the map means (protocol §2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
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

/// One line of a vending machine. In JSON with the names of its items, which cost nothing until they are written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "NamedSellOrder")]
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
    /// Of damaged goods: part of the full condition, 0..1.
    pub condition: Option<f64>,
}

/// A sell order as it is on the wire; names are `null` for items that the catalogue does not know.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NamedSellOrder {
    item_id: i32,
    #[serde(flatten)]
    item: ItemNames,
    quantity: i32,
    currency_id: i32,
    #[schema(value_type = Option<String>, required)]
    currency_name: Option<Arc<str>>,
    #[schema(value_type = Option<String>, required)]
    currency_shortname: Option<Arc<str>>,
    cost: i32,
    in_stock: i32,
    item_is_blueprint: bool,
    currency_is_blueprint: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<f64>,
}

impl From<SellOrder> for NamedSellOrder {
    fn from(order: SellOrder) -> Self {
        let currency = ItemNames::of(order.currency_id);
        Self {
            item_id: order.item_id,
            item: ItemNames::of(order.item_id),
            quantity: order.quantity,
            currency_id: order.currency_id,
            currency_name: currency.name,
            currency_shortname: currency.shortname,
            cost: order.cost,
            in_stock: order.in_stock,
            item_is_blueprint: order.item_is_blueprint,
            currency_is_blueprint: order.currency_is_blueprint,
            condition: order.condition,
        }
    }
}

/// A marker on the map. Every link has as many as its game server shows, so it is kept small.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    pub kind: MarkerKind,
    /// Metres from the south-west corner; may lie outside the world.
    pub x: f64,
    pub y: f64,
    #[schema(value_type = String)]
    pub grid: GridLabel,
    /// Degrees; movers only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    pub steam_id: Option<Box<str>>,
    /// Map scale value of a circle, not metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radius: Option<f64>,
    /// Colour of a circle, `#rrggbbaa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    pub color: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    pub name: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_stock: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<NamedSellOrder>, required = false)]
    pub sell_orders: Box<[SellOrder]>,
}

/// A note on the map.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MapNote {
    pub x: f64,
    pub y: f64,
    pub grid: String,
    pub category: String,
    #[schema(required)]
    pub label: Option<String>,
    /// `game` (placed in the game), `detector` or `user`.
    pub source: &'static str,
    /// User id, `null` for all but `user` notes.
    #[schema(required)]
    pub author: Option<String>,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub expires_at: Option<Timestamp>,
}
