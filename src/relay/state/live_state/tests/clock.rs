//! The clock of the game in the live state.

use super::*;
use crate::game::wire::AppTime;

#[test]
fn the_length_of_the_day_is_in_the_state_once_it_was_watched_for_some_minutes() {
    let mut live = LiveState::new(at(0));
    let mut learned = 0;
    for minute in 0..=5 {
        // 24 hours in an hour.
        let time = 8.0 + 0.4 * minute as f32;
        let time = AppTime { day_length_minutes: 60.0, time_scale: 1.0, sunrise: 7.5, sunset: 20.0, time };
        let outcome = live.update(WorldUpdate::Time(time), at(60 * minute).into());
        learned += i64::from(outcome.world.speeds.is_some());
    }
    assert_eq!(learned, 1, "it is stored once");
    let server = &live.state().server;
    assert_eq!((server.day_seconds, server.night_seconds), (Some(1_875), None));
    // At ten, ten hours before sunset.
    let night = server.day_night_at.unwrap();
    assert!((night - at(300 + 1_500)).abs() < TimeDelta::seconds(20), "{night:?}");
}
