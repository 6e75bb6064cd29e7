//! Paired game servers: one row per owner, game server and player.

use std::collections::BTreeSet;

use diesel::dsl::exists;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*, stored_monuments},
        schema::paired_servers,
    },
    domain::{
        access::Role,
        detect::wipe::World,
        ids::{GameServerId, ServerId, UserId},
        monument::Monument,
        time::Timestamp,
    },
};

/// Name that is shown to others than the owner if the server has no name of its own.
const UNNAMED: &str = "Game server";

/// A paired game server.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = paired_servers)]
pub struct PairedServer {
    #[diesel(deserialize_as = String)]
    pub id: ServerId,
    #[diesel(deserialize_as = String)]
    pub owner_id: UserId,
    /// The server's id in the game's pushes.
    pub game_server_id: Option<String>,
    pub name: String,
    /// Host name or address, as pushed; untrusted.
    pub address: String,
    #[diesel(deserialize_as = Port)]
    pub port: u16,
    /// SteamID64 of the player whose token it is.
    pub player_id: String,
    /// The player token, sealed for (`paired_servers`, `player_token_sealed`, this row's id) and for its address and port.
    pub player_token_sealed: Vec<u8>,
    /// The number of the key that sealed it; 0: sealed before keys were numbered, or before tokens were bound to address and
    /// port. Those wait to be sealed again.
    pub key_version: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When its link was last known to be up.
    pub link_alive_at: Option<Timestamp>,
    /// Counts the changes of address, port, player and token.
    pub credentials_version: i32,
    /// The latest of them that the game server has accepted.
    pub accepted_version: Option<i32>,
    #[diesel(embed)]
    pub baseline: Baseline,
}

/// A player token as it is stored, and for which game server. Without the rest of its row, which may be damaged.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = paired_servers)]
pub struct SealedToken {
    #[diesel(deserialize_as = String)]
    pub id: ServerId,
    pub address: String,
    /// As it is stored; a damaged one is no port.
    pub port: i32,
    pub player_token_sealed: Vec<u8>,
    pub key_version: i32,
}

impl PairedServer {
    /// Fails if its player is no number: it has no link then.
    pub fn check(&self) -> Result<(), DbError> {
        self.player_id.parse::<u64>().map(drop).map_err(|_| DbError::malformed("player_id"))
    }

    /// True if the server has no name of its own: its name is its address.
    fn is_unnamed(&self) -> bool {
        let with_port = GameServerId::at(&self.address, self.port);
        [self.address.as_str(), with_port.as_str()].iter().any(|address| self.name.eq_ignore_ascii_case(address))
    }

    /// True if the game server has accepted the credentials as they are.
    pub fn is_accepted(&self) -> bool {
        self.accepted_version == Some(self.credentials_version)
    }

    /// The world that its own link saw last.
    pub fn world(&self) -> World {
        self.baseline.clone().world().unwrap_or_default()
    }

    /// True if it may read what others' links learnt of the game server, last in the world `latest` (`None`: in a world
    /// that is not known): its own credentials were accepted since that world began. A wrong player token reads nothing.
    pub fn shares(&self, latest: Option<&World>) -> bool {
        self.is_accepted() && latest.is_none_or(|latest| self.world().is_since(latest))
    }

    /// Name of the server for this role: the address is for the owner alone.
    pub fn name_for(&self, role: Role) -> &str {
        if role == Role::Owner || !self.is_unnamed() { &self.name } else { UNNAMED }
    }
}

/// The world as it was last seen; a different one means a wipe.
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
            wiped_at: number(self.wipe_time).and_then(Timestamp::from_unix),
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

