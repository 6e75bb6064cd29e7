//! Users, by their account at the identity provider.

use crate::{
    db::{
        daily_counts,
        engine::{error::DbError, pool::Db, prelude::*},
        schema::users,
        user_search,
    },
    domain::{
        ids::{PlatformId, UserId},
        player_name::NameKey,
        time::Timestamp,
    },
};

/// An account, by the id that the service gave it.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = users)]
pub struct User {
    #[diesel(deserialize_as = String)]
    pub id: UserId,
    #[diesel(deserialize_as = String)]
    pub platform_id: PlatformId,
    pub display_name: String,
    pub avatar_url: Option<String>,
    pub created_at: Timestamp,
    pub last_seen_at: Timestamp,
    /// Name in the IANA database.
    pub time_zone: Option<String>,
    /// Language tag (BCP 47).
    pub locale: Option<String>,
}

/// Change by a user of their own preferences; an inner `None` removes a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, AsChangeset)]
#[diesel(table_name = users)]
pub struct PreferenceChange {
    pub time_zone: Option<Option<String>>,
    pub locale: Option<Option<String>>,
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
        users::created_at.eq(now),
        users::last_seen_at.eq(now),
    );
    let seen = users::last_seen_at.eq(now);
    let inserted = diesel::insert_into(users::table).values(first).on_conflict(users::platform_id).do_update();
    let user = match profile {
        Some(StoredProfile { display_name, avatar_url }) => {
            let again = (users::display_name.eq(display_name), users::avatar_url.eq(avatar_url.as_deref()), seen);
            on_backend!(db, |db| inserted.set(again).returning(User::as_returning()).get_result(db))
        }
        None => on_backend!(db, |db| inserted.set(seen).returning(User::as_returning()).get_result(db)),
    };
    let user: User = user?;
    user_search::put(db, &user.id, &user.platform_id, &user.display_name)?;
    daily_counts::seen(db, &user.id, now)?;
    Ok(user)
}

/// Number of users whose account or a word of whose name begins so (`None`: all), and at most `limit` of them, the
/// newest first; with `before`, of those that are older than that one.
pub fn search(
    db: &mut Db,
    start: Option<&NameKey>,
    before: Option<&UserId>,
    limit: i64,
    offset: i64,
) -> Result<(i64, Vec<User>), DbError> {
    let newest = users::table.order(users::id.desc()).select(User::as_select());
    let Some(start) = start else {
        let page = newest.limit(limit).offset(offset);
        let page = match before {
            Some(before) => page.filter(users::id.lt(before.as_str())).load(db)?,
            None => page.load(db)?,
        };
        return Ok((count(db)?, page));
    };
    let (total, ids) = user_search::find(db, start, before, limit, offset)?;
    if ids.is_empty() {
        return Ok((total, Vec::new()));
    }
    Ok((total, newest.filter(users::id.eq_any(ids.iter().map(UserId::as_str))).load(db)?))
}

/// The user, if there is one.
pub fn find(db: &mut Db, id: &UserId) -> Result<Option<User>, DbError> {
    Ok(users::table.find(id.as_str()).select(User::as_select()).first(db).optional()?)
}

/// Changes the user's preferences; the user as it is then, or `NotFound`.
pub fn change(db: &mut Db, id: &UserId, change: &PreferenceChange) -> Result<User, DbError> {
    if *change != PreferenceChange::default() {
        diesel::update(users::table.find(id.as_str())).set(change).execute(db)?;
    }
    find(db, id)?.ok_or(DbError::NotFound)
}

/// Locks the user's row until the transaction ends: a transaction that counts what a user has waits here for one that
/// adds to it. Lock it before a server's. False: there is no such user.
pub fn lock(db: &mut Db, id: &UserId) -> Result<bool, DbError> {
    Ok(diesel::update(users::table.find(id.as_str())).set(users::id.eq(users::id)).execute(db)? == 1)
}

/// Locks the row of the user with this account, as [`lock`] does.
pub fn lock_account(db: &mut Db, account: &PlatformId) -> Result<bool, DbError> {
    let user = users::table.filter(users::platform_id.eq(account.as_str()));
    Ok(diesel::update(user).set(users::id.eq(users::id)).execute(db)? == 1)
}

/// Locks the user until the transaction ends: nothing that refers to them is added meanwhile. [`lock`] is not enough to
/// delete a user: PostgreSQL lets foreign keys through it, and after a rollback of one erasure the next would not see
/// them.
pub fn lock_out(db: &mut Db, id: &UserId) -> Result<(), DbError> {
    // SQLite has one writer.
    if let Db::Pg(db) = db {
        users::table.find(id.as_str()).select(users::id).for_update().execute(db)?;
    }
    Ok(())
}

/// The user with this account.
pub fn find_by_account(db: &mut Db, account: &PlatformId) -> Result<Option<UserId>, DbError> {
    let user = users::table.filter(users::platform_id.eq(account.as_str())).select(users::id);
    Ok(user.first::<String>(db).optional()?.map(UserId::from))
}

/// Number of users.
pub fn count(db: &mut Db) -> Result<i64, DbError> {
    Ok(users::table.count().get_result(db)?)
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

    #[test]
    fn members_are_found_by_the_start_of_a_word_or_account_whatever_else_is_typed() {
        testing::on_each_database(|pool| {
            for (id, name) in [("1", "[Wolf] Ada Löwe"), ("2", "ada_50%"), ("3", "Eve"), ("4", "Adalbert")] {
                let profile = StoredProfile { display_name: name.into(), avatar_url: None };
                let account = format!("7656119800000000{id}").into();
                pool.write_blocking(|db| sign_in(db, &id.into(), &account, Some(&profile), now())).unwrap();
            }
            let page = |text: &str, limit, offset| {
                let key = NameKey::of(text);
                let (total, users) = pool.read_blocking(|db| search(db, key.as_ref(), None, limit, offset)).unwrap();
                (total, users.into_iter().map(|user| user.id.to_string()).collect::<Vec<_>>())
            };
            let found = |text: &str| page(text, 9, 0).1;
            assert_eq!(found("ADA"), ["4", "2", "1"]);
            assert_eq!(found("löwe"), ["1"]);
            assert_eq!(found("LÖ"), ["1"]);
            assert_eq!(found("[wolf"), ["1"]);
            assert_eq!(found("76561198000000003"), ["3"]);
            assert_eq!(page("7656", 2, 1), (4, vec!["3".into(), "2".into()]));
            assert_eq!(page("", 2, 0), (4, vec!["4".into(), "3".into()]));
            for pattern in ["%", "_", "a%", "ad_", "*", "\\", "'", "x"] {
                assert_eq!(page(pattern, 9, 0), (0, vec![]), "{pattern}");
            }
            assert_eq!(found("50%"), ["2"]);
            let renamed = StoredProfile { display_name: "Zoe".into(), avatar_url: None };
            let account = "76561198000000001".into();
            pool.write_blocking(|db| sign_in(db, &"x".into(), &account, Some(&renamed), now())).unwrap();
            assert_eq!((found("ada"), found("zoe")), (vec!["4".to_owned(), "2".into()], vec!["1".to_owned()]));
        });
    }
}
