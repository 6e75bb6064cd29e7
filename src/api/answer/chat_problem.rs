//! Failures between the service, the chat platform and a user who links an account of it.

use std::time::Duration;

use crate::{
    clients::{chat::RefusedValue, error::ClientError},
    crypto::webhook_signature::SignatureFault,
    domain::problem::{self, ProblemCode},
};

/// Every way in which it fails, as the client sees it.
#[derive(Debug)]
pub enum ChatProblem {
    /// No support bot is configured.
    Disabled,
    /// The platform had too many requests of ours, and wants us to wait for this time.
    Busy(Duration),
    Unavailable(ClientError),
    /// The platform does not take the bot's token: a fault of the settings.
    TokenRefused,
    /// The platform does not take the commands: the cause for the log, and the values.
    Refused(String, Vec<RefusedValue>),
    /// The interaction was not signed by the platform; the reason is for the log.
    Unsigned(SignatureFault),
    /// The code is unknown, used or has expired; the client does not learn which.
    UnknownCode,
    /// The account is linked with another user.
    AccountTaken,
}

impl ChatProblem {
    /// Code, statuses and title of the answer.
    pub fn code(&self) -> &'static ProblemCode {
        match self {
            Self::Disabled => &problem::CHAT_DISABLED,
            Self::Busy(_) => &problem::CHAT_PLATFORM_BUSY,
            Self::Unavailable(_) => &problem::CHAT_PLATFORM_UNAVAILABLE,
            Self::TokenRefused | Self::Refused(..) => &problem::CHAT_PLATFORM_REFUSED,
            Self::Unsigned(_) => &problem::INVALID_INTERACTION_SIGNATURE,
            Self::UnknownCode => &problem::UNKNOWN_CHAT_CODE,
            Self::AccountTaken => &problem::CHAT_ACCOUNT_TAKEN,
        }
    }

    /// As for [`ApiError`](crate::api::answer::error::ApiError::is_notable).
    pub fn is_notable(&self) -> bool {
        matches!(self, Self::Unsigned(_) | Self::UnknownCode)
    }

    /// A sentence for the client's user.
    pub fn detail(&self) -> &'static str {
        match self {
            Self::Disabled => "There is no support bot here.",
            Self::Busy(_) => "The chat platform had too many requests. Please try again later; see `Retry-After`.",
            Self::Unavailable(_) => "The chat platform does not answer. Please try again in a minute.",
            Self::TokenRefused => "The chat platform does not take the bot's token, or does not know its application.",
            Self::Refused(..) => "The chat platform does not take the commands; see `errors`, if it says more.",
            Self::Unsigned(_) => "The signature of this interaction is not valid.",
            Self::UnknownCode => "This code is not valid. Please ask the bot for a new one with /link.",
            Self::AccountTaken => "This chat account is linked with another user, who has to end that first.",
        }
    }

    /// The values that the platform refused.
    pub fn values(&self) -> &[RefusedValue] {
        match self {
            Self::Refused(_, values) => values,
            _ => &[],
        }
    }

    /// When another attempt may succeed by itself.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy(pause) => Some(*pause),
            Self::Unavailable(_) => Some(Duration::from_secs(60)),
            _ => None,
        }
    }

    /// Logs what the operator should know; refusals of input are not logged.
    pub fn log(&self, request_id: &str) {
        match self {
            Self::Unavailable(cause) => log::warn!(request_id; "unavailable: {cause}"),
            Self::TokenRefused => log::error!(request_id; "the chat platform does not take the token"),
            Self::Refused(cause, _) => log::error!(request_id; "{cause}"),
            Self::Unsigned(reason) => log::warn!(request_id; "interaction refused: {reason}"),
            _ => {}
        }
    }
}
