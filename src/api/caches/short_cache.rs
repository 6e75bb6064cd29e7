//! An answer that many ask for and that takes a while: computed once at a time, and kept for a moment.

use std::sync::Arc;

use chrono::TimeDelta;
use tokio::sync::Mutex;

use crate::{api::answer::error::ApiError, clock::Clock, domain::time::Moment};

/// See the module.
pub struct ShortCache<T> {
    kept_for: TimeDelta,
    value: Mutex<Option<(Moment, Arc<T>)>>,
}

impl<T> ShortCache<T> {
    /// Keeps each value for this long.
    pub fn new(kept_for: TimeDelta) -> Self {
        Self { kept_for, value: Mutex::new(None) }
    }

    /// The value, computed if the last one is too old. Callers meanwhile wait for the same one; an error is not kept.
    pub async fn get<F>(&self, clock: &Clock, compute: impl FnOnce() -> F) -> Result<Arc<T>, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let mut value = self.value.lock().await;
        if let Some((at, value)) = &*value
            && clock.moment() - *at < self.kept_for
        {
            return Ok(value.clone());
        }
        let at = clock.moment();
        let new = Arc::new(compute().await?);
        *value = Some((at, new.clone()));
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn many_who_ask_at_once_get_one_computation_and_an_error_is_not_kept() {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let (cache, computed) = (ShortCache::new(TimeDelta::seconds(10)), AtomicUsize::new(0));
        let failed = cache.get(&clock, || async { Err(ApiError::NotFound) }).await;
        assert!(matches!(failed, Err(ApiError::NotFound)));
        let ask = || {
            cache.get(&clock, || async {
                tokio::task::yield_now().await;
                Ok(computed.fetch_add(1, Ordering::Relaxed))
            })
        };
        let values = join_all((0..9).map(|_| ask())).await;
        assert!(values.iter().all(|value| **value.as_ref().unwrap() == 0));
        clock.advance(TimeDelta::milliseconds(9_999));
        assert_eq!(*ask().await.unwrap(), 0);
        clock.advance(TimeDelta::milliseconds(1));
        assert_eq!(*ask().await.unwrap(), 1);
    }
}
