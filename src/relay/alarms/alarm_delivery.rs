//! Alarms on their way: to an incident, into the ledger, into the state and to every socket that watches; the number of
//! sockets goes back into the ledger.
//!
//! An alarm is stored before it is delivered, so that no crash loses one; a database that does not answer holds it up
//! for half a second. An incident stays unheard until a socket took its message or a state that holds it.

mod alarm_values;
mod loading;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
};

use futures_util::future::{FutureExt as _, LocalBoxFuture, join_all};
use tokio::{
    select,
    sync::Notify,
    time::{Duration, Instant, timeout_at},
};

use self::alarm_values::AlarmValues;
use crate::{
    db::{
        alarms::{self, AlarmState, Arrival},
        incidents::{HeardBy, LedgerWrite},
        unsaved_alarms::UnsavedGuard,
    },
    domain::{
        ids::{ServerId, UserId},
        incident::AlarmPath,
        raid::{RaidChange, RaidUpdate, Raids},
        time::{Moment, Timestamp},
    },
    relay::{
        alarms::ledger::{Kept, Ledger},
        shared::context::RelayContext,
        state::live_state::{AlarmTrigger, LiveState},
        wire::{publication::Position, publisher::Publisher, receipt::Taken},
    },
};

/// Pushes that are remembered as taken up: a push comes again until it is stored, and a session has up to 1 000 that
/// are not.
const TAKEN_UP: usize = 2_000;

/// A test alarm is answered within this time, with the sockets that have taken it by then.
const DRILL_ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// Reach of a test alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl From<alarms::WaitingPush> for PushedAlarm {
    fn from(push: alarms::WaitingPush) -> Self {
        let sent = push.sent_at.unwrap_or(push.received_at);
        Self { id: push.id, title: push.title, message: push.message, sent }
    }
}

/// The alarms of one paired server. The futures that it returns must be polled by the caller.
pub struct AlarmDelivery {
    server: ServerId,
    context: Arc<RelayContext>,
    live: Rc<RefCell<LiveState>>,
    publisher: Rc<RefCell<Publisher>>,
    ledger: Ledger,
    raids: RefCell<Raids>,
    /// Incidents that reached no one yet, with the position from which on the state holds them.
    unheard: RefCell<BTreeMap<String, Option<Position>>>,
    taken_up: RefCell<VecDeque<String>>,
    values: RefCell<AlarmValues>,
    /// The ledger has been read.
    known: Cell<bool>,
    is_known: Notify,
    /// Something else may come due next.
    changed: Notify,
}

/// A message on its way.
struct Sent {
    incident: String,
    /// The sockets that took it so far.
    taken: Arc<Taken>,
    /// The number of sockets that took it, once all have or are gone.
    all: LocalBoxFuture<'static, usize>,
}

