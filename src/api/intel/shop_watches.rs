//! The offers of shops that the owner of a paired server watches: `/intel/{serverId}/shops/*`.

use std::sync::Arc;

use actix_web::{HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    api::{
        answer::{
            done::Done,
            error::{ApiError, FieldError},
            list_page::{ListPage, ListPlace},
            map_places::map_size,
            tier_limits,
        },
        context::ApiContext,
        extract::{
            idempotent::Idempotent,
            json::Json,
            paired_server::{OwnedServer, PermittedWrite, ServerPart, WatchedServer},
            query::Query,
        },
        intel::{
            shops::{Delivery, MarketRead, item_id},
            watch_checks::{check, refuse_twin},
        },
    },
    db::{engine::pool::Db, shop_watches, users},
    domain::{
        items::Catalogue,
        limits::SHOP_WATCHES_PER_SERVER,
        shop::{
            Price, VendorId,
            watch::{Finding, PriceDirection, ShopWatch, WatchSide, WatchState},
        },
        time::Timestamp,
    },
    relay::hub::{ShopWatchesChanged, ToConnection},
};

/// An offer to watch.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[garde(allow_unvalidated)]
#[schema(example = json!({ "vendorId": "123450_98700", "itemId": "-1581843485", "expectedPrice": 100 }))]
pub struct CreateShopWatch {
    /// The shop, as `GET /paired-servers/{id}/shops` and the markers of the relay's state name it. One that is not there
    /// is watched as missing. Absent: any shop, of which the best one that has the item in stock is followed.
    #[schema(value_type = Option<String>, format = "shop-id")]
    vendor_id: Option<Value>,
    /// The game's item id: an integer or its decimal digits.
    #[schema(value_type = String, format = "int32-digits")]
    item_id: Value,
    /// Cost of one purchase that is expected, of as many pieces as the first one seen gives. Absent: the first price that is
    /// seen; the watch keeps `null` here, and its events name that price as `expectedPrice`. Prices are compared by the piece.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 2_147_483_647)]
    expected_price: Option<Value>,
    /// Expectation of the price. With `atMost` and `atLeast` there is news when it gets there, moves there, or no
    /// longer is; with `changes`, whenever it moves.
    #[serde(default)]
    #[schema(default = json!("changes"))]
    direction: PriceDirection,
    /// The side of the shops: they sell the item or buy it. The price of those that buy is what they pay.
    #[serde(default)]
    #[schema(default = json!("sells"))]
    side: WatchSide,
    /// The item it is paid with: as `itemId`. Absent: scrap before any other.
    #[schema(value_type = Option<String>, format = "int32-digits")]
    currency_id: Option<Value>,
}

/// Changes to a watch: absent fields stay, a `null` field counts as not given. The price is compared again.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[garde(allow_unvalidated)]
#[schema(example = json!({ "expectedPrice": 120 }))]
pub struct UpdateShopWatch {
    /// Expected cost of one purchase.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 2_147_483_647)]
    expected_price: Option<Option<Value>>,
    /// The expectation of the price.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<PriceDirection>)]
    direction: Option<Option<PriceDirection>>,
    /// The side of the shops: they sell the item or buy it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<WatchSide>)]
    side: Option<Option<WatchSide>>,
    /// The item it is paid with.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "int32-digits")]
    currency_id: Option<Option<Value>>,
}

/// Distinguishes `null` from an absent field.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The requirement that a field does not meet.
type Fault = &'static str;

fn vendor_of(value: &Value) -> Result<String, Fault> {
    let id = value.as_str().and_then(VendorId::parse);
    id.map(|id| id.to_string()).ok_or("must be the id of a shop, like 123450_98700")
}

fn item_of(value: &Value) -> Result<i32, Fault> {
    let id = match value {
        Value::String(text) => item_id(text),
        Value::Number(number) => number.as_i64().and_then(|id| i32::try_from(id).ok()),
        _ => None,
    };
    id.ok_or("must be a 32-bit integer or its decimal digits")
}

fn price_of(value: &Value) -> Result<i32, Fault> {
    let price = value.as_i64().filter(|price| *price >= 0).and_then(|price| i32::try_from(price).ok());
    price.ok_or("must be an integer of 0..2147483647")
}

