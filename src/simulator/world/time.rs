//! The time of the world: its day, and times as the game sends them.

use chrono::TimeDelta;

use crate::{domain::time::Timestamp, game::wire::AppTime};

const DAY_LENGTH_MINUTES: f32 = 60.0;
/// The hour at which the world begins.
const FIRST_HOUR: f32 = 8.0;
const SUNRISE: f32 = 7.5;
const SUNSET: f32 = 20.0;

/// Hour of the day, 0..24, this long after the world began.
pub fn hour(since_start: TimeDelta) -> f32 {
    let minutes = since_start.num_milliseconds() as f32 / 60_000.0;
    (FIRST_HOUR + minutes * 24.0 / DAY_LENGTH_MINUTES) % 24.0
}

/// The answer to getTime at this hour.
pub fn app_time(hour: f32) -> AppTime {
    AppTime { day_length_minutes: DAY_LENGTH_MINUTES, time_scale: 1.0, sunrise: SUNRISE, sunset: SUNSET, time: hour }
}

/// Unix time in seconds.
pub fn unix(at: Timestamp) -> u32 {
    at.timestamp().clamp(0, i64::from(u32::MAX)) as u32
}
