//! Failures of the helper, each with a sentence for its user.

use std::{fmt::Display, io};

use crate::domain::registration::StepFailure;

/// Reasons for which the helper ends.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    #[error("{0}")]
    Settings(String),
    #[error("a pairing code is needed: `--code LINK-XXXX`, from the dashboard of the service")]
    NoCode,
    #[error(
        "the service has no key of the game's app: its operator sets REGISTRATION_API_KEY there, or you set it here"
    )]
    NoKey,
    #[error("nothing is registered here for this service")]
    NothingRegistered,
    #[error("another helper runs for this service")]
    Running,
    #[error("{0}")]
    Service(String),
    /// The service does not answer, or not now.
    #[error("{0}")]
    ServiceAway(String),
    #[error("this device was deleted at the service; `forget` and a new pairing code begin again")]
    DeviceGone,
    #[error("{failure} {}", .failure.fault.advice())]
    Step { failure: StepFailure },
    #[error("sign in again: `companion helper URL`")]
    SignInAgain,
    #[error("the login was of another account than the service's user; nothing was uploaded")]
    OtherAccount,
    #[error("{what}: {cause}")]
    Io { what: String, cause: io::Error },
}

impl HelperError {
    /// True if another attempt without any change may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::ServiceAway(_) => true,
            Self::Step { failure } => failure.is_transient(),
            _ => false,
        }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) | Self::NoCode | Self::NoKey => 2,
            Self::SignInAgain => 3,
            _ => 1,
        }
    }

    pub(super) fn io(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_string();
        move |cause| Self::Io { what, cause }
    }
}
