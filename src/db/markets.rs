//! The markets of game servers: which world their shops are of, and what they report at all. The shops
//! themselves are in [`shops`].

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::markets,
        shop_history, shops,
    },
    domain::{
        detect::wipe::World,
        ids::GameServerId,
        reporting::{Evidence, KnownReports},
        shop::{OfferRecord, Shop, market::MarketWrite},
        time::Timestamp,
    },
};

/// A market as it is stored, of the latest wipe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredMarket {
    /// Counts the worlds of the game server.
    pub wipe: i32,
    /// The world, if it is known.
    pub world: Option<World>,
    pub reports: KnownReports,
    /// Shops that are there, and shops that went not long ago.
    pub shops: Vec<Shop>,
}

/// Change of a market.
#[derive(Clone, Debug, PartialEq)]
pub struct MarketStep {
    pub game_server: GameServerId,
    pub wipe: i32,
    pub world: Option<World>,
    pub write: MarketWrite,
    /// An id for each record of it.
    pub record_ids: Vec<String>,
    pub at: Timestamp,
}

impl MarketStep {
    /// Rows that it writes, beside the market's own.
    pub fn rows(&self) -> usize {
        self.write.shops.len() + self.write.records.len()
    }

    /// Splits the step into parts of at most `rows` rows, to be stored one after the other.
    pub fn parts(self, rows: usize) -> Vec<Self> {
        if self.rows() <= rows {
            return vec![self];
        }
        let Self { game_server, wipe, world, write: MarketWrite { shops, records, reports }, record_ids, at } = self;
        let part = |shops: &[Shop], records: &[OfferRecord], record_ids: &[String]| Self {
            game_server: game_server.clone(),
            wipe,
            world: world.clone(),
            write: MarketWrite { shops: shops.into(), records: records.into(), reports: reports.clone() },
            record_ids: record_ids.into(),
            at,
        };
        let shops = shops.chunks(rows).map(|shops| part(shops, &[], &[]));
        let records = records.chunks(rows).zip(record_ids.chunks(rows)).map(|(records, ids)| part(&[], records, ids));
        shops.chain(records).collect()
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = markets)]
pub(in crate::db) struct MarketRow {
    wipe: i32,
    world: Option<String>,
    available: Option<bool>,
    evidence: Option<String>,
    as_of: Option<Timestamp>,
    events_available: Option<bool>,
    events_evidence: Option<String>,
    events_as_of: Option<Timestamp>,
}

impl MarketRow {
    fn reports(&self) -> KnownReports {
        let evidence = |reported: Option<bool>, words: &Option<String>, as_of| {
            Some(Evidence { reported: reported?, words: words.clone()?, as_of: as_of? })
        };
        KnownReports {
            events: evidence(self.events_available, &self.events_evidence, self.events_as_of),
            shops: evidence(self.available, &self.evidence, self.as_of),
        }
    }
}

fn row(db: &mut Db, game_server: &GameServerId) -> Result<Option<MarketRow>, DbError> {
    Ok(markets::table.find(game_server.as_str()).select(MarketRow::as_select()).first(db).optional()?)
}

/// The game server's reports, as last known.
pub fn reports(db: &mut Db, game_server: &GameServerId) -> Result<KnownReports, DbError> {
    Ok(row(db, game_server)?.map(|row| row.reports()).unwrap_or_default())
}

/// The market, with the shops that are there and those that went since then; an empty one if there is none.
pub fn load(db: &mut Db, game_server: &GameServerId, gone_since: Timestamp) -> Result<StoredMarket, DbError> {
    let Some(row) = row(db, game_server)? else { return Ok(StoredMarket::default()) };
    let reports = row.reports();
    let MarketRow { wipe, world, .. } = row;
    // A world that cannot be read is learnt again with the next answer.
    let world = world.and_then(|world| serde_json::from_str(&world).ok());
    Ok(StoredMarket { wipe, world, reports, shops: shops::list(db, game_server, wipe, gone_since)? })
}

/// The world of the market, if it is known.
pub fn world(db: &mut Db, game_server: &GameServerId) -> Result<Option<World>, DbError> {
    let stored = markets::table.find(game_server.as_str()).select(markets::world).first(db).optional()?;
    let stored: Option<String> = stored.flatten();
    Ok(stored.and_then(|world| serde_json::from_str(&world).ok()))
}

/// The wipe whose shops are there now; 0 if there never were any.
pub fn wipe(db: &mut Db, game_server: &GameServerId) -> Result<i32, DbError> {
    let wipe = markets::table.find(game_server.as_str()).select(markets::wipe).first(db).optional()?;
    Ok(wipe.unwrap_or_default())
}

