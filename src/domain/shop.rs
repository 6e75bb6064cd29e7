//! Vending machines as shops that stay the same while their marker ids change.
//!
//! A shop is its place, to the centimetre; machines at one place are one shop. What it sells for what is an offer:
//! item, whether it is a blueprint, whether it is worn, currency, whether that is a blueprint. Prices are ratios of
//! integers and are compared by the piece, exactly, and never across currencies.
//!
//! [`market`] follows all shops of a game server, [`watch`] compares one offer with what its watcher expects, and
//! [`scan`] looks for shops that are suspicious.

pub mod market;
pub mod scan;
#[cfg(test)]
pub(crate) mod testing;
pub mod watch;

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Serialize, Serializer};

use crate::domain::{
    detect::MapContext,
    items::Catalogue,
    map::{MapPlace, Marker, MarkerKind, SellOrder},
    time::{self, Timestamp},
    words::words,
};

/// The stable id of a shop: its place in centimetres, as `<x>_<y>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VendorId(MapPlace);

impl VendorId {
    /// The shop at this place, in metres.
    pub fn at(x: f64, y: f64) -> Self {
        Self(MapPlace::at(x, y))
    }

    /// The shop of this machine.
    pub fn of(machine: &Marker) -> Self {
        Self(machine.place)
    }

    /// Reads an id as it is written; other spellings of the same numbers are none.
    pub fn parse(text: &str) -> Option<Self> {
        let (x, y) = text.split_once('_')?;
        let id = Self(MapPlace { east: x.parse().ok()?, north: y.parse().ok()? });
        (id.to_string() == text).then_some(id)
    }

    /// Metres from the south-west corner.
    pub fn place(self) -> (f64, f64) {
        self.0.metres()
    }

    /// Metres between two shops.
    pub fn distance(self, other: Self) -> f64 {
        let ((x, y), (other_x, other_y)) = (self.place(), other.place());
        (x - other_x).hypot(y - other_y)
    }
}

impl fmt::Display for VendorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for VendorId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Identity of an offer: goods and currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferKey {
    pub item_id: i32,
    pub item_is_blueprint: bool,
    /// Not in full condition.
    pub worn: bool,
    pub currency_id: i32,
    pub currency_is_blueprint: bool,
}

/// A price: `quantity` pieces for `cost` pieces of the currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Price {
    /// Cost of one purchase.
    pub cost: i32,
    /// Pieces that one purchase gives.
    pub quantity: i32,
}

impl Price {
    /// Compares the costs of one piece, exactly. A quantity below one counts as one.
    pub fn by_piece(self, other: Self) -> Ordering {
        self.times(1).cmp_to(other.times(1))
    }

    /// True if `factor` pieces here cost less than one there.
    pub fn is_below(self, factor: u32, other: Self) -> bool {
        self.times(factor).cmp_to(other.times(1)) == Ordering::Less
    }

    /// Cost of one piece, rounded: for display.
    pub fn per_piece(self) -> f64 {
        f64::from(self.cost) / f64::from(self.quantity.max(1))
    }

    fn times(self, factor: u32) -> Ratio {
        Ratio(i128::from(self.cost) * i128::from(factor), i128::from(self.quantity.max(1)))
    }
}

/// A numerator and a positive denominator.
struct Ratio(i128, i128);

