//! Notices on their way to users: the queue, the channels and rules that each user has, and how messages end.
//! Nothing here knows the ledger of alarms, which is above.

pub mod alarm_rules;
pub mod channels;
pub mod count_updates;
pub mod deliveries;
pub mod disabled_channels;
pub mod early_changes;
pub mod merged_notices;
pub mod new_devices;
pub mod new_notices;
pub mod notice_queue;
pub mod notice_rules;
pub mod waiting_notices;
