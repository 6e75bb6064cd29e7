//! Shared state of the provider's pages, its API and the code that started it.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{books::Books, delivery::EventDelivery, setup::PaymentFaults};
use crate::clock::Clock;

/// See the module.
pub struct SharedPayments {
    pub addr: SocketAddr,
    pub clock: Clock,
    books: Mutex<Books>,
    faults: Mutex<PaymentFaults>,
    pub delivery: EventDelivery,
}

impl SharedPayments {
    pub(crate) fn new(addr: SocketAddr, run: String, clock: Clock) -> io::Result<Self> {
        let (books, delivery) = (Books::new(run).into(), EventDelivery::new()?);
        Ok(Self { addr, clock, books, faults: Mutex::default(), delivery })
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, PaymentFaults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a step, and sends the events that come of it.
    pub fn step<T>(&self, step: impl FnOnce(&mut Books, i64) -> T) -> T {
        let faults = self.faults().clone();
        let (done, events) = {
            let mut books = self.books();
            let done = step(&mut books, self.clock.now().timestamp());
            let events = if faults.hold_events { Vec::new() } else { books.take_news(faults.older_shape) };
            (done, events)
        };
        self.delivery.send(events, &faults, &self.clock);
        done
    }
}
