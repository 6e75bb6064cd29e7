//! Changes by a push, in one transaction, which first stores that the push was received: a push that comes again
//! changes nothing, and a crash in between loses nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use secrecy::{ExposeSecret as _, SecretBox};
use serde_json::{Map, Value, json};

use crate::{
    crypto::{digest::sha256_hex, random::Random},
    db::{
        alarms::alarm_ledger::{self, AlarmState, LedgerAlarm},
        engine::{error::DbError, pool::Db},
        paired_servers::{self, PairedServer},
        push_seen, timeline,
    },
    domain::{
        ids::{PlatformId, ServerId, UserId},
        incident::AlarmPath,
        plain_text::plain_text,
        time::Timestamp,
        timeline::{PUSHED, TimelineEntry, TimelineOwner},
    },
    game::outbound::Outbound,
    pairings::{self, DeviceOutcome, DeviceRequest, PairingOutcome, PairingRefused, PairingRequest, PairingSource},
    push::{
        message::PushMessage,
        notification::{AlarmPush, Encounter, EntityPairing, Notification, ServerIdentity, ServerPairing},
    },
    relay::hub::PushedAlarm,
    vault::Vault,
};

/// Owner of a push, and the limits on pairing.
#[derive(Clone)]
pub struct PushOwner {
    pub user: UserId,
    pub platform: PlatformId,
    /// Limits on the game servers that may be paired.
    pub outbound: Arc<Outbound>,
}

/// The server of the alarm in one push: delivering and storing the alarm must not choose two. The first of them
/// chooses it; it is chosen once more only when it is no longer paired.
#[derive(Debug, Default)]
pub struct AlarmServer(Mutex<Option<ServerId>>);

impl AlarmServer {
    fn chosen(&self) -> MutexGuard<'_, Option<ServerId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses among the owner's servers as they were last read.
    fn among_known(&self, servers: &[PairedServer], identity: &ServerIdentity) -> Option<ServerId> {
        let mut chosen = self.chosen();
        if chosen.is_none() {
            *chosen = alarmed(servers, identity).map(|server| server.id.clone());
        }
        chosen.clone()
    }

    /// Chooses among the owner's servers in the database.
    fn among_stored(&self, servers: &[PairedServer], identity: &ServerIdentity) -> Option<ServerId> {
        let mut chosen = self.chosen();
        if !servers.iter().any(|server| Some(&server.id) == chosen.as_ref()) {
            *chosen = alarmed(servers, identity).map(|server| server.id.clone());
        }
        chosen.clone()
    }
}

/// The id under which the ledger keeps the alarm of this push, also when the push comes again.
pub fn alarm_id(user: &UserId, message: &PushMessage, new_id: impl FnOnce() -> String) -> String {
    let Some(push) = &message.persistent_id else { return new_id() };
    sha256_hex(format!("{user} {push}").as_bytes())
}

/// The paired server with this game-server id, otherwise with this address.
fn named<'a>(servers: &'a [PairedServer], named: &ServerIdentity) -> Option<&'a PairedServer> {
    let has_id =
        |server: &&PairedServer| named.game_server_id.is_some() && server.game_server_id == named.game_server_id;
    let address = named.address.as_ref().map(|(address, port)| (address.to_string(), *port));
    let has_address = |server: &&PairedServer| {
        address.as_ref().is_some_and(|(address, port)| (&server.address, server.port) == (address, *port))
    };
    servers.iter().find(has_id).or_else(|| servers.iter().find(has_address))
}

/// The paired server that an alarm is of: a wrong name or address must not silence it. The [`named`] one; otherwise the
/// only one with its name; otherwise the only one whose game-server id was never known, as of one paired by hand.
fn alarmed<'a>(servers: &'a [PairedServer], identity: &ServerIdentity) -> Option<&'a PairedServer> {
    let only = |is: &dyn Fn(&PairedServer) -> bool| {
        let mut found = servers.iter().filter(|server| is(server));
        found.next().filter(|_| found.next().is_none())
    };
    named(servers, identity)
        .or_else(|| only(&|server| !identity.name.is_empty() && server.name == identity.name))
        .or_else(|| only(&|server| server.game_server_id.is_none()))
}

/// Changes by a push, for the relay once they are stored.
#[derive(Debug, PartialEq)]
pub enum PushOutcome {
    Paired {
        server: ServerId,
        /// A link that is up must be opened again.
        changed: bool,
        /// A server that is deleted, because this one is at its address now.
        displaced: Option<ServerId>,
        /// The device that was paired with it; an error says why it was not.
        device: Result<PushedDevice, &'static str>,
    },
    Alarm {
        server: ServerId,
        alarm: PushedAlarm,
    },
    /// Stored, and of no concern to the relay.
    Noted,
    /// Nothing changed; the reason.
    Ignored(&'static str),
}

/// Device in a pairing push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushedDevice {
    /// No device: the push is of the server alone.
    None,
    /// Paired before, perhaps by this push.
    Known,
    /// Not paired before. The player is next to it.
    New { id: String, player: PlatformId, sent: Timestamp },
}

