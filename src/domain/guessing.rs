//! Limits of wrong guesses of codes and tokens: for each network of a guess, and for all together.
//!
//! One who has many addresses has them in few networks, so a wrong guess counts against every prefix of its address.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time,
};

use chrono::Duration;

use crate::domain::time::Moment;

/// Time for which a wrong guess counts.
pub const SPAN: Duration = Duration::minutes(10);
/// Wrong guesses of one client address in [`SPAN`]; an IPv6 /64 is one.
pub const WRONG_PER_ADDRESS: u32 = 5;
/// Wrong guesses of all networks in [`SPAN`] from which on an attack is assumed.
pub const NEAR_CEILING: usize = 100;
/// Wrong guesses of all networks in [`SPAN`] from which on a wrong one is answered as if it was not looked up.
pub const CEILING: usize = 400;
/// Wrong guesses that are remembered; one more forgets the oldest.
const REMEMBERED: usize = 20_000;

/// Wrong guesses of each network in [`SPAN`]: bits of its prefix, and how many.
#[derive(Debug)]
pub struct PrefixLimits {
    v4: &'static [(u8, usize)],
    v6: &'static [(u8, usize)],
}

/// Limits of guesses that may find anything.
pub const EVERYWHERE: PrefixLimits = PrefixLimits {
    v4: &[(32, WRONG_PER_ADDRESS as usize), (24, 20)],
    v6: &[(64, WRONG_PER_ADDRESS as usize), (56, 10), (48, 20), (32, 100)],
};

/// Limits of guesses that only find codes of their own network: neighbours in the prefixes around it cannot spend
/// these.
pub const AT_HOME: PrefixLimits = PrefixLimits { v4: &[(32, 50)], v6: &[(64, 50)] };

/// All addresses that begin with these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Prefix {
    first: IpAddr,
    bits: u8,
}

impl PrefixLimits {
    /// The networks of an address, with how many wrong guesses each may make.
    fn of(&self, address: IpAddr) -> impl Iterator<Item = (Prefix, usize)> + use<> {
        let address = address.to_canonical();
        let limits = if address.is_ipv4() { self.v4 } else { self.v6 };
        limits.iter().map(move |&(bits, limit)| {
            let first = match address {
                IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - bits))).into(),
                IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - bits))).into(),
            };
            (Prefix { first, bits }, limit)
        })
    }
}

/// Distance of all wrong guesses together from a number that only an attack reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ceiling {
    Far,
    /// From [`NEAR_CEILING`] on.
    Near,
    /// From [`CEILING`] on.
    Passed,
}

/// A guess that may be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    number: u64,
    /// Without this one.
    pub ceiling: Ceiling,
}

/// The wrong guesses of one kind.
///
/// A guess is charged before it is looked up, so that guesses at once are no more than guesses one after the other, and
/// paid back if it was right. A network that has guessed too often is refused without a look-up; any other is looked
/// up, however many networks guess. Memory is bounded: beyond `REMEMBERED`, the oldest are forgotten before their time.
#[derive(Debug)]
pub struct GuessLimits {
    limits: &'static PrefixLimits,
    /// Oldest first.
    charges: VecDeque<Charge>,
    /// Number of the oldest.
    first: u64,
    paid_back: usize,
    /// Times at which each network guessed, oldest first; without the guesses that were paid back.
    networks: HashMap<Prefix, VecDeque<Moment>>,
}

#[derive(Debug)]
struct Charge {
    from: IpAddr,
    at: Moment,
    is_paid_back: bool,
}

impl GuessLimits {
    /// None yet.
    pub fn new(limits: &'static PrefixLimits) -> Self {
        Self { limits, charges: VecDeque::new(), first: 0, paid_back: 0, networks: HashMap::new() }
    }

    /// Charges one guess to the networks of this address, or returns how long they have to wait.
    pub fn begin(&mut self, from: IpAddr, now: Moment) -> Result<Guess, time::Duration> {
        self.forget_old(now);
        let wait = self.limits.of(from).filter_map(|(network, limit)| {
            let times = self.networks.get(&network)?;
            let freed = *times.get(times.len().checked_sub(limit)?)?;
            Some(freed + SPAN - now)
        });
        if let Some(wait) = wait.max() {
            return Err(wait.to_std().unwrap_or_default());
        }
        let ceiling = self.ceiling();
        self.add(from, now);
        Ok(Guess { number: self.first + self.charges.len() as u64 - 1, ceiling })
    }

