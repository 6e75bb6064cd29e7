//! The shops of a game server: `/paired-servers/{id}/shops/*`.

use std::sync::Arc;

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        answer::{
            error::ApiError,
            fields::own_id,
            list_page::{ListPage, ListPlace, next_of},
        },
        context::ApiContext,
        extract::{paired_server::WatchedServer, query::Query},
    },
    db::{
        engine::{error::DbError, pool::Db},
        markets::{self, StoredMarket},
        paired_servers,
        shop_history::{self, HistoryPage},
    },
    domain::{
        ids::{GameServerId, ServerId},
        items::{Catalogue, ItemNames},
        reporting::{Reported, Reports},
        shop::{Offer, OfferKey, OfferRecord, Shop, VendorId, watch::ShopWatch},
        time::Timestamp,
    },
    relay::hub::Markets,
};

/// Offers of a list when no `limit` is given, and at most.
const OFFERS: usize = 2_000;
const MOST_OFFERS: usize = 5_000;
/// Lines of history when no `limit` is given.
const HISTORY: i64 = 200;

/// Delivery of shops by the game server.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Delivery {
    /// The game server's reports. While it does not report shops, they are as they were last seen.
    reports: Reports,
    /// True if it reports shops; `null`: not known yet.
    available: Option<bool>,
    /// Reason for `available`, in words.
    evidence: String,
    /// When shops were last seen; `null`: never.
    as_of: Option<Timestamp>,
}

/// Item and currency of an offer, with names.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct OfferItems {
    item_id: String,
    #[schema(value_type = Option<String>)]
    item_name: Option<Arc<str>>,
    #[schema(value_type = Option<String>)]
    shortname: Option<Arc<str>>,
    item_is_blueprint: bool,
    /// Not in full condition: another offer than one in full condition.
    worn: bool,
    currency_id: String,
    #[schema(value_type = Option<String>)]
    currency_name: Option<Arc<str>>,
    currency_is_blueprint: bool,
}

impl OfferItems {
    pub(in crate::api) fn new(key: OfferKey, catalogue: &Catalogue) -> Self {
        let ItemNames { name, shortname } = catalogue.names(key.item_id);
        Self {
            item_id: key.item_id.to_string(),
            item_name: name,
            shortname,
            item_is_blueprint: key.item_is_blueprint,
            worn: key.worn,
            currency_id: key.currency_id.to_string(),
            currency_name: catalogue.name(key.currency_id),
            currency_is_blueprint: key.currency_is_blueprint,
        }
    }
}

/// An offer of a shop.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OfferView {
    /// The stable id of the shop.
    #[schema(value_type = String)]
    vendor_id: VendorId,
    /// Name of the shop.
    name: String,
    x: f64,
    y: f64,
    grid: String,
    /// True if the shop is of the map itself, not of a player; `null` while the map is not known.
    npc: Option<bool>,
    #[serde(flatten)]
    items: OfferItems,
    /// Cost of one purchase.
    price: i32,
    /// Pieces that one purchase gives.
    quantity: i32,
    /// Cost of one piece, rounded; offers are compared exactly.
    unit_price: f64,
    /// Purchases left.
    in_stock: i64,
    /// Part of the full condition, where the game says.
    condition: Option<f64>,
    first_seen_at: Timestamp,
    /// When price or stock last changed.
    changed_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct OfferList {
    /// By item and currency, and of each the cheapest by the piece first.
    shops: Vec<OfferView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
    /// Number of offers that match, also beyond `limit`.
    total: usize,
    #[serde(flatten)]
    delivery: Delivery,
}

/// A line of an offer's history: the offer as it was from then on.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HistoryEntry {
    id: String,
    at: Timestamp,
    #[schema(value_type = String)]
    vendor_id: VendorId,
    #[schema(format = "offer-action")]
    action: &'static str,
    #[serde(flatten)]
    items: OfferItems,
    price: i32,
    quantity: i32,
    in_stock: i64,
}

#[derive(Serialize, ToSchema)]
struct HistoryList {
    /// Lines of this wipe, newest first.
    entries: Vec<HistoryEntry>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
    #[serde(flatten)]
    delivery: Delivery,
}