impl PushOutcome {
    fn paired(pairing: PairingOutcome, device: Result<PushedDevice, &'static str>) -> Self {
        let PairingOutcome { server, changed, displaced, .. } = pairing;
        Self::Paired { server: server.id, changed, displaced, device }
    }
}

/// A push that arrived, and was read once.
#[derive(Clone, Copy)]
pub struct InboxPush<'a> {
    pub message: &'a PushMessage,
    pub notification: &'a Notification,
    /// See [`alarm_id`].
    pub alarm_id: &'a str,
    pub alarm_server: &'a AlarmServer,
    /// When it arrived.
    pub now: Timestamp,
}

impl InboxPush<'_> {
    /// Its alarm and the server of that among these of the owner, without the database. None if the server was paired
    /// after the push was sent: only the database knows if such a push was received before, and comes again.
    pub fn alarm_among(&self, servers: &[PairedServer]) -> Option<(ServerId, PushedAlarm)> {
        let Notification::Alarm(alarm) = self.notification else { return None };
        let server = self.alarm_server.among_known(servers, alarm.server.as_ref()?)?;
        let known = servers.iter().find(|known| known.id == server);
        if known.is_some_and(|known| known.created_at > self.sent()) {
            return None;
        }
        Some((server, self.pushed(alarm)))
    }

    fn pushed(&self, AlarmPush { title, message, .. }: &AlarmPush) -> PushedAlarm {
        let (id, sent) = (self.alarm_id.to_owned(), self.sent());
        PushedAlarm { id, title: title.clone(), message: message.clone(), sent, incident: None }
    }

    fn sent(&self) -> Timestamp {
        self.message.sent.map_or(self.now, |sent| sent.min(self.now))
    }

    /// Its text under this key, on one line.
    fn raw(&self, key: &str) -> String {
        let text = self.message.app_data.iter().find(|(name, _)| name == key);
        text.map_or_else(String::new, |(_, text)| plain_text(text, 512))
    }
}

/// Inputs of every step of the transaction.
pub struct Inbox<'a> {
    pub owner: &'a PushOwner,
    pub vault: &'a Vault,
    pub random: &'a Random,
    pub push: InboxPush<'a>,
}

