//! The helper's calls of the service: pairing, upload, and the state of the credential.

use std::time::Duration;

use reqwest::{RequestBuilder, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use super::{error::HelperError, state::HelperState};
use crate::{
    clients::http::{self, read_capped},
    config::{BaseUrl, GameApp},
    domain::plain_text::plain_text,
};

const DEADLINE: Duration = Duration::from_secs(15);
/// Largest answer that is read, bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Characters of a text of the service that are printed.
const SHOWN: usize = 300;
/// Code of a service that cannot register, whatever comes.
const DISABLED: &str = "registration_disabled";

/// Calls to the service that the helper hands its credential to.
pub struct ServiceCalls {
    http: reqwest::Client,
    base: BaseUrl,
    name: String,
}

/// Answer to a pairing code.
pub enum ActivationAnswer {
    /// The token of this device.
    Paired(SecretString),
    /// The user has to confirm this device; the same code works then.
    Confirm,
    /// Reason, in the service's words.
    Refused(String),
}

/// The service's answer to a push credential bundle.
pub enum UploadAnswer {
    Stored,
    DeviceGone,
    OtherAccount,
    /// Reason, in the service's words.
    Refused(String),
}

impl ServiceCalls {
    /// The service at this URL, which is https unless it is this machine.
    pub fn new(http: reqwest::Client, url: &str) -> Result<Self, String> {
        let parsed = Url::parse(url.trim()).map_err(|_| format!("{url} is not a URL"))?;
        let host = parsed.host_str().unwrap_or_default();
        let is_own = host == "localhost" || host == "127.0.0.1" || host == "[::1]";
        if !(parsed.scheme() == "https" || parsed.scheme() == "http" && is_own) {
            return Err(format!("{url} is not https, and the registration is secret"));
        }
        let name = parsed.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Self { http, base: BaseUrl::from(parsed), name })
    }

    /// Host and port, as it is shown.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Exchanges a pairing code for a token.
    pub async fn activate(&self, code: &str) -> Result<ActivationAnswer, HelperError> {
        let request = self.http.post(self.base.at("/pairing/device/activate")).json(&json!({ "code": code }));
        let (status, answer) = self.sent(request).await?;
        Ok(match answer["token"].as_str() {
            Some(token) if status == StatusCode::OK && is_device_token(token) => ActivationAnswer::Paired(token.into()),
            Some(_) if status == StatusCode::OK => {
                ActivationAnswer::Refused(format!("{} answered without a token", self.name))
            }
            _ if answer["code"] == "confirmation_needed" => ActivationAnswer::Confirm,
            _ => ActivationAnswer::Refused(reason(status, &answer)),
        })
    }

    /// Uploads a bundle.
    pub async fn upload(&self, state: &HelperState, bundle: &Value) -> Result<UploadAnswer, HelperError> {
        let request = self.http.put(self.base.at("/credentials/push")).json(bundle);
        let (status, answer) = self.sent(with_token(request, state)).await?;
        Ok(match status {
            StatusCode::OK => UploadAnswer::Stored,
            StatusCode::UNAUTHORIZED => UploadAnswer::DeviceGone,
            _ if answer["code"] == "mismatched_platform_id" => UploadAnswer::OtherAccount,
            status => UploadAnswer::Refused(reason(status, &answer)),
        })
    }

    /// The game's app, as the service registers with it.
    pub async fn game_app(&self, state: &HelperState) -> Result<GameApp, HelperError> {
        let request = with_token(self.http.get(self.base.at("/credentials/push/app")), state);
        match self.sent(request).await? {
            (StatusCode::OK, answer) => {
                // An error of the reader quotes the content.
                let unreadable = |_| HelperError::Service(format!("{} answered without the game's app", self.name));
                serde_json::from_value(answer).map_err(unreadable)
            }
            (StatusCode::UNAUTHORIZED, _) => Err(HelperError::DeviceGone),
            // An older service does not know the question.
            (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => Err(HelperError::NoKey),
            (_, answer) if answer["code"] == DISABLED => Err(HelperError::NoKey),
            (status, answer) => Err(HelperError::Service(reason(status, &answer))),
        }
    }

    /// The account of the service's user; `None` from a service that does not say it.
    pub async fn owner(&self, state: &HelperState) -> Result<Option<String>, HelperError> {
        Ok(self.credential(state).await?["platformId"].as_str().map(str::to_owned))
    }

    /// The word for the state of the push session.
    pub async fn session(&self, state: &HelperState) -> Result<Option<String>, HelperError> {
        let state = self.credential(state).await?["session"]["state"].as_str().map(|word| plain_text(word, SHOWN));
        Ok(state)
    }

    async fn credential(&self, state: &HelperState) -> Result<Value, HelperError> {
        let request = with_token(self.http.get(self.base.at("/credentials/push")), state);
        match self.sent(request).await? {
            (StatusCode::OK, answer) => Ok(answer),
            (StatusCode::UNAUTHORIZED, _) => Err(HelperError::DeviceGone),
            (status, answer) => Err(HelperError::Service(reason(status, &answer))),
        }
    }

    async fn sent(&self, request: RequestBuilder) -> Result<(StatusCode, Value), HelperError> {
        let failed = |why: String| HelperError::ServiceAway(format!("{} does not answer: {why}", self.name));
        let response = request.timeout(DEADLINE).send().await.map_err(|error| failed(http::reason(&error)))?;
        let status = response.status();
        let body = read_capped(response, MAX_ANSWER).await.map_err(|error| failed(error.to_string()))?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_off = answer["code"] == DISABLED;
        if status.is_server_error() && !is_off || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(HelperError::ServiceAway(reason(status, &answer)));
        }
        Ok((status, answer))
    }
}

/// A device token, as the contract has it: 96 hex digits.
fn is_device_token(text: &str) -> bool {
    text.len() == 96 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn with_token(request: RequestBuilder, state: &HelperState) -> RequestBuilder {
    request.bearer_auth(state.device_token.as_ref().map_or("", |token| token.expose_secret()))
}

/// The service's sentence, as one clean line.
fn reason(status: StatusCode, answer: &Value) -> String {
    match answer["detail"].as_str() {
        Some(detail) => plain_text(detail, SHOWN),
        None => format!("the service answered with status {}", status.as_u16()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_elsewhere_has_to_be_https() {
        crate::crypto::install();
        let http = http::client(crate::net::tls_config(None).unwrap()).unwrap();
        let name = |url: &str| ServiceCalls::new(http.clone(), url).map(|service| service.name().to_owned());
        assert_eq!(name("https://my.host/"), Ok("my.host".to_owned()));
        assert_eq!(name("http://127.0.0.1:8080"), Ok("127.0.0.1:8080".to_owned()));
        for url in ["http://my.host", "my.host", "ftp://localhost", ""] {
            assert!(name(url).is_err(), "{url}");
        }
    }
}
