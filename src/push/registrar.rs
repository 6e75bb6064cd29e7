//! Registers devices of users for the game's pushes, step by step, and renews what users asked it to. Each step is stored
//! before the next one, so that the end of the process repeats none.
//!
//! The token of an account is kept, sealed, only while its registration is made, and with renewal as long as that lasts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix::Addr;
use chrono::TimeDelta;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    clients::registration::{RegisteredDevice, RegistrationClient},
    clock::Clock,
    crypto::random::Random,
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
            query_failures::log_failure,
        },
        push_credentials,
        push_registrations::{self, PushRegistration, SealedDevice, StoredProgress},
        users,
    },
    domain::{
        game_login::{LOGIN_WITHIN, LoginFault, read_answer, return_url},
        ids::{PlatformId, UserId},
        registration::{RegistrationStep, StepFailure, StepFault, pause_after, renew_at},
        time::Timestamp,
    },
    push::{
        bundle_upload::{self, BundleNotStored, NewBundle},
        registration_rows::{open_device, open_login},
        worker::{CredentialChanged, PushWorker},
    },
    vault::Vault,
};

/// Port of the loopback address at which a login ends. Nothing listens there: the user copies the address.
const DEAD_PORT: u16 = 34_733;
/// Registrations that are worked on at once; others wait for the next look. Most wait for Google to know their device; the
/// client bounds the requests.
const AT_ONCE: usize = 256;
/// Interval of the looks at what is due.
const LOOK_EVERY: TimeDelta = TimeDelta::seconds(30);
/// Time for the end of a registration at the game, for which a user waits.
const UNREGISTER_DEADLINE: Duration = Duration::from_secs(10);

/// See the module.
pub struct Registrar {
    pub client: RegistrationClient,
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    pub vault: Vault,
    /// Runs the push session of what was registered.
    pub worker: Addr<PushWorker>,
    /// Users whose registration is worked on now, each with what ends its steps.
    pub running: Mutex<HashMap<UserId, CancellationToken>>,
}

/// A login that was begun.
pub struct OpenedLogin {
    /// Id of the registration.
    pub id: String,
    /// Page at which the user signs in.
    pub url: String,
    /// Time before which it has to come back.
    pub closes_at: Timestamp,
}

/// Reasons for which the address of a login is not taken.
#[derive(Debug, thiserror::Error)]
pub enum AddressRefusal {
    #[error("the login took too long")]
    Closed,
    #[error(transparent)]
    Login(#[from] LoginFault),
    /// Another account signed in than the user's.
    #[error("another account signed in")]
    OtherAccount(PlatformId),
    /// The stored device cannot be read now.
    #[error("the registered device cannot be read now")]
    AwaitsKey,
    #[error(transparent)]
    Database(#[from] DbError),
}

/// The mark of a registration in the address at which its login ends.
fn mark(id: &str) -> String {
    id.replace('-', "")
}

/// A user's registration is worked on until this is dropped.
struct RunningRegistration<'a>(&'a Registrar, UserId);

impl Drop for RunningRegistration<'_> {
    fn drop(&mut self) {
        self.0.running().remove(&self.1);
    }
}

impl Registrar {
    fn running(&self) -> MutexGuard<'_, HashMap<UserId, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while a step of this user's registration is made.
    pub fn is_running(&self, user: &UserId) -> bool {
        self.running().contains_key(user)
    }

    /// Ends the steps of a user's registration whose row is gone. A request to the game is waited for, because it may have
    /// registered the device already.
    pub fn cancel(&self, user: &UserId) {
        if let Some(cancelled) = self.running().get(user) {
            cancelled.cancel();
        }
    }

    /// Goes on with what is due, without end: renewals, steps that failed and may succeed, and what the end of an earlier
    /// process cut off.
    pub async fn run(self: Arc<Self>) {
        // They end with this task.
        let mut working = JoinSet::new();
        loop {
            while working.try_join_next().is_some() {}
            let now = self.clock.now();
            match self.pool.read(move |db| push_registrations::list_due(db, now, 2 * AT_ONCE as i64)).await {
                Ok(due) => {
                    for user in due {
                        let registrar = self.clone();
                        working.spawn_local(async move { registrar.proceed(&user).await });
                    }
                }
                Err(error) => log_failure("registrations that are due were not read", &error),
            }
            self.clock.reach(self.clock.moment() + LOOK_EVERY).await;
        }
    }