/// Content of a pairing. For one owner, no two rows have the same game-server id, nor the same address, port and
/// player.
#[derive(Clone, Debug)]
pub struct StoredPairing {
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

/// Stores a pairing in the row with this id, and makes the row if there is none.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn put(db: &mut Db, id: &ServerId, pairing: &StoredPairing, now: Timestamp) -> Result<PairedServer, DbError> {
    let changes = (
        paired_servers::game_server_id.eq(pairing.game_server_id.as_deref()),
        paired_servers::name.eq(&pairing.name),
        paired_servers::address.eq(&pairing.address),
        paired_servers::port.eq(i32::from(pairing.port)),
        paired_servers::player_id.eq(&pairing.player_id),
        paired_servers::player_token_sealed.eq(&pairing.player_token_sealed),
        paired_servers::key_version.eq(pairing.key_version),
        paired_servers::updated_at.eq(now),
    );
    let of_owner = paired_servers::table.find(id.as_str()).filter(paired_servers::owner_id.eq(pairing.owner.as_str()));
    if diesel::update(of_owner).set(changes).execute(db)? == 0 {
        let rest = (
            paired_servers::id.eq(id.as_str()),
            paired_servers::owner_id.eq(pairing.owner.as_str()),
            paired_servers::created_at.eq(now),
        );
        diesel::insert_into(paired_servers::table).values((rest, changes)).execute(db)?;
    }
    get(db, id)
}

/// The server, or `NotFound`.
pub fn get(db: &mut Db, id: &ServerId) -> Result<PairedServer, DbError> {
    Ok(paired_servers::table.find(id.as_str()).select(PairedServer::as_select()).first(db)?)
}

/// These servers; one that does not exist is absent.
pub fn get_all(db: &mut Db, ids: &BTreeSet<&str>) -> Result<Vec<PairedServer>, DbError> {
    Ok(paired_servers::table.filter(paired_servers::id.eq_any(ids)).select(PairedServer::as_select()).load(db)?)
}

