//! The users of a paired server and their roles. The API and the relay ask here and nowhere else; what a role may do is
//! in [`domain::access`](crate::domain::access).

use diesel::prelude::*;

use crate::{
    db::{error::DbError, pool::Db, schema::paired_servers},
    domain::{
        access::Role,
        ids::{ServerId, UserId},
    },
};

/// The user's role at the server; `None` for a stranger, and for a server that does not exist.
pub fn role(db: &mut Db, user: &UserId, server: &ServerId) -> Result<Option<Role>, DbError> {
    let owns = paired_servers::table
        .find(server.as_str())
        .filter(paired_servers::owner_id.eq(user.as_str()))
        .select(paired_servers::id);
    Ok(owns.first::<String>(db).optional()?.map(|_| Role::Owner))
}

/// Everybody who may watch the server.
pub fn watchers(db: &mut Db, server: &ServerId) -> Result<Vec<UserId>, DbError> {
    let owner: Option<String> =
        paired_servers::table.find(server.as_str()).select(paired_servers::owner_id).first(db).optional()?;
    Ok(owner.into_iter().map(UserId::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn the_owner_has_a_role_and_a_stranger_has_none() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            testing::user(pool, "stranger");
            let server = testing::server(pool, "owner", "server").id;
            let role = |user: &str, server: &ServerId| pool.read_blocking(|db| role(db, &user.into(), server)).unwrap();
            assert_eq!(role("owner", &server), Some(Role::Owner));
            assert_eq!(role("stranger", &server), None);
            assert_eq!(role("owner", &"other".into()), None);
            let watchers = |server: &ServerId| pool.read_blocking(|db| watchers(db, server)).unwrap();
            assert_eq!(watchers(&server), ["owner".into()]);
            assert_eq!(watchers(&"other".into()), []);
        });
    }
}
