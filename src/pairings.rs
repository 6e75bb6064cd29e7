//! Pairing a game server or a smart device, for the API and for the game's pushes alike.
//!
//! Call these functions in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretBox};

use crate::{
    crypto::random::Random,
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers::{self, PairedServer, StoredPairing},
        smart_devices::{self, SmartDevice},
        users,
    },
    domain::{
        camera::CameraId,
        device::DeviceKind,
        game_address::GameAddress,
        ids::{PlatformId, ServerId, UserId},
        limits::{DEVICES_PER_SERVER, PAIRED_SERVERS_PER_USER},
        time::Timestamp,
    },
    game::outbound::Outbound,
    vault::Vault,
};

/// A game server, and a player's token for it.
pub struct PairingRequest {
    pub owner: UserId,
    pub source: PairingSource,
    /// `None` keeps the name; a server that is new gets its address for a name.
    pub name: Option<String>,
    pub address: GameAddress,
    /// The companion port.
    pub port: u16,
    pub player_id: PlatformId,
    pub player_token: SecretBox<i32>,
    /// When the game sent it, or the owner entered it. `None`: the game does not say, so it is neither older nor newer.
    pub at: Option<Timestamp>,
}

/// Where a pairing comes from, which decides the row that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairingSource {
    /// Typed in: belongs to the owner's row with this address, port and player.
    Hand,
    /// Pushed by the game, for the owner's own player: belongs to the owner's row with this game-server id, otherwise
    /// with this address, port and player, otherwise with this address and port. It replaces the player of that row,
    /// because the game itself reports who the owner is there.
    Push { game_server_id: Option<String> },
}

impl PairingSource {
    fn is_pushed(&self) -> bool {
        matches!(self, Self::Push { .. })
    }

    /// The game's id of the server, if a push has it.
    fn game_server_id(self) -> Option<String> {
        match self {
            Self::Hand => None,
            Self::Push { game_server_id } => game_server_id,
        }
    }
}

/// A pairing that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingOutcome {
    pub server: PairedServer,
    /// True if it was not paired before.
    pub is_new: bool,
    /// Address, port, player or token are not what they were: a link that is up must be opened again.
    pub changed: bool,
    /// Another row of the owner had this address, port and player. It is deleted, because its server is no longer there.
    pub displaced: Option<ServerId>,
}

/// A smart device. What is `None` stays as it is; a new device is named after its id, and of unknown kind.
pub struct DeviceRequest {
    /// The game's entity id.
    pub entity_id: u64,
    pub kind: Option<DeviceKind>,
    pub name: Option<String>,
    pub label: Option<String>,
}

/// A device that is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOutcome {
    pub device: SmartDevice,
    /// True if it was not paired before.
    pub is_new: bool,
}

/// Reasons against a pairing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingRefused {
    #[error("The address is not a public one.")]
    PrivateAddress,
    #[error("The user has paired many new addresses in the last minute.")]
    TooManyNewAddresses(Duration),
    #[error("The key of the pairing that is stored is missing.")]
    AwaitsKey,
    #[error("One user can pair {PAIRED_SERVERS_PER_USER} game servers at most.")]
    TooManyServers,
    #[error("One server can have {DEVICES_PER_SERVER} devices at most.")]
    TooManyDevices,
}

/// Pairs a game server, or brings the pairing up to date, at an address that `outbound` allows. A push that was sent
/// before the stored pairing changes nothing: they come in any order, and the game server accepts the newest token.
/// Entering the stored pairing by hand once more makes it no newer.
pub fn pair_server(
    db: &mut Db,
    vault: &Vault,
    random: &Random,
    request: PairingRequest,
    outbound: &Outbound,
    now: Timestamp,
) -> Result<Result<PairingOutcome, PairingRefused>, DbError> {
    if !outbound.allows_pairing(&request.address) {
        return Ok(Err(PairingRefused::PrivateAddress));
    }
    let PairingRequest { owner, source, address, port, player_id, .. } = &request;
    let (address, player_id) = (address.to_string(), player_id.to_string());
    users::lock(db, owner)?;
    let servers = paired_servers::list_for(db, owner)?;
    let at_address = |server: &&PairedServer| server.address == address && server.port == *port;
    let of_player = servers.iter().filter(at_address).find(|server| server.player_id == player_id);
    let known = match source {
        PairingSource::Hand => of_player,
        PairingSource::Push { game_server_id: id } => {
            let by_id = servers.iter().find(|server| id.is_some() && server.game_server_id == *id);
            by_id.or(of_player).or_else(|| servers.iter().find(at_address))
        }
    };
    if source.is_pushed()
        && let Some(at) = request.at
        && let Some(newer) = newer_than(db, at, [of_player, known].into_iter().flatten(), now)?
    {
        log::info!(server = newer.id.as_str(); "a pairing push was sent before the stored pairing, and changes nothing");
        return Ok(Ok(PairingOutcome { server: newer.clone(), is_new: false, changed: false, displaced: None }));
    }
    if known.is_none() && servers.len() >= PAIRED_SERVERS_PER_USER {
        return Ok(Err(PairingRefused::TooManyServers));
    }
    let id = known.map_or_else(|| random.id(now), |known| known.id.clone());
    if [known, of_player].into_iter().flatten().any(|row| vault.token_awaits_key(row)) {
        return Ok(Err(PairingRefused::AwaitsKey));
    }
    if !servers.iter().any(|server| at_address(&server))
        && let Err(wait) = outbound.take_new_address(owner)
    {
        return Ok(Err(PairingRefused::TooManyNewAddresses(wait)));
    }
    let displaced = of_player.filter(|server| server.id != id).map(|server| server.id.clone());
    if let Some(displaced) = &displaced {
        paired_servers::delete(db, owner, displaced)?;
    }
    let (server, changed) = store(db, vault, (&id, known), request, now)?;
    Ok(Ok(PairingOutcome { server, is_new: known.is_none(), changed, displaced }))
}

