//! The time of day, as an argument that tests can set.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{Duration, SubsecRound, Utc};

use crate::domain::time::Timestamp;

/// The system's clock, or one that only moves when it is advanced. Clones share the time.
#[derive(Clone, Debug)]
pub struct Clock(Option<Arc<Mutex<Timestamp>>>);

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock at `start` that only moves when advanced: for tests and the demo.
    pub fn adjustable(start: Timestamp) -> Self {
        Self(Some(Arc::new(Mutex::new(start))))
    }

    /// Now, cut to microseconds: what is stored is then equal to what is read back.
    pub fn now(&self) -> Timestamp {
        let now = match &self.0 {
            None => Utc::now(),
            Some(adjusted) => *adjusted.lock().unwrap_or_else(PoisonError::into_inner),
        };
        now.trunc_subsecs(6)
    }

    /// Moves an adjustable clock. The system's clock goes its own way and is left alone.
    pub fn advance(&self, by: Duration) {
        if let Some(adjusted) = &self.0 {
            *adjusted.lock().unwrap_or_else(PoisonError::into_inner) += by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjustable_clock_moves_when_advanced_and_its_clones_with_it() {
        let start = chrono::DateTime::from_timestamp(1_800_000_000, 123_456_789).unwrap();
        let clock = Clock::adjustable(start);
        let clone = clock.clone();
        assert_eq!(clock.now().timestamp_subsec_nanos(), 123_456_000);
        clock.advance(Duration::seconds(5));
        assert_eq!(clone.now().timestamp(), 1_800_000_005);
    }
}
