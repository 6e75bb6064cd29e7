//! Paired game servers: one row per owner and game server, made by the game's pairing pushes.

use diesel::prelude::*;

use crate::{
    db::{error::DbError, pool::Db, schema::paired_servers, timestamp::StoredTimestamp},
    domain::{
        detect::wipe::World,
        ids::{ServerId, UserId},
        time::{self, Timestamp},
    },
};

/// A paired game server.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = paired_servers)]
pub struct PairedServer {
    #[diesel(deserialize_as = String)]
    pub id: ServerId,
    #[diesel(deserialize_as = String)]
    pub owner_id: UserId,
    /// The id by which the game's pushes name the server.
    pub game_server_id: Option<String>,
    pub name: String,
    /// Host name or address, as pushed; untrusted.
    pub address: String,
    #[diesel(deserialize_as = Port)]
    pub port: u16,
    /// SteamID64 of the player for whom the token is.
    pub player_id: String,
    /// The player token, sealed for (`paired_servers`, `player_token_sealed`, this row's id).
    pub player_token_sealed: Vec<u8>,
    /// The number of the key that sealed it; 0: sealed before keys were numbered.
    pub key_version: i32,
    #[diesel(deserialize_as = StoredTimestamp)]
    pub created_at: Timestamp,
    #[diesel(deserialize_as = StoredTimestamp)]
    pub updated_at: Timestamp,
    #[diesel(embed)]
    pub baseline: Baseline,
}

/// What was last known of the world; another one tells of a wipe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Queryable, Selectable, AsChangeset)]
#[diesel(table_name = paired_servers, treat_none_as_null = true)]
pub struct Baseline {
    /// Unix seconds.
    pub wipe_time: Option<i64>,
    pub seed: Option<i64>,
    pub salt: Option<i64>,
    /// Edge length, metres.
    pub map_size: Option<i64>,
    pub level_name: Option<String>,
}

impl From<&World> for Baseline {
    fn from(world: &World) -> Self {
        Self {
            wipe_time: world.wiped_at.map(|at| at.timestamp()),
            seed: world.seed.map(i64::from),
            salt: world.salt.map(i64::from),
            map_size: world.map_size.map(i64::from),
            level_name: world.level.clone(),
        }
    }
}

impl Baseline {
    /// The stored world; none if there never was one.
    pub fn world(self) -> Option<World> {
        let number = |stored: Option<i64>| stored.and_then(|number| u32::try_from(number).ok());
        let world = World {
            wiped_at: number(self.wipe_time).and_then(time::from_unix),
            seed: number(self.seed),
            salt: number(self.salt),
            map_size: number(self.map_size),
            level: self.level_name,
        };
        (world != World::default()).then_some(world)
    }
}

/// A stored port; both engines keep it in 32 bits.
#[derive(Debug, diesel::deserialize::FromSqlRow)]
pub struct Port(i32);

impl<DB> diesel::deserialize::FromSql<diesel::sql_types::Integer, DB> for Port
where
    DB: diesel::backend::Backend,
    i32: diesel::deserialize::FromSql<diesel::sql_types::Integer, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> diesel::deserialize::Result<Self> {
        i32::from_sql(bytes).map(Self)
    }
}

impl TryFrom<Port> for u16 {
    type Error = std::num::TryFromIntError;

    fn try_from(port: Port) -> Result<Self, Self::Error> {
        port.0.try_into()
    }
}

/// What a pairing push tells.
#[derive(Clone, Debug)]
pub struct Pairing {
    pub owner: UserId,
    pub game_server_id: Option<String>,
    pub name: String,
    pub address: String,
    pub port: u16,
    pub player_id: String,
    pub player_token_sealed: Vec<u8>,
    /// The number of the key that sealed it.
    pub key_version: i32,
}

