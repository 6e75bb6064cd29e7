//! When a session or token was last used.

use std::time::Duration;

use tokio::time::timeout;

use crate::db::engine::error::DbError;

/// Longest wait of a request for a database that takes nothing.
const STORED_WITHIN: Duration = Duration::from_millis(200);

/// Stores it, but not for long. It is not worth failing a request for: the next one tries again.
pub async fn touch(write: impl Future<Output = Result<(), DbError>>) {
    match timeout(STORED_WITHIN, write).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::warn!("a last use was not stored: {error}"),
        Err(_) => log::warn!("a last use was not stored in time"),
    }
}
