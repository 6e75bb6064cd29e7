//! Pairing codes: what they look like, how long they live, and how often a wrong one may be tried.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr},
    time,
};

use chrono::Duration;

use crate::domain::{limits::ACTIVE_PAIRING_CODES, time::Moment};

/// How long a code is valid.
pub const LIFETIME: Duration = Duration::minutes(10);

/// 32 characters that are hard to confuse.
pub(super) const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

/// A pairing code, `PREFIX-XXXX`. It is a credential: `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode(String);

impl PairingCode {
    /// The code that these random bytes make; every code is equally likely.
    pub fn new(prefix: &str, random: [u8; 4]) -> Self {
        let characters = random.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
        Self(format!("{prefix}-{}", String::from_iter(characters)))
    }

    /// Reads a typed code: spaces around it and case do not matter. `None` if it is not in the form of our codes.
    pub fn parse(prefix: &str, text: &str) -> Option<Self> {
        let code = text.trim().to_ascii_uppercase();
        let characters = code.strip_prefix(prefix)?.strip_prefix('-')?.as_bytes();
        (characters.len() == 4 && characters.iter().all(|byte| ALPHABET.contains(byte))).then_some(Self(code))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode(hidden)")
    }
}

/// Which of a user's active codes, oldest first, one more code invalidates.
pub fn pushed_out<T>(active: &[T]) -> &[T] {
    &active[..(active.len() + 1).saturating_sub(ACTIVE_PAIRING_CODES)]
}

/// `burst` at once, and one more after each `every`.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    pub burst: u32,
    pub every: Duration,
}

/// Wrong codes from one address.
pub const WRONG_PER_ADDRESS: Quota = Quota { burst: 5, every: Duration::minutes(2) };
/// Wrong codes from all addresses together; more of them are an attack.
pub const WRONG_GLOBALLY: Quota = Quota { burst: 200, every: Duration::seconds(3) };
/// Addresses whose wrong codes are counted separately; all others share one more quota.
const ADDRESSES: usize = 100_000;

/// How often a wrong code may be tried.
///
/// A guess is charged before it is looked up, to the quota of its address and to the global one, and paid back if it
/// was right. An address that has spent its own quota is refused without a look-up. While the global quota is spent,
/// only guesses of addresses that owe nothing are looked up: a guesser has one guess per address and
/// [`WRONG_PER_ADDRESS`]`.every`, and a user with a valid code pairs as always. [`lookups`] is the bound.
#[derive(Debug, Default)]
pub struct GuessLimits {
    addresses: HashMap<IpAddr, Debt>,
    global: Debt,
}

/// A guess that may be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    key: IpAddr,
    /// Whether the global quota paid for it; otherwise a wrong guess is answered like a refused one.
    pub within_global: bool,
}

/// When everything will be paid back: the whole state of a quota (GCRA).
#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    paid_at: Option<Moment>,
}

impl Debt {
    fn is_paid(self, now: Moment) -> bool {
        self.paid_at.is_none_or(|at| at <= now)
    }

    /// Spends one, or returns how long until that is possible.
    fn spend(&mut self, quota: Quota, now: Moment) -> Result<(), Duration> {
        let after = self.paid_at.map_or(now, |at| at.max(now)) + quota.every;
        let over = after - now - quota.every * quota.burst as i32;
        if over > Duration::zero() {
            return Err(over);
        }
        self.paid_at = Some(after);
        Ok(())
    }

    fn pay_back(&mut self, quota: Quota) {
        self.paid_at = self.paid_at.map(|at| at + -quota.every);
    }
}

impl GuessLimits {
    /// Charges one guess to this address, or returns how long it has to wait.
    pub fn begin(&mut self, address: IpAddr, now: Moment) -> Result<Guess, time::Duration> {
        let full = self.addresses.len() >= ADDRESSES && !self.addresses.contains_key(&address);
        let key = if full { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { address };
        let mut debt = self.addresses.get(&key).copied().unwrap_or_default();
        let owed_nothing = debt.is_paid(now);
        let wait = |duration: Duration| duration.to_std().unwrap_or_default();
        debt.spend(WRONG_PER_ADDRESS, now).map_err(wait)?;
        let within_global = match self.global.spend(WRONG_GLOBALLY, now) {
            Ok(()) => true,
            Err(_) if owed_nothing => false,
            Err(over) => return Err(wait(over)),
        };
        self.addresses.insert(key, debt);
        Ok(Guess { key, within_global })
    }

    /// The guess was right, or was not looked up.
    pub fn pay_back(&mut self, guess: Guess) {
        if let Some(debt) = self.addresses.get_mut(&guess.key) {
            debt.pay_back(WRONG_PER_ADDRESS);
        }
        if guess.within_global {
            self.global.pay_back(WRONG_GLOBALLY);
        }
    }

    /// Forgets the addresses that owe nothing.
    pub fn forget_idle(&mut self, now: Moment) {
        self.addresses.retain(|_, debt| !debt.is_paid(now));
        self.addresses.shrink_to_fit();
    }
}

/// The most wrong codes that are looked up for this many addresses in this time. Each hits one live code with a chance
/// of one in [`CODES`].
pub fn lookups(addresses: u64, time: Duration) -> u64 {
    let spent = |quota: Quota| (time.num_seconds() / quota.every.num_seconds()) as u64;
    let global = u64::from(WRONG_GLOBALLY.burst) + spent(WRONG_GLOBALLY);
    let unpaid = addresses * (1 + spent(WRONG_PER_ADDRESS));
    let each = addresses * (u64::from(WRONG_PER_ADDRESS.burst) + spent(WRONG_PER_ADDRESS));
    each.min(global + unpaid)
}

/// How many different codes there are under one prefix.
pub const CODES: u64 = (ALPHABET.len() as u64).pow(4);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Moment {
        chrono::DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap().into()
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
    }

