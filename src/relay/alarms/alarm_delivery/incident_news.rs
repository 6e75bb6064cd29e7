//! News of incidents, on their way from the ledger to the state and the sockets.

use std::sync::Arc;

use futures_util::future::{BoxFuture, LocalBoxFuture};
use tokio::time::Instant;

use super::incident_line::IncidentLine;
use crate::{
    db::files::unsaved_alarms::UnsavedGuard,
    domain::{incident::Raid, raid::IncidentChange},
    relay::{alarms::received_at::ReceivedAt, wire::receipt::DeliveryCount},
};

/// Changes of incidents to show, as they are when they are published, and the messages to send among them.
#[must_use = "nothing is shown or sent before AlarmDelivery::publish"]
#[derive(Default)]
pub struct IncidentNews {
    pub(super) changes: Vec<IncidentChange>,
    /// Another process may have sent the messages before.
    pub(super) again: bool,
    /// When the alarm was received, if it was just now.
    pub(super) received_at: Option<ReceivedAt>,
    /// The line in the log of the incident that this alarm opened.
    pub(super) opened: Option<IncidentLine>,
    /// Held until the sockets have taken it.
    pub(super) undelivered: Option<UnsavedGuard>,
    /// Alarms of an earlier process, or of another node, whose lines in the team's chat are to be said here.
    pub unsaid: Vec<Raid>,
}

impl IncidentNews {
    /// Changes without an alarm that was received just now.
    pub(super) fn of(changes: Vec<IncidentChange>) -> Self {
        Self { changes, ..Self::default() }
    }

    /// The alarms that were received just now and opened an incident, drills too.
    pub fn opened(&self) -> impl Iterator<Item = &Raid> {
        let messages = self.changes.iter().filter_map(|change| change.message.as_ref());
        messages.filter(|raid| self.received_at.is_some() && !raid.update && !raid.late)
    }
}

/// A message on its way.
pub(super) struct SentAlarm {
    pub(super) incident: String,
    /// When it was given to the sockets.
    pub(super) at: Instant,
    /// The sockets that took it so far.
    pub(super) taken: Arc<DeliveryCount>,
    /// The number of sockets that took it, once all have or are gone.
    pub(super) all: BoxFuture<'static, usize>,
}

/// News of which is recorded who takes them.
pub struct FollowedNews {
    /// The sockets that took the message of the incident that was opened, so far.
    pub(super) taken: Arc<DeliveryCount>,
    /// The number of sockets that took the last message, once all have or are gone. It must be polled: it records the
    /// delivery.
    pub all: LocalBoxFuture<'static, usize>,
}
