//! Sends messages by channels, and waits for the outcome of none.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use actix::Recipient;
use chrono::TimeDelta;
use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};
use url::Url;

use crate::{
    channels::{early_messages::EarlyMessages, gone_channels::GoneChannels, orphaned_emergencies::OrphanedEmergencies},
    clients::channels::{ChannelClient, ChannelFailure, TakenMessage},
    clock::Clock,
    config::PublicUrls,
    crypto::{ack_link::AckLinks, digest::sha256_hex, random::Random, vapid::VapidKey},
    db::{
        alarms::{
            early_alarms::EarlyAlarms, incidents::StoredIncident, notice_messages::SendableMessage,
            notice_subjects::NoticeSubject,
        },
        engine::pool::Pool,
        helper_devices::HelperDevice,
        notices::{
            channels::StoredChannel, count_updates::UPDATED, early_changes::EndedWay, notice_queue::ACKNOWLEDGED,
        },
    },
    domain::{
        channels::{
            alarm_notice::{AlarmNotice, NoticeEvent, dashboard_at},
            channel_lane::ChannelLane,
            noticed_event::NoticedEvent,
            user_channel::{ChannelFault, ChannelState, ChannelTarget},
        },
        credential::Warning,
        ids::{ChannelId, UserId},
        incident::Incident,
        time::{Moment, Timestamp},
        world_event::EventKind,
    },
    relay::hub::{SayForChannel, ToConnection},
    vault::{Vault, VaultError},
};

/// The way of lines to the links of paired servers.
pub type TeamChatWay = Recipient<ToConnection<SayForChannel>>;

/// In the place of a server's name, where a message is about none.
const SERVICE: &str = "companion";

/// The ways to users who have no dashboard open.
pub struct Channels {
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    pub vault: Vault,
    pub client: ChannelClient,
    /// The way into the chats of teams; `None`: there are no links.
    pub team_chat: Option<TeamChatWay>,
    pub links: AckLinks,
    pub urls: PublicUrls,
    /// The key for push services, once it was read.
    pub vapid: OnceLock<Arc<VapidKey>>,
    /// Notified when outcomes of messages were stored, or are known of early ones.
    pub news: Notify,
    /// When the worker's last look that was good began; none: there was none.
    pub good_look: Mutex<Option<Instant>>,
    /// Since when the worker finds that the database fails; none: its last look was good.
    pub failing_since: Mutex<Option<Moment>>,
    /// Alarms that are sent before the database has them, and their messages.
    pub early_alarms: Arc<EarlyAlarms>,
    pub early: EarlyMessages,
    /// Channels whose end the database may not have yet.
    pub gone: GoneChannels,
    /// Emergencies of channels that are gone.
    pub orphaned: OrphanedEmergencies,
}

