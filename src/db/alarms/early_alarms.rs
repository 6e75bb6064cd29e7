//! Alarms on their way to the channels without the database: a sleeper is woken also while it is stuck.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{
    db::{alarms::incidents::StoredIncident, notices::early_changes::EarlyChanges},
    domain::ids::ServerId,
};

/// Alarms that wait to be taken: a burst of all servers. Others ring once the database has them.
const MOST: usize = 10_000;

/// An alarm that opened an incident.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyAlarm {
    pub server: ServerId,
    pub incident: StoredIncident,
    /// The database has it, and may be stuck since.
    pub is_stored: bool,
}

/// The alarms that wait to be taken, and what changed since their watchers were read.
#[derive(Default)]
pub struct EarlyAlarms {
    waiting: Mutex<VecDeque<EarlyAlarm>>,
    news: Notify,
    /// Changes since it was read who is reached.
    pub changes: EarlyChanges,
}

impl EarlyAlarms {
    /// Adds an incident that was opened just now. Beyond the bound it is left to the database.
    pub fn add(&self, alarm: EarlyAlarm) {
        let mut waiting = self.waiting();
        if waiting.len() < MOST {
            waiting.push_back(alarm);
            self.news.notify_one();
        } else if !alarm.is_stored {
            let incident = alarm.incident.id.as_str();
            log::warn!(incident; "an alarm waits for the database to be sent by channels: too many came at once");
        }
    }

    /// Waits until there are any, and takes all.
    pub async fn take(&self) -> Vec<EarlyAlarm> {
        loop {
            let taken: Vec<EarlyAlarm> = self.waiting().drain(..).collect();
            if !taken.is_empty() {
                return taken;
            }
            self.news.notified().await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<EarlyAlarm>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
