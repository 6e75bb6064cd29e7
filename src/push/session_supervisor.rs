//! Keeps the push session of one user up: opens the credential, logs in, stores what is pushed, and logs in again
//! whenever the session ends.
//!
//! A bundle that was uploaded over one that works is staged: it is tried beside the session in use and replaces it
//! only once it has logged in. One that is refused is dropped, and the one in use stays. Its owner is told of a refusal.

use std::{pin::pin, sync::Arc, time::Duration};

use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    db::{
        error::DbError,
        paired_servers::{self, PairedServer},
        push_credentials::{self, Slot},
        push_refusals::{self, PushRefusal},
        push_seen, users,
    },
    domain::{backoff::Backoff, credential::RefusalReason, ids::UserId},
    push::{
        context::PushContext,
        failure,
        gcm_credential::{GcmCredential, GcmCredentialError},
        inbox::{self, Inbox, PushOutcome, PushOwner},
        login::{self, LoginError, PushLogin},
        message::PushMessage,
        session::{McsSession, Received, SessionEnd},
        session_status::{PushState, SessionFault, SessionStatus},
    },
    relay::hub::{AlarmPushed, DevicesChanged, STORED_WITHIN, ServerPaired, ServerRemoved},
    vault::{PushBundle, VaultError},
};

/// Longest pause before a session is tried again: an alarm that waits for it is late.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// First and longest pause after a refused login or an unreadable bundle: it may be a passing fault, and most are not.
const REFUSED_PAUSES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3_600)];

/// Between two attempts to handle a push.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no session, or no longer.
struct SessionFailure {
    state: PushState,
    fault: SessionFault,
    /// For the log.
    details: String,
}

impl SessionFailure {
    fn unreachable(fault: SessionFault, details: impl ToString) -> Self {
        Self { state: PushState::Unreachable, fault, details: details.to_string() }
    }

    fn unreadable(fault: SessionFault, details: impl ToString) -> Self {
        Self { state: PushState::Unreadable, fault, details: details.to_string() }
    }

    /// Why the bundle is to blame; `None` if it may well work another time.
    fn refusal(&self) -> Option<RefusalReason> {
        match self.fault {
            SessionFault::LoginRefused => Some(RefusalReason::LoginRefused),
            SessionFault::UnusableBundle => Some(RefusalReason::UnusableBundle),
            _ => None,
        }
    }
}

impl From<DbError> for SessionFailure {
    fn from(error: DbError) -> Self {
        Self::unreachable(SessionFault::Database, error)
    }
}

impl From<GcmCredentialError> for SessionFailure {
    fn from(error: GcmCredentialError) -> Self {
        Self::unreadable(SessionFault::UnusableBundle, error)
    }
}

impl From<LoginError> for SessionFailure {
    fn from(error: LoginError) -> Self {
        let state = if let LoginError::Refused(_) = error { PushState::RefreshNeeded } else { PushState::Unreachable };
        Self { state, fault: error.fault(), details: error.to_string() }
    }
}

impl From<SessionEnd> for SessionFailure {
    fn from(end: SessionEnd) -> Self {
        Self::unreachable(end.fault(), end)
    }
}

/// The pauses between attempts: a bundle that is refused is tried less and less often, a push service that is not
/// reached is not.
struct Pauses {
    unreached: Backoff,
    refused: Backoff,
}

impl Pauses {
    fn new() -> Self {
        let [first, longest] = REFUSED_PAUSES;
        Self { unreached: Backoff::between(Backoff::FIRST, LONGEST_PAUSE), refused: Backoff::between(first, longest) }
    }

    /// The pause after a session that lasted for `held`.
    fn after(&mut self, failure: &SessionFailure, held: Duration, context: &PushContext) -> Duration {
        let backoff = if failure.state == PushState::Unreachable { &mut self.unreached } else { &mut self.refused };
        let [jitter, random @ ..] = context.random.bytes::<3>();
        backoff.after(held, Duration::ZERO, jitter) + context.logins.delay(random)
    }
}

/// Runs until the worker or the credential is gone.
pub async fn supervise(status: Arc<SessionStatus>, context: Arc<PushContext>, user: UserId) {
    let supervisor = SessionSupervisor { status, context, user };
    loop {
        // Both at once, pauses included: a bundle that no longer works must not delay the one that replaces it.
        tokio::select! {
            () = supervisor.keep_session() => return supervisor.status.end(),
            () = supervisor.prove_staged() => {} // it is the one in use now
        }
    }
}

