//! Browser sessions. The cookie holds the sealed id and the row everything else, so deleting the row ends every copy.

use chrono::Duration;

use crate::{
    db::{
        daily_counts,
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{sessions, users},
    },
    domain::{
        ids::{SessionId, UserId},
        retention::{IDLE_SESSION, SESSION},
        time::Timestamp,
    },
};

/// The precision of the stored last use.
const TOUCH_INTERVAL: Duration = Duration::minutes(1);

/// A browser that is signed in.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sessions)]
pub struct Session {
    #[diesel(deserialize_as = String)]
    pub id: SessionId,
    #[diesel(deserialize_as = String)]
    pub user_id: UserId,
    pub created_at: Timestamp,
    pub last_seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Session {
    /// True if [`touch`] would write.
    pub fn wants_touch(&self, now: Timestamp) -> bool {
        self.last_seen_at <= now - TOUCH_INTERVAL
    }
}

/// Adds a session that begins now.
pub fn insert(db: &mut Db, id: &SessionId, user: &UserId, now: Timestamp) -> Result<(), DbError> {
    diesel::insert_into(sessions::table)
        .values((
            sessions::id.eq(id.as_str()),
            sessions::user_id.eq(user.as_str()),
            sessions::created_at.eq(now),
            sessions::last_seen_at.eq(now),
            sessions::expires_at.eq(now + SESSION),
        ))
        .execute(db)?;
    Ok(())
}

/// Filter for sessions that have not ended.
#[diesel::dsl::auto_type(no_type_alias)]
fn goes_on(now: Timestamp) -> _ {
    let (now, idle_since): (Timestamp, Timestamp) = (now, (now - IDLE_SESSION));
    sessions::expires_at.gt(now).and(sessions::last_seen_at.gt(idle_since))
}

/// The session, unless it has ended.
pub fn find(db: &mut Db, id: &SessionId, now: Timestamp) -> Result<Option<Session>, DbError> {
    let session =
        sessions::table.find(id.as_str()).filter(goes_on(now)).select(Session::as_select()).first(db).optional()?;
    Ok(session)
}

/// True if the session exists. It is not deleted before the transaction ends.
pub fn lock(db: &mut Db, id: &SessionId) -> Result<bool, DbError> {
    let row = sessions::table.find(id.as_str()).select(sessions::id);
    let found: Option<String> = match db {
        Db::Pg(db) => row.for_key_share().first(db).optional()?,
        // There is one writer.
        Db::Sqlite(db) => row.first(db).optional()?,
    };
    Ok(found.is_some())
}

/// The sessions among these that have not ended, with their users.
pub fn owners(db: &mut Db, ids: &[SessionId], now: Timestamp) -> Result<Vec<(SessionId, UserId)>, DbError> {
    let owners: Vec<(String, String)> = sessions::table
        .filter(sessions::id.eq_any(ids.iter().map(SessionId::as_str)))
        .filter(goes_on(now))
        .select((sessions::id, sessions::user_id))
        .load(db)?;
    Ok(owners.into_iter().map(|(id, user)| (id.into(), user.into())).collect())
}

/// Stores that the session and its user were seen; writes at most once a minute.
pub fn touch(db: &mut Db, id: &SessionId, now: Timestamp) -> Result<(), DbError> {
    let touched =
        diesel::update(sessions::table.find(id.as_str()).filter(sessions::last_seen_at.le(now - TOUCH_INTERVAL)))
            .set(sessions::last_seen_at.eq(now))
            .execute(db)?;
    if touched == 1 {
        let user = sessions::table.find(id.as_str()).select(sessions::user_id);
        let user: Vec<String> = diesel::update(users::table.filter(users::id.eq_any(user)))
            .set(users::last_seen_at.eq(now))
            .returning(users::id)
            .load(db)?;
        for user in user {
            daily_counts::seen(db, &user.into(), now)?;
        }
    }
    Ok(())
}

/// Ends the session; false when there was none.
pub fn delete(db: &mut Db, id: &SessionId) -> Result<bool, DbError> {
    Ok(diesel::delete(sessions::table.find(id.as_str())).execute(db)? == 1)
}

/// The user's sessions that have not ended, the newest sign-in first.
pub fn list(db: &mut Db, user: &UserId, now: Timestamp) -> Result<Vec<Session>, DbError> {
    let own = sessions::table.filter(sessions::user_id.eq(user.as_str())).filter(goes_on(now));
    Ok(own.order((sessions::created_at.desc(), sessions::id.desc())).select(Session::as_select()).load(db)?)
}

/// Ends a session of this user; false when they have no such session.
pub fn delete_of(db: &mut Db, user: &UserId, id: &SessionId) -> Result<bool, DbError> {
    let own = sessions::table.find(id.as_str()).filter(sessions::user_id.eq(user.as_str()));
    Ok(diesel::delete(own).execute(db)? == 1)
}

/// Ends all sessions of a user but this one; returns them. `None` when this one has ended: then it ends no other.
pub fn delete_others(db: &mut Db, user: &UserId, kept: &SessionId) -> Result<Option<Vec<SessionId>>, DbError> {
    // Locked in one order: of two sessions that end each other, the second finds that it has ended.
    let all = sessions::table.filter(sessions::user_id.eq(user.as_str())).order(sessions::id).select(sessions::id);
    let mut all: Vec<String> = match db {
        Db::Pg(db) => all.for_update().load(db)?,
        // There is one writer.
        Db::Sqlite(db) => all.load(db)?,
    };
    let Some(place) = all.iter().position(|id| id == kept.as_str()) else { return Ok(None) };
    all.remove(place);
    diesel::delete(sessions::table.filter(sessions::id.eq_any(&all))).execute(db)?;
    Ok(Some(all.into_iter().map(SessionId::from).collect()))
}

/// Ends all sessions of a user; returns them.
pub fn delete_all(db: &mut Db, user: &UserId) -> Result<Vec<SessionId>, DbError> {
    let all = sessions::table.filter(sessions::user_id.eq(user.as_str()));
    let ended: Vec<String> = diesel::delete(all).returning(sessions::id).load(db)?;
    Ok(ended.into_iter().map(SessionId::from).collect())
}

/// Deletes a batch of the sessions that have ended; returns how many.
pub fn purge(db: &mut Db, now: Timestamp) -> Result<usize, DbError> {
    let over = purge_oldest!(db, sessions, expires_at, now);
    Ok(over + purge_oldest!(db, sessions, last_seen_at, now - IDLE_SESSION))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{
        engine::pool::Pool,
        testing::{self, now},
        users,
    };

    fn session_of(pool: &Pool, at: Timestamp) -> Option<Session> {
        let session = pool.read_blocking(|db| find(db, &"session".into(), at)).unwrap();
        let owners = pool.read_blocking(|db| owners(db, &["none".into(), "session".into()], at)).unwrap();
        let owner = session.iter().map(|session| (session.id.clone(), session.user_id.clone()));
        assert_eq!(owners, owner.collect::<Vec<_>>());
        session
    }

    fn begin(pool: &Pool) {
        testing::user(pool, "user");
        pool.write_blocking(|db| insert(db, &"session".into(), &"user".into(), now())).unwrap();
    }

    fn touch_at(pool: &Pool, at: Timestamp) {
        pool.write_blocking(|db| touch(db, &"session".into(), at)).unwrap();
    }

    #[test]
    fn a_session_ends_14_days_after_its_last_use_and_30_days_after_sign_in() {
        testing::on_each_database(|pool| {
            begin(pool);
            let before = Duration::microseconds(1);
            assert!(session_of(pool, now() + IDLE_SESSION - before).is_some());
            assert!(session_of(pool, now() + IDLE_SESSION).is_none());

            touch_at(pool, now() + Duration::days(13));
            touch_at(pool, now() + Duration::days(26));
            assert!(session_of(pool, now() + SESSION - before).is_some());
            assert!(session_of(pool, now() + SESSION).is_none());
        });
    }

    #[test]
    fn the_last_use_of_session_and_user_is_stored_to_the_minute() {
        testing::on_each_database(|pool| {
            begin(pool);
            let (soon, later) = (now() + Duration::seconds(59), now() + Duration::seconds(60));
            touch_at(pool, soon);
            let session = session_of(pool, soon).unwrap();
            assert_eq!(session.last_seen_at, now());
            assert!(!session.wants_touch(soon) && session.wants_touch(later));
            touch_at(pool, later);
            assert_eq!(session_of(pool, later).unwrap().last_seen_at, later);
            let user = pool.read_blocking(|db| users::find(db, &"user".into())).unwrap().unwrap();
            assert_eq!(user.last_seen_at, later);
        });
    }

    #[test]
    fn a_deleted_session_is_gone_and_purging_takes_only_what_is_over() {
        testing::on_each_database(|pool| {
            begin(pool);
            let purge_at = |at| pool.write_blocking(|db| purge(db, at)).unwrap();
            assert_eq!(purge_at(now() + Duration::days(13)), 0);
            let delete = || pool.write_blocking(|db| delete(db, &"session".into())).unwrap();
            assert!(delete());
            assert!(session_of(pool, now()).is_none());
            assert!(!delete());
            pool.write_blocking(|db| insert(db, &"session".into(), &"user".into(), now())).unwrap();
            assert_eq!(purge_at(now() + IDLE_SESSION), 1);
        });
    }

    #[test]
    fn a_user_lists_and_ends_their_own_sessions_and_one_that_has_ended_ends_no_other() {
        testing::on_each_database(|pool| {
            begin(pool);
            testing::user(pool, "other");
            let at = |minutes| now() + Duration::minutes(minutes);
            for (id, user, minutes) in [("second", "user", 1), ("third", "user", 2), ("foreign", "other", 3)] {
                pool.write_blocking(|db| insert(db, &id.into(), &user.into(), at(minutes))).unwrap();
            }
            let known = |user: &str| {
                let known = pool.read_blocking(|db| list(db, &user.into(), at(4))).unwrap();
                known.into_iter().map(|session| session.id.to_string()).collect::<Vec<_>>()
            };
            assert_eq!(known("user"), ["third", "second", "session"]);
            let end = |id: &str| pool.write_blocking(|db| delete_of(db, &"user".into(), &id.into())).unwrap();
            assert_eq!(["foreign", "none", "second", "second"].map(end), [false, false, true, false]);
            let end_others =
                |id: &str| pool.write_blocking(|db| delete_others(db, &"user".into(), &id.into())).unwrap();
            assert_eq!(end_others("second"), None, "it has ended");
            assert_eq!(known("user"), ["third", "session"]);
            assert_eq!(end_others("session"), Some(vec!["third".into()]));
            assert_eq!((known("user"), known("other")), (vec!["session".into()], vec!["foreign".into()]));
        });
    }

    #[test]
    fn a_session_needs_a_user_and_two_cannot_share_an_id() {
        testing::on_each_database(|pool| {
            let insert = |user: &str| pool.write_blocking(|db| insert(db, &"session".into(), &user.into(), now()));
            assert!(matches!(insert("stranger"), Err(DbError::Conflict)));
            testing::user(pool, "user");
            insert("user").unwrap();
            assert!(matches!(insert("user"), Err(DbError::Conflict)));
        });
    }
}
