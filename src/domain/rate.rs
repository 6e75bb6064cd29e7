//! Limits on rates. Times are milliseconds of any clock that only goes forward.

use std::time::Duration;

use smallvec::SmallVec;

/// At most `limit` in any interval of a span: an exact sliding window over the last sends.
///
/// Small, because there is one per connection: it holds four bytes for every send of the window, the lower half of its
/// time, and the first few in itself. That is unambiguous, because these times are never further apart than the span.
#[derive(Clone, Debug)]
pub struct Window {
    /// Times of the last sends, oldest first.
    sent: SmallVec<[u32; 4]>,
    limit: u16,
    span: u32,
    /// Time of the newest send.
    newest: u64,
}

impl Window {
    /// `limit` sends (1 to 65 535) in any `span` (whole milliseconds, at most 24 days).
    pub fn new(limit: usize, span: Duration) -> Self {
        let limit = u16::try_from(limit.max(1)).unwrap_or(u16::MAX);
        let span = u32::try_from(span.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32);
        Self { sent: SmallVec::new(), limit, span, newest: 0 }
    }

    /// Number of sends in the window at `now`.
    pub fn used(&self, now: u64) -> usize {
        self.sent.len() - self.expired(now.max(self.newest))
    }

    /// When the window will hold fewer than `below` (1 to the limit); `None` = it does at `now`.
    pub fn available_at(&self, now: u64, below: usize) -> Option<u64> {
        let below = below.clamp(1, usize::from(self.limit));
        // The send with `below - 1` newer ones is the last that has to expire.
        let place = self.sent.len().checked_sub(below)?;
        let free = self.time(self.sent[place]) + u64::from(self.span) + 1;
        (free > now.max(self.newest)).then_some(free)
    }

    /// Counts a send at `now`. Call [`Window::available_at`] before: one send too many removes the oldest.
    pub fn record(&mut self, now: u64) {
        let now = now.max(self.newest);
        let expired = self.expired(now);
        self.sent.drain(..expired);
        if self.sent.len() == usize::from(self.limit) {
            self.sent.remove(0);
        }
        self.sent.push(now as u32);
        self.newest = now;
    }

    /// Number of the oldest sends that have expired. A send expires when **more** than the span has passed: times are
    /// whole milliseconds, and two that differ by the span may be just short of it.
    fn expired(&self, now: u64) -> usize {
        let span = u64::from(self.span);
        if now - self.newest > span {
            return self.sent.len();
        }
        self.sent.iter().take_while(|sent| now - self.time(**sent) > span).count()
    }

    fn time(&self, sent: u32) -> u64 {
        self.newest - u64::from((self.newest as u32).wrapping_sub(sent))
    }
}

/// A token bucket, exact: it counts in hundred-thousandths of a token, so that a refill per millisecond and a cost of a
/// hundredth are whole numbers.
#[derive(Clone, Debug)]
pub struct Bucket {
    level: u64,
    capacity: u64,
    refill_per_ms: u64,
    at: u64,
}

/// Parts of a token in which costs are given.
pub const TOKEN: u32 = 100;

/// Parts of a hundredth of a token in which the level is kept.
const PARTS: u64 = 1000;

impl Bucket {
    /// A full bucket of `capacity` tokens that gains `per_second` (at least 1) tokens a second.
    pub fn new(capacity: u32, per_second: u32, now: u64) -> Self {
        let capacity = u64::from(capacity) * u64::from(TOKEN) * PARTS;
        Self { level: capacity, capacity, refill_per_ms: u64::from(per_second.max(1)) * u64::from(TOKEN), at: now }
    }

    /// The part of it that is left, 0 to 1.
    pub fn left(&self, now: u64) -> f64 {
        self.level_at(now) as f64 / self.capacity as f64
    }

    /// Milliseconds until `cost` can be taken with `reserve` left over, both in hundredths of a token; 0 = now. More
    /// than the bucket holds means a full bucket.
    pub fn wait(&self, now: u64, cost: u32, reserve: u32) -> u64 {
        let needed = ((u64::from(cost) + u64::from(reserve)) * PARTS).min(self.capacity);
        needed.saturating_sub(self.level_at(now)).div_ceil(self.refill_per_ms)
    }

