//! Alarms on their way: to an incident, into the ledger, into the state and to every socket that watches; the number of
//! sockets goes back into the ledger. The game connection, which alone has the state and the subscribers, calls
//! [`AlarmDelivery::publish`] with the [`IncidentNews`] that the others return.
//!
//! An alarm is stored before it is delivered, so that no crash loses one; a database that does not answer holds it up
//! for half a second. An incident stays unheard until a socket took its message or a state that holds it.

pub mod acknowledging;
mod alarm_values;
mod handing_over;
mod incident_line;
mod incident_news;
pub mod loading;
mod publishing;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tokio::{
    select,
    sync::Notify,
    time::{Duration, Instant, timeout_at},
};

pub use self::incident_news::{FollowedNews, IncidentNews};
use self::{alarm_values::AlarmValues, incident_line::IncidentLine};
use crate::{
    db::{
        alarms::{
            alarm_ledger::{self, AlarmState, LedgerAlarm},
            early_alarms::EarlyAlarm,
            incidents::{HeardBy, LedgerWrite, StoredIncident},
        },
        files::unsaved_alarms::UnsavedGuard,
    },
    domain::{
        ids::{ServerId, UserId},
        incident::{AlarmPath, Incident},
        raid::{AlarmOutcome, Raids, handing_over::HandedRaid},
        time::{Moment, Timestamp},
    },
    relay::{
        alarms::{
            ledger::{Ledger, SavedTo},
            received_at::ReceivedAt,
        },
        shared::context::RelayContext,
        state::outcome::AlarmTrigger,
        wire::publication::Position,
    },
};

/// Pushes that are remembered as taken up: a push comes again until it is stored, and a session has up to 1 000 that
/// are not.
const TAKEN_UP: usize = 2_000;

/// A test alarm is answered within this time, with the sockets that have taken it by then.
const DRILL_ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// Reach of a test alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillOutcome {
    pub incident: String,
    /// Sockets that took it.
    pub sockets: usize,
}

/// An alarm that came by a push, and its id in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct PushedAlarm {
    pub id: String,
    pub title: String,
    pub message: String,
    pub sent: Timestamp,
    /// The incident in which a node has put it that no longer had the server.
    pub incident: Option<String>,
}

impl From<alarm_ledger::WaitingPush> for PushedAlarm {
    fn from(push: alarm_ledger::WaitingPush) -> Self {
        let sent = push.sent_at.unwrap_or(push.received_at);
        Self { id: push.id, title: push.title, message: push.message, sent, incident: push.incident }
    }
}

/// A push that is delivered now, and in no other way.
pub struct TakenUpPush {
    push: PushedAlarm,
    received_at: ReceivedAt,
    held: UnsavedGuard,
}

impl TakenUpPush {
    /// Name of the alarm.
    pub fn title(&self) -> &str {
        &self.push.title
    }
}

/// A test alarm in the ledger.
pub struct StoredDrill {
    incident: String,
    is_kept: bool,
    answered_by: Instant,
}

impl StoredDrill {
    /// The answer, once the sockets have taken it or its time is over. None if it could not be stored.
    pub async fn outcome(self, mut followed: FollowedNews) -> Option<DrillOutcome> {
        let sockets = match timeout_at(self.answered_by, &mut followed.all).await {
            Ok(sockets) => sockets,
            Err(_) => {
                // The user does not wait for a socket that does not read.
                actix::spawn(followed.all);
                followed.taken.sockets()
            }
        };
        self.is_kept.then_some(DrillOutcome { incident: self.incident, sockets })
    }
}

/// The alarms of one paired server. The futures that it returns must be polled by the caller.
pub struct AlarmDelivery {
    server: ServerId,
    context: Arc<RelayContext>,
    ledger: Ledger,
    raids: RefCell<Raids>,
    /// Incidents that reached no one yet, with the position from which on the state holds them.
    unheard: RefCell<BTreeMap<String, Option<Position>>>,
    /// Incidents that became a part of an older one when the ledger had been read, and that one.
    merged: RefCell<BTreeMap<String, String>>,
    /// Acknowledgements of incidents in the ledger, until that has been read: it may be read as it was before them.
    noted: RefCell<BTreeMap<(String, UserId), Timestamp>>,
    /// Number of incidents of other nodes that are being read.
    reads: Cell<usize>,
    taken_up: RefCell<VecDeque<String>>,
    values: RefCell<AlarmValues>,
    /// From the node that had the server before, until the ledger has been read.
    handed: RefCell<Vec<HandedRaid>>,
    /// The ledger has been read.
    known: Cell<bool>,
    is_known: Notify,
    /// Something else may come due next.
    changed: Notify,
}

