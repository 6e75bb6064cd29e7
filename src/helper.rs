//! `companion helper URL`: registers this machine for the game's pushes of its user, and hands what it gives to the
//! service at the URL. For users who keep the token of their account at home: it never leaves this machine.
//!
//! The steps are those of the service ([`RegistrationClient`]). Each is written to a file of its user's before the next
//! one, so that a crash repeats none. Nothing secret is ever printed.

mod error;
mod login;
mod output;
mod service_calls;
mod state;

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
};

use chrono::TimeDelta;

pub use self::error::HelperError;
use self::{
    login::{LoginWay, sign_in},
    output::say,
    service_calls::{ActivationAnswer, ServiceCalls, UploadAnswer},
    state::{HelperState, StateFile},
};
use crate::{
    clients::{
        http,
        registration::{RegisteredDevice, RegistrationClient},
    },
    clock::Clock,
    config::{RegistrationSettings, TrustSettings},
    crypto::random::Random,
    domain::{
        game_login::{GameLogin, read_token},
        registration::{PAIR_NOW, RegistrationStep, SHORTEST_PAUSE, StepFailure, StepFault, pause_after, renew_at},
        time::Timestamp,
    },
    net::tls_config,
};
use secrecy::ExposeSecret as _;

/// Pause between two questions whether a user has confirmed this device, or the service receives the pushes.
const ASK_EVERY: TimeDelta = TimeDelta::seconds(2);
/// Questions before the helper goes on without an answer.
const ASKED: u32 = 30;
/// Longest sleep: the machine may sleep meanwhile, and the time of day counts.
const LONGEST_SLEEP: TimeDelta = TimeDelta::hours(1);

/// Options of the helper.
#[derive(clap::Args)]
pub struct HelperOptions {
    /// The service, as in the dashboard: https://…
    url: String,
    /// Something else than to register and to renew while this runs
    #[arg(value_enum)]
    action: Option<HelperAction>,
    /// Pairing code of the dashboard; asked for on a terminal
    #[arg(long)]
    code: Option<String>,
    /// Print the address of the login, and open no browser
    #[arg(long)]
    no_browser: bool,
    /// Read the address at which the browser ends from standard input, as if it ran on another machine
    #[arg(long)]
    paste: bool,
    /// Stop once the service has the registration, and renew nothing
    #[arg(long)]
    once: bool,
    /// Where to keep the registration [default: the user's own directory for data]
    #[arg(long)]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    registration: RegistrationSettings,
    #[command(flatten)]
    trust: TrustSettings,
}

/// Action of the helper.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HelperAction {
    /// Print the account, how long its registration lasts, and what the service says
    Status,
    /// Renew now
    Renew,
    /// End the registration at the game, and delete everything here
    Forget,
}

/// Runs until the registration is handed over, or an error. Without `--once` it renews by this clock, without end.
pub async fn run(options: HelperOptions, clock: Clock) -> Result<(), HelperError> {
    let helper = Helper::new(&options, clock)?;
    match options.action {
        None => helper.register(&options).await,
        Some(HelperAction::Status) => helper.status().await,
        Some(HelperAction::Renew) => helper.renew_now().await,
        Some(HelperAction::Forget) => helper.forget().await,
    }
}

struct Helper {
    clock: Clock,
    random: Random,
    http: reqwest::Client,
    settings: RegistrationSettings,
    /// Knows the game's app only if the key is set here.
    client: RegistrationClient,
    service: ServiceCalls,
    file: StateFile,
}

impl Helper {
    fn new(options: &HelperOptions, clock: Clock) -> Result<Self, HelperError> {
        let settings = options.registration.clone();
        let checked = settings.clone().check_alone().map_err(HelperError::Settings)?;
        let tls = tls_config(options.trust.extra_ca_file.as_deref()).map_err(HelperError::io("certificates"))?;
        let http = http::client(tls).map_err(HelperError::io("outgoing connections"))?;
        let service = ServiceCalls::new(http.clone(), &options.url).map_err(HelperError::Settings)?;
        let file = StateFile::of(options.data_dir.clone(), service.name())?;
        let random = Random::system();
        let client = RegistrationClient::new(http.clone(), checked, random.clone());
        Ok(Self { clock, random, http, settings, client, service, file })
    }

