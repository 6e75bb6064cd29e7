//! A push between its arrival and the moment when it is stored. Its alarm is delivered once: by the database that
//! stored it, or by the session that waits no longer, whichever is first.

use std::sync::{Arc, Mutex, PoisonError};

use actix::Addr;
use tokio::time::Instant;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers::PairedServer,
    },
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
    push::{
        context::PushContext,
        inbox::{self, AlarmServer, Inbox, PushOutcome, PushOwner, PushedDevice},
        message::PushMessage,
        notification::Notification,
    },
    relay::hub::{AlarmPushed, DevicesChanged, Hub, PlaceDevice, PushedAlarm, ServerPaired, ServerRemoved},
};

/// See the module.
pub struct ArrivedPush {
    pub message: PushMessage,
    owner: PushOwner,
    alarm_id: String,
    alarm_server: AlarmServer,
    arrived_at: Timestamp,
    heard_at: Instant,
    /// The server for which the alarm was delivered to the hub.
    told: Mutex<Option<ServerId>>,
}

impl ArrivedPush {
    /// A push of this owner that arrived now.
    pub fn new(message: PushMessage, owner: PushOwner, context: &PushContext) -> Self {
        let now = context.clock.now();
        let alarm_id = inbox::alarm_id(&owner.user, &message, || context.random.id(now));
        let (alarm_server, told) = (AlarmServer::default(), Mutex::new(None));
        Self { message, owner, alarm_id, alarm_server, arrived_at: now, heard_at: Instant::now(), told }
    }

    /// Bytes that it holds, roughly.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.message.app_data.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }

    pub fn is_alarm(&self) -> bool {
        matches!(Notification::read(&self.message.app_data), Notification::Alarm(_))
    }

    /// Delivers an alarm to the hub, stored or not, if it is of one of these servers and was not delivered before.
    pub fn deliver(&self, servers: &[PairedServer], hub: &Addr<Hub>) {
        let (alarm_id, alarm_server) = (self.alarm_id.as_str(), &self.alarm_server);
        if let Some((server, alarm)) = inbox::alarm(servers, &self.message, alarm_id, alarm_server, self.arrived_at) {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.is_none() {
                *told = Some(server.clone());
                hub.do_send(AlarmPushed { server, alarm, heard_at: self.heard_at });
            }
        }
    }

    /// Stores the push, and reports its changes to the hub once they are committed. True if something was paired.
    pub async fn store(self: Arc<Self>, context: Arc<PushContext>) -> Result<bool, DbError> {
        let (hub, stored) = (context.hub.clone(), self.clone());
        let (vault, random) = (context.vault.clone(), context.random.clone());
        let store = move |db: &mut Db| {
            let Self { owner, alarm_id, alarm_server, arrived_at: now, .. } = &*self;
            let inbox = Inbox { owner, vault: &vault, random: &random, alarm_id, alarm_server, now: *now };
            inbox.store(db, &self.message)
        };
        let tell = move |outcome: &PushOutcome| stored.tell(&hub, outcome);
        let outcome = context.pool.write_first(store, tell).await?;
        Ok(matches!(outcome, PushOutcome::Paired { .. }))
    }

    /// Reports the changes to the hub.
    fn tell(&self, hub: &Addr<Hub>, outcome: &PushOutcome) {
        let user = &self.owner.user;
        match outcome {
            PushOutcome::Paired { server, changed, displaced, device } => {
                if let Some(server) = displaced.clone() {
                    hub.do_send(ServerRemoved { server });
                }
                hub.do_send(ServerPaired { server: server.clone(), changed: *changed });
                if matches!(device, Ok(PushedDevice::Known | PushedDevice::New { .. })) {
                    hub.do_send(DevicesChanged { server: server.clone() });
                }
                match device.clone() {
                    Ok(PushedDevice::New { id, player, sent }) => {
                        hub.do_send(PlaceDevice { server: server.clone(), device: id, player, sent });
                    }
                    Ok(_) => {}
                    Err(reason) => count_ignored(user, reason),
                }
            }
            PushOutcome::Alarm { server, alarm } => self.tell_stored(hub, server, alarm),
            PushOutcome::Noted => {}
            PushOutcome::Ignored(reason) => count_ignored(user, reason),
        }
    }

    /// Delivers a stored alarm for this server, unless that is done. If it was delivered for another server, that one
    /// is no longer paired.
    fn tell_stored(&self, hub: &Addr<Hub>, server: &ServerId, alarm: &PushedAlarm) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_ref() != Some(server) {
            *told = Some(server.clone());
            hub.do_send(AlarmPushed { server: server.clone(), alarm: alarm.clone(), heard_at: self.heard_at });
        }
    }
}

fn count_ignored(user: &UserId, reason: &'static str) {
    metrics::counter!("companion_push_ignored_total", "reason" => reason).increment(1);
    log::info!(user = user.as_str(), reason; "a push was ignored");
}
