//! The game's clock in the live state.

use chrono::TimeDelta;

use super::LiveState;
use crate::{
    domain::{
        team_command::daylight::{DayLearner, GameClock},
        time::{Moment, Timestamp},
    },
    game::wire::AppTime,
    relay::state::outcome::Outcome,
};

impl LiveState {
    /// The game's clock, and what is known of its speeds.
    pub fn day(&self) -> &DayLearner {
        &self.day
    }

    pub(super) fn update_time(&mut self, time: &AppTime, now: Moment, outcome: &mut Outcome) {
        self.freshness.time = Some(now);
        let clock =
            GameClock { hour: f64::from(time.time), sunrise: f64::from(time.sunrise), sunset: f64::from(time.sunset) };
        if self.day.read(clock, now) {
            outcome.speeds = Some(self.day.speeds());
        }
        let speeds = self.day.speeds();
        let (day_seconds, night_seconds) = speeds.lengths(clock);
        let next = speeds.left(clock).map(|left| now.stamp + left);
        // A tenth of an hour is what a clock face shows.
        let hour = |hour: f32| (0.0..=24.0).contains(&hour).then(|| (f64::from(hour) * 10.0).round() / 10.0);
        self.state.edit_server(&mut outcome.changes, |server| {
            server.hour = hour(time.time);
            server.sunrise = hour(time.sunrise);
            server.sunset = hour(time.sunset);
            (server.day_seconds, server.night_seconds) = (day_seconds, night_seconds);
            // Readings are rounded: the time that was said stays until it is off by more.
            let is_near = |known: Timestamp, next: Timestamp| (known - next).abs() < TimeDelta::seconds(15);
            if !server.day_night_at.zip(next).is_some_and(|(known, next)| is_near(known, next)) {
                server.day_night_at = next;
            }
        });
    }
}
