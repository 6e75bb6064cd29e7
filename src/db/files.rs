//! Files of the data directory, beside the database: the journal of alarms (and the alarms that it does not have yet),
//! users who have erased themselves, the last backup and the last run.

pub mod erasure_list;
pub mod journal;
pub mod last_backup;
pub mod last_run;
pub mod unsaved_alarms;