impl Channels {
    /// Completes when further outcomes of messages were stored.
    pub fn settled(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// Notes how a look of the worker that began then ended.
    pub fn note_look(&self, (began, at): (Moment, Instant), is_good: bool) {
        if is_good {
            *self.good_look.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        }
        let mut since = self.failing_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if is_good { None } else { Some(since.unwrap_or(began)) };
    }

    /// Forgets early messages, changes and gone channels that no row or memory asks for any longer.
    pub fn forget_old(&self) {
        let now = self.clock.moment();
        self.early.forget_old(now);
        self.early_alarms.changes.forget_old(now);
        self.gone.forget_old(now);
    }

    /// The worker of this process looks no longer.
    pub fn forget_looks(&self) {
        *self.failing_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// True if a look of the worker that was good began then or later.
    pub fn has_looked_since(&self, at: Instant) -> bool {
        self.good_look.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|look| look >= at)
    }

    /// For how long the worker has found that the database fails; 0: it does not.
    pub fn failing_for(&self) -> TimeDelta {
        let since = *self.failing_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(TimeDelta::zero(), |since| self.clock.moment() - since)
    }

    /// A new channel of this user to this target.
    pub fn new_channel(&self, user: &UserId, name: String, target: &ChannelTarget) -> StoredChannel {
        let now = self.clock.now();
        let unaimed = StoredChannel {
            id: self.random.id(now),
            user_id: user.to_string(),
            kind: target.kind().word().to_owned(),
            name,
            host: String::new(),
            target_hash: String::new(),
            sealed: Vec::new(),
            key_version: 0,
            state: String::new(),
            reason: None,
            failing_since: None,
            accepted_at: None,
            created_at: now,
            failures: 0,
            origin: String::new(),
        };
        self.with_target(unaimed, target)
    }

    /// This channel with another target of its kind, active.
    pub fn with_target(&self, channel: StoredChannel, target: &ChannelTarget) -> StoredChannel {
        let url = Url::parse(target.url()).ok();
        let host = url.as_ref().and_then(|url| url.host_str().map(str::to_owned));
        StoredChannel {
            host: host.unwrap_or_default(),
            origin: url.map(|url| url.origin().ascii_serialization()).unwrap_or_default(),
            target_hash: sha256_hex(target.identity().as_bytes()),
            sealed: self.vault.seal_channel(&channel.id(), target),
            key_version: self.vault.key_version(),
            state: ChannelState::Active.word().to_owned(),
            reason: None,
            failing_since: None,
            failures: 0,
            ..channel
        }
    }

    /// Sends a message by a channel in this lane.
    pub async fn deliver(
        &self,
        lane: ChannelLane,
        id: &str,
        channel: &StoredChannel,
        notice: &AlarmNotice,
    ) -> Result<TakenMessage, ChannelFailure> {
        let target: ChannelTarget = self.vault.open_channel(channel).map_err(|_| ChannelFault::Unreadable)?;
        let vapid = match target {
            ChannelTarget::TeamChat => return self.say_in_team(&channel.user_id.as_str().into(), notice).await,
            ChannelTarget::WebPush { .. } => Some(self.vapid_key().await.map_err(|_| ChannelFault::Unreadable)?),
            _ => None,
        };
        self.client.send(lane, id, &target, notice, vapid.as_deref(), self.clock.now()).await
    }

    /// [`deliver`](Self::deliver), unless the channel has answered that it is gone: only tests are sent to it then.
    pub async fn deliver_unless_gone(
        &self,
        lane: ChannelLane,
        id: &str,
        channel: &StoredChannel,
        notice: &AlarmNotice,
    ) -> Result<TakenMessage, ChannelFailure> {
        // A message may be made while another transaction stores that its channel is gone.
        if self.gone.has(channel, self.clock.moment()) || channel.state().is_ok_and(|state| state == ChannelState::Gone)
        {
            return Err(ChannelFault::Gone.into());
        }
        let sent = self.deliver(lane, id, channel, notice).await;
        if matches!(sent, Err(ChannelFailure { fault: ChannelFault::Gone, .. })) {
            self.gone.note(channel, self.clock.moment());
        }
        sent
    }

    /// The database has these channels no longer.
    pub fn note_deleted(&self, channels: &[ChannelId]) {
        channels.iter().for_each(|channel| self.early_alarms.changes.end(EndedWay::Channel(channel.clone())));
    }

    /// The database has that this channel is gone: it is so for all who read it from now on, and for a memory from before. One
    /// that has another target meanwhile is not.
    pub fn note_gone_stored(&self, channel: &StoredChannel) {
        self.early_alarms.changes.end(EndedWay::Target(channel.id(), channel.target_hash.clone()));
        self.gone.forget(channel);
    }

    /// The database has that this channel is used, also if it was gone.
    pub fn note_used_again(&self, channel: &StoredChannel) {
        self.early_alarms.changes.use_again(channel.id(), &channel.target_hash);
        self.gone.forget(channel);
    }

    /// The database has since then what came of a message by this channel; no fault: the other side took it.
    pub fn note_outcome_stored(&self, channel: &StoredChannel, fault: Option<ChannelFault>, stored_at: Timestamp) {
        match fault {
            None => self.gone.note_taken_before(channel, stored_at),
            Some(ChannelFault::Gone) => self.note_gone_stored(channel),
            Some(_) => {}
        }
    }

    /// The database has what a test of this channel has shown; no fault: the other side took it.
    pub fn note_tested(&self, channel: &StoredChannel, fault: Option<ChannelFault>) {
        match fault {
            None => self.note_used_again(channel),
            Some(ChannelFault::Gone) => self.note_gone_stored(channel),
            Some(_) => {}
        }
    }

    /// True for a channel that has a word for an alarm that its user has acknowledged: no phone rings for that.
    pub fn says_acknowledged(&self, channel: &StoredChannel) -> bool {
        let target = self.vault.open_channel(channel);
        target.is_ok_and(|target| {
            matches!(target, ChannelTarget::WebPush { .. } | ChannelTarget::Webhook { template: None, .. })
        })
    }

    /// Ends the repetitions of an emergency that this channel took, with this receipt; `id` is that of its message.
    pub async fn cancel(
        &self,
        lane: ChannelLane,
        id: &str,
        channel: &StoredChannel,
        receipt: &str,
    ) -> Result<(), ChannelFailure> {
        let target = self.vault.open_channel(channel).map_err(|_| ChannelFault::Unreadable)?;
        self.client.cancel(lane, id, &target, receipt).await
    }

    /// The key by which push services know this service.
    pub async fn vapid_key(&self) -> Result<Arc<VapidKey>, VaultError> {
        match self.vapid.get() {
            Some(key) => Ok(key.clone()),
            None => {
                let key = Arc::new(self.vault.vapid_key(self.clock.now()).await?);
                Ok(self.vapid.get_or_init(|| key).clone())
            }
        }
    }

    /// The words of a message that is due.
    pub fn words(&self, message: &SendableMessage) -> AlarmNotice {
        let (server, name) = (message.server.as_str(), message.server_name.as_str());
        match &message.subject {
            NoticeSubject::Raid(incident) => {
                let event = match message.delivery.round {
                    ACKNOWLEDGED => NoticeEvent::Acknowledged,
                    UPDATED => NoticeEvent::Updated,
                    0 => NoticeEvent::Opened,
                    _ => NoticeEvent::Repeated,
                };
                let user = UserId::from(message.delivery.user_id.as_str());
                let (replaces, parts) = (message.replaces.clone(), message.parts.clone());
                AlarmNotice { replaces, parts, ..self.of_raid(event, incident, (server, name), &user) }
            }
            NoticeSubject::Event(event) => self.of_event(&message.delivery.incident_id, event, (server, name)),
        }
    }

    fn of_raid(
        &self,
        event: NoticeEvent,
        stored: &StoredIncident,
        (server_id, server_name): (&str, &str),
        user: &UserId,
    ) -> AlarmNotice {
        let Incident { alarm_name, place, count, first_at, late, drill, .. } = stored.incident.clone();
        AlarmNotice {
            event,
            replaces: None,
            kind: EventKind::Raid,
            incident: stored.id.clone(),
            parts: Vec::new(),
            server_id: server_id.to_owned(),
            server_name: server_name.to_owned(),
            alarm_name,
            grid: place.grid,
            x: place.x,
            y: place.y,
            count,
            first_at,
            late,
            drill,
            url: self.urls.frontend.at(&dashboard_at(server_id, place.x.zip(place.y))),
            ack_url: (event != NoticeEvent::Acknowledged)
                .then(|| self.urls.base.at(&format!("/a/{}", self.links.token(&stored.id, user, &server_id.into())))),
        }
    }

    fn of_event(&self, id: &str, event: &NoticedEvent, (server_id, server_name): (&str, &str)) -> AlarmNotice {
        let NoticedEvent { kind, title, grid, x, y, ts } = event.clone();
        AlarmNotice {
            event: NoticeEvent::Event,
            replaces: None,
            kind,
            incident: id.to_owned(),
            parts: Vec::new(),
            server_id: server_id.to_owned(),
            server_name: server_name.to_owned(),
            alarm_name: title,
            grid,
            x,
            y,
            count: 1,
            first_at: ts,
            late: false,
            drill: false,
            url: self.urls.frontend.at(&dashboard_at(server_id, x.zip(y))),
            ack_url: None,
        }
    }

    /// The warning that a registration for the game's pushes ends then, or has ended.
    pub fn expiry_notice(&self, id: String, warning: Warning, expires_at: Timestamp) -> AlarmNotice {
        let has_ended = warning == Warning::Expired;
        AlarmNotice {
            event: if has_ended { NoticeEvent::RegistrationEnded } else { NoticeEvent::RegistrationEnds },
            alarm_name: warning.title().to_owned(),
            first_at: expires_at,
            ..self.notice_of_service(id)
        }
    }

    /// Says by other channels that this one was switched off, as nothing got through since then.
    pub fn disabled_notice(&self, id: String, channel: &StoredChannel, since: Timestamp) -> AlarmNotice {
        AlarmNotice {
            event: NoticeEvent::ChannelDisabled,
            alarm_name: format!("Alarms no longer reach you by {}", channel.name),
            first_at: since,
            ..self.notice_of_service(id)
        }
    }

    /// Says that this device was paired with its user's account.
    pub fn device_notice(&self, id: String, device: &HelperDevice) -> AlarmNotice {
        let kind = if device.overlay.is_some() { "an overlay" } else { "a helper program" };
        AlarmNotice {
            event: NoticeEvent::DevicePaired,
            alarm_name: format!("Paired with your account: {}", device.label.as_deref().unwrap_or(kind)),
            first_at: device.created_at,
            ..self.notice_of_service(id)
        }
    }

    /// A message that tries a channel.
    pub fn test_notice(&self) -> AlarmNotice {
        AlarmNotice { kind: EventKind::Raid, drill: true, ..self.notice_of_service(self.random.id(self.clock.now())) }
    }

    /// A test, with all that messages about no server have in common.
    fn notice_of_service(&self, id: String) -> AlarmNotice {
        AlarmNotice {
            event: NoticeEvent::Test,
            replaces: None,
            kind: EventKind::Gap,
            incident: id,
            parts: Vec::new(),
            server_id: String::new(),
            server_name: SERVICE.to_owned(),
            alarm_name: "Test".to_owned(),
            grid: String::new(),
            x: None,
            y: None,
            count: 1,
            first_at: self.clock.now(),
            late: false,
            drill: false,
            url: self.urls.frontend.at("/"),
            ack_url: None,
        }
    }
}
