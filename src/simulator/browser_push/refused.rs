//! Refusals of a push.

use actix_web::{HttpResponse, http::StatusCode};
use serde_json::json;

/// A push is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedPush {
    #[error("there is no token of the sender")]
    Unauthorized,
    /// The token, for this reason.
    #[error("{0}")]
    Forbidden(&'static str),
    /// A header or the body, for this reason.
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the body is longer than 4096 bytes")]
    TooLarge,
    #[error("there was never such a subscription")]
    Unknown,
    #[error("the subscription has ended")]
    Gone,
}

impl RefusedPush {
    /// The answer to the sender.
    pub fn answer(self) -> HttpResponse {
        let status = match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Gone => StatusCode::GONE,
        };
        HttpResponse::build(status).json(json!({ "reason": self.to_string() }))
    }
}