/// The row of this pairing: the owner's row with this game-server id, otherwise with this address and player, is
/// brought up to date and keeps its id; without either a row is made under `new_id`.
///
/// Call it in a transaction ([`Pool::write`](crate::db::pool::Pool::write)).
pub fn upsert(db: &mut Db, new_id: &ServerId, pairing: &Pairing, now: Timestamp) -> Result<PairedServer, DbError> {
    let changes = (
        paired_servers::game_server_id.eq(pairing.game_server_id.as_deref()),
        paired_servers::name.eq(&pairing.name),
        paired_servers::address.eq(&pairing.address),
        paired_servers::port.eq(i32::from(pairing.port)),
        paired_servers::player_id.eq(&pairing.player_id),
        paired_servers::player_token_sealed.eq(&pairing.player_token_sealed),
        paired_servers::key_version.eq(pairing.key_version),
        paired_servers::updated_at.eq(now.naive_utc()),
    );
    let owned = || paired_servers::table.filter(paired_servers::owner_id.eq(pairing.owner.as_str()));
    let at_address = || {
        owned()
            .filter(paired_servers::address.eq(&pairing.address))
            .filter(paired_servers::port.eq(i32::from(pairing.port)))
            .filter(paired_servers::player_id.eq(&pairing.player_id))
    };
    let by_id: Option<String> = match &pairing.game_server_id {
        Some(id) => {
            owned().filter(paired_servers::game_server_id.eq(id)).select(paired_servers::id).first(db).optional()?
        }
        None => None,
    };
    let known: Option<String> = match by_id {
        Some(id) => {
            // The server moved to the address of another row, whose server is therefore gone.
            diesel::delete(at_address().filter(paired_servers::id.ne(&id))).execute(db)?;
            Some(id)
        }
        None => at_address().select(paired_servers::id).first(db).optional()?,
    };
    let id = match known {
        Some(id) => {
            diesel::update(paired_servers::table.find(&id)).set(changes).execute(db)?;
            ServerId::from(id)
        }
        None => {
            let rest = (
                paired_servers::id.eq(new_id.as_str()),
                paired_servers::owner_id.eq(pairing.owner.as_str()),
                paired_servers::created_at.eq(now.naive_utc()),
            );
            diesel::insert_into(paired_servers::table).values((rest, changes)).execute(db)?;
            new_id.clone()
        }
    };
    get(db, &id)
}

/// The server, or `NotFound`.
pub fn get(db: &mut Db, id: &ServerId) -> Result<PairedServer, DbError> {
    Ok(paired_servers::table.find(id.as_str()).select(PairedServer::as_select()).first(db)?)
}

/// The owner's servers, oldest first.
pub fn list_for(db: &mut Db, owner: &UserId) -> Result<Vec<PairedServer>, DbError> {
    let servers = paired_servers::table
        .filter(paired_servers::owner_id.eq(owner.as_str()))
        .order((paired_servers::created_at, paired_servers::id))
        .select(PairedServer::as_select())
        .load(db)?;
    Ok(servers)
}

/// Every server, oldest first.
pub fn list_all(db: &mut Db) -> Result<Vec<PairedServer>, DbError> {
    let servers = paired_servers::table
        .order((paired_servers::created_at, paired_servers::id))
        .select(PairedServer::as_select())
        .load(db)?;
    Ok(servers)
}

/// Deletes the owner's server with all that hangs on it; false when they have no such server.
pub fn delete(db: &mut Db, owner: &UserId, id: &ServerId) -> Result<bool, DbError> {
    let server = paired_servers::table.find(id.as_str()).filter(paired_servers::owner_id.eq(owner.as_str()));
    Ok(diesel::delete(server).execute(db)? == 1)
}

/// Keeps what is now known of the world; false when the server is gone.
pub fn save_baseline(db: &mut Db, id: &ServerId, baseline: &Baseline) -> Result<bool, DbError> {
    Ok(diesel::update(paired_servers::table.find(id.as_str())).set(baseline).execute(db)? == 1)
}

/// Stores the same player token sealed anew, unless the row no longer holds `before`: then somebody else was faster,
/// and the answer is false.
pub fn replace_token(
    db: &mut Db,
    id: &ServerId,
    before: &[u8],
    after: &[u8],
    key_version: i32,
) -> Result<bool, DbError> {
    let unchanged = paired_servers::table.find(id.as_str()).filter(paired_servers::player_token_sealed.eq(before));
    let anew = (paired_servers::player_token_sealed.eq(after), paired_servers::key_version.eq(key_version));
    Ok(diesel::update(unchanged).set(anew).execute(db)? == 1)
}

