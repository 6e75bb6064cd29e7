//! The line of the log about an incident: the alarm that opened it, and when it got how far. `docs/alarms.md` explains
//! it.

use std::{collections::BTreeSet, sync::Arc};

use chrono::SecondsFormat;
use log::kv::Value;
use tokio::time::Instant;

use crate::{
    domain::{ids::ServerId, incident::AlarmPath, time::Timestamp},
    relay::{
        alarms::{ledger::SavedTo, received_at::ReceivedAt},
        wire::receipt::DeliveryCount,
    },
};

/// See the module. One of each incident: written when it is dropped, so also when its game connection ends before its
/// first message is settled.
pub(super) struct IncidentLine {
    server: ServerId,
    incident: String,
    /// Id of the alarm in the ledger.
    alarm: String,
    /// Paths by which its alarms came, as far as they are known.
    paths: BTreeSet<AlarmPath>,
    received_at: ReceivedAt,
    received: Timestamp,
    /// And milliseconds since it was received.
    kept: Option<(SavedTo, u64)>,
    /// When its message was given to the sockets, and those that took it.
    sent: Option<(Instant, Arc<DeliveryCount>)>,
}

impl IncidentLine {
    /// This alarm has opened this incident, and is not kept yet.
    pub(super) fn opened(
        server: &ServerId,
        incident: &str,
        (alarm, path): (&str, AlarmPath),
        received_at: ReceivedAt,
        now: Timestamp,
    ) -> Self {
        Self {
            server: server.clone(),
            incident: incident.to_owned(),
            alarm: alarm.to_owned(),
            paths: [path].into(),
            received_at,
            received: now - received_at.elapsed(),
            kept: None,
            sent: None,
        }
    }

    /// The incident.
    pub(super) fn incident(&self) -> &str {
        &self.incident
    }

    /// The alarm is kept now, or is delivered without.
    pub(super) fn note_kept(&mut self, kept: SavedTo) {
        self.kept = Some((kept, self.after(Instant::now())));
    }

    /// Its incident is a part of this one by now.
    pub(super) fn note_merged(&mut self, whole: Option<String>) {
        if let Some(whole) = whole {
            self.incident = whole;
        }
    }

    /// Its message was given to the sockets then.
    pub(super) fn note_sent(&mut self, at: Instant, taken: Arc<DeliveryCount>) {
        self.sent = Some((at, taken));
    }

    /// Alarms of the incident were received by these paths, too.
    pub(super) fn note_paths(&mut self, paths: &BTreeSet<AlarmPath>) {
        self.paths.extend(paths);
    }

    /// Milliseconds from its receipt until then.
    fn after(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.received_at.at()).as_millis() as u64
    }
}

impl Drop for IncidentLine {
    fn drop(&mut self) {
        let none = || Value::from("none");
        let taken = self.sent.as_ref().and_then(|(_, taken)| taken.first_at());
        let paths: Vec<&str> = self.paths.iter().map(|path| path.word()).collect();
        log::info!(
            server = self.server.as_str(),
            incident = self.incident.as_str(),
            alarm = self.alarm.as_str(),
            paths = paths.join(",").as_str(),
            received = self.received.to_rfc3339_opts(SecondsFormat::Millis, true).as_str(),
            kept = self.kept.map_or("unknown", |(kept, _)| kept.word()),
            stored = self.kept.map_or_else(none, |(_, after)| after.into()),
            published = self.sent.as_ref().map_or_else(none, |(at, _)| self.after(*at).into()),
            taken = taken.map_or_else(none, |at| self.after(at).into()),
            sockets = self.sent.as_ref().map_or(0, |(_, taken)| taken.sockets());
            "raid alarm"
        );
    }
}
