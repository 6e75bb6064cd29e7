//! Length of day and night of a game server, learned from its clock: night runs at another speed than day on most, and
//! the game does not say at which.

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// Time of one phase that must have been seen before its speed is known.
const SEEN_FOR: TimeDelta = TimeDelta::minutes(4);
/// The last part of the observation counts: a server changes its speed, too.
const REMEMBERED: TimeDelta = TimeDelta::minutes(60);
/// Two readings that are further apart say nothing: a night may lie between them.
const LONGEST_STEP: TimeDelta = TimeDelta::seconds(200);
/// A speed that differs by this factor from the known one is a clock that was set.
const JUMP: f64 = 3.0;

/// A reading of the game's clock, in hours of its day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GameClock {
    pub hour: f64,
    pub sunrise: f64,
    pub sunset: f64,
}

impl GameClock {
    /// True between sunrise and sunset; none if the reading makes no sense.
    pub fn is_day(self) -> Option<bool> {
        let Self { hour, sunrise, sunset } = self;
        let in_day = |hour: f64| (0.0..=24.0).contains(&hour);
        let is_good = in_day(hour) && in_day(sunrise) && in_day(sunset) && sunrise < sunset;
        is_good.then_some((sunrise..sunset).contains(&hour))
    }

    /// Hours until the next sunset or sunrise.
    fn hours_left(self, is_day: bool) -> f64 {
        match is_day {
            true => self.sunset - self.hour,
            false if self.hour < self.sunrise => self.sunrise - self.hour,
            false => 24.0 - self.hour + self.sunrise,
        }
    }
}

/// Speeds of a game server's clock, in hours of the game for each real second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DaySpeeds {
    pub day: Option<f64>,
    pub night: Option<f64>,
}

impl DaySpeeds {
    fn of(&mut self, is_day: bool) -> &mut Option<f64> {
        if is_day { &mut self.day } else { &mut self.night }
    }

    /// The real time until the next sunset or sunrise, once the speed of this phase is known.
    pub fn left(mut self, clock: GameClock) -> Option<TimeDelta> {
        let is_day = clock.is_day()?;
        let speed = (*self.of(is_day))?;
        Some(TimeDelta::seconds((clock.hours_left(is_day) / speed) as i64))
    }

    /// Lengths of day and night, seconds.
    pub fn lengths(self, clock: GameClock) -> (Option<u32>, Option<u32>) {
        let day = clock.sunset - clock.sunrise;
        let length = |hours: f64, speed: Option<f64>| speed.map(|speed| (hours / speed).round() as u32);
        (length(day, self.day), length(24.0 - day, self.night))
    }
}

/// Observation of a phase: hours and real seconds.
#[derive(Clone, Copy, Debug, Default)]
struct PhaseSeen {
    hours: f64,
    seconds: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct DayLearner {
    last: Option<(GameClock, Moment)>,
    day: PhaseSeen,
    night: PhaseSeen,
    speeds: DaySpeeds,
}

impl DayLearner {
    /// The speeds, as far as they are known.
    pub fn speeds(&self) -> DaySpeeds {
        self.speeds
    }

    /// The game's clock now: its last reading, and the time since.
    pub fn clock(&self, now: Moment) -> Option<GameClock> {
        let (clock, at) = self.last?;
        let mut speeds = self.speeds;
        let speed = (*speeds.of(clock.is_day()?)).unwrap_or_default();
        let since = (now - at).clamp(TimeDelta::zero(), LONGEST_STEP).num_seconds() as f64;
        Some(GameClock { hour: (clock.hour + speed * since) % 24.0, ..clock })
    }

    /// Speeds that were learned before; those that are learned since are newer.
    pub fn remember(&mut self, stored: DaySpeeds) {
        let usable = |speed: &f64| speed.is_finite() && *speed > 0.0;
        self.speeds.day = self.speeds.day.or(stored.day.filter(usable));
        self.speeds.night = self.speeds.night.or(stored.night.filter(usable));
    }

