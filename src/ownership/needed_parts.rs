//! The parts that need a node: the links to game servers that are paired, and the push sessions of stored credentials.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db},
        held_parts, push_credentials, server_places,
    },
    domain::{
        fence::Fence,
        ids::{PartId, UserId},
        time::Timestamp,
    },
};

/// Begins the names of push sessions.
pub const PUSH: &str = "push:";

/// The push session of this user, by a name from which no one learns the user: it outlives the account.
pub fn push_session(user: &UserId) -> PartId {
    format!("{PUSH}{}", sha256_hex(user.as_str().as_bytes())).into()
}

/// All of them, as a look at everything finds them.
pub fn all_parts(db: &mut Db) -> Result<BTreeSet<PartId>, DbError> {
    let servers = server_places::game_servers(db)?;
    let users = push_credentials::list_users(db)?;
    Ok(servers.iter().map(PartId::links).chain(users.iter().map(push_session)).collect())
}

/// True for parts that a look at everything finds as long as they are needed.
pub fn is_listed(part: &PartId) -> bool {
    part.as_str().starts_with(PUSH) || part.as_str().starts_with(PartId::LINKS)
}

/// Gives up the parts of these rights: those that are marked are deleted, unless a pairing needs them by now, which has found
/// them noted.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn give_up(db: &mut Db, ended: BTreeMap<Fence, bool>, now: Timestamp) -> Result<(), DbError> {
    let mut deleted = BTreeSet::new();
    for (fence, is_unneeded) in ended {
        if !is_unneeded {
            held_parts::release(db, &fence)?;
        } else if held_parts::remove(db, &fence)? {
            deleted.insert(fence.part);
        }
    }
    if deleted.is_empty() {
        return Ok(());
    }
    // After they were deleted: what notes one from now on waits for this transaction.
    let needed = &deleted & &all_parts(db)?;
    held_parts::note(db, &needed, now).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_session_has_the_same_name_in_all_versions() {
        let alice = "push:2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
        assert_eq!(push_session(&"alice".into()).as_str(), alice);
    }
}
