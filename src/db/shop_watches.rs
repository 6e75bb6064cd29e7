//! Watched offers of shops, each with its latest finding.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::shop_watches,
    },
    domain::{
        ids::ServerId,
        shop::{
            Price, VendorId,
            watch::{Finding, PriceDirection, ShopWatch, WatchSide, WatchState, WatchedPrice},
        },
        time::Timestamp,
    },
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = shop_watches)]
pub(in crate::db) struct WatchRow {
    id: String,
    vendor_id: Option<String>,
    item_id: i32,
    side: String,
    direction: String,
    expected_price: Option<i32>,
    currency_id: Option<i32>,
    created_at: Timestamp,
    version: i32,
    baseline_currency_id: Option<i32>,
    baseline_cost: Option<i32>,
    baseline_quantity: Option<i32>,
    state: String,
    found_vendor_id: Option<String>,
    cost: Option<i32>,
    quantity: Option<i32>,
    sold_out: bool,
    undercut_by: Option<String>,
    undercut_cost: Option<i32>,
    undercut_quantity: Option<i32>,
    as_of: Timestamp,
}

fn price(cost: Option<i32>, quantity: Option<i32>) -> Option<Price> {
    cost.zip(quantity).map(|(cost, quantity)| Price { cost, quantity })
}

impl From<WatchRow> for ShopWatch {
    fn from(row: WatchRow) -> Self {
        let rival = row.undercut_by.as_deref().and_then(VendorId::parse);
        let finding = Finding {
            state: WatchState::parse(&row.state).unwrap_or(WatchState::Missing),
            vendor: row.found_vendor_id.as_deref().and_then(VendorId::parse),
            price: price(row.cost, row.quantity),
            sold_out: row.sold_out,
            undercut_by: rival.zip(price(row.undercut_cost, row.undercut_quantity)),
        };
        let baseline = row.baseline_currency_id.zip(price(row.baseline_cost, row.baseline_quantity));
        Self {
            id: row.id,
            vendor: row.vendor_id,
            item_id: row.item_id,
            side: WatchSide::parse(&row.side).unwrap_or_default(),
            direction: PriceDirection::parse(&row.direction).unwrap_or_default(),
            expected_price: row.expected_price,
            currency_id: row.currency_id,
            baseline: baseline.map(|(currency_id, price)| WatchedPrice { currency_id, price }),
            finding,
            as_of: row.as_of,
            created_at: row.created_at,
            version: row.version,
        }
    }
}

/// The columns of what was found.
#[derive(AsChangeset, Insertable)]
#[diesel(table_name = shop_watches, treat_none_as_null = true)]
struct FoundColumns {
    baseline_currency_id: Option<i32>,
    baseline_cost: Option<i32>,
    baseline_quantity: Option<i32>,
    state: &'static str,
    found_vendor_id: Option<String>,
    cost: Option<i32>,
    quantity: Option<i32>,
    sold_out: bool,
    undercut_by: Option<String>,
    undercut_cost: Option<i32>,
    undercut_quantity: Option<i32>,
    as_of: Timestamp,
}

impl From<&ShopWatch> for FoundColumns {
    fn from(watch: &ShopWatch) -> Self {
        let ShopWatch { baseline, finding: Finding { state, vendor, price, sold_out, undercut_by }, as_of, .. } = watch;
        Self {
            baseline_currency_id: baseline.map(|baseline| baseline.currency_id),
            baseline_cost: baseline.map(|baseline| baseline.price.cost),
            baseline_quantity: baseline.map(|baseline| baseline.price.quantity),
            state: state.word(),
            found_vendor_id: vendor.map(|vendor| vendor.to_string()),
            cost: price.map(|price| price.cost),
            quantity: price.map(|price| price.quantity),
            sold_out: *sold_out,
            undercut_by: undercut_by.map(|(vendor, _)| vendor.to_string()),
            undercut_cost: undercut_by.map(|(_, price)| price.cost),
            undercut_quantity: undercut_by.map(|(_, price)| price.quantity),
            as_of: *as_of,
        }
    }
}

/// The watches of a paired server, oldest first.
pub fn list(db: &mut Db, server: &ServerId) -> Result<Vec<ShopWatch>, DbError> {
    let rows = shop_watches::table
        .filter(shop_watches::server_id.eq(server.as_str()))
        .order((shop_watches::created_at, shop_watches::id))
        .select(WatchRow::as_select())
        .load(db)?;
    Ok(rows.into_iter().map(ShopWatch::from).collect())
}

/// A watch of this server, or `NotFound`.
pub fn get(db: &mut Db, server: &ServerId, id: &str) -> Result<ShopWatch, DbError> {
    let watch = shop_watches::table.find(id).filter(shop_watches::server_id.eq(server.as_str()));
    Ok(watch.select(WatchRow::as_select()).first(db)?.into())
}

/// Adds a watch.
pub fn insert(db: &mut Db, server: &ServerId, watch: &ShopWatch) -> Result<(), DbError> {
    let row = (
        shop_watches::id.eq(&watch.id),
        shop_watches::server_id.eq(server.as_str()),
        shop_watches::vendor_id.eq(&watch.vendor),
        shop_watches::item_id.eq(watch.item_id),
        shop_watches::created_at.eq(watch.created_at),
        wanted(watch),
    );
    diesel::insert_into(shop_watches::table).values((row, FoundColumns::from(watch))).execute(db)?;
    Ok(())
}