impl Ratio {
    fn cmp_to(&self, other: Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

/// An offer of a shop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    #[serde(flatten)]
    pub key: OfferKey,
    /// The lowest price, where a shop has the same offer several times.
    #[serde(flatten)]
    pub price: Price,
    /// Purchases left, of all that are the same offer.
    pub in_stock: i64,
    /// Part of the full condition, 0..1; absent where the game does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<f64>,
    #[serde(serialize_with = "time::exact")]
    pub first_seen_at: Timestamp,
    /// When its price or stock last changed.
    #[serde(serialize_with = "time::exact")]
    pub changed_at: Timestamp,
}

/// The known facts of a shop.
#[derive(Clone, Debug, PartialEq)]
pub struct Shop {
    pub id: VendorId,
    /// Plain text; empty if it has none.
    pub name: String,
    pub grid: String,
    /// True for a shop of the map itself, not of a player; `None` while the monuments of the map are not known.
    pub npc: Option<bool>,
    /// By key, each once. A gone shop has its last offers.
    pub offers: Vec<Offer>,
    pub first_seen_at: Timestamp,
    /// When any of its facts last changed.
    pub changed_at: Timestamp,
    /// Since when it is not there.
    pub gone_at: Option<Timestamp>,
    /// Number of times that it came back after it was gone.
    pub returns: u32,
    /// A shop of the same name and offers vanished there when this one appeared.
    pub moved_from: Option<VendorId>,
}

impl Shop {
    /// The offer of this key.
    pub fn offer(&self, key: &OfferKey) -> Option<&Offer> {
        self.offers.binary_search_by_key(key, |offer| offer.key).ok().map(|index| &self.offers[index])
    }

    /// True if it is on the map.
    pub fn is_there(&self) -> bool {
        self.gone_at.is_none()
    }

    /// Its name, or a substitute for an empty one.
    pub fn shown_name(&self) -> &str {
        if self.name.is_empty() { "A shop" } else { &self.name }
    }
}

words! {
    /// A change of an offer from one answer of the game server to the next.
    pub enum OfferChange {
        /// The offer is new, or its shop is.
        Listed = "listed",
        PriceChanged = "price_changed",
        SoldOut = "sold_out",
        Restocked = "restocked",
        /// The offer is no longer there, or its shop is not.
        Delisted = "delisted",
    }
}

/// One line of a shop's history: an offer as it was from then on.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferRecord {
    pub at: Timestamp,
    pub vendor: VendorId,
    pub news: OfferChange,
    pub key: OfferKey,
    pub price: Price,
    pub in_stock: i64,
}

/// Slots of a vending machine.
const SLOTS: i64 = 30;

impl Offer {
    /// True if this stock does not fit into a vending machine with the game's own stack sizes, not even into two at one
    /// place. Blueprints, and items that are not in the catalogue, are believed.
    pub fn overflows(&self, catalogue: &Catalogue) -> bool {
        let pieces = self.in_stock.saturating_mul(i64::from(self.price.quantity.max(1)));
        let item = catalogue.item(self.key.item_id).filter(|_| !self.key.item_is_blueprint);
        item.and_then(|item| item.stack_size).is_some_and(|stack| pieces > 2 * SLOTS * i64::from(stack.max(1)))
    }
}

/// Monuments around which players cannot build: their vending machines are the game's.
const SAFE_ZONES: [&str; 6] = [
    "outpost",
    "bandit_camp",
    "fishing_village_display_name",
    "large_fishing_village_display_name",
    "stables_a",
    "stables_b",
];

/// Where the shops of the map itself are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MarketGround {
    /// Metres; 0 if not known.
    map_size: u32,
    knows_monuments: bool,
    /// Centre and radius of each safe zone, metres.
    safe_zones: Vec<(f64, f64, f64)>,
}

impl MarketGround {
    /// As far as the map is known.
    pub fn of(around: &MapContext) -> Self {
        let safe = around.monuments.iter().filter(|monument| SAFE_ZONES.contains(&monument.token()));
        Self {
            map_size: around.map_size,
            knows_monuments: !around.monuments.is_empty(),
            safe_zones: safe.map(|monument| (monument.x, monument.y, monument.radius())).collect(),
        }
    }

    /// True if a shop here is the map's own: outside of the map (deep sea), or in a safe zone. `None`: not known yet.
    pub fn is_npc(&self, vendor: VendorId) -> Option<bool> {
        let (x, y) = vendor.place();
        let inside = 0.0..=f64::from(self.map_size);
        if self.map_size > 0 && !(inside.contains(&x) && inside.contains(&y)) {
            return Some(true);
        }
        let is_in = |&(centre_x, centre_y, radius): &(f64, f64, f64)| (x - centre_x).hypot(y - centre_y) <= radius;
        self.knows_monuments.then(|| self.safe_zones.iter().any(is_in))
    }
}

