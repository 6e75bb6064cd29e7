//! Growing pauses between attempts to reach a neighbour: doubled each time up to a cap, and jittered, so that many
//! clients that lost it together do not come back together.

use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(300);
/// After a connection that lasted this long, the pauses start again.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// Exponential backoff: the pauses between attempts.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// The first pause.
    pub const FIRST: Duration = Duration::from_secs(1);

    /// Before the first attempt.
    pub fn new() -> Self {
        Self::between(Self::FIRST, LONGEST)
    }

    /// A backoff with other first and longest pauses.
    pub fn between(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// The pause after a connection that lasted for `held` (zero if there was none), at least `least`; the random byte
    /// makes it up to a fifth shorter or longer.
    pub fn after(&mut self, held: Duration, least: Duration, random: u8) -> Duration {
        if held >= HEALTHY_AFTER {
            self.next = self.first;
        }
        let pause = jittered(self.next.max(least), random);
        self.next = (self.next * 2).min(self.longest);
        pause
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// Up to a fifth shorter or longer.
pub fn jittered(pause: Duration, random: u8) -> Duration {
    pause.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes_and_start_again_after_a_healthy_minute() {
        let (mut backoff, short) = (Backoff::new(), Duration::ZERO);
        let mut next = |held| backoff.after(held, Duration::ZERO, 128).as_secs_f64().round();
        let pauses: Vec<f64> = (0..10).map(|_| next(short)).collect();
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0]);
        assert_eq!(next(Duration::from_secs(59)), 300.0);
        assert_eq!(next(Duration::from_secs(60)), 1.0);
    }

    #[test]
    fn the_first_and_the_longest_pause_may_be_others() {
        let mut backoff = Backoff::between(Duration::from_secs(60), Duration::from_secs(200));
        let mut next = |held| backoff.after(held, Duration::ZERO, 128).as_secs_f64().round();
        let pauses = [Duration::ZERO; 4].map(&mut next);
        assert_eq!(pauses, [60.0, 120.0, 200.0, 200.0]);
        assert_eq!(next(HEALTHY_AFTER), 60.0);
    }

    #[test]
    fn a_pause_is_never_a_fifth_off_and_never_below_the_least() {
        for random in 0..=255 {
            let pause = Backoff::new().after(Duration::ZERO, Duration::from_secs(60), random);
            assert!((48.0..=72.0).contains(&pause.as_secs_f64()), "{pause:?}");
        }
    }
}
