//! Queries of the service's own that fail: while the database is away, one line of the log a minute says how many there
//! were, so that they do not hide everything else.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::db::engine::error::DbError;

/// Time between two lines about a database that is away.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// The lines about a database that is away.
#[derive(Debug)]
struct AwayLines {
    last: Option<Instant>,
    left_out: u64,
}

static LINES: Mutex<AwayLines> = Mutex::new(AwayLines { last: None, left_out: 0 });

/// Logs that a query of the service's own failed, and what that means. While the database is away, only the first failure
/// of a minute has a line, with the number of those before it that had none.
pub fn log_failure(meaning: &str, error: &DbError) {
    let DbError::Unavailable(_) = error else {
        log::warn!("{meaning}: {error}");
        return;
    };
    match LINES.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now()) {
        None => {}
        Some(0) => log::warn!("{meaning}: {error}"),
        Some(left_out) => {
            log::warn!(left_out; "{meaning}: {error}; {left_out} more queries failed since the last such line")
        }
    }
}

impl AwayLines {
    /// Takes the turn for a line: the number of failures since the last one. None while it is not due yet.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_one_line_with_the_number_of_those_that_were_left_out() {
        let (mut lines, began) = (AwayLines { last: None, left_out: 0 }, Instant::now());
        let taken = [0, 1, 59, 60, 61, 119, 121].map(|second| lines.take(began + Duration::from_secs(second)));
        assert_eq!(taken, [Some(0), None, None, Some(2), None, None, Some(2)]);
    }
}
