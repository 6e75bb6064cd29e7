//! Limits of what users can make the service connect to: new game servers, the same one again, and the identity
//! provider.

use std::{collections::HashMap, hash::Hash, time::Duration};

use chrono::TimeDelta;

use crate::domain::{
    backoff::Backoff,
    doubling::Doubling,
    ids::{GameServerId, UserId},
    limits::{ASKED_ATTEMPTS, CONFIRMATIONS, CONFIRMATIONS_PER_SECOND, LOGIN_MINUTES, NEW_GAME_SERVERS_PER_USER},
    rate::{Bucket, TOKEN, Window},
    time::Moment,
};

const MINUTE: Duration = Duration::from_secs(60);
/// An address is remembered for this long after the end of its pause.
const REMEMBERED: TimeDelta = TimeDelta::minutes(10);
/// Number of keys from which on outdated ones are looked for.
const FEW: usize = 1_024;

fn milliseconds(now: Moment) -> u64 {
    now.steady().num_milliseconds().try_into().unwrap_or_default()
}

/// New addresses that each user pairs: at most [`NEW_GAME_SERVERS_PER_USER`] in any minute.
#[derive(Debug, Default)]
pub struct NewAddresses(Remembered<UserId, Window>);

impl NewAddresses {
    /// Counts one more, or returns how long the user has to wait.
    pub fn take(&mut self, user: &UserId, now: Moment) -> Result<(), Duration> {
        let (now, limit) = (milliseconds(now), NEW_GAME_SERVERS_PER_USER);
        let taken = self.0.get(user, |window| window.used(now) > 0, || Window::new(limit as usize, MINUTE));
        match taken.available_at(now, limit as usize) {
            Some(free) => Err(Duration::from_millis(free - now)),
            None => {
                taken.record(now);
                Ok(())
            }
        }
    }
}

/// A game server's address, and the user whose pairing makes us connect to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub owner: UserId,
    pub at: GameServerId,
}

/// Pauses between attempts to reach game servers that did not answer. They belong to the address, so that they go on
/// when it is paired again, also after its pairing was deleted.
#[derive(Debug, Default)]
pub struct Retries(Remembered<Target, Retry>);

#[derive(Debug)]
struct Retry {
    backoff: Backoff,
    /// End of the pause.
    next_at: Moment,
    /// Attempts within a pause, because the user asked for them.
    asked: Window,
}

impl Retries {
    /// The time until an attempt may begin that the user asks for: none, unless they have asked for [`ASKED_ATTEMPTS`]
    /// in the last minute and the pause is not over.
    pub fn ask(&mut self, target: &Target, now: Moment) -> Duration {
        let Some(retry) = self.0.known.get_mut(target) else { return Duration::ZERO };
        let left = (retry.next_at - now).to_std().unwrap_or_default();
        if left.is_zero() {
            return left;
        }
        let now = milliseconds(now);
        match retry.asked.available_at(now, ASKED_ATTEMPTS) {
            Some(free) => left.min(Duration::from_millis(free - now)),
            None => {
                retry.asked.record(now);
                Duration::ZERO
            }
        }
    }

    /// An attempt or a link has ended; the pause after it, as [`Backoff::after`] has it.
    pub fn end(&mut self, target: &Target, held: Duration, least: Duration, random: u8, now: Moment) -> Duration {
        let counts = |retry: &Retry| now < retry.next_at + REMEMBERED;
        let first = || Retry { backoff: Backoff::new(), next_at: now, asked: Window::new(ASKED_ATTEMPTS, MINUTE) };
        let retry = self.0.get(target, counts, first);
        let pause = retry.backoff.after(held, least, random);
        retry.next_at = now + TimeDelta::from_std(pause).unwrap_or_default();
        pause
    }
}

/// Questions to the identity provider whether it made an assertion: one for each login that began here, and
/// [`CONFIRMATIONS_PER_SECOND`] for all of them, after [`CONFIRMATIONS`] at once.
#[derive(Debug)]
pub struct Confirmations {
    all: Bucket,
    /// When the provider was asked for each login. No more than the bucket has let through.
    logins: Remembered<String, Moment>,
}

/// Reason against asking the identity provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unconfirmed {
    /// The provider was asked for this login before.
    Repeated,
    /// The provider was asked too often for other logins; the time to wait.
    Busy(Duration),
}

impl Confirmations {
    /// None yet.
    pub fn new(now: Moment) -> Self {
        let all = Bucket::new(CONFIRMATIONS, CONFIRMATIONS_PER_SECOND, milliseconds(now));
        Self { all, logins: Remembered::default() }
    }

