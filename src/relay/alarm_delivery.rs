//! Alarms on their way: to an incident, into the ledger, to every socket that watches, and their outcome back into the
//! ledger.
//!
//! An alarm is stored before it is delivered, so that no crash loses one; a ledger that cannot be written does not keep
//! it from being delivered. What a crash left unfinished is taken up again by [`AlarmDelivery::recover`].

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    rc::Rc,
    sync::Arc,
};

use crate::{
    db::{
        alarms::{self, AlarmPath, AlarmState, Arrival},
        error::DbError,
        paired_servers,
        pool::Db,
    },
    domain::{
        ids::ServerId,
        raid::{Raid, RaidUpdate, Raids},
        time::{Moment, Timestamp},
    },
    relay::{context::RelayContext, live_state::AlarmTrigger, publisher::Publisher},
};

/// How far a test alarm came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillOutcome {
    pub incident: String,
    /// Sockets that took it.
    pub sockets: usize,
}

/// The alarms of one paired server. What it returns are futures that the caller has to drive; which incident an alarm
/// belongs to is decided at the call.
pub struct AlarmDelivery {
    server: ServerId,
    context: Arc<RelayContext>,
    publisher: Rc<RefCell<Publisher>>,
    raids: RefCell<Raids>,
    /// Alarms between the ledger and the sockets.
    under_way: RefCell<HashSet<String>>,
    recovered: Cell<bool>,
}

impl AlarmDelivery {
    /// No alarm yet.
    pub fn new(server: ServerId, context: Arc<RelayContext>, publisher: Rc<RefCell<Publisher>>) -> Rc<Self> {
        Rc::new(Self {
            server,
            context,
            publisher,
            raids: RefCell::new(Raids::new()),
            under_way: RefCell::default(),
            recovered: Cell::new(false),
        })
    }

    /// An alarm that went off on the live link.
    pub fn link_alarm(self: &Rc<Self>, alarm: &AlarmTrigger) -> impl Future<Output = ()> + use<> {
        let now = self.context.clock.moment();
        let update = self.raids.borrow_mut().alarm(&alarm.device, &alarm.name, now, || self.new_id(now.stamp));
        let delivered = self.deliver_new(AlarmPath::Link, &alarm.device, &alarm.name, update, now.stamp);
        async move { drop(delivered.await) }
    }

    /// An alarm that came by a push; the ledger has it as received, under this id.
    pub fn pushed_alarm(self: &Rc<Self>, id: String, title: &str) -> impl Future<Output = ()> + use<> {
        // Recovery may have found it first.
        let is_new = !self.under_way.borrow().contains(&id);
        let delivered = is_new.then(|| self.deliver_received(id, title, self.context.clock.moment()));
        async move {
            if let Some(delivered) = delivered {
                delivered.await;
            }
        }
    }

    /// A test alarm, the whole way. None if the ledger cannot be written.
    pub fn drill(self: &Rc<Self>) -> impl Future<Output = Option<DrillOutcome>> + use<> {
        let now = self.context.clock.now();
        // An incident of its own: a drill must not be merged into a raid, nor a raid into a drill.
        let raid = drill(self.new_id(now), now, false);
        let update = RaidUpdate { incident: raid.incident.clone(), opened: true, messages: vec![raid] };
        self.deliver_new(AlarmPath::Drill, "drill", "Drill", update, now)
    }

    /// Updates of incidents that have become due; call it every second.
    pub fn tick(self: &Rc<Self>) -> Option<impl Future<Output = ()> + use<>> {
        let due = self.raids.borrow_mut().tick(self.context.clock.moment());
        (!due.is_empty()).then(|| {
            let sent = self.send(&due);
            async move {
                sent.await;
            }
        })
    }

    /// Delivers what a crash left unfinished; only the first call does anything. An incident that may have been
    /// announced already is delivered as an update, so that none is announced twice. Who comes back a little later than
    /// the first client gets it with the next update.
    pub fn recover(self: &Rc<Self>) -> Option<impl Future<Output = ()> + use<>> {
        let first = !self.recovered.replace(true);
        first.then(|| {
            let this = self.clone();
            async move {
                let server = this.server.clone();
                let rows = this.context.pool.read(move |db| alarms::unfinished(db, &server)).await;
                let rows = rows.unwrap_or_else(|error| {
                    log::error!(server = this.server.as_str(); "unfinished alarms could not be read: {error}");
                    Vec::new()
                });
                let deliveries: Vec<_> = rows.into_iter().filter_map(|row| this.resume(row)).collect();
                this.raids.borrow_mut().repeat(this.context.clock.moment());
                futures_util::future::join_all(deliveries).await;
            }
        })
    }

