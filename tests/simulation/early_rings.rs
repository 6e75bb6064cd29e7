//! Alarms that the link sees while the database takes nothing: the first channel rings all the same, within seconds.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use tokio::time::sleep;

use crate::{
    channels::ReceiverFate,
    world::{Fate, World},
};

/// Time between two looks at the faults.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For so long before an alarm nothing else held up its message: the channel was free, and the database could be read.
const CALM_BEFORE: u64 = 20_000;
/// The database takes nothing from this time before the alarm until this time after it.
const STUCK_BEFORE: u64 = 200;
const STUCK_AFTER: u64 = 1_500;
/// Its message arrives within this time.
pub const RINGS_WITHIN: u64 = 5_000;

/// The faults at a moment.
struct Look {
    millis: u64,
    life: u32,
    /// The service runs, and is not asked to end.
    is_up: bool,
    is_calm: bool,
    /// The push service takes what is sent to Alice's browser.
    is_browser_calm: bool,
    is_stuck: bool,
}

/// The faults of a run, and when messages arrived.
#[derive(Default)]
pub struct EarlyRings {
    looks: RefCell<Vec<Look>>,
    /// By channel and incident.
    rung: RefCell<BTreeMap<(String, String), u64>>,
}

impl EarlyRings {
    /// A message about this incident arrived by the channel.
    pub fn note(&self, channel: &str, incident: &str, millis: u64) {
        self.rung.borrow_mut().entry((channel.to_owned(), incident.to_owned())).or_insert(millis);
    }

    /// True if a message about this incident arrived by the channel until then.
    pub fn has_rung(&self, channel: &str, incident: &str, until: u64) -> bool {
        let rung = self.rung.borrow();
        rung.get(&(channel.to_owned(), incident.to_owned())).is_some_and(|at| *at <= until)
    }

    /// True if nothing but the database was in the way of an alarm of this time.
    pub fn only_database_was_stuck(&self, at: u64) -> bool {
        let looks = self.looks.borrow();
        let within = |from: u64, to: u64| looks.iter().filter(move |look| (from..to).contains(&look.millis));
        let Some(from) = at.checked_sub(CALM_BEFORE) else { return false };
        let lives: Vec<u32> = within(from, at + RINGS_WITHIN).map(|look| look.life).collect();
        let is_one_life = lives.first() == lives.last() && !lives.is_empty();
        is_one_life
            && within(from, at + RINGS_WITHIN).all(|look| look.is_up && look.is_calm)
            && within(at.saturating_sub(STUCK_BEFORE), at + STUCK_AFTER).all(|look| look.is_stuck)
    }

    /// True if nothing held up a push to Alice's browser that was sent then.
    pub fn browser_was_calm(&self, at: u64) -> bool {
        let looks = self.looks.borrow();
        let around = at.saturating_sub(CALM_BEFORE)..at + RINGS_WITHIN;
        looks.iter().filter(|look| around.contains(&look.millis)).all(|look| look.is_browser_calm)
    }
}

/// Looks without end.
pub async fn look(world: Rc<World>) {
    loop {
        let fate = world.fate.get();
        let look = Look {
            millis: world.millis(),
            life: world.lives.get(),
            is_up: !world.dead.get() && !world.ending.get(),
            is_calm: world.receiver.fate.get() == ReceiverFate::Run && matches!(fate, Fate::Run | Fate::Full),
            is_browser_calm: world.receiver.browsers.of(0).is_some_and(|browser| browser.is_calm()),
            is_stuck: fate == Fate::Full,
        };
        world.receiver.rings.looks.borrow_mut().push(look);
        sleep(LOOK_EVERY).await;
    }
}
