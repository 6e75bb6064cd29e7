//! Markers and notes on the map, as clients see them.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::{
    change::Node,
    grid::{self, GridStyle},
    items::{self, Catalogue, ItemNames},
    time::Timestamp,
    words::words,
};

/// Edge of the largest map there may be, metres.
pub const LARGEST_MAP: f64 = 20_000.0;
/// Largest distance of a note beyond the map, metres.
pub const BEYOND_THE_MAP: f64 = 500.0;

/// Meaning of a marker on the map (protocol §2.8).
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

impl MarkerKind {
    /// True for a marker of an event: something that comes and goes.
    pub fn is_event(self) -> bool {
        matches!(
            self,
            Self::Explosion
                | Self::Chinook
                | Self::CargoShip
                | Self::Crate
                | Self::PatrolHelicopter
                | Self::TravellingVendor
        )
    }
}

/// One line of a vending machine. The names of its items cost nothing until they are written.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// For damaged goods: hundredths of the full condition.
    pub condition: Option<u8>,
}

impl SellOrder {
    /// For damaged goods: part of the full condition, 0..1.
    pub fn condition(&self) -> Option<f64> {
        self.condition.map(|hundredths| f64::from(hundredths) / 100.0)
    }
}

/// A sell order as it is on the wire; names are `null` for items that the catalogue does not know.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct NamedSellOrder {
    #[serde(serialize_with = "items::id_text")]
    #[schema(value_type = String, pattern = "^(0|-?[1-9][0-9]{0,9})$")]
    item_id: i32,
    #[serde(flatten)]
    item: ItemNames,
    quantity: i32,
    #[serde(serialize_with = "items::id_text")]
    #[schema(value_type = String, pattern = "^(0|-?[1-9][0-9]{0,9})$")]
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

impl NamedSellOrder {
    fn new(order: &SellOrder, catalogue: &Catalogue) -> Self {
        let currency = catalogue.names(order.currency_id);
        Self {
            item_id: order.item_id,
            item: catalogue.names(order.item_id),
            quantity: order.quantity,
            currency_id: order.currency_id,
            currency_name: currency.name,
            currency_shortname: currency.shortname,
            cost: order.cost,
            in_stock: order.in_stock,
            item_is_blueprint: order.item_is_blueprint,
            currency_is_blueprint: order.currency_is_blueprint,
            condition: order.condition(),
        }
    }
}

/// A marker on the map. Every link has as many as its game server shows, so it is kept small: rare fields are in a box,
/// and derived values are computed when it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker {
    pub kind: MarkerKind,
    /// May lie outside the world.
    pub place: MapPlace,
    /// Edge length of the world, metres, from which its grid follows.
    pub map_size: u32,
    pub details: Option<Box<MarkerDetails>>,
    pub name: Option<Box<str>>,
    pub out_of_stock: Option<bool>,
    pub sell_orders: Box<[SellOrder]>,
}

/// Fields that few markers have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MarkerDetails {
    /// Degrees; movers only.
    pub rotation: Option<f64>,
    /// SteamID64.
    pub steam_id: Option<u64>,
    /// Map scale value of a circle, not metres.
    pub radius: Option<f64>,
    /// Colour of a circle: red, green, blue, alpha.
    pub color: Option<[u8; 4]>,
}

/// A place on the map, to the centimetre.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapPlace {
    /// Centimetres from the south-west corner, to the east and to the north.
    pub east: i32,
    pub north: i32,
}

impl MapPlace {
    /// The place that is `x` metres east and `y` metres north of the south-west corner.
    pub fn at(x: f64, y: f64) -> Self {
        let centimetres = |metres: f64| (metres * 100.0).round() as i32;
        Self { east: centimetres(x), north: centimetres(y) }
    }

    /// Metres to the east and to the north.
    pub fn metres(self) -> (f64, f64) {
        (f64::from(self.east) / 100.0, f64::from(self.north) / 100.0)
    }
}

/// Writes it as in the ids of shops: `<east>_<north>`.
impl fmt::Display for MapPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.east, self.north)
    }
}

