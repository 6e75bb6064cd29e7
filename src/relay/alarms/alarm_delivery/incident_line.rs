//! The line of the log about an incident: the alarm that opened it, and when it got how far. `docs/alarms.md` explains
//! it.

use std::collections::BTreeSet;

use chrono::SecondsFormat;
use tokio::time::Instant;

use crate::{
    domain::{ids::ServerId, incident::AlarmPath, time::Timestamp},
    relay::alarms::{ledger::Kept, received_at::ReceivedAt},
};

/// See the module. One of each incident, written when its first message is settled.
pub(super) struct IncidentLine {
    /// Id of the alarm in the ledger.
    alarm: String,
    received_at: ReceivedAt,
    received: Timestamp,
    kept: Kept,
    /// Milliseconds since it was received.
    stored: u128,
}

impl IncidentLine {
    /// The alarm is kept now, or is delivered without.
    pub(super) fn stored(alarm: String, received_at: ReceivedAt, kept: Kept, now: Timestamp) -> Self {
        let passed = received_at.elapsed();
        Self { alarm, received_at, received: now - passed, kept, stored: passed.as_millis() }
    }

    /// `taken` is when the first of the sockets took it.
    pub(super) fn write(
        &self,
        server: &ServerId,
        incident: &str,
        paths: &BTreeSet<AlarmPath>,
        published: Instant,
        taken: Option<Instant>,
        sockets: usize,
    ) {
        let after = |at: Instant| at.saturating_duration_since(self.received_at.at()).as_millis();
        let paths: Vec<&str> = paths.iter().map(|path| path.word()).collect();
        log::info!(
            server = server.as_str(),
            incident,
            alarm = self.alarm.as_str(),
            paths = paths.join(",").as_str(),
            received = self.received.to_rfc3339_opts(SecondsFormat::Millis, true).as_str(),
            kept = self.kept.word(),
            stored = self.stored,
            published = after(published),
            taken = taken.map_or_else(|| "none".to_owned(), |taken| after(taken).to_string()).as_str(),
            sockets;
            "raid alarm"
        );
    }
}
