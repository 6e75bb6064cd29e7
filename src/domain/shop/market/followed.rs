//! A shop as the market follows it.

use std::{mem::take, slice, sync::Arc};

use crate::domain::{
    map::Marker,
    plain_text::plain_text,
    shop::{Offer, OfferChange, OfferRecord, Price, Shop, VendorId, key_of},
    time::{Moment, Timestamp},
};

/// Offers of a shop that are followed; a machine of the game has seven.
const MAX_OFFERS: usize = 64;
/// Characters of a shop's name.
const LONGEST_NAME: usize = 80;

/// The machines of one place.
pub(super) type Group<'a> = [(VendorId, &'a Arc<Marker>)];

/// A shop with the state needed to follow it. Every link has dozens that seldom change, so what the machines say is
/// kept only with them, which the state has too.
#[derive(Debug)]
pub(super) struct Followed {
    goods: Goods,
    pub(super) npc: Option<bool>,
    first_seen_at: Timestamp,
    changed_at: Timestamp,
    pub(super) missing: Option<Box<Absence>>,
}

/// Name and offers of a shop.
#[derive(Debug)]
enum Goods {
    /// As its one machine said in the last answer with it. No offer has changed since the shop was first seen, here.
    Plain(Arc<Marker>),
    /// As its machines said in the last answer with them.
    Seen(Box<SeenGoods>),
    /// As it was before, or was stored.
    Kept(Box<KeptGoods>),
}

#[derive(Debug)]
struct SeenGoods {
    machines: Box<[Arc<Marker>]>,
    /// When each offer was first seen and last changed, in the order of their keys.
    dates: Box<[(Timestamp, Timestamp)]>,
    returns: u32,
    moved_from: Option<VendorId>,
}

#[derive(Debug)]
struct KeptGoods {
    name: String,
    grid: String,
    offers: Vec<Offer>,
    gone_at: Option<Timestamp>,
    returns: u32,
    moved_from: Option<VendorId>,
}

#[derive(Debug)]
pub(super) struct Absence {
    pub(super) answers: u32,
    pub(super) since: Moment,
}

impl Followed {
    fn of(shop: &Shop, goods: Goods) -> Self {
        let Shop { npc, first_seen_at, changed_at, .. } = *shop;
        Self { goods, npc, first_seen_at, changed_at, missing: None }
    }

    /// A shop as these machines show it.
    pub(super) fn seen(shop: Shop, group: &Group) -> Self {
        let Shop { first_seen_at: first, returns, moved_from, .. } = shop;
        let dates = shop.offers.iter().map(|offer| (offer.first_seen_at, offer.changed_at));
        let goods = match group {
            [(_, machine)]
                if dates.clone().all(|dates| dates == (first, first)) && (returns, moved_from) == (0, None) =>
            {
                Goods::Plain(Arc::clone(machine))
            }
            _ => {
                let machines = machines(group).cloned().collect();
                Goods::Seen(Box::new(SeenGoods { machines, dates: dates.collect(), returns, moved_from }))
            }
        };
        Self::of(&shop, goods)
    }

    /// A shop as it was.
    pub(super) fn kept(mut shop: Shop) -> Self {
        let (name, grid, offers) = (take(&mut shop.name), take(&mut shop.grid), take(&mut shop.offers));
        let Shop { gone_at, returns, moved_from, .. } = shop;
        let goods = KeptGoods { name, grid, offers, gone_at, returns, moved_from };
        Self::of(&shop, Goods::Kept(Box::new(goods)))
    }

    pub(super) fn gone_at(&self) -> Option<Timestamp> {
        match &self.goods {
            Goods::Plain(_) | Goods::Seen(_) => None,
            Goods::Kept(kept) => kept.gone_at,
        }
    }

    /// Its machines in the last answer that had it; none if it is as it was before.
    fn machines(&self) -> &[Arc<Marker>] {
        match &self.goods {
            Goods::Plain(machine) => slice::from_ref(machine),
            Goods::Seen(seen) => &seen.machines,
            Goods::Kept(_) => &[],
        }
    }

    /// The shop, which has this id.
    pub(super) fn shop(&self, id: VendorId) -> Shop {
        let Self { npc, first_seen_at, changed_at, .. } = *self;
        let machines = self.machines();
        let mut shop = Shop {
            id,
            name: name_of(machines.iter()),
            grid: machines.first().map(|machine| machine.grid()).unwrap_or_default(),
            npc,
            offers: offers_of(machines.iter(), first_seen_at),
            first_seen_at,
            changed_at,
            gone_at: None,
            returns: 0,
            moved_from: None,
        };
        match &self.goods {
            Goods::Plain(_) => {}
            Goods::Seen(seen) => {
                (shop.returns, shop.moved_from) = (seen.returns, seen.moved_from);
                for (offer, (first_seen_at, changed_at)) in shop.offers.iter_mut().zip(&seen.dates) {
                    (offer.first_seen_at, offer.changed_at) = (*first_seen_at, *changed_at);
                }
            }
            Goods::Kept(kept) => {
                let KeptGoods { gone_at, returns, moved_from, .. } = **kept;
                (shop.name, shop.grid, shop.offers) = (kept.name.clone(), kept.grid.clone(), kept.offers.clone());
                (shop.gone_at, shop.returns, shop.moved_from) = (gone_at, returns, moved_from);
            }
        }
        shop
    }

