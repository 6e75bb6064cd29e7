//! Toggles of a game server's switches: one at a time for each switch, in the order in which they came. Each begins
//! with what is then true, so that none is lost.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use tokio::{sync::oneshot, time::Instant};

use crate::relay::game::commands::{CommandError, Wish};

/// Answers that one switch may owe: more than a person asks for within the deadline of a toggle.
const OWED: usize = 64;

/// The value that the switch then shows.
pub type ToggleResult = Result<bool, CommandError>;

/// The toggles of one game server, by device id. Every one that waits has a client that waits.
#[derive(Debug, Default)]
pub struct Toggles {
    queues: HashMap<Arc<str>, SwitchQueue>,
    /// Switches whose last toggle was not answered: what is known of them may not be true.
    unsure: HashSet<Arc<str>>,
}

/// The first one is under way.
#[derive(Debug, Default)]
struct SwitchQueue(VecDeque<WaitingToggle>);

#[derive(Debug)]
struct WaitingToggle {
    wish: Wish,
    /// When its clients stop to wait: a toggle whose turn comes late is not carried out for longer.
    until: Instant,
    owed: Vec<oneshot::Sender<ToggleResult>>,
}

/// The fate of a new toggle.
#[derive(Debug)]
pub enum Added {
    /// Its turn is now: carry it out, then call [`Toggles::end`].
    Begins(oneshot::Receiver<ToggleResult>),
    /// Its turn comes, or it is one with another.
    Waits(oneshot::Receiver<ToggleResult>),
    /// Too many wait.
    Full,
}

impl Toggles {
    /// Adds a toggle that has time until then. One that wants the same value as the last before it is one with that;
    /// two flips are two.
    pub fn add(&mut self, device: &Arc<str>, wish: Wish, until: Instant) -> Added {
        let SwitchQueue(wishes) = self.queues.entry(device.clone()).or_default();
        if wishes.iter().map(|waiting| waiting.owed.len()).sum::<usize>() >= OWED {
            return Added::Full;
        }
        let (sender, toggled) = oneshot::channel();
        match wishes.back_mut().filter(|last| wish.value.is_some() && last.wish.value == wish.value) {
            Some(same) => {
                same.owed.push(sender);
                same.until = until;
            }
            None => wishes.push_back(WaitingToggle { wish, until, owed: vec![sender] }),
        }
        if wishes.len() == 1 && wishes[0].owed.len() == 1 { Added::Begins(toggled) } else { Added::Waits(toggled) }
    }

    /// True if the known value of this switch may be wrong.
    pub fn is_unsure(&self, device: &Arc<str>) -> bool {
        self.unsure.contains(device)
    }

