//! Channels that wake users: their kinds and limits, the rules and times by which they are tried, and the words that
//! they say.

pub mod alarm_notice;
pub mod channel_lane;
pub mod channel_template;
pub mod channel_url;
pub mod drill;
pub mod escalation;
pub mod held_origins;
pub mod notice_step;
pub mod noticed_event;
pub mod quiet_hours;
pub mod spoken_alarm;
pub mod user_channel;
