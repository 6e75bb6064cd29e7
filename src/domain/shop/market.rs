//! All shops of one game server, over successive complete answers.
//!
//! A shop is gone when it is missing in several answers that have others, as everywhere in the detectors; an answer
//! without any shop says nothing, because the game server may not report them
//! ([`reporting`](crate::domain::reporting)). An offer is delisted at once, because its machine is there and says so.
//! Changes are kept until the caller takes them to the database; an answer in which nothing changed leaves nothing to
//! take.

mod followed;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem::take,
    sync::Arc,
};

use chrono::TimeDelta;

use self::followed::{Absence, Followed, Group, machines, name_of, offers_of, record};
use super::{MarketGround, OfferChange, OfferKey, OfferRecord, Price, Shop, VendorId, is_machine};
use crate::domain::{
    map::Marker,
    reporting::{KnownReports, Reporting},
    time::{Moment, Timestamp},
};

/// Shops that are followed.
pub const MAX_SHOPS: usize = 5_000;

/// Missing in this many complete answers, over at least this long, makes a shop gone.
const MISSES: u32 = 3;
const MISSING_FOR: TimeDelta = TimeDelta::seconds(6);
/// Time for which the gone are remembered here; the database has them longer.
pub const REMEMBERED: TimeDelta = TimeDelta::hours(24);
/// Most shops that are gone and remembered, the newest.
pub const MAX_GONE: usize = 1_000;
/// A shop that appears where none was is the same that vanished elsewhere no longer ago than this.
const MOVE_SPAN: TimeDelta = TimeDelta::hours(1);

/// Lines of history that wait for the database; beyond that, the oldest are dropped.
const WAITING_RECORDS: usize = 10_000;

/// Changes to store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MarketWrite {
    /// As they are now.
    pub shops: Vec<Shop>,
    /// The news, oldest first.
    pub records: Vec<OfferRecord>,
    /// The game server's reports, when they have changed.
    pub reports: Option<KnownReports>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Market {
    /// In the order of their ids. Every link has dozens, so they take no more room than they need.
    shops: Vec<(VendorId, Followed)>,
    ground: MarketGround,
    /// Counts the answers that changed something.
    version: u64,
    answered_at: Option<Timestamp>,
    reporting: Reporting,
    unwritten: BTreeSet<VendorId>,
    records: VecDeque<OfferRecord>,
}

impl Market {
    /// The market as it was stored: its shops, the gone ones of the last [`REMEMBERED`] among them.
    pub fn restore(shops: Vec<Shop>, reports: KnownReports) -> Self {
        let mut shops: Vec<_> = shops.into_iter().map(|shop| (shop.id, Followed::kept(shop))).collect();
        shops.sort_by_key(|(id, _)| *id);
        Self { shops, reporting: Reporting::restore(reports), ..Self::default() }
    }

    /// The market of the next world of the same game server.
    pub fn wiped(&self) -> Self {
        Self::restore(Vec::new(), self.reporting.known().clone())
    }