    /// One unfinished alarm; none if it is under way.
    fn resume(self: &Rc<Self>, row: alarms::Unfinished) -> Option<impl Future<Output = ()> + use<>> {
        if self.under_way.borrow().contains(&row.id) {
            return None;
        }
        let since = self.context.clock.moment().at(row.received_at);
        let delivered = match row.incident {
            None => futures_util::future::Either::Left(self.deliver_received(row.id, &row.title, since)),
            Some(incident) => {
                let opened = row.state == AlarmState::Opened.word();
                let messages = match opened {
                    true if row.path == AlarmPath::Drill.word() => {
                        vec![drill(incident.clone(), row.received_at, true)]
                    }
                    true => {
                        let mut raids = self.raids.borrow_mut();
                        vec![raids.restore(&incident, &row.alarm_id, &row.title, since)]
                    }
                    false => Vec::new(),
                };
                let (id, update) = (row.id.clone(), RaidUpdate { incident, opened, messages });
                futures_util::future::Either::Right(
                    self.deliver(row.id, update, move |db| alarms::is_unfinished(db, &id)),
                )
            }
        };
        Some(async move { drop(delivered.await) })
    }

    /// An alarm that did not come by a push, and so is not in the ledger yet.
    fn deliver_new(
        self: &Rc<Self>,
        path: AlarmPath,
        alarm_id: &str,
        name: &str,
        update: RaidUpdate,
        now: Timestamp,
    ) -> impl Future<Output = Option<DrillOutcome>> + use<> {
        let id = self.new_id(now);
        let (row, server, alarm_id, title) = (id.clone(), self.server.clone(), alarm_id.to_owned(), name.to_owned());
        let (state, incident) = (state_of(&update), update.incident.clone());
        self.deliver(id, update, move |db| {
            let arrival = Arrival {
                id: row,
                user: paired_servers::get(db, &server)?.owner_id,
                server: Some(server),
                path,
                alarm_id,
                title,
                message: String::new(),
                state,
                incident: Some(incident),
            };
            alarms::receive(db, &arrival, now).map(|()| true)
        })
    }

    /// An alarm that the ledger has as received, since then.
    fn deliver_received(
        self: &Rc<Self>,
        id: String,
        title: &str,
        since: Moment,
    ) -> impl Future<Output = Option<DrillOutcome>> + use<> {
        let update = self.raids.borrow_mut().pushed(title, since, || self.new_id(since.stamp));
        let (row, state, incident) = (id.clone(), state_of(&update), update.incident.clone());
        self.deliver(id, update, move |db| alarms::assign(db, &row, state, &incident))
    }

    /// Stores an alarm, delivers it, and stores how many sockets took it. `store` answers false if the alarm was
    /// delivered before. Resolves to none if it was, or if the ledger could not be written.
    fn deliver<S>(
        self: &Rc<Self>,
        id: String,
        update: RaidUpdate,
        store: S,
    ) -> impl Future<Output = Option<DrillOutcome>> + use<S>
    where
        S: FnOnce(&mut Db) -> Result<bool, DbError> + Send + 'static,
    {
        self.under_way.borrow_mut().insert(id.clone());
        let this = self.clone();
        async move {
            let RaidUpdate { incident, opened, messages } = update;
            let pool = &this.context.pool;
            let stored = pool.write_first(store).await;
            if let Err(error) = &stored {
                log::error!(server = this.server.as_str(); "an alarm is delivered without the ledger: {error}");
            }
            let mut outcome = None;
            if !matches!(stored, Ok(false)) {
                let sockets = this.send(&messages).await;
                let (row, reached, now) = (id.clone(), opened.then_some(sockets), this.context.clock.now());
                let finished = pool.write(move |db| alarms::finish(db, &row, reached, now)).await;
                if let Err(error) = &finished {
                    log::error!(server = this.server.as_str(); "an alarm stays unfinished in the ledger: {error}");
                }
                outcome = stored.is_ok().then_some(DrillOutcome { incident, sockets });
            }
            this.under_way.borrow_mut().remove(&id);
            outcome
        }
    }

    /// Sends messages about raids; resolves to the number of sockets that took the last one.
    fn send(&self, raids: &[Raid]) -> impl Future<Output = usize> + use<> {
        let publisher = self.publisher.borrow();
        let mut sent = Vec::new();
        for raid in raids {
            log::info!(server = self.server.as_str(), incident = raid.incident.as_str(), count = raid.count; "raid alarm");
            sent.push(publisher.deliver_alarm(raid));
        }
        async move { futures_util::future::join_all(sent).await.pop().unwrap_or_default() }
    }

    fn new_id(&self, now: Timestamp) -> String {
        self.context.random.id(now)
    }
}

fn drill(incident: String, ts: Timestamp, update: bool) -> Raid {
    Raid { incident, alarm_id: "drill".to_owned(), alarm_name: "Drill".to_owned(), ts, count: 1, update, drill: true }
}

fn state_of(update: &RaidUpdate) -> AlarmState {
    if update.opened { AlarmState::Opened } else { AlarmState::Merged }
}

#[cfg(test)]
mod tests;
