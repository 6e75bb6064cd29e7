//! The chat platform, over HTTP in the form of Discord's API: registering the support bot's commands.
//!
//! A registration replaces all commands of its scope, so it may be sent a second time. The token is in a header and
//! nowhere else; no text of the platform is passed on, only the paths and codes of what it refuses.

use std::time::Duration;

use reqwest::{
    Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    error::ClientError,
    http::{self, read_capped},
};
use crate::{
    config::{BaseUrl, ChatPlatform},
    crypto::random::Random,
    domain::backoff::jittered,
    net::neighbour::Neighbour,
};

const NEIGHBOUR: &str = "the chat platform";
/// Largest answer that is read, bytes: the stored commands.
const MAX_ANSWER: usize = 2 * 1024 * 1024;
/// One attempt.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);
/// A whole call: two attempts, and the longest pause between them.
const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// Before the second attempt after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(400);
/// A longer pause that the platform asks for is passed on instead.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause when the platform asks for one without its length.
const PAUSE: Duration = Duration::from_secs(5);
/// Largest number of values of a refusal that are named, and the depth to which they are looked for.
const MOST_VALUES: usize = 20;
const DEEPEST: usize = 12;

/// Codes of the platform.
const UNKNOWN_APPLICATION: u64 = 10_002;
const UNKNOWN_GUILD: u64 = 10_004;
const MISSING_ACCESS: u64 = 50_001;

/// Failure of a registration.
#[derive(Debug, thiserror::Error)]
pub enum ChatPlatformError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There were too many requests; after this long there may be another.
    #[error("the chat platform is busy for {} s", .0.as_secs_f64())]
    Busy(Duration),
    /// The bot's token is not valid, or is of another application.
    #[error("the chat platform does not take the token")]
    TokenRefused,
    /// There is no such guild, or the bot's application has no commands in it.
    #[error("the chat platform knows no such guild, or the application is not in it")]
    NoGuild,
    /// The platform does not take the commands.
    #[error("the chat platform refused: status {status}, code {code}")]
    Refused {
        status: u16,
        /// The platform's own number; 0 if it gave none.
        code: u64,
        values: Vec<RefusedValue>,
    },
}

/// A value that the platform does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedValue {
    /// Names and array indexes joined by dots, from the list of commands on.
    pub path: String,
    /// Reason, in the platform's own word.
    pub code: String,
}

/// The platform.
pub struct ChatClient {
    http: reqwest::Client,
    settings: ChatPlatform,
    user_agent: String,
    random: Random,
}

impl ChatClient {
    /// `own_url` is where the service says that it is: the platform wants to know who calls.
    pub fn new(http: reqwest::Client, settings: ChatPlatform, own_url: &BaseUrl, random: Random) -> Self {
        let user_agent = format!("DiscordBot ({own_url}, {})", env!("CARGO_PKG_VERSION"));
        Self { http, settings, user_agent, random }
    }

    /// Replaces the commands of this guild (decimal digits), or the global ones, by this JSON list; their number.
    pub async fn register_commands(
        &self,
        guild: Option<&str>,
        commands: &'static str,
    ) -> Result<usize, ChatPlatformError> {
        let application = &self.settings.application_id;
        let path = match guild {
            Some(guild) => format!("/applications/{application}/guilds/{guild}/commands"),
            None => format!("/applications/{application}/commands"),
        };
        let asked = async {
            let pause = match self.attempt(&path, commands).await {
                Err(ChatPlatformError::Client(_)) => jittered(RETRY_PAUSE, self.random.byte()),
                Err(ChatPlatformError::Busy(pause)) if pause <= LONGEST_PAUSE => pause,
                answer => return answer,
            };
            sleep(pause).await;
            self.attempt(&path, commands).await
        };
        let answer = timeout(CALL_DEADLINE, asked).await.unwrap_or_else(|_| Err(unavailable("no answer in time")))?;
        answer.as_array().map(Vec::len).ok_or_else(|| unavailable("its answer is no list"))
    }

    async fn attempt(&self, path: &str, commands: &'static str) -> Result<Value, ChatPlatformError> {
        let mut authorization = HeaderValue::from_str(&format!("Bot {}", self.settings.token.expose_secret()))
            .map_err(|_| unavailable("the token is no text of a header"))?;
        authorization.set_sensitive(true);
        let request = self
            .http
            .request(Method::PUT, self.settings.base_url.at(path))
            .header(AUTHORIZATION, authorization)
            .header(USER_AGENT, &self.user_agent)
            .header(CONTENT_TYPE, "application/json")
            .body(commands)
            .timeout(ATTEMPT_DEADLINE);
        let response = http::send(Neighbour::Chat, request).await;
        let response = response.map_err(|error| unavailable(http::reason(&error)))?;
        let (status, header) = (response.status(), response.headers().get(RETRY_AFTER).cloned());
        let body = read_capped(response, MAX_ANSWER).await.map_err(|error| unavailable(error.to_string()))?;
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        if status == StatusCode::OK {
            return answer.ok_or_else(|| unavailable("its answer is no JSON"));
        }
        Err(refusal(status, header.as_ref().and_then(|value| value.to_str().ok()), &answer.unwrap_or_default()))
    }
}

