//! Keeps the push session of one user up: opens the credential, logs in, stores what is pushed, and logs in again
//! whenever the session ends.
//!
//! Reading and storing go on side by side. A database that hangs or refuses holds up neither the session nor an alarm:
//! pushes wait in memory, alarms are delivered without it, and each push is acknowledged once it is stored. The end
//! of a session loses nothing of that.
//!
//! A bundle that was uploaded over one that works is staged: it is tried beside the session in use and replaces it
//! only once it has logged in. One that is refused is dropped, and the one in use stays. The owner sees the refusal.

use std::{cell::RefCell, convert::Infallible, rc::Rc, sync::Arc, time::Duration};

use secrecy::ExposeSecret as _;
use tokio::{
    select,
    sync::{Notify, SemaphorePermit},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    db::{
        alarms::alarm_ledger,
        engine::{error::DbError, pool::Db, query_failures::log_failure, start_reads::read_until_answered},
        paired_servers::{self, PairedServer},
        push_credentials::{self, Slot},
        push_refusals::{self, PushRefusal},
        push_registrations, push_seen, users,
    },
    domain::{
        backoff::Backoff,
        credential::RefusalReason,
        ids::{ServerId, UserId},
        time::Timestamp,
    },
    push::{
        arrived_push::ArrivedPush,
        context::PushContext,
        failure,
        gcm_credential::{GcmCredential, GcmCredentialError},
        inbox::PushOwner,
        login::{self, LoginError, PushLogin},
        session::{McsSession, Received, SessionEnd},
        session_status::{PushState, SessionFault, SessionStatus},
        unstored::UnstoredPushes,
    },
    relay::hub::{AlarmPathChanged, AlarmPushed, PushedAlarm, ReceivedAt, ToConnection},
    vault::{PushBundle, VaultError},
};

/// Longest pause before a session is tried again: an alarm that waits for it is late.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// First and longest pause after a refused login or an unreadable bundle: most of these faults are not transient.
const REFUSED_PAUSES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3_600)];

/// Between two attempts to store a push that fails by its own fault.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before a push is tried again that a database in trouble did not store.
const LONGEST_STORE_PAUSE: Duration = Duration::from_secs(15);

/// Failure of a login or end of a session.
struct SessionFailure {
    state: PushState,
    fault: SessionFault,
    /// For the log.
    details: String,
    /// Notice to the owner, if the bundle is to blame.
    refusal: Option<PushRefusal>,
}

impl SessionFailure {
    fn unreachable(fault: SessionFault, details: impl ToString) -> Self {
        Self { state: PushState::Unreachable, fault, details: details.to_string(), refusal: None }
    }

    fn unreadable(fault: SessionFault, details: impl ToString) -> Self {
        Self { state: PushState::Unreadable, fault, details: details.to_string(), refusal: None }
    }

    /// Adds a refusal of this bundle, if it is to blame.
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

/// A session, and the times of its bundle.
struct BundleSession {
    session: McsSession,
    uploaded_at: Timestamp,
    expires_at: Timestamp,
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
/// Code that changes the user's paired servers must notify `servers_changed`.
pub async fn supervise(
    status: Arc<SessionStatus>,
    context: Arc<PushContext>,
    user: UserId,
    servers_changed: Arc<Notify>,
    unstored: Arc<UnstoredPushes>,
) {
    let supervisor = SessionSupervisor { status, context, user, servers: Rc::default(), servers_changed, unstored };
    let sessions = async {
        loop {
            // Both at once, pauses included: a bundle that no longer works must not delay the one that replaces it.
            select! {
                () = supervisor.keep_session() => break,
                () = supervisor.prove_staged() => {} // it is the one in use now
            }
        }
    };
    select! {
        () = sessions => {}
        // Pushes are stored between sessions, too.
        never = supervisor.store_all() => match never {},
    }
    supervisor.unstored.clear();
    supervisor.status.end();
}

struct SessionSupervisor {
    status: Arc<SessionStatus>,
    context: Arc<PushContext>,
    user: UserId,
    /// The user's paired servers as last read: an alarm does not wait for the database.
    servers: Rc<RefCell<Vec<PairedServer>>>,
    /// Notified when they have to be read again.
    servers_changed: Arc<Notify>,
    unstored: Arc<UnstoredPushes>,
}

impl SessionSupervisor {
    /// Keeps a session of the bundle in use up; ends when there is no such bundle.
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