    /// A client that knows the game's app as the service does. The sites are those of this machine: a service cannot lead
    /// the login elsewhere.
    async fn client_of_service(&self, state: &HelperState) -> Result<RegistrationClient, HelperError> {
        let settings = self.settings.clone().for_app(self.service.game_app(state).await?);
        let settings = settings.check_alone().map_err(HelperError::Settings)?;
        if !settings.has_key() {
            return Err(HelperError::NoKey);
        }
        Ok(RegistrationClient::new(self.http.clone(), settings, self.random.clone()))
    }

    async fn pause(&self, span: TimeDelta) {
        self.clock.reach(self.clock.moment() + span).await;
    }

    /// The whole way, from the first step that is not made.
    async fn register(&self, options: &HelperOptions) -> Result<(), HelperError> {
        let _running = self.file.lock()?;
        let mut state = match self.file.read()? {
            Some(state) => state,
            None => HelperState::new(self.random.id(self.clock.now())),
        };
        if state.device_token.is_none() {
            self.pair(&mut state, options.code.clone()).await?;
        }
        let mut failures = 0;
        loop {
            match self.make_due_steps(&mut state, options).await {
                Ok(()) => break,
                // The login has ended meanwhile: the player signs in once more.
                Err(HelperError::SignInAgain) if !options.once => {}
                // A helper that is started with the machine may be there before the network or the service is.
                Err(error) if !options.once && error.is_transient() => {
                    say(format!("..   {error}; trying again"));
                    self.pause(pause_after(failures)).await;
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
        }
        self.wait_for_session(&state).await?;
        if options.once {
            return Ok(());
        }
        self.renew_for_ever(&mut state).await
    }

    /// Makes every step that is left; all that a renewal needs if the registration became due while this did not run, is
    /// over, or its login was refused.
    async fn make_due_steps(&self, state: &mut HelperState, options: &HelperOptions) -> Result<(), HelperError> {
        let now = self.clock.now();
        // Without a login, nothing is renewed when it becomes due: the player signs in now.
        let is_due = state
            .device
            .expires_at
            .is_some_and(|_| state.device.auth_token.is_none() || due_at(&state.device, now - SHORTEST_PAUSE) <= now);
        if is_due {
            state.device.auth_token.take_if(|token| read_token(token.expose_secret(), now).is_err());
        }
        let known = state.device.expires_at.take_if(|_| is_due);
        self.make_steps_beside(state, known, Some(options)).await
    }

    /// Makes the steps beside a registration that is known to end then: it holds if they fail.
    async fn make_steps_beside(
        &self,
        state: &mut HelperState,
        known: Option<Timestamp>,
        options: Option<&HelperOptions>,
    ) -> Result<(), HelperError> {
        let made = self.make_steps(state, options).await;
        if known.is_some() && state.device.expires_at.is_none() {
            state.device.expires_at = known;
            self.file.write(state)?;
        }
        made
    }

    /// Exchanges a pairing code for the token of this device.
    async fn pair(&self, state: &mut HelperState, code: Option<String>) -> Result<(), HelperError> {
        let code = match code {
            Some(code) => code,
            None if io::stdin().is_terminal() => asked("Code from the dashboard: ")?,
            None => return Err(HelperError::NoCode),
        };
        let mut waits = false;
        loop {
            match self.service.activate(code.trim()).await? {
                ActivationAnswer::Paired(token) => {
                    state.device_token = Some(token);
                    self.file.write(state)?;
                    say(format!("ok   paired with {}", self.service.name()));
                    return Ok(());
                }
                ActivationAnswer::Confirm => {
                    if !waits {
                        say("..   confirm this device in the dashboard, where you got the code".to_owned());
                    }
                    waits = true;
                    self.pause(ASK_EVERY).await;
                }
                ActivationAnswer::Refused(why) => return Err(HelperError::Service(why)),
            }
        }
    }

    /// Makes every step that is left and hands the bundle over. Without options there is no user to sign in.
    async fn make_steps(&self, state: &mut HelperState, options: Option<&HelperOptions>) -> Result<(), HelperError> {
        let (mut discarded, mut keyed) = (false, None);
        loop {
            let now = self.clock.now();
            // Google and Expo are still to be asked. Before the login, so that no one signs in for nothing.
            let needs_app = state.device.expo_token.is_none() && state.device.expires_at.is_none();
            if needs_app && keyed.is_none() && !self.client.settings().has_key() {
                keyed = Some(self.client_of_service(state).await?);
            }
            let client = keyed.as_ref().unwrap_or(&self.client);
            match state.device.next_step() {
                RegistrationStep::SignIn => {
                    let options = options.ok_or(HelperError::SignInAgain)?;
                    let login = self.login(state, options).await?;
                    say(format!("ok   signed in as {}", login.platform_id));
                    state.device.auth_token = Some(login.token.into());
                }
                RegistrationStep::Credential if state.uploaded_at.is_some() => return Ok(()),
                RegistrationStep::Credential => return self.hand_over(state).await,
                step => match client.advance(&mut state.device, now).await {
                    Ok(()) => {
                        state.uploaded_at = state.uploaded_at.filter(|_| step != RegistrationStep::GameRegistration);
                        say(format!("ok   {}", step.word()));
                    }
                    Err(failure) if !discarded && state.device.discard_refused(&failure) => {
                        say(format!("..   {failure} Once more, with a fresh one."));
                        discarded = true;
                    }
                    Err(failure) => return Err(self.failed(state, failure)?),
                },
            }
            state.last_error = None;
            self.file.write(state)?;
        }
    }

    /// Stores a failure, and gives the error for it. A login that is refused is forgotten.
    fn failed(&self, state: &mut HelperState, failure: StepFailure) -> Result<HelperError, HelperError> {
        state.last_error = Some(failure.to_string());
        let is_login = failure.fault == StepFault::LoginNotTaken;
        if is_login {
            state.device.auth_token = None;
        }
        self.file.write(state)?;
        Ok(if is_login { HelperError::SignInAgain } else { HelperError::Step { failure } })
    }

    async fn login(&self, state: &HelperState, options: &HelperOptions) -> Result<GameLogin, HelperError> {
        let way = if options.paste {
            LoginWay::Paste
        } else if options.no_browser {
            LoginWay::Listen
        } else {
            LoginWay::Browser
        };
        let owner = self.service.owner(state).await?;
        let login = sign_in(&self.client, &self.random.hex::<16>(), way, &self.clock).await?;
        // One identity is never registered for two accounts: checked before anything is registered.
        if owner.is_some_and(|owner| owner != login.platform_id.as_str()) {
            return Err(HelperError::OtherAccount);
        }
        Ok(login)
    }

    /// Uploads the bundle.
    async fn hand_over(&self, state: &mut HelperState) -> Result<(), HelperError> {
        let now = self.clock.now();
        let Some(login) = self.login_of(state, now) else {
            // Ended while this machine was off.
            state.device.auth_token = None;
            state.device.expires_at = None;
            self.file.write(state)?;
            return Err(HelperError::SignInAgain);
        };
        let bundle = state.device.bundle(&login.platform_id).ok_or(HelperError::NothingRegistered)?;
        match self.service.upload(state, &bundle).await? {
            UploadAnswer::Stored => {}
            UploadAnswer::DeviceGone => return Err(HelperError::DeviceGone),
            UploadAnswer::OtherAccount => return Err(HelperError::OtherAccount),
            UploadAnswer::Refused(why) => return Err(HelperError::Service(why)),
        }
        state.uploaded_at = Some(now);
        state.last_error = None;
        self.file.write(state)?;
        say(format!("ok   handed over to {}, until {}", self.service.name(), day(login.expires_at)));
        Ok(())
    }

    /// The login whose token is kept; `None` when there is none, or it has ended.
    fn login_of(&self, state: &HelperState, now: Timestamp) -> Option<GameLogin> {
        read_token(state.device.auth_token.as_ref()?.expose_secret(), now).ok()
    }

    /// Waits until the service receives the pushes: a pairing before that would be missed.
    async fn wait_for_session(&self, state: &HelperState) -> Result<(), HelperError> {
        for _ in 0..ASKED {
            match self.service.session(state).await {
                Ok(session) if session.as_deref() == Some("connected") => {
                    say(format!("ok   the service receives your pushes. {PAIR_NOW}"));
                    return Ok(());
                }
                Ok(_) | Err(HelperError::ServiceAway(_)) => {}
                Err(error) => return Err(error),
            }
            self.pause(ASK_EVERY).await;
        }
        say("..   the service does not receive your pushes yet; `status` says when it does".to_owned());
        Ok(())
    }

    /// Renews before the end, again and again.
    async fn renew_for_ever(&self, state: &mut HelperState) -> Result<(), HelperError> {
        let mut failures = 0;
        let mut due = due_at(&state.device, self.clock.now());
        say(format!("     renews itself from {} while this runs; Ctrl-C ends it", day(due)));
        loop {
            let now = self.clock.now();
            if now < due {
                self.pause((due - now).min(LONGEST_SLEEP)).await;
                continue;
            }
            match self.renew(state).await {
                Ok(()) => {
                    failures = 0;
                    due = due_at(&state.device, self.clock.now());
                }
                Err(error @ (HelperError::Service(_) | HelperError::ServiceAway(_) | HelperError::Step { .. })) => {
                    say(format!("..   not renewed: {error}"));
                    due = self.clock.now() + pause_after(failures);
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn renew(&self, state: &mut HelperState) -> Result<(), HelperError> {
        // A registration that is not handed over yet is not made once more.
        let known = state.device.expires_at.take_if(|_| state.uploaded_at.is_some());
        self.make_steps_beside(state, known, None).await
    }

    async fn renew_now(&self) -> Result<(), HelperError> {
        let _running = self.file.lock()?;
        let mut state = self.file.read()?.ok_or(HelperError::NothingRegistered)?;
        self.renew(&mut state).await
    }

    async fn status(&self) -> Result<(), HelperError> {
        let state = self.file.read()?.ok_or(HelperError::NothingRegistered)?;
        let now = self.clock.now();
        say(format!("paired with    {}", self.service.name()));
        match self.login_of(&state, now) {
            Some(login) => say(format!("account        {}, login until {}", login.platform_id, day(login.expires_at))),
            None => say("account        not signed in, or the login has ended".to_owned()),
        }
        if let Some(until) = state.device.expires_at {
            say(format!("registered     until {}, renewed from {}", day(until), day(due_at(&state.device, now))));
        }
        if let Some(at) = state.uploaded_at {
            say(format!("handed over    {}", day(at)));
        }
        if let Some(error) = &state.last_error {
            say(format!("last failure   {error}"));
        }
        let session = match self.service.session(&state).await {
            Ok(session) => session.unwrap_or_else(|| "no push session".to_owned()),
            Err(error) => error.to_string(),
        };
        say(format!("the service    {session}"));
        Ok(())
    }

    async fn forget(&self) -> Result<(), HelperError> {
        let running = self.file.lock()?;
        let state = self.file.read()?.ok_or(HelperError::NothingRegistered)?;
        let is_registered = state.device.auth_token.is_some() && state.device.expo_token.is_some();
        match self.client.unregister(&state.device).await {
            Ok(true) => say("ok   the registration at the game has ended".to_owned()),
            _ if !is_registered => {
                if let Some(at) = state.device.expires_at {
                    say(format!("..   the registration at the game ends by itself, {}: the login has ended", day(at)));
                }
            }
            Ok(false) => say("..   the game knew no such registration".to_owned()),
            Err(failure) => say(format!("..   the registration ends by itself after 14 days: {failure}")),
        }
        self.file.delete(running)?;
        say("ok   everything here is deleted. Delete this device in the dashboard, too".to_owned());
        Ok(())
    }
}

/// When the registration of this device is renewed; `last` is when it was, at the latest.
fn due_at(device: &RegisteredDevice, last: Timestamp) -> Timestamp {
    let chance = device.device_id.bytes().fold(0, |chance, byte| chance ^ byte.wrapping_mul(31));
    device.expires_at.map_or(last, |ends_at| renew_at(ends_at, chance, last))
}

fn day(at: Timestamp) -> impl Display {
    at.format("%Y-%m-%d %H:%M UTC")
}

/// Asks on the terminal.
fn asked(question: &str) -> Result<String, HelperError> {
    print!("{question}");
    let mut line = String::new();
    let read = io::stdout().flush().and_then(|()| io::stdin().read_line(&mut line));
    read.map(|_| line).map_err(HelperError::io("the terminal"))
}