/// Stores the pairing in the row of this id, which is new if none is known. True beside it if address, port, player or
/// token are not what they were.
fn store(
    db: &mut Db,
    vault: &Vault,
    (id, known): (&ServerId, Option<&PairedServer>),
    request: PairingRequest,
    now: Timestamp,
) -> Result<(PairedServer, bool), DbError> {
    let PairingRequest { owner, source, name, address, port, player_id, player_token, at } = request;
    let (address, player_id, token) = (address.to_string(), player_id.to_string(), *player_token.expose_secret());
    let fits = |known: &PairedServer| (&known.address, known.port, &known.player_id) == (&address, port, &player_id);
    let same = known.is_some_and(|known| fits(known) && vault.is_player_token(known, token));
    let is_pushed = source.is_pushed();
    let player_token_sealed = vault.seal_player_token(id, &address, port, token);
    let pairing = StoredPairing {
        owner,
        game_server_id: source.game_server_id().or_else(|| known?.game_server_id.clone()),
        name: name.or_else(|| Some(known?.name.clone())).unwrap_or_else(|| address.clone()),
        address,
        port,
        player_id,
        player_token_sealed,
        key_version: vault.key_version(),
    };
    if known.is_some() && !same {
        paired_servers::change_credentials(db, id)?;
    }
    let server = paired_servers::put(db, id, &pairing, now)?;
    if let Some(at) = at.filter(|_| is_pushed || !same) {
        paired_servers::set_paired_at(db, id, at)?;
    }
    Ok((server, !same))
}

/// The first of these servers whose pairing is newer than `at`, and not of a time to come: then the clock was set back.
fn newer_than<'a>(
    db: &mut Db,
    at: Timestamp,
    servers: impl Iterator<Item = &'a PairedServer>,
    now: Timestamp,
) -> Result<Option<&'a PairedServer>, DbError> {
    for server in servers {
        if paired_servers::paired_at(db, &server.id)?.is_some_and(|paired_at| at < paired_at && paired_at <= now) {
            return Ok(Some(server));
        }
    }
    Ok(None)
}

/// Pairs a smart device of a paired server, or changes what the request says of one that is paired.
pub fn pair_device(
    db: &mut Db,
    server: &ServerId,
    request: DeviceRequest,
    now: Timestamp,
) -> Result<Result<DeviceOutcome, PairingRefused>, DbError> {
    let DeviceRequest { entity_id, kind, name, label } = request;
    let device = RequestedDevice { id: &entity_id.to_string(), kind, name: name.as_deref(), label: label.as_deref() };
    put_device(db, server, device, now)
}

/// Adds a camera to a paired server, or changes what the request says of one that is there. A new one is named after
/// its identifier.
pub fn add_camera(
    db: &mut Db,
    server: &ServerId,
    camera: &CameraId,
    name: Option<&str>,
    label: Option<&str>,
    now: Timestamp,
) -> Result<Result<DeviceOutcome, PairingRefused>, DbError> {
    let device = RequestedDevice { id: camera.as_str(), kind: Some(DeviceKind::Camera), name, label };
    put_device(db, server, device, now)
}

/// A smart device or a camera, as a request has it.
struct RequestedDevice<'a> {
    id: &'a str,
    kind: Option<DeviceKind>,
    name: Option<&'a str>,
    label: Option<&'a str>,
}

fn put_device(
    db: &mut Db,
    server: &ServerId,
    RequestedDevice { id: device_id, kind, name, label }: RequestedDevice<'_>,
    now: Timestamp,
) -> Result<Result<DeviceOutcome, PairingRefused>, DbError> {
    paired_servers::lock(db, server)?;
    let devices = smart_devices::list(db, server)?;
    let known = devices.iter().find(|device| device.device_id == device_id);
    if known.is_none() && devices.len() >= DEVICES_PER_SERVER {
        return Ok(Err(PairingRefused::TooManyDevices));
    }
    let is_new = known.is_none();
    let known = known.map_or((DeviceKind::Unknown, device_id), |known| (known.kind, known.name.as_str()));
    smart_devices::upsert(db, server, device_id, kind.unwrap_or(known.0), name.unwrap_or(known.1), now)?;
    if let Some(label) = label {
        smart_devices::set_label(db, server, device_id, label)?;
    }
    Ok(Ok(DeviceOutcome { device: smart_devices::get(db, server, device_id)?, is_new }))
}

#[cfg(test)]
mod tests;