/// All that are paired with the game server at this address.
pub fn at(db: &mut Db, address: &str, port: u16) -> Result<Vec<PairedServer>, DbError> {
    let at = paired_servers::table
        .filter(paired_servers::address.eq(address))
        .filter(paired_servers::port.eq(i32::from(port)));
    Ok(at.select(PairedServer::as_select()).load(db)?)
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

/// The ids of the owner's servers, without the rest of their rows, of which one may be damaged.
pub fn list_ids_for(db: &mut Db, owner: &UserId) -> Result<Vec<ServerId>, DbError> {
    let own = paired_servers::table.filter(paired_servers::owner_id.eq(owner.as_str()));
    let ids: Vec<String> = own.select(paired_servers::id).load(db)?;
    Ok(ids.into_iter().map(ServerId::from).collect())
}

/// The ids of all servers, oldest first.
pub fn list_ids(db: &mut Db) -> Result<Vec<ServerId>, DbError> {
    let ids: Vec<String> = paired_servers::table
        .order((paired_servers::created_at, paired_servers::id))
        .select(paired_servers::id)
        .load(db)?;
    Ok(ids.into_iter().map(ServerId::from).collect())
}

/// Locks the server's row until the transaction ends: a transaction that counts what a server has waits here for one
/// that adds to it. Returns the owner; `None` if there is no such server.
pub fn lock(db: &mut Db, id: &ServerId) -> Result<Option<UserId>, DbError> {
    let owner: Option<String> = diesel::update(paired_servers::table.find(id.as_str()))
        .set(paired_servers::id.eq(paired_servers::id))
        .returning(paired_servers::owner_id)
        .get_result(db)
        .optional()?;
    Ok(owner.map(UserId::from))
}

/// Deletes the owner's server and all that belongs to it; false when they have no such server.
pub fn delete(db: &mut Db, owner: &UserId, id: &ServerId) -> Result<bool, DbError> {
    let server = paired_servers::table.find(id.as_str()).filter(paired_servers::owner_id.eq(owner.as_str()));
    Ok(diesel::delete(server).execute(db)? == 1)
}

/// Stores the world as it is now, and its monuments (`None`: its map is not known); false when there is no such server.
pub fn save_baseline(
    db: &mut Db,
    id: &ServerId,
    baseline: &Baseline,
    monuments: Option<&[Monument]>,
) -> Result<bool, DbError> {
    let stored = paired_servers::monuments.eq(monuments.map(stored_monuments::write));
    Ok(diesel::update(paired_servers::table.find(id.as_str())).set((baseline, stored)).execute(db)? == 1)
}

/// Counts a change of address, port, player or token, which no game server has accepted yet.
pub fn change_credentials(db: &mut Db, id: &ServerId) -> Result<(), DbError> {
    let next = paired_servers::credentials_version.eq(paired_servers::credentials_version + 1);
    diesel::update(paired_servers::table.find(id.as_str())).set(next).execute(db)?;
    Ok(())
}

/// Stores that the game server has accepted the credentials of this version, unless they have changed since.
pub fn set_accepted(db: &mut Db, id: &ServerId, version: i32) -> Result<(), DbError> {
    let row = paired_servers::table.find(id.as_str()).filter(paired_servers::credentials_version.eq(version));
    diesel::update(row).set(paired_servers::accepted_version.eq(version)).execute(db)?;
    Ok(())
}

/// When the pairing of this server was sent or entered; `None`: before that was stored.
pub fn paired_at(db: &mut Db, id: &ServerId) -> Result<Option<Timestamp>, DbError> {
    Ok(paired_servers::table.find(id.as_str()).select(paired_servers::paired_at).first(db)?)
}

/// Stores when the pairing of this server was sent or entered.
pub fn set_paired_at(db: &mut Db, id: &ServerId, at: Timestamp) -> Result<(), DbError> {
    let row = paired_servers::table.find(id.as_str());
    diesel::update(row).set(paired_servers::paired_at.eq(at)).execute(db)?;
    Ok(())
}

/// Stores when the server's link was last known to be up.
pub fn set_link_alive(db: &mut Db, id: &ServerId, at: Timestamp) -> Result<(), DbError> {
    let alive = paired_servers::link_alive_at.eq(at);
    diesel::update(paired_servers::table.find(id.as_str())).set(alive).execute(db)?;
    Ok(())
}

/// The monuments of the stored world; `None` if its map is not known.
pub fn monuments(db: &mut Db, id: &ServerId) -> Result<Option<Vec<Monument>>, DbError> {
    let stored: Option<String> = paired_servers::table.find(id.as_str()).select(paired_servers::monuments).first(db)?;
    Ok(stored.as_deref().and_then(stored_monuments::read))
}

/// Stores the same player token, sealed again, unless the row no longer holds `before`: then another writer was faster,
/// and the answer is false.
pub fn replace_token(
    db: &mut Db,
    id: &ServerId,
    before: &[u8],
    after: &[u8],
    key_version: i32,
) -> Result<bool, DbError> {
    let unchanged = paired_servers::table.find(id.as_str()).filter(paired_servers::player_token_sealed.eq(before));
    let resealed = (paired_servers::player_token_sealed.eq(after), paired_servers::key_version.eq(key_version));
    Ok(diesel::update(unchanged).set(resealed).execute(db)? == 1)
}

/// Number of tokens that are sealed with keys before this one.
pub fn count_older(db: &mut Db, key_version: i32) -> Result<i64, DbError> {
    Ok(paired_servers::table.filter(paired_servers::key_version.lt(key_version)).count().get_result(db)?)
}

/// At most `limit` tokens that an older key sealed, by id of their servers, those after this one.
pub fn list_older(db: &mut Db, key_version: i32, after: &ServerId, limit: usize) -> Result<Vec<SealedToken>, DbError> {
    // Mostly there is none, and then nothing is walked through.
    let older = paired_servers::table.filter(paired_servers::key_version.lt(key_version));
    if !diesel::select(exists(older)).get_result::<bool>(db)? {
        return Ok(Vec::new());
    }
    let tokens = paired_servers::table
        .filter(paired_servers::id.gt(after.as_str()))
        .filter(paired_servers::key_version.lt(key_version))
        .order(paired_servers::id)
        .limit(limit as i64)
        .select(SealedToken::as_select())
        .load(db)?;
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, later, now},
    };

    fn pairing(game_server_id: Option<&str>, address: &str) -> StoredPairing {
        StoredPairing {
            game_server_id: game_server_id.map(Into::into),
            address: address.into(),
            ..testing::pairing("owner")
        }
    }

    fn try_put(pool: &Pool, id: &str, pairing: &StoredPairing, at: Timestamp) -> Result<PairedServer, DbError> {
        pool.write_blocking(|db| put(db, &id.into(), pairing, at))
    }

    #[test]
    fn pairing_again_replaces_all_but_the_id_and_the_first_time() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let first = try_put(pool, "one", &pairing(None, "192.0.2.1"), now()).unwrap();
            assert_eq!((first.id.as_str(), first.port, first.created_at), ("one", 28082, now()));
            let token = vec![9; 40];
            let moved = StoredPairing { player_token_sealed: token.clone(), ..pairing(Some("game"), "192.0.2.2") };
            let second = try_put(pool, "one", &moved, later(1)).unwrap();
            let expected = PairedServer {
                game_server_id: Some("game".into()),
                address: "192.0.2.2".into(),
                player_token_sealed: token,
                updated_at: later(1),
                ..first
            };
            assert_eq!(second, expected);
            assert_eq!(pool.read_blocking(|db| list_for(db, &"owner".into())).unwrap(), [expected]);
            assert_eq!(pool.read_blocking(list_ids).unwrap(), ["one".into()]);
            let ids = |owner: &str| pool.read_blocking(|db| list_ids_for(db, &owner.into())).unwrap();
            assert_eq!((ids("owner"), ids("other")), (vec!["one".into()], vec![]));
        });
    }

    #[test]
    fn an_owner_has_one_row_for_a_game_server_id_and_one_for_an_address_and_player() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            try_put(pool, "one", &pairing(Some("game"), "192.0.2.1"), now()).unwrap();
            for taken in [pairing(Some("game"), "192.0.2.2"), pairing(None, "192.0.2.1")] {
                assert!(matches!(try_put(pool, "two", &taken, now()), Err(DbError::Conflict)));
            }
            let teammate = StoredPairing { player_id: "76561198000000002".into(), ..pairing(None, "192.0.2.1") };
            assert_eq!(try_put(pool, "two", &teammate, now()).unwrap().id.as_str(), "two");
        });
    }

    #[test]
    fn an_owner_changes_and_deletes_only_their_own() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::user(pool, "other");
            let mine = try_put(pool, "one", &pairing(Some("game"), "192.0.2.1"), now()).unwrap();
            let theirs = StoredPairing { owner: "other".into(), ..pairing(Some("game"), "192.0.2.1") };
            assert!(matches!(try_put(pool, "one", &theirs, later(1)), Err(DbError::Conflict)));
            assert_eq!(try_put(pool, "two", &theirs, now()).unwrap().id.as_str(), "two");
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
            let server = try_put(pool, "one", &pairing(None, "192.0.2.1"), now()).unwrap();
            let known = || pool.read_blocking(|db| monuments(db, &"one".into())).unwrap();
            assert_eq!((server.baseline, known()), (Baseline::default(), None));
            let full = Baseline {
                wipe_time: Some(1_800_000_000),
                seed: Some(i64::from(u32::MAX)),
                salt: Some(-1),
                map_size: Some(4500),
                level_name: Some("Procedural Map".into()),
            };
            let places = ["launchsite", "assets/monument/swamp/swamp_c.prefab", "Bob's Arena"]
                .map(|token| Monument::new(token, 1_234.56, -7.25).unwrap());
            for (baseline, monuments) in [
                (full.clone(), Some(&places[..])),
                (full, Some(&[][..])),
                (Baseline { seed: Some(1), ..Baseline::default() }, None),
            ] {
                let saved =
                    |id: &str| pool.write_blocking(|db| save_baseline(db, &id.into(), &baseline, monuments)).unwrap();
                assert!(saved("one") && !saved("two"));
                assert_eq!(pool.read_blocking(|db| get(db, &"one".into())).unwrap().baseline, baseline);
                assert_eq!(known().as_deref(), monuments);
            }
        });
    }

    #[test]
    fn a_resealed_token_does_not_undo_a_newer_pairing() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let read = try_put(pool, "one", &pairing(None, "192.0.2.1"), now()).unwrap().player_token_sealed;
            let replace = |before: &[u8], after: &[u8]| {
                pool.write_blocking(|db| replace_token(db, &"one".into(), before, after, 2)).unwrap()
            };
            let older = |version: i32, after: &str| {
                pool.read_blocking(|db| list_older(db, version, &after.into(), 10)).unwrap().len()
            };
            assert_eq!((older(2, ""), older(2, "one"), older(1, "")), (1, 0, 0));
            assert!(replace(&read, b"resealed"));
            assert!(!replace(&read, b"late"));
            let stored = pool.read_blocking(|db| get(db, &"one".into())).unwrap();
            assert_eq!((stored.player_token_sealed.as_slice(), stored.key_version), (&b"resealed"[..], 2));
            assert_eq!(older(2, ""), 0);
        });
    }
}
