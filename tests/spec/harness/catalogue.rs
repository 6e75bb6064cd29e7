//! The catalogue of items, which all services of a process share.

use tokio::sync::{Mutex, MutexGuard};

static CATALOGUE: Mutex<()> = Mutex::const_new(());

/// No other test changes the catalogue, or compares all of it, until this is dropped.
pub async fn alone() -> MutexGuard<'static, ()> {
    CATALOGUE.lock().await
}
