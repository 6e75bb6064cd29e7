//! Which shops are suspicious, and why.
//!
//! Each reason counts once for a shop, by its weight; the score is their sum, 100 at most. A shop is reported from
//! [`THRESHOLD`] on. The map's own shops, and those of which it is not known yet whether they are, are never
//! suspicious, and nothing is compared with them but names.
//!
//! | Reason | Weight | When |
//! |---|---|---|
//! | `far_below_median` | 45 | a piece costs less than a quarter of the median of the same offer of other shops |
//! | `below_median` | 25 | … less than half |
//! | `far_above_median` | 15 | … more than four times |
//! | `below_crafting_cost` | 35 | a piece costs less than half of what its ingredients cost in the same currency |
//! | `impossible_stock` | 40 | more in stock than two vending machines hold |
//! | `impossible_price` | 40 | it gives nothing, or takes nothing |
//! | `appears_and_vanishes` | 20 | it came back twice or more often after it was gone; 35 from four times on |
//! | `moved` | 15 | a shop of the same name and offers vanished elsewhere when it appeared |
//! | `imitates_name` | 35 | its name looks like that of an older shop elsewhere without being the same, or is that of the map's own |
//!
//! A median needs [`ENOUGH`] other shops. The cost of ingredients is the median of their offers in that currency, or of
//! crafting them if that is less; the currency itself is worth itself, and an item without offers is worth
//! nothing, so that the sum is a lower bound. Components are loot and not judged by their recipes. Where most of the
//! market is below the bound too, the recipe is not what sets the price. Where a quarter of all shops hold more than
//! that, the server has larger stacks, and `impossible_stock` counts for none.

use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::Serialize;

use super::{Offer, OfferKey, Price, Shop, VendorId};
use crate::domain::{
    items::{Catalogue, CatalogueItem},
    words::words,
};

/// Least score of a shop that is reported.
pub const THRESHOLD: u32 = 30;
/// Highest score of a shop.
pub const HIGHEST_SCORE: u32 = 100;
/// Other shops with the same offer that make a median.
pub const ENOUGH: usize = 3;
/// Machines as near as this to each other, in metres, are taken for one owner's.
const NEIGHBOURS: f64 = 50.0;
/// Shorter names look alike by chance.
const SHORTEST_NAME: usize = 4;
/// A shop is compared with at most this many of those that look alike, the oldest.
const MOST_ALIKE: usize = 100;
/// The game's names for a machine that its owner gave no name.
const DEFAULT_NAMES: [&str; 3] = ["a shop", "shop", "vending machine"];
/// Ingredients of ingredients are followed to this depth; the game's recipes are less deep.
const DEEPEST: usize = 8;
/// An item with stacks of at least this size may be crafted several at once; then this many are assumed.
const MANY_IN_A_STACK: u32 = 64;
const MANY_AT_ONCE: f64 = 10.0;

words! {
    /// A reason for suspicion; see the module.
    pub enum ScanReason {
        FarBelowMedian = "far_below_median",
        BelowMedian = "below_median",
        FarAboveMedian = "far_above_median",
        BelowCraftingCost = "below_crafting_cost",
        ImpossibleStock = "impossible_stock",
        ImpossiblePrice = "impossible_price",
        AppearsAndVanishes = "appears_and_vanishes",
        Moved = "moved",
        ImitatesName = "imitates_name",
    }
}

/// A reason for suspicion, and what it is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suspicion {
    pub reason: ScanReason,
    pub weight: u32,
    /// The offer that the reason is about, the first of several.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub offer: Option<OfferKey>,
    /// In words.
    pub detail: String,
}

/// A suspicious shop.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect<'a> {
    pub shop: &'a Shop,
    /// 1..=100.
    pub score: u32,
    /// Heaviest first.
    pub reasons: Vec<Suspicion>,
}

/// The suspicious among the shops that are there, the most suspicious first.
pub fn scan<'a>(shops: &'a [Shop], catalogue: &Catalogue) -> Vec<Suspect<'a>> {
    let there: Vec<&Shop> = shops.iter().filter(|shop| shop.is_there()).collect();
    let judged: Vec<&Shop> = there.iter().copied().filter(|shop| shop.npc == Some(false)).collect();
    let market = Prices::of(&judged, catalogue);
    let names = ShopNames::of(&there);
    let overflowing = judged.iter().filter(|shop| shop.offers.iter().any(|offer| offer.overflows(catalogue))).count();
    let large_stacks = overflowing >= 3 && overflowing * 4 >= judged.len();
    let mut suspects: Vec<Suspect> = judged
        .into_iter()
        .filter_map(|shop| {
            let mut reasons = Vec::new();
            let by_offer = shop.offers.iter().flat_map(|offer| market.judge(shop, offer, large_stacks));
            reasons.extend(once_each(by_offer));
            reasons.extend(appears_and_vanishes(shop));
            reasons.extend(moved(shop));
            reasons.extend(names.imitation(shop));
            reasons.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.reason.word().cmp(b.reason.word())));
            let score = reasons.iter().map(|reason| reason.weight).sum::<u32>().min(HIGHEST_SCORE);
            (score >= THRESHOLD).then_some(Suspect { shop, score, reasons })
        })
        .collect();
    suspects.sort_by(|a, b| b.score.cmp(&a.score).then_with(|| a.shop.id.cmp(&b.shop.id)));
    suspects
}