/// The value of a field, or the default with its fault noted.
fn read<T: Default>(path: &str, value: Result<T, Fault>, faults: &mut Vec<FieldError>) -> T {
    value.unwrap_or_else(|message| {
        faults.push(FieldError { path: path.to_owned(), message: message.to_owned() });
        T::default()
    })
}

impl CreateShopWatch {
    /// The watch, which has seen nothing yet.
    fn watch(&self, id: String, now: Timestamp) -> Result<ShopWatch, ApiError> {
        let mut faults = Vec::new();
        let watch = ShopWatch {
            id,
            vendor: read("vendorId", self.vendor_id.as_ref().map(vendor_of).transpose(), &mut faults),
            item_id: read("itemId", item_of(&self.item_id), &mut faults),
            side: self.side,
            direction: self.direction,
            expected_price: read("expectedPrice", self.expected_price.as_ref().map(price_of).transpose(), &mut faults),
            currency_id: read("currencyId", self.currency_id.as_ref().map(item_of).transpose(), &mut faults),
            baseline: None,
            finding: Finding::NOTHING,
            as_of: now,
            created_at: now,
            version: 0,
        };
        if faults.is_empty() { Ok(watch) } else { Err(ApiError::Invalid(faults)) }
    }
}

/// An edit, read: what is given, and whether as `null`.
#[derive(Debug, PartialEq)]
struct WantedEdit {
    expected_price: Option<Option<i32>>,
    direction: Option<PriceDirection>,
    side: Option<WatchSide>,
    currency_id: Option<Option<i32>>,
}

impl UpdateShopWatch {
    fn wanted(&self) -> Result<WantedEdit, ApiError> {
        let mut faults = Vec::new();
        let field = |value: &Option<Option<Value>>, of: fn(&Value) -> Result<i32, Fault>| {
            value.as_ref().map(|value| value.as_ref().map(of).transpose()).transpose()
        };
        let wanted = WantedEdit {
            expected_price: read("expectedPrice", field(&self.expected_price, price_of), &mut faults),
            direction: self.direction.map(Option::unwrap_or_default),
            side: self.side.map(Option::unwrap_or_default),
            currency_id: read("currencyId", field(&self.currency_id, item_of), &mut faults),
        };
        if faults.is_empty() { Ok(wanted) } else { Err(ApiError::Invalid(faults)) }
    }
}

/// A price of a shop.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Rival {
    #[schema(value_type = String)]
    vendor_id: VendorId,
    price: i32,
    quantity: i32,
}

/// A watched offer and its latest finding.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WatchView {
    id: String,
    /// `null`: any shop.
    vendor_id: Option<String>,
    /// True if this shop is on the map, as far as the shops are known; `null` while nothing is known of them.
    vendor_known: Option<bool>,
    item_id: String,
    #[schema(value_type = Option<String>)]
    item_name: Option<Arc<str>>,
    side: WatchSide,
    direction: PriceDirection,
    /// As its owner gave it.
    expected_price: Option<i32>,
    /// Pieces of the purchase that the price is compared with; `null` until the offer was seen.
    expected_quantity: Option<i32>,
    /// The currency that is watched; `null` until the offer was seen, if its owner gave none.
    currency_id: Option<String>,
    #[schema(value_type = Option<String>)]
    currency_name: Option<Arc<str>>,
    /// The shop that has the offer; `null` while it is missing.
    #[schema(value_type = Option<String>)]
    found_vendor_id: Option<VendorId>,
    /// Cost of one purchase; `null` while it is missing.
    price: Option<i32>,
    /// Pieces that one purchase gives.
    quantity: Option<i32>,
    /// With `atMost` and `atLeast`, a price that is not there (yet) is `changed`.
    state: WatchState,
    /// The game server does not report shops: the latest finding stays.
    paused: bool,
    sold_out: bool,
    /// The best other shop, where it is undercut; never of a watch of any shop.
    undercut_by: Option<Rival>,
    /// When this finding began.
    as_of: Timestamp,
    created_at: Timestamp,
}