/// Some of the servers whose token an older key sealed, by id, from after this one on.
pub fn list_older(db: &mut Db, key_version: i32, after: &ServerId, limit: usize) -> Result<Vec<PairedServer>, DbError> {
    let servers = paired_servers::table
        .filter(paired_servers::id.gt(after.as_str()))
        .filter(paired_servers::key_version.lt(key_version))
        .order(paired_servers::id)
        .limit(limit as i64)
        .select(PairedServer::as_select())
        .load(db)?;
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        pool::Pool,
        testing::{self, later, now},
    };

    fn pairing(game_server_id: Option<&str>, address: &str) -> Pairing {
        Pairing { game_server_id: game_server_id.map(Into::into), address: address.into(), ..testing::pairing("owner") }
    }

    fn pair(pool: &Pool, new_id: &str, pairing: &Pairing, at: Timestamp) -> PairedServer {
        pool.write_blocking(|db| upsert(db, &new_id.into(), pairing, at)).unwrap()
    }

    fn ids(pool: &Pool) -> Vec<String> {
        let servers = pool.read_blocking(list_all).unwrap();
        servers.iter().map(|server| server.id.to_string()).collect()
    }

    #[test]
    fn pairing_again_updates_the_row_of_the_game_server_id_wherever_it_moved() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let first = pair(pool, "one", &pairing(Some("game"), "192.0.2.1"), now());
            assert_eq!((first.id.as_str(), first.port, first.created_at), ("one", 28082, now()));
            let token = vec![9; 40];
            let moved = Pairing { player_token_sealed: token.clone(), ..pairing(Some("game"), "192.0.2.2") };
            let second = pair(pool, "two", &moved, later(1));
            let expected =
                PairedServer { address: "192.0.2.2".into(), player_token_sealed: token, updated_at: later(1), ..first };
            assert_eq!(second, expected);
            assert_eq!(ids(pool), ["one"]);
        });
    }

    #[test]
    fn without_a_known_game_server_id_the_address_and_player_decide() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            pair(pool, "one", &pairing(None, "192.0.2.1"), now());
            let named = pair(pool, "two", &pairing(Some("game"), "192.0.2.1"), now());
            assert_eq!((named.id.as_str(), named.game_server_id.as_deref()), ("one", Some("game")));
            let reinstalled = pair(pool, "three", &pairing(Some("game-2"), "192.0.2.1"), now());
            assert_eq!((reinstalled.id.as_str(), reinstalled.game_server_id.as_deref()), ("one", Some("game-2")));
            let teammate = Pairing { player_id: "76561198000000002".into(), ..pairing(None, "192.0.2.1") };
            assert_eq!(pair(pool, "four", &teammate, later(1)).id.as_str(), "four");
            assert_eq!(ids(pool), ["one", "four"]);
        });
    }

    #[test]
    fn a_server_that_moves_onto_another_rows_address_takes_its_place() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            pair(pool, "one", &pairing(Some("game-1"), "192.0.2.1"), now());
            pair(pool, "two", &pairing(Some("game-2"), "192.0.2.2"), now());
            assert_eq!(pair(pool, "three", &pairing(Some("game-1"), "192.0.2.2"), now()).id.as_str(), "one");
            assert_eq!(ids(pool), ["one"]);
        });
    }

    #[test]
    fn owners_do_not_meet() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::user(pool, "other");
            let mine = pair(pool, "one", &pairing(Some("game"), "192.0.2.1"), now());
            let theirs = Pairing { owner: "other".into(), ..pairing(Some("game"), "192.0.2.1") };
            assert_eq!(pair(pool, "two", &theirs, now()).id.as_str(), "two");
            assert_eq!(pool.read_blocking(|db| list_for(db, &"owner".into())).unwrap(), [mine]);
            let delete = |owner: &str| pool.write_blocking(|db| delete(db, &owner.into(), &"one".into())).unwrap();
            assert!(!delete("other"));
            assert!(delete("owner"));
            assert!(matches!(pool.read_blocking(|db| get(db, &"one".into())), Err(DbError::NotFound)));
        });
    }

    #[test]
    fn the_baseline_is_replaced_as_a_whole() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            assert_eq!(pair(pool, "one", &pairing(None, "192.0.2.1"), now()).baseline, Baseline::default());
            let full = Baseline {
                wipe_time: Some(1_800_000_000),
                seed: Some(i64::from(u32::MAX)),
                salt: Some(-1),
                map_size: Some(4500),
                level_name: Some("Procedural Map".into()),
            };
            for baseline in [full, Baseline { seed: Some(1), ..Baseline::default() }] {
                assert!(pool.write_blocking(|db| save_baseline(db, &"one".into(), &baseline)).unwrap());
                assert_eq!(pool.read_blocking(|db| get(db, &"one".into())).unwrap().baseline, baseline);
            }
            assert!(!pool.write_blocking(|db| save_baseline(db, &"two".into(), &Baseline::default())).unwrap());
        });
    }

    #[test]
    fn a_token_sealed_anew_does_not_undo_a_newer_pairing() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let read = pair(pool, "one", &pairing(None, "192.0.2.1"), now()).player_token_sealed;
            let replace = |before: &[u8], after: &[u8]| {
                pool.write_blocking(|db| replace_token(db, &"one".into(), before, after, 2)).unwrap()
            };
            let older = |version: i32, after: &str| {
                pool.read_blocking(|db| list_older(db, version, &after.into(), 10)).unwrap().len()
            };
            assert_eq!((older(2, ""), older(2, "one"), older(1, "")), (1, 0, 0));
            assert!(replace(&read, b"anew"));
            assert!(!replace(&read, b"late"));
            let stored = pool.read_blocking(|db| get(db, &"one".into())).unwrap();
            assert_eq!((stored.player_token_sealed.as_slice(), stored.key_version), (&b"anew"[..], 2));
            assert_eq!(older(2, ""), 0);
        });
    }
}
