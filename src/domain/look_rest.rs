//! The rest between two looks at everything that is stored: as short as it can be while the looks stay a small part of the
//! load.

use std::time::Duration;

/// The shortest rest, and the longest.
pub const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);
/// A rest is this many times as long as the look before it.
const TIMES: u32 = 30;

/// The rest after a look that took this long: a minute after two seconds, an hour after two minutes or more.
pub fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(TIMES).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_takes_long_is_made_seldom() {
        let seconds = |took| rest_after(Duration::from_secs(took)).as_secs();
        assert_eq!([0, 2, 3, 60, 120, 4_000, u64::MAX].map(seconds), [60, 60, 90, 1_800, 3_600, 3_600, 3_600]);
    }
}
