//! Links that one game server takes from each of our addresses, a few (protocol §1.7). When more want one, they take
//! turns: alarms without a push first, watched servers next, and none waits for ever.

use std::cmp::Reverse;

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// A link is left up this long, however many wait.
pub const SLICE: TimeDelta = TimeDelta::seconds(60);
/// Least time that is left of a slice when its slot is taken over.
const LEAST_LEFT: TimeDelta = TimeDelta::seconds(20);
/// A slot is taken over no sooner after it was granted; each time within a slice doubles this: two who watch cameras do not
/// make a link every other second.
const LEAST_HELD: TimeDelta = TimeDelta::seconds(2);
/// After this long a link that waits goes before all others.
pub const LONGEST_WAIT: TimeDelta = TimeDelta::minutes(10);

/// The need for a link, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// A user waits for what is to be done over it.
    Acting,
    /// Alarms that come by no push message.
    Alarms,
    /// A user watches.
    Watched,
    Other,
}

/// A link that is up, is made, or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNumber(u64);

/// Consequence of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// The link may be made, from the address with this place in the list.
    Granted(SlotNumber, usize),
    /// The link has to be ended: another waits.
    GivenUp(SlotNumber),
}

/// See the module. One for each game server.
#[derive(Debug)]
pub struct Slots {
    per_address: usize,
    addresses: usize,
    last: u64,
    open: Vec<OpenSlot>,
    waiting: Vec<WaitingLink>,
}

#[derive(Debug)]
struct OpenSlot {
    number: SlotNumber,
    claim: Claim,
    since: Moment,
    granted_at: Moment,
    least_held: TimeDelta,
    address: usize,
    is_given_up: bool,
}

#[derive(Debug)]
struct WaitingLink {
    number: SlotNumber,
    claim: Claim,
    since: Moment,
    /// The slot that is to end for it.
    instead_of: Option<SlotNumber>,
    /// Start of the slot that has ended for it, and how long it holds that in turn.
    takes_over: Option<(Moment, TimeDelta)>,
}

impl WaitingLink {
    fn rank(&self, now: Moment) -> (Claim, Moment, SlotNumber) {
        let is_late = now - self.since >= LONGEST_WAIT;
        (if is_late { self.claim.min(Claim::Alarms) } else { self.claim }, self.since, self.number)
    }
}

impl Slots {
    /// No link, and room for `per_address` from each of `addresses`, of which there is at least one. Numbers of slots follow
    /// `last`.
    pub fn new(per_address: usize, addresses: usize, last: u64) -> Self {
        Self { per_address, addresses, last, open: Vec::new(), waiting: Vec::new() }
    }

    /// True if nothing is up and nothing waits.
    pub fn is_unused(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// True if a link that is asked for now is granted, and takes the turn of no other.
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.free_address().is_some()
    }

    /// Links that are up or are made, and those that wait.
    pub fn usage(&self) -> (usize, usize) {
        (self.open.len(), self.waiting.len())
    }

    /// A link is wanted. `instead_of`: where there is no room, it takes this slot over.
    pub fn ask(&mut self, claim: Claim, instead_of: Option<SlotNumber>, now: Moment) -> SlotNumber {
        self.last += 1;
        let number = SlotNumber(self.last);
        self.waiting.push(WaitingLink { number, claim, since: now, instead_of, takes_over: None });
        number
    }

    /// The need for a link has changed.
    pub fn claim(&mut self, number: SlotNumber, claim: Claim) {
        let open = self.open.iter_mut().map(|open| (open.number, &mut open.claim));
        let waiting = self.waiting.iter_mut().map(|waiting| (waiting.number, &mut waiting.claim));
        if let Some((_, known)) = open.chain(waiting).find(|(known, _)| *known == number) {
            *known = claim;
        }
    }

    /// A link has ended, or no longer waits.
    pub fn leave(&mut self, number: SlotNumber) {
        self.open.retain(|open| open.number != number);
        self.waiting.retain(|waiting| waiting.number != number);
    }

    /// All that follows now.
    pub fn changes(&mut self, now: Moment) -> Vec<SlotChange> {
        self.waiting.sort_by_key(|waiting| waiting.rank(now));
        let mut changes = Vec::new();
        self.grant(now, &mut changes);
        self.take_over(now, &mut changes);
        self.end_slices(now, &mut changes);
        changes
    }