/// A search and a page of offers.
#[derive(Deserialize, IntoParams, Validate)]
pub struct OfferQuery {
    /// Part of the name or short name of the item, or of the shop's name.
    #[garde(length(chars, max = 100))]
    #[param(max_length = 100)]
    q: Option<String>,
    /// Most offers of the page; 2000 if absent.
    #[garde(range(min = 1, max = MOST_OFFERS))]
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<usize>,
    /// Only what comes after the page before: its `next`.
    #[garde(length(max = 1_024))]
    #[param(max_length = 1_024, format = "cursor")]
    before: Option<String>,
}

/// Filters and a page of history.
#[derive(Deserialize, IntoParams, Validate)]
#[serde(rename_all = "camelCase")]
#[into_params(rename_all = "camelCase")]
pub struct HistoryQuery {
    /// Only of this item.
    #[garde(length(max = 12))]
    #[param(max_length = 12, format = "item-id")]
    item_id: Option<String>,
    /// Only of this shop.
    #[garde(length(max = 64))]
    #[param(max_length = 64, format = "shop-id")]
    vendor_id: Option<String>,
    /// Most lines of the page; 200 if absent.
    #[garde(range(min = 1, max = 500))]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// Only older ones than this: the `next` of the page before.
    #[garde(inner(custom(own_id)))]
    #[param(format = Uuid)]
    before: Option<String>,
}

/// The market of a paired server.
pub(in crate::api) struct MarketRead {
    game_server: GameServerId,
    pub(in crate::api) stored: StoredMarket,
    /// False: nothing of the market is shown.
    is_shared: bool,
}

impl MarketRead {
    /// The shops that are there at `now`, none unless the pairing's own link was up since the wipe. Where this process has a link to the game server, what that saw last: the
    /// database has it a moment later.
    pub(in crate::api) fn load(
        db: &mut Db,
        live: &Markets,
        server: &ServerId,
        now: Timestamp,
    ) -> Result<Self, DbError> {
        let paired = paired_servers::get(db, server)?;
        let game_server = GameServerId::at(&paired.address, paired.port);
        let mut stored = match live.current(&game_server) {
            Some(current) => current,
            None => markets::load(db, &game_server, now)?,
        };
        stored.reports = live.reports(&game_server).unwrap_or(stored.reports);
        let is_shared = paired.shares(stored.world.as_ref());
        if !is_shared {
            stored = StoredMarket::default();
        }
        stored.shops.retain(Shop::is_there);
        Ok(Self { game_server, stored, is_shared })
    }

    /// The watch with its present finding.
    pub(in crate::api) fn look(&self, watch: &ShopWatch) -> ShopWatch {
        let (finding, baseline) = watch.look(&self.stored.shops);
        ShopWatch { finding, baseline, ..watch.clone() }
    }

    /// True if the catalogue or a shop has this item.
    pub(in crate::api) fn has_item(&self, id: i32, catalogue: &Catalogue) -> bool {
        let mut offers = self.stored.shops.iter().flat_map(|shop| &shop.offers);
        catalogue.item(id).is_some() || offers.any(|offer| [offer.key.item_id, offer.key.currency_id].contains(&id))
    }

    /// True if this shop is there; `None` while nothing is known of the shops.
    pub(in crate::api) fn knows(&self, vendor: VendorId) -> Option<bool> {
        let is_there = self.stored.shops.iter().any(|shop| shop.id == vendor);
        (self.stored.reports.reports().shops == Reported::Yes).then_some(is_there)
    }

    /// True if nothing becomes of a watch, because the game server does not report shops.
    pub(in crate::api) fn is_paused(&self) -> bool {
        self.stored.reports.reports().shops == Reported::No
    }

