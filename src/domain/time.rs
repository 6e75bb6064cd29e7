//! Instants on the wire (RFC 3339, UTC, milliseconds, `Z`), and the two clocks that rules are given.

use std::{
    cmp::Ordering,
    ops::{Add, Sub},
};

use chrono::{DateTime, Datelike as _, SecondsFormat, TimeDelta, Timelike as _, Utc};

/// An instant in UTC.
pub type Timestamp = DateTime<Utc>;

/// `2026-11-21T09:13:00.000Z`.
pub fn to_wire(at: Timestamp) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The instant of a Unix time in seconds, as the game sends them; 0 means unknown.
pub fn from_unix(seconds: u32) -> Option<Timestamp> {
    (seconds != 0).then(|| DateTime::from_timestamp(i64::from(seconds), 0)).flatten()
}

/// True if every database and client reads it back as it is: RFC 3339 has four digits for a year, and not all know leap
/// seconds.
pub fn is_storable(at: Timestamp) -> bool {
    (0..=9999).contains(&at.year()) && at.nanosecond() < 1_000_000_000
}

/// For `#[serde(serialize_with = "time::wire")]`.
pub fn wire<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// For `#[serde(serialize_with = "time::wire_option")]`.
pub fn wire_option<S: serde::Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => wire(at, serializer),
        None => serializer.serialize_none(),
    }
}

/// Now, on two clocks: one that only goes forward decides windows, rates and hysteresis; the wall clock, which may be
/// set, only labels.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since some start; comparisons and differences are of this.
    steady: TimeDelta,
    /// The time of day.
    pub stamp: Timestamp,
}

impl Moment {
    /// The moment with this reading of the steady clock and this time of day.
    pub fn new(steady: TimeDelta, stamp: Timestamp) -> Self {
        Self { steady, stamp }
    }

    /// Reading of the steady clock: the time that it has run.
    pub fn steady(self) -> TimeDelta {
        self.steady
    }

    /// The moment that has this time of day, if the wall clock was not set since.
    pub fn at(self, stamp: Timestamp) -> Self {
        Self { steady: self.steady - (self.stamp - stamp), stamp }
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.steady == other.steady
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.steady.cmp(&other.steady)
    }
}

/// For places where both clocks are one, such as tests.
impl From<Timestamp> for Moment {
    fn from(stamp: Timestamp) -> Self {
        Self { steady: stamp - Timestamp::UNIX_EPOCH, stamp }
    }
}

impl Sub for Moment {
    type Output = TimeDelta;

    fn sub(self, earlier: Self) -> TimeDelta {
        self.steady - earlier.steady
    }
}

impl Add<TimeDelta> for Moment {
    type Output = Self;

    fn add(self, span: TimeDelta) -> Self {
        Self { steady: self.steady + span, stamp: self.stamp + span }
    }
}
