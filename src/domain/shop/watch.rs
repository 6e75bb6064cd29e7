//! What a watcher of an offer is told.
//!
//! A watch names a shop and an item, and may name a currency and the price of one purchase that is expected. Without an
//! expected price, the first one seen is. Of several offers of the item the first is watched: not a blueprint, not worn,
//! paid in scrap, then by key; from then on its currency is pinned. The findings, the most urgent first:
//!
//! | State | The offer |
//! |---|---|
//! | `missing` | is not there, or its shop is not |
//! | `changed` | costs by the piece something else than expected |
//! | `undercut` | is sold cheaper by the piece, and in stock, by another player's shop |
//! | `returned` | was missing and is back; stays until there is something else to say |
//! | `ok` | is as expected |
//!
//! Besides, it may be sold out.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Offer, OfferKey, Price, Shop, VendorId};
use crate::domain::{
    items::{self, ItemNames, SCRAP},
    time::Timestamp,
    world_event::{EventKind, WorldEvent},
};

/// A watch, as its owner set it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShopWatch {
    /// Our own id.
    pub id: String,
    /// As the owner wrote it; one that is no shop's is missing.
    pub vendor: String,
    pub item_id: i32,
    /// Of one purchase.
    pub expected_price: Option<i32>,
    pub currency_id: Option<i32>,
    /// What the price is compared with, since the offer was first seen.
    pub baseline: Option<WatchedPrice>,
    pub finding: Finding,
    /// When it was first found so.
    pub as_of: Timestamp,
    pub created_at: Timestamp,
    /// Rises with each edit by its owner.
    pub version: i32,
}

/// The price that is expected, and in what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedPrice {
    pub currency_id: i32,
    pub price: Price,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchState {
    Ok,
    Changed,
    Undercut,
    Missing,
    Returned,
}

impl WatchState {
    /// The state as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Changed => "changed",
            Self::Undercut => "undercut",
            Self::Missing => "missing",
            Self::Returned => "returned",
        }
    }

    /// Reads a state as it is written.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Ok, Self::Changed, Self::Undercut, Self::Missing, Self::Returned]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// How a watched offer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub state: WatchState,
    /// The price now; `None` while it is missing.
    pub price: Option<Price>,
    pub sold_out: bool,
    /// The cheapest shop that undercuts it, and its price.
    pub undercut_by: Option<(VendorId, Price)>,
}

impl Finding {
    /// Nothing was seen yet.
    pub const NOTHING: Self = Self { state: WatchState::Missing, price: None, sold_out: false, undercut_by: None };
}