    fn grant(&mut self, now: Moment, changes: &mut Vec<SlotChange>) {
        while let Some(address) = self.free_address().filter(|_| !self.waiting.is_empty()) {
            // A slot that has ended for one is that one's.
            let place = self.waiting.iter().position(|waiting| waiting.takes_over.is_some()).unwrap_or(0);
            let WaitingLink { number, claim, takes_over, .. } = self.waiting.remove(place);
            let (began, least_held) = takes_over.unwrap_or((now, LEAST_HELD));
            let since = began.max(now + (LEAST_LEFT - SLICE));
            let claim = claim.max(Claim::Alarms);
            self.open.push(OpenSlot { number, claim, since, granted_at: now, least_held, address, is_given_up: false });
            changes.push(SlotChange::Granted(number, address));
        }
    }

    fn take_over(&mut self, now: Moment, changes: &mut Vec<SlotChange>) {
        for waiting in &mut self.waiting {
            let was_held = |open: &&mut OpenSlot| !open.is_given_up && now - open.granted_at >= open.least_held;
            let mut open = self.open.iter_mut().filter(was_held);
            if let Some(open) = open.find(|open| Some(open.number) == waiting.instead_of) {
                let is_in_turn = now - open.granted_at < SLICE;
                let least_held = if is_in_turn { SLICE.min(open.least_held * 2) } else { LEAST_HELD };
                (waiting.instead_of, waiting.takes_over) = (None, Some((open.since, least_held)));
                open.is_given_up = true;
                changes.push(SlotChange::GivenUp(open.number));
            }
        }
    }

    fn end_slices(&mut self, now: Moment, changes: &mut Vec<SlotChange>) {
        let given_up = self.open.iter().filter(|open| open.is_given_up).count();
        // One that takes a slot over in a moment takes no other.
        let takes_over = |waiting: &&WaitingLink| {
            self.open.iter().any(|open| !open.is_given_up && Some(open.number) == waiting.instead_of)
        };
        let waiting = self.waiting.iter().filter(|waiting| !takes_over(waiting)).skip(given_up);
        let claims: Vec<Claim> = waiting.map(|waiting| waiting.rank(now).0).collect();
        for claim in claims {
            let ends = |open: &&mut OpenSlot| !open.is_given_up && now - open.since >= SLICE && open.claim >= claim;
            let Some(open) = self.open.iter_mut().filter(ends).min_by_key(|open| (Reverse(open.claim), open.since))
            else {
                return;
            };
            open.is_given_up = true;
            changes.push(SlotChange::GivenUp(open.number));
        }
    }

    /// When [`Self::changes`] has to be asked again although nothing has happened.
    pub fn next_change_at(&self, now: Moment) -> Option<Moment> {
        let slices = self.open.iter().filter(|open| !open.is_given_up).map(|open| open.since + SLICE);
        let waits = self.waiting.iter().map(|waiting| waiting.since + LONGEST_WAIT);
        let is_wanted = |open: &&OpenSlot| self.waiting.iter().any(|waiting| waiting.instead_of == Some(open.number));
        let taken_over = self.open.iter().filter(is_wanted).map(|open| open.granted_at + open.least_held);
        slices.chain(waits).chain(taken_over).filter(|at| *at > now && !self.waiting.is_empty()).min()
    }

    /// The links that wait, and by when each is made at the latest unless others come whose need is greater; as the last
    /// [`Self::changes`] left them.
    pub fn expected(&self, now: Moment) -> impl Iterator<Item = (SlotNumber, Moment)> {
        let may_end = |claim: Claim| self.open.iter().filter(|open| open.claim >= claim).count();
        let (acting, alarms) = (may_end(Claim::Acting), may_end(Claim::Alarms));
        let (watched, other) = (may_end(Claim::Watched), may_end(Claim::Other));
        self.waiting.iter().enumerate().map(move |(place, waiting)| {
            let (claim, since, number) = waiting.rank(now);
            let may_end = match claim {
                Claim::Acting => acting,
                Claim::Alarms => alarms,
                Claim::Watched => watched,
                Claim::Other => other,
            };
            let (slots, from) = match may_end {
                0 => (self.per_address * self.addresses, now.max(since + LONGEST_WAIT)),
                some => (some, now),
            };
            (number, from + SLICE * i32::try_from(place / slots.max(1) + 1).unwrap_or(i32::MAX))
        })
    }

    /// The address with the fewest links, if it takes one more.
    fn free_address(&self) -> Option<usize> {
        let used = |address: usize| self.open.iter().filter(|open| open.address == address).count();
        (0..self.addresses).min_by_key(|address| used(*address)).filter(|address| used(*address) < self.per_address)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{SlotChange::*, *};
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        Moment::new(TimeDelta::seconds(seconds), Timestamp::UNIX_EPOCH)
    }

    /// Five slots that these links have from 0 s on.
    fn five(claims: [Claim; 5]) -> (Slots, [SlotNumber; 5]) {
        let mut slots = Slots::new(5, 1, 0);
        let numbers = claims.map(|claim| slots.ask(claim, None, at(0)));
        assert_eq!(slots.changes(at(0)).len(), 5);
        (slots, numbers)
    }

