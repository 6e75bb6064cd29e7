//! Wakes users who have no dashboard open: makes the steps of notices that are due, and the attempts of their messages.
//! Rows are the queue ([`notice_queue`](crate::db::notices::notice_queue)), so that the end of the process loses none;
//! a message may be sent twice then, with the same id.

pub mod attempt;
pub mod device_news;
pub mod disabled_warnings;
pub mod early;
pub mod early_messages;
pub mod early_outcomes;
pub mod emergencies;
pub mod expiry_warnings;
pub mod figures;
pub mod gone_channels;
pub mod orphaned_emergencies;
pub mod outcomes;
pub mod reached_users;
pub mod sender;
pub mod team_chat;
pub mod user_messages;
pub mod worker;

pub use self::sender::Channels;
