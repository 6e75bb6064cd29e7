//! A push between its arrival and the moment when it is stored. Its alarm is delivered by the database that stored it,
//! or before by the session that waits no longer. Three places know a push that comes again: the table `push_seen`, the
//! session while it is not stored ([`unstored`](crate::push::unstored)), and the game connection, which takes an alarm up once.

use std::sync::Arc;

use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers::PairedServer,
    },
    domain::time::Timestamp,
    push::{
        context::PushContext,
        inbox::{self, AlarmServer, Inbox, InboxPush, PushOutcome, PushOwner, PushedDevice},
        message::PushMessage,
        notification::Notification,
    },
    relay::hub::{AlarmPushed, DevicesChanged, PlaceDevice, ReceivedAt, ServerPaired, ServerRemoved, ToConnection},
};

/// See the module.
pub struct ArrivedPush {
    pub message: PushMessage,
    notification: Notification,
    owner: PushOwner,
    alarm_id: String,
    alarm_server: AlarmServer,
    arrived_at: Timestamp,
    pub received_at: ReceivedAt,
}

impl ArrivedPush {
    /// A push of this owner that arrived now.
    pub fn new(message: PushMessage, owner: PushOwner, context: &PushContext) -> Self {
        let (received_at, now) = (ReceivedAt::now(), context.clock.now());
        let alarm_id = inbox::alarm_id(&owner.user, &message, || context.random.id(now));
        let notification = Notification::read(&message.app_data);
        let alarm_server = AlarmServer::default();
        Self { message, notification, owner, alarm_id, alarm_server, arrived_at: now, received_at }
    }

    /// Bytes that it holds, roughly: the notification has the texts once more.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.message.app_data.iter().map(|(key, value)| key.len() + 2 * value.len()).sum::<usize>()
    }

    /// The id of its alarm, which is the key of that in the ledger and in the log; none if it is another push.
    pub fn alarm(&self) -> Option<&str> {
        matches!(self.notification, Notification::Alarm(_)).then_some(&self.alarm_id)
    }

    /// Delivers an alarm, stored or not, if it is of one of these servers.
    pub fn deliver(&self, servers: &[PairedServer], context: &PushContext) {
        if let Some((server, alarm)) = self.inbox_push().alarm_among(servers) {
            context.deliver(AlarmPushed { server, alarm, received_at: self.received_at });
        }
    }

    fn inbox_push(&self) -> InboxPush<'_> {
        let Self { message, notification, alarm_id, alarm_server, arrived_at: now, .. } = self;
        InboxPush { message, notification, alarm_id, alarm_server, now: *now }
    }

    /// Stores the push, and reports its changes once they are committed. True if something was paired.
    pub async fn store(self: Arc<Self>, context: Arc<PushContext>) -> Result<bool, DbError> {
        let (reporting, stored) = (context.clone(), self.clone());
        let (vault, random) = (context.vault.clone(), context.random.clone());
        let store = move |db: &mut Db| {
            let inbox = Inbox { owner: &self.owner, vault: &vault, random: &random, push: self.inbox_push() };
            inbox.store(db)
        };
        let notify = move |outcome: &PushOutcome| stored.notify(&reporting, outcome);
        let outcome = context.pool.write_first(store, notify).await?;
        Ok(matches!(outcome, PushOutcome::Paired { .. }))
    }

    /// Reports the changes to the relay.
    fn notify(&self, context: &PushContext, outcome: &PushOutcome) {
        let hub = &context.hub;
        match outcome {
            PushOutcome::Paired { server, changed, displaced, device } => {
                if let Some(server) = displaced.clone() {
                    hub.do_send(ServerRemoved { server });
                }
                hub.do_send(ServerPaired { server: server.clone(), changed: *changed });
                if matches!(device, Ok(PushedDevice::Known | PushedDevice::New { .. })) {
                    hub.do_send(ToConnection { server: server.clone(), message: DevicesChanged });
                }
                match device.clone() {
                    Ok(PushedDevice::New { id, player, sent }) => {
                        let message = PlaceDevice { device: id, player, sent };
                        hub.do_send(ToConnection { server: server.clone(), message });
                    }
                    Ok(_) => {}
                    Err(reason) => self.count_ignored(reason),
                }
            }
            PushOutcome::Alarm { server, alarm } => {
                let (server, alarm) = (server.clone(), alarm.clone());
                context.deliver(AlarmPushed { server, alarm, received_at: self.received_at });
            }
            PushOutcome::Noted => {}
            PushOutcome::Ignored(reason) => self.count_ignored(reason),
        }
    }

    fn count_ignored(&self, reason: &'static str) {
        metrics::counter!("companion_push_ignored_total", "reason" => reason).increment(1);
        log::info!(user = self.owner.user.as_str(), alarm = self.alarm(), reason; "a push was ignored");
    }
}
