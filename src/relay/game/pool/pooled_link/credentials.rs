//! The credentials of a link.

use super::PooledLink;
use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        paired_servers::PairedServer,
        smart_devices,
    },
    domain::{ids::GameServerId, link_reason::LinkReason, outbound::Target, server_state::ConnectionState},
    game::link::{LinkEnded, Player, Route},
    relay::game::pool::{
        link_end::{LinkEnd, PAUSE_REJECTED},
        link_owner::CredentialsVersion,
        stored_world,
    },
    vault::VaultError,
};

impl PooledLink {
    /// Where to connect to, as which player, and the version of these credentials; `None` if the server is no longer
    /// paired. The token is open only from here to the end of the link.
    pub(super) async fn read(&self) -> Result<Option<(Route, Player, CredentialsVersion)>, LinkEnd> {
        let unreadable = |reason: LinkReason, detail: &str| LinkEnd {
            state: ConnectionState::NoCredentials,
            reason,
            detail: detail.to_owned(),
            pause: PAUSE_REJECTED,
        };
        let no_credentials = |detail: &str| unreadable(LinkReason::UnreadableToken, detail);
        let not_read = |error: DbError| match &error {
            DbError::Malformed(_) | DbError::Damaged(_) => {
                log::error!(server = self.owner.server.as_str(); "a pairing cannot be read: {error}");
                unreadable(LinkReason::UnreadableRow, "its row is damaged")
            }
            _ => LinkEnd::unreachable(LinkReason::OurDatabase, error),
        };
        let (row, token) = match self.owner.context.vault.player_token(&self.owner.server).await {
            Ok(read) => read,
            Err(VaultError::Missing) => return Ok(None),
            Err(VaultError::Unreadable(error)) => {
                log::error!(server = self.owner.server.as_str(); "a player token cannot be opened: {error}");
                let awaits_key = self.owner.context.vault.awaits_key(error);
                let reason = if awaits_key { LinkReason::MissingKey } else { LinkReason::UnreadableToken };
                return Err(unreadable(reason, "it cannot be opened"));
            }
            Err(VaultError::Malformed) => return Err(no_credentials("the token makes no sense")),
            Err(VaultError::Database(error)) => return Err(not_read(error)),
        };
        if !self.world_reported.get() {
            match self.report_world(&row).await {
                Ok(true) => self.world_reported.set(true),
                Ok(false) => return Err(LinkEnded::Unneeded.into()),
                Err(DbError::NotFound) => return Ok(None),
                Err(error) => return Err(not_read(error)),
            }
        }
        let (server, now) = (row.id.clone(), self.owner.context.clock.now());
        let has_alarms = move |db: &mut Db| smart_devices::has_unpushed_alarm(db, &server, now);
        // One that is not read keeps its place.
        if let Ok(has_alarms) = self.owner.context.pool.read(has_alarms).await {
            self.owner.wake.set_alarms(has_alarms);
        }
        let credentials = CredentialsVersion { version: row.credentials_version, is_accepted: row.is_accepted() };
        let target = Target { owner: row.owner_id.clone(), at: GameServerId::at(&row.address, row.port) };
        if self.target.borrow().as_ref() != Some(&target) {
            self.answered.set(row.is_accepted());
            self.target.replace(Some(target));
        }
        let Ok(id) = row.player_id.parse() else {
            return Err(no_credentials("the player id makes no sense"));
        };
        let game = &self.owner.context.game;
        let route = Route {
            host: row.address,
            port: row.port,
            proxy: game.proxy_url.as_ref().map(ToString::to_string),
            outbound: self.owner.context.outbound.clone(),
        };
        Ok(Some((route, Player { id, token }, credentials)))
    }

    /// Reports the world as it is stored. False: the game connection is gone.
    async fn report_world(&self, row: &PairedServer) -> Result<bool, DbError> {
        let paired = row.clone();
        let stored = self.owner.context.pool.read(move |db| stored_world::read(db, &paired)).await?;
        Ok(self.owner.update(stored).await.is_ok())
    }
}
