//! Unpredictable values and ids: handed down from where the service is wired, like the clock.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Builder;

use crate::{crypto::digest::to_hex, domain::time::Timestamp};

/// The operating system's generator, or one that repeats itself for a seed. Clones share it.
#[derive(Clone)]
pub struct Random {
    source: Source,
    /// The time in the newest id, in 4096ths of a millisecond.
    newest: Arc<AtomicU64>,
}

#[derive(Clone)]
enum Source {
    System(SystemRandom),
    /// The state of SplitMix64.
    Seeded(Arc<Mutex<u64>>),
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

impl Random {
    /// The operating system's generator.
    pub fn system() -> Self {
        Self { source: Source::System(system_random()), newest: Arc::default() }
    }

    /// Gives equal values for equal seeds, and so no secrets: for simulations only.
    pub fn seeded(seed: u64) -> Self {
        Self { source: Source::Seeded(Arc::new(Mutex::new(seed))), newest: Arc::default() }
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        match &self.source {
            Source::System(system) => {
                system.fill(&mut bytes).expect("the operating system's generator does not fail once it has started");
            }
            Source::Seeded(state) => {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                for chunk in bytes.chunks_mut(8) {
                    chunk.copy_from_slice(&split_mix(&mut state).to_le_bytes()[..chunk.len()]);
                }
            }
        }
        bytes
    }

    /// One random byte.
    pub fn byte(&self) -> u8 {
        let [byte] = self.bytes();
        byte
    }

    /// `N` random bytes as 2 `N` lower-case hex digits.
    pub fn hex<const N: usize>(&self) -> String {
        to_hex(&self.bytes::<N>())
    }

    /// `N` random bytes as base64url without padding.
    pub fn base64url<const N: usize>(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.bytes::<N>())
    }

    /// A new id: a UUIDv7 of `now`, as text, in 36 characters. Each is greater than those before it, also within one
    /// instant and when the clock is set back.
    pub fn id<T: From<String>>(&self, now: Timestamp) -> T {
        // RFC 9562 §6.2, methods 3 and 1: the first twelve random bits are a part of a millisecond, and count up.
        let millis = u64::try_from(now.timestamp_millis()).unwrap_or_default();
        let part = u64::from(now.timestamp_subsec_nanos()) % 1_000_000 * 4096 / 1_000_000;
        let after = |newest: u64| (millis << 12 | part).max(newest + 1);
        let before = self.newest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| Some(after(newest)));
        let time = after(before.unwrap_or_default());
        let mut random: [u8; 10] = self.bytes();
        [random[0], random[1]] = [(time >> 8) as u8 & 0x0f, time as u8];
        Builder::from_unix_timestamp_millis(time >> 12, &random).into_uuid().to_string().into()
    }
}

/// The operating system's generator as ring takes it for keys and signatures.
#[allow(clippy::disallowed_methods, reason = "the one place that asks the operating system for random bytes")]
pub(in crate::crypto) fn system_random() -> SystemRandom {
    SystemRandom::new()
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn values_have_their_length_and_differ() {
        for random in [Random::system(), Random::seeded(1)] {
            assert_eq!(random.hex::<48>().len(), 96);
            assert_eq!(random.base64url::<16>().len(), 22);
            assert_ne!(random.bytes::<16>(), random.bytes::<16>());
        }
    }

    #[test]
    fn a_seed_repeats_itself() {
        let draw = |seed| Random::seeded(seed).bytes::<20>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn ids_are_uuids_of_version_7_and_each_is_greater_than_the_last() {
        let random = Random::seeded(1);
        let start = Timestamp::from_timestamp(1_800_000_000, 999_000).unwrap();
        let id: Uuid = random.id::<String>(start).parse().unwrap();
        assert_eq!((id.get_version_num(), id.get_timestamp().unwrap().to_unix().0), (7, 1_800_000_000));
        let times = (0..3_000).map(|n| start + TimeDelta::microseconds(n));
        let still = std::iter::repeat_n(start, 10_000);
        let back = std::iter::repeat_n(start - TimeDelta::hours(1), 3);
        let ids: Vec<String> = times.chain(still).chain(back).map(|now| random.id(now)).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }
}
