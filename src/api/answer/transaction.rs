//! A transaction that may refuse with any error of the API, which undoes it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    api::answer::error::ApiError,
    db::engine::{
        error::DbError,
        pool::{Db, Pool},
    },
};

/// Changes the database, and tells others once it is committed, as [`Pool::write_and_tell`] does.
pub async fn write_and_tell<T, F>(pool: &Pool, change: F, tell: impl FnOnce(&T) + Send + 'static) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: FnOnce(&mut Db) -> Result<T, ApiError> + Send + 'static,
{
    // Past the pool, which knows only errors of the database.
    let refusal = Arc::new(Mutex::new(None));
    let refused = refusal.clone();
    let transaction = move |db: &mut Db| {
        change(db).map_err(|error| {
            *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            DbError::Conflict
        })
    };
    pool.write_and_tell(transaction, tell).await.map_err(|error| {
        let refusal = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        refusal.unwrap_or_else(|| error.into())
    })
}