impl ShopWatch {
    /// Looks at the market. What is found now, and what the price is compared with from now on.
    pub fn look<'a>(
        &self,
        own: Option<&Shop>,
        others: impl Iterator<Item = &'a Shop>,
    ) -> (Finding, Option<WatchedPrice>) {
        let own = own.filter(|shop| shop.is_there());
        let Some((shop, offer)) = own.and_then(|shop| Some((shop, self.offer(shop)?))) else {
            return (Finding::NOTHING, self.baseline);
        };
        let baseline = self.baseline.unwrap_or(WatchedPrice {
            currency_id: offer.key.currency_id,
            price: Price { cost: self.expected_price.unwrap_or(offer.price.cost), quantity: offer.price.quantity },
        });
        let undercut_by = undercut(shop, offer, others);
        let state = if offer.price.by_piece(baseline.price).is_ne() {
            WatchState::Changed
        } else if undercut_by.is_some() {
            WatchState::Undercut
        } else if self.baseline.is_some() && matches!(self.finding.state, WatchState::Missing | WatchState::Returned) {
            WatchState::Returned
        } else {
            WatchState::Ok
        };
        let finding = Finding { state, price: Some(offer.price), sold_out: offer.in_stock <= 0, undercut_by };
        (finding, Some(baseline))
    }

    /// The shop, if its id is that of one.
    pub fn vendor_id(&self) -> Option<VendorId> {
        VendorId::parse(&self.vendor)
    }

    /// Of the shop's offers the one that is watched.
    fn offer<'a>(&self, shop: &'a Shop) -> Option<&'a Offer> {
        let currency = self.baseline.map(|baseline| baseline.currency_id).or(self.currency_id);
        let rank = |key: &OfferKey| {
            (key.item_is_blueprint, key.worn, key.currency_is_blueprint, key.currency_id != SCRAP, key.currency_id)
        };
        shop.offers
            .iter()
            .filter(|offer| offer.key.item_id == self.item_id)
            .filter(|offer| currency.is_none_or(|currency| offer.key.currency_id == currency))
            .min_by_key(|offer| rank(&offer.key))
    }

    /// What is news when this is found: the action of the event, or `None`. Stock alone is news only when it is gone or
    /// back.
    pub fn news(&self, found: &Finding) -> Option<&'static str> {
        let known = &self.finding;
        if (found.state, found.price, found.undercut_by) != (known.state, known.price, known.undercut_by) {
            return Some(found.state.as_str());
        }
        match (known.sold_out, found.sold_out) {
            (false, true) => Some("sold_out"),
            (true, false) => Some("restocked"),
            _ => None,
        }
    }

    /// The event that says so, of this watch as it is now.
    pub fn event(&self, action: &'static str, shop: Option<&Shop>, now: Timestamp) -> WorldEvent {
        let item = items::in_words(self.item_id, false);
        let name = shop.map_or("The shop", Shop::shown_name);
        let currency_id = self.baseline.map(|baseline| baseline.currency_id).or(self.currency_id);
        let currency = currency_id.map(|id| items::in_words(id, false)).unwrap_or_default();
        let said = |price: Price| format!("{} for {} {currency}", price.quantity, price.cost);
        let price = self.finding.price.map(said).unwrap_or_default();
        let title = match (action, self.finding.undercut_by) {
            ("missing", _) => format!("{name}: {item} is not there any more"),
            ("returned", _) => format!("{name}: {item} is back, {price}"),
            ("changed", _) => format!("{name}: {item} is now {price}"),
            ("undercut", Some((_, cheaper))) => {
                format!("{name}: {item} is {price}, and elsewhere {}", said(cheaper))
            }
            ("sold_out", _) => format!("{name}: {item} is sold out"),
            ("restocked", _) => format!("{name}: {item} is in stock again, {price}"),
            _ => format!("{name}: {item} is as expected, {price}"),
        };
        let cost = |price: Option<Price>| price.map(|price| price.cost);
        let data = json!({
            "watchId": self.id,
            "vendorId": self.vendor,
            "name": shop.map(Shop::shown_name),
            "itemId": self.item_id,
            "itemName": ItemNames::of(self.item_id).name,
            "price": cost(self.finding.price),
            "quantity": self.finding.price.map(|price| price.quantity),
            "currencyId": currency_id,
            "currencyName": currency_id.and_then(|id| ItemNames::of(id).name),
            "expectedPrice": self.baseline.map(|baseline| baseline.price.cost).or(self.expected_price),
            "state": self.finding.state,
            "soldOut": self.finding.sold_out,
            "undercutBy": self.finding.undercut_by.map(|(vendor, price)| {
                json!({ "vendorId": vendor, "price": price.cost, "quantity": price.quantity })
            }),
        });
        let Value::Object(data) = data else { return event(action, String::new(), None, title, Map::new(), now) };
        let place = self.vendor_id().filter(|_| shop.is_some()).map(VendorId::place);
        event(action, shop.map(|shop| shop.grid.clone()).unwrap_or_default(), place, title, data, now)
    }
}

fn event(
    action: &'static str,
    grid: String,
    place: Option<(f64, f64)>,
    title: String,
    data: Map<String, Value>,
    ts: Timestamp,
) -> WorldEvent {
    let (x, y) = place.unzip();
    WorldEvent { kind: EventKind::Shop, action, grid, x, y, ts, title, data }
}

/// The cheapest of the other players' shops that sell the same for less, by the piece; among equals the first by id.
fn undercut<'a>(own: &Shop, offer: &Offer, others: impl Iterator<Item = &'a Shop>) -> Option<(VendorId, Price)> {
    others
        .filter(|shop| shop.id != own.id && shop.is_there() && shop.npc != Some(true))
        .filter_map(|shop| Some((shop.id, shop.offer(&offer.key)?)))
        .filter(|(_, other)| other.in_stock > 0 && other.price.by_piece(offer.price).is_lt())
        .min_by(|(a_id, a), (b_id, b)| a.price.by_piece(b.price).then_with(|| a_id.cmp(b_id)))
        .map(|(id, other)| (id, other.price))
}

#[cfg(test)]
mod tests;
