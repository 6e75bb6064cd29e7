//! The maps of game servers: one for each, however many have paired it, and its picture in the sizes that were asked
//! for. The map of a new world takes the place of the one before.

use diesel::dsl::{exists, not};

use crate::{
    crypto::digest::sha256_hex,
    db::{
        PURGE_BATCH,
        engine::{error::DbError, pool::Db, prelude::*, stored_monuments},
        schema::{map_pictures, maps, paired_servers},
    },
    domain::{
        detect::wipe::World,
        monument::Monument,
        time::Timestamp,
        world_map::{MapPicture, WorldMap},
    },
};

/// The size of a picture that is as the game server sent it.
pub const AS_SENT: u32 = 0;
/// Characters of a version.
const VERSION: usize = 32;

/// A map, without its picture.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMap {
    pub world: World,
    pub monuments: Vec<Monument>,
    pub background: Option<String>,
    pub picture: Option<StoredPicture>,
}

/// Description of a map's picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPicture {
    /// Pixels, as the game server sent it.
    pub width: u32,
    pub height: u32,
    /// Pixels of ocean on each side.
    pub margin: u32,
    /// Another picture has another one; 32 hex digits.
    pub version: String,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = maps)]
pub(in crate::db) struct MapRow {
    world: String,
    monuments: String,
    background: Option<String>,
    width: i32,
    height: i32,
    margin: i32,
    version: String,
}

impl From<MapRow> for StoredMap {
    fn from(row: MapRow) -> Self {
        let MapRow { world, monuments, background, width, height, margin, version } = row;
        let [width, height, margin] = [width, height, margin].map(|pixels| pixels.try_into().unwrap_or_default());
        let picture = (!version.is_empty()).then_some(StoredPicture { width, height, margin, version });
        let monuments = stored_monuments::read(&monuments).unwrap_or_default();
        Self { world: serde_json::from_str(&world).unwrap_or_default(), monuments, background, picture }
    }
}

/// The map of this game server; `None` if it is not known.
pub fn get(db: &mut Db, address: &str, port: u16) -> Result<Option<StoredMap>, DbError> {
    let row = maps::table.find((address, i32::from(port)));
    let row: Option<MapRow> = row.select(MapRow::as_select()).first(db).optional()?;
    Ok(row.map(StoredMap::from))
}

/// The world of the map of this game server, if it is known.
pub fn world(db: &mut Db, address: &str, port: u16) -> Result<Option<World>, DbError> {
    let row = maps::table.find((address, i32::from(port)));
    let stored: Option<String> = row.select(maps::world).first(db).optional()?;
    Ok(stored.map(|world| serde_json::from_str(&world).unwrap_or_default()))
}

/// True if the map of this world is stored.
pub fn is_stored(db: &mut Db, address: &str, port: u16, known: &World) -> Result<bool, DbError> {
    let stored = world(db, address, port)?;
    Ok(stored.is_some_and(|stored| stored.compare(known).is_none() && stored.level == known.level))
}

/// Stores a map in place of the one before. The same map again changes nothing.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn put(db: &mut Db, address: &str, port: u16, map: &WorldMap, now: Timestamp) -> Result<(), DbError> {
    let WorldMap { world, monuments, drawing } = map;
    let picture = drawing.picture.as_ref();
    let version = picture.map_or_else(String::new, |picture| sha256_hex(&picture.jpeg)[..VERSION].to_owned());
    let stored = get(db, address, port)?;
    let stored_version = stored.as_ref().and_then(|map| Some(map.picture.as_ref()?.version.as_str()));
    let same_picture = stored_version.unwrap_or_default() == version;
    if same_picture && stored.is_some_and(|stored| stored.world == *world && stored.monuments == *monuments) {
        return Ok(());
    }
    let pixels = |of: fn(&MapPicture) -> u32| picture.map_or(0, of).min(i32::MAX as u32) as i32;
    let what = (
        maps::world.eq(serde_json::to_string(world).expect("plain data")),
        maps::monuments.eq(stored_monuments::write(monuments)),
        maps::background.eq(&drawing.background),
        maps::width.eq(pixels(|picture| picture.width)),
        maps::height.eq(pixels(|picture| picture.height)),
        maps::margin.eq(pixels(|picture| picture.margin)),
        maps::version.eq(&version),
        maps::stored_at.eq(now),
    );
    let row = (maps::address.eq(address), maps::port.eq(i32::from(port)), what.clone());
    let put =
        diesel::insert_into(maps::table).values(row).on_conflict((maps::address, maps::port)).do_update().set(what);
    on_backend!(db, |db| put.execute(db))?;
    if !same_picture {
        let of_map = map_pictures::address.eq(address).and(map_pictures::port.eq(i32::from(port)));
        diesel::delete(map_pictures::table.filter(of_map)).execute(db)?;
        if let Some(picture) = picture {
            insert_picture(db, address, port, &version, AS_SENT, &picture.jpeg)?;
        }
    }
    Ok(())
}

/// The picture of this version in this size, a JPEG; `None` if it is not kept.
pub fn picture(db: &mut Db, address: &str, port: u16, version: &str, size: u32) -> Result<Option<Vec<u8>>, DbError> {
    let row = map_pictures::table.find((address, i32::from(port), size as i32));
    Ok(row.filter(map_pictures::version.eq(version)).select(map_pictures::jpeg).first(db).optional()?)
}