    pub(in crate::api) fn delivery(&self, context: &ApiContext) -> Delivery {
        let known = self.stored.reports.shops.as_ref();
        let changed_at = self.stored.shops.iter().map(|shop| shop.changed_at).max();
        let seen_at = known.filter(|known| known.reported).map(|known| known.as_of);
        let stored = changed_at.into_iter().chain(seen_at).max();
        Delivery {
            reports: self.stored.reports.reports(),
            available: known.map(|known| known.reported),
            evidence: match known {
                Some(known) => known.words.clone(),
                None if self.is_shared => "no answer of the map had a vending machine so far".to_owned(),
                None => "there was no link with the credentials of this pairing yet, or none since the wipe".to_owned(),
            },
            as_of: context.services.markets.answered_at(&self.game_server).filter(|_| self.is_shared).max(stored),
        }
    }
}

/// The present offers of a game server's shops, the cheapest by the piece first.
#[utoipa::path(get, path = "/paired-servers/{id}/shops", tag = "intel",
    params(("id" = String, Path), OfferQuery), responses(
    (status = 200, body = OfferList),
))]
pub async fn list_offers(
    WatchedServer { id, .. }: WatchedServer,
    Query(OfferQuery { q, limit, before }): Query<OfferQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (now, live) = (context.clock.now(), context.services.markets.clone());
    let catalogue = context.caches.catalogue.current();
    let page = ListPage::new(limit.unwrap_or(OFFERS), before);
    let find = move |db: &mut Db| {
        let market = MarketRead::load(db, &live, &id, now)?;
        Ok((search(&market.stored.shops, &catalogue, q.as_deref().unwrap_or_default(), &page), market))
    };
    let (found, market) = context.pool.read(find).await?;
    let OfferPage { shops, next, total } = found?;
    let delivery = market.delivery(&context);
    Ok(HttpResponse::Ok().json(OfferList { shops, next, total, delivery }))
}

/// A page of the offers that match.
struct OfferPage {
    shops: Vec<OfferView>,
    next: Option<String>,
    /// Offers that match, on all pages.
    total: usize,
}

fn search(shops: &[Shop], catalogue: &Catalogue, q: &str, page: &ListPage) -> Result<OfferPage, ApiError> {
    let wanted = q.trim().to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let mut found: Vec<(&Shop, &Offer, Arc<str>)> = Vec::new();
    for shop in shops {
        let is_shop = has(shop.shown_name());
        for offer in &shop.offers {
            let item = catalogue.item(offer.key.item_id);
            if is_shop || item.is_some_and(|item| has(&item.name) || has(&item.shortname)) {
                found.push((shop, offer, item.map(|item| item.name.clone()).unwrap_or_default()));
            }
        }
    }
    let total = found.len();
    let (found, next) = page.cut(found, |(shop, offer, item)| offer_place(shop, offer, item))?;
    let shops = found.into_iter().map(|(shop, offer, _)| offer_view(shop, offer, catalogue)).collect();
    Ok(OfferPage { shops, next, total })
}

/// By the item's name, then by item and currency, the cheapest by the piece first, and of equals what is in stock.
fn offer_place(shop: &Shop, offer: &Offer, item: &str) -> ListPlace {
    let OfferKey { item_id, item_is_blueprint, worn, currency_id, currency_is_blueprint } = offer.key;
    let marks = [item_is_blueprint, worn, currency_is_blueprint].map(|mark| if mark { '1' } else { '0' });
    // In billionths, so that it can be compared as text.
    let price = i64::from(offer.price.cost.max(0)) * 1_000_000_000 / i64::from(offer.price.quantity.max(1));
    let (marks, sold_out) = (String::from_iter(marks), u8::from(offer.in_stock <= 0));
    ListPlace::new(0, format!("{item}  {item_id} {currency_id} {marks} {price:019} {sold_out} {}", shop.id))
}

fn offer_view(shop: &Shop, offer: &Offer, catalogue: &Catalogue) -> OfferView {
    let (x, y) = shop.id.place();
    OfferView {
        vendor_id: shop.id,
        name: shop.shown_name().to_owned(),
        x,
        y,
        grid: shop.grid.clone(),
        npc: shop.npc,
        items: OfferItems::new(offer.key, catalogue),
        price: offer.price.cost,
        quantity: offer.price.quantity,
        unit_price: offer.price.per_piece(),
        in_stock: offer.in_stock,
        condition: offer.condition,
        first_seen_at: offer.first_seen_at,
        changed_at: offer.changed_at,
    }
}