impl AlarmDelivery {
    /// No alarm yet; [`load`](Self::load) reads those in the ledger.
    pub fn new(server: ServerId, context: Arc<RelayContext>) -> Rc<Self> {
        let ledger = Ledger::new(server.clone(), context.pool.clone(), context.journal.clone());
        Rc::new(Self {
            server,
            context,
            ledger,
            raids: RefCell::new(Raids::new()),
            unheard: RefCell::default(),
            merged: RefCell::default(),
            noted: RefCell::default(),
            reads: Cell::default(),
            taken_up: RefCell::default(),
            values: RefCell::default(),
            handed: RefCell::default(),
            known: Cell::new(false),
            is_known: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// Stores an alarm that went off on the live link. The end of the process waits for it from the call on, before the
    /// first poll.
    pub fn link_alarm(self: Rc<Self>, trigger: AlarmTrigger) -> impl Future<Output = IncidentNews> {
        let received_at = ReceivedAt::now();
        let held = self.context.journal.unsaved_alarms.hold();
        async move {
            self.wait_until_known(received_at).await;
            let now = self.context.clock.moment();
            let AlarmTrigger { device, name, place, time } = trigger;
            let new_id = || self.new_id(now.stamp);
            let update = self.raids.borrow_mut().alarm(&device, &name, &place, time, now, new_id);
            // With the alarm or its repeat, so that it neither counts again after a crash nor is missed.
            let is_on = self.values.borrow_mut().store_on(&device);
            let values = is_on.then(|| (device.to_string(), true)).into_iter().collect();
            if !update.first_by_path {
                return self.repeat(update, values, received_at);
            }
            let alarm = self.ledger_alarm(AlarmPath::Link, &device, &name, &update, now.stamp);
            let write = LedgerWrite { alarms: [(alarm.id.clone(), alarm)].into(), values, ..Default::default() };
            self.store(update, write, held, received_at).await.1
        }
    }

    /// Stores that an incident goes on, and the value of its alarm; its update is news if it is due.
    fn repeat(&self, update: AlarmOutcome, values: BTreeMap<String, bool>, received_at: ReceivedAt) -> IncidentNews {
        self.changed.notify_one();
        self.log_joined(&update.incident, "none");
        self.ledger.write_repeats(LedgerWrite { values, ..self.facts([&update.incident]) });
        IncidentNews { received_at: Some(received_at), ..IncidentNews::of(update.changes) }
    }

    /// An alarm has this value now; `None`: it is no longer paired.
    pub fn note_value(&self, device: &str, value: Option<bool>) {
        if self.values.borrow_mut().note(device, value, self.context.clock.moment()) {
            let values = [(device.to_owned(), false)].into();
            self.ledger.write_repeats(LedgerWrite { values, ..Default::default() });
        }
        self.changed.notify_one();
    }

    /// Takes up an alarm that came by a push, which arrived then. None if it was taken up before: the ledger and the push
    /// session may both report it.
    pub fn take_up(
        self: Rc<Self>,
        push: PushedAlarm,
        received_at: ReceivedAt,
    ) -> impl Future<Output = Option<TakenUpPush>> {
        let held = self.context.journal.unsaved_alarms.hold();
        async move {
            self.wait_until_known(received_at).await;
            let mut taken_up = self.taken_up.borrow_mut();
            if taken_up.contains(&push.id) {
                return None;
            }
            taken_up.push_back(push.id.clone());
            if taken_up.len() > TAKEN_UP {
                taken_up.pop_front();
            }
            Some(TakenUpPush { push, received_at, held })
        }
    }

    /// Stores an alarm that came by a push; `named`: the paired alarms of its name.
    pub async fn pushed_alarm(self: Rc<Self>, taken_up: TakenUpPush, named: BTreeSet<String>) -> IncidentNews {
        let TakenUpPush { push, received_at, held } = taken_up;
        if let Some(news) = self.take_up_incident_of(&push).await {
            return news;
        }
        let now = self.context.clock.moment();
        let update = {
            let mut raids = self.raids.borrow_mut();
            raids.pushed(&push.title, &named, push.sent, now, || self.new_id(now.stamp))
        };
        let alarm = LedgerAlarm {
            id: push.id.clone(),
            title: push.title,
            message: push.message,
            sent_at: Some(push.sent),
            ..self.ledger_alarm(AlarmPath::Push, "", "", &update, now.stamp)
        };
        let write = LedgerWrite { alarms: [(push.id, alarm)].into(), ..Default::default() };
        self.store(update, write, held, received_at).await.1
    }

    /// Stores a test alarm.
    pub async fn drill(self: Rc<Self>) -> (StoredDrill, IncidentNews) {
        let received_at = ReceivedAt::now();
        let answered_by = received_at.at() + DRILL_ANSWERED_WITHIN;
        let held = self.context.journal.unsaved_alarms.hold();
        self.wait_until_known(received_at).await;
        let now = self.context.clock.moment();
        let update = self.raids.borrow_mut().drill(now, || self.new_id(now.stamp));
        let alarm = self.ledger_alarm(AlarmPath::Drill, "drill", "Drill", &update, now.stamp);
        let write = LedgerWrite { alarms: [(alarm.id.clone(), alarm)].into(), ..Default::default() };
        let incident = update.incident.clone();
        let (kept, news) = self.store(update, write, held, received_at).await;
        (StoredDrill { incident, is_kept: kept != SavedTo::Neither, answered_by }, news)
    }

    /// Completes when something is due: call [`tick`](Self::tick) then, and this again.
    pub async fn due(self: Rc<Self>) {
        loop {
            let now = self.context.clock.moment();
            match self.next_due(now) {
                Some(at) if at <= now => return,
                Some(at) => select! {
                    () = self.context.clock.reach(at) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    fn next_due(&self, now: Moment) -> Option<Moment> {
        self.values.borrow().next_due().into_iter().chain(self.raids.borrow().next_due(now)).min()
    }

    /// Updates of incidents that have become due, and their ends.
    pub fn tick(&self) -> IncidentNews {
        let now = self.context.clock.moment();
        let values = self.values.borrow_mut().take_due(now).into_iter().map(|device| (device, true)).collect();
        let changes = self.raids.borrow_mut().tick(now);
        let facts = self.facts(changes.iter().map(|change| &change.incident));
        self.ledger.write_repeats(LedgerWrite { values, ..facts });
        IncidentNews::of(changes)
    }

    /// A user has taken note of an incident, which may be a part of another one by now, and the ledger has it.
    pub fn acknowledged(&self, incident: &str, user: &UserId, at: Timestamp) -> IncidentNews {
        if !self.is_read() {
            self.noted.borrow_mut().entry((incident.to_owned(), user.clone())).or_insert(at);
        }
        let whole = self.whole_of(incident);
        let incident = whole.as_deref().unwrap_or(incident);
        let change = self.raids.borrow_mut().acknowledge(incident, user, at);
        self.unheard.borrow_mut().remove(incident);
        for notice in self.notices_of(incident, user) {
            self.context.early_alarms.changes.acknowledge(notice, self.context.clock.moment());
        }
        IncidentNews::of(change.into_iter().collect())
    }

    /// This user is gone.
    pub fn user_erased(&self, user: &UserId) -> IncidentNews {
        self.noted.borrow_mut().retain(|(_, noted_by), _| noted_by != user);
        IncidentNews::of(self.raids.borrow_mut().forget_user(user))
    }

    /// A socket has the state of this position.
    pub fn state_taken(&self, position: Position) {
        let held: Vec<String> = {
            let unheard = self.unheard.borrow();
            let is_held = |since: &Option<Position>| {
                since.is_some_and(|since| since.epoch == position.epoch && since.seq <= position.seq)
            };
            unheard.iter().filter(|(_, since)| is_held(since)).map(|(id, _)| id.clone()).collect()
        };
        let at = self.context.clock.now();
        let mut write = LedgerWrite::default();
        for incident in held {
            self.unheard.borrow_mut().remove(&incident);
            write.heard.insert(incident, HeardBy { sockets: 0, at });
        }
        self.ledger.write_later(write);
    }

    /// Stores an alarm and what it changed.
    async fn store(
        &self,
        update: AlarmOutcome,
        mut write: LedgerWrite,
        held: UnsavedGuard,
        received_at: ReceivedAt,
    ) -> (SavedTo, IncidentNews) {
        self.changed.notify_one();
        let AlarmOutcome { incident, opened, changes, .. } = update;
        write.extend(self.facts(changes.iter().map(|change| &change.incident)));
        // A repeat that has a row of its own is counted with it: a kill loses neither.
        write.extend(self.facts([&incident]));
        if opened {
            self.unheard.borrow_mut().insert(incident.clone(), None);
        }
        let mut line = None;
        if let Some(LedgerAlarm { id, path, .. }) = write.alarms.values().next() {
            let now = self.context.clock.now();
            match opened {
                true => line = Some(IncidentLine::opened(&self.server, &incident, (id, *path), received_at, now)),
                false => self.log_joined(&incident, id),
            }
        }
        let opening = write.incidents.get(&incident).filter(|_| opened).map(|(facts, _)| facts.clone());
        let kept = self.ledger.write_alarm(write, received_at).await;
        if let Some(facts) = opening {
            self.wake(incident, facts, kept == SavedTo::Database);
        }
        if let Some(line) = &mut line {
            line.note_kept(kept);
        }
        let undelivered = self.context.journal.unsaved_alarms.hold_undelivered();
        drop(held);
        let (received_at, undelivered) = (Some(received_at), Some(undelivered));
        (kept, IncidentNews { received_at, opened: line, undelivered, ..IncidentNews::of(changes) })
    }

    /// Gives a raid to the channels, which send it if the database does not. The next process does it for one that ends.
    fn wake(&self, id: String, incident: Incident, is_stored: bool) {
        let journal = &self.context.journal;
        if journal.unsaved_alarms.is_ending() || journal.is_deleted(&self.server) {
            return;
        }
        let (server, incident) = (self.server.clone(), StoredIncident::unheard(id, incident));
        self.context.early_alarms.add(EarlyAlarm { server, incident, is_stored });
    }

    /// Logs that an alarm is part of a known incident; `alarm` is its id in the ledger.
    fn log_joined(&self, incident: &str, alarm: &str) {
        log::debug!(server = self.server.as_str(), incident, alarm; "an alarm joined a raid");
    }

    /// These incidents as they are now.
    fn facts<'a>(&self, incidents: impl IntoIterator<Item = &'a String>) -> LedgerWrite {
        let raids = self.raids.borrow();
        let facts = incidents.into_iter().filter_map(|incident| {
            let facts = (raids.get(incident)?.clone(), raids.title(incident).map(str::to_owned));
            Some((incident.clone(), facts))
        });
        LedgerWrite { incidents: facts.collect(), ..Default::default() }
    }

    fn ledger_alarm(
        &self,
        path: AlarmPath,
        alarm_id: &str,
        title: &str,
        update: &AlarmOutcome,
        now: Timestamp,
    ) -> LedgerAlarm {
        LedgerAlarm {
            id: self.new_id(now),
            // The ledger knows the owner.
            user: UserId::from(""),
            server: Some(self.server.clone()),
            path,
            alarm_id: alarm_id.to_owned(),
            title: title.to_owned(),
            message: String::new(),
            state: if update.opened { AlarmState::Opened } else { AlarmState::Merged },
            incident: Some(update.incident.clone()),
            received_at: now,
            sent_at: None,
        }
    }

    fn new_id(&self, now: Timestamp) -> String {
        self.context.random.id(now)
    }
}

#[cfg(test)]
mod tests;
