//! Switches that were turned from the chat: those that turn back after a time, and those that were turned lately.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use chrono::TimeDelta;

use crate::{
    db::switch_backs::SwitchBack,
    domain::{
        device::TurnBack,
        team_command::turn_back::PendingTurnBack,
        time::{Moment, Timestamp},
    },
};

/// A switch that was turned from the chat is not announced for this time.
const TURNED_LATELY: TimeDelta = TimeDelta::seconds(30);

/// Switches by device id.
#[derive(Default)]
pub struct SwitchBacks {
    pending: HashMap<Arc<str>, PendingTurnBack>,
    /// The switches that turn back now.
    turning: HashSet<Arc<str>>,
    /// Switches that were turned from the chat, and when.
    turned: HashMap<Arc<str>, Moment>,
}

impl SwitchBacks {
    /// Takes the stored ones, in place of all.
    pub fn load(&mut self, stored: Vec<SwitchBack>) {
        let by_id =
            |back: SwitchBack| (Arc::from(back.device_id.as_str()), PendingTurnBack::new(back.value, back.due_at));
        self.pending = stored.into_iter().map(by_id).collect();
    }

    /// The switch gets this value then. A newer command takes the place of an older one.
    pub fn set(&mut self, id: Arc<str>, value: bool, due_at: Timestamp) {
        self.pending.insert(id, PendingTurnBack::new(value, due_at));
    }

    /// The switch stays as it is. False if nothing else was planned.
    pub fn remove(&mut self, id: &Arc<str>) -> bool {
        self.pending.remove(id).is_some()
    }

    /// True if the switch gets this value then.
    pub fn is_planned(&self, id: &Arc<str>, value: bool, due_at: Timestamp) -> bool {
        self.pending.get(id).is_some_and(|back| (back.value, back.due_at) == (value, due_at))
    }

    /// As users see them.
    pub fn shown(&self) -> HashMap<Arc<str>, TurnBack> {
        let shown =
            |(id, back): (&Arc<str>, &PendingTurnBack)| (id.clone(), TurnBack { value: back.value, at: back.due_at });
        self.pending.iter().map(shown).collect()
    }

    /// Times at which one is tried.
    pub fn next_tries(&self) -> impl Iterator<Item = Timestamp> {
        self.pending.values().map(PendingTurnBack::next_try)
    }

    /// Begins to turn back those whose time has come: their ids, and the values that they get.
    pub fn begin_due(&mut self, now: Moment) -> Vec<(Arc<str>, bool)> {
        let tried = self.pending.iter_mut();
        let due = tried.filter_map(|(id, back)| back.begin_try(now.stamp).then(|| (id.clone(), back.value)));
        let due: Vec<_> = due.collect();
        for (id, _) in &due {
            self.turned.insert(id.clone(), now);
            self.turning.insert(id.clone());
        }
        due
    }

    /// The game has answered the try, or did not.
    pub fn end_try(&mut self, id: &Arc<str>) {
        self.turning.remove(id);
    }

    /// True if a toggle to this value is the turning back itself.
    pub fn is_turning(&self, id: &Arc<str>, wanted: Option<bool>) -> bool {
        self.turning.contains(id) && self.pending.get(id).is_some_and(|back| wanted == Some(back.value))
    }

    /// True if it was tried for so long that it is given up.
    pub fn is_hopeless(&self, id: &Arc<str>) -> bool {
        self.pending.get(id).is_some_and(PendingTurnBack::is_hopeless)
    }

    /// These are turned from the chat.
    pub fn note_turned(&mut self, ids: impl Iterator<Item = Arc<str>>, now: Moment) {
        self.turned.retain(|_, at| now - *at < TURNED_LATELY);
        self.turned.extend(ids.map(|id| (id, now)));
    }

    /// True if the switch was turned from the chat, where its answer is said.
    pub fn was_turned(&self, id: &str) -> bool {
        self.turned.contains_key(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn a_switch_is_turning_back_from_its_time_to_the_answer() {
        let (mut backs, lamp) = (SwitchBacks::default(), Arc::<str>::from("9"));
        backs.set(lamp.clone(), false, at(60));
        assert!(backs.begin_due(at(59).into()).is_empty());
        assert_eq!(backs.next_tries().collect::<Vec<_>>(), [at(60)]);
        assert!(!backs.is_turning(&lamp, Some(false)), "a user turns it");
        assert_eq!(backs.begin_due(at(60).into()), [(lamp.clone(), false)]);
        assert!(backs.is_turning(&lamp, Some(false)));
        assert!(!backs.is_turning(&lamp, Some(true)) && !backs.is_turning(&lamp, None));
        backs.end_try(&lamp);
        assert!(!backs.is_turning(&lamp, Some(false)));
        assert_eq!(backs.shown(), HashMap::from([(lamp.clone(), TurnBack { value: false, at: at(60) })]));
        assert!(backs.remove(&lamp) && !backs.remove(&lamp));
    }

    #[test]
    fn turned_switches_are_forgotten_with_the_next_command() {
        let mut backs = SwitchBacks::default();
        backs.note_turned(["1".into()].into_iter(), at(0).into());
        backs.note_turned(["2".into()].into_iter(), at(29).into());
        assert!(backs.was_turned("1") && backs.was_turned("2"));
        backs.note_turned(["3".into()].into_iter(), at(30).into());
        assert!(!backs.was_turned("1") && backs.was_turned("2") && backs.was_turned("3"));
    }
}