/// Keeps the picture in one more size, if the map still has this version.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn keep_scaled(
    db: &mut Db,
    address: &str,
    port: u16,
    version: &str,
    size: u32,
    jpeg: &[u8],
) -> Result<(), DbError> {
    let current = get(db, address, port)?.and_then(|map| map.picture);
    if current.is_some_and(|current| current.version == version) {
        insert_picture(db, address, port, version, size, jpeg)?;
    }
    Ok(())
}

fn insert_picture(db: &mut Db, address: &str, port: u16, version: &str, size: u32, jpeg: &[u8]) -> Result<(), DbError> {
    let row = (
        map_pictures::address.eq(address),
        map_pictures::port.eq(i32::from(port)),
        map_pictures::size.eq(size as i32),
        map_pictures::version.eq(version),
        map_pictures::jpeg.eq(jpeg),
    );
    let insert = diesel::insert_into(map_pictures::table).values(row).on_conflict_do_nothing();
    on_backend!(db, |db| insert.execute(db))?;
    Ok(())
}

/// Deletes a batch of the maps that were stored until then, of game servers that are no longer paired by any user;
/// returns how many.
pub fn purge(db: &mut Db, until: Timestamp) -> Result<usize, DbError> {
    let pairings = paired_servers::table
        .filter(paired_servers::address.eq(maps::address).and(paired_servers::port.eq(maps::port)))
        .select(paired_servers::id);
    let unpaired: Vec<(String, i32)> = maps::table
        .filter(maps::stored_at.le(until).and(not(exists(pairings))))
        .limit(PURGE_BATCH as i64)
        .select((maps::address, maps::port))
        .load(db)?;
    for (address, port) in &unpaired {
        diesel::delete(maps::table.find((address, port))).execute(db)?;
    }
    Ok(unpaired.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        paired_servers,
        testing::{self, later, now, world_map},
    };

    #[test]
    fn a_game_server_has_one_map_with_the_pictures_of_its_world() {
        testing::on_each_database(|pool| {
            let put = |map: &WorldMap| pool.write_blocking(|db| put(db, "192.0.2.1", 7, map, now())).unwrap();
            let get = || pool.read_blocking(|db| get(db, "192.0.2.1", 7)).unwrap();
            let picture =
                |version: &str, size| pool.read_blocking(|db| picture(db, "192.0.2.1", 7, version, size)).unwrap();
            let scaled = |version: &str| {
                pool.write_blocking(|db| keep_scaled(db, "192.0.2.1", 7, version, 512, b"small")).unwrap();
            };
            assert_eq!(get(), None);
            put(&world_map(1, b"one"));
            let first = get().unwrap();
            let WorldMap { world, monuments, .. } = world_map(1, b"one");
            assert_eq!((&first.world, &first.monuments), (&world, &monuments));
            assert_eq!(first.background.as_deref(), Some("#12404D"));
            let StoredPicture { width, height, margin, version } = first.picture.clone().unwrap();
            assert_eq!((width, height, margin, version.len()), (40, 30, 5, 32));
            assert_eq!(picture(&version, AS_SENT).as_deref(), Some(&b"one"[..]));
            scaled(&version);
            scaled(&version);
            put(&world_map(1, b"one"));
            assert_eq!(picture(&version, 512).as_deref(), Some(&b"small"[..]), "the same map again");

            put(&world_map(2, b"two"));
            assert_eq!((picture(&version, AS_SENT), picture(&version, 512)), (None, None));
            scaled(&version);
            let second = get().unwrap().picture.unwrap().version;
            assert_eq!(picture(&second, 512), None, "what was scaled meanwhile is of the map before");
            assert_eq!(picture(&second, AS_SENT).as_deref(), Some(&b"two"[..]));
            let is_stored = |seed, level: Option<&str>| {
                let world = World { level: level.map(Into::into), ..world_map(seed, b"").world };
                pool.read_blocking(|db| is_stored(db, "192.0.2.1", 7, &world)).unwrap()
            };
            assert_eq!([is_stored(1, None), is_stored(2, None), is_stored(2, Some("x"))], [false, true, false]);
            let mut without = world_map(3, b"three");
            without.drawing.picture = None;
            put(&without);
            assert_eq!((get().unwrap().picture, picture(&second, AS_SENT)), (None, None));
        });
    }

    #[test]
    fn maps_of_game_servers_without_a_pairing_are_deleted() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let paired = testing::server(pool, "owner", "server");
            for (address, port) in [(paired.address.as_str(), paired.port), ("192.0.2.9", 1)] {
                pool.write_blocking(|db| put(db, address, port, &world_map(1, b"one"), now())).unwrap();
            }
            let purge = |until| pool.write_blocking(|db| purge(db, until)).unwrap();
            assert_eq!((purge(later(-1)), purge(now()), purge(now())), (0, 1, 0));
            pool.write_blocking(|db| paired_servers::delete(db, &"owner".into(), &"server".into())).unwrap();
            assert_eq!(purge(now()), 1);
            let left = pool.write_blocking(|db| Ok(map_pictures::table.count().get_result::<i64>(db)?)).unwrap();
            assert_eq!(left, 0);
        });
    }
}
