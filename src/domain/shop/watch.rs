//! A watched offer, and the news of it.
//!
//! A watch names an item, and may name a shop, a currency, and the price of one purchase that is expected. Without an
//! expected price, the first one seen is. It is of shops that sell the item, or of shops that buy it: then the price is
//! what such a shop pays. Of several offers of the item the first is watched: not a blueprint, not worn, for scrap,
//! then by currency; from then on its currency is pinned. A watch of any shop follows the best offer that is in stock:
//! the cheapest of those that sell, the best paid of those that buy. The findings, the most urgent first:
//!
//! | State | The offer |
//! |---|---|
//! | `missing` | is not there, or its shop is not |
//! | `changed` | costs by the piece something else than expected: more than `atMost`, less than `atLeast` |
//! | `undercut` | is beaten by the piece, and in stock, by another player's shop |
//! | `returned` | was missing and is back; stays until there is something else to say |
//! | `ok` | is as expected |
//!
//! Besides, it may be sold out. One move of a price is one piece of news at most. With `atMost` and `atLeast`, moves of
//! a price that is not as expected are none.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{Offer, OfferKey, Price, Shop, VendorId};
use crate::domain::{
    items::{Catalogue, SCRAP},
    time::Timestamp,
    words::words,
    world_event::{EventKind, WorldEvent},
};

/// A watch, as its owner set it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShopWatch {
    /// Our own id.
    pub id: String,
    /// A text that is no shop's id, of an older version, is missing. `None`: any shop.
    pub vendor: Option<String>,
    pub item_id: i32,
    pub side: WatchSide,
    pub direction: PriceDirection,
    /// Price of one purchase.
    pub expected_price: Option<i32>,
    pub currency_id: Option<i32>,
    /// The price to compare with, since the offer was first seen.
    pub baseline: Option<WatchedPrice>,
    pub finding: Finding,
    /// Start of the current finding.
    pub as_of: Timestamp,
    pub created_at: Timestamp,
    /// Rises with each edit by its owner.
    pub version: i32,
}

words! {
    /// The expectation of the price, by the piece.
    #[derive(Default, Deserialize, ToSchema)]
    pub enum PriceDirection {
        AtMost = "atMost",
        AtLeast = "atLeast",
        /// An unchanged price: each change is news.
        #[default]
        Changes = "changes",
    }
}

impl PriceDirection {
    fn is_met(self, price: Price, expected: Price) -> bool {
        let order = price.by_piece(expected);
        match self {
            Self::AtMost => order.is_le(),
            Self::AtLeast => order.is_ge(),
            Self::Changes => order.is_eq(),
        }
    }
}

words! {
    /// The side of the shops: they sell or buy the item.
    #[derive(Default, Deserialize, ToSchema)]
    pub enum WatchSide {
        #[default]
        Sells = "sells",
        /// They are paid with it: the price is what they give.
        Buys = "buys",
    }
}

impl WatchSide {
    /// The item that is watched and the one it is traded for; each with whether it is a blueprint.
    fn goods(self, key: &OfferKey) -> ((i32, bool), (i32, bool)) {
        let (sold, paid) = ((key.item_id, key.item_is_blueprint), (key.currency_id, key.currency_is_blueprint));
        match self {
            Self::Sells => (sold, paid),
            Self::Buys => (paid, sold),
        }
    }

    /// The price of the watched item in this offer, paid or received.
    fn price(self, offer: &Offer) -> Price {
        match self {
            Self::Sells => offer.price,
            Self::Buys => Price { cost: offer.price.quantity, quantity: offer.price.cost },
        }
    }

    /// The better price for the watcher comes first.
    fn better(self, one: Price, other: Price) -> Ordering {
        match self {
            Self::Sells => one.by_piece(other),
            Self::Buys => other.by_piece(one),
        }
    }
}

/// The expected price and its currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedPrice {
    pub currency_id: i32,
    pub price: Price,
}

words! {
    /// The state of a watched offer. `missing`: it is not there, or its shop is not. `changed`: by the piece it costs
    /// something else than expected, more than `atMost` or less than `atLeast`. `undercut`: another player's shop that has
    /// it in stock beats it by the piece. `returned`: it was missing and is back, until there is something else to say.
    /// `ok`: it is as expected. Of several that hold, the first of these.
    #[derive(ToSchema)]
    pub enum WatchState {
        Ok = "ok",
        Changed = "changed",
        Undercut = "undercut",
        Missing = "missing",
        Returned = "returned",
    }
}