impl WatchView {
    fn new(watch: ShopWatch, market: &MarketRead, catalogue: &Catalogue) -> Self {
        let currency = watch.currency();
        let vendor_known = watch.vendor_id().and_then(|id| market.knows(id));
        let Finding { state, vendor, price, sold_out, undercut_by } = watch.finding;
        Self {
            id: watch.id,
            vendor_known,
            vendor_id: watch.vendor,
            item_id: watch.item_id.to_string(),
            item_name: catalogue.name(watch.item_id),
            side: watch.side,
            direction: watch.direction,
            expected_price: watch.expected_price,
            expected_quantity: watch.baseline.map(|baseline| baseline.price.quantity),
            found_vendor_id: vendor,
            currency_id: currency.map(|id| id.to_string()),
            currency_name: currency.and_then(|id| catalogue.name(id)),
            price: price.map(|price| price.cost),
            quantity: price.map(|price| price.quantity),
            state,
            paused: market.is_paused(),
            sold_out,
            undercut_by: undercut_by.map(|(vendor_id, Price { cost, quantity })| Rival {
                vendor_id,
                price: cost,
                quantity,
            }),
            as_of: watch.as_of,
            created_at: watch.created_at,
        }
    }
}

#[derive(Serialize, ToSchema)]
struct WatchList {
    /// Oldest first.
    shops: Vec<WatchView>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
    #[serde(flatten)]
    delivery: Delivery,
}

/// The watched offers of a server, each with its latest finding.
#[utoipa::path(get, path = "/intel/{serverId}/shops", tag = "intel",
    params(("serverId" = String, Path), ListPage), responses(
    (status = 200, body = WatchList),
))]
pub async fn list(
    WatchedServer { id, .. }: WatchedServer,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (now, live) = (context.clock.now(), context.services.markets.clone());
    let catalogue = context.caches.catalogue.current();
    let read = move |db: &mut Db| Ok((shop_watches::list(db, &id)?, MarketRead::load(db, &live, &id, now)?));
    let (watches, market) = context.pool.read(read).await?;
    let delivery = market.delivery(&context);
    let watches = watches.into_iter().map(|watch| WatchView::new(watch, &market, &catalogue)).collect();
    let (shops, next) = page.cut(watches, |watch: &WatchView| ListPlace::oldest_first(watch.created_at, &watch.id))?;
    Ok(HttpResponse::Ok().json(WatchList { shops, next, delivery }))
}

/// Watches an offer of a shop, or an item at any shop. The answer says whether the shop is known now, and what is found.
///
/// The number of shops a user watches is limited by tier where tiers are enforced: 10, 50 or 200 on all servers
/// together; and always to 200 on one server. A watch of any shop counts as one.
#[utoipa::path(post, path = "/intel/{serverId}/shops", tag = "intel",
    params(("serverId" = String, Path)), request_body = CreateShopWatch, responses(
    (status = 201, body = WatchView),
    (status = 403, description = "`owner_only`"),
    (status = 409,
        description = "`limit_reached`, or `conflict`: it is watched already, and `detail` names the watch"),
))]
pub async fn create(
    server: OwnedServer,
    once: Idempotent,
    Json(new): Json<CreateShopWatch>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (now, live) = (context.clock.now(), context.services.markets.clone());
    let catalogue = context.caches.catalogue.current();
    let watch = new.watch(context.random.id(now), now)?;
    let enforced = context.settings.enforce_tiers;
    let add = move |db: &mut Db, PermittedWrite { user, server, .. }: &PermittedWrite| {
        let market = MarketRead::load(db, &live, server, now)?;
        check(&watch, &market, &catalogue, map_size(db, server)?)?;
        let watch = market.look(&watch);
        let known = shop_watches::list(db, server)?;
        refuse_twin(&watch, &known)?;
        if known.len() >= SHOP_WATCHES_PER_SERVER {
            return Err(ApiError::LimitReached(format!(
                "A server has at most {SHOP_WATCHES_PER_SERVER} watched shops."
            )));
        }
        if enforced && let Some(limit) = tier_limits::watched_shops(db, &user.id, now)? {
            return Err(limit.into());
        }
        shop_watches::insert(db, server, &watch)?;
        Ok((StatusCode::CREATED, WatchView::new(watch, &market, &catalogue)))
    };
    server.write_once(once, add, |hub, server| hub.do_send(ToConnection { server, message: ShopWatchesChanged })).await
}

