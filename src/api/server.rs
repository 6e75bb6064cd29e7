//! Paired servers, with their devices, cameras, chat, alarms, maps and guests.

pub mod alarm_deliveries;
pub mod alarm_readiness;
pub mod alarm_rules;
pub mod alarms;
pub mod aliases;
pub mod blocked_inviters;
pub mod cameras;
pub mod chat;
pub mod chat_settings;
pub mod device_commands;
pub mod device_groups;
pub mod devices;
pub mod drills;
pub mod guest_invites;
pub mod guests;
pub mod maps;
pub mod paired_servers;
