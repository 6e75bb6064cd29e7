//! Emergencies at Pushover whose channel or paired server was deleted, or whose user was erased: their rows are gone, and
//! they are kept here until they are ended. After the end of the process they end by themselves.

use std::sync::{Mutex, PoisonError};

use crate::db::alarms::emergencies::OrphanedEmergency;

/// Emergencies that wait; a user has few, and each ends by itself after some minutes.
const WAITING: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub struct OrphanedEmergencies(Mutex<Vec<OrphanedEmergency>>);

impl OrphanedEmergencies {
    /// These are to be ended, as far as there is room.
    pub fn add(&self, orphaned: impl IntoIterator<Item = OrphanedEmergency>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(orphaned);
        let surplus = waiting.len().saturating_sub(WAITING);
        if surplus > 0 {
            waiting.truncate(WAITING);
            log::warn!(emergencies = surplus; "emergencies of deleted channels are not ended, and end by themselves");
        }
    }

    /// All that wait; they wait no longer.
    pub fn take(&self) -> Vec<OrphanedEmergency> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
