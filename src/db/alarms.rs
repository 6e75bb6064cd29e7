//! The ledger of alarms and incidents, and what needs both it and the notices: the steps and messages of an incident,
//! and alarms that ring while the database gives nothing.

pub mod alarm_ledger;
pub mod early_alarms;
pub mod emergencies;
pub mod incidents;
pub mod late_notices;
pub mod new_event_notices;
pub mod notice_messages;
pub mod notice_steps;
pub mod notice_subjects;
pub mod reachable_watchers;
pub mod spoken_alarms;
