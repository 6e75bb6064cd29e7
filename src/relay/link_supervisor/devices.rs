//! The link's devices: which are paired, as soon as that changes, and how each answers.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{ANSWER_DEADLINE, SILENT_ANSWERS, Supervisor, Unneeded};
use crate::{
    db::{
        pool::Db,
        smart_devices::{self, SmartDevice},
        start::read_until_answered,
    },
    domain::{device::DeviceKind, freshness::DEVICES_EVERY},
    game::{asker::Asker, budget::Priority, link::AskError},
    relay::{
        link_end::LinkEnd,
        live_state::{GameUpdate, PairedDevice},
    },
};

/// How often a device is asked again that was refused for the rate.
const RATE_REFUSALS: u32 = 3;
/// How long the devices that are still to be asked wait for the database, if their owner has changed some.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

impl Supervisor {
    pub(super) async fn keep_devices(&self, asker: &Asker, alarms_asked: &Notify) -> Result<Unneeded, LinkEnd> {
        let mut every = interval(DEVICES_EVERY.unwatched);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.wake.devices.notified() => {}
            }
            if Box::pin(self.devices(asker, alarms_asked)).await?.is_err() {
                return Ok(Unneeded);
            }
            alarms_asked.notify_one();
        }
    }

    /// Shows the paired devices as they are stored. None is taken for unpaired because the database does not answer: an
    /// alarm that is not asked is not heard.
    async fn show_devices(&self) -> Result<Vec<SmartDevice>, Unneeded> {
        let server = self.server.clone();
        let read = move |db: &mut Db| smart_devices::list(db, &server);
        let rows = read_until_answered(&self.context.pool, &self.context.random, "devices", read).await;
        let known: HashMap<_, _> = rows
            .iter()
            .map(|row| {
                let known = PairedDevice {
                    kind: row.kind,
                    name: row.name.clone(),
                    label: row.label.clone(),
                    last_value: row.last_value,
                    place: row.x.zip(row.y),
                };
                (Arc::from(row.device_id.as_str()), known)
            })
            .collect();
        match self.update(GameUpdate::Devices(known)).await {
            Ok(_) => Ok(rows),
            Err(_) => Err(Unneeded),
        }
    }

    /// Asks every paired device, alarms first, which also subscribes this link to its changes.
    async fn devices(&self, asker: &Asker, alarms_asked: &Notify) -> Result<Result<(), Unneeded>, LinkEnd> {
        let Ok(mut rows) = self.show_devices().await else { return Ok(Err(Unneeded)) };
        rows.sort_by_key(urgency);
        let mut changed = false;
        for row in rows {
            // What its owner changed is shown now, and asked about when all have been.
            if self.wake.devices.notified().now_or_never().is_some() {
                changed = true;
                if let Ok(Err(Unneeded)) = timeout(SHOWN_WITHIN, self.show_devices()).await {
                    return Ok(Err(Unneeded));
                }
            }
            if urgency(&row) == Urgency::CanWait {
                alarms_asked.notify_one();
            }
            let Ok(entity) = row.device_id.parse::<u64>() else { continue };
            let mut answer = asker.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            // Until it has answered, its alarms do not reach us; our predecessor may have spent the tokens before it died.
            for _ in 0..RATE_REFUSALS {
                if !matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit") {
                    break;
                }
                answer = asker.entity(entity, Priority::EntitySync, ANSWER_DEADLINE).await;
            }
            self.count_silence(matches!(answer, Err(AskError::TimedOut)));
            match &answer {
                Err(AskError::Closed) => return Err(LinkEnd::by(AskError::Closed)),
                Err(error @ AskError::TooMany(_)) => self.warn_of_refusal(error),
                _ if self.silent.get() >= SILENT_ANSWERS => return Err(LinkEnd::by(AskError::TimedOut)),
                _ => {}
            }
            if self.update(GameUpdate::Device { device: row.device_id.into(), answer }).await.is_err() {
                return Ok(Err(Unneeded));
            }
        }
        if changed {
            self.wake.devices.notify_one();
        }
        Ok(Ok(()))
    }
}

/// In which order devices are asked.
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
