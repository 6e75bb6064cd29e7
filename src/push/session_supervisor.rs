//! Keeps the push session of one user up: opens the credential, logs in, stores what is pushed, and logs in again
//! whenever the session ends.
//!
//! A bundle that was uploaded over one that works is staged: it is tried beside the session in use and replaces it
//! only once it has logged in. One that is refused is dropped, and the one in use stays.

use std::{sync::Arc, time::Duration};

use actix::Recipient;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep};

use crate::{
    db::{
        error::DbError,
        push_credentials::{self, Slot},
        push_seen, users,
    },
    domain::{backoff::Backoff, ids::UserId},
    push::{
        context::PushContext,
        failure,
        gcm_credential::GcmCredential,
        inbox::{Inbox, PushOutcome, PushOwner},
        login::{self, LoginError, PushLogin},
        message::PushMessage,
        session::{McsSession, Received},
        session_status::{PushState, SessionEvent, SessionReport},
    },
    relay::hub::{AlarmPushed, DevicesChanged, ServerPaired, ServerRemoved},
    vault::{PushBundle, VaultError},
};

/// Least pause after a refused login or an unreadable bundle, which may be a passing fault.
const REFUSED_LOGIN_PAUSE: Duration = Duration::from_secs(3_600);

/// Between two attempts to handle a push.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no session, or no longer.
struct SessionFailure {
    state: PushState,
    reason: String,
    /// Least time until the next attempt.
    pause: Duration,
}

impl SessionFailure {
    fn unreachable(reason: impl ToString) -> Self {
        Self { state: PushState::Unreachable, reason: reason.to_string(), pause: Duration::ZERO }
    }

    fn unreadable(reason: impl ToString) -> Self {
        Self { state: PushState::Unreadable, reason: reason.to_string(), pause: REFUSED_LOGIN_PAUSE }
    }
}

impl From<LoginError> for SessionFailure {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Refused(_) => {
                Self { state: PushState::RefreshNeeded, reason: error.to_string(), pause: REFUSED_LOGIN_PAUSE }
            }
            error => Self::unreachable(error),
        }
    }
}

/// Runs until the worker or the credential is gone.
pub async fn supervise(reports: Recipient<SessionReport>, context: Arc<PushContext>, user: UserId, generation: u64) {
    let supervisor = SessionSupervisor { reports, context, user, generation };
    loop {
        // Both at once, pauses included: a bundle that no longer works must not delay the one that replaces it.
        tokio::select! {
            () = supervisor.keep_session() => return supervisor.report(None).await,
            () = supervisor.prove_staged() => {} // it is the one in use now
        }
    }
}

/// Stores what a push changes, then informs the hub.
async fn handle(context: Arc<PushContext>, owner: PushOwner, message: Arc<PushMessage>) -> Result<(), DbError> {
    let (user, shared, now) = (owner.user.clone(), context.clone(), context.clock.now());
    let outcome = context
        .pool
        .write(move |db| Inbox { owner: &owner, vault: &shared.vault, random: &shared.random, now }.store(db, &message))
        .await?;
    let hub = &context.hub;
    match outcome {
        PushOutcome::Paired { server, changed, displaced, device } => {
            if let Some(server) = displaced {
                hub.do_send(ServerRemoved { server });
            }
            hub.do_send(ServerPaired { server: server.clone(), changed });
            match device {
                Ok(true) => hub.do_send(DevicesChanged { server }),
                Ok(false) => {}
                Err(reason) => count_ignored(&user, reason),
            }
        }
        PushOutcome::Alarm { server, id, title } => hub.do_send(AlarmPushed { server, id, title }),
        PushOutcome::Noted => {}
        PushOutcome::Ignored(reason) => count_ignored(&user, reason),
    }
    Ok(())
}

fn count_ignored(user: &UserId, reason: &'static str) {
    metrics::counter!("companion_push_ignored_total", "reason" => reason).increment(1);
    log::info!(user = user.as_str(), reason; "a push was ignored");
}

struct SessionSupervisor {
    reports: Recipient<SessionReport>,
    context: Arc<PushContext>,
    user: UserId,
    generation: u64,
}

impl SessionSupervisor {
    async fn report(&self, event: Option<SessionEvent>) {
        let report = SessionReport { user: self.user.clone(), generation: self.generation, event };
        // It fails when the worker has stopped, which also aborts this supervisor.
        let _ = self.reports.send(report).await;
    }

    /// Keeps a session of the bundle in use up; ends when there is none any more.
    async fn keep_session(&self) {
        let mut backoff = Backoff::new();
        loop {
            let started = Instant::now();
            let Err(failure) = self.run_session().await else { return };
            let pause = backoff.after(started.elapsed(), failure.pause, self.context.random.byte());
            self.report(Some(SessionEvent::State(failure.state, Some(failure.reason)))).await;
            sleep(pause).await;
        }
    }

    /// One session from its login to its end; `Ok` if there is no credential any more.
    async fn run_session(&self) -> Result<(), SessionFailure> {
        let Some(owner) = self.owner().await? else { return Ok(()) };
        let Some(stored) = self.open(Slot::InUse).await? else { return Ok(()) };
        let uploaded_at = stored.uploaded_at;
        let mut session = self.log_in(&owner, stored).await?;
        self.report(Some(SessionEvent::State(PushState::Connected, None))).await;
        let (user, now) = (self.user.clone(), self.context.clock.now());
        let proven =
            self.context.pool.write(move |db| push_credentials::mark_proven(db, &user, uploaded_at, now)).await;
        if let Err(error) = proven {
            log::warn!(user = self.user.as_str(); "a login was not stored: {error}");
        }
        loop {
            match session.next().await.map_err(SessionFailure::unreachable)? {
                Received::Heartbeat => self.report(Some(SessionEvent::Heartbeat)).await,
                Received::Unreadable => log::warn!(user = self.user.as_str(); "a push could not be read"),
                // The next call acknowledges it: what could not be stored comes again.
                Received::Message(message) => self.handle(&owner, message).await?,
            }
        }
    }