    /// The link was down meanwhile.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// A reading. True if a speed has become known, or another by more than a twentieth.
    pub fn read(&mut self, clock: GameClock, now: Moment) -> bool {
        let Some((before, at)) = self.last.replace((clock, now)) else { return false };
        let (Some(is_day), true) = (clock.is_day(), clock.is_day() == before.is_day()) else { return false };
        let step = now - at;
        let hours = match clock.hour - before.hour {
            hours if hours < -12.0 => hours + 24.0,
            hours => hours,
        };
        if step > LONGEST_STEP || step < TimeDelta::seconds(1) || hours <= 0.0 {
            return false;
        }
        let seconds = step.num_milliseconds() as f64 / 1_000.0;
        let known = *self.speeds.of(is_day);
        let is_set = known.is_some_and(|known| !(known / JUMP..=known * JUMP).contains(&(hours / seconds)));
        let seen = if is_day { &mut self.day } else { &mut self.night };
        if is_set {
            // Another speed from now on, or a clock that was set: either way it is learned again.
            *seen = PhaseSeen::default();
            *self.speeds.of(is_day) = None;
            return true;
        }
        let most = REMEMBERED.num_seconds() as f64;
        let kept = if seen.seconds + seconds > most { most / (seen.seconds + seconds) } else { 1.0 };
        *seen = PhaseSeen { hours: (seen.hours + hours) * kept, seconds: (seen.seconds + seconds) * kept };
        if seen.seconds < SEEN_FOR.num_seconds() as f64 {
            return false;
        }
        let speed = seen.hours / seen.seconds;
        let is_news = known.is_none_or(|known| (speed / known - 1.0).abs() > 0.05);
        if is_news {
            *self.speeds.of(is_day) = Some(speed);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    /// A server of 45 minutes of day and 15 of night, read each minute.
    fn clock(minute: i64) -> (GameClock, Moment) {
        let (sunrise, sunset) = (7.0, 19.0);
        let of_day = (minute % 60) as f64;
        let hour = if of_day < 45.0 { sunrise + of_day * 12.0 / 45.0 } else { sunset + (of_day - 45.0) * 12.0 / 15.0 };
        let at = Timestamp::UNIX_EPOCH + TimeDelta::minutes(minute);
        (GameClock { hour: hour % 24.0, sunrise, sunset }, at.into())
    }

    fn learn(learner: &mut DayLearner, minutes: std::ops::Range<i64>) -> usize {
        minutes.map(clock).filter(|(clock, now)| learner.read(*clock, *now)).count()
    }

    #[test]
    fn the_time_to_nightfall_is_known_after_minutes_and_that_to_daylight_after_minutes_of_night() {
        let mut learner = DayLearner::default();
        learn(&mut learner, 10..12);
        assert_eq!(learner.speeds().left(clock(12).0), None);
        assert_eq!(learn(&mut learner, 12..40), 1, "known once");
        assert_eq!(learner.speeds().left(clock(40).0).unwrap().num_seconds(), 5 * 60);
        assert_eq!(learner.speeds().left(clock(50).0), None, "night is another speed");
        learn(&mut learner, 40..56);
        assert_eq!(learner.speeds().left(clock(56).0).unwrap().num_minutes(), 4);
        assert_eq!(learner.speeds().lengths(clock(56).0), (Some(45 * 60), Some(15 * 60)));
        let mut again = DayLearner::default();
        again.remember(learner.speeds());
        assert_eq!(again.speeds(), learner.speeds());
    }

    #[test]
    fn a_gap_a_skipped_night_and_nonsense_teach_nothing() {
        let mut learner = DayLearner::default();
        for minute in [0, 20, 40, 100, 160] {
            let (clock, now) = clock(minute);
            assert!(!learner.read(clock, now));
        }
        let nonsense = GameClock { hour: f64::NAN, sunrise: 9.0, sunset: 3.0 };
        assert_eq!((nonsense.is_day(), learner.speeds().left(nonsense)), (None, None));
        assert!(!learner.read(nonsense, clock(161).1));
        assert_eq!(learner.speeds(), DaySpeeds::default());
        learner.remember(DaySpeeds { day: Some(0.0), night: Some(f64::INFINITY) });
        assert_eq!(learner.speeds(), DaySpeeds::default());
    }

    #[test]
    fn a_clock_that_was_set_is_learned_again() {
        let mut learner = DayLearner::default();
        learn(&mut learner, 0..20);
        let (mut set, now) = clock(20);
        set.hour = 18.0;
        assert!(learner.read(set, now));
        assert_eq!(learner.speeds().day, None);
    }
}
