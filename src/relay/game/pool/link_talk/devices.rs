//! Rounds of questions to the link's devices.

use std::{collections::HashSet, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{ANSWER_DEADLINE, LinkTalk, SILENT_ANSWERS};
use crate::{
    db::{
        engine::{pool::Db, start_reads::read_until_answered},
        smart_devices::{self, SmartDevice},
    },
    domain::{device::DeviceKind, freshness::DEVICES_EVERY},
    game::{budget::Priority, link::AskError},
    relay::{
        game::pool::{link_end::LinkEnd, link_owner::Unneeded, link_report::LinkReport},
        state::game_update::OwnUpdate,
    },
};

/// Retries of a device that was refused for the rate.
const RATE_REFUSALS: u32 = 3;

/// Least time between two rounds: a game server that sends rubbish does not spend our budget on them.
const ROUNDS_APART: Duration = Duration::from_secs(10);

impl LinkTalk<'_> {
    /// Asks all devices, and again now and then; notifies when the alarms were asked.
    pub(super) async fn keep_devices(&self, alarms_asked: &Notify) -> Result<Unneeded, LinkEnd> {
        // Devices that did not answer in the last round; none: all are asked.
        let mut silent = HashSet::new();
        let mut all_asked_at = Instant::now();
        loop {
            if silent.is_empty() {
                all_asked_at = Instant::now();
            }
            silent = match Box::pin(self.devices(alarms_asked, &silent)).await? {
                Ok(silent) => silent,
                Err(Unneeded) => return Ok(Unneeded),
            };
            alarms_asked.notify_one();
            if Box::pin(self.owner.report(LinkReport::DevicesAsked)).await.is_err() {
                return Ok(Unneeded);
            }
            sleep(ROUNDS_APART).await;
            let left = (all_asked_at + DEVICES_EVERY.unwatched).saturating_duration_since(Instant::now());
            // Sooner if a change may have been missed, or a device did not answer: its changes may not reach this link.
            let pause = if silent.is_empty() { left } else { Duration::ZERO };
            if timeout(pause, self.devices_wanted.notified()).await.is_ok() || left.is_zero() {
                silent.clear();
            }
        }
    }

    /// Asks these paired devices, or every one if there are none of these, alarms first, which also subscribes this link to
    /// their changes; returns those that did not answer. One that is paired meanwhile is asked by the game connection.
    async fn devices(
        &self,
        alarms_asked: &Notify,
        only: &HashSet<String>,
    ) -> Result<Result<HashSet<String>, Unneeded>, LinkEnd> {
        let (context, server) = (&self.owner.context, self.owner.server.clone());
        let read = move |db: &mut Db| smart_devices::list(db, &server);
        let mut rows = read_until_answered(&context.pool, &context.random, "devices", read).await;
        rows.retain(|row| only.is_empty() || only.contains(&row.device_id));
        rows.sort_by_key(urgency);
        let mut silent = HashSet::new();
        for row in rows {
            if urgency(&row) == Urgency::CanWait {
                alarms_asked.notify_one();
            }
            let Ok(entity) = row.device_id.parse::<u64>() else { continue };
            let mut answer = self.link.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            // Until it has answered, its alarms do not reach us; our predecessor may have spent the tokens.
            for _ in 0..RATE_REFUSALS {
                if !matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit") {
                    break;
                }
                answer = self.link.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            }
            let is_silent = matches!(answer, Err(AskError::TimedOut));
            self.count_silence(is_silent);
            if is_silent {
                silent.insert(row.device_id.clone());
            }
            match &answer {
                Err(AskError::Closed) => return Err(LinkEnd::by(AskError::Closed)),
                Err(error @ AskError::TooMany(_)) => self.warn_of_refusal(error),
                _ if self.silent.get() >= SILENT_ANSWERS => return Err(LinkEnd::by(AskError::TimedOut)),
                _ => {}
            }
            let update = OwnUpdate::Device { device: row.device_id.into(), answer };
            if self.owner.update(update).await.is_err() {
                return Ok(Err(Unneeded));
            }
        }
        Ok(Ok(silent))
    }
}

/// Order in which devices are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Alarm,
    /// Not asked yet: it may be one.
    MayBeAlarm,
    CanWait,
}

fn urgency(device: &SmartDevice) -> Urgency {
    match device.kind {
        DeviceKind::Alarm => Urgency::Alarm,
        DeviceKind::Unknown => Urgency::MayBeAlarm,
        DeviceKind::Switch | DeviceKind::StorageMonitor | DeviceKind::Camera => Urgency::CanWait,
    }
}