    /// Charges a wrong guess that was made at another node, whether or not it would have been looked up here.
    pub fn charge(&mut self, from: IpAddr, now: Moment) {
        self.forget_old(now);
        self.add(from, now);
    }

    fn add(&mut self, from: IpAddr, now: Moment) {
        if self.charges.len() == REMEMBERED {
            self.forget_oldest();
        }
        for (network, _) in self.limits.of(from) {
            self.networks.entry(network).or_default().push_back(now);
        }
        self.charges.push_back(Charge { from, at: now, is_paid_back: false });
    }

    /// The address of this guess, unless it is forgotten.
    pub fn address(&self, guess: Guess) -> Option<IpAddr> {
        let place = usize::try_from(guess.number.checked_sub(self.first)?).ok()?;
        Some(self.charges.get(place)?.from)
    }

    /// The guess was right, or was not looked up.
    pub fn pay_back(&mut self, guess: Guess) {
        // None: it is forgotten.
        let place = guess.number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(charge) = place.and_then(|place| self.charges.get_mut(place)) else { return };
        if !std::mem::replace(&mut charge.is_paid_back, true) {
            self.paid_back += 1;
            let (from, at) = (charge.from, charge.at);
            self.release(from, |times| times.iter().rposition(|other| *other == at));
        }
    }

    /// Distance of the wrong guesses of the last [`SPAN`] from the ceiling.
    fn ceiling(&self) -> Ceiling {
        match self.charges.len() - self.paid_back {
            CEILING.. => Ceiling::Passed,
            NEAR_CEILING.. => Ceiling::Near,
            _ => Ceiling::Far,
        }
    }

