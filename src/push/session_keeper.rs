//! Keeps the push session of one user: reads the credential, logs in, takes what comes, and comes back for ever.
//!
//! A bundle that was uploaded over one that works is staged: it is tried beside the session in use and takes its place
//! only once it has logged in. One that is refused is dropped, and the one in use stays.

use std::{sync::Arc, time::Duration};

use actix::Addr;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep};

use crate::{
    db::{
        error::DbError,
        push_credentials::{self, Slot},
        push_seen, users,
    },
    domain::{backoff::Backoff, ids::UserId},
    pairings::PairingOutcome,
    push::{
        bundle::Bundle,
        inbox::{Inbox, PushOutcome, PushOwner},
        session::{ConnectError, Login, Message, Received, Session},
        state::PushContext,
        worker::{PushState, Seen, Sight, Worker},
    },
    relay::hub::{DevicesChanged, PushedAlarm, ServerPaired, ServerRemoved},
    vault::{PushBundle, VaultError},
};

/// A refused login or an unreadable bundle is tried again now and then, as the refusal may be a passing fault.
const BACKOFF_REFUSED: Duration = Duration::from_secs(3_600);

/// Why there is no session, or no longer.
struct Ended {
    state: PushState,
    reason: String,
    pause: Duration,
}

impl Ended {
    fn unreachable(reason: impl ToString) -> Self {
        Self { state: PushState::Unreachable, reason: reason.to_string(), pause: Duration::ZERO }
    }

    fn unreadable(reason: impl ToString) -> Self {
        Self { state: PushState::Unreadable, reason: reason.to_string(), pause: BACKOFF_REFUSED }
    }
}

impl From<ConnectError> for Ended {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Refused(_) => {
                Self { state: PushState::RefreshNeeded, reason: error.to_string(), pause: BACKOFF_REFUSED }
            }
            error => Self::unreachable(error),
        }
    }
}

/// Runs until the worker or the credential is gone.
pub async fn keep(worker: Addr<Worker>, context: Arc<PushContext>, user: UserId, generation: u64) {
    let keeper = Keeper { worker, context, user, generation };
    loop {
        // Beside each other, pauses included: a bundle that no longer works must not hold up the one that replaces it.
        tokio::select! {
            () = keeper.use_bundle() => return keeper.tell(Sight::Gone).await,
            () = keeper.prove_staged() => {} // it is the one in use now
        }
    }
}

/// Stores what a push says, then informs the hub.
async fn handle(context: Arc<PushContext>, owner: PushOwner, message: Message) -> Result<(), DbError> {
    let (user, shared, now) = (owner.user.clone(), context.clone(), context.clock.now());
    let outcome = context
        .pool
        .write(move |db| Inbox { owner: &owner, vault: &shared.vault, random: &shared.random, now }.store(db, &message))
        .await?;
    let hub = &context.hub;
    match outcome {
        PushOutcome::Paired { pairing: PairingOutcome { server, changed, displaced, .. }, device } => {
            if let Some(server) = displaced {
                hub.do_send(ServerRemoved { server });
            }
            hub.do_send(ServerPaired { server: server.id.clone(), changed });
            match device {
                Ok(true) => hub.do_send(DevicesChanged { server: server.id }),
                Ok(false) => {}
                Err(reason) => count_ignored(&user, reason),
            }
        }
        PushOutcome::Alarm { server, id, title } => hub.do_send(PushedAlarm { server, id, title }),
        PushOutcome::Noted => {}
        PushOutcome::Ignored(reason) => count_ignored(&user, reason),
    }
    Ok(())
}

fn count_ignored(user: &UserId, reason: &'static str) {
    metrics::counter!("companion_push_ignored_total", "reason" => reason).increment(1);
    log::info!(user = user.as_str(), reason; "a push was ignored");
}

struct Keeper {
    worker: Addr<Worker>,
    context: Arc<PushContext>,
    user: UserId,
    generation: u64,
}

impl Keeper {
    async fn tell(&self, what: Sight) {
        // When the worker is gone, so is the process.
        let _ = self.worker.send(Seen { user: self.user.clone(), generation: self.generation, what }).await;
    }

    /// Keeps a session of the bundle in use; ends when there is none any more.
    async fn use_bundle(&self) {
        let mut backoff = Backoff::new();
        loop {
            let started = Instant::now();
            let Err(ended) = self.hold().await else { return };
            let pause = backoff.after(started.elapsed(), ended.pause, self.context.random.byte());
            self.tell(Sight::State(ended.state, Some(ended.reason))).await;
            sleep(pause).await;
        }
    }

