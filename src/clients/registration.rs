//! The registration for the game's pushes, step by step: Google's check-in, installation and push address, Expo's token,
//! and the game's companion site.
//!
//! To them we are the game's Android app: none of them offers this to others, and each may end it any day. So every step
//! reports its own failure by name ([`StepFault`]), with a word of the answer and never its text. All of it runs on the
//! service and, in the same way, on a user's machine (`companion helper`).

mod call;
mod check_in;
mod device;
mod expo;
mod game_site;
mod google;

use std::time::Duration;

use reqwest::RequestBuilder;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{sync::Semaphore, time::sleep};

use self::{
    call::{CallFault, StepAnswer, call},
    google::PushAddressAnswer,
};
pub use self::{
    device::{DeviceIdentity, RegisteredDevice},
    google::{key_question, refusal},
};
use crate::{
    config::Registration,
    crypto::random::Random,
    domain::{
        game_login::{GameLogin, login_query, read_token},
        registration::{RegistrationStep, StepFailure, StepFault},
        time::Timestamp,
    },
    net::neighbour::Neighbour,
};

/// Requests at once; others wait for their turn. Pauses between them take none.
const CALLS_AT_ONCE: usize = 8;
/// Attempts of a request that is not answered, or with a fault of the other side.
const ATTEMPTS: u32 = 3;
/// Google does not know a fresh device everywhere at once: pauses of 1, 2, 4 … 60 units, 300 in all, and once more
/// after another check-in.
const LONGEST_PAUSE: u32 = 60;
const PAUSES_IN_ALL: u32 = 300;
const ROUNDS: u32 = 2;

/// The neighbours of the registration.
pub struct RegistrationClient {
    http: reqwest::Client,
    settings: Registration,
    random: Random,
    /// The unit of the pauses: a second, and nothing in the tests below.
    unit: Duration,
    turns: Semaphore,
}

impl RegistrationClient {
    pub(crate) fn new(http: reqwest::Client, settings: Registration, random: Random) -> Self {
        Self { http, settings, random, unit: Duration::from_secs(1), turns: Semaphore::new(CALLS_AT_ONCE) }
    }

    /// The sites, and the game's app.
    pub fn settings(&self) -> &Registration {
        &self.settings
    }

    /// The page of the game's site at which a player signs in; the browser ends at `return_url`, a loopback address.
    pub fn login_url(&self, return_url: &str) -> String {
        format!("{}?{}", self.settings.game_url.at("/login"), login_query(return_url))
    }

    /// Makes the next step of the device. The caller stores the device after each, so that none is repeated. Nothing is
    /// left to be made here once the device is registered or its login is missing.
    pub async fn advance(&self, device: &mut RegisteredDevice, now: Timestamp) -> Result<(), StepFailure> {
        match device.next_step() {
            RegistrationStep::CheckIn => {
                device.identity = Some(self.check_in(None).await?);
            }
            RegistrationStep::Installation => {
                device.installation = Some(self.installation().await?.into());
            }
            RegistrationStep::PushAddress => {
                let identity = device.identity.as_ref().ok_or_else(|| unreadable(RegistrationStep::CheckIn))?;
                // Used once, whatever comes of it.
                let installation = device.installation.take();
                device.push_address = Some(self.push_address(identity, installation).await?.into());
            }
            RegistrationStep::ExpoToken => {
                let address = device.push_address.as_ref().map_or("", |address| address.expose_secret());
                device.expo_token = Some(self.expo_token(&device.device_id, address).await?.into());
            }
            RegistrationStep::GameRegistration => {
                let login = self.register(device, now).await?;
                device.expires_at = Some(login.expires_at);
                device.auth_token = Some(login.token.into());
            }
            RegistrationStep::SignIn | RegistrationStep::Credential => {}
        }
        Ok(())
    }

    /// Google's identity of a device, a fresh one or a known one once more.
    async fn check_in(&self, known: Option<&DeviceIdentity>) -> Result<DeviceIdentity, StepFailure> {
        let step = RegistrationStep::CheckIn;
        let request = google::check_in(&self.http, &self.settings, known);
        let StepAnswer { status, body } = self.asked(Neighbour::Google, step, request).await?;
        let read = (status == 200).then(|| check_in::read(&body)).flatten();
        read.ok_or(StepFailure { answer: Some(format!("status_{status}")), ..unreadable(step) })
    }