    /// Goes on with a user's registration until it is made or a step fails. Does nothing while it is worked on already, or
    /// as many others are: a due one then waits for the next look.
    pub async fn proceed(&self, user: &UserId) {
        let cancelled = CancellationToken::new();
        {
            let mut running = self.running();
            if running.contains_key(user) || running.len() >= AT_ONCE {
                return;
            }
            running.insert(user.clone(), cancelled.clone());
        }
        let _running = RunningRegistration(self, user.clone());
        if let Err(error) = self.make_steps(user, &cancelled).await {
            log::warn!(user:%; "a registration was not stored: {error}");
        }
    }

    async fn make_steps(&self, user: &UserId, cancelled: &CancellationToken) -> Result<(), DbError> {
        let owner = user.clone();
        let read = move |db: &mut Db| {
            let credential = push_credentials::get(db, &owner)?;
            Ok((push_registrations::get(db, &owner)?, users::find(db, &owner)?, credential))
        };
        let (Some(mut row), Some(owner), credential) = self.pool.read(read).await? else { return Ok(()) };
        let Some(mut device) = self.opened(&row) else {
            // The operator may configure the key again; nothing is replaced until then.
            row.due_at = Some(self.clock.now() + pause_after(u32::MAX));
            return self.update(&row).await.map(drop);
        };
        if row.ends_at.is_some() && device.expires_at == row.ends_at {
            if !credential.is_some_and(|credential| credential.has(row.bundle_at)) {
                return self.end_renewals(row, device).await;
            }
            // Made, and due: it is renewed.
            device.expires_at = None;
        }
        // A login that was begun beside a renewal stays open.
        let awaits_login =
            row.ends_at.is_some() && row.progress.step.as_deref() == Some(RegistrationStep::SignIn.word());
        let mut discarded = false;
        loop {
            let now = self.clock.now();
            match device.next_step() {
                RegistrationStep::SignIn => {
                    (row.renew, row.due_at) = (false, None);
                    return self.update(&row).await.map(drop);
                }
                RegistrationStep::Credential => {
                    return self.store_credential(row, device, &owner.platform_id, awaits_login).await;
                }
                step => {
                    let made = tokio::select! {
                        made = self.client.advance(&mut device, now) => made,
                        () = cancelled.cancelled(), if step != RegistrationStep::GameRegistration => return Ok(()),
                    };
                    match made {
                        Ok(()) => log::info!(user:%, step = step.word(); "a step of a registration succeeded"),
                        // Once: a fresh part that is refused, too, is not the cause.
                        Err(failure) if !discarded && device.discard_refused(&failure) => discarded = true,
                        Err(failure) => return self.fail(row, device, failure).await,
                    }
                }
            }
            if !awaits_login {
                row.progress.step = Some(device.next_step().word().to_owned());
            }
            row.device = self.sealed(&row.user_id, &device);
            if !self.update(&row).await? {
                return self.end_abandoned(&row.user_id, &device).await;
            }
        }
    }

    /// Ends at the game what was registered there for a row that was deleted meanwhile. Where another login has taken the
    /// row, its registration replaces this one.
    async fn end_abandoned(&self, user: &UserId, device: &RegisteredDevice) -> Result<(), DbError> {
        let owner = user.clone();
        let row = self.pool.read(move |db| push_registrations::get(db, &owner)).await?;
        if row.is_none_or(|row| row.is_device_only()) && device.expires_at.is_some() {
            let ended = self.unregister(device).await;
            log::info!(user:%, ended; "a registration was deleted while it was made");
        }
        Ok(())
    }

    /// Ends the renewals of a device whose bundle was replaced by another one: the registration at the game, too, because
    /// nothing receives its pushes.
    async fn end_renewals(&self, mut row: PushRegistration, mut device: RegisteredDevice) -> Result<(), DbError> {
        let ended = self.unregister(&device).await;
        log::info!(user:% = row.user_id, ended; "a registration is not renewed: another bundle has replaced it");
        (device.auth_token, row.renew, row.due_at) = (None, false, None);
        row.device = self.sealed(&row.user_id, &device);
        self.update(&row).await.map(drop)
    }