/// Stores what a push changes, then informs the hub; of an alarm at the latest after half a second. True if something
/// was paired.
async fn handle(context: Arc<PushContext>, owner: PushOwner, message: Arc<PushMessage>) -> Result<bool, DbError> {
    let (user, shared, now) = (owner.user.clone(), context.clone(), context.clock.now());
    let alarm_id = inbox::alarm_id(&user, &message, || context.random.id(now));
    let alarm = owner.alarm(&message, &alarm_id, now);
    let mut stored = pin!(context.pool.write_first(move |db| {
        let (vault, random) = (&shared.vault, &shared.random);
        Inbox { owner: &owner, vault, random, alarm_id: &alarm_id, now }.store(db, &message)
    }));
    let hub = &context.hub;
    let outcome = match (timeout(STORED_WITHIN, &mut stored).await, alarm) {
        (Ok(stored), _) => stored?,
        (Err(_), alarm) => {
            // An alarm does not wait for the database. What is acknowledged does: the push comes again until it is stored.
            if let Some((server, alarm)) = alarm {
                hub.do_send(AlarmPushed { server, alarm });
            }
            stored.await?
        }
    };
    let is_pairing = matches!(outcome, PushOutcome::Paired { .. });
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
        PushOutcome::Alarm { server, alarm } => hub.do_send(AlarmPushed { server, alarm }),
        PushOutcome::Noted => {}
        PushOutcome::Ignored(reason) => count_ignored(&user, reason),
    }
    Ok(is_pairing)
}

fn count_ignored(user: &UserId, reason: &'static str) {
    metrics::counter!("companion_push_ignored_total", "reason" => reason).increment(1);
    log::info!(user = user.as_str(), reason; "a push was ignored");
}

struct SessionSupervisor {
    status: Arc<SessionStatus>,
    context: Arc<PushContext>,
    user: UserId,
}

impl SessionSupervisor {
    /// Keeps a session of the bundle in use up; ends when there is none any more.
    async fn keep_session(&self) {
        let (mut pauses, mut logged) = (Pauses::new(), None);
        loop {
            let started = Instant::now();
            let Err(failure) = self.run_session().await else { return };
            let pause = pauses.after(&failure, started.elapsed(), &self.context);
            self.status.set_state(failure.state, Some(failure.fault), self.context.clock.now());
            // Once, not with every attempt of a long outage.
            if logged.replace(failure.fault) != Some(failure.fault) {
                log::info!(user = self.user.as_str(); "no push session: {}", failure.details);
            }
            sleep(pause).await;
        }
    }

    /// One session from its login to its end; `Ok` if there is no credential any more.
    async fn run_session(&self) -> Result<(), SessionFailure> {
        let (Some(mut owner), Some(bundle)) = (self.owner().await?, self.open(Slot::InUse).await?) else {
            return Ok(());
        };
        let mut session = match self.log_in(&owner, &bundle).await {
            Ok(session) => session,
            Err(failure) => {
                if let Some(refusal) = self.refusal(&failure, &bundle) {
                    let user = self.user.clone();
                    let told = self.context.pool.write(move |db| push_refusals::put(db, &user, &refusal)).await;
                    if let Err(error) = told {
                        log::warn!(user = self.user.as_str(); "a refusal was not stored: {error}");
                    }
                }
                return Err(failure);
            }
        };
        let uploaded_at = bundle.uploaded_at;
        drop(bundle);
        let (user, now) = (self.user.clone(), self.context.clock.now());
        self.status.set_state(PushState::Connected, None, now);
        let proven = self.context.pool.write(move |db| {
            push_refusals::settle(db, &user, uploaded_at)?;
            push_credentials::mark_proven(db, &user, uploaded_at, now)
        });
        if let Err(error) = proven.await {
            log::warn!(user = self.user.as_str(); "a login was not stored: {error}");
        }
        loop {
            match session.next().await? {
                Received::Heartbeat => self.status.heard(self.context.clock.now()),
                Received::Unreadable => log::warn!(user = self.user.as_str(); "a push could not be read"),
                // The next call acknowledges it: what could not be stored comes again.
                Received::Message(message) => {
                    if self.handle(&owner, message).await? {
                        owner.servers = self.servers().await?;
                    }
                }
            }
        }
    }

    async fn owner(&self) -> Result<Option<PushOwner>, SessionFailure> {
        let user = self.user.clone();
        let owner = self.context.pool.read(move |db| users::find(db, &user)).await?;
        let Some(owner) = owner else { return Ok(None) };
        let (allow_private, servers) = (self.context.allow_private, self.servers().await?);
        Ok(Some(PushOwner { user: self.user.clone(), platform: owner.platform_id, allow_private, servers }))
    }

    async fn servers(&self) -> Result<Arc<Vec<PairedServer>>, SessionFailure> {
        let user = self.user.clone();
        Ok(Arc::new(self.context.pool.read(move |db| paired_servers::list_for(db, &user)).await?))
    }

