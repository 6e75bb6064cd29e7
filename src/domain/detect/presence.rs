//! Presence of things: one missing in one answer may be a flicker, so "gone" needs several.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::time::Moment;

/// Consecutive complete answers without it…
const MISSES: u32 = 3;

/// …over at least this long make it gone.
const MISSING_FOR: TimeDelta = TimeDelta::seconds(6);

/// Time for which the gone are remembered, so that "gone" can be taken back.
const REMEMBER: TimeDelta = TimeDelta::minutes(10);

/// Number of the gone that are remembered.
const MAX_GONE: usize = 256;

/// Things of one kind by key, over successive answers. Each answer: [`Sightings::see`] for all in it, then
/// [`Sightings::sweep`]. Most kinds have one thing or none, so they are in vectors, which are small.
#[derive(Clone, Debug)]
pub(super) struct Sightings<K, T> {
    /// First those that were known before the current answer, in the order of their keys; then those that are new in
    /// it, in the order of theirs.
    present: Vec<Entry<K, T>>,
    known: u32,
    limit: u32,
    /// Number of the current answer.
    round: u32,
    gone: BTreeMap<K, (T, Moment)>,
}

#[derive(Clone, Debug)]
struct Entry<K, T> {
    key: K,
    value: T,
    /// When it was last seen.
    round: u32,
    /// Rare, so that it is elsewhere.
    missing: Option<Box<Missing>>,
}

#[derive(Clone, Debug)]
struct Missing {
    answers: u32,
    since: Moment,
}

/// Earlier knowledge of something in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    New,
    Known,
    /// Back after it was taken for gone.
    Back,
}

impl<K: Ord, T> Sightings<K, T> {
    /// Nothing there; at most `limit` things are followed, so that no answer can grow it without bound.
    pub(super) fn new(limit: u32) -> Self {
        Self { present: Vec::new(), known: 0, limit, round: 0, gone: BTreeMap::new() }
    }

    /// Something is in the answer; many come quickest in the order of their keys. `None` when too many are followed
    /// already.
    pub(super) fn see(&mut self, key: K, fresh: impl FnOnce() -> T) -> Option<(Sighting, &mut T)> {
        let index = match self.find(&key) {
            Ok(index) => {
                let entry = &mut self.present[index];
                (entry.round, entry.missing) = (self.round, None);
                return Some((Sighting::Known, &mut entry.value));
            }
            Err(index) => index,
        };
        if self.present.len() >= self.limit as usize {
            return None;
        }
        let (sighting, value) = match self.gone.remove(&key) {
            Some((value, _)) => (Sighting::Back, value),
            None => (Sighting::New, fresh()),
        };
        self.present.insert(index, Entry { key, value, round: self.round, missing: None });
        Some((sighting, &mut self.present[index].value))
    }

    /// Where it is, or where it belongs among those that are new.
    fn find(&self, key: &K) -> Result<usize, usize> {
        let (known, fresh) = self.present.split_at(self.known as usize);
        let search = |entries: &[Entry<K, T>]| entries.binary_search_by(|entry| entry.key.cmp(key));
        let behind_known = |index| known.len() + index;
        search(known).or_else(|_| search(fresh).map(behind_known).map_err(behind_known))
    }

    /// Ends an answer: calls `gone` for things that have been missing long enough. While priming, things that are not
    /// in the answer are forgotten without a call.
    pub(super) fn sweep(&mut self, now: Moment, priming: bool, mut gone: impl FnMut(&K, &mut T)) {
        let round = self.round;
        self.round = self.round.wrapping_add(1);
        if self.present.len() > self.known as usize {
            self.present.sort_by(|a, b| a.key.cmp(&b.key));
            self.present.shrink_to_fit();
        }
        let missing = self.present.extract_if(.., |entry| {
            if entry.round == round {
                return false;
            }
            let missing = entry.missing.get_or_insert_with(|| Box::new(Missing { answers: 0, since: now }));
            missing.answers += 1;
            priming || (missing.answers >= MISSES && now - missing.since >= MISSING_FOR)
        });
        for mut entry in missing {
            if !priming {
                gone(&entry.key, &mut entry.value);
                if self.gone.len() < MAX_GONE {
                    self.gone.insert(entry.key, (entry.value, now));
                }
            }
        }
        self.known = self.present.len() as u32;
        self.gone.retain(|_, (_, since)| now - *since < REMEMBER);
    }