    /// Ends the toggle under way and answers those who wait for it. Returns the next, if there is one, and until when
    /// it has time; one whose callers have all left is not carried out.
    pub fn end(&mut self, device: &Arc<str>, toggled: ToggleResult) -> Option<(Wish, Instant)> {
        match toggled {
            Err(CommandError::TimedOut) => self.unsure.insert(device.clone()),
            Ok(_) => self.unsure.remove(device),
            Err(_) => false,
        };
        let SwitchQueue(wishes) = self.queues.get_mut(device)?;
        for owed in wishes.pop_front().into_iter().flat_map(|waiting| waiting.owed) {
            // Its client may have gone.
            let _ = owed.send(toggled);
        }
        while wishes.front().is_some_and(|waiting| waiting.owed.iter().all(oneshot::Sender::is_closed)) {
            wishes.pop_front();
        }
        let next = wishes.front().map(|waiting| (waiting.wish.clone(), waiting.until));
        if next.is_none() {
            self.queues.remove(device);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::LazyLock, time::Duration};

    use proptest::prelude::*;

    use super::*;

    fn device() -> Arc<str> {
        "7".into()
    }

    fn wish(value: Option<bool>) -> Wish {
        Wish { value, by: "u".into() }
    }

    /// The moment this number of seconds after a fixed one.
    fn until(seconds: u64) -> Instant {
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        *BEGIN + Duration::from_secs(seconds)
    }

    /// Carries out the toggles that wait, beginning with the one under way.
    fn carry_out(toggles: &mut Toggles, first: Option<bool>, switch: &mut bool) -> u32 {
        let (mut next, mut sets) = (Some((wish(first), until(5))), 0);
        while let Some((Wish { value, .. }, _)) = next {
            *switch = value.unwrap_or(!*switch);
            sets += 1;
            next = toggles.end(&device(), Ok(*switch));
        }
        sets
    }

    #[test]
    fn equal_values_that_follow_each_other_are_one() {
        let mut toggles = Toggles::default();
        let added: Vec<_> = [true, true, false, true, true]
            .map(|value| toggles.add(&device(), wish(Some(value)), until(5)))
            .into_iter()
            .collect();
        assert!(matches!(added[0], Added::Begins(_)));
        assert!(added[1..].iter().all(|added| matches!(added, Added::Waits(_))));
        let mut switch = false;
        assert_eq!((carry_out(&mut toggles, Some(true), &mut switch), switch), (3, true));
        let seen = added.into_iter().map(|added| match added {
            Added::Begins(mut toggled) | Added::Waits(mut toggled) => toggled.try_recv().unwrap().unwrap(),
            Added::Full => unreachable!(),
        });
        assert_eq!(seen.collect::<Vec<_>>(), [true, true, false, true, true]);
        assert!(toggles.queues.is_empty());
        assert!(matches!(toggles.add(&device(), wish(None), until(5)), Added::Begins(_)));
    }

    #[test]
    fn a_toggle_whose_caller_has_given_up_is_not_carried_out() {
        let mut toggles = Toggles::default();
        let Added::Begins(_first) = toggles.add(&device(), wish(None), until(5)) else { panic!() };
        let Added::Waits(second) = toggles.add(&device(), wish(Some(true)), until(5)) else { panic!() };
        let Added::Waits(_third) = toggles.add(&device(), wish(Some(false)), until(5)) else { panic!() };
        drop(second);
        assert_eq!(toggles.end(&device(), Err(CommandError::TimedOut)), Some((wish(Some(false)), until(5))));
        assert!(toggles.is_unsure(&device()) && !toggles.is_unsure(&"8".into()));
        assert_eq!(toggles.end(&device(), Ok(false)), None);
        assert!(!toggles.is_unsure(&device()));
    }

    #[test]
    fn each_has_the_time_that_its_last_client_waits() {
        let mut toggles = Toggles::default();
        let Added::Begins(_first) = toggles.add(&device(), wish(None), until(5)) else { panic!() };
        let Added::Waits(second) = toggles.add(&device(), wish(Some(true)), until(6)) else { panic!() };
        let Added::Waits(_same) = toggles.add(&device(), wish(Some(true)), until(7)) else { panic!() };
        drop(second);
        assert_eq!(toggles.end(&device(), Err(CommandError::TimedOut)), Some((wish(Some(true)), until(7))));
    }

    #[test]
    fn so_much_waits_and_no_more() {
        let mut toggles = Toggles::default();
        let waiting: Vec<_> = (0..OWED).map(|_| toggles.add(&device(), wish(Some(true)), until(5))).collect();
        assert!(matches!(toggles.add(&device(), wish(None), until(5)), Added::Full));
        assert!(matches!(toggles.add(&"8".into(), wish(None), until(5)), Added::Begins(_)), "each switch for itself");
        assert_eq!(waiting.len(), OWED);
        assert_eq!(toggles.end(&device(), Ok(true)), None, "they were one");
    }

    proptest! {
        #[test]
        fn none_is_lost(before in any::<bool>(), wishes in prop::collection::vec(any::<Option<bool>>(), 1..OWED)) {
            let (mut toggles, mut switch, mut wanted) = (Toggles::default(), before, before);
            let mut waiting = Vec::new();
            for value in &wishes {
                wanted = value.unwrap_or(!wanted);
                match toggles.add(&device(), wish(*value), until(5)) {
                    Added::Begins(toggled) | Added::Waits(toggled) => waiting.push((toggled, wanted)),
                    Added::Full => prop_assert!(false),
                }
            }
            carry_out(&mut toggles, wishes[0], &mut switch);
            prop_assert_eq!(switch, wanted);
            for (mut toggled, wanted) in waiting {
                prop_assert_eq!(toggled.try_recv(), Ok(Ok(wanted)));
            }
        }
    }
}