/// Each reason once, of the first offer that has it; the lesser of two that say the same is left out.
fn once_each(suspicions: impl Iterator<Item = Suspicion>) -> Vec<Suspicion> {
    let mut by_reason: BTreeMap<&str, Suspicion> = BTreeMap::new();
    for suspicion in suspicions {
        by_reason.entry(suspicion.reason.word()).or_insert(suspicion);
    }
    if by_reason.contains_key(ScanReason::FarBelowMedian.word()) {
        by_reason.remove(ScanReason::BelowMedian.word());
    }
    by_reason.into_values().collect()
}

fn appears_and_vanishes(shop: &Shop) -> Option<Suspicion> {
    let weight = match shop.returns {
        0 | 1 => return None,
        2 | 3 => 20,
        _ => 35,
    };
    let detail = format!("came back {} times after it was gone", shop.returns);
    Some(Suspicion { reason: ScanReason::AppearsAndVanishes, weight, offer: None, detail })
}

fn moved(shop: &Shop) -> Option<Suspicion> {
    let from = shop.moved_from?;
    let detail = format!("moved {:.0} m", shop.id.distance(from));
    Some(Suspicion { reason: ScanReason::Moved, weight: 15, offer: None, detail })
}

/// All prices of each offer, cheapest first, with their shops; the shops must be judged.
struct Prices<'a> {
    catalogue: &'a Catalogue,
    by_key: HashMap<OfferKey, Vec<(Price, VendorId)>>,
    /// Least cost of crafting a piece of an item, in a currency; computed once.
    crafting: RefCell<HashMap<(i32, i32), Option<f64>>>,
}

impl<'a> Prices<'a> {
    fn of(shops: &[&Shop], catalogue: &'a Catalogue) -> Self {
        let mut by_key: HashMap<OfferKey, Vec<(Price, VendorId)>> = HashMap::new();
        for shop in shops {
            for offer in &shop.offers {
                by_key.entry(offer.key).or_default().push((offer.price, shop.id));
            }
        }
        for prices in by_key.values_mut() {
            prices.sort_by(|(a, a_id), (b, b_id)| a.by_piece(*b).then_with(|| a_id.cmp(b_id)));
        }
        Self { catalogue, by_key, crafting: RefCell::default() }
    }

    /// The median of the other shops (of two in the middle the cheaper one), if there are enough.
    fn median(&self, key: &OfferKey, without: Option<VendorId>) -> Option<Price> {
        let prices = self.by_key.get(key)?;
        let own = without.and_then(|shop| prices.iter().position(|(_, id)| *id == shop));
        let others = prices.len() - usize::from(own.is_some());
        if others < ENOUGH {
            return None;
        }
        let middle = (others - 1) / 2;
        let skipped = own.is_some_and(|own| own <= middle);
        prices.get(middle + usize::from(skipped)).map(|(price, _)| *price)
    }

    fn judge(&self, shop: &Shop, offer: &Offer, large_stacks: bool) -> Vec<Suspicion> {
        let Offer { key, price, in_stock, .. } = offer;
        let item = self.catalogue.in_words(key.item_id, key.item_is_blueprint);
        let currency = self.catalogue.in_words(key.currency_id, key.currency_is_blueprint);
        let said = |price: Price| format!("{} for {} {currency}", price.quantity, price.cost);
        let suspicion = |reason, weight, detail| Suspicion { reason, weight, offer: Some(*key), detail };
        if price.cost < 1 || price.quantity < 1 {
            return vec![suspicion(ScanReason::ImpossiblePrice, 40, format!("{item}: {}", said(*price)))];
        }
        let mut found = Vec::new();
        let median = self.median(key, Some(shop.id));
        if let Some(median) = median.filter(|median| median.cost > 0) {
            let detail = format!("{item}: {}, and elsewhere mostly {}", said(*price), said(median));
            if price.is_below(4, median) {
                found.push(suspicion(ScanReason::FarBelowMedian, 45, detail));
            } else if price.is_below(2, median) {
                found.push(suspicion(ScanReason::BelowMedian, 25, detail));
            } else if median.is_below(4, *price) {
                found.push(suspicion(ScanReason::FarAboveMedian, 15, detail));
            }
        }
        if let Some(bound) = self.crafting_cost_of(key).map(|cost| cost / 2.0)
            && price.per_piece() < bound
            && median.is_none_or(|median| median.per_piece() >= bound)
        {
            let detail =
                format!("{item}: {}, and its ingredients cost {:.1} {currency} a piece", said(*price), bound * 2.0);
            found.push(suspicion(ScanReason::BelowCraftingCost, 35, detail));
        }
        if !large_stacks && offer.overflows(self.catalogue) {
            let detail = format!("{item}: {in_stock} times {} in stock", price.quantity);
            found.push(suspicion(ScanReason::ImpossibleStock, 40, detail));
        }
        found
    }

