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
        alarms,
        error::DbError,
        paired_servers::{self, PairedServer},
        push_credentials::{self, Slot},
        push_refusals::{self, PushRefusal},
        push_seen, users,
    },
    domain::{backoff::Backoff, credential::RefusalReason, ids::UserId, time::Timestamp},
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
    relay::hub::{AlarmPushed, DevicesChanged, PushedAlarm, STORED_WITHIN, ServerPaired, ServerRemoved},
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
    /// What the owner is told, if the bundle is to blame.
    refusal: Option<PushRefusal>,
}

impl SessionFailure {
    fn unreachable(fault: SessionFault, details: impl ToString) -> Self {
        Self { state: PushState::Unreachable, fault, details: details.to_string(), refusal: None }
    }

    fn unreadable(fault: SessionFault, details: impl ToString) -> Self {
        Self { state: PushState::Unreadable, fault, details: details.to_string(), refusal: None }
    }

    /// The same with this bundle, which may be to blame.
    fn of(self, bundle: &PushBundle, now: Timestamp) -> Self {
        let reason = match self.fault {
            SessionFault::LoginRefused => RefusalReason::LoginRefused,
            SessionFault::UnusableBundle => RefusalReason::UnusableBundle,
            _ => return self,
        };
        let (uploaded_at, uploaded_by) = (bundle.uploaded_at, bundle.uploaded_by.clone());
        Self { refusal: Some(PushRefusal { uploaded_at, uploaded_by, reason, refused_at: now }), ..self }
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
        Self { state, fault: error.fault(), details: error.to_string(), refusal: None }
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
        let Some(mut owner) = self.owner_of(Slot::InUse).await? else { return Ok(()) };
        let turn = self.context.logins.take().await;
        let (mut session, uploaded_at) = match self.log_in(&owner, Slot::InUse).await {
            Ok(Some(logged_in)) => logged_in,
            Ok(None) => return Ok(()),
            Err(failure) => {
                if let Some(refusal) = failure.refusal.clone() {
                    let user = self.user.clone();
                    let told = self.context.pool.write(move |db| push_refusals::put(db, &user, &refusal)).await;
                    if let Err(error) = told {
                        log::warn!(user = self.user.as_str(); "a refusal was not stored: {error}");
                    }
                }
                return Err(failure);
            }
        };
        let (user, now) = (self.user.clone(), self.context.clock.now());
        self.status.set_state(PushState::Connected, None, now);
        let proven = self.context.pool.write(move |db| {
            push_refusals::settle(db, &user, uploaded_at)?;
            push_credentials::mark_proven(db, &user, uploaded_at, now)
        });
        if let Err(error) = proven.await {
            log::warn!(user = self.user.as_str(); "a login was not stored: {error}");
        }
        self.tell_waiting(&owner).await?;
        drop(turn);
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

    /// The user, if there is a bundle in this slot.
    async fn owner_of(&self, slot: Slot) -> Result<Option<PushOwner>, SessionFailure> {
        let user = self.user.clone();
        let owner = self.context.pool.read(move |db| {
            let credential = push_credentials::get(db, &user)?;
            if credential.is_some_and(|credential| credential.bundle(slot).is_some()) {
                users::find(db, &user)
            } else {
                Ok(None)
            }
        });
        let Some(owner) = owner.await? else { return Ok(None) };
        let (allow_private, servers) = (self.context.allow_private, self.servers().await?);
        Ok(Some(PushOwner { user: self.user.clone(), platform: owner.platform_id, allow_private, servers }))
    }

    /// Tells the hub of alarms that are stored and in no incident: the answer that one is stored may have come too late,
    /// and the push service does not send it again. Whoever has it already knows that.
    async fn tell_waiting(&self, owner: &PushOwner) -> Result<(), SessionFailure> {
        let servers = owner.servers.clone();
        let waiting = self.context.pool.read(move |db| {
            let of = |server: &PairedServer| Ok((server.id.clone(), alarms::waiting(db, &server.id)?));
            servers.iter().map(of).collect::<Result<Vec<_>, DbError>>()
        });
        for (server, pushes) in waiting.await? {
            for push in pushes {
                let alarm = PushedAlarm::from(push);
                self.context.hub.do_send(AlarmPushed { server: server.clone(), alarm });
            }
        }
        Ok(())
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

    /// Connects and logs in with the bundle in a slot: the session, and when the bundle was uploaded; `None` if nothing is
    /// stored. The caller holds a turn.
    async fn log_in(&self, owner: &PushOwner, slot: Slot) -> Result<Option<(McsSession, Timestamp)>, SessionFailure> {
        let context = &self.context;
        let stream = login::connect(&context.network, &context.address, context.tls.clone()).await?;
        // Only now: opening it writes it, sealed again, which thousands of sessions must not do while they reach nobody.
        let Some(bundle) = self.open(slot).await? else { return Ok(None) };
        let failed = |failure: SessionFailure| failure.of(&bundle, context.clock.now());
        let credential = GcmCredential::read(bundle.json.expose_secret(), &owner.platform);
        let GcmCredential { android_id, security_token } = credential.map_err(|error| failed(error.into()))?;
        let user = self.user.clone();
        let received = context.pool.read(move |db| push_seen::list(db, &user)).await?;
        let session = login::log_in(stream, PushLogin { android_id, security_token, received }).await;
        Ok(Some((session.map_err(|error| failed(error.into()))?, bundle.uploaded_at)))
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
        let Some(owner) = self.owner_of(Slot::Staged).await? else { return Ok(false) };
        let _turn = self.context.logins.take().await;
        let (user, now, pool) = (self.user.clone(), self.context.clock.now(), &self.context.pool);
        match self.log_in(&owner, Slot::Staged).await {
            Ok(None) => Ok(false),
            Ok(Some((_, uploaded_at))) => {
                let promoted = pool.write(move |db| {
                    push_refusals::settle(db, &user, uploaded_at)?;
                    push_credentials::promote_staged(db, &user, uploaded_at, now)
                });
                Ok(promoted.await?)
            }
            Err(SessionFailure { refusal: Some(refusal), details, .. }) => {
                log::warn!(user = self.user.as_str(); "a new bundle does not work, the old one stays: {details}");
                let dropped = pool.write(move |db| {
                    if push_credentials::drop_staged(db, &user, refusal.uploaded_at)? {
                        push_refusals::put(db, &user, &refusal)?;
                    }
                    Ok(())
                });
                dropped.await?;
                Ok(false)
            }
            // On an error the bundle stays: a key that is missing may be configured again.
            Err(failure) => Err(failure),
        }
    }
}
