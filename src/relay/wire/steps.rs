//! The last steps to a server's state, one after the other. Pure.
//!
//! They are kept for a minute at the most, and no more of them than a snapshot is large: a client further behind is
//! better off with a snapshot. While raids are among them the limit is higher, because a snapshot may not come at once.
//! For each key of the state it is known when it changed last, and to where the steps reach back: a client that wants
//! only some keys is not behind because others change.

use std::{collections::VecDeque, sync::Arc};

use chrono::TimeDelta;

use crate::{
    domain::{
        change::{self, Change},
        items::Catalogue,
        sections::{Sections, StateKey},
        time::Moment,
    },
    relay::wire::frame::SharedFrame,
};

/// Longest time that a step is kept.
const AGE: TimeDelta = TimeDelta::seconds(60);
/// Bytes of steps that are kept although the snapshot is smaller: a client that waits for the next snapshot, which is
/// up to five seconds, has a map that does not move.
pub const FEW_BYTES: usize = 32 * 1024;
/// This limit while raids are among them: hundreds of incidents at once.
const RAID_BYTES: usize = 512 * 1024;

/// One edit of the live state, with the frame for every client at `base`.
#[derive(Debug)]
pub struct Step {
    pub base: u64,
    pub seq: u64,
    pub changes: Vec<Change>,
    pub frame: SharedFrame,
    pub at: Moment,
    /// Bytes of memory that it holds, approximately.
    pub bytes: usize,
}

impl Step {
    /// The step from `base` to the next `seq`; `catalogue` is that of the frame.
    pub fn new(base: u64, changes: Vec<Change>, frame: SharedFrame, catalogue: &Catalogue, at: Moment) -> Arc<Self> {
        let bytes = size_of::<Self>() + frame.plain().len() + change::held_bytes(&changes, catalogue);
        Arc::new(Self { base, seq: base + 1, changes, frame, at, bytes })
    }

    /// The keys that it changes.
    pub fn sections(&self) -> Sections {
        changed(&self.changes)
    }
}

fn changed(changes: &[Change]) -> Sections {
    changes.iter().map(|change| StateKey::from(change.section)).collect()
}

/// A `seq` for each key.
type SeqByKey = [u64; StateKey::ALL.len()];

fn note(seqs: &mut SeqByKey, sections: Sections, seq: u64) {
    sections.iter().for_each(|key| seqs[key as usize] = seq);
}

/// The latest of these keys.
fn latest(seqs: &SeqByKey, sections: Sections) -> u64 {
    sections.iter().map(|key| seqs[key as usize]).max().unwrap_or_default()
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    steps: VecDeque<Arc<Step>>,
    /// Bytes of memory that they hold.
    bytes: usize,
    /// Bytes of the newest snapshot.
    snapshot_size: usize,
    /// At which `seq` each key changed last.
    changed: SeqByKey,
    /// At which `seq` each key changed last in the steps that are forgotten.
    forgotten: SeqByKey,
}

impl Steps {
    /// None, to a state whose keys changed last at these `seq`s, in the order of [`StateKey::ALL`].
    pub fn none_to(changed: &[u64]) -> Self {
        let mut steps = Self::default();
        steps.changed.iter_mut().zip(changed).for_each(|(seq, known)| *seq = *known);
        steps.forgotten = steps.changed;
        steps
    }

    /// The `seq` at which each key changed last, in the order of [`StateKey::ALL`].
    pub fn changed(&self) -> &[u64] {
        &self.changed
    }

    /// Adds the next one.
    pub fn push(&mut self, step: Arc<Step>) {
        let now = step.at;
        self.bytes += step.bytes;
        note(&mut self.changed, step.sections(), step.seq);
        self.steps.push_back(step);
        self.forget_old(now);
    }