/// Stores a step. Storing it again changes nothing.
pub fn write(db: &mut Db, step: &MarketStep) -> Result<(), DbError> {
    let MarketStep { game_server, wipe, world, write, record_ids, at } = step;
    let world = world.as_ref().and_then(|world| serde_json::to_string(world).ok());
    let current = (markets::wipe.eq(wipe), markets::world.eq(world));
    let known = write.reports.as_ref();
    let shops = known.and_then(|known| known.shops.as_ref());
    let events = known.and_then(|known| known.events.as_ref());
    let reports = (
        markets::available.eq(shops.map(|shops| shops.reported)),
        markets::evidence.eq(shops.map(|shops| &shops.words)),
        markets::as_of.eq(shops.map(|shops| shops.as_of)),
        markets::events_available.eq(events.map(|events| events.reported)),
        markets::events_evidence.eq(events.map(|events| &events.words)),
        markets::events_as_of.eq(events.map(|events| events.as_of)),
    );
    let id = markets::game_server_id.eq(game_server.as_str());
    let insert = diesel::insert_into(markets::table)
        .values((id, current.clone(), reports))
        .on_conflict(markets::game_server_id)
        .do_update();
    let before = self::wipe(db, game_server)?;
    if known.is_some() {
        on_backend!(db, |db| insert.set((current, reports)).execute(db))?;
    } else {
        on_backend!(db, |db| insert.set(current).execute(db))?;
    }
    if before != *wipe {
        shops::end(db, game_server, before, *at)?;
    }
    for shop in &write.shops {
        shops::put(db, game_server, *wipe, shop)?;
    }
    for (id, record) in record_ids.iter().zip(&write.records) {
        shop_history::insert(db, id, game_server, *wipe, record)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::testing::{self, later, now},
        domain::shop::{
            market::Market,
            testing::{answer, at, machine, order},
        },
    };

    fn step(wipe: i32, market: &mut Market, seed: u32) -> MarketStep {
        let write = market.take_unwritten().expect("something changed");
        MarketStep {
            game_server: "a:1".into(),
            wipe,
            world: Some(World { seed: Some(seed), ..World::default() }),
            record_ids: (0..write.records.len()).map(|n| format!("{wipe}-{}-{n}", market.version())).collect(),
            write,
            at: now(),
        }
    }

    #[test]
    fn a_market_is_read_as_it_was_stored_and_a_wipe_ends_it() {
        testing::on_each_database(|pool| {
            let store = |step: &MarketStep| pool.write_blocking(|db| write(db, step)).unwrap();
            let load = || pool.read_blocking(|db| load(db, &"a:1".into(), at(0).stamp)).unwrap();
            assert_eq!(load(), StoredMarket::default());

            let mut market = Market::default();
            let wood = order("wood", 1000, 10, 5);
            let machines = [machine(1.0, 2.0, "Ä", &[wood]), machine(-3.0, 4.0, "B", &[wood])];
            answer(&mut market, 0, &machines);
            let first = step(0, &mut market, 7);
            store(&first);
            for part in first.clone().parts(1) {
                assert_eq!(part.rows(), 1);
                store(&part);
            }
            let known = StoredMarket {
                wipe: 0,
                world: first.world.clone(),
                reports: market.reports().clone(),
                shops: market.shops().collect(),
            };
            assert_eq!(load(), known);

            for seconds in [10, 20, 30] {
                answer(&mut market, seconds, &machines[..1]);
            }
            store(&step(0, &mut market, 7));
            assert_eq!((load().reports, load().shops.len()), (known.reports.clone(), 2));
            assert_eq!(pool.read_blocking(|db| reports(db, &"a:1".into())).unwrap(), known.reports);
            let later = pool.read_blocking(|db| super::load(db, &"a:1".into(), at(31).stamp)).unwrap();
            assert_eq!(later.shops.len(), 1, "gone for too long");

            let mut next = market.wiped();
            next.see_events(1, true, at(90));
            answer(&mut next, 100, &machines[1..]);
            store(&step(1, &mut next, 8));
            let loaded = load();
            assert_eq!((loaded.wipe, loaded.world.unwrap().seed, loaded.shops.len()), (1, Some(8), 1));
            assert_eq!((loaded.reports.shops, &loaded.reports.events), (known.reports.shops, &next.reports().events));
            assert!(loaded.reports.events.is_some());
            let old = pool.read_blocking(|db| shops::list(db, &"a:1".into(), 0, now())).unwrap();
            assert!(old.iter().all(|shop| shop.gone_at == Some(now())), "its shops went with it");
            let other = pool.read_blocking(|db| super::load(db, &"b:1".into(), at(0).stamp)).unwrap();
            assert_eq!(other, StoredMarket::default());
        });
    }

    #[test]
    fn what_is_old_is_deleted() {
        testing::on_each_database(|pool| {
            let mut market = Market::default();
            let machines = [1.0, 9.0].map(|x| machine(x, 2.0, "A", &[order("wood", 1000, 10, 5)]));
            answer(&mut market, 0, &machines);
            pool.write_blocking(|db| write(db, &step(0, &mut market, 7))).unwrap();
            let purged = |until| {
                pool.write_blocking(|db| Ok((shops::purge(db, until)?, shop_history::purge(db, until)?))).unwrap()
            };
            assert_eq!(purged(at(-1).stamp), (0, 0));
            assert_eq!(purged(later(1_000_000)), (0, 2), "a shop that is there stays");
            for seconds in [10, 20, 30] {
                answer(&mut market, seconds, &machines[1..]);
            }
            pool.write_blocking(|db| write(db, &step(0, &mut market, 7))).unwrap();
            assert_eq!(purged(at(30).stamp), (1, 1));
        });
    }
}