    /// Runs a session from its login to its end; `Ok` if there is no credential.
    async fn run_session(&self) -> Result<(), SessionFailure> {
        let Some(owner) = self.owner_of(Slot::InUse).await? else { return Ok(()) };
        let turn = self.context.logins.take().await;
        let BundleSession { mut session, uploaded_at, expires_at } = match self.log_in(&owner, Slot::InUse).await {
            Ok(Some(logged_in)) => logged_in,
            Ok(None) => return Ok(()),
            Err(failure) => {
                if let Some(refusal) = failure.refusal.clone() {
                    let user = self.user.clone();
                    match self.context.pool.write(move |db| push_refusals::put(db, &user, &refusal)).await {
                        Ok(()) => self.report_path(),
                        Err(error) => log_failure("a refusal was not stored", &error),
                    }
                }
                return Err(failure);
            }
        };
        self.status.set_state(PushState::Connected, None, self.context.clock.now());
        let login = self.note_login(uploaded_at, turn);
        let beside = async { tokio::join!(self.follow_servers(), login, self.report_expiry(expires_at)) };
        select! {
            biased;
            ended = self.receive(&mut session, &owner) => Err(ended.into()),
            (never, ..) = beside => match never {},
        }
    }

    /// Reads pushes until the session ends. A push that is not stored by then is not acknowledged and comes again;
    /// until then it is stored from here.
    async fn receive(&self, session: &mut McsSession, owner: &PushOwner) -> SessionEnd {
        self.unstored.begin_session();
        loop {
            select! {
                biased;
                receipts = self.unstored.receipts() => receipts.into_iter().for_each(|receipt| session.stored(receipt)),
                received = session.next(), if self.unstored.has_room() => match received {
                    Ok(Received::Heartbeat) => self.status.heard(self.context.clock.now()),
                    Ok(Received::Unreadable) => log::warn!(user = self.user.as_str(); "a push could not be read"),
                    Ok(Received::Message(message, receipt)) => {
                        let new = |message| ArrivedPush::new(message, owner.clone(), &self.context);
                        let push = self.unstored.arrive(message, receipt, new);
                        if let Some(alarm) = push.filter(|push| push.alarm().is_some()) {
                            self.deliver_in_time(alarm);
                        }
                    }
                    Err(ended) => return ended,
                }
            }
        }
    }

    /// Delivers an alarm after half a second, if the database has not done so: it waits for nothing longer.
    fn deliver_in_time(&self, push: Arc<ArrivedPush>) {
        let (servers, context, unstored) = (self.servers.clone(), self.context.clone(), self.unstored.clone());
        // A task of its own: this supervisor may be aborted at any moment.
        actix::spawn(async move {
            sleep_until(push.received_at.stored_by()).await;
            if unstored.waits(&push) {
                push.deliver(&servers.borrow(), &context);
            }
        });
    }

    /// Stores one push after the other, in the order in which they came.
    async fn store_all(&self) -> Infallible {
        loop {
            let push = self.unstored.first().await;
            self.store(&push).await;
            self.status.received(self.context.clock.now());
            self.unstored.store_first(&push);
        }
    }

    /// Stores a login, and delivers the alarms that wait. Pushes come meanwhile.
    async fn note_login(&self, uploaded_at: Timestamp, turn: SemaphorePermit<'_>) {
        let (user, now) = (self.user.clone(), self.context.clock.now());
        let proven = self.context.pool.write(move |db| -> Result<bool, DbError> {
            push_credentials::mark_proven(db, &user, uploaded_at, now)?;
            push_refusals::settle(db, &user, uploaded_at)
        });
        let proven = proven.await;
        if let Err(error) = &proven {
            log_failure("a login was not stored", error);
        }
        // Most logins change no path; one that was not stored may have done so.
        if proven.unwrap_or(true) {
            self.report_path();
        }
        let mut turn = Some(turn);
        let mut backoff = Backoff::between(Backoff::FIRST, LONGEST_STORE_PAUSE);
        while let Err(error) = self.notify_waiting().await {
            log_failure("alarms that wait could not be read", &error);
            turn = None;
            sleep(backoff.after(Duration::ZERO, Duration::ZERO, self.context.random.byte())).await;
        }
        drop(turn);
    }

