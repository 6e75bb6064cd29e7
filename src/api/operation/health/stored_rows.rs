//! Reads all rows of the database again and again, with the references between them: each minute while that is quick, at
//! least once an hour, and soon after a query met one that cannot be read.

use std::{
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use crate::{
    api::context::ApiContext,
    db::{
        engine::{
            error::{DbError, MET_UNREADABLE},
            query_failures::log_failure,
        },
        row_checks::{ROW_CHECKS, UnreadableRow},
        row_references,
    },
    domain::look_rest::{SHORTEST, rest_after},
};

/// The longest rest between two looks while some rows cannot be read.
const EVERY_UNREADABLE: Duration = Duration::from_secs(600);
/// Rest after each batch of rows, so that others get their turn.
const REST: Duration = Duration::from_millis(20);
/// Rows that are named in the log; the rest is counted.
const NAMED: usize = 100;

impl ApiContext {
    /// Looks without end.
    pub async fn watch_rows(&self) {
        let (mut known, mut known_left_out) = (Vec::new(), 0);
        loop {
            let began = Instant::now();
            let looked = self.unreadable_rows_now().await;
            let took = began.elapsed();
            let is_complete = looked.is_ok();
            match looked {
                Ok(RowsFound { unreadable: found, damage, left_out }) => {
                    self.count_unreadable(found.len());
                    self.report_damage(damage);
                    let news = found.iter().filter(|row| !known.contains(*row));
                    news.take(NAMED).for_each(|row| log::error!("{row}; see docs/alerts.md, CompanionRowsUnreadable"));
                    known = found;
                    if left_out > 0 && known_left_out == 0 {
                        log::warn!("{}", row_references::left_out(left_out));
                    }
                    known_left_out = left_out;
                }
                Err(error) => log_failure("the rows of the database could not all be read", &error),
            }
            let is_well = !self.is_damaged() && self.health.unreadable_rows.load(Ordering::Relaxed) == 0;
            let (least, more) = until_next(is_complete, is_well, took);
            sleep(least).await;
            let _ = timeout(more, MET_UNREADABLE.notified()).await;
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
        for reference in self.pool.read(row_references::all).await? {
            match self.pool.read(move |db| row_references::check(db, &reference)).await {
                Err(error @ DbError::Damaged(_)) => {
                    found.damage.get_or_insert_with(|| error.to_string());
                }
                Err(error) if error.is_out_of_time() => found.left_out += 1,
                Ok(()) => {}
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
    /// References whose tables take too long.
    left_out: usize,
}

/// The least time until the next look after one that took so long, and for how long after it a query that meets an
/// unreadable row brings it on.
fn until_next(is_complete: bool, is_well: bool, took: Duration) -> (Duration, Duration) {
    let rest = rest_after(took);
    match (is_complete, is_well) {
        (false, _) => (SHORTEST, Duration::ZERO),
        (true, false) => (rest.min(EVERY_UNREADABLE), Duration::ZERO),
        (true, true) => (SHORTEST, rest.saturating_sub(SHORTEST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_repeated_after_a_minute_if_it_failed_or_was_quick() {
        let [quick, slow] = [2, 60].map(Duration::from_secs);
        for is_well in [false, true] {
            assert_eq!(until_next(false, is_well, slow), (SHORTEST, Duration::ZERO));
            assert_eq!(until_next(true, is_well, quick), (SHORTEST, Duration::ZERO));
        }
        assert_eq!(until_next(true, false, slow), (EVERY_UNREADABLE, Duration::ZERO));
        assert_eq!(until_next(true, true, slow), (SHORTEST, Duration::from_secs(1_740)));
    }
}
