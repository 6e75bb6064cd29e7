//! History of the offers of shops: one row each time an offer is listed, has another price, sells out, is restocked or
//! delisted.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::shop_history,
    },
    domain::{
        ids::GameServerId,
        shop::{OfferChange, OfferKey, OfferRecord, Price, VendorId},
        time::Timestamp,
    },
};

/// Which rows.
#[derive(Clone, Debug, Default)]
pub struct HistoryPage {
    pub vendor: Option<VendorId>,
    pub item: Option<i32>,
    /// Only older ones than this row.
    pub before: Option<String>,
    pub limit: i64,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = shop_history)]
pub(in crate::db) struct HistoryRow {
    id: String,
    vendor_id: String,
    at: Timestamp,
    news: String,
    item_id: i32,
    item_is_blueprint: bool,
    worn: bool,
    currency_id: i32,
    currency_is_blueprint: bool,
    cost: i32,
    quantity: i32,
    in_stock: i64,
}

impl HistoryRow {
    fn record(self) -> Option<(String, OfferRecord)> {
        let record = OfferRecord {
            at: self.at,
            vendor: VendorId::parse(&self.vendor_id)?,
            news: OfferChange::parse(&self.news)?,
            key: OfferKey {
                item_id: self.item_id,
                item_is_blueprint: self.item_is_blueprint,
                worn: self.worn,
                currency_id: self.currency_id,
                currency_is_blueprint: self.currency_is_blueprint,
            },
            price: Price { cost: self.cost, quantity: self.quantity },
            in_stock: self.in_stock,
        };
        Some((self.id, record))
    }
}

/// Adds a row; one that is there stays.
pub fn insert(
    db: &mut Db,
    id: &str,
    game_server: &GameServerId,
    wipe: i32,
    record: &OfferRecord,
) -> Result<(), DbError> {
    let OfferRecord { at, vendor, news, key, price, in_stock } = record;
    let row = (
        shop_history::id.eq(id),
        shop_history::game_server_id.eq(game_server.as_str()),
        shop_history::wipe.eq(wipe),
        shop_history::vendor_id.eq(vendor.to_string()),
        shop_history::at.eq(at),
        shop_history::news.eq(news.word()),
        shop_history::item_id.eq(key.item_id),
        shop_history::item_is_blueprint.eq(key.item_is_blueprint),
        shop_history::worn.eq(key.worn),
        shop_history::currency_id.eq(key.currency_id),
        shop_history::currency_is_blueprint.eq(key.currency_is_blueprint),
        shop_history::cost.eq(price.cost),
        shop_history::quantity.eq(price.quantity),
        shop_history::in_stock.eq(in_stock),
    );
    let insert = diesel::insert_into(shop_history::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    Ok(())
}

/// The rows of a wipe with their ids, newest first.
pub fn list(
    db: &mut Db,
    game_server: &GameServerId,
    wipe: i32,
    page: &HistoryPage,
) -> Result<Vec<(String, OfferRecord)>, DbError> {
    let mut query = shop_history::table
        .filter(shop_history::game_server_id.eq(game_server.as_str()))
        .filter(shop_history::wipe.eq(wipe))
        .into_boxed();
    if let Some(vendor) = page.vendor {
        query = query.filter(shop_history::vendor_id.eq(vendor.to_string()));
    }
    if let Some(item) = page.item {
        query = query.filter(shop_history::item_id.eq(item));
    }
    if let Some(before) = &page.before {
        let at = shop_history::table.find(before).select(shop_history::at).first(db).optional()?;
        let Some(at): Option<Timestamp> = at else { return Ok(Vec::new()) };
        // In a form that an index can serve.
        let is_older = shop_history::at.lt(at).or(shop_history::id.lt(before.clone()));
        query = query.filter(shop_history::at.le(at).and(is_older));
    }
    let query = query.order((shop_history::at.desc(), shop_history::id.desc())).limit(page.limit);
    let rows: Vec<HistoryRow> = query.select(HistoryRow::as_select()).load(db)?;
    Ok(rows.into_iter().filter_map(HistoryRow::record).collect())
}

/// Deletes a batch of what happened until then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, shop_history, at, until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later};

    #[test]
    fn the_history_is_found_by_shop_and_item_and_in_pages() {
        testing::on_each_database(|pool| {
            let record = |n: i64, x: f64, item_id| OfferRecord {
                at: later(n / 2),
                vendor: VendorId::at(x, -1.0),
                news: if n == 0 { OfferChange::Listed } else { OfferChange::PriceChanged },
                key: OfferKey {
                    item_id,
                    item_is_blueprint: true,
                    worn: false,
                    currency_id: -7,
                    currency_is_blueprint: false,
                },
                price: Price { cost: n as i32, quantity: 1 },
                in_stock: i64::MAX,
            };
            let all: Vec<_> = (0..6).map(|n| record(n, (n % 2) as f64, (n % 3) as i32)).collect();
            pool.write_blocking(|db| {
                for (n, record) in all.iter().enumerate() {
                    insert(db, &n.to_string(), &"a:1".into(), 1, record)?;
                    insert(db, &n.to_string(), &"a:1".into(), 1, record)?;
                }
                insert(db, "other", &"a:1".into(), 0, &all[0])?;
                insert(db, "another", &"b:1".into(), 1, &all[0])
            })
            .unwrap();
            let list = |page: HistoryPage| pool.read_blocking(|db| list(db, &"a:1".into(), 1, &page)).unwrap();
            let ids = |page| list(page).into_iter().map(|(id, _)| id).collect::<String>();
            let page = HistoryPage { limit: 10, ..Default::default() };
            assert_eq!(ids(page.clone()), "543210");
            assert_eq!(list(page.clone())[5].1, all[0]);
            assert_eq!(ids(HistoryPage { vendor: Some(VendorId::at(1.0, -1.0)), ..page.clone() }), "531");
            assert_eq!(ids(HistoryPage { item: Some(2), ..page.clone() }), "52");
            let both = HistoryPage { vendor: Some(VendorId::at(1.0, -1.0)), item: Some(0), ..page.clone() };
            assert_eq!(ids(both), "3");
            let (mut paged, mut before) = (String::new(), None);
            loop {
                let next = ids(HistoryPage { before: before.clone(), limit: 2, ..page.clone() });
                paged += &next;
                let Some(last) = next.chars().last() else { break };
                before = Some(last.to_string());
            }
            assert_eq!(paged, "543210");
            assert_eq!(ids(HistoryPage { before: Some("gone".into()), ..page }), "");
        });
    }

    #[test]
    fn news_are_read_as_they_are_written() {
        use OfferChange::*;
        for news in [Listed, PriceChanged, SoldOut, Restocked, Delisted] {
            assert_eq!(OfferChange::parse(news.word()), Some(news));
        }
        assert_eq!(OfferChange::parse("opened"), None);
    }
}
