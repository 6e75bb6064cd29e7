//! The difference of the machine's clock from those of others.

use std::fmt;

use chrono::TimeDelta;

use crate::domain::limits::PROVIDER_CLOCK_SKEW;

/// Tolerated difference of a `Date`: its fraction of a second is cut off, and it was on its way.
const NO_SKEW: TimeDelta = TimeDelta::seconds(3);

/// Lead of another clock over ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew(pub TimeDelta);

impl ClockSkew {
    /// True if both show the same time.
    pub fn agrees(self) -> bool {
        self.0.abs() <= NO_SKEW
    }

    /// True if the identity provider's assertions look too old or too new: no user can sign in.
    pub fn refuses_sign_ins(self) -> bool {
        !self.0.abs().to_std().is_ok_and(|skew| skew < PROVIDER_CLOCK_SKEW)
    }
}

/// Continues "our clock ".
impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.num_seconds() {
            theirs @ 0.. => write!(f, "is {theirs} s behind"),
            theirs => write!(f, "is {} s ahead of", -theirs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_a_little_off_is_one_thing_and_one_that_keeps_users_out_another() {
        let judged = |seconds: i64| {
            let skew = ClockSkew(TimeDelta::seconds(seconds));
            (skew.agrees(), skew.refuses_sign_ins(), skew.to_string())
        };
        assert_eq!(judged(3), (true, false, "is 3 s behind".to_owned()));
        assert_eq!(judged(4), (false, false, "is 4 s behind".to_owned()));
        assert_eq!(judged(-299), (false, false, "is 299 s ahead of".to_owned()));
        assert_eq!(judged(-300), (false, true, "is 300 s ahead of".to_owned()));
        assert!(ClockSkew(TimeDelta::MAX).refuses_sign_ins() && ClockSkew(TimeDelta::MIN).refuses_sign_ins());
    }
}