    #[test]
    fn as_many_links_as_there_is_room_for_are_granted_from_the_address_with_the_fewest() {
        let mut slots = Slots::new(2, 3, 0);
        let numbers: Vec<_> = (0..7).map(|_| slots.ask(Claim::Other, None, at(0))).collect();
        let granted: Vec<_> =
            [0, 1, 2, 0, 1, 2].iter().zip(&numbers).map(|(address, at)| Granted(*at, *address)).collect();
        assert_eq!(slots.changes(at(0)), granted);
        assert!(!slots.has_room());
        slots.leave(numbers[4]);
        assert_eq!(slots.changes(at(1)), [Granted(numbers[6], 1)]);
        assert!(!slots.has_room());
        numbers.into_iter().for_each(|number| slots.leave(number));
        assert!(slots.is_unused() && slots.has_room());
    }

    #[test]
    fn the_least_need_gives_up_after_a_slice_to_a_need_that_is_as_great() {
        let (mut slots, numbers) = five([Claim::Alarms, Claim::Watched, Claim::Other, Claim::Watched, Claim::Alarms]);
        let watched = slots.ask(Claim::Watched, None, at(10));
        assert_eq!((slots.changes(at(10)), slots.next_change_at(at(10))), (vec![], Some(at(60))));
        assert_eq!(slots.expected(at(10)).collect::<Vec<_>>(), [(watched, at(70))]);
        let alarms = slots.ask(Claim::Alarms, None, at(20));
        assert_eq!(slots.changes(at(60)), [GivenUp(numbers[2]), GivenUp(numbers[1])]);
        assert_eq!(slots.changes(at(61)), [], "each gives up once");
        slots.leave(numbers[2]);
        assert_eq!(slots.changes(at(62)), [Granted(alarms, 0)], "the greater need is first");
        slots.leave(numbers[1]);
        assert_eq!(slots.changes(at(62)), [Granted(watched, 0)]);
    }

    #[test]
    fn a_lesser_need_waits_for_ten_minutes_and_goes_first_then() {
        let (mut slots, numbers) = five([Claim::Alarms; 5]);
        let other = slots.ask(Claim::Other, None, at(0));
        assert_eq!((slots.changes(at(599)), slots.next_change_at(at(599))), (vec![], Some(at(600))));
        assert_eq!(slots.expected(at(599)).collect::<Vec<_>>(), [(other, at(660))]);
        slots.ask(Claim::Alarms, None, at(590));
        assert_eq!(slots.changes(at(599)), [GivenUp(numbers[0])]);
        slots.leave(numbers[0]);
        assert_eq!(slots.changes(at(600))[0], Granted(other, 0));
    }

    #[test]
    fn what_acts_takes_the_slot_of_its_mate_whose_slice_goes_on() {
        let (mut slots, numbers) = five([Claim::Alarms, Claim::Alarms, Claim::Watched, Claim::Alarms, Claim::Alarms]);
        let waiting = slots.ask(Claim::Alarms, None, at(30));
        let acting = slots.ask(Claim::Acting, Some(numbers[2]), at(31));
        assert_eq!(slots.changes(at(31)), [GivenUp(numbers[2])]);
        assert_eq!(slots.changes(at(31)), []);
        slots.leave(numbers[2]);
        assert_eq!(slots.changes(at(32)), [Granted(acting, 0)]);
        slots.claim(acting, Claim::Watched);
        assert_eq!(slots.changes(at(60)), [GivenUp(acting)]);
        slots.leave(acting);
        assert_eq!(slots.changes(at(61)), [Granted(waiting, 0)]);
    }

    #[test]
    fn two_who_act_in_turn_have_the_slot_for_a_while_each() {
        let (mut slots, numbers) = five([Claim::Watched; 5]);
        let (mut holds, mut now) = (numbers[0], 80);
        for wait in [0, 2, 4, 8, 16, 32, 60] {
            let next = slots.ask(Claim::Acting, Some(holds), at(now));
            if wait > 0 {
                assert_eq!(slots.changes(at(now)), []);
                assert!(slots.next_change_at(at(now)).is_some_and(|next| next <= at(now + wait)));
                assert_eq!(slots.changes(at(now + wait - 1)), []);
            }
            now += wait;
            assert_eq!(slots.changes(at(now)), [GivenUp(holds)]);
            slots.leave(holds);
            assert_eq!(slots.changes(at(now)), [Granted(next, 0)]);
            holds = next;
        }
    }