    /// Stores the bundle of the device, or for a known bundle its new end. A renewal ends when the user has replaced the
    /// bundle by another one.
    async fn store_credential(
        &self,
        mut row: PushRegistration,
        mut device: RegisteredDevice,
        owner: &PlatformId,
        awaits_login: bool,
    ) -> Result<(), DbError> {
        let (Some(bundle), Some(ends_at)) = (device.bundle(owner), device.expires_at) else { return Ok(()) };
        let bundle = NewBundle { json: bundle.to_string().into_bytes(), uploaded_by: None, expires_at: ends_at };
        let (now, chance, vault, user) =
            (self.clock.now(), self.random.byte(), self.vault.clone(), row.user_id.clone());
        let is_renewal = row.ends_at.is_some();
        let (failed_row, failed_device) = (row.clone(), device.stored());
        let write = move |db: &mut Db| -> Result<bool, BundleNotStored> {
            let is_known = match row.bundle_at {
                Some(at) => push_credentials::extend(db, &row.user_id, at, ends_at)?,
                None => false,
            };
            if !is_known && !is_renewal {
                let (_, uploaded_at) = bundle_upload::store(db, &vault, &row.user_id, &bundle, now)?;
                row.bundle_at = Some(uploaded_at);
            }
            row.renew &= is_known || !is_renewal;
            if !row.renew {
                device.auth_token = None;
            }
            if !awaits_login {
                row.progress = StoredProgress::default();
            }
            row.ends_at = Some(ends_at);
            row.due_at = row.renew.then(|| renew_at(ends_at, chance, now));
            row.device = vault.seal_device(&row.user_id, &device.stored());
            match push_registrations::update(db, &row)? {
                true => Ok(!is_known),
                // Deleted or asked for again meanwhile: nothing of this one is stored.
                false => Err(DbError::Conflict.into()),
            }
        };
        let worker = self.worker.clone();
        let changed = user.clone();
        let notify = move |is_new: &bool| {
            if *is_new {
                worker.do_send(CredentialChanged { user: changed });
            }
        };
        match self.pool.write_and_notify(write, notify).await {
            Ok(_) => log::info!(user:%, renewal = is_renewal; "a device is registered for the game's pushes"),
            Err(error) => return self.credential_not_stored(error, failed_row, &failed_device).await,
        }
        Ok(())
    }

    /// The bundle of this device, which is JSON, was not stored: its row was deleted or is of another login by now, or the
    /// step has failed.
    async fn credential_not_stored(
        &self,
        error: BundleNotStored,
        row: PushRegistration,
        device: &[u8],
    ) -> Result<(), DbError> {
        let fault = match error {
            BundleNotStored::Database(DbError::Conflict) => None,
            BundleNotStored::AwaitsKey => Some(StepFault::CredentialSealed),
            BundleNotStored::Database(_) => Some(StepFault::NotStored),
        };
        if fault.is_some() {
            log::warn!(user:% = row.user_id; "a registered bundle was not stored: {error}");
        }
        let Ok(device) = serde_json::from_slice(device) else { return Ok(()) };
        match fault {
            None => self.end_abandoned(&row.user_id, &device).await,
            Some(fault) => {
                let failure = StepFailure { step: RegistrationStep::Credential, fault, answer: None };
                self.fail(row, device, failure).await
            }
        }
    }

    /// Stores the failure. What may pass is tried again: with renewal until the token of the account ends, otherwise as
    /// long as the login is open.
    async fn fail(
        &self,
        mut row: PushRegistration,
        mut device: RegisteredDevice,
        failure: StepFailure,
    ) -> Result<(), DbError> {
        let (now, is_transient) = (self.clock.now(), failure.is_transient());
        let StepFailure { step, mut fault, mut answer } = failure;
        let goes_on = is_transient && device.has_login(now) && (row.renew || now < row.closes_at);
        if is_transient && !device.has_login(now) {
            // Only the user can go on.
            (fault, answer) = (StepFault::LoginNotTaken, None);
        }
        if !goes_on {
            (device.auth_token, row.renew) = (None, false);
        }
        let failures = row.progress.failures.saturating_add(1);
        log::info!(user:% = row.user_id, step = step.word(), fault = fault.code(); "a step of a registration failed");
        row.due_at = goes_on.then(|| now + pause_after(u32::try_from(failures - 1).unwrap_or_default()));
        row.progress = StoredProgress {
            step: Some(step.word().to_owned()),
            fault: Some(fault.code().to_owned()),
            answer,
            failures,
        };
        row.device = self.sealed(&row.user_id, &device);
        self.update(&row).await.map(drop)
    }

