//! The credentials of a link, and the record that the game server has accepted them.

use std::time::Duration;

use tokio::time::timeout;

use super::Supervisor;
use crate::{
    db::{engine::error::DbError, paired_servers},
    domain::{ids::GameServerId, link_reason::LinkReason, outbound::Target, server_state::ConnectionState},
    game::link::{LinkEnded, Player, Route},
    relay::{
        game::{
            link_end::{LinkEnd, PAUSE_REJECTED},
            stored_world,
        },
        shared::write_behind::Record,
    },
    vault::VaultError,
};

/// Longest wait for the database; one that takes longer gets the record later.
const STORED_IN_TIME: Duration = Duration::from_millis(500);

impl Supervisor {
    /// Where to connect to, as which player, and the version of these credentials unless it was accepted before; `None`
    /// if the server is no longer paired. The token is open only from here to the end of the link.
    pub(super) async fn read(&self) -> Result<Option<(Route, Player, Option<i32>)>, LinkEnd> {
        let unreadable = |reason: LinkReason, detail: &str| LinkEnd {
            state: ConnectionState::NoCredentials,
            reason,
            detail: detail.to_owned(),
            pause: PAUSE_REJECTED,
        };
        let no_credentials = |detail: &str| unreadable(LinkReason::UnreadableToken, detail);
        let not_read = |error: DbError| match &error {
            DbError::Malformed(_) | DbError::Damaged(_) => {
                log::error!(server = self.server.as_str(); "a pairing cannot be read: {error}");
                unreadable(LinkReason::UnreadableRow, "its row is damaged")
            }
            _ => LinkEnd::unreachable(LinkReason::OurDatabase, error),
        };
        let (row, token) = match self.context.vault.player_token(&self.server).await {
            Ok(read) => read,
            Err(VaultError::Missing) => return Ok(None),
            Err(VaultError::Unreadable(error)) => {
                log::error!(server = self.server.as_str(); "a player token cannot be opened: {error}");
                let awaits_key = self.context.vault.awaits_key(error);
                let reason = if awaits_key { LinkReason::MissingKey } else { LinkReason::UnreadableToken };
                return Err(unreadable(reason, "it cannot be opened"));
            }
            Err(VaultError::Malformed) => return Err(no_credentials("the token makes no sense")),
            Err(VaultError::Database(error)) => return Err(not_read(error)),
        };
        if !self.world_reported.get() {
            let paired = row.clone();
            let stored = match self.context.pool.read(move |db| stored_world::read(db, &paired)).await {
                Ok(stored) => stored,
                Err(DbError::NotFound) => return Ok(None),
                Err(error) => return Err(not_read(error)),
            };
            if self.update(stored).await.is_err() {
                return Err(LinkEnded::Unneeded.into());
            }
            self.world_reported.set(true);
        }
        let credentials = (!row.is_accepted()).then_some(row.credentials_version);
        let target = Target { owner: row.owner_id.clone(), at: GameServerId::at(&row.address, row.port) };
        if self.target.borrow().as_ref() != Some(&target) {
            self.answered.set(row.is_accepted());
            self.target.replace(Some(target));
        }
        let Ok(id) = row.player_id.parse() else {
            return Err(no_credentials("the player id makes no sense"));
        };
        let game = &self.context.game;
        let route = Route {
            host: row.address,
            port: row.port,
            proxy: game.proxy_url.as_ref().map(ToString::to_string),
            outbound: self.context.outbound.clone(),
        };
        Ok(Some((route, Player { id, token }, credentials)))
    }

    /// Stores that credentials of this version were accepted, before the link is shown: a user who sees the link also
    /// sees what others learnt of the game server. A database that does not answer does not hold the link up.
    pub(super) async fn accepted(&self, credentials: Option<i32>) {
        let Some(version) = credentials else { return };
        let server = self.server.clone();
        let write = self.context.pool.write(move |db| paired_servers::set_accepted(db, &server, version));
        if !timeout(STORED_IN_TIME, write).await.is_ok_and(|stored| stored.is_ok()) {
            self.context.write_behind.store(Record::Accepted(self.server.clone(), version));
        }
    }
}