/// True if a marker is a vending machine. The travelling vendor is none: the game does not say what it sells.
fn is_machine(marker: &Marker) -> bool {
    marker.kind == MarkerKind::VendingMachine
}

/// The offer of a machine's order.
fn key_of(order: &SellOrder) -> OfferKey {
    OfferKey {
        item_id: order.item_id,
        item_is_blueprint: order.item_is_blueprint,
        worn: order.condition.is_some_and(|hundredths| hundredths < 100),
        currency_id: order.currency_id,
        currency_is_blueprint: order.currency_is_blueprint,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::monument::Monument;

    #[test]
    fn a_vendor_id_is_its_place_and_nothing_else() {
        assert_eq!(VendorId::at(1234.5, -7.25).to_string(), "123450_-725");
        assert_eq!(VendorId::parse("123450_-725"), Some(VendorId::at(1234.5, -7.25)));
        for other in ["", "1", "1_", "_1", "1_2_3", "+1_2", "01_2", "1 _2", "-0_1", "99999999999_1", "1.0_2", "x_y"] {
            assert_eq!(VendorId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_piece_is_compared_exactly() {
        let price = |cost, quantity| Price { cost, quantity };
        assert_eq!(price(10, 1000).by_piece(price(1, 100)), Ordering::Equal);
        assert_eq!(price(i32::MAX, i32::MAX).by_piece(price(i32::MAX - 1, i32::MAX)), Ordering::Greater);
        assert_eq!(price(1, 0).by_piece(price(1, 1)), Ordering::Equal, "no quantity counts as one");
        assert!(price(24, 1).is_below(4, price(97, 1)) && !price(25, 1).is_below(4, price(100, 1)));
    }

    #[test]
    fn the_shops_of_the_map_itself_are_distinguished() {
        let monuments =
            [Monument::new("outpost", 1000.0, 1000.0).unwrap(), Monument::new("launchsite", 500.0, 500.0).unwrap()];
        let ground = MarketGround::of(&MapContext { map_size: 3000, monuments: &monuments });
        let npc = |x, y| ground.is_npc(VendorId::at(x, y));
        assert_eq!((npc(1050.0, 1000.0), npc(1090.0, 1000.0)), (Some(true), Some(false)));
        assert_eq!((npc(500.0, 500.0), npc(-1.0, 500.0), npc(500.0, 3001.0)), (Some(false), Some(true), Some(true)));
        let unknown = MarketGround::of(&MapContext { map_size: 3000, monuments: &[] });
        assert_eq!(unknown.is_npc(VendorId::at(500.0, 500.0)), None, "the map is not known yet");
        assert_eq!(unknown.is_npc(VendorId::at(-500.0, 500.0)), Some(true));
        assert_eq!(MarketGround::default().is_npc(VendorId::at(-500.0, 500.0)), None);
    }

    proptest! {
        #[test]
        fn an_id_is_read_as_it_was_written(x in -1e6..1e6_f64, y in -1e6..1e6_f64) {
            let id = VendorId::at(x, y);
            prop_assert_eq!(VendorId::parse(&id.to_string()), Some(id));
            let (back_x, back_y) = id.place();
            prop_assert_eq!(VendorId::at(back_x, back_y), id);
        }

        #[test]
        fn prices_by_the_piece_are_in_one_order(
            costs in prop::array::uniform3(any::<i32>()), quantities in prop::array::uniform3(any::<i32>()),
        ) {
            let [a, b, c] = [0, 1, 2].map(|n| Price { cost: costs[n], quantity: quantities[n] });
            prop_assert_eq!(a.by_piece(b), b.by_piece(a).reverse());
            if a.by_piece(b).is_le() && b.by_piece(c).is_le() {
                prop_assert!(a.by_piece(c).is_le());
            }
        }
    }
}