/// Stores what the owner edited, and what is found for it. False if it is gone.
pub fn edit(db: &mut Db, server: &ServerId, watch: &ShopWatch) -> Result<bool, DbError> {
    let known = shop_watches::table.find(&watch.id).filter(shop_watches::server_id.eq(server.as_str()));
    Ok(diesel::update(known).set((wanted(watch), FoundColumns::from(watch))).execute(db)? == 1)
}

type Wanted = (
    diesel::dsl::Eq<shop_watches::side, &'static str>,
    diesel::dsl::Eq<shop_watches::direction, &'static str>,
    diesel::dsl::Eq<shop_watches::expected_price, Option<i32>>,
    diesel::dsl::Eq<shop_watches::currency_id, Option<i32>>,
    diesel::dsl::Eq<shop_watches::version, i32>,
);

fn wanted(watch: &ShopWatch) -> Wanted {
    (
        shop_watches::side.eq(watch.side.word()),
        shop_watches::direction.eq(watch.direction.word()),
        shop_watches::expected_price.eq(watch.expected_price),
        shop_watches::currency_id.eq(watch.currency_id),
        shop_watches::version.eq(watch.version),
    )
}

/// Stores what was found for a watch, unless its owner has edited or deleted it meanwhile.
pub fn save_finding(db: &mut Db, watch: &ShopWatch) -> Result<(), DbError> {
    let known = shop_watches::table.find(&watch.id).filter(shop_watches::version.eq(watch.version));
    diesel::update(known).set(FoundColumns::from(watch)).execute(db)?;
    Ok(())
}

/// Deletes a watch; false if there was none.
pub fn delete(db: &mut Db, server: &ServerId, id: &str) -> Result<bool, DbError> {
    let watch = shop_watches::table.find(id).filter(shop_watches::server_id.eq(server.as_str()));
    Ok(diesel::delete(watch).execute(db)? == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        paired_servers,
        testing::{self, later, now},
    };

    fn watch(id: &str) -> ShopWatch {
        ShopWatch {
            id: id.into(),
            vendor: Some("1_2".into()),
            item_id: -7,
            side: WatchSide::Sells,
            direction: PriceDirection::Changes,
            expected_price: Some(9),
            currency_id: None,
            baseline: None,
            finding: Finding::NOTHING,
            as_of: now(),
            created_at: now(),
            version: 0,
        }
    }

    #[test]
    fn a_watch_is_read_as_it_was_stored_by_the_server_it_belongs_to() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::user(pool, "other");
            let server = testing::server(pool, "owner", "server").id;
            let other = testing::server(pool, "other", "other").id;
            let list = |server: &ServerId| pool.read_blocking(|db| list(db, server)).unwrap();
            let mut watch = watch("w");
            pool.write_blocking(|db| insert(db, &server, &watch)).unwrap();
            assert_eq!((list(&server), list(&other)), (vec![watch.clone()], vec![]));
            assert!(matches!(pool.read_blocking(|db| get(db, &other, "w")), Err(DbError::NotFound)));

            let price = |cost| Price { cost, quantity: 100 };
            watch.baseline = Some(WatchedPrice { currency_id: 7, price: price(9) });
            watch.finding = Finding {
                state: WatchState::Undercut,
                vendor: Some(VendorId::at(0.01, 0.02)),
                price: Some(price(9)),
                sold_out: true,
                undercut_by: Some((VendorId::at(1.0, -2.0), price(8))),
            };
            watch.as_of = later(5);
            pool.write_blocking(|db| save_finding(db, &watch)).unwrap();
            assert_eq!(pool.read_blocking(|db| get(db, &server, "w")).unwrap(), watch);

            let edited = ShopWatch {
                side: WatchSide::Buys,
                direction: PriceDirection::AtLeast,
                expected_price: None,
                currency_id: Some(7),
                version: 1,
                baseline: None,
                ..watch.clone()
            };
            assert!(!pool.write_blocking(|db| edit(db, &other, &edited)).unwrap());
            assert!(pool.write_blocking(|db| edit(db, &server, &edited)).unwrap());
            pool.write_blocking(|db| save_finding(db, &watch)).unwrap();
            assert_eq!(list(&server), [edited], "what was found for the one before is late");
            let any = ShopWatch { vendor: None, ..self::watch("any") };
            pool.write_blocking(|db| insert(db, &server, &any)).unwrap();
            assert_eq!(pool.read_blocking(|db| get(db, &server, "any")).unwrap(), any);

            let delete = |server: &ServerId| pool.write_blocking(|db| delete(db, server, "w")).unwrap();
            assert_eq!((delete(&other), delete(&server), delete(&server)), (false, true, false));
        });
    }

    #[test]
    fn watches_are_deleted_with_their_server() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server = testing::server(pool, "owner", "server").id;
            pool.write_blocking(|db| insert(db, &server, &watch("w"))).unwrap();
            pool.write_blocking(|db| paired_servers::delete(db, &"owner".into(), &server)).unwrap();
            assert_eq!(pool.read_blocking(|db| list(db, &server)).unwrap(), []);
        });
    }
}