/// State of a watched offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub state: WatchState,
    /// The shop that has it; `None` while it is missing.
    pub vendor: Option<VendorId>,
    /// The price now; `None` while it is missing.
    pub price: Option<Price>,
    pub sold_out: bool,
    /// The best shop that beats it, and its price.
    pub undercut_by: Option<(VendorId, Price)>,
}

impl Finding {
    /// Nothing was seen yet.
    pub const NOTHING: Self =
        Self { state: WatchState::Missing, vendor: None, price: None, sold_out: false, undercut_by: None };
}

/// An offer of a shop, as a watch sees it.
struct Seen<'a> {
    shop: &'a Shop,
    offer: &'a Offer,
    price: Price,
}

impl ShopWatch {
    /// Looks at all shops. Returns the finding, and the price to compare with from now on.
    pub fn look(&self, shops: &[Shop]) -> (Finding, Option<WatchedPrice>) {
        let Some(Seen { shop, offer, price }) = self.find(shops) else { return (Finding::NOTHING, self.baseline) };
        let (_, (currency_id, _)) = self.side.goods(&offer.key);
        let baseline = self.baseline.unwrap_or(WatchedPrice {
            currency_id,
            price: Price { cost: self.expected_price.unwrap_or(price.cost), quantity: price.quantity },
        });
        let undercut_by = self.vendor.as_ref().and_then(|_| self.undercut(shop, offer, price, shops));
        let is_back = match self.finding.state {
            WatchState::Missing => self.baseline.is_some(),
            WatchState::Returned => !has_moved(self.finding.price, Some(price)),
            _ => false,
        };
        let state = if !self.direction.is_met(price, baseline.price) {
            WatchState::Changed
        } else if undercut_by.is_some() {
            WatchState::Undercut
        } else if is_back {
            WatchState::Returned
        } else {
            WatchState::Ok
        };
        let sold_out = offer.in_stock <= 0;
        (Finding { state, vendor: Some(shop.id), price: Some(price), sold_out, undercut_by }, Some(baseline))
    }

    /// The currency that is watched; `None` until the offer was seen, if its owner gave none.
    pub fn currency(&self) -> Option<i32> {
        self.baseline.map(|baseline| baseline.currency_id).or(self.currency_id)
    }

    /// True if both are of the same offer and the same news: one of them is enough.
    pub fn is_same_offer(&self, other: &Self) -> bool {
        let what = |watch: &Self| (watch.item_id, watch.currency(), watch.side, watch.direction);
        what(self) == what(other) && self.vendor == other.vendor
    }

    /// The shop, if its id is that of one.
    pub fn vendor_id(&self) -> Option<VendorId> {
        VendorId::parse(self.vendor.as_deref()?)
    }