    /// Google's address of a device, first with this installation of the app.
    async fn push_address(
        &self,
        identity: &DeviceIdentity,
        mut installation: Option<SecretString>,
    ) -> Result<String, StepFailure> {
        for round in 0..ROUNDS {
            if round > 0 {
                self.check_in(Some(identity)).await?;
            }
            let (mut pause, mut paused) = (1, 0);
            loop {
                let stored = installation.take();
                let is_stored = stored.is_some();
                let used = match stored {
                    Some(stored) => stored,
                    None => self.installation().await?.into(),
                };
                let request = google::register(&self.http, &self.settings, identity, used.expose_secret());
                let step = RegistrationStep::PushAddress;
                let StepAnswer { status, body } = self.asked(Neighbour::Google, step, request).await?;
                match google::read_push_address(status, &body) {
                    PushAddressAnswer::Address(address) => return Ok(address),
                    PushAddressAnswer::NotYet => {}
                    // A stored one may have been used before a crash, or be old.
                    PushAddressAnswer::Refused(_) if is_stored => continue,
                    PushAddressAnswer::Refused(word) => {
                        return Err(StepFailure { step, fault: StepFault::PushAddressRefused, answer: Some(word) });
                    }
                }
                if paused >= PAUSES_IN_ALL {
                    break;
                }
                sleep(self.unit * pause).await;
                paused += pause;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
        let (step, fault) = (RegistrationStep::PushAddress, StepFault::PhoneRegistration);
        Err(StepFailure { step, fault, answer: None })
    }

    /// The token of an installation of the app, for one registration.
    async fn installation(&self) -> Result<String, StepFailure> {
        let step = RegistrationStep::Installation;
        let request = google::install(&self.http, &self.settings, &self.random);
        let StepAnswer { status, body } = self.asked(Neighbour::Google, step, request).await?;
        google::read_installation(status, &body).map_err(|(fault, word)| StepFailure {
            step,
            fault,
            answer: Some(word),
        })
    }

    async fn expo_token(&self, device_id: &str, push_address: &str) -> Result<String, StepFailure> {
        let step = RegistrationStep::ExpoToken;
        let request = expo::token(&self.http, &self.settings, device_id, push_address);
        let StepAnswer { status, body } = self.asked(Neighbour::Expo, step, request).await?;
        expo::read_token(status, &body).map_err(|word| StepFailure {
            step,
            fault: StepFault::ExpoRefused,
            answer: Some(word),
        })
    }

    /// Registers at the game; its answer has the newest token, which later renewals need.
    async fn register(&self, device: &RegisteredDevice, now: Timestamp) -> Result<GameLogin, StepFailure> {
        let step = RegistrationStep::GameRegistration;
        let failure = |fault, word| StepFailure { step, fault, answer: Some(word) };
        let request = game_site::register(&self.http, &self.settings, device);
        let StepAnswer { status, body } = self.asked(Neighbour::GameSite, step, request).await?;
        match status {
            200 => {
                let token = game_site::read_token(&body).and_then(|token| read_token(&token, now).ok());
                token.ok_or_else(|| failure(StepFault::GameRefused, "no_token".to_owned()))
            }
            401 | 403 => Err(failure(StepFault::LoginNotTaken, format!("status_{status}"))),
            _ => Err(failure(StepFault::GameRefused, format!("status_{status}"))),
        }
    }

    /// Ends the registration at the game; false when the game does not take it, which in practice means that there was
    /// none.
    pub async fn unregister(&self, device: &RegisteredDevice) -> Result<bool, StepFailure> {
        let request = game_site::unregister(&self.http, &self.settings, device);
        let step = RegistrationStep::GameRegistration;
        Ok(self.asked(Neighbour::GameSite, step, request).await?.status == 200)
    }

    /// The answer to a request, which is sent up to three times.
    async fn asked(
        &self,
        neighbour: Neighbour,
        step: RegistrationStep,
        request: RequestBuilder,
    ) -> Result<StepAnswer, StepFailure> {
        let fault = match neighbour {
            Neighbour::Expo => StepFault::ExpoUnavailable,
            Neighbour::GameSite => StepFault::GameUnavailable,
            _ => StepFault::GoogleUnavailable,
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let again = request.try_clone().ok_or(StepFailure { step, fault, answer: None })?;
            let turn = self.turns.acquire().await;
            let answer = call(neighbour, again).await;
            drop(turn);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(CallFault { reason, word }) if attempt == ATTEMPTS => {
                    log::warn!(step = step.word(); "a step of a registration failed: {reason}");
                    return Err(StepFailure { step, fault, answer: word });
                }
                Err(_) => sleep(self.unit * attempt).await,
            }
        }
    }
}

fn unreadable(step: RegistrationStep) -> StepFailure {
    StepFailure { step, fault: StepFault::CheckInUnreadable, answer: None }
}

#[cfg(test)]
mod tests;