    /// Least cost of the ingredients of one piece in the offer's currency; `None` for an offer that is not judged so.
    fn crafting_cost_of(&self, key: &OfferKey) -> Option<f64> {
        let is_plain = !key.item_is_blueprint && !key.currency_is_blueprint && !key.worn;
        is_plain.then(|| self.crafting_cost(key.item_id, key.currency_id, 0)).flatten()
    }

    fn crafting_cost(&self, item_id: i32, currency_id: i32, depth: usize) -> Option<f64> {
        let is_judged = |item: &&Arc<CatalogueItem>| !item.ingredients.is_empty() && &*item.category != "Component";
        let item = self.catalogue.item(item_id).filter(is_judged)?;
        if depth > DEEPEST {
            return None;
        }
        if let Some(known) = self.crafting.borrow().get(&(item_id, currency_id)) {
            return *known;
        }
        let worth = |(id, pieces): &(i32, u32)| self.worth(*id, currency_id, depth + 1) * f64::from(*pieces);
        let many = item.stack_size.is_some_and(|stack| stack >= MANY_IN_A_STACK);
        let made = item.made_at_once().map_or(if many { MANY_AT_ONCE } else { 1.0 }, f64::from);
        let cost = Some(item.ingredients.iter().map(worth).sum::<f64>() / made).filter(|cost| *cost > 0.0);
        self.crafting.borrow_mut().insert((item_id, currency_id), cost);
        cost
    }

    /// Least worth of a piece in the currency; 0 if unknown.
    fn worth(&self, item_id: i32, currency_id: i32, depth: usize) -> f64 {
        if item_id == currency_id {
            return 1.0;
        }
        let key =
            OfferKey { item_id, currency_id, item_is_blueprint: false, worn: false, currency_is_blueprint: false };
        let bought = self.median(&key, None).map(Price::per_piece).filter(|price| *price > 0.0);
        let crafted = self.crafting_cost(item_id, currency_id, depth);
        match (bought, crafted) {
            (Some(bought), Some(crafted)) => bought.min(crafted),
            (bought, crafted) => bought.or(crafted).unwrap_or(0.0),
        }
    }
}

/// Shops by the look of their names.
struct ShopNames<'a>(HashMap<String, Vec<&'a Shop>>);

impl<'a> ShopNames<'a> {
    fn of(shops: &[&'a Shop]) -> Self {
        let mut by_look: HashMap<String, Vec<&Shop>> = HashMap::new();
        for shop in shops.iter().filter(|shop| !is_default(&shop.name)) {
            let look = look_of(&shop.name);
            if look.chars().count() >= SHORTEST_NAME {
                by_look.entry(look).or_default().push(shop);
            }
        }
        for alike in by_look.values_mut() {
            alike.sort_by(|a, b| first(a, b));
            alike.truncate(MOST_ALIKE);
        }
        Self(by_look)
    }

    fn imitation(&self, shop: &Shop) -> Option<Suspicion> {
        let alike = self.0.get(&look_of(&shop.name))?;
        let is_imitated = |known: &&&Shop| {
            let is_npc = known.npc == Some(true);
            let is_other_name = known.name.trim().to_lowercase() != shop.name.trim().to_lowercase();
            known.id.distance(shop.id) > NEIGHBOURS
                && (is_npc || is_other_name)
                && known.first_seen_at < shop.first_seen_at
        };
        let known = alike.iter().find(is_imitated)?;
        let detail = format!("its name looks like that of {}", known.name);
        Some(Suspicion { reason: ScanReason::ImitatesName, weight: 35, offer: None, detail })
    }
}

fn first(a: &Shop, b: &Shop) -> Ordering {
    (a.first_seen_at, a.id).cmp(&(b.first_seen_at, b.id))
}

fn is_default(name: &str) -> bool {
    DEFAULT_NAMES.contains(&name.trim().to_lowercase().as_str())
}

/// A name as it looks at a glance: letters and digits only, lookalikes as one, doubled letters once.
fn look_of(name: &str) -> String {
    let mut look = String::new();
    for character in name.chars().flat_map(char::to_lowercase).filter(|character| character.is_alphanumeric()) {
        let plain = match character {
            '0' | 'о' | 'ο' => 'o',
            '1' | 'i' | 'і' | 'ı' | '|' => 'l',
            '3' | 'е' | 'é' | 'è' => 'e',
            '4' | 'а' | 'α' | 'á' | 'à' => 'a',
            '5' => 's',
            '7' | 'т' => 't',
            '8' | 'в' => 'b',
            'с' => 'c',
            'р' => 'p',
            'х' => 'x',
            'у' => 'y',
            'к' => 'k',
            'м' => 'm',
            'н' => 'h',
            other => other,
        };
        if !look.ends_with(plain) {
            look.push(plain);
        }
    }
    look
}

#[cfg(test)]
mod tests;
