//! The service itself: health, status and metrics for operators, and settings that a client needs at its start.

pub mod ack_pages;
pub mod client_config;
pub mod health;
pub mod index;
pub mod metrics;
pub mod pages;
pub mod problem_pages;
pub mod process_metrics;
pub mod version;
