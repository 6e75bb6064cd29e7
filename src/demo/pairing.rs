//! Registers a user's device for the game's pushes, and pairs the simulated game server, as a player does.

use std::{io, time::Duration};

use tokio::time::timeout;

use crate::{
    api::context::ApiContext,
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers::{self, PairedServer},
        push_credentials, push_registrations,
    },
    domain::{ids::UserId, time::Timestamp},
    simulator::{
        game_server::GameServer,
        push_service::PushService,
        registration::{RegistrationSites, browser},
    },
};

/// A pairing needs a login and a few messages on this machine, which may be busy: it draws the map meanwhile.
const PAIRING_DEADLINE: Duration = Duration::from_secs(90);

/// Reasons for which a user has no pairing.
#[derive(Debug, thiserror::Error)]
pub enum DemoPairingError {
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("the login: {0}")]
    Login(io::Error),
    #[error("the player's device was not registered for pushes")]
    Registration,
    #[error("the push messages of the pairing did not arrive")]
    Pairing,
}

/// A player's device that is registered for the game's pushes.
pub struct RegisteredPhone {
    pub android_id: u64,
    /// The service renews it before.
    pub ends_at: Timestamp,
}

/// Registers the player's device for the game's pushes as a user does who lets the service renew it. The sites begin empty,
/// so nothing of an earlier run counts.
pub async fn register(
    context: &ApiContext,
    user: &UserId,
    player: u64,
    sites: &RegistrationSites,
) -> Result<RegisteredPhone, DemoPairingError> {
    let owner = user.clone();
    let forget = move |db: &mut Db| -> Result<_, DbError> {
        push_registrations::delete(db, &owner)?;
        push_credentials::delete(db, &owner)
    };
    context.pool.write(forget).await?;
    let registrar = context.services.registrar.as_ref().ok_or(DemoPairingError::Registration)?;
    let login = registrar.open(user, true).await?;
    let ended = browser::sign_in(&login.url, player).await.map_err(DemoPairingError::Login)?;
    let address = ended.map_err(|_| DemoPairingError::Registration)?;
    let owner = user.clone();
    let stored =
        |owner: UserId| context.pool.read(move |db| push_registrations::get(db, &owner)?.ok_or(DbError::NotFound));
    let row = stored(owner.clone()).await?;
    let taken = registrar.take_address(row, &address, &player.to_string().into()).await;
    taken.map_err(|_| DemoPairingError::Registration)?;
    registrar.proceed(user).await;
    let row = stored(owner).await?;
    let ends_at = row.ends_at.filter(|_| row.renew);
    let phone = sites.devices(player).first().copied().zip(ends_at);
    phone.map(|(android_id, ends_at)| RegisteredPhone { android_id, ends_at }).ok_or(DemoPairingError::Registration)
}

/// Presses "pair" in the game and at every device that the player may use, and waits until the pushes have arrived.
pub async fn pair(
    context: &ApiContext,
    (user, player): (&UserId, u64),
    game: &GameServer,
    (pushes, phone): (&PushService, u64),
) -> Result<PairedServer, DemoPairingError> {
    let devices: Vec<u64> = game.world(|world| world.devices().map(|(id, ..)| id).collect());
    game.pair(player, &devices);
    let arrived = timeout(PAIRING_DEADLINE, pushes.until(|pushes| pushes.unacknowledged(phone) == 0)).await;
    arrived.map_err(|_| DemoPairingError::Pairing)?;
    let (user, port) = (user.clone(), game.addr().port());
    let servers = context.pool.read(move |db| paired_servers::list_for(db, &user)).await?;
    servers.into_iter().find(|server| server.port == port).ok_or(DemoPairingError::Pairing)
}