    /// Lets the links of the user's servers look whether alarms come over them alone: by that they take turns.
    fn report_path(&self) {
        for server in self.servers.borrow().iter() {
            self.context.hub.do_send(ToConnection { server: server.id.clone(), message: AlarmPathChanged });
        }
    }

    /// Reports when the bundle expires, at once if it has: its session goes on, and nothing is pushed.
    async fn report_expiry(&self, at: Timestamp) {
        let left = || (at - self.context.clock.now()).to_std().ok().filter(|left| !left.is_zero());
        // The clock may be set meanwhile.
        while let Some(left) = left() {
            sleep(left).await;
        }
        self.report_path();
    }

    /// Reads the paired servers again whenever they change.
    async fn follow_servers(&self) -> Infallible {
        loop {
            self.servers_changed.notified().await;
            let user = self.user.clone();
            let read = move |db: &mut Db| paired_servers::list_for(db, &user);
            let servers = read_until_answered(&self.context.pool, &self.context.random, "paired servers", read).await;
            *self.servers.borrow_mut() = servers;
        }
    }

    /// The user, if there is a bundle in this slot.
    async fn owner_of(&self, slot: Slot) -> Result<Option<PushOwner>, SessionFailure> {
        let user = self.user.clone();
        let owner = self.context.pool.read(move |db| {
            let credential = push_credentials::get(db, &user)?;
            if credential.is_some_and(|credential| credential.bundle(slot).is_some()) {
                let owner = users::find(db, &user)?;
                owner.map(|owner| Ok((owner, paired_servers::list_for(db, &user)?))).transpose()
            } else {
                Ok(None)
            }
        });
        let Some((owner, servers)) = owner.await? else { return Ok(None) };
        *self.servers.borrow_mut() = servers;
        let outbound = self.context.outbound.clone();
        Ok(Some(PushOwner { user: self.user.clone(), platform: owner.platform_id, outbound }))
    }

    /// Delivers the alarms that are stored and in no incident: the answer that one is stored may have come too late,
    /// and the push service does not send it again. The game connection recognises those that it has.
    async fn notify_waiting(&self) -> Result<(), DbError> {
        let servers: Vec<ServerId> = self.servers.borrow().iter().map(|server| server.id.clone()).collect();
        let waiting = self.context.pool.read(move |db| {
            let of = |server: ServerId| alarm_ledger::waiting(db, &server).map(|pushes| (server, pushes));
            servers.into_iter().map(of).collect::<Result<Vec<_>, DbError>>()
        });
        for (server, pushes) in waiting.await? {
            for push in pushes {
                let alarm = PushedAlarm::from(push);
                self.context.deliver(AlarmPushed { server: server.clone(), alarm, received_at: ReceivedAt::now() });
            }
        }
        Ok(())
    }

