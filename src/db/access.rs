//! The users of a paired server and their roles. The API and the relay ask here and nowhere else; what a role may do is
//! in [`domain::access`](crate::domain::access).

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        paired_servers::{self as servers, PairedServer},
        schema::{guests, paired_servers, users},
    },
    domain::{
        access::{Action, Role},
        ids::{ServerId, UserId},
    },
};

/// The user's role at the server; `None` for a stranger, and for a server that does not exist.
pub fn role(db: &mut Db, user: &UserId, server: &ServerId) -> Result<Option<Role>, DbError> {
    match owner(db, server)? {
        None => Ok(None),
        Some(owner) if owner == user.as_str() => Ok(Some(Role::Owner)),
        Some(_) => {
            let guest = guests::table
                .filter(guests::server_id.eq(server.as_str()))
                .filter(guests::user_id.eq(user.as_str()))
                .select(guests::id);
            Ok(guest.first::<String>(db).optional()?.map(|_| Role::Guest))
        }
    }
}

/// The roles of these users at these servers, in two queries; a stranger has none.
pub fn roles(
    db: &mut Db,
    users: &BTreeSet<String>,
    servers: &BTreeSet<String>,
) -> Result<HashMap<(String, String), Role>, DbError> {
    let mut roles = all_roles(db, servers)?;
    // Two lists in one statement would be looked up in each combination.
    roles.retain(|(user, _), _| users.contains(user));
    Ok(roles)
}

/// The roles of everybody at these servers, by user and server, in two queries.
pub fn all_roles(db: &mut Db, servers: &BTreeSet<String>) -> Result<HashMap<(String, String), Role>, DbError> {
    let guests: Vec<(Option<String>, String)> = guests::table
        .filter(guests::server_id.eq_any(servers))
        .filter(guests::user_id.is_not_null())
        .select((guests::user_id, guests::server_id))
        .load(db)?;
    let owners = owners(db, servers)?;
    let guests = guests.into_iter().filter_map(|(user, server)| Some(((user?, server), Role::Guest)));
    let owners = owners.into_iter().map(|owned| (owned, Role::Owner));
    Ok(guests.chain(owners).collect())
}

/// The owners of these servers, each with the server.
pub fn owners(db: &mut Db, servers: &BTreeSet<String>) -> Result<HashSet<(String, String)>, DbError> {
    let owners = paired_servers::table.filter(paired_servers::id.eq_any(servers));
    let owners: Vec<(String, String)> = owners.select((paired_servers::owner_id, paired_servers::id)).load(db)?;
    Ok(owners.into_iter().collect())
}

/// True if the user may watch the server.
pub fn may_watch(db: &mut Db, user: &UserId, server: &ServerId) -> Result<bool, DbError> {
    Ok(role(db, user, server)?.is_some_and(|role| role.may(Action::Watch)))
}

/// Everybody who may watch the server: its owner, who comes first, and its guests. Empty if there is no such server.
pub fn watchers(db: &mut Db, server: &ServerId) -> Result<Vec<UserId>, DbError> {
    let Some(owner) = owner(db, server)? else { return Ok(Vec::new()) };
    let users: Vec<Option<String>> = guests::table
        .filter(guests::server_id.eq(server.as_str()))
        .filter(guests::user_id.is_not_null())
        .order(guests::id)
        .select(guests::user_id)
        .load(db)?;
    Ok([owner].into_iter().chain(users.into_iter().flatten()).map(UserId::from).collect())
}

/// SteamIDs of these users, in any order.
pub fn accounts(db: &mut Db, users: &[UserId]) -> Result<Vec<String>, DbError> {
    let ids: Vec<&str> = users.iter().map(UserId::as_str).collect();
    Ok(users::table.filter(users::id.eq_any(ids)).select(users::platform_id).load(db)?)
}

/// The servers that the user may watch: their own, then those of which they are a guest, each oldest first.
pub fn servers_of(db: &mut Db, user: &UserId) -> Result<Vec<(PairedServer, Role)>, DbError> {
    let own = servers::list_for(db, user)?;
    let shared: Vec<PairedServer> = guests::table
        .filter(guests::user_id.eq(user.as_str()))
        .inner_join(paired_servers::table)
        .order((guests::since, guests::id))
        .select(PairedServer::as_select())
        .load(db)?;
    let own = own.into_iter().map(|server| (server, Role::Owner));
    Ok(own.chain(shared.into_iter().map(|server| (server, Role::Guest))).collect())
}

/// The ids of the servers that the user may watch.
pub fn server_ids_of(db: &mut Db, user: &UserId) -> Result<Vec<ServerId>, DbError> {
    let own = paired_servers::table.filter(paired_servers::owner_id.eq(user.as_str())).select(paired_servers::id);
    let shared = guests::table.filter(guests::user_id.eq(user.as_str())).select(guests::server_id);
    let (own, shared): (Vec<String>, Vec<String>) = (own.load(db)?, shared.load(db)?);
    Ok(own.into_iter().chain(shared).map(ServerId::from).collect())
}

fn owner(db: &mut Db, server: &ServerId) -> Result<Option<String>, DbError> {
    Ok(paired_servers::table.find(server.as_str()).select(paired_servers::owner_id).first(db).optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        guests::{self, Invitee},
        testing::{self, now},
    };

    #[test]
    fn the_owner_and_guests_have_a_role_and_a_stranger_has_none() {
        testing::on_each_database(|pool| {
            for user in ["owner", "guest", "stranger"] {
                testing::user(pool, user);
            }
            let server = testing::server(pool, "owner", "server");
            let id = &server.id;
            pool.write_blocking(|db| {
                for (guest, account) in [("i", "stranger"), ("n", "refused")] {
                    guests::invite(db, &guest.into(), id, &Invitee::Account(account.into()), None, now())?.unwrap();
                }
                let link = Invitee::Link { token_hash: "hash".into() };
                Ok(guests::invite(db, &"l".into(), id, &link, None, now())?.unwrap())
            })
            .unwrap();
            testing::guest(pool, "g", "server", "guest");
            let role = |user: &str, server: &ServerId| pool.read_blocking(|db| role(db, &user.into(), server)).unwrap();
            assert_eq!(role("owner", id), Some(Role::Owner));
            assert_eq!(role("guest", id), Some(Role::Guest));
            assert_eq!((role("stranger", id), role("refused", id), role("", id)), (None, None, None));
            assert_eq!(role("owner", &"other".into()), None);
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<String>>();
            let (users, servers) = (texts(&["owner", "guest", "stranger", "refused"]), texts(&["server", "other"]));
            let roles = pool.read_blocking(|db| roles(db, &users, &servers)).unwrap();
            let at = |user: &str| (user.to_owned(), "server".to_owned());
            assert_eq!(roles, HashMap::from([(at("owner"), Role::Owner), (at("guest"), Role::Guest)]));
            let watchers = |server: &ServerId| pool.read_blocking(|db| watchers(db, server)).unwrap();
            assert_eq!(watchers(id), ["owner".into(), "guest".into()]);
            assert_eq!(watchers(&"other".into()), []);
            let servers = |user: &str| pool.read_blocking(|db| servers_of(db, &user.into())).unwrap();
            assert_eq!(servers("owner"), [(server.clone(), Role::Owner)]);
            let own = testing::server(pool, "guest", "own");
            assert_eq!(servers("guest"), [(own, Role::Owner), (server.clone(), Role::Guest)]);
            assert_eq!(servers("stranger"), []);
        });
    }
}