    #[test]
    fn a_slot_that_has_ended_for_one_who_acts_is_for_no_other() {
        let (mut slots, numbers) = five([Claim::Watched; 5]);
        let first = slots.ask(Claim::Acting, Some(numbers[0]), at(50));
        assert_eq!(slots.changes(at(50)), [GivenUp(numbers[0])]);
        slots.leave(numbers[0]);
        assert_eq!(slots.changes(at(50)), [Granted(first, 0)]);
        slots.ask(Claim::Acting, Some(first), at(51));
        let mate = slots.ask(Claim::Acting, Some(numbers[1]), at(52));
        assert_eq!(slots.changes(at(52)), [GivenUp(numbers[1])]);
        slots.leave(numbers[1]);
        assert_eq!(slots.changes(at(52)), [Granted(mate, 0)]);
    }

    #[test]
    fn what_takes_over_a_slice_that_is_over_has_some_time_of_its_own() {
        let (mut slots, numbers) = five([Claim::Alarms; 5]);
        slots.ask(Claim::Watched, None, at(10));
        let acting = slots.ask(Claim::Acting, Some(numbers[0]), at(300));
        assert_eq!(slots.changes(at(300))[0], GivenUp(numbers[0]));
        slots.leave(numbers[0]);
        assert_eq!(slots.changes(at(300)), [Granted(acting, 0)]);
        slots.claim(acting, Claim::Watched);
        assert_eq!(slots.changes(at(319)), []);
        assert_eq!(slots.changes(at(320)), [GivenUp(acting)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(u8),
        Leave(usize),
        Pass(i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0_u8..4).prop_map(Step::Ask),
            1 => (0_usize..40).prop_map(Step::Leave),
            2 => (1_i64..90).prop_map(Step::Pass),
        ];
        proptest::collection::vec(step, 1..120)
    }

    proptest! {
        #[test]
        fn no_address_has_more_links_than_it_may_and_no_link_waits_for_ever(
            steps in steps(), per_address in 1_usize..4, addresses in 1_usize..3
        ) {
            let (mut slots, mut now, mut most) = (Slots::new(per_address, addresses, 0), 0, 0);
            // Links that are up or wait, with their address; those that give up ask again, as links do.
            let mut links: BTreeMap<SlotNumber, (Claim, i64, Option<usize>)> = BTreeMap::new();
            let look = |slots: &mut Slots, links: &mut BTreeMap<SlotNumber, (Claim, i64, Option<usize>)>, now: i64| {
                loop {
                    let changes = slots.changes(at(now));
                    if changes.is_empty() {
                        break;
                    }
                    for change in changes {
                        match change {
                            Granted(number, address) => links.get_mut(&number).unwrap().2 = Some(address),
                            GivenUp(number) => {
                                let claim = links.remove(&number).unwrap().0.max(Claim::Alarms);
                                slots.leave(number);
                                links.insert(slots.ask(claim, None, at(now)), (claim, now, None));
                            }
                        }
                    }
                }
            };
            for step in steps {
                match step {
                    Step::Ask(claim) => {
                        let claim = [Claim::Acting, Claim::Alarms, Claim::Watched, Claim::Other][usize::from(claim)];
                        links.insert(slots.ask(claim, None, at(now)), (claim, now, None));
                    }
                    Step::Leave(place) => {
                        if let Some(number) = links.keys().nth(place).copied() {
                            links.remove(&number);
                            slots.leave(number);
                        }
                    }
                    Step::Pass(seconds) => {
                        let until = now + seconds;
                        while let Some(next) = slots.next_change_at(at(now)).filter(|next| *next <= at(until)) {
                            now = next.steady().num_seconds();
                            look(&mut slots, &mut links, now);
                        }
                        now = until;
                    }
                }
                look(&mut slots, &mut links, now);
                for address in 0..addresses {
                    let used = links.values().filter(|(.., used)| *used == Some(address)).count();
                    prop_assert!(used <= per_address, "{used} from {address}");
                }
                let room = per_address * addresses;
                most = most.max(links.len());
                let rounds = i64::try_from(most / room + 2).unwrap();
                let longest = LONGEST_WAIT.num_seconds() + SLICE.num_seconds() * rounds;
                let is_free = links.values().filter(|(.., used)| used.is_some()).count() < room;
                for (number, (claim, since, address)) in &links {
                    prop_assert!(address.is_some() || !is_free, "{number:?} waits although there is room");
                    let waits = if address.is_none() { now - since } else { 0 };
                    prop_assert!(waits <= longest, "{number:?} ({claim:?}) waits {waits} s");
                    prop_assert_eq!(address.is_none(), slots.expected(at(now)).any(|(waiting, _)| waiting == *number));
                }
            }
        }
    }
}