/// Changes the expectation of a watched offer.
#[utoipa::path(patch, path = "/intel/{serverId}/shops/{id}", tag = "intel",
    params(("serverId" = String, Path), ("id" = String, Path)), request_body = UpdateShopWatch, responses(
    (status = 200, body = WatchView),
    (status = 403, description = "`owner_only`"),
    (status = 409, description = "`conflict`: that is watched already, and `detail` names the watch"),
))]
pub async fn update(
    server: OwnedServer,
    ServerPart(id): ServerPart,
    Json(edit): Json<UpdateShopWatch>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (now, live, wanted) = (context.clock.now(), context.services.markets.clone(), edit.wanted()?);
    let catalogue = context.caches.catalogue.current();
    let edit = move |db: &mut Db, PermittedWrite { user, server, .. }: &PermittedWrite| {
        users::lock(db, &user.id)?;
        let mut watch = shop_watches::get(db, server, &id)?;
        watch.expected_price = wanted.expected_price.unwrap_or(watch.expected_price);
        watch.currency_id = wanted.currency_id.unwrap_or(watch.currency_id);
        watch.direction = wanted.direction.unwrap_or(watch.direction);
        watch.side = wanted.side.unwrap_or(watch.side);
        watch =
            ShopWatch { baseline: None, finding: Finding::NOTHING, version: watch.version + 1, as_of: now, ..watch };
        let market = MarketRead::load(db, &live, server, now)?;
        let known = shop_watches::list(db, server)?;
        let size = map_size(db, server)?;
        // A watch that was added before there were these rules can be edited in all else.
        if wanted.currency_id.is_some() {
            check(&watch, &market, &catalogue, size)?;
        }
        let watch = market.look(&watch);
        let is_other_offer = wanted.currency_id.is_some() || wanted.side.is_some() || wanted.direction.is_some();
        if is_other_offer {
            refuse_twin(&watch, &known)?;
        }
        let is_changed = shop_watches::edit(db, server, &watch)?;
        Ok((WatchView::new(watch, &market, &catalogue), is_changed))
    };
    let watch = server
        .write_and_notify(edit, |hub, server| hub.do_send(ToConnection { server, message: ShopWatchesChanged }))
        .await?;
    Ok(HttpResponse::Ok().json(watch))
}

/// Watches an offer no longer.
#[utoipa::path(delete, path = "/intel/{serverId}/shops/{id}", tag = "intel",
    params(("serverId" = String, Path), ("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 403, description = "`owner_only`"),
))]
pub async fn delete(server: OwnedServer, ServerPart(id): ServerPart) -> Result<HttpResponse, ApiError> {
    let delete = move |db: &mut Db, write: &PermittedWrite| shop_watches::delete(db, &write.server, &id);
    server.delete(delete, |hub, server| hub.do_send(ToConnection { server, message: ShopWatchesChanged })).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_id_is_a_32_bit_integer_or_its_digits() {
        assert_eq!(
            (item_of(&json!(-932_201_673)), item_of(&json!("-932201673"))),
            (Ok(-932_201_673), Ok(-932_201_673))
        );
        for bad in [
            json!(1.5),
            json!("+1"),
            json!(""),
            json!("-"),
            json!(2_147_483_648_u64),
            json!("wood"),
            json!(" 1"),
            json!(null),
            json!([]),
            json!(true),
        ] {
            assert!(item_of(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_edit_distinguishes_null_and_absent() {
        let read = |value: Value| serde_json::from_value::<UpdateShopWatch>(value).unwrap().wanted();
        let wanted =
            |expected_price, currency_id| WantedEdit { expected_price, currency_id, direction: None, side: None };
        assert_eq!(read(json!({})).unwrap(), wanted(None, None));
        let turned =
            WantedEdit { direction: Some(PriceDirection::AtLeast), side: Some(WatchSide::Sells), ..wanted(None, None) };
        assert_eq!(read(json!({ "direction": "atLeast", "side": null })).unwrap(), turned);
        assert_eq!(read(json!({ "expectedPrice": null })).unwrap(), wanted(Some(None), None));
        assert_eq!(
            read(json!({ "expectedPrice": 7, "currencyId": "5" })).unwrap(),
            wanted(Some(Some(7)), Some(Some(5)))
        );
        let Err(ApiError::Invalid(faults)) = read(json!({ "expectedPrice": -1, "currencyId": "x" })) else { panic!() };
        assert_eq!(faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(), ["expectedPrice", "currencyId"]);
    }
}
