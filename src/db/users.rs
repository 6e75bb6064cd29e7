//! Users, by their account at the identity provider.

use diesel::prelude::*;

use crate::{
    db::{error::DbError, pool::Db, schema::users, timestamp::StoredTimestamp},
    domain::{
        ids::{PlatformId, UserId},
        time::Timestamp,
    },
};

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = users)]
pub struct User {
    #[diesel(deserialize_as = String)]
    pub id: UserId,
    #[diesel(deserialize_as = String)]
    pub platform_id: PlatformId,
    pub display_name: String,
    pub avatar_url: Option<String>,
    #[diesel(deserialize_as = StoredTimestamp)]
    pub created_at: Timestamp,
    #[diesel(deserialize_as = StoredTimestamp)]
    pub last_seen_at: Timestamp,
}

/// Name and picture as the identity provider has them.
#[derive(Clone, Debug)]
pub struct StoredProfile {
    pub display_name: String,
    pub avatar_url: Option<String>,
}

/// The user of this account at sign-in: added with `new_id` when new. Without a profile (the provider gave none) a known
/// user keeps theirs, and a new one is named by the account's id.
pub fn sign_in(
    db: &mut Db,
    new_id: &UserId,
    platform_id: &PlatformId,
    profile: Option<&StoredProfile>,
    now: Timestamp,
) -> Result<User, DbError> {
    let first = (
        users::id.eq(new_id.as_str()),
        users::platform_id.eq(platform_id.as_str()),
        users::display_name.eq(profile.map_or(platform_id.as_str(), |profile| &profile.display_name)),
        users::avatar_url.eq(profile.and_then(|profile| profile.avatar_url.as_deref())),
        users::created_at.eq(now.naive_utc()),
        users::last_seen_at.eq(now.naive_utc()),
    );
    let seen = users::last_seen_at.eq(now.naive_utc());
    let inserted = diesel::insert_into(users::table).values(first).on_conflict(users::platform_id).do_update();
    let user = match profile {
        Some(StoredProfile { display_name, avatar_url }) => {
            let again = (users::display_name.eq(display_name), users::avatar_url.eq(avatar_url.as_deref()), seen);
            on_backend!(db, |db| inserted.set(again).returning(User::as_returning()).get_result(db))
        }
        None => on_backend!(db, |db| inserted.set(seen).returning(User::as_returning()).get_result(db)),
    };
    Ok(user?)
}

/// The user, if there is one.
pub fn find(db: &mut Db, id: &UserId) -> Result<Option<User>, DbError> {
    Ok(users::table.find(id.as_str()).select(User::as_select()).first(db).optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    #[test]
    fn an_account_is_one_user_and_keeps_its_id() {
        testing::on_each_database(|pool| {
            let profile = StoredProfile { display_name: "Ada".into(), avatar_url: Some("https://a.test/1.png".into()) };
            let platform_id = PlatformId::from("76561198000000001");
            let sign_in = |id: &str, profile: Option<&StoredProfile>, at| {
                pool.write_blocking(|db| super::sign_in(db, &id.into(), &platform_id, profile, at)).unwrap()
            };

            let first = sign_in("user-1", None, now());
            assert_eq!((first.display_name.as_str(), first.avatar_url.as_deref()), ("76561198000000001", None));

            let second = sign_in("user-2", Some(&profile), later(1));
            assert_eq!(second.id, UserId::from("user-1"));
            assert_eq!((second.display_name.as_str(), &second.avatar_url), ("Ada", &profile.avatar_url));
            assert_eq!((second.created_at, second.last_seen_at), (now(), later(1)));

            let third = sign_in("user-3", None, later(2));
            assert_eq!(third, User { last_seen_at: later(2), ..second });
            let read = |id: &str| pool.read_blocking(|db| find(db, &id.into())).unwrap();
            assert_eq!(read("user-1"), Some(third));
            assert_eq!(read("user-2"), None);
        });
    }
}