    /// Stores a push, however long that takes. One that fails by its own fault is tried again after a pause, and given
    /// up after the last attempt: those behind it must be stored too.
    async fn store(&self, push: &Arc<ArrivedPush>) {
        let (context, user) = (&self.context, self.user.as_str());
        let (id, alarm) = (push.message.persistent_id.as_deref(), push.alarm());
        let mut backoff = Backoff::between(Backoff::FIRST, LONGEST_STORE_PAUSE);
        let mut failed = false;
        loop {
            // A task of its own: this supervisor may be aborted at any moment, and the hub must know what is stored.
            let error = match actix::spawn(push.clone().store(context.clone())).await {
                Ok(Ok(paired)) => {
                    if paired {
                        self.servers_changed.notify_one();
                    }
                    break;
                }
                Ok(Err(error)) => error,
                Err(panicked) if panicked.is_panic() => DbError::Panicked,
                Err(stopped) => DbError::Unavailable(stopped.to_string()),
            };
            // An alarm does not wait for the next attempt.
            push.deliver(&self.servers.borrow(), context);
            let trouble = match failure::own_fault(&error) {
                None => error,
                Some(reason) => {
                    log::error!(user, push = id, alarm, reason; "a push fails: {error}");
                    let (owner, pushed, now) = (self.user.clone(), push.clone(), context.clock.now());
                    let count = move |db: &mut Db| failure::count(db, &owner, &pushed.message, reason, now);
                    match context.pool.write(count).await {
                        Ok(true) => {
                            metrics::counter!("companion_push_dead_letters_total", "reason" => reason).increment(1);
                            log::error!(user, push = id, alarm; "the push is a dead letter now");
                            break;
                        }
                        Ok(false) => {
                            sleep(RETRY_PAUSE).await;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            if !failed {
                log::error!(user, push = id, alarm; "a push is stored later: {trouble}");
                failed = true;
            }
            self.status.set_unstored(true);
            sleep(backoff.after(Duration::ZERO, Duration::ZERO, context.random.byte())).await;
        }
        if failed {
            self.status.set_unstored(false);
        }
    }

    /// The opened bundle in a slot, which is in memory only until the login; `None` if nothing is stored.
    async fn open(&self, slot: Slot) -> Result<Option<PushBundle>, SessionFailure> {
        match self.context.vault.push_bundle(&self.user, slot).await {
            Ok(bundle) => Ok(Some(bundle)),
            Err(VaultError::Missing) => Ok(None),
            Err(VaultError::Unreadable(error)) => {
                let awaits_key = self.context.vault.awaits_key(error);
                let fault = if awaits_key { SessionFault::UnknownKey } else { SessionFault::LostBundle };
                Err(SessionFailure::unreadable(fault, error))
            }
            Err(error) => Err(SessionFailure::unreachable(SessionFault::Database, error)),
        }
    }

    /// Connects and logs in with the bundle in a slot; `None` if nothing is stored. The caller holds a turn.
    async fn log_in(&self, owner: &PushOwner, slot: Slot) -> Result<Option<BundleSession>, SessionFailure> {
        let context = &self.context;
        let stream = login::connect(&context.network, &context.address, context.tls.clone()).await?;
        // Only now: opening a bundle stores it, sealed again, which thousands of sessions must not do while none can
        // connect.
        let Some(bundle) = self.open(slot).await? else { return Ok(None) };
        let failed = |failure: SessionFailure| failure.of(&bundle, context.clock.now());
        let credential = GcmCredential::read(bundle.json.expose_secret(), &owner.platform);
        let GcmCredential { android_id, security_token } = credential.map_err(|error| failed(error.into()))?;
        let user = self.user.clone();
        let received = context.pool.read(move |db| push_seen::list(db, &user)).await?;
        let session = login::log_in(stream, PushLogin { android_id, security_token, received }).await;
        let session = session.map_err(|error| failed(error.into()))?;
        Ok(Some(BundleSession { session, uploaded_at: bundle.uploaded_at, expires_at: bundle.expires_at }))
    }

    /// Ends when a staged bundle has logged in and has replaced the one in use; never, if there is none or it is
    /// refused.
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
            Ok(Some(BundleSession { uploaded_at, .. })) => {
                let promoted = pool.write(move |db| -> Result<_, DbError> {
                    push_refusals::settle(db, &user, uploaded_at)?;
                    let is_promoted = push_credentials::promote_staged(db, &user, uploaded_at, now)?;
                    push_registrations::end_replaced(db, &user, now)?;
                    Ok(is_promoted)
                });
                let is_promoted = promoted.await?;
                self.report_path();
                Ok(is_promoted)
            }
            Err(SessionFailure { refusal: Some(refusal), details, .. }) => {
                log::warn!(user = self.user.as_str(); "a new bundle does not work, the old one stays: {details}");
                let dropped = pool.write(move |db| -> Result<_, DbError> {
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
