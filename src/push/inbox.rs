//! What a push changes: one transaction that first notes the push as seen, so that a push which comes again changes
//! nothing, and a crash in between loses nothing.

use chrono::TimeDelta;
use secrecy::ExposeSecret as _;

use crate::{
    crypto::random::Random,
    db::{
        alarms::{self, Arrival, Path, State},
        error::DbError,
        paired_servers::{self, PairedServer, Pairing},
        pool::Db,
        push_seen, smart_devices, timeline,
    },
    domain::{
        game_address::GameAddress,
        ids::{PlatformId, ServerId, UserId},
        limits::{DEVICES_PER_SERVER, PAIRED_SERVERS_PER_USER},
        plain_text::plain_text,
        time::Timestamp,
    },
    game::address::is_public,
    push::{
        notification::{Alarm, Notification, ServerIdentity, ServerPairing},
        session::Message,
    },
    vault::Vault,
};

/// An alarm that was sent longer ago is history: recorded, but nobody is woken for it.
const LATE: TimeDelta = TimeDelta::minutes(5);

/// Whose push it is, and what bounds what it may do.
#[derive(Clone)]
pub struct Owner {
    pub user: UserId,
    pub platform: PlatformId,
    /// Private and loopback game servers may be paired.
    pub allow_private: bool,
}

/// What others must hear of, once it is stored.
#[derive(Debug, PartialEq)]
pub enum News {
    Paired {
        server: ServerId,
        /// Address or token are not what they were.
        changed: bool,
        /// A device was paired with it.
        device: bool,
    },
    Alarm {
        server: ServerId,
        id: String,
        title: String,
    },
    /// Stored, and nobody needs to hear.
    Noted,
    /// Nothing changed: why.
    Ignored(&'static str),
}

/// Takes one push. Call it in a transaction.
pub fn take(
    db: &mut Db,
    owner: &Owner,
    vault: &Vault,
    random: &Random,
    message: &Message,
    now: Timestamp,
) -> Result<News, DbError> {
    if let Some(id) = &message.persistent_id
        && !push_seen::insert(db, &owner.user, id, now)?
    {
        return Ok(News::Ignored("duplicate"));
    }
    let sent = message.sent.map_or(now, |sent| sent.min(now));
    match Notification::read(&message.app_data) {
        Notification::ServerPairing(pairing) => Ok(match pair(db, owner, vault, random, &pairing, now)? {
            Ok((server, changed)) => News::Paired { server, changed, device: false },
            Err(reason) => News::Ignored(reason),
        }),
        Notification::EntityPairing(pairing) => {
            let (server, changed) = match pair(db, owner, vault, random, &pairing.server, now)? {
                Ok(paired) => paired,
                Err(reason) => return Ok(News::Ignored(reason)),
            };
            let device = pairing.entity_id.to_string();
            let devices = smart_devices::list(db, &server)?;
            if devices.len() >= DEVICES_PER_SERVER && devices.iter().all(|known| known.device_id != device) {
                return Ok(News::Ignored("too_many_devices"));
            }
            smart_devices::upsert(db, &server, &device, pairing.kind, &pairing.name, now)?;
            Ok(News::Paired { server, changed, device: true })
        }
        Notification::Alarm(alarm) => take_alarm(db, owner, random, alarm, sent, now),
        Notification::Death(who) => {
            note(db, owner, random, who.server.as_ref(), "death", sent, raw(message, "title"), raw(message, "message"))
        }
        Notification::Login(who) => {
            note(db, owner, random, who.server.as_ref(), "login", sent, raw(message, "title"), raw(message, "message"))
        }
        Notification::News { title, message } => note(db, owner, random, None, "news", sent, title, message),
        Notification::Unknown { title, message, .. } => note(db, owner, random, None, "other", sent, title, message),
        Notification::Malformed(_) => Ok(News::Ignored("malformed")),
    }
}

/// The push's own words.
fn raw(message: &Message, key: &str) -> String {
    let words = message.app_data.iter().find(|(name, _)| name == key);
    words.map_or_else(String::new, |(_, words)| plain_text(words, 512))
}

/// Stores a pairing, if it is this player's own and its address may be connected to. True if it changed anything.
fn pair(
    db: &mut Db,
    owner: &Owner,
    vault: &Vault,
    random: &Random,
    pairing: &ServerPairing,
    now: Timestamp,
) -> Result<Result<(ServerId, bool), &'static str>, DbError> {
    if pairing.player_id != owner.platform {
        return Ok(Err("another_player"));
    }
    let is_private = match &pairing.address {
        GameAddress::Ip(ip) => !is_public(*ip),
        GameAddress::Name(_) => pairing.address.is_localhost_name(),
    };
    if is_private && !owner.allow_private {
        return Ok(Err("private_address"));
    }
    let address = pairing.address.to_string();
    let servers = paired_servers::list_for(db, &owner.user)?;
    let known = find(&servers, pairing.game_server_id.as_deref(), Some((&address, pairing.port)));
    if known.is_none() && servers.len() >= PAIRED_SERVERS_PER_USER {
        return Ok(Err("too_many_servers"));
    }
    let id = known.map_or_else(|| random.id(now), |known| known.id.clone());
    let token = *pairing.player_token.expose_secret();
    let same = known.is_some_and(|known| {
        vault.is_player_token(known, token) && known.address == address && known.port == pairing.port
    });
    let row = Pairing {
        owner: owner.user.clone(),
        game_server_id: pairing.game_server_id.clone(),
        name: pairing.name.clone(),
        address,
        port: pairing.port,
        player_id: pairing.player_id.to_string(),
        player_token_sealed: vault.seal_player_token(&id, token),
        key_version: vault.key_version(),
    };
    Ok(Ok((paired_servers::upsert(db, &id, &row, now)?.id, !same)))
}