/// Reads the error in an answer other than 200.
fn refusal(status: StatusCode, retry_after: Option<&str>, answer: &Value) -> ChatPlatformError {
    let code = answer["code"].as_u64().unwrap_or_default();
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = retry_after.and_then(|text| text.trim().parse().ok()).or(answer["retry_after"].as_f64());
            ChatPlatformError::Busy(
                seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(PAUSE),
            )
        }
        status if status.is_server_error() => unavailable(format!("status {}", status.as_u16())),
        StatusCode::UNAUTHORIZED => ChatPlatformError::TokenRefused,
        _ if code == UNKNOWN_APPLICATION => ChatPlatformError::TokenRefused,
        _ if matches!(code, UNKNOWN_GUILD | MISSING_ACCESS) => ChatPlatformError::NoGuild,
        status => {
            let mut values = Vec::new();
            collect(&answer["errors"], String::new(), 0, &mut values);
            ChatPlatformError::Refused { status: status.as_u16(), code, values }
        }
    }
}

/// Finds the lists of errors in an object that mirrors the request.
fn collect(errors: &Value, path: String, depth: usize, found: &mut Vec<RefusedValue>) {
    let Some(fields) = errors.as_object().filter(|_| depth < DEEPEST) else { return };
    for (name, below) in fields {
        if found.len() >= MOST_VALUES {
            return;
        }
        if name == "_errors" {
            let code = below[0]["code"].as_str().map(plain).unwrap_or_default();
            found.push(RefusedValue { path: path.clone(), code });
        } else {
            let name = plain(name);
            let path = if path.is_empty() { name } else { format!("{path}.{name}") };
            collect(below, path, depth + 1, found);
        }
    }
}

/// A name or code, without anything else that the text may hold.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(60).collect()
}

fn unavailable(reason: impl Into<String>) -> ChatPlatformError {
    ClientError::Unavailable { neighbour: NEIGHBOUR, reason: reason.into() }.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, retry_after: Option<&str>, answer: Value) -> ChatPlatformError {
        refusal(StatusCode::from_u16(status).unwrap(), retry_after, &answer)
    }

    #[test]
    fn a_pause_is_read_from_the_header_or_the_body() {
        let pause = |header, body| match refused(429, header, body) {
            ChatPlatformError::Busy(pause) => pause.as_secs_f64(),
            other => panic!("{other:?}"),
        };
        assert_eq!(pause(Some("1.5"), json!({ "retry_after": 9 })), 1.5);
        assert_eq!(pause(None, json!({ "retry_after": 0.25 })), 0.25);
        for odd in ["-1", "NaN", "Sat, 21 Nov 2026 12:00:00 GMT", "1e300"] {
            assert_eq!(pause(Some(odd), json!(null)), 5.0, "{odd}");
        }
    }

    #[test]
    fn a_refusal_names_the_values_and_no_text_of_the_platform() {
        let answer = json!({ "code": 50035, "message": "Invalid Form Body", "errors": {
            "0": { "name": { "_errors": [{ "code": "BASE_TYPE_BAD_LENGTH", "message": "secret" }] } },
            "3": { "options": { "1": { "<b>": { "_errors": [{ "code": 7 }] } } } },
        } });
        let ChatPlatformError::Refused { status, code, values } = refused(400, None, answer) else { panic!("refused") };
        let values: Vec<_> = values.iter().map(|value| (value.path.as_str(), value.code.as_str())).collect();
        assert_eq!((status, code), (400, 50_035));
        assert_eq!(values, [("0.name", "BASE_TYPE_BAD_LENGTH"), ("3.options.1.b", "")]);
        let mut deep = json!({ "_errors": [] });
        for _ in 0..100 {
            deep = json!({ "a": deep });
        }
        let many: serde_json::Map<_, _> = (0..99).map(|n| (n.to_string(), json!({ "_errors": [] }))).collect();
        for (errors, count) in [(deep, 0), (Value::Object(many), MOST_VALUES)] {
            match refused(400, None, json!({ "errors": errors })) {
                ChatPlatformError::Refused { values, .. } => assert_eq!(values.len(), count),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn refusals_are_distinguished() {
        assert!(matches!(refused(401, None, json!({ "code": 0 })), ChatPlatformError::TokenRefused));
        assert!(matches!(refused(404, None, json!({ "code": 10_002 })), ChatPlatformError::TokenRefused));
        for (status, code) in [(404, 10_004), (403, 50_001)] {
            assert!(matches!(refused(status, None, json!({ "code": code })), ChatPlatformError::NoGuild));
        }
        assert!(matches!(refused(503, None, json!(null)), ChatPlatformError::Client(_)));
        assert!(matches!(
            refused(403, None, json!({ "code": 20_012 })),
            ChatPlatformError::Refused { code: 20_012, .. }
        ));
        assert!(matches!(refused(302, None, json!(null)), ChatPlatformError::Refused { status: 302, code: 0, .. }));
    }
}