    async fn owner(&self) -> Result<Option<PushOwner>, SessionFailure> {
        let user = self.user.clone();
        let owner =
            self.context.pool.read(move |db| users::find(db, &user)).await.map_err(SessionFailure::unreachable)?;
        let allow_private = self.context.allow_private;
        Ok(owner.map(|owner| PushOwner { user: self.user.clone(), platform: owner.platform_id, allow_private }))
    }

    /// Handles a push. One that fails by its own fault is tried again after a pause, and given up after the last
    /// attempt: the alarms behind it must come through.
    async fn handle(&self, owner: &PushOwner, message: PushMessage) -> Result<(), SessionFailure> {
        let message = Arc::new(message);
        loop {
            // A task of its own: this supervisor may be aborted at any moment, and the hub must know what is stored.
            let handled = actix::spawn(handle(self.context.clone(), owner.clone(), message.clone())).await;
            let error = match handled {
                Ok(Ok(())) => break,
                Ok(Err(error)) => error,
                Err(panicked) if panicked.is_panic() => DbError::Panicked,
                Err(stopped) => return Err(SessionFailure::unreachable(stopped)),
            };
            let unstored = |error| SessionFailure::unreachable(format!("a push was not stored: {error}"));
            let Some(reason) = failure::own_fault(&error) else { return Err(unstored(error)) };
            let (user, failed, now) = (self.user.clone(), message.clone(), self.context.clock.now());
            let counted = self.context.pool.write(move |db| failure::count(db, &user, &failed, reason, now)).await;
            log::error!(user = self.user.as_str(), push = message.persistent_id.as_deref(), reason; "a push fails: {error}");
            if counted.map_err(unstored)? {
                metrics::counter!("companion_push_dead_letters_total", "reason" => reason).increment(1);
                log::error!(user = self.user.as_str(), push = message.persistent_id.as_deref(); "it is a dead letter now");
                break;
            }
            sleep(RETRY_PAUSE).await;
        }
        self.report(Some(SessionEvent::Message)).await;
        Ok(())
    }

    /// The opened bundle in a slot, which is in memory only until the login; `None` if nothing is stored.
    async fn open(&self, slot: Slot) -> Result<Option<PushBundle>, SessionFailure> {
        match self.context.vault.push_bundle(&self.user, slot).await {
            Ok(bundle) => Ok(Some(bundle)),
            Err(VaultError::Missing) => Ok(None),
            Err(error @ VaultError::Unreadable(_)) => Err(SessionFailure::unreadable(error)),
            Err(error) => Err(SessionFailure::unreachable(error)),
        }
    }

    async fn log_in(&self, owner: &PushOwner, stored: PushBundle) -> Result<McsSession, SessionFailure> {
        let credential =
            GcmCredential::read(stored.json.expose_secret(), &owner.platform).map_err(SessionFailure::unreadable)?;
        drop(stored);
        let user = self.user.clone();
        let received = self.context.pool.read(move |db| push_seen::list(db, &user)).await;
        let received = received.map_err(SessionFailure::unreachable)?;
        let GcmCredential { android_id, security_token } = credential;
        let login = PushLogin { android_id, security_token, received };
        Ok(login::connect(&self.context.network, &self.context.address, self.context.tls.clone(), login).await?)
    }

    /// Ends when a staged bundle has logged in and has replaced the one in use; never, if there is none or it is refused.
    async fn prove_staged(&self) {
        let mut backoff = Backoff::new();
        loop {
            match self.try_staged().await {
                Ok(true) => return,
                Ok(false) => return std::future::pending().await,
                Err(failure) => {
                    log::warn!(user = self.user.as_str(); "a new bundle cannot be tried: {}", failure.reason);
                    sleep(backoff.after(Duration::ZERO, failure.pause, self.context.random.byte())).await;
                }
            }
        }
    }

    /// Logs in with the staged bundle. True: it is the one in use now; false: there is none, or no longer; an error
    /// leaves open whether it works.
    async fn try_staged(&self) -> Result<bool, SessionFailure> {
        let Some(owner) = self.owner().await? else { return Ok(false) };
        // On an error the bundle stays: a key that is missing may be configured again.
        let Some(stored) = self.open(Slot::Staged).await? else { return Ok(false) };
        let (user, uploaded_at, now) = (self.user.clone(), stored.uploaded_at, self.context.clock.now());
        let pool = &self.context.pool;
        let settled = match self.log_in(&owner, stored).await {
            Ok(_) => pool.write(move |db| push_credentials::promote_staged(db, &user, uploaded_at, now)).await,
            Err(unreachable @ SessionFailure { state: PushState::Unreachable, .. }) => return Err(unreachable),
            Err(refused) => {
                log::warn!(user = self.user.as_str(); "a new bundle does not work, the old one stays: {}", refused.reason);
                let dropped = pool.write(move |db| push_credentials::drop_staged(db, &user, uploaded_at)).await;
                dropped.map(|_| false)
            }
        };
        settled.map_err(SessionFailure::unreachable)
    }
}