    /// Counts a question for the login with this state.
    pub fn take(&mut self, login: &str, now: Moment) -> Result<(), Unconfirmed> {
        if self.logins.known.contains_key(login) {
            return Err(Unconfirmed::Repeated);
        }
        self.all.take(milliseconds(now), TOKEN).map_err(|wait| Unconfirmed::Busy(Duration::from_millis(wait)))?;
        self.logins.get(&login.to_owned(), |at| now < *at + TimeDelta::minutes(LOGIN_MINUTES), || now);
        Ok(())
    }
}

/// Values by key, each remembered as long as it counts.
#[derive(Debug)]
struct Remembered<K, V> {
    known: HashMap<K, V>,
    searched: Doubling,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { known: HashMap::new(), searched: Doubling::new(FEW) }
    }
}

impl<K: Clone + Eq + Hash, V> Remembered<K, V> {
    /// The value of this key, `first` if there is none.
    fn get(&mut self, key: &K, counts: impl Fn(&V) -> bool, first: impl FnOnce() -> V) -> &mut V {
        if self.searched.is_reached(self.known.len()) {
            self.known.retain(|_, value| counts(value));
            self.known.shrink_to_fit();
            self.searched.searched(self.known.len());
        }
        self.known.entry(key.clone()).or_insert_with(first)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap().into()
    }

    fn target(owner: &str) -> Target {
        Target { owner: owner.into(), at: "a:1".into() }
    }

    #[test]
    fn a_user_pairs_ten_new_addresses_in_any_minute() {
        let mut new = NewAddresses::default();
        let mut taken = |user: &str, seconds| new.take(&user.into(), at(seconds)).map_err(|wait| wait.as_secs());
        for second in 0..10 {
            assert_eq!(taken("alice", second), Ok(()));
        }
        assert_eq!(taken("alice", 10), Err(50));
        assert_eq!(taken("bob", 10), Ok(()));
        assert_eq!(taken("alice", 61), Ok(()));
        assert!(taken("alice", 61).is_err(), "one for each that is older than a minute");
        assert_eq!(taken("alice", 62), Ok(()));
    }

    #[test]
    fn the_pauses_of_an_address_grow_however_often_it_is_asked_for() {
        let (mut retries, alice) = (Retries::default(), target("alice"));
        let end = |retries: &mut Retries, seconds| {
            retries.end(&alice, Duration::ZERO, Duration::ZERO, 128, at(seconds)).as_secs_f64().round()
        };
        assert_eq!(retries.ask(&alice, at(0)), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..ASKED_ATTEMPTS {
            pauses.push(end(&mut retries, 0));
            assert_eq!(retries.ask(&alice, at(0)), Duration::ZERO);
        }
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(end(&mut retries, 0), 32.0);
        assert_eq!(retries.ask(&alice, at(0)).as_secs(), 32, "asked for too often: it waits");
        assert_eq!(retries.ask(&alice, at(33)), Duration::ZERO);
        assert_eq!(retries.ask(&target("bob"), at(0)), Duration::ZERO);
        assert_eq!(end(&mut retries, 33), 64.0);
        assert!(retries.ask(&alice, at(34)) <= Duration::from_millis(26_001), "those of a minute ago count no more");
        assert_eq!(retries.ask(&alice, at(61)), Duration::ZERO);
    }

    #[test]
    fn an_address_is_forgotten_some_time_after_its_pause() {
        let mut retries = Retries::default();
        for number in 0..10 * FEW as i64 {
            let target = target(&number.to_string());
            retries.end(&target, Duration::ZERO, Duration::ZERO, 128, at(number));
        }
        assert!(retries.0.known.len() < 2 * FEW, "{}", retries.0.known.len());
    }

    #[test]
    fn the_provider_is_asked_once_for_a_login_and_so_often_for_all() {
        let mut confirmations = Confirmations::new(at(0));
        assert_eq!(confirmations.take("login", at(0)), Ok(()));
        for number in 1..CONFIRMATIONS {
            assert_eq!(confirmations.take(&number.to_string(), at(0)), Ok(()));
        }
        assert_eq!(confirmations.take("login", at(0)), Err(Unconfirmed::Repeated));
        assert_eq!(confirmations.take("other", at(0)), Err(Unconfirmed::Busy(Duration::from_millis(100))));
        for second in 1..10_000 {
            for number in 0..CONFIRMATIONS_PER_SECOND {
                assert_eq!(confirmations.take(&format!("{second} {number}"), at(second)), Ok(()));
            }
            assert!(confirmations.take("other", at(second)).is_err());
        }
        assert!(confirmations.logins.known.len() < 15_000, "{}", confirmations.logins.known.len());
    }
}
