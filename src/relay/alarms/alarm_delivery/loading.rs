//! The stored ledger, taken up at the start. An alarm does not wait for that: one that rings meanwhile is merged with
//! it.

use std::{collections::BTreeSet, rc::Rc, slice};

use tokio::{select, time::timeout_at};

use super::{AlarmDelivery, IncidentNews, PushedAlarm};
use crate::{
    db::{
        alarms::{
            alarm_ledger::{self, AlarmState, LedgerAlarm},
            incidents::{self, LedgerWrite, StoredIncident, UNHEARD},
            spoken_alarms,
        },
        engine::{error::DbError, pool::Db, start_reads::read_until_answered},
    },
    domain::{
        channels::spoken_alarm::is_unsaid,
        ids::{ServerId, UserId},
        incident::{AlarmPath, Raid},
        raid::{self, IncidentChange, LATE, MergedIncident},
        time::Timestamp,
    },
    relay::alarms::received_at::ReceivedAt,
};

/// Earlier pushes that are remembered as taken up.
const TAKEN_UP_BEFORE: usize = 200;

/// Rows of the ledger of a server at the start.
struct StoredAlarms {
    incidents: Vec<StoredIncident>,
    waiting: Vec<alarm_ledger::WaitingPush>,
    taken_up: Vec<String>,
    unsaid: Vec<Raid>,
}

/// The alarms of earlier processes that are to be gone on with.
pub struct LoadedAlarms {
    pub news: IncidentNews,
    /// Pushes that are in no incident yet.
    pub pushes: Vec<PushedAlarm>,
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
                waiting: alarm_ledger::waiting(db, &server)?,
                taken_up: alarm_ledger::newest_finished(db, &server, TAKEN_UP_BEFORE)?,
            })
        };
        let stored = read_until_answered(&self.context.pool, &self.context.random, "the ledger of alarms", read).await;
        self.taken_up.borrow_mut().extend(stored.taken_up);
        let news = self.restore(stored.incidents, stored.unsaid);
        self.raids.borrow_mut().take_over(self.handed.take(), self.context.clock.moment());
        self.known.set(true);
        self.heed_noted();
        self.is_known.notify_waiters();
        self.changed.notify_one();
        for again in news.changes.iter().filter(|change| change.message.is_some()) {
            let (server, incident) = (self.server.as_str(), again.incident.as_str());
            log::info!(server, incident; "earlier raid alarm, announced once more");
        }
        LoadedAlarms { news, pushes: stored.waiting.into_iter().map(PushedAlarm::from).collect() }
    }

    /// Takes up these incidents, merges what rang before they were known, and says what has to be shown and sent. `unsaid`
    /// are those whose lines in the team's chat are to be said.
    fn restore(&self, stored: Vec<StoredIncident>, mut unsaid: Vec<Raid>) -> IncidentNews {
        let now = self.context.clock.moment();
        // One that is known here has gone off here: its line is said already, or waits.
        unsaid.retain(|raid| self.raids.borrow().get(&raid.incident).is_none());
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
        // Perhaps it was announced before: who watches now hears of it, and shows what is new there.
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
        unsaid.retain(|raid| self.whole_of(&raid.incident).is_none());
        IncidentNews { unsaid, again: true, ..IncidentNews::of(changes) }
    }

    /// True if nothing of the ledger is being read, and all of it was.
    pub(super) fn is_read(&self) -> bool {
        self.known.get() && self.reads.get() == 0
    }

    /// Heeds the acknowledgements that came during a reading, which is over. Shown with all that was read.
    fn heed_noted(&self) {
        let noted = if self.is_read() { self.noted.take() } else { self.noted.borrow().clone() };
        for ((incident, user), at) in noted {
            drop(self.acknowledged(&incident, &user, at));
        }
    }

    /// Takes up the incident in which another node has put this alarm; `None`: there is none, and the alarm is to find its own.
    pub(super) async fn take_up_incident_of(&self, alarm: &PushedAlarm) -> Option<IncidentNews> {
        let incident = alarm.incident.clone()?;
        let mut news = IncidentNews::default();
        let incident = match self.find(&incident) {
            Some(known) => known.id,
            None => {
                let (server, clock) = (self.server.clone(), self.context.clock.clone());
                let read = move |db: &mut Db| {
                    let Some((stored, _)) = incidents::whole(db, &incident)? else { return Ok(None) };
                    let unsaid = unsaid(db, &server, slice::from_ref(&stored), clock.now())?;
                    Ok(Some((stored, unsaid)))
                };
                self.reads.set(self.reads.get() + 1);
                let stored = read_until_answered(&self.context.pool, &self.context.random, "an incident", read).await;
                self.reads.set(self.reads.get() - 1);
                let restored = stored.map(|(stored, unsaid)| {
                    let incident = stored.id.clone();
                    log::info!(server = self.server.as_str(), incident = incident.as_str(), alarm = alarm.id.as_str();
                        "a raid that another node has announced goes on here");
                    news = self.restore(vec![stored], unsaid);
                    incident
                });
                self.heed_noted();
                self.changed.notify_one();
                restored?
            }
        };
        let whole = self.whole_of(&incident).unwrap_or(incident);
        let finished = LedgerAlarm {
            id: alarm.id.clone(),
            // The ledger knows the owner, and everything else.
            user: UserId::from(""),
            server: Some(self.server.clone()),
            path: AlarmPath::Push,
            alarm_id: String::new(),
            title: alarm.title.clone(),
            message: alarm.message.clone(),
            state: AlarmState::Opened,
            incident: Some(whole),
            received_at: self.context.clock.now(),
            sent_at: Some(alarm.sent),
        };
        self.ledger.write_later(LedgerWrite { alarms: [(alarm.id.clone(), finished)].into(), ..Default::default() });
        Some(news)
    }

    /// The incident that this one has become a part of.
    pub fn whole_of(&self, incident: &str) -> Option<String> {
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