    /// All vending machines of a complete answer, in any order. True if anything changed.
    pub fn answer<'a>(
        &mut self,
        ground: MarketGround,
        markers: impl Iterator<Item = &'a Arc<Marker>>,
        now: Moment,
    ) -> bool {
        let version = self.version;
        // Before others go: what goes in this answer is still to be stored.
        self.forget(now.stamp);
        let mut machines: Vec<(VendorId, &Arc<Marker>)> =
            markers.filter(|marker| is_machine(marker)).map(|marker| (VendorId::of(marker), marker)).collect();
        machines.sort_by_key(|(id, _)| *id);
        // One that never sold anything is a label of a modded server.
        machines.retain(|(id, marker)| !marker.sell_orders.is_empty() || self.find(*id).is_ok());
        self.version += u64::from(self.reporting.see_shops(machines.len(), now));
        if machines.is_empty() {
            return self.version != version;
        }
        self.answered_at = Some(now.stamp);
        let groups = || machines.chunk_by(|a, b| a.0 == b.0);
        let seen: Vec<VendorId> = groups().map(|group| group[0].0).collect();
        self.miss(&seen, now);
        if std::mem::replace(&mut self.ground, ground) != self.ground {
            self.reclassify_npcs();
        }
        let there = self.shops.iter().filter(|(_, followed)| followed.gone_at().is_none()).count();
        let mut room = MAX_SHOPS.saturating_sub(there);
        let (mut vanished, mut new) = (None, Vec::new());
        for group in groups() {
            let id = group[0].0;
            if let Ok(index) = self.find(id) {
                if let Some(news) = self.shops[index].1.see(id, group, now.stamp) {
                    self.change(id, news);
                }
            } else if room > 0 {
                room -= 1;
                let vanished = vanished.get_or_insert_with(|| self.vanished(now.stamp));
                let fresh = first_seen(group, &self.ground, vanished, now.stamp);
                let news = fresh.offers.iter().map(|offer| record(id, OfferChange::Listed, offer, now.stamp));
                let news = news.collect();
                new.push((id, Followed::seen(fresh, group)));
                self.change(id, news);
            }
        }
        if !new.is_empty() {
            self.shops.reserve_exact(new.len());
            self.shops.extend(new);
            self.shops.sort_by_key(|(id, _)| *id);
        }
        self.version != version
    }

    /// A complete answer has this many markers of events; `is_populated`: players are on.
    pub fn see_events(&mut self, markers: usize, is_populated: bool, now: Moment) {
        self.reporting.see_events(markers, is_populated, now);
    }

    /// The game server's reports, as far as they are known.
    pub fn reports(&self) -> &KnownReports {
        self.reporting.known()
    }

    /// Number that differs after each change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When the last complete answer that had shops came.
    pub fn answered_at(&self) -> Option<Timestamp> {
        self.answered_at
    }

    /// A shop, also one that is gone.
    pub fn shop(&self, id: VendorId) -> Option<Shop> {
        self.find(id).ok().map(|index| self.shops[index].1.shop(id))
    }

    fn find(&self, id: VendorId) -> Result<usize, usize> {
        self.shops.binary_search_by_key(&id, |(id, _)| *id)
    }

    /// All shops, also those that are gone.
    pub fn shops(&self) -> impl Iterator<Item = Shop> {
        self.shops.iter().map(|(id, followed)| followed.shop(*id))
    }

    /// The verdicts to store since the last call; `None` if there are none.
    pub fn take_unwritten(&mut self) -> Option<MarketWrite> {
        let reports = self.reporting.take_unwritten();
        if self.unwritten.is_empty() && self.records.is_empty() && reports.is_none() {
            return None;
        }
        let ids = take(&mut self.unwritten);
        Some(MarketWrite {
            shops: ids.iter().filter_map(|id| self.shop(*id)).collect(),
            records: take(&mut self.records).into(),
            reports,
        })
    }

    /// Puts back changes that could not be stored: they are taken again with the next.
    pub fn requeue(&mut self, write: MarketWrite) {
        self.unwritten.extend(write.shops.iter().map(|shop| shop.id));
        for record in write.records.into_iter().rev() {
            self.records.push_front(record);
        }
        self.bound_records();
        if write.reports.is_some() {
            self.reporting.requeue();
        }
    }

    /// Marks a shop as changed.
    fn change(&mut self, id: VendorId, news: Vec<OfferRecord>) {
        self.version += 1;
        self.unwritten.insert(id);
        self.records.extend(news);
        self.bound_records();
    }

    /// Counts the misses of all shops that are not among these, and lets go of those that are gone.
    fn miss(&mut self, seen: &[VendorId], now: Moment) {
        let mut gone = Vec::new();
        for (id, followed) in &mut self.shops {
            if followed.gone_at().is_some() || seen.binary_search(id).is_ok() {
                continue;
            }
            let missing = followed.missing.get_or_insert_with(|| Box::new(Absence { answers: 0, since: now }));
            missing.answers += 1;
            if missing.answers >= MISSES && now - missing.since >= MISSING_FOR {
                let shop = Shop { gone_at: Some(now.stamp), changed_at: now.stamp, ..followed.shop(*id) };
                let delisted = |offer| record(*id, OfferChange::Delisted, offer, now.stamp);
                gone.push((*id, shop.offers.iter().map(delisted).collect()));
                *followed = Followed::kept(shop);
            }
        }
        for (id, news) in gone {
            self.change(id, news);
        }
    }

    /// The shops that are missing or went a short while ago, by name and prices.
    fn vanished(&self, now: Timestamp) -> BTreeMap<Likeness, VendorId> {
        let is_absent = |followed: &Followed| match followed.gone_at() {
            None => followed.missing.is_some(),
            Some(at) => now - at < MOVE_SPAN,
        };
        let absent = self.shops.iter().filter(|(_, followed)| is_absent(followed));
        absent.map(|(id, followed)| (likeness(&followed.shop(*id)), *id)).collect()
    }

    /// Decides again which shops are the map's own.
    fn reclassify_npcs(&mut self) {
        let mut changed = Vec::new();
        for (id, followed) in &mut self.shops {
            let npc = self.ground.is_npc(*id);
            // Known facts remain while the map is not known.
            if npc.is_some() && npc != followed.npc {
                followed.npc = npc;
                changed.push(*id);
            }
        }
        for id in changed {
            self.change(id, Vec::new());
        }
    }

    /// Forgets shops that are gone for long, or too many.
    fn forget(&mut self, now: Timestamp) {
        let mut gone: Vec<(Timestamp, VendorId)> =
            self.shops.iter().filter_map(|(id, followed)| Some((followed.gone_at()?, *id))).collect();
        gone.sort_unstable();
        let too_many = gone.len().saturating_sub(MAX_GONE);
        let old = gone.iter().take_while(|(at, _)| now - *at >= REMEMBERED).count();
        gone.truncate(too_many.max(old));
        if !gone.is_empty() {
            let forgotten: BTreeSet<VendorId> = gone.into_iter().map(|(_, id)| id).collect();
            self.shops.retain(|(id, _)| !forgotten.contains(id));
            self.shops.shrink_to_fit();
        }
    }

    fn bound_records(&mut self) {
        let excess = self.records.len().saturating_sub(WAITING_RECORDS);
        self.records.drain(..excess);
    }
}

/// A shop that was not known.
fn first_seen(group: &Group, ground: &MarketGround, vanished: &BTreeMap<Likeness, VendorId>, now: Timestamp) -> Shop {
    let (id, first) = group[0];
    let mut shop = Shop {
        id,
        name: name_of(machines(group)),
        grid: first.grid(),
        npc: ground.is_npc(id),
        offers: offers_of(machines(group), now),
        first_seen_at: now,
        changed_at: now,
        gone_at: None,
        returns: 0,
        moved_from: None,
    };
    shop.moved_from = vanished.get(&likeness(&shop)).copied();
    shop
}

/// Facts that a shop takes along when it moves: its name and its prices.
type Likeness = (String, Vec<(OfferKey, Price)>);

fn likeness(shop: &Shop) -> Likeness {
    (shop.name.clone(), shop.offers.iter().map(|offer| (offer.key, offer.price)).collect())
}

#[cfg(test)]
mod tests;
