//! Health of the service: probes, the page for everyone, and the checks that both report.

pub mod checks;
mod erasures;
pub mod probes;
mod sign_in_watch;
pub mod status_page;
mod stored_rows;
pub mod warnings;