impl Marker {
    /// A marker with no more than a place.
    pub fn new(kind: MarkerKind, place: MapPlace, map_size: u32) -> Self {
        let (details, name, out_of_stock, sell_orders) = Default::default();
        Self { kind, place, map_size, details, name, out_of_stock, sell_orders }
    }

    /// The label of its grid cell.
    pub fn grid(&self) -> String {
        let (x, y) = self.place.metres();
        grid::label(GridStyle::InGame, self.map_size, x, y)
    }
}

/// A marker as it is on the wire.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Marker)]
#[serde(rename_all = "camelCase")]
pub struct ShownMarker<'a> {
    kind: MarkerKind,
    /// For a vending machine: the id of its shop, as `GET /paired-servers/{id}/shops` names it and
    /// `POST /intel/{serverId}/shops` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    vendor_id: Option<String>,
    /// Metres from the south-west corner; may lie outside the world.
    x: f64,
    y: f64,
    grid: String,
    /// Degrees; movers only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    rotation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    steam_id: Option<String>,
    /// Map scale value of a circle, not metres.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    radius: Option<f64>,
    /// Colour of a circle, `#rrggbbaa`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    out_of_stock: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    sell_orders: Vec<NamedSellOrder>,
}

impl Marker {
    /// As it is on the wire, with the names that this catalogue has.
    pub fn shown(&self, catalogue: &Catalogue) -> ShownMarker<'_> {
        let (x, y) = self.place.metres();
        let MarkerDetails { rotation, steam_id, radius, color } = self.details.as_deref().copied().unwrap_or_default();
        ShownMarker {
            kind: self.kind,
            vendor_id: (self.kind == MarkerKind::VendingMachine).then(|| self.place.to_string()),
            x,
            y,
            grid: self.grid(),
            rotation,
            steam_id: steam_id.map(|id| id.to_string()),
            radius,
            color: color.map(|[red, green, blue, alpha]| format!("#{red:02x}{green:02x}{blue:02x}{alpha:02x}")),
            name: self.name.as_deref(),
            out_of_stock: self.out_of_stock,
            sell_orders: self.sell_orders.iter().map(|order| NamedSellOrder::new(order, catalogue)).collect(),
        }
    }
}

impl Node for Marker {
    fn json(&self, catalogue: &Catalogue) -> Box<RawValue> {
        self.shown(catalogue).json(catalogue)
    }
}

words! {
    /// Categories of users' notes; `death` is the detector's.
    #[derive(Deserialize, ToSchema)]
    pub enum NoteCategory {
        Raid = "raid",
        Friendly = "friendly",
        Enemy = "enemy",
        Farm = "farm",
        Stash = "stash",
        Sulfur = "sulfur",
        Warning = "warning",
        Sam = "sam",
    }
}

/// The detector's category.
pub const DEATH_NOTE: &str = "death";

/// All categories of notes.
pub const NOTE_CATEGORIES: [&str; NoteCategory::WORDS.len() + 1] = {
    let mut all = [DEATH_NOTE; NoteCategory::WORDS.len() + 1];
    let (of_users, _) = all.split_at_mut(NoteCategory::WORDS.len());
    of_users.copy_from_slice(&NoteCategory::WORDS);
    all
};

words! {
    /// Maker of a note on the map.
    pub enum NoteSource {
        /// Placed in the game.
        Game = "game",
        User = "user",
        Detector = "detector",
    }
}

/// A note on the map.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MapNote {
    pub x: f64,
    pub y: f64,
    pub grid: String,
    #[schema(format = "note-category")]
    pub category: String,
    #[schema(required)]
    pub label: Option<String>,
    /// `game` (placed in the game), `detector` or `user`.
    #[schema(format = "note-source")]
    pub source: &'static str,
    /// User id, `null` for all but `user` notes.
    #[schema(required)]
    pub author: Option<String>,
    pub created_at: Timestamp,
    #[schema(required)]
    pub expires_at: Option<Timestamp>,
}
