//! Failures of requests to the provider.

use crate::clients::error::ClientError;

const NEIGHBOUR: &str = "the payment provider";

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum PaymentsError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The provider knows no such object; the parameter that named it, if one did.
    #[error("the payment provider does not know it")]
    Unknown { param: Option<String> },
    /// The provider knows nothing of a customer who goes on paying.
    #[error("the payment provider knows neither the customer nor the subscription: is the key of another account?")]
    Foreign,
    /// The request could be served, and the provider will not.
    #[error("the payment provider refused: status {status}, {code}")]
    Refused { status: u16, code: String },
}

/// An answer of another form than this.
pub(super) fn unreadable(what: &str) -> PaymentsError {
    unavailable(format!("its answer is no {what}"))
}

/// No answer that says what the provider did.
pub(super) fn unavailable(reason: impl Into<String>) -> PaymentsError {
    ClientError::Unavailable { neighbour: NEIGHBOUR, reason: reason.into() }.into()
}
