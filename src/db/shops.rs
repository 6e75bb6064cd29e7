//! Shops of game servers, by wipe and place.

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::shops,
    },
    domain::{
        ids::GameServerId,
        shop::{
            Offer, Shop, VendorId,
            market::{MAX_GONE, MAX_SHOPS},
        },
        time::Timestamp,
    },
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = shops)]
pub(in crate::db) struct ShopRow {
    vendor_id: String,
    name: String,
    grid: String,
    npc: Option<bool>,
    offers: String,
    first_seen_at: Timestamp,
    changed_at: Timestamp,
    gone_at: Option<Timestamp>,
    returns: i32,
    moved_from: Option<String>,
}

impl ShopRow {
    /// The shop; `None` for what cannot be read, which is learnt again with the next answer.
    fn shop(self) -> Option<Shop> {
        let mut offers: Vec<Offer> = serde_json::from_str(&self.offers).ok()?;
        offers.sort_by_key(|offer| offer.key);
        Some(Shop {
            id: VendorId::parse(&self.vendor_id)?,
            name: self.name,
            grid: self.grid,
            npc: self.npc,
            offers,
            first_seen_at: self.first_seen_at,
            changed_at: self.changed_at,
            gone_at: self.gone_at,
            returns: u32::try_from(self.returns).unwrap_or_default(),
            moved_from: self.moved_from.as_deref().and_then(VendorId::parse),
        })
    }
}

/// The shops of a wipe that are there, and those that went since then, by id.
pub fn list(db: &mut Db, game_server: &GameServerId, wipe: i32, gone_since: Timestamp) -> Result<Vec<Shop>, DbError> {
    let of_wipe = shops::table.filter(shops::game_server_id.eq(game_server.as_str())).filter(shops::wipe.eq(wipe));
    let rows = of_wipe
        .filter(shops::gone_at.is_null().or(shops::gone_at.ge(gone_since)))
        .limit((MAX_SHOPS + MAX_GONE) as i64)
        .select(ShopRow::as_select())
        .load(db)?;
    let mut shops: Vec<Shop> = rows.into_iter().filter_map(ShopRow::shop).collect();
    shops.sort_by_key(|shop| shop.id);
    Ok(shops)
}

/// Adds a shop, or makes it what it is now; when it was first seen stays.
pub fn put(db: &mut Db, game_server: &GameServerId, wipe: i32, shop: &Shop) -> Result<(), DbError> {
    let offers = serde_json::to_string(&shop.offers).unwrap_or_else(|_| "[]".to_owned());
    let now = (
        shops::name.eq(&shop.name),
        shops::grid.eq(&shop.grid),
        shops::npc.eq(shop.npc),
        shops::offers.eq(offers),
        shops::changed_at.eq(shop.changed_at),
        shops::gone_at.eq(shop.gone_at),
        shops::returns.eq(i32::try_from(shop.returns).unwrap_or(i32::MAX)),
        shops::moved_from.eq(shop.moved_from.map(|id| id.to_string())),
    );
    let first = (
        shops::game_server_id.eq(game_server.as_str()),
        shops::wipe.eq(wipe),
        shops::vendor_id.eq(shop.id.to_string()),
        shops::first_seen_at.eq(shop.first_seen_at),
    );
    let put = diesel::insert_into(shops::table)
        .values((first, now.clone()))
        .on_conflict((shops::game_server_id, shops::wipe, shops::vendor_id))
        .do_update()
        .set(now);
    on_backend!(db, |db| put.execute(db))?;
    Ok(())
}

/// The world of these shops is gone, and they with it.
pub fn end(db: &mut Db, game_server: &GameServerId, wipe: i32, at: Timestamp) -> Result<(), DbError> {
    let there = shops::table
        .filter(shops::game_server_id.eq(game_server.as_str()))
        .filter(shops::wipe.eq(wipe))
        .filter(shops::gone_at.is_null());
    diesel::update(there).set(shops::gone_at.eq(at)).execute(db)?;
    Ok(())
}

/// Deletes a batch of shops that went until then; returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    Ok(purge_oldest!(db, shops, gone_at, until))
}