/// History of the offers of a game server's shops in this wipe, newest first.
#[utoipa::path(get, path = "/paired-servers/{id}/shops/history", tag = "intel",
    params(("id" = String, Path), HistoryQuery), responses(
    (status = 200, body = HistoryList),
))]
pub async fn list_history(
    WatchedServer { id, .. }: WatchedServer,
    Query(query): Query<HistoryQuery>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (now, live) = (context.clock.now(), context.services.markets.clone());
    let page = query.page()?;
    let limit = page.limit;
    let read = move |db: &mut Db| {
        let market = MarketRead::load(db, &live, &id, now)?;
        let rows = match market.is_shared {
            true => shop_history::list(db, &market.game_server, market.stored.wipe, &page)?,
            false => Vec::new(),
        };
        Ok((rows, market))
    };
    let (rows, market) = context.pool.read(read).await?;
    let (delivery, catalogue) = (market.delivery(&context), context.caches.catalogue.current());
    let entry = |(id, OfferRecord { at, vendor, news, key, price, in_stock })| HistoryEntry {
        id,
        at,
        vendor_id: vendor,
        action: news.word(),
        items: OfferItems::new(key, &catalogue),
        price: price.cost,
        quantity: price.quantity,
        in_stock,
    };
    let entries: Vec<HistoryEntry> = rows.into_iter().map(entry).collect();
    let next = next_of(&entries, limit as usize, |last| last.id.clone());
    Ok(HttpResponse::Ok().json(HistoryList { entries, next, delivery }))
}

/// Reads the game's item id: a 32-bit integer in decimal digits.
pub(in crate::api) fn item_id(text: &str) -> Option<i32> {
    // Not `+1`, which would parse.
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl HistoryQuery {
    fn page(self) -> Result<HistoryPage, ApiError> {
        let Self { item_id: item, vendor_id, limit, before } = self;
        let item = item.map(|text| {
            item_id(&text).ok_or_else(|| ApiError::invalid("itemId", "must be a 32-bit integer in decimal digits"))
        });
        let vendor = vendor_id.map(|text| {
            VendorId::parse(&text).ok_or_else(|| ApiError::invalid("vendorId", "must be the id of a shop"))
        });
        Ok(HistoryPage {
            item: item.transpose()?,
            vendor: vendor.transpose()?,
            before,
            limit: limit.unwrap_or(HISTORY),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::shop::testing::{machine, order, shops};

    #[test]
    fn offers_are_found_by_item_or_shop_and_the_cheapest_comes_first() {
        let shops = shops(&[
            machine(1.0, 1.0, "Dear", &[order("wood", 1000, 30, 1), order("stones", 10, 1, 1)]),
            machine(2.0, 1.0, "Cheap", &[order("wood", 100, 2, 0)]),
            machine(3.0, 1.0, "Even", &[order("wood", 50, 1, 3)]),
            machine(4.0, 1.0, "Woodland", &[order("rifle.ak", 1, 400, 3)]),
        ]);
        let names = |q: &str, limit| {
            let OfferPage { shops, total, .. } =
                search(&shops, Catalogue::embedded(), q, &ListPage::new(limit, None)).unwrap();
            (shops.into_iter().map(|offer| offer.name).collect::<Vec<_>>().join(" "), total)
        };
        assert_eq!(names(" WOOD ", 10), ("Woodland Even Cheap Dear".to_owned(), 4), "in stock first among equals");
        assert_eq!(names("rifle.ak", 10), ("Woodland".to_owned(), 1));
        assert_eq!(names("dear", 10), ("Dear Dear".to_owned(), 2));
        assert_eq!(names("", 1), ("Woodland".to_owned(), 5));
        assert_eq!(names("nothing", 10), (String::new(), 0));
        let first = search(&shops, Catalogue::embedded(), "", &ListPage::new(3, None)).unwrap();
        let rest = search(&shops, Catalogue::embedded(), "", &ListPage::new(3, first.next)).unwrap();
        assert_eq!((first.shops.len(), rest.shops.len(), rest.next, rest.total), (3, 2, None, 5));
        assert_eq!(rest.shops[1].name, "Dear");
    }
}