    /// Forgets guesses older than [`SPAN`].
    pub fn forget_old(&mut self, now: Moment) {
        while self.charges.front().is_some_and(|oldest| oldest.at + SPAN <= now) {
            self.forget_oldest();
        }
        if self.charges.is_empty() {
            self.charges.shrink_to_fit();
            self.networks.shrink_to_fit();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.charges.pop_front() else { return };
        self.first += 1;
        match oldest.is_paid_back {
            true => self.paid_back -= 1,
            // Nothing older is left, so it is the first of each network.
            false => self.release(oldest.from, |_| Some(0)),
        }
    }

    /// Takes one guess away from the networks of this address.
    fn release(&mut self, from: IpAddr, which: impl Fn(&VecDeque<Moment>) -> Option<usize>) {
        for (network, _) in self.limits.of(from) {
            let Some(times) = self.networks.get_mut(&network) else { continue };
            if let Some(place) = which(times) {
                times.remove(place);
            }
            if times.is_empty() {
                self.networks.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap().into()
    }

    fn limits() -> GuessLimits {
        GuessLimits::new(&EVERYWHERE)
    }

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    /// In 2001:db8:1::/48: which /56 and which /64 of it, and which address there.
    fn v6(part: u8, client_network: u8, address: u64) -> IpAddr {
        let prefix = 0x2001_0db8_0001_u128 << 80;
        Ipv6Addr::from_bits(prefix | u128::from(part) << 72 | u128::from(client_network) << 64 | u128::from(address))
            .into()
    }

    #[test]
    fn an_address_is_refused_after_five_wrong_codes_and_right_ones_cost_nothing() {
        let mut limits = limits();
        for _ in 0..20 {
            let right = limits.begin(v4(1), at(0)).unwrap();
            limits.pay_back(right);
            limits.pay_back(right);
        }
        for second in 0..5 {
            assert_eq!(limits.begin(v4(1), at(second)).unwrap().ceiling, Ceiling::Far);
        }
        assert_eq!(limits.begin(v4(1), at(5)), Err(time::Duration::from_secs(595)));
        assert!(limits.begin(v4(2), at(5)).is_ok());
        assert!(limits.begin(v4(1), at(600)).is_ok(), "the first one counts no more");
        assert_eq!(limits.begin(v4(1), at(600)), Err(time::Duration::from_secs(1)));
        limits.forget_old(at(1_200));
        assert!(limits.charges.is_empty() && limits.networks.is_empty() && limits.paid_back == 0);
    }

    #[test]
    fn guesses_at_another_node_count_here() {
        let mut limits = limits();
        let guess = limits.begin(v4(1), at(0)).unwrap();
        assert_eq!(limits.address(guess), Some(v4(1)));
        (0..4).for_each(|second| limits.charge(v4(1), at(second)));
        assert_eq!(limits.begin(v4(1), at(4)), Err(time::Duration::from_secs(596)));
        (0..CEILING as u32).for_each(|number| limits.charge(v4(number * 256), at(5)));
        assert_eq!(limits.begin(v4(9_999), at(5)).unwrap().ceiling, Ceiling::Passed);
        limits.forget_old(at(700));
        assert_eq!(limits.address(guess), None);
    }

    #[test]
    fn guesses_of_many_networks_come_near_the_ceiling_and_pass_it() {
        let mut limits = limits();
        let mut seen = Vec::new();
        for number in 0..CEILING as u32 + 1 {
            seen.push(limits.begin(v4(number * 256), at(0)).unwrap().ceiling);
        }
        assert!(seen.is_sorted());
        let first = |ceiling| seen.iter().position(|seen| *seen == ceiling);
        assert_eq!((first(Ceiling::Near), first(Ceiling::Passed)), (Some(NEAR_CEILING), Some(CEILING)));
        assert_eq!(limits.begin(v4(0), at(600)).unwrap().ceiling, Ceiling::Far);
    }

    #[test]
    fn a_hundred_thousand_networks_lock_no_one_out_and_memory_stays_bounded() {
        let mut limits = limits();
        for number in 0..100_000 {
            assert!(limits.begin(v4(number * 256), at(0)).is_ok(), "{number} has not guessed yet");
        }
        assert_eq!(limits.charges.len(), REMEMBERED);
        assert_eq!(limits.networks.len(), 2 * REMEMBERED);
        let fresh = limits.begin(v6(0, 0, 1), at(1)).unwrap();
        limits.pay_back(fresh);
        limits.forget_old(at(601));
        assert!(limits.networks.is_empty());
    }

    #[test]
    fn neighbours_cannot_spend_what_a_network_may_try_at_home() {
        let mut home = GuessLimits::new(&AT_HOME);
        for number in 0..1_000_u64 {
            let _ = home.begin(v6(0, 1, number), at(0));
        }
        assert!(home.begin(v6(0, 1, 0), at(0)).is_err());
        assert!(home.begin(v6(0, 2, 0), at(0)).is_ok());
    }

    /// A guess: where from, how long after the one before, and whether it turns out to be right.
    fn guesses() -> impl Strategy<Value = Vec<((u8, u8), i64, bool)>> {
        let from = prop_oneof![(0..3_u8, 0..4_u8), (any::<u8>(), any::<u8>())];
        prop::collection::vec((from, prop_oneof![4 => Just(0_i64), 1 => 0_i64..90], prop::bool::weighted(0.1)), 1..400)
    }

    proptest! {
        #[test]
        fn no_network_gets_more_lookups_than_its_limit_in_any_ten_minutes(guesses in guesses()) {
            let (mut limits, mut now) = (limits(), 0);
            let mut wrong: Vec<(i64, u8, u8)> = Vec::new();
            for ((part, client_network), pause, is_right) in guesses {
                now += pause;
                wrong.retain(|guess| now - guess.0 < SPAN.num_seconds());
                let of = |of: &dyn Fn(&(i64, u8, u8)) -> bool| wrong.iter().filter(|guess| of(guess)).count();
                let spent = of(&|guess| (guess.1, guess.2) == (part, client_network)) >= 5
                    || of(&|guess| guess.1 == part) >= 10
                    || wrong.len() >= 20;
                match limits.begin(v6(part, client_network, now as u64), at(now)) {
                    Ok(guess) if is_right => limits.pay_back(guess),
                    Ok(_) => {
                        prop_assert!(!spent);
                        wrong.push((now, part, client_network));
                    }
                    Err(wait) => {
                        prop_assert!(spent, "a network that may guess is always looked up");
                        prop_assert!(!wait.is_zero() && wait <= SPAN.to_std().unwrap());
                    }
                }
                prop_assert!(wrong.len() <= 20, "of a /48");
            }
        }

        #[test]
        fn a_network_that_did_not_guess_is_looked_up_whatever_others_did(
            others in prop::collection::vec((any::<u32>(), 0_i64..3), 0..2_000),
            fresh in any::<u32>(),
        ) {
            let (mut limits, mut now) = (limits(), 0);
            for (other, pause) in others.into_iter().filter(|(other, _)| other >> 8 != fresh >> 8) {
                now += pause;
                let _ = limits.begin(Ipv4Addr::from_bits(other).into(), at(now));
            }
            prop_assert!(limits.begin(Ipv4Addr::from_bits(fresh).into(), at(now)).is_ok());
            prop_assert!(limits.begin(v6(0, 0, 0), at(now)).is_ok());
        }
    }
}
