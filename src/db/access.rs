//! Who may watch a paired server. The API and the relay decide it here and nowhere else.

use diesel::prelude::*;

use crate::{
    db::{error::DbError, pool::Db, schema::paired_servers},
    domain::ids::{ServerId, UserId},
};

/// What a user may do with a paired server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Paired the server: may also write, toggle and delete.
    Owner,
}

/// The user's role at the server; `None`: for them it does not exist.
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
    fn only_the_owner_watches() {
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
