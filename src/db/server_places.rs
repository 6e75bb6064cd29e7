//! The game servers of the paired servers: nodes share the game servers out, and with each all that are paired with it.

use std::collections::BTreeSet;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::paired_servers,
    },
    domain::{
        ids::{GameServerId, ServerId},
        time::Timestamp,
    },
};

/// The game server of a paired server, and which credentials it has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlace {
    pub server: ServerId,
    pub game_server: GameServerId,
    /// Counts the changes of address, port, player and token.
    pub credentials_version: i32,
}

/// The places of all servers, oldest first, or of those that were changed `since` then. One with a damaged port is left out.
pub fn list(db: &mut Db, since: Option<Timestamp>) -> Result<Vec<ServerPlace>, DbError> {
    let columns =
        (paired_servers::id, paired_servers::address, paired_servers::port, paired_servers::credentials_version);
    let rows: Vec<(String, String, i32, i32)> = match since {
        Some(since) => {
            let changed = paired_servers::table.filter(paired_servers::updated_at.ge(since));
            changed.select(columns).load(db)?
        }
        None => {
            let oldest_first = (paired_servers::created_at, paired_servers::id);
            paired_servers::table.order(oldest_first).select(columns).load(db)?
        }
    };
    let place = |(server, address, port, credentials_version): (String, String, i32, i32)| {
        let game_server = GameServerId::at(&address, u16::try_from(port).ok()?);
        Some(ServerPlace { server: server.into(), game_server, credentials_version })
    };
    Ok(rows.into_iter().filter_map(place).collect())
}

/// The game servers that are paired by any user, as they are stored; one with a damaged port is left out.
pub fn game_servers(db: &mut Db) -> Result<BTreeSet<GameServerId>, DbError> {
    let addresses: Vec<(String, i32)> =
        paired_servers::table.select((paired_servers::address, paired_servers::port)).distinct().load(db)?;
    let at = |(address, port): (String, i32)| Some(GameServerId::at(&address, u16::try_from(port).ok()?));
    Ok(addresses.into_iter().filter_map(at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        paired_servers::{self, StoredPairing},
        testing::{self, later, now},
    };

    #[test]
    fn a_game_server_that_several_users_pair_is_listed_once() {
        testing::on_each_database(|pool| {
            for (owner, address) in [("one", "192.0.2.1"), ("two", "192.0.2.1"), ("three", "192.0.2.2")] {
                testing::user(pool, owner);
                let pairing = StoredPairing { address: address.into(), ..testing::pairing(owner) };
                pool.write_blocking(|db| paired_servers::put(db, &owner.into(), &pairing, now())).unwrap();
            }
            let expected = ["192.0.2.1", "192.0.2.2"].map(|address| GameServerId::at(address, 28082));
            assert_eq!(pool.read_blocking(game_servers).unwrap(), BTreeSet::from(expected));
        });
    }

    #[test]
    fn all_places_are_listed_or_those_that_changed() {
        testing::on_each_database(|pool| {
            testing::user(pool, "alice");
            for (id, address, at) in [("one", "192.0.2.1", now()), ("two", "192.0.2.2", later(60))] {
                let pairing = StoredPairing { address: address.into(), ..testing::pairing("alice") };
                pool.write_blocking(|db| paired_servers::put(db, &id.into(), &pairing, at)).unwrap();
            }
            pool.write_blocking(|db| paired_servers::change_credentials(db, &"two".into())).unwrap();
            let list = |since| pool.read_blocking(|db| list(db, since)).unwrap();
            let place = |id: &str, address: &str, credentials_version| ServerPlace {
                server: id.into(),
                game_server: GameServerId::at(address, 28082),
                credentials_version,
            };
            let [one, two] = [place("one", "192.0.2.1", 0), place("two", "192.0.2.2", 1)];
            assert_eq!(list(None), [one, two.clone()]);
            assert_eq!((list(Some(later(1))), list(Some(later(61)))), (vec![two], vec![]));
        });
    }
}