    /// One session from beginning to end; `Ok` if there is no credential any more.
    async fn hold(&self) -> Result<(), Ended> {
        let Some(owner) = self.owner().await? else { return Ok(()) };
        let Some(stored) = self.open(Slot::InUse).await? else { return Ok(()) };
        let uploaded_at = stored.uploaded_at;
        let mut session = self.log_in(&owner, stored).await?;
        self.tell(Sight::State(PushState::Connected, None)).await;
        let (user, now) = (self.user.clone(), self.context.clock.now());
        let proven =
            self.context.pool.write(move |db| push_credentials::mark_proven(db, &user, uploaded_at, now)).await;
        if let Err(error) = proven {
            log::warn!(user = self.user.as_str(); "a login was not written down: {error}");
        }
        loop {
            match session.next().await.map_err(Ended::unreachable)? {
                Received::Heartbeat => self.tell(Sight::Heartbeat).await,
                Received::Unreadable => log::warn!(user = self.user.as_str(); "a push could not be read"),
                // It is acknowledged by the next call: what could not be stored comes again.
                Received::Message(message) => self.take(&owner, message).await?,
            }
        }
    }

    async fn owner(&self) -> Result<Option<PushOwner>, Ended> {
        let user = self.user.clone();
        let owner = self.context.pool.read(move |db| users::find(db, &user)).await.map_err(Ended::unreachable)?;
        let allow_private = self.context.allow_private;
        Ok(owner.map(|owner| PushOwner { user: self.user.clone(), platform: owner.platform_id, allow_private }))
    }

    async fn take(&self, owner: &PushOwner, message: Message) -> Result<(), Ended> {
        // A task of its own: this keeper may be replaced at any moment, and what is stored must also be told.
        let taken = actix::spawn(handle(self.context.clone(), owner.clone(), message)).await;
        taken
            .map_err(Ended::unreachable)?
            .map_err(|error| Ended::unreachable(format!("a push was not stored: {error}")))?;
        self.tell(Sight::Message).await;
        Ok(())
    }

    /// What is stored in a slot; none if nothing is. Opened, it is in memory only until the login.
    async fn open(&self, slot: Slot) -> Result<Option<PushBundle>, Ended> {
        match self.context.vault.push_bundle(&self.user, slot).await {
            Ok(bundle) => Ok(Some(bundle)),
            Err(VaultError::Missing) => Ok(None),
            Err(error @ VaultError::Unreadable(_)) => Err(Ended::unreadable(error)),
            Err(error) => Err(Ended::unreachable(error)),
        }
    }

    async fn log_in(&self, owner: &PushOwner, stored: PushBundle) -> Result<Session, Ended> {
        let bundle = Bundle::read(stored.json.expose_secret(), &owner.platform).map_err(Ended::unreadable)?;
        drop(stored);
        let user = self.user.clone();
        let received = self.context.pool.read(move |db| push_seen::list(db, &user)).await;
        let received = received.map_err(Ended::unreachable)?;
        let login = Login { android_id: bundle.android_id, security_token: bundle.security_token, received };
        Ok(Session::connect(&self.context.address, self.context.tls.clone(), login).await?)
    }

    /// Ends when a staged bundle has logged in and taken the place of the one in use; never, if there is none or it is
    /// refused.
    async fn prove_staged(&self) {
        let mut backoff = Backoff::new();
        loop {
            match self.try_staged().await {
                Ok(true) => return,
                Ok(false) => return std::future::pending().await,
                Err(ended) => {
                    log::warn!(user = self.user.as_str(); "a new bundle cannot be tried: {}", ended.reason);
                    sleep(backoff.after(Duration::ZERO, ended.pause, self.context.random.byte())).await;
                }
            }
        }
    }

    /// Logs in with the staged bundle. True: it is the one in use now; false: there is none, or no longer; an error
    /// says nothing about the bundle.
    async fn try_staged(&self) -> Result<bool, Ended> {
        let Some(owner) = self.owner().await? else { return Ok(false) };
        // A key that is missing may come back.
        let Some(stored) = self.open(Slot::Staged).await? else { return Ok(false) };
        let (user, uploaded_at, now) = (self.user.clone(), stored.uploaded_at, self.context.clock.now());
        let pool = &self.context.pool;
        let settled = match self.log_in(&owner, stored).await {
            Ok(_) => pool.write(move |db| push_credentials::promote_staged(db, &user, uploaded_at, now)).await,
            Err(unreachable @ Ended { state: PushState::Unreachable, .. }) => return Err(unreachable),
            Err(refused) => {
                log::warn!(user = self.user.as_str(); "a new bundle does not work, the old one stays: {}", refused.reason);
                let dropped = pool.write(move |db| push_credentials::drop_staged(db, &user, uploaded_at)).await;
                dropped.map(|_| false)
            }
        };
        settled.map_err(Ended::unreachable)
    }
}
