//! Asks the identity provider each minute, as a sign-in would: without its answer no user can sign in, nor with a clock that
//! is minutes away from its own, and nothing else shows either before a user complains.

use std::{sync::PoisonError, time::Duration};

use chrono::TimeDelta;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    api::context::ApiContext,
    clock::Clock,
    domain::{clock_skew::ClockSkew, time::Timestamp},
};

/// Time between two questions, which have no body.
const EVERY: Duration = Duration::from_secs(60);

/// An answer that took longer says too little about the time.
const QUICK: TimeDelta = TimeDelta::seconds(2);

impl ApiContext {
    /// Asks without end.
    pub async fn watch_sign_in(&self) {
        // The machine's, whichever clock the service was given.
        let clock = Clock::system();
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let before = clock.now();
            let there = self.services.identity.time_there().await;
            let took = clock.now() - before;
            self.note_identity_fault(there.as_ref().err().cloned());
            // One that says no time says nothing about ours.
            let Ok(Some(there)) = there else { continue };
            if took <= QUICK {
                self.note_skew(ClockSkew(Timestamp::from(there) - (before + took / 2)));
            }
        }
    }

    /// Notes why the identity provider does not answer, or that it does, and logs a change.
    fn note_identity_fault(&self, fault: Option<String>) {
        metrics::gauge!("companion_identity_provider_up").set(f64::from(fault.is_none()));
        let mut known = self.health.identity_fault.lock().unwrap_or_else(PoisonError::into_inner);
        match (&fault, known.is_some()) {
            (Some(fault), false) => log::warn!(
                "the identity provider does not answer, and no user can sign in meanwhile: {fault}; see `companion doctor`"
            ),
            (None, true) => log::info!("the identity provider answers again"),
            _ => {}
        }
        *known = fault;
    }

    /// Notes the difference of the clocks, and logs whether they agree when that changes.
    fn note_skew(&self, skew: ClockSkew) {
        metrics::gauge!("companion_clock_behind_seconds").set(skew.0.num_milliseconds() as f64 / 1_000.0);
        let known = self.health.clock_skew.lock().unwrap_or_else(PoisonError::into_inner).replace(skew);
        match (skew.agrees(), known.is_some_and(|known| !known.agrees())) {
            (true, true) => log::info!("the clock agrees with that of the identity provider again"),
            (false, false) => log::error!("the clock {skew} that of the identity provider; set it by NTP"),
            _ => {}
        }
    }

    /// Reason for which the identity provider does not answer, as of the last question; none if it does.
    pub fn identity_fault(&self) -> Option<String> {
        self.health.identity_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last difference of the clocks, if it is one.
    pub fn clock_off(&self) -> Option<ClockSkew> {
        let known = *self.health.clock_skew.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|skew| !skew.agrees())
    }
}