impl AlarmDelivery {
    /// No alarm yet; [`load`](Self::load) reads those of before.
    pub fn new(
        server: ServerId,
        context: Arc<RelayContext>,
        live: Rc<RefCell<LiveState>>,
        publisher: Rc<RefCell<Publisher>>,
    ) -> Rc<Self> {
        let ledger = Ledger::new(server.clone(), context.pool.clone(), context.journal.clone());
        Rc::new(Self {
            server,
            context,
            live,
            publisher,
            ledger,
            raids: RefCell::new(Raids::new()),
            unheard: RefCell::default(),
            taken_up: RefCell::default(),
            values: RefCell::default(),
            known: Cell::new(false),
            is_known: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// An alarm that went off on the live link.
    pub async fn link_alarm(self: Rc<Self>, alarm: AlarmTrigger) {
        let heard_at = Instant::now();
        let held = self.context.journal.unsaved_alarms.hold();
        self.wait_until_known().await;
        let now = self.context.clock.moment();
        let AlarmTrigger { device, name, place, unseen_since } = alarm;
        let new_id = || self.new_id(now.stamp);
        let update = self.raids.borrow_mut().alarm(&device, &name, &place, unseen_since, now, new_id);
        if !update.first_by_path {
            return self.deliver_repeat(update, heard_at).await;
        }
        let arrival = self.arrival(AlarmPath::Link, &device, &name, &update, now.stamp);
        let mut write = LedgerWrite { arrivals: [(arrival.id.clone(), arrival)].into(), ..Default::default() };
        // With the alarm, so that it neither rings again after a crash nor is missed.
        if self.values.borrow_mut().store_on(&device) {
            write.values.insert(device.to_string(), true);
        }
        self.deliver(update, write, held, heard_at).await.1.all.await;
    }

    /// Stores that an incident goes on, and sends its update if one is due.
    async fn deliver_repeat(self: Rc<Self>, update: RaidUpdate, heard_at: Instant) {
        self.changed.notify_one();
        self.ledger.write_repeats(self.facts([&update.incident]));
        join_all(self.publish(&update.changes, Some(heard_at)).into_iter().map(|sent| self.follow(sent))).await;
    }

    /// An alarm has this value now; `None`: it is no longer paired.
    pub fn note_value(&self, device: &str, value: Option<bool>) {
        if self.values.borrow_mut().note(device, value, self.context.clock.moment()) {
            let values = [(device.to_owned(), false)].into();
            self.ledger.write_later(LedgerWrite { values, ..Default::default() });
        }
        self.changed.notify_one();
    }

    /// An alarm that came by a push, which arrived at `heard_at`.
    pub async fn pushed_alarm(self: Rc<Self>, alarm: PushedAlarm, heard_at: Instant) {
        let held = self.context.journal.unsaved_alarms.hold();
        self.wait_until_known().await;
        {
            let mut taken_up = self.taken_up.borrow_mut();
            // The ledger and the push session may both report it.
            if taken_up.contains(&alarm.id) {
                return;
            }
            taken_up.push_back(alarm.id.clone());
            if taken_up.len() > TAKEN_UP {
                taken_up.pop_front();
            }
        }
        let now = self.context.clock.moment();
        let named = self.live.borrow().alarms_named(&alarm.title);
        let update = {
            let mut raids = self.raids.borrow_mut();
            raids.pushed(&alarm.title, &named, alarm.sent, now, || self.new_id(now.stamp))
        };
        let arrival = Arrival {
            id: alarm.id.clone(),
            title: alarm.title,
            message: alarm.message,
            sent_at: Some(alarm.sent),
            ..self.arrival(AlarmPath::Push, "", "", &update, now.stamp)
        };
        let write = LedgerWrite { arrivals: [(alarm.id, arrival)].into(), ..Default::default() };
        self.deliver(update, write, held, heard_at).await.1.all.await;
    }

    /// A test alarm, the whole way. None if it could not be stored.
    pub async fn drill(self: Rc<Self>) -> Option<DrillOutcome> {
        let heard_at = Instant::now();
        let answered_by = heard_at + DRILL_ANSWERED_WITHIN;
        let held = self.context.journal.unsaved_alarms.hold();
        self.wait_until_known().await;
        let now = self.context.clock.moment();
        let update = self.raids.borrow_mut().drill(now, || self.new_id(now.stamp));
        let arrival = self.arrival(AlarmPath::Drill, "drill", "Drill", &update, now.stamp);
        let write = LedgerWrite { arrivals: [(arrival.id.clone(), arrival)].into(), ..Default::default() };
        let incident = update.incident.clone();
        let (kept, mut heard) = self.deliver(update, write, held, heard_at).await;
        let sockets = match timeout_at(answered_by, &mut heard.all).await {
            Ok(sockets) => sockets,
            Err(_) => {
                // The user does not wait for a socket that does not read.
                actix::spawn(heard.all);
                heard.taken.sockets()
            }
        };
        (kept != Kept::Nowhere).then_some(DrillOutcome { incident, sockets })
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
    pub fn tick(self: &Rc<Self>) -> Option<impl Future<Output = ()> + use<>> {
        let now = self.context.clock.moment();
        let values = self.values.borrow_mut().take_due(now).into_iter().map(|device| (device, true)).collect();
        self.ledger.write_later(LedgerWrite { values, ..Default::default() });
        let changes = self.raids.borrow_mut().tick(now);
        self.ledger.write_repeats(self.facts(changes.iter().map(|change| &change.incident)));
        let sent = self.publish(&changes, None).into_iter().map(|sent| self.follow(sent)).collect::<Vec<_>>();
        (!changes.is_empty()).then(|| join_all(sent).map(drop))
    }

    /// A user has taken note, and the ledger has it.
    pub fn acknowledged(&self, incident: &str, user: &UserId, at: Timestamp) {
        let change = self.raids.borrow_mut().acknowledge(incident, user, at);
        self.unheard.borrow_mut().remove(incident);
        if let Some(change) = change {
            self.show(&[change]);
        }
    }

    /// This user is gone.
    pub fn user_erased(&self, user: &UserId) {
        let changes = self.raids.borrow_mut().forget_user(user);
        self.show(&changes);
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

    /// Stores an alarm and what it changed, then sends it. The caller must poll [`Sent::all`]: it records the delivery.
    async fn deliver(
        self: &Rc<Self>,
        update: RaidUpdate,
        mut write: LedgerWrite,
        held: UnsavedGuard,
        heard_at: Instant,
    ) -> (Kept, Sent) {
        self.changed.notify_one();
        let RaidUpdate { incident, opened, changes, .. } = update;
        write.extend(self.facts(changes.iter().map(|change| &change.incident)));
        // A repeat that has a row of its own is counted with it: a kill loses neither.
        write.extend(self.facts([&incident]));
        if opened {
            self.unheard.borrow_mut().insert(incident.clone(), None);
        }
        let kept = self.ledger.write_alarm(write, heard_at).await;
        let undelivered = self.context.journal.unsaved_alarms.hold_undelivered();
        drop(held);
        let mut taken = Arc::default();
        let mut hearing = Vec::new();
        for sent in self.publish(&changes, Some(heard_at)) {
            if opened && sent.incident == incident {
                taken = sent.taken.clone();
                hearing.push(self.clone().hear(sent).boxed_local());
            } else {
                hearing.push(self.follow(sent));
            }
        }
        // The alarm's own message is the last.
        let all = join_all(hearing).map(|sockets| {
            drop(undelivered);
            sockets.last().copied().unwrap_or_default()
        });
        (kept, Sent { incident, taken, all: all.boxed_local() })
    }

    /// Waits for the sockets that take this message of an incident; records them if it reached no one before.
    fn follow(self: &Rc<Self>, sent: Sent) -> LocalBoxFuture<'static, usize> {
        match self.unheard.borrow().contains_key(&sent.incident) {
            true => self.clone().hear(sent).boxed_local(),
            false => sent.all,
        }
    }

    /// Waits for the sockets that take this message. The ledger knows of the first at once: another may not read.
    async fn hear(self: Rc<Self>, sent: Sent) -> usize {
        let Sent { incident, taken, mut all } = sent;
        let first = tokio::select! {
            biased;
            sockets = &mut all => {
                self.heard(&incident, sockets);
                return sockets;
            }
            () = taken.first() => taken.sockets(),
        };
        self.heard(&incident, first);
        let sockets = all.await;
        if sockets > first {
            self.heard(&incident, sockets);
        }
        sockets
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

    /// Sends the messages and shows the changes. The caller must poll [`Sent::all`] of each.
    fn publish(&self, changes: &[RaidChange], heard_at: Option<Instant>) -> Vec<Sent> {
        let send = |RaidChange { incident, message }: &RaidChange| {
            let raid = message.as_ref()?;
            let line = if heard_at.is_some() { "raid alarm" } else { "raid alarm of before, announced once more" };
            log::info!(server = self.server.as_str(), incident = incident.as_str(), count = raid.count; "{line}");
            let acknowledged: Vec<UserId> =
                self.raids.borrow().get(incident).into_iter().flat_map(|known| known.acks.keys().cloned()).collect();
            let (taken, all) = self.publisher.borrow().deliver_alarm(raid, &acknowledged, heard_at);
            Some(Sent { incident: incident.clone(), taken, all: all.boxed_local() })
        };
        let sent = changes.iter().filter_map(send).collect();
        self.show(changes);
        sent
    }

    /// Shows these incidents as they are now, in one step of the state.
    fn show(&self, changes: &[RaidChange]) {
        let raids = self.raids.borrow();
        let mut publisher = self.publisher.borrow_mut();
        let mut edits = Vec::new();
        for RaidChange { incident, .. } in changes {
            self.live.borrow_mut().show_raid(incident, raids.get(incident), &mut edits);
        }
        publisher.advance(edits, self.context.clock.moment());
        let mut unheard = self.unheard.borrow_mut();
        for RaidChange { incident, .. } in changes {
            if raids.get(incident).is_none() {
                unheard.remove(incident);
            } else if let Some(since) = unheard.get_mut(incident) {
                since.get_or_insert(publisher.position());
            }
        }
    }

    /// This number of sockets took the message of the incident.
    fn heard(&self, incident: &str, sockets: usize) {
        if sockets > 0 {
            self.unheard.borrow_mut().remove(incident);
            let heard = HeardBy { sockets, at: self.context.clock.now() };
            let heard = [(incident.to_owned(), heard)].into();
            self.ledger.write_later(LedgerWrite { heard, ..Default::default() });
        }
    }

    fn arrival(&self, path: AlarmPath, alarm_id: &str, title: &str, update: &RaidUpdate, now: Timestamp) -> Arrival {
        Arrival {
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