    /// The present things, including the missing ones that are not yet gone.
    pub(super) fn present(&self) -> impl Iterator<Item = (&K, &T)> {
        self.present.iter().map(|entry| (&entry.key, &entry.value))
    }

    /// Takes in the present things of another process. Call it before the first answer.
    pub(super) fn take_over(&mut self, other: Self, now: Moment) {
        for Entry { key, value, .. } in other.present {
            self.see(key, || value);
        }
        self.sweep(now, true, |_, _| {});
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn get(&self, key: &K) -> Option<&T> {
        self.find(key).ok().map(|index| &self.present[index].value)
    }

    pub(super) fn present_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.present.iter_mut().map(|entry| &mut entry.value)
    }

    /// Things that are missing, or that went in the last minutes.
    pub(super) fn absent(&self) -> impl Iterator<Item = &T> {
        let missing = self.present.iter().filter(|entry| entry.missing.is_some()).map(|entry| &entry.value);
        missing.chain(self.gone.values().map(|(value, _)| value))
    }
}

/// The present things alone, for another process.
impl<K: Serialize, T: Serialize> Serialize for Sightings<K, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.present.iter().map(|entry| (&entry.key, &entry.value)))
    }
}

/// Only for [`Sightings::take_over`]: nothing is followed.
impl<'de, K: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Sightings<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let things = Vec::<(K, T)>::deserialize(deserializer)?;
        let present = things.into_iter().map(|(key, value)| Entry { key, value, round: 0, missing: None }).collect();
        Ok(Self { present, known: 0, limit: 0, round: 0, gone: BTreeMap::new() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Sighting, Sightings};
    use crate::domain::detect::testing::at;

    fn answer(presence: &mut Sightings<u64, ()>, seconds: i64, seen: &[u64]) -> (Vec<Sighting>, Vec<u64>) {
        let sightings = seen.iter().filter_map(|id| presence.see(*id, || ()).map(|(sighting, ())| sighting)).collect();
        let mut gone = Vec::new();
        presence.sweep(at(seconds), false, |id, ()| gone.push(*id));
        (sightings, gone)
    }

    #[test]
    fn one_or_two_misses_are_a_flicker() {
        let mut presence = Sightings::new(10);
        assert_eq!(answer(&mut presence, 0, &[7]), (vec![Sighting::New], vec![]));
        assert_eq!(answer(&mut presence, 10, &[]), (vec![], vec![]));
        assert_eq!(answer(&mut presence, 20, &[]), (vec![], vec![]));
        assert_eq!(answer(&mut presence, 30, &[7]), (vec![Sighting::Known], vec![]));
        assert_eq!(answer(&mut presence, 40, &[]), (vec![], vec![]));
    }

    #[test]
    fn many_misses_in_a_moment_are_a_flicker_too() {
        let mut presence = Sightings::new(10);
        answer(&mut presence, 0, &[7]);
        for _ in 0..5 {
            assert_eq!(answer(&mut presence, 1, &[]).1, Vec::<u64>::new());
        }
        assert_eq!(answer(&mut presence, 7, &[]).1, [7]);
    }

    #[test]
    fn what_was_gone_comes_back_for_ten_minutes() {
        let mut presence = Sightings::new(10);
        answer(&mut presence, 0, &[7]);
        for seconds in [10, 20, 30] {
            answer(&mut presence, seconds, &[]);
        }
        assert_eq!(presence.absent().count(), 1);
        assert_eq!(answer(&mut presence, 600, &[7]).0, [Sighting::Back]);
        for seconds in [610, 620, 630, 1_230] {
            answer(&mut presence, seconds, &[]);
        }
        assert_eq!(answer(&mut presence, 1_240, &[7]).0, [Sighting::New]);
    }

    proptest! {
        #[test]
        fn whatever_is_flipped_memory_stays_bounded_and_what_goes_was_there(
            answers in prop::collection::vec((1_i64..20, prop::collection::btree_set(0_u64..60, 0..40)), 1..40),
        ) {
            let mut presence = Sightings::new(20);
            let (mut now, mut there) = (0, std::collections::BTreeSet::new());
            for (advance, seen) in answers {
                now += advance;
                for id in seen {
                    if let Some((sighting, ())) = presence.see(id, || ()) {
                        prop_assert_eq!(there.insert(id), sighting != Sighting::Known);
                    }
                }
                presence.sweep(at(now), false, |id, ()| assert!(there.remove(id)));
                prop_assert!(presence.present().count() <= 20 && presence.gone.len() <= super::MAX_GONE);
            }
        }
    }
}