    #[test]
    fn a_code_reads_back_however_it_is_typed() {
        let code = PairingCode::new("LINK", [0, 31, 32, 255]);
        assert_eq!(code.as_str(), "LINK-2Z2Z");
        for typed in ["LINK-2Z2Z", " link-2z2z\n", "Link-2z2Z"] {
            assert_eq!(PairingCode::parse("LINK", typed), Some(code.clone()), "{typed}");
        }
        for bad in ["", "LINK-", "LINK2Z2Z", "LINK-2Z2", "LINK-2Z2ZZ", "LINK-2Z2O", "LINK-2Z1Z", "ROOM-2Z2Z", "LINK-éé"]
        {
            assert_eq!(PairingCode::parse("LINK", bad), None, "{bad}");
        }
        assert_eq!(format!("{code:?}"), "PairingCode(hidden)");
    }

    #[test]
    fn a_fourth_code_invalidates_the_oldest() {
        assert!(pushed_out::<i32>(&[]).is_empty());
        assert!(pushed_out(&[1, 2]).is_empty());
        assert_eq!(pushed_out(&[1, 2, 3]), [1]);
        assert_eq!(pushed_out(&[1, 2, 3, 4]), [1, 2]);
    }

    #[test]
    fn an_address_is_refused_after_five_wrong_codes_and_right_ones_cost_nothing() {
        let mut limits = GuessLimits::default();
        for _ in 0..20 {
            let right = limits.begin(address(1), at(0)).unwrap();
            limits.pay_back(right);
        }
        for _ in 0..5 {
            assert!(limits.begin(address(1), at(0)).unwrap().within_global);
        }
        assert_eq!(limits.begin(address(1), at(0)), Err(time::Duration::from_secs(120)));
        assert!(limits.begin(address(2), at(0)).is_ok());
        assert_eq!(limits.begin(address(1), at(119)), Err(time::Duration::from_secs(1)));
        assert!(limits.begin(address(1), at(120)).is_ok());
        limits.forget_idle(at(120));
        assert_eq!(limits.addresses.len(), 1, "one owes nothing any more");
    }

    #[test]
    fn under_attack_an_address_that_owes_nothing_may_still_guess() {
        let mut limits = GuessLimits::default();
        for guess in 0..WRONG_GLOBALLY.burst {
            assert!(limits.begin(address(guess), at(0)).unwrap().within_global);
        }
        assert!(limits.begin(address(0), at(0)).is_err(), "it guessed wrong before");
        let fresh = limits.begin(address(1_000_000), at(0)).unwrap();
        assert!(!fresh.within_global);
        assert!(limits.begin(address(1_000_000), at(0)).is_err());
        limits.pay_back(fresh);
        assert!(limits.begin(address(1_000_000), at(0)).is_ok());
        assert!(limits.begin(address(0), at(120)).is_ok(), "two minutes later it owes nothing");
    }

    #[test]
    fn however_many_addresses_guess_the_memory_is_bounded() {
        let mut limits = GuessLimits::default();
        for number in 0..2 * ADDRESSES as u32 {
            let _ = limits.begin(address(number), at(0));
        }
        assert_eq!(limits.addresses.len(), ADDRESSES + 1);
        limits.forget_idle(at(600));
        assert_eq!(limits.addresses.len(), 0);
    }

    proptest! {
        #[test]
        fn guessers_never_get_more_lookups_than_the_bound(
            addresses in 1_u32..400, steps in prop::collection::vec((any::<u32>(), 0_i64..4), 1..3_000),
        ) {
            let (mut limits, mut now, mut looked_up) = (GuessLimits::default(), 0, 0);
            for (from, pause) in steps {
                now += pause;
                looked_up += u64::from(limits.begin(address(from % addresses), at(now)).is_ok());
                prop_assert!(looked_up <= lookups(u64::from(addresses), Duration::seconds(now)));
            }
        }

        #[test]
        fn what_is_typed_never_panics(text in any::<String>()) {
            PairingCode::parse("LINK", &text);
        }
    }
}