fn take_alarm(
    db: &mut Db,
    owner: &Owner,
    random: &Random,
    alarm: Alarm,
    sent: Timestamp,
    now: Timestamp,
) -> Result<News, DbError> {
    let server = server_of(db, owner, alarm.server.as_ref())?;
    let is_late = now - sent > LATE;
    let state = match (&server, is_late) {
        (_, true) => State::Late,
        (None, false) => State::Unmatched,
        (Some(_), false) => State::Received,
    };
    let id: String = random.id(now);
    let arrival = Arrival {
        id: id.clone(),
        user: owner.user.clone(),
        server: server.clone(),
        path: Path::Push,
        alarm_id: String::new(),
        title: alarm.title.clone(),
        message: alarm.message.clone(),
        state,
        incident: None,
    };
    alarms::receive(db, &arrival, now)?;
    match server {
        Some(server) if !is_late => Ok(News::Alarm { server, id, title: alarm.title }),
        _ => note(db, owner, random, alarm.server.as_ref(), "raid", sent, alarm.title, alarm.message),
    }
}

/// An entry in the timeline, with the push's own words.
fn note(
    db: &mut Db,
    owner: &Owner,
    random: &Random,
    server: Option<&ServerIdentity>,
    kind: &'static str,
    ts: Timestamp,
    title: String,
    message: String,
) -> Result<News, DbError> {
    let server = server_of(db, owner, server)?;
    let id = random.id(ts);
    timeline::insert(db, &timeline::Entry { id, user: owner.user.clone(), server, kind, ts, title, message })?;
    Ok(News::Noted)
}

fn server_of(db: &mut Db, owner: &Owner, named: Option<&ServerIdentity>) -> Result<Option<ServerId>, DbError> {
    let Some(named) = named else { return Ok(None) };
    let servers = paired_servers::list_for(db, &owner.user)?;
    let address = named.address.as_ref().map(|(address, port)| (address.to_string(), *port));
    let address = address.as_ref().map(|(address, port)| (address.as_str(), *port));
    Ok(find(&servers, named.game_server_id.as_deref(), address).map(|server| server.id.clone()))
}

/// By the game's own id, else by address.
fn find<'a>(servers: &'a [PairedServer], id: Option<&str>, address: Option<(&str, u16)>) -> Option<&'a PairedServer> {
    let by_id = servers.iter().find(|server| id.is_some() && server.game_server_id.as_deref() == id);
    by_id.or_else(|| servers.iter().find(|server| Some((server.address.as_str(), server.port)) == address))
}