impl Inbox<'_> {
    /// Stores the push and its changes. Call it in a transaction.
    pub fn store(&self, db: &mut Db) -> Result<PushOutcome, DbError> {
        if let Some(id) = &self.push.message.persistent_id
            && !push_seen::insert(db, &self.owner.user, id, self.push.now)?
        {
            return self.again(db);
        }
        let text = |key| self.push.raw(key);
        match self.push.notification {
            Notification::ServerPairing(pairing) => Ok(match self.pair(db, pairing)? {
                Ok(pairing) => PushOutcome::paired(pairing, Ok(PushedDevice::None)),
                Err(reason) => PushOutcome::Ignored(reason),
            }),
            Notification::EntityPairing(pairing) => self.pair_device(db, pairing),
            Notification::Alarm(alarm) => self.receive_alarm(db, alarm),
            Notification::Death(Encounter { server, player_name, .. }) => {
                let data = json!({ "message": text("message"), "steamId": self.owner.platform, "by": player_name });
                self.note(db, server.as_ref(), "death", text("title"), data)
            }
            Notification::Login(Encounter { server, player_id, player_name }) => {
                let data = json!({ "message": text("message"), "steamId": player_id, "name": player_name });
                self.note(db, server.as_ref(), "login", text("title"), data)
            }
            Notification::News { title, message } => {
                self.note(db, None, "news", title.clone(), json!({ "message": message }))
            }
            Notification::Unknown { title, message, .. } => {
                self.note(db, None, "other", title.clone(), json!({ "message": message }))
            }
            Notification::Malformed(_) => Ok(PushOutcome::Ignored("malformed")),
        }
    }

    /// Handles a push that is stored already. Nothing changes; but the answer that it is stored may have come too late,
    /// so changes that the relay may not know yet are reported once more.
    fn again(&self, db: &mut Db) -> Result<PushOutcome, DbError> {
        let identity = match self.push.notification {
            Notification::Alarm(alarm) => {
                let Some(server) = alarm_ledger::waits_for(db, self.push.alarm_id)? else {
                    return Ok(PushOutcome::Ignored("duplicate"));
                };
                return Ok(PushOutcome::Alarm { server, alarm: self.push.pushed(alarm) });
            }
            Notification::ServerPairing(pairing)
            | Notification::EntityPairing(EntityPairing { server: pairing, .. }) => {
                let ServerPairing { game_server_id, name, address, port, .. } = pairing;
                let address = Some((address.clone(), *port));
                ServerIdentity { game_server_id: game_server_id.clone(), name: name.clone(), address }
            }
            _ => return Ok(PushOutcome::Ignored("duplicate")),
        };
        Ok(match self.server_of(db, Some(&identity))? {
            Some(server) => {
                PushOutcome::Paired { server, changed: false, displaced: None, device: Ok(PushedDevice::Known) }
            }
            None => PushOutcome::Ignored("duplicate"),
        })
    }

    /// Pairs the game server, if it is for the owner's own player.
    fn pair(&self, db: &mut Db, pairing: &ServerPairing) -> Result<Result<PairingOutcome, &'static str>, DbError> {
        if pairing.player_id != self.owner.platform {
            return Ok(Err("another_player"));
        }
        let request = PairingRequest {
            owner: self.owner.user.clone(),
            source: PairingSource::Push { game_server_id: pairing.game_server_id.clone() },
            name: Some(pairing.name.clone()),
            address: pairing.address.clone(),
            port: pairing.port,
            player_id: pairing.player_id.clone(),
            player_token: SecretBox::new(Box::new(*pairing.player_token.expose_secret())),
            at: self.push.message.sent.map(|sent| sent.min(self.push.now)),
        };
        // A pairing by hand may have come while the push waited to be stored.
        let now = self.owner.outbound.now();
        let paired = pairings::pair_server(db, self.vault, self.random, request, &self.owner.outbound, now)?;
        Ok(paired.map_err(reason))
    }

    fn pair_device(&self, db: &mut Db, pairing: &EntityPairing) -> Result<PushOutcome, DbError> {
        let EntityPairing { server, entity_id, kind, name } = pairing;
        let pairing = match self.pair(db, server)? {
            Ok(pairing) => pairing,
            Err(reason) => return Ok(PushOutcome::Ignored(reason)),
        };
        let request = DeviceRequest { entity_id: *entity_id, kind: Some(*kind), name: Some(name.clone()), label: None };
        let device = pairings::pair_device(db, &pairing.server.id, request, self.push.now)?;
        let device = device.map(|DeviceOutcome { device, is_new }| match is_new {
            true => {
                let player = self.owner.platform.clone();
                PushedDevice::New { id: device.device_id, player, sent: self.push.sent() }
            }
            false => PushedDevice::Known,
        });
        Ok(PushOutcome::paired(pairing, device.map_err(reason)))
    }

    fn receive_alarm(&self, db: &mut Db, alarm: &AlarmPush) -> Result<PushOutcome, DbError> {
        let server = match &alarm.server {
            Some(identity) => {
                let servers = paired_servers::list_for(db, &self.owner.user)?;
                self.push.alarm_server.among_stored(&servers, identity)
            }
            None => None,
        };
        let state = if server.is_some() { AlarmState::Received } else { AlarmState::Unmatched };
        let stored = LedgerAlarm {
            id: self.push.alarm_id.to_owned(),
            user: self.owner.user.clone(),
            server: server.clone(),
            path: AlarmPath::Push,
            alarm_id: String::new(),
            title: alarm.title.clone(),
            message: alarm.message.clone(),
            state,
            incident: None,
            received_at: self.push.now,
            sent_at: Some(self.push.sent()),
        };
        if !alarm_ledger::receive(db, &stored)? {
            // Delivered while the database did not answer, as the ledger records.
            return Ok(PushOutcome::Ignored("delivered"));
        }
        match server {
            Some(server) => Ok(PushOutcome::Alarm { server, alarm: self.push.pushed(alarm) }),
            None => {
                self.note(db, alarm.server.as_ref(), "raid", alarm.title.clone(), json!({ "message": alarm.message }))
            }
        }
    }

    /// Adds an entry to the timeline.
    fn note(
        &self,
        db: &mut Db,
        server: Option<&ServerIdentity>,
        kind: &'static str,
        title: String,
        data: Value,
    ) -> Result<PushOutcome, DbError> {
        let server = self.server_of(db, server)?;
        let owner = server.map_or_else(|| TimelineOwner::User(self.owner.user.clone()), TimelineOwner::Server);
        let entry = TimelineEntry {
            id: self.random.id(self.push.now),
            kind: kind.to_owned(),
            action: PUSHED.to_owned(),
            ts: self.push.sent(),
            grid: String::new(),
            x: None,
            y: None,
            title,
            data: if let Value::Object(data) = data { data } else { Map::default() },
        };
        timeline::insert(db, &owner, &entry)?;
        Ok(PushOutcome::Noted)
    }

    fn server_of(&self, db: &mut Db, identity: Option<&ServerIdentity>) -> Result<Option<ServerId>, DbError> {
        let Some(identity) = identity else { return Ok(None) };
        let servers = paired_servers::list_for(db, &self.owner.user)?;
        Ok(named(&servers, identity).map(|server| server.id.clone()))
    }
}

fn reason(refused: PairingRefused) -> &'static str {
    match refused {
        PairingRefused::PrivateAddress => "private_address",
        PairingRefused::TooManyNewAddresses(_) => "too_many_new_addresses",
        PairingRefused::AwaitsKey => "awaits_key",
        PairingRefused::TooManyServers => "too_many_servers",
        PairingRefused::TooManyDevices => "too_many_devices",
    }
}

#[cfg(test)]
mod tests;