    /// Updates the shop, which has this id, from an answer. Returns the changes of its offers; `None` if nothing about
    /// it changed.
    pub(super) fn see(&mut self, id: VendorId, group: &Group, now: Timestamp) -> Option<Vec<OfferRecord>> {
        self.missing = None;
        let known = self.machines();
        if known.len() == group.len() && known.iter().zip(machines(group)).all(|(known, seen)| Arc::ptr_eq(known, seen))
        {
            return None;
        }
        let mut shop = self.shop(id);
        let is_back = shop.gone_at.take().is_some();
        let (name, grid) = (name_of(machines(group)), group[0].1.grid());
        let mut changed = is_back || name != shop.name || grid != shop.grid;
        if changed {
            shop.returns += u32::from(is_back);
            shop.name = name;
            shop.grid = grid;
        }
        let mut news = Vec::new();
        let mut offers = offers_of(machines(group), now);
        for offer in &mut offers {
            let Some(old) = shop.offer(&offer.key) else {
                news.push(record(shop.id, OfferChange::Listed, offer, now));
                continue;
            };
            offer.first_seen_at = old.first_seen_at;
            let is_same = (offer.price, offer.in_stock, offer.condition) == (old.price, old.in_stock, old.condition);
            if is_same {
                offer.changed_at = old.changed_at;
            }
            changed |= !is_same;
            if is_back {
                news.push(record(shop.id, OfferChange::Listed, offer, now));
                continue;
            }
            if offer.price != old.price {
                news.push(record(shop.id, OfferChange::PriceChanged, offer, now));
            }
            match (old.in_stock > 0, offer.in_stock > 0) {
                (true, false) => news.push(record(shop.id, OfferChange::SoldOut, offer, now)),
                (false, true) => news.push(record(shop.id, OfferChange::Restocked, offer, now)),
                _ => {}
            }
        }
        let is_left = |old: &&Offer| offers.binary_search_by_key(&old.key, |offer| offer.key).is_err();
        if !is_back {
            news.extend(shop.offers.iter().filter(is_left).map(|old| record(shop.id, OfferChange::Delisted, old, now)));
        }
        changed |= offers.len() != shop.offers.len() || !news.is_empty();
        shop.offers = offers;
        if changed {
            shop.changed_at = now;
        }
        *self = Self::seen(shop, group);
        changed.then_some(news)
    }
}

pub(super) fn record(vendor: VendorId, news: OfferChange, offer: &Offer, at: Timestamp) -> OfferRecord {
    OfferRecord { at, vendor, news, key: offer.key, price: offer.price, in_stock: offer.in_stock }
}

pub(super) fn machines<'a>(group: &'a Group) -> impl Iterator<Item = &'a Arc<Marker>> {
    group.iter().map(|(_, machine)| *machine)
}

/// The first of the names in the order of the alphabet, as the order of machines means nothing.
pub(super) fn name_of<'a>(machines: impl Iterator<Item = &'a Arc<Marker>>) -> String {
    let names = machines.map(|machine| plain_text(machine.name.as_deref().unwrap_or_default(), LONGEST_NAME));
    names.min().unwrap_or_default()
}

/// One offer per key, in the order of the keys: the lowest price, with the stock of all.
pub(super) fn offers_of<'a>(machines: impl Iterator<Item = &'a Arc<Marker>>, now: Timestamp) -> Vec<Offer> {
    let mut offers: Vec<Offer> = Vec::new();
    for machine in machines {
        let is_empty = machine.out_of_stock == Some(true);
        offers.extend(machine.sell_orders.iter().map(|order| Offer {
            key: key_of(order),
            price: Price { cost: order.cost, quantity: order.quantity },
            in_stock: if is_empty { 0 } else { i64::from(order.in_stock.max(0)) },
            condition: order.condition(),
            first_seen_at: now,
            changed_at: now,
        }));
    }
    offers.sort_by(|a, b| {
        let condition = |offer: &Offer| offer.condition.unwrap_or(1.0);
        (a.key.cmp(&b.key))
            .then_with(|| a.price.by_piece(b.price))
            .then_with(|| a.price.cmp(&b.price))
            .then_with(|| condition(b).total_cmp(&condition(a)))
    });
    offers.dedup_by(|later, first| {
        let is_same = later.key == first.key;
        if is_same {
            first.in_stock += later.in_stock;
        }
        is_same
    });
    offers.truncate(MAX_OFFERS);
    offers
}