    /// The watched one of the offers.
    fn find<'a>(&self, shops: &'a [Shop]) -> Option<Seen<'a>> {
        let own = self.vendor_id();
        let is_any = self.vendor.is_none();
        let currency = self.currency();
        let rank = |key: &OfferKey| {
            let ((_, is_blueprint), (id, is_other_blueprint)) = self.side.goods(key);
            (is_blueprint, key.worn, is_other_blueprint, id != SCRAP, id)
        };
        let is_watched = |offer: &&Offer| {
            let ((item, _), (paid, _)) = self.side.goods(&offer.key);
            item == self.item_id && currency.is_none_or(|currency| currency == paid) && (!is_any || offer.in_stock > 0)
        };
        shops
            .iter()
            .filter(|shop| shop.is_there() && (is_any || own == Some(shop.id)))
            .flat_map(|shop| shop.offers.iter().filter(is_watched).map(move |offer| (shop, offer)))
            .map(|(shop, offer)| Seen { shop, offer, price: self.side.price(offer) })
            .min_by(|a, b| {
                (rank(&a.offer.key).cmp(&rank(&b.offer.key)))
                    .then_with(|| self.side.better(a.price, b.price))
                    .then_with(|| a.shop.id.cmp(&b.shop.id))
            })
    }

    /// The best of the other players' shops that offer the same for a better price, by the piece; among equals the
    /// first by id.
    fn undercut(&self, own: &Shop, offer: &Offer, price: Price, shops: &[Shop]) -> Option<(VendorId, Price)> {
        shops
            .iter()
            .filter(|shop| shop.id != own.id && shop.is_there() && shop.npc != Some(true))
            .filter_map(|shop| Some((shop.id, shop.offer(&offer.key).filter(|other| other.in_stock > 0)?)))
            .map(|(id, other)| (id, self.side.price(other)))
            .filter(|(_, other)| self.side.better(*other, price).is_lt())
            .min_by(|(a_id, a), (b_id, b)| self.side.better(*a, *b).then_with(|| a_id.cmp(b_id)))
    }

    /// The action of the event that reports this finding, or `None` if it is no news. Stock alone is news only when
    /// it is gone or back.
    pub fn news(&self, found: &Finding) -> Option<&'static str> {
        let known = &self.finding;
        let has_bound = self.direction != PriceDirection::Changes;
        let has_moved_price = || has_moved(known.price, found.price);
        let is_news = if found.state != known.state {
            // Where no shop offers it as expected, it does not matter whether any offers it at all.
            let is_unmet = |state| matches!(state, WatchState::Missing | WatchState::Changed);
            !(has_bound && self.vendor.is_none() && is_unmet(known.state) && is_unmet(found.state))
        } else {
            match found.state {
                WatchState::Missing => false,
                WatchState::Changed => !has_bound && has_moved_price(),
                WatchState::Undercut => {
                    let rival = |finding: &Finding| finding.undercut_by.map(|(_, price)| price);
                    has_moved_price() || has_moved(rival(known), rival(found))
                }
                WatchState::Returned | WatchState::Ok => has_moved_price(),
            }
        };
        match (known.sold_out, found.sold_out) {
            _ if is_news => Some(found.state.word()),
            (false, true) => Some("sold_out"),
            (true, false) if found.price.is_some() => Some("restocked"),
            _ => None,
        }
    }

    /// The event with this action, of this watch as it is now. `shop` is the one that has the offer, or had it.
    pub fn event(
        &self,
        action: &'static str,
        shop: Option<&Shop>,
        catalogue: &Catalogue,
        now: Timestamp,
    ) -> WorldEvent {
        let currency_id = self.currency();
        let cost = |price: Option<Price>| price.map(|price| price.cost);
        let expected = self.baseline.map(|baseline| baseline.price);
        let vendor = self.finding.vendor.or(self.vendor_id());
        let data = json!({
            "watchId": self.id,
            "vendorId": vendor,
            "name": shop.map(Shop::shown_name),
            "itemId": self.item_id.to_string(),
            "itemName": catalogue.name(self.item_id),
            "side": self.side,
            "direction": self.direction,
            "price": cost(self.finding.price),
            "quantity": self.finding.price.map(|price| price.quantity),
            "currencyId": currency_id.map(|id| id.to_string()),
            "currencyName": currency_id.and_then(|id| catalogue.name(id)),
            "expectedPrice": cost(expected).or(self.expected_price),
            "expectedQuantity": expected.map(|price| price.quantity),
            "state": self.finding.state,
            "soldOut": self.finding.sold_out,
            "undercutBy": self.finding.undercut_by.map(|(vendor, price)| {
                json!({ "vendorId": vendor, "price": price.cost, "quantity": price.quantity })
            }),
        });
        let title = self.title(action, shop, currency_id, catalogue);
        let Value::Object(data) = data else { return event(action, String::new(), None, title, Map::new(), now) };
        let place = vendor.filter(|_| shop.is_some()).map(VendorId::place);
        event(action, shop.map(|shop| shop.grid.clone()).unwrap_or_default(), place, title, data, now)
    }

    fn title(&self, action: &str, shop: Option<&Shop>, currency_id: Option<i32>, catalogue: &Catalogue) -> String {
        let item = catalogue.in_words(self.item_id, false);
        let name = shop.map_or(if self.vendor.is_some() { "The shop" } else { "Any shop" }, Shop::shown_name);
        let offer = match self.side {
            WatchSide::Sells => format!("{name}: {item}"),
            WatchSide::Buys => format!("{name}: purchase of {item}"),
        };
        let currency = currency_id.map(|id| catalogue.in_words(id, false)).unwrap_or_default();
        let said = |price: Price| format!("{} for {} {currency}", price.quantity, price.cost);
        let price = self.finding.price.map(said).unwrap_or_default();
        match (action, self.finding.undercut_by) {
            ("missing", _) => format!("{offer} is no longer there"),
            ("returned", _) => format!("{offer} is back, {price}"),
            ("changed", _) => format!("{offer} is now {price}"),
            ("undercut", Some((_, better))) => format!("{offer} is {price}, and elsewhere {}", said(better)),
            ("sold_out", _) => format!("{offer} is sold out"),
            ("restocked", _) => format!("{offer} is in stock again, {price}"),
            _ => format!("{offer} is as expected, {price}"),
        }
    }
}

/// True if it is another price by the piece.
fn has_moved(known: Option<Price>, found: Option<Price>) -> bool {
    known.zip(found).is_some_and(|(known, found)| known.by_piece(found).is_ne())
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

#[cfg(test)]
mod tests;
