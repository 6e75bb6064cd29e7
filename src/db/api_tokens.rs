//! A user's tokens for programs of their own: what each may do, and the hash by which it is found.

use chrono::Duration;

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*, stored_server::StoredServer},
        schema::{api_tokens, users},
    },
    domain::{
        ids::{ApiTokenId, ServerId, UserId},
        time::Timestamp,
        token_scope::TokenScopes,
    },
};

/// The precision of the stored last use.
const TOUCH_INTERVAL: Duration = Duration::minutes(1);

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = api_tokens)]
pub struct ApiToken {
    #[diesel(deserialize_as = String)]
    pub id: ApiTokenId,
    #[diesel(deserialize_as = String)]
    pub user_id: UserId,
    pub label: String,
    #[diesel(deserialize_as = String)]
    pub scopes: TokenScopes,
    /// The one server that it is for; `None`: all of its user's.
    #[diesel(column_name = server_id, deserialize_as = StoredServer)]
    pub server: Option<ServerId>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl ApiToken {
    /// True if [`touch`] would write.
    pub fn wants_touch(&self, now: Timestamp) -> bool {
        self.last_used_at.is_none_or(|at| at <= now - TOUCH_INTERVAL)
    }

    /// True if it has ended.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Adds a token whose secret has this hash, unless its user has `most` already; true if it was added.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn insert(db: &mut Db, token: &ApiToken, token_hash: &str, most: usize) -> Result<bool, DbError> {
    let user = token.user_id.as_str();
    // Locks the user's row: two requests at once could otherwise both see room.
    diesel::update(users::table.find(user)).set(users::id.eq(users::id)).execute(db)?;
    let count: i64 = api_tokens::table.filter(api_tokens::user_id.eq(user)).count().get_result(db)?;
    if usize::try_from(count).is_ok_and(|count| count >= most) {
        return Ok(false);
    }
    diesel::insert_into(api_tokens::table)
        .values((
            api_tokens::id.eq(token.id.as_str()),
            api_tokens::user_id.eq(user),
            api_tokens::token_hash.eq(token_hash),
            api_tokens::label.eq(&token.label),
            api_tokens::scopes.eq(token.scopes.text()),
            api_tokens::server_id.eq(token.server.as_ref().map(ServerId::as_str)),
            api_tokens::created_at.eq(token.created_at),
            api_tokens::expires_at.eq(token.expires_at),
        ))
        .execute(db)?;
    Ok(true)
}

/// The token whose secret has this hash, if it has not ended.
pub fn find(db: &mut Db, token_hash: &str, now: Timestamp) -> Result<Option<ApiToken>, DbError> {
    let token = api_tokens::table
        .filter(api_tokens::token_hash.eq(token_hash))
        .select(ApiToken::as_select())
        .first(db)
        .optional()?;
    Ok(token.filter(|token| !token.is_expired(now)))
}

/// The tokens among these that have not expired, with their users.
pub fn owners(db: &mut Db, ids: &[ApiTokenId], now: Timestamp) -> Result<Vec<(ApiTokenId, UserId)>, DbError> {
    let tokens: Vec<ApiToken> = api_tokens::table
        .filter(api_tokens::id.eq_any(ids.iter().map(ApiTokenId::as_str)))
        .select(ApiToken::as_select())
        .load(db)?;
    let living = tokens.into_iter().filter(|token| !token.is_expired(now));
    Ok(living.map(|token| (token.id, token.user_id)).collect())
}

/// The user's tokens, oldest first, also those that have ended.
pub fn list(db: &mut Db, user: &UserId) -> Result<Vec<ApiToken>, DbError> {
    let tokens = api_tokens::table
        .filter(api_tokens::user_id.eq(user.as_str()))
        .order((api_tokens::created_at, api_tokens::id))
        .select(ApiToken::as_select())
        .load(db)?;
    Ok(tokens)
}

/// Stores that the token was used; writes at most once a minute.
pub fn touch(db: &mut Db, id: &ApiTokenId, now: Timestamp) -> Result<(), DbError> {
    let stale =
        api_tokens::last_used_at.is_null().or(api_tokens::last_used_at.le(now - TOUCH_INTERVAL).assume_not_null());
    diesel::update(api_tokens::table.find(id.as_str()).filter(stale))
        .set(api_tokens::last_used_at.eq(now))
        .execute(db)?;
    Ok(())
}

/// Deletes the user's token; false when they have no such token.
pub fn delete(db: &mut Db, user: &UserId, id: &ApiTokenId) -> Result<bool, DbError> {
    let token = api_tokens::table.find(id.as_str()).filter(api_tokens::user_id.eq(user.as_str()));
    Ok(diesel::delete(token).execute(db)? == 1)
}

/// Deletes the user's tokens that are for this server only.
pub fn delete_of_server(db: &mut Db, user: &UserId, server: &ServerId) -> Result<(), DbError> {
    let tokens = api_tokens::table
        .filter(api_tokens::server_id.eq(server.as_str()))
        .filter(api_tokens::user_id.eq(user.as_str()));
    diesel::delete(tokens).execute(db)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::{
            engine::pool::Pool,
            testing::{self, later, now},
        },
        domain::token_scope::TokenScope,
    };

