//! The stored ledger, taken up at the start. An alarm does not wait for that: one that rings meanwhile is merged with
//! it.

use std::{collections::BTreeSet, rc::Rc};

use tokio::{select, time::timeout_at};

use super::{AlarmDelivery, IncidentNews, PushedAlarm};
use crate::{
    db::{
        alarms,
        engine::{error::DbError, pool::Db},
        incidents::{self, LedgerWrite, StoredIncident, UNHEARD},
        spoken_alarms,
        start_reads::read_until_answered,
    },
    domain::{
        ids::ServerId,
        incident::Raid,
        raid::{self, IncidentChange, LATE, MergedIncident},
        spoken_alarm::is_unsaid,
        time::Timestamp,
    },
    relay::alarms::received_at::ReceivedAt,
};

/// Earlier pushes that are remembered as taken up.
const TAKEN_UP_BEFORE: usize = 200;

/// Rows of the ledger of a server at the start.
struct StoredAlarms {
    incidents: Vec<StoredIncident>,
    waiting: Vec<alarms::WaitingPush>,
    taken_up: Vec<String>,
    unsaid: Vec<Raid>,
}

/// The alarms of earlier processes that are to be gone on with.
pub struct LoadedAlarms {
    pub news: IncidentNews,
    /// Pushes that are in no incident yet.
    pub pushes: Vec<PushedAlarm>,
    /// Alarms whose lines in the team's chat were not said when the previous process ended.
    pub unsaid: Vec<Raid>,
}

/// The alarms among these whose lines in the team's chat are to be said by this process.
fn unsaid(db: &mut Db, server: &ServerId, incidents: &[StoredIncident], now: Timestamp) -> Result<Vec<Raid>, DbError> {
    let mut unsaid = Vec::new();
    for StoredIncident { id, incident, .. } in incidents {
        // Most are too old for a question.
        let may_be = !incident.late && !incident.drill && is_unsaid(incident.first_at, None, now);
        if may_be && is_unsaid(incident.first_at, spoken_alarms::get(db, server, id)?, now) {
            unsaid.push(Raid::new(id, incident, false));
        }
    }
    Ok(unsaid)
}

impl AlarmDelivery {
    /// Takes up the incidents of the last day from the ledger. Tries until the database answers.
    pub async fn load(self: Rc<Self>) -> LoadedAlarms {
        let (server, clock) = (self.server.clone(), self.context.clock.clone());
        let read = move |db: &mut Db| {
            let now = clock.now();
            let incidents = incidents::shown(db, &server, now)?;
            Ok(StoredAlarms {
                unsaid: unsaid(db, &server, &incidents, now)?,
                incidents,
                waiting: alarms::waiting(db, &server)?,
                taken_up: alarms::newest_finished(db, &server, TAKEN_UP_BEFORE)?,
            })
        };
        let stored = read_until_answered(&self.context.pool, &self.context.random, "the ledger of alarms", read).await;
        self.taken_up.borrow_mut().extend(stored.taken_up);
        let changes = self.restore(stored.incidents);
        self.known.set(true);
        self.is_known.notify_waiters();
        self.changed.notify_one();
        for again in changes.iter().filter(|change| change.message.is_some()) {
            let (server, incident) = (self.server.as_str(), again.incident.as_str());
            log::info!(server, incident; "earlier raid alarm, announced once more");
        }
        let mut unsaid = stored.unsaid;
        unsaid.retain(|raid| self.whole_of(&raid.incident).is_none());
        let pushes = stored.waiting.into_iter().map(PushedAlarm::from).collect();
        LoadedAlarms { news: IncidentNews::of(changes), pushes, unsaid }
    }

    /// Takes up these incidents, merges what rang before they were known, and says what has to be shown and sent.
    fn restore(&self, stored: Vec<StoredIncident>) -> Vec<IncidentChange> {
        let now = self.context.clock.moment();
        let (mut raids, mut unheard) = (self.raids.borrow_mut(), self.unheard.borrow_mut());
        let (mut restored, mut silent, mut write) = (BTreeSet::new(), BTreeSet::new(), LedgerWrite::default());
        for StoredIncident { id, incident, title, state, .. } in stored {
            if let Some(incident) = raid::ended_meanwhile(&incident, now.stamp) {
                write.incidents.insert(id, (incident, title));
            } else if raids.restore(id.clone(), incident, title, now) {
                if state == UNHEARD {
                    silent.insert(id.clone());
                }
                restored.insert(id);
            }
        }
        let merged = raids.merge(now);
        for MergedIncident { id, into } in merged {
            let was_heard = !silent.remove(&id) && unheard.remove(&id).is_none();
            if was_heard {
                silent.remove(&into);
            }
            restored.extend([id.clone(), into.clone()]);
            self.merged.borrow_mut().insert(id.clone(), into.clone());
            write.merged.insert(id, into);
        }
        // Perhaps it was announced before: who watches now hears of it once more, and shows what is new there.
        let repeated = |id: &String| {
            let incident = raids.get(id).filter(|_| silent.contains(id))?;
            let late = incident.late || now.stamp - incident.last_at > LATE;
            Some(Raid { late, ..Raid::new(id, incident, true) })
        };
        let changes = restored.into_iter().map(|id| IncidentChange { message: repeated(&id), incident: id }).collect();
        unheard.extend(silent.into_iter().map(|id| (id, None)));
        drop((raids, unheard));
        write.extend(self.facts(write.merged.clone().values()));
        self.ledger.write_later(write);
        changes
    }

    /// The incident that this one has become a part of.
    pub(super) fn whole_of(&self, incident: &str) -> Option<String> {
        let whole = self.merged.borrow().get(incident).cloned()?;
        self.raids.borrow().get(&whole).is_some().then_some(whole)
    }

    /// A message of an incident that became a part of another one before it was sent says that the other one goes on.
    pub(super) fn of_the_whole(&self, change: IncidentChange) -> IncidentChange {
        let whole = change.message.as_ref().and_then(|_| self.whole_of(&change.incident));
        let Some(incident) = whole else { return change };
        let message = self.raids.borrow().get(&incident).map(|known| Raid::new(&incident, known, true));
        IncidentChange { incident, message }
    }

    /// Waits until the ledger has been read, but not for long: then what is known is merged with the alarm afterwards.
    pub(super) async fn wait_until_known(&self, received_at: ReceivedAt) {
        if !self.known.get() {
            // The wait ends either way.
            select! {
                _ = timeout_at(received_at.stored_by(), self.is_known.notified()) => {}
                () = self.context.journal.unsaved_alarms.ending() => {}
            }
        }
    }
}