    /// Takes `cost` hundredths of a token, or says in how many milliseconds it can.
    pub fn take(&mut self, now: u64, cost: u32) -> Result<(), u64> {
        match self.wait(now, cost, 0) {
            0 => {
                self.level = self.level_at(now).saturating_sub(u64::from(cost) * PARTS);
                self.at = self.at.max(now);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// Empties it: the other side has reported that it is empty.
    pub fn drain(&mut self, now: u64) {
        self.level = 0;
        self.at = self.at.max(now);
    }

    /// True if it holds all it can, as a new one does.
    pub fn is_full(&self, now: u64) -> bool {
        self.level_at(now) == self.capacity
    }

    fn level_at(&self, now: u64) -> u64 {
        let gained = now.saturating_sub(self.at).saturating_mul(self.refill_per_ms);
        self.level.saturating_add(gained).min(self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Bucket, Window};

    #[test]
    fn a_full_window_opens_when_its_oldest_send_leaves() {
        let mut window = Window::new(3, Duration::from_secs(10));
        for now in [0, 4_000, 5_000] {
            assert_eq!(window.available_at(now, 3), None);
            window.record(now);
        }
        assert_eq!(window.used(9_999), 3);
        assert_eq!(window.available_at(5_000, 3), Some(10_001));
        assert_eq!(window.available_at(5_000, 2), Some(14_001));
        assert_eq!(window.available_at(5_000, 1), Some(15_001));
        assert_eq!(window.used(10_000), 3, "two sends within one truncated millisecond of the span");
        assert_eq!(window.used(10_001), 2);
        assert_eq!(window.available_at(10_001, 3), None);
    }

    #[test]
    fn an_unused_window_allocates_nothing() {
        let window = Window::new(60, Duration::from_secs(10));
        assert!(!window.sent.spilled());
        assert_eq!((window.used(5), window.available_at(5, 60)), (0, None));
        assert!(size_of::<Window>() <= 40);
    }

    #[test]
    fn a_window_is_empty_after_weeks_without_a_send() {
        let mut window = Window::new(2, Duration::from_secs(10));
        window.record(1);
        let weeks = 1 + (1_u64 << 32);
        assert_eq!(window.used(weeks), 0);
        window.record(weeks);
        assert_eq!(window.used(weeks), 1);
        assert_eq!(window.available_at(weeks, 1), Some(weeks + 10_001));
    }

    proptest! {
        #[test]
        fn no_interval_of_the_span_ever_holds_more_than_the_limit(
            start in prop_oneof![Just(0_u64), Just((1 << 32) - 5_000), any::<u32>().prop_map(u64::from)],
            steps in prop::collection::vec((prop_oneof![0_u64..30, 0_u64..400, Just(5_000_000_000)], 1_usize..=8), 1..300),
        ) {
            let (limit, span) = (8, 1_000);
            let mut window = Window::new(limit, Duration::from_millis(span));
            let (mut now, mut sent) = (start, Vec::new());
            for (advance, below) in steps {
                now += advance;
                let held = sent.iter().filter(|&&at| now - at <= span).count();
                prop_assert_eq!(window.used(now), held);
                match window.available_at(now, below) {
                    None => {
                        prop_assert!(held < below);
                        window.record(now);
                        sent.push(now);
                    }
                    Some(free) => {
                        prop_assert!(held >= below && free > now);
                        prop_assert!(window.used(free) < below && window.used(free - 1) >= below);
                    }
                }
            }
            for &first in &sent {
                let within = sent.iter().filter(|&&at| (first..=first + span).contains(&at)).count();
                prop_assert!(within <= limit);
            }
        }

        #[test]
        fn a_bucket_never_gives_more_than_it_gained(steps in prop::collection::vec((0_u64..2_000, 1_u32..600), 1..200)) {
            let (capacity, per_second) = (24, 3);
            let mut bucket = Bucket::new(capacity, per_second, 0);
            let (mut now, mut taken) = (0, 0_u64);
            for (advance, cost) in steps {
                now += advance;
                match bucket.take(now, cost) {
                    Ok(()) => taken += u64::from(cost),
                    Err(wait) => {
                        prop_assert!(wait > 0);
                        prop_assert!(bucket.clone().take(now + wait - 1, cost).is_err());
                        prop_assert!(bucket.clone().take(now + wait, cost).is_ok());
                    }
                }
                // Hundredths of a token times 1000, against capacity plus refill over the whole time.
                prop_assert!(taken * 1000 <= u64::from(capacity) * 100_000 + now * u64::from(per_second) * 100);
            }
        }
    }

    #[test]
    fn a_bucket_refills_exactly() {
        let mut bucket = Bucket::new(24, 3, 0);
        for _ in 0..24 {
            assert_eq!(bucket.take(0, 100), Ok(()));
        }
        assert_eq!(bucket.take(0, 100), Err(334), "a third of a second, rounded up");
        assert_eq!(bucket.take(333, 100), Err(1));
        assert_eq!(bucket.take(334, 100), Ok(()));
        assert_eq!(bucket.take(1_000, 200), Ok(()), "the parts of a millisecond are not lost");
        assert_eq!(bucket.take(1_000, 1), Err(4), "a hundredth of a token");
    }

    #[test]
    fn a_reserve_is_left_and_more_than_the_bucket_holds_means_full() {
        let mut bucket = Bucket::new(2, 1, 0);
        assert_eq!(bucket.wait(0, 100, 100), 0);
        assert_eq!(bucket.take(0, 100), Ok(()));
        assert_eq!(bucket.wait(0, 100, 100), 1_000);
        assert_eq!(bucket.wait(0, 900, 0), 1_000);
        bucket.drain(0);
        assert!(!bucket.is_full(1_999) && bucket.is_full(2_000));
    }
}
