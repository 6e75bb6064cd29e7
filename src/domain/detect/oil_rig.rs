//! Oil rigs: the game says nothing of them, so their locked crate is a timer that starts with the chinook.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::events::Events;
use crate::domain::{monument::Monument, time::Moment, world_event::EventKind};

/// From the call of the heavy scientists until the crate opens (the game's default).
const UNLOCK_AFTER: TimeDelta = TimeDelta::minutes(15);

/// Timers that run at once; a custom map may name any number of rigs.
const MAX_RIGS: usize = 32;

/// Events of a rig's timer, by minutes from the unlocking of the crate.
const STAGES: [(i64, &str); 4] =
    [(-10, "crate_unlocks_soon"), (-5, "crate_unlocks_soon"), (0, "crate_unlocked"), (15, "ready")];

#[derive(Debug)]
struct OilRig {
    monument: Monument,
    unlocks_at: Moment,
    /// Stages that are done.
    done: usize,
}

/// The rigs whose timer runs, by position.
#[derive(Debug)]
pub(super) struct OilRigs(BTreeMap<(u64, u64), OilRig>);

impl OilRigs {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn take_over(&mut self, other: Self, now: Moment) {
        let here = |rig: OilRig| OilRig { unlocks_at: now.at(rig.unlocks_at.stamp), ..rig };
        self.0 = other.0.into_iter().take(MAX_RIGS).map(|(key, rig)| (key, here(rig))).collect();
    }

    /// Heavy scientists come to this rig now. Nothing happens while its crate is locked already.
    pub(super) fn call(&mut self, rig: &Monument, events: &mut Events) {
        let key = (rig.x.to_bits(), rig.y.to_bits());
        let is_locked = self.0.get(&key).is_some_and(|rig| events.now < rig.unlocks_at);
        if is_locked || (self.0.len() >= MAX_RIGS && !self.0.contains_key(&key)) {
            return;
        }
        let unlocks_at = events.now + UNLOCK_AFTER;
        let data = json!({ "rig": rig.oil_rig(), "unlocksAt": unlocks_at.stamp.to_wire() });
        let title = |_: &str| format!("Heavy scientists were called to the {}", rig.name());
        events.report(EventKind::Oilrig, "called", Some((rig.x, rig.y)), data, title);
        self.0.insert(key, OilRig { monument: rig.clone(), unlocks_at, done: 0 });
    }

    /// When the next stage of a rig comes due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.0.values().filter_map(|rig| Some(rig.unlocks_at + TimeDelta::minutes(STAGES.get(rig.done)?.0))).min()
    }

    /// Reports the stages that have come due, of several stages of a rig the last.
    pub(super) fn tick(&mut self, events: &mut Events) {
        for rig in self.0.values_mut() {
            let due = rig.due(events.now);
            if due > rig.done {
                rig.done = due;
                rig.report(STAGES[due - 1], events);
            }
        }
        self.0.retain(|_, rig| rig.done < STAGES.len());
    }

    /// Passes over the stages that came due unseen.
    pub(super) fn skip(&mut self, now: Moment) {
        for rig in self.0.values_mut() {
            rig.done = rig.due(now);
        }
        self.0.retain(|_, rig| rig.done < STAGES.len());
    }
}

/// A rig whose timer runs, for another process.
#[derive(Serialize, Deserialize)]
struct RunningRig {
    token: String,
    /// Bits of its position.
    key: (u64, u64),
    unlocks_at: Moment,
    done: usize,
}

impl Serialize for OilRigs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let running = |(key, rig): (&(u64, u64), &OilRig)| {
            let OilRig { monument, unlocks_at, done } = rig;
            RunningRig { token: monument.token().to_owned(), key: *key, unlocks_at: *unlocks_at, done: *done }
        };
        serializer.collect_seq(self.0.iter().map(running))
    }
}

impl<'de> Deserialize<'de> for OilRigs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rig = |RunningRig { token, key, unlocks_at, done }: RunningRig| {
            let monument = Monument::new(&token, f64::from_bits(key.0), f64::from_bits(key.1))?;
            Some((key, OilRig { monument, unlocks_at, done }))
        };
        Ok(Self(Vec::deserialize(deserializer)?.into_iter().filter_map(rig).collect()))
    }
}

impl OilRig {
    fn due(&self, now: Moment) -> usize {
        STAGES.iter().take_while(|(minutes, _)| self.unlocks_at + TimeDelta::minutes(*minutes) <= now).count()
    }

    fn report(&self, (minutes, action): (i64, &'static str), events: &mut Events) {
        let (name, x, y) = (self.monument.name(), self.monument.x, self.monument.y);
        let mut data = json!({ "rig": self.monument.oil_rig(), "unlocksAt": self.unlocks_at.stamp.to_wire() });
        if minutes < 0 {
            data["minutes"] = json!(-minutes);
        }
        events.report(EventKind::Oilrig, action, Some((x, y)), data, |_| match action {
            "crate_unlocked" => format!("The crate of the {name} is unlocked"),
            "ready" => format!("The {name} can be called again"),
            _ => format!("The crate of the {name} unlocks in {} minutes", -minutes),
        });
    }
}
