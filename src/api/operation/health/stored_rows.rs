//! Reads all rows of the database once an hour, with the ties between them, and soon after a query met one that cannot be read.

use std::{
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use crate::{
    api::context::ApiContext,
    db::{
        engine::error::{DbError, MET_UNREADABLE},
        query_failures::log_failure,
        row_checks::{ROW_CHECKS, UnreadableRow},
        ties,
    },
};

/// Time between two looks, and while some rows cannot be read.
const EVERY: Duration = Duration::from_secs(3_600);
const EVERY_UNREADABLE: Duration = Duration::from_secs(600);
/// The least time between two.
const PAUSE: Duration = Duration::from_secs(60);
/// Rest after each batch of rows, so that others get their turn.
const REST: Duration = Duration::from_millis(20);
/// Rows that are named in the log; the rest is counted.
const NAMED: usize = 100;

impl ApiContext {
    /// Looks without end.
    pub async fn watch_rows(&self) {
        let mut known = Vec::new();
        loop {
            match self.unreadable_rows_now().await {
                Ok(RowsFound { unreadable: found, damage }) => {
                    self.count_unreadable(found.len());
                    self.report_damage(damage);
                    let news = found.iter().filter(|row| !known.contains(*row));
                    news.take(NAMED)
                        .for_each(|row| log::error!("{row}; see docs/operations.md, CompanionRowsUnreadable"));
                    known = found;
                }
                Err(error) => log_failure("the rows of the database could not all be read", &error),
            }
            if !self.is_damaged() && self.health.unreadable_rows.load(Ordering::Relaxed) == 0 {
                sleep(PAUSE).await;
                let _ = timeout(EVERY, MET_UNREADABLE.notified()).await;
            } else {
                sleep(EVERY_UNREADABLE).await;
            }
        }
    }

    fn count_unreadable(&self, rows: usize) {
        self.health.unreadable_rows.store(rows, Ordering::Relaxed);
        metrics::gauge!("companion_rows_unreadable").set(rows as f64);
    }

    /// Logs the damage when it changes.
    fn report_damage(&self, damage: Option<String>) {
        let mut known = self.health.damage.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != damage {
            match &damage {
                Some(damage) => log::error!("{damage}: A database that is damaged"),
                None => log::info!("all pages of the database can be read again"),
            }
            *known = damage;
        }
    }

    async fn unreadable_rows_now(&self) -> Result<RowsFound, DbError> {
        let mut found = RowsFound::default();
        for check in ROW_CHECKS {
            let mut after: Option<String> = None;
            loop {
                match self.pool.read(move |db| (check.next)(db, after.as_deref())).await {
                    Ok(Some(keys)) => {
                        after = Some(keys.last.clone());
                        found.unreadable.extend(check.found(keys));
                    }
                    Ok(None) => break,
                    // The rows behind it in this table are not read.
                    Err(error @ DbError::Damaged(_)) => {
                        found.damage.get_or_insert_with(|| format!("table {}: {error}", check.table));
                        break;
                    }
                    Err(error) => return Err(error),
                }
                sleep(REST).await;
            }
        }
        for tie in self.pool.read(ties::all).await? {
            match self.pool.read(move |db| ties::check(db, &tie)).await {
                Err(error @ DbError::Damaged(_)) => {
                    found.damage.get_or_insert_with(|| error.to_string());
                }
                // Two tables that take too long are left out.
                Ok(()) | Err(DbError::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
            sleep(REST).await;
        }
        Ok(found)
    }
}

/// Outcome of a look at all rows.
#[derive(Default)]
struct RowsFound {
    unreadable: Vec<UnreadableRow>,
    /// The first table with a page that is damaged, and how.
    damage: Option<String>,
}
