//! Alarms on their way into an incident, the ledger and every socket that watches.

pub mod alarm_delivery;
pub mod alarm_routes;
pub mod ledger;
pub mod received_at;