    /// Begins a registration, in place of one whose login has not come back. One that holds goes on meanwhile.
    pub async fn open(&self, user: &UserId, renew: bool) -> Result<OpenedLogin, DbError> {
        let (login, row) = self.new_login(user, renew);
        let vault = self.vault.clone();
        self.pool.write(move |db| open_login(db, &vault, row)).await?;
        Ok(login)
    }

    /// A login that is not stored yet, for [`open_login`].
    pub fn new_login(&self, user: &UserId, renew: bool) -> (OpenedLogin, PushRegistration) {
        let now = self.clock.now();
        let (id, closes_at): (String, _) = (self.random.id(now), now + LOGIN_WITHIN);
        let device = RegisteredDevice::new(self.random.id(now));
        let step = Some(RegistrationStep::SignIn.word().to_owned());
        let new = PushRegistration {
            user_id: user.clone(),
            id: id.clone(),
            renew_asked: renew,
            renew: false,
            closes_at,
            progress: StoredProgress { step, ..StoredProgress::default() },
            device: self.sealed(user, &device),
            bundle_at: None,
            ends_at: None,
            due_at: None,
        };
        let url = self.client.login_url(&return_url(DEAD_PORT, &mark(&id)));
        (OpenedLogin { id, url, closes_at }, new)
    }

    /// Takes the address at which the login of this registration has ended; true: the next steps are to be made
    /// ([`proceed`](Self::proceed)). False: the address came again, and everything is made as it was asked for.
    pub async fn take_address(
        &self,
        mut row: PushRegistration,
        address: &str,
        owner: &PlatformId,
    ) -> Result<bool, AddressRefusal> {
        let now = self.clock.now();
        if row.closes_at <= now {
            return Err(AddressRefusal::Closed);
        }
        let login = read_answer(address, &mark(&row.id), now)?;
        if login.platform_id != *owner {
            return Err(AddressRefusal::OtherAccount(login.platform_id));
        }
        // A renewal may have made everything beside a login that asks for something else.
        if row.progress.step.is_none() && row.renew == row.renew_asked {
            return Ok(false);
        }
        let mut device = self.opened(&row).ok_or(AddressRefusal::AwaitsKey)?;
        device.auth_token = Some(login.token.into());
        device.expires_at = None;
        row.renew = row.renew_asked;
        row.ends_at = None;
        row.due_at = Some(now);
        row.progress = StoredProgress { step: Some(device.next_step().word().to_owned()), ..StoredProgress::default() };
        row.device = self.sealed(&row.user_id, &device);
        if self.update(&row).await? { Ok(true) } else { Err(DbError::NotFound.into()) }
    }

    /// The device of a registration; `None`, with a line in the log, when it does not open.
    pub fn opened(&self, row: &PushRegistration) -> Option<RegisteredDevice> {
        open_device(&self.vault, row)
    }

    fn sealed(&self, user: &UserId, device: &RegisteredDevice) -> SealedDevice {
        self.vault.seal_device(user, &device.stored())
    }

    async fn update(&self, row: &PushRegistration) -> Result<bool, DbError> {
        let row = row.clone();
        self.pool.write(move |db| push_registrations::update(db, &row)).await
    }

    /// Ends the registration of a device at the game; false when that was not possible, and it ends by itself.
    pub async fn unregister(&self, device: &RegisteredDevice) -> bool {
        if device.auth_token.is_none() || device.expo_token.is_none() {
            return false;
        }
        let ended = timeout(UNREGISTER_DEADLINE, self.client.unregister(device)).await;
        matches!(ended, Ok(Ok(true)))
    }
}