    /// Handles a push. One that fails by its own fault is tried again after a pause, and given up after the last
    /// attempt: the alarms behind it must come through. True if something was paired.
    async fn handle(&self, owner: &PushOwner, message: PushMessage) -> Result<bool, SessionFailure> {
        let message = Arc::new(message);
        let is_pairing = loop {
            // A task of its own: this supervisor may be aborted at any moment, and the hub must know what is stored.
            let handled = actix::spawn(handle(self.context.clone(), owner.clone(), message.clone())).await;
            let unstored = |error| SessionFailure::unreachable(SessionFault::PushNotStored, error);
            let error = match handled {
                Ok(Ok(is_pairing)) => break is_pairing,
                Ok(Err(error)) => error,
                Err(panicked) if panicked.is_panic() => DbError::Panicked,
                Err(stopped) => return Err(SessionFailure::unreachable(SessionFault::PushNotStored, stopped)),
            };
            let Some(reason) = failure::own_fault(&error) else { return Err(unstored(error)) };
            let push = message.persistent_id.as_deref();
            log::error!(user = self.user.as_str(), push, reason; "a push fails: {error}");
            let (user, failed, now) = (self.user.clone(), message.clone(), self.context.clock.now());
            let counted = self.context.pool.write(move |db| failure::count(db, &user, &failed, reason, now));
            if counted.await.map_err(unstored)? {
                metrics::counter!("companion_push_dead_letters_total", "reason" => reason).increment(1);
                log::error!(user = self.user.as_str(), push; "the push is a dead letter now");
                break false;
            }
            sleep(RETRY_PAUSE).await;
        };
        self.status.received(self.context.clock.now());
        Ok(is_pairing)
    }

    /// The opened bundle in a slot, which is in memory only until the login; `None` if nothing is stored.
    async fn open(&self, slot: Slot) -> Result<Option<PushBundle>, SessionFailure> {
        match self.context.vault.push_bundle(&self.user, slot).await {
            Ok(bundle) => Ok(Some(bundle)),
            Err(VaultError::Missing) => Ok(None),
            Err(error @ VaultError::Unreadable(_)) => Err(SessionFailure::unreadable(SessionFault::UnknownKey, error)),
            Err(error) => Err(SessionFailure::unreachable(SessionFault::Database, error)),
        }
    }

    async fn log_in(&self, owner: &PushOwner, bundle: &PushBundle) -> Result<McsSession, SessionFailure> {
        let credential = GcmCredential::read(bundle.json.expose_secret(), &owner.platform)?;
        let user = self.user.clone();
        let received = self.context.pool.read(move |db| push_seen::list(db, &user)).await?;
        let GcmCredential { android_id, security_token } = credential;
        let login = PushLogin { android_id, security_token, received };
        let _turn = self.context.logins.take().await;
        Ok(login::connect(&self.context.network, &self.context.address, self.context.tls.clone(), login).await?)
    }

    /// What the owner is told, if the bundle is to blame.
    fn refusal(&self, failure: &SessionFailure, bundle: &PushBundle) -> Option<PushRefusal> {
        Some(PushRefusal {
            uploaded_at: bundle.uploaded_at,
            uploaded_by: bundle.uploaded_by.clone(),
            reason: failure.refusal()?,
            refused_at: self.context.clock.now(),
        })
    }

    /// Ends when a staged bundle has logged in and has replaced the one in use; never, if there is none or it is refused.
    async fn prove_staged(&self) {
        let mut pauses = Pauses::new();
        loop {
            match self.try_staged().await {
                Ok(true) => return,
                Ok(false) => return std::future::pending().await,
                Err(failure) => {
                    log::warn!(user = self.user.as_str(); "a new bundle cannot be tried: {}", failure.details);
                    sleep(pauses.after(&failure, Duration::ZERO, &self.context)).await;
                }
            }
        }
    }

    /// Logs in with the staged bundle. True: it is the one in use now; false: there is none, or no longer; an error
    /// leaves open whether it works.
    async fn try_staged(&self) -> Result<bool, SessionFailure> {
        let Some(owner) = self.owner().await? else { return Ok(false) };
        // On an error the bundle stays: a key that is missing may be configured again.
        let Some(bundle) = self.open(Slot::Staged).await? else { return Ok(false) };
        let (user, uploaded_at, now) = (self.user.clone(), bundle.uploaded_at, self.context.clock.now());
        let Err(failure) = self.log_in(&owner, &bundle).await.map(drop) else {
            let promoted = self.context.pool.write(move |db| {
                push_refusals::settle(db, &user, uploaded_at)?;
                push_credentials::promote_staged(db, &user, uploaded_at, now)
            });
            return Ok(promoted.await?);
        };
        let Some(refusal) = self.refusal(&failure, &bundle) else { return Err(failure) };
        log::warn!(user = self.user.as_str(); "a new bundle does not work, the old one stays: {}", failure.details);
        let dropped = self.context.pool.write(move |db| {
            if push_credentials::drop_staged(db, &user, uploaded_at)? {
                push_refusals::put(db, &user, &refusal)?;
            }
            Ok(())
        });
        dropped.await?;
        Ok(false)
    }
}