    /// Forgets those that are too old, or too many. The last one stays while it is young, however large it is.
    pub fn forget_old(&mut self, now: Moment) {
        while let Some(oldest) = self.steps.front()
            && (now - oldest.at > AGE || (self.bytes > self.most_bytes() && self.steps.len() > 1))
        {
            self.bytes -= oldest.bytes;
            note(&mut self.forgotten, oldest.sections(), oldest.seq);
            self.steps.pop_front();
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.steps = VecDeque::new();
        self.bytes = 0;
        self.forgotten = self.changed;
    }

    /// Forgets all steps, and one to this `seq` that no one needs.
    pub fn skip(&mut self, seq: u64, changes: &[Change]) {
        note(&mut self.changed, changed(changes), seq);
        self.clear();
    }

    /// The `seq` at which any of these keys changed last.
    pub fn changed_at(&self, sections: Sections) -> u64 {
        latest(&self.changed, sections)
    }

    /// Sets the size of the newest snapshot, in bytes.
    pub fn set_snapshot_size(&mut self, bytes: usize) {
        self.snapshot_size = bytes;
    }

    /// Bytes of the newest snapshot.
    pub fn snapshot_size(&self) -> usize {
        self.snapshot_size
    }

    /// Most bytes that are worth keeping.
    pub fn most_bytes(&self) -> usize {
        let of_raids = Sections::from_iter([StateKey::Raids]);
        let have_raids = self.changed_at(of_raids) > latest(&self.forgotten, of_raids);
        self.snapshot_size.max(if have_raids { RAID_BYTES } else { FEW_BYTES })
    }

    /// True if they have all changes of these keys after this `seq`.
    pub fn reach(&self, seq: u64, sections: Sections) -> bool {
        match sections.is_all() {
            true => self.steps.front().is_some_and(|oldest| oldest.base <= seq),
            false => latest(&self.forgotten, sections) <= seq,
        }
    }

    /// The newest step, if one is kept.
    pub fn last(&self) -> Option<&Arc<Step>> {
        self.steps.back()
    }

    /// All changes after this `seq`, in order.
    pub fn changes_since(&self, seq: u64) -> impl Iterator<Item = &Change> {
        let first = self.steps.partition_point(|step| step.base < seq);
        self.steps.range(first..).flat_map(|step| &step.changes)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::domain::time::Timestamp;

    fn after(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    fn step(base: u64, seconds: i64, bytes: usize) -> Arc<Step> {
        let frame = Bytes::from(vec![0; bytes]).into();
        Step::new(base, Vec::new(), frame, Catalogue::embedded(), after(seconds))
    }

    #[test]
    fn steps_are_forgotten_after_a_minute() {
        let mut steps = Steps::default();
        (0..5).for_each(|base| steps.push(step(base, 0, 1)));
        steps.push(step(5, 1, 1));
        steps.forget_old(after(60));
        assert!(steps.reach(0, Sections::ALL));
        steps.forget_old(after(61));
        assert!(!steps.reach(4, Sections::ALL) && steps.reach(5, Sections::ALL));
        steps.forget_old(after(62));
        assert_eq!((steps.reach(5, Sections::ALL), steps.bytes), (false, 0));
    }

    #[test]
    fn steps_that_are_not_here_are_behind_for_the_keys_that_they_changed() {
        let mut known = Steps::default();
        let team = Sections::from_iter([StateKey::Team]);
        note(&mut known.changed, team, 7);
        let none = Steps::none_to(known.changed());
        assert_eq!((none.changed_at(team), none.changed_at(Sections::ALL)), (7, 7));
        assert!(none.reach(7, team) && !none.reach(6, team));
        let others = Sections::from_iter([StateKey::Raids]);
        assert!(none.reach(0, others) && none.changed_at(others) == 0);
    }

    proptest! {
        #[test]
        fn no_more_is_held_than_a_snapshot_is_large_or_the_last_step(
            snapshot in 0..100_000_usize,
            steps in prop::collection::vec((0..60_000_usize, 0..9_i64), 1..60),
        ) {
            let (mut held, mut now) = (Steps::default(), 0);
            held.set_snapshot_size(snapshot);
            for (base, (bytes, pause)) in (0..).zip(steps) {
                now += pause;
                let step = step(base, now, bytes);
                let last = step.bytes;
                held.push(step);
                prop_assert_eq!(held.bytes, held.steps.iter().map(|step| step.bytes).sum::<usize>());
                prop_assert!(held.bytes <= snapshot.max(FEW_BYTES).max(last));
                prop_assert!(held.steps.iter().all(|step| after(now) - step.at <= AGE));
                prop_assert!(held.steps.iter().zip(held.steps.range(1..)).all(|(one, next)| one.seq == next.base));
            }
        }
    }
}