    fn token(id: &str, user: &str) -> ApiToken {
        ApiToken {
            id: id.into(),
            user_id: user.into(),
            label: "Stream deck".into(),
            scopes: [TokenScope::Devices].into_iter().collect(),
            server: None,
            created_at: now(),
            expires_at: None,
            last_used_at: None,
        }
    }

    fn add(pool: &Pool, token: &ApiToken) -> bool {
        pool.write_blocking(|db| insert(db, token, &format!("hash of {}", token.id), 3)).unwrap()
    }

    fn found(pool: &Pool, id: &str, at: Timestamp) -> Option<ApiToken> {
        pool.read_blocking(|db| find(db, &format!("hash of {id}"), at)).unwrap()
    }

    #[test]
    fn a_token_is_found_until_it_ends_or_its_user_deletes_it() {
        testing::on_each_database(|pool| {
            for user in ["user", "other"] {
                testing::user(pool, user);
            }
            let (stays, ends) = (token("a", "user"), ApiToken { expires_at: Some(later(60)), ..token("b", "user") });
            assert!(add(pool, &stays) && add(pool, &ends) && add(pool, &token("c", "user")));
            assert!(!add(pool, &token("d", "user")), "three at the most");
            assert!(add(pool, &token("e", "other")));
            assert_eq!(found(pool, "a", later(1_000_000)), Some(stays.clone()));
            assert_eq!((found(pool, "b", later(59)), found(pool, "b", later(60))), (Some(ends.clone()), None));
            let owners = |at| {
                let owners = pool.read_blocking(|db| owners(db, &["a".into(), "b".into(), "none".into()], at)).unwrap();
                owners.into_iter().map(|(id, _)| id.to_string()).collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!((owners(later(59)).len(), owners(later(60)).len()), (2, 1));
            let list = pool.read_blocking(|db| list(db, &"user".into())).unwrap();
            assert_eq!(list[..2], [stays, ends]);

            let delete = |user: &str| pool.write_blocking(|db| delete(db, &user.into(), &"a".into())).unwrap();
            assert!(!delete("other") && delete("user") && !delete("user"));
            assert_eq!(found(pool, "a", now()), None);
        });
    }

    #[test]
    fn a_token_of_one_server_ends_with_it_or_with_the_access() {
        testing::on_each_database(|pool| {
            for user in ["user", "other"] {
                testing::user(pool, user);
            }
            let server = testing::server(pool, "user", "one").id;
            let of_server = |id, user| ApiToken { server: Some(server.clone()), ..token(id, user) };
            assert!(add(pool, &of_server("a", "user")) && add(pool, &of_server("b", "other")));
            assert!(add(pool, &token("c", "other")));
            pool.write_blocking(|db| delete_of_server(db, &"other".into(), &server)).unwrap();
            let left = || ["a", "b", "c"].map(|id| found(pool, id, now()).is_some());
            assert_eq!(left(), [true, false, true]);
            pool.write_blocking(|db| crate::db::paired_servers::delete(db, &"user".into(), &server)).unwrap();
            assert_eq!(left(), [false, false, true]);
        });
    }

    #[test]
    fn the_last_use_is_stored_to_the_minute() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            assert!(add(pool, &token("a", "user")));
            for (at, stored) in [(0, 0), (59, 0), (60, 60)] {
                let wants = found(pool, "a", now()).unwrap().wants_touch(later(at));
                assert_eq!(wants, at == stored);
                pool.write_blocking(|db| touch(db, &"a".into(), later(at))).unwrap();
                assert_eq!(found(pool, "a", now()).unwrap().last_used_at, Some(later(stored)));
            }
        });
    }
}
