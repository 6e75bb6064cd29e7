//! The gate between a node and all that is outside of it: database, neighbours, lease store, other nodes. A node that is
//! stopped is held here: what it does meanwhile arrives when it wakes, as what was under way when a process was stopped. Its
//! own time goes on. A dead one says nothing more.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use companion::{
    cluster::memory_leases::{CallFate, LostMessage},
    db::engine::{error::DbError, pool::DiskMoment},
    net::Memory,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use crate::{nodes::nodes, random::Stream, wire::Wire, world::world};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateState {
    Open,
    StoppedUntil(Instant),
    Dead,
}

pub struct Gate {
    /// The number of the node among all that there were.
    pub number: usize,
    /// The name of its process.
    pub process: String,
    /// The place of the node among those that run.
    pub place: usize,
    state: Cell<GateState>,
    woke_at: Cell<Option<Instant>>,
    changed: Notify,
    wires: RefCell<Vec<Rc<Wire>>>,
    /// Until when the lease store does not answer this node.
    pub leases_away_until: Cell<Instant>,
    /// A change of the database runs.
    is_writing: Cell<bool>,
}

impl Gate {
    pub fn new(number: usize, process: String, place: usize) -> Self {
        Self {
            number,
            process,
            place,
            state: Cell::new(GateState::Open),
            woke_at: Cell::new(None),
            changed: Notify::new(),
            wires: RefCell::default(),
            leases_away_until: Cell::new(Instant::now()),
            is_writing: Cell::new(false),
        }
    }

    pub fn is_open(&self) -> bool {
        self.state.get() == GateState::Open
    }

    pub fn is_dead(&self) -> bool {
        self.state.get() == GateState::Dead
    }

    /// The node runs, and was not stopped since then.
    pub fn was_open_since(&self, then: Instant) -> bool {
        self.is_open() && self.woke_at.get().is_none_or(|woke_at| woke_at < then)
    }

    /// Completes while the node runs.
    pub async fn pass(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_open() {
                return;
            }
            changed.await;
        }
    }

    /// Stops the node for this number of milliseconds.
    pub fn stop(self: &Rc<Self>, millis: u64) {
        let until = Instant::now() + Duration::from_millis(millis);
        self.state.set(GateState::StoppedUntil(until));
        self.lag_wires((millis, millis + 1));
        let gate = self.clone();
        tokio::task::spawn_local(async move {
            sleep_until(until).await;
            if gate.state.get() == GateState::StoppedUntil(until) {
                world().trace(&format!("node {} wakes", gate.number));
                gate.wake();
            }
        });
    }

    /// The node goes on, if it was stopped.
    pub fn wake(&self) {
        if let GateState::StoppedUntil(_) = self.state.get() {
            self.state.set(GateState::Open);
            self.woke_at.set(Some(Instant::now()));
            self.lag_wires((1, 5));
            self.changed.notify_waiters();
        }
    }

    /// The node says nothing more; its last words are delivered.
    pub fn kill(&self) {
        self.state.set(GateState::Dead);
        for wire in self.wires.take() {
            wire.lossless.set(false);
            drop(wire.kill());
        }
    }

    fn lag_wires(&self, lag: (u64, u64)) {
        self.wires.borrow().iter().for_each(|wire| wire.set_lag(lag));
    }

    pub fn add_wire(&self, wire: Rc<Wire>) {
        let mut wires = self.wires.borrow_mut();
        wires.retain(|wire| wire.is_open());
        wires.push(wire);
    }

    /// The fate of a call of the lease store.
    pub fn call_fate(&self, random: &mut Stream, is_calm: bool) -> CallFate {
        let now = Instant::now();
        match self.state.get() {
            GateState::Dead => return CallFate { lost: Some(LostMessage::Request), ..CallFate::default() },
            GateState::StoppedUntil(until) => return CallFate { to_store: until - now, ..CallFate::default() },
            GateState::Open => {}
        }
        if self.leases_away_until.get() > now {
            return CallFate { lost: Some(LostMessage::Request), ..CallFate::default() };
        }
        if is_calm {
            return CallFate { to_store: Duration::from_millis(2), ..CallFate::default() };
        }
        let lost = match random.below(32) {
            0 => Some(LostMessage::Request),
            1 => Some(LostMessage::Answer),
            _ => None,
        };
        CallFate {
            to_store: Duration::from_millis(random.below(700)),
            to_caller: Duration::from_millis(random.below(250)),
            lost,
            behind: random.below(3) as usize,
        }
    }
}

/// Every query of this node passes here, before it runs and after its commit: it runs in between, and nothing else does.
pub async fn disk(number: usize, moment: DiskMoment) -> Result<(), DbError> {
    let nodes = nodes();
    let gate = nodes.gate(number);
    match moment {
        DiskMoment::AfterQuery if gate.is_writing.take() => nodes.check_write(&gate),
        DiskMoment::AfterQuery => {}
        DiskMoment::BeforeRead | DiskMoment::BeforeWrite => {
            let jitter = nodes.random.borrow_mut().below(3);
            sleep(Duration::from_millis(jitter)).await;
        }
    }
    gate.pass().await;
    gate.is_writing.set(moment == DiskMoment::BeforeWrite);
    Ok(())
}

/// Every line of this node's journal passes here.
pub async fn journal(number: usize) -> Result<(), usize> {
    nodes().gate(number).pass().await;
    Ok(())
}

/// This node dials.
pub async fn dial(number: usize, host: String, port: u16) -> io::Result<Memory> {
    let nodes = nodes();
    let gate = nodes.gate(number);
    let lag = nodes.random.borrow_mut().between(1, 5);
    sleep(Duration::from_millis(lag)).await;
    gate.pass().await;
    let (service, wire) = nodes.world.connect_to(&host, port, [192, 0, 2, 1 + gate.place as u8].into())?;
    gate.add_wire(wire);
    Ok(service)
}
