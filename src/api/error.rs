//! How an error becomes an answer: RFC 9457 problem documents from one table of codes.
//!
//! A variant is what a *client* can distinguish. Causes of internal failures go to the log, once, and nowhere else; the
//! request id joins the two.

use std::{error::Error as StdError, fmt, time::Duration};

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{api::chat_problem::ChatProblem, clients::chat::RefusedValue, db::error::DbError};

/// Media type of every error answer.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A problem document (RFC 9457).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `urn:companion:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: &'static str,
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    pub detail: String,
    /// Stable, snake_case: what programs compare.
    pub code: &'static str,
    /// Also in the header `x-request-id`, and in our log.
    pub request_id: String,
    /// Only for `invalid_request`, `not_ready` and `chat_platform_refused`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub errors: Vec<FieldError>,
}

/// One value that did not pass, or one part that is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// JSON name of the field, nested names joined by dots; empty for the whole body. Or the part.
    pub path: String,
    pub message: String,
}

/// What a client learns of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReport {
    pub policy: &'static str,
    /// Requests per `window`.
    pub quota: u32,
    pub window: Duration,
    /// How many are left now.
    pub remaining: u32,
    /// Until the budget is full again; for a refusal, until there is one more.
    pub reset: Duration,
}

/// Every way a request can fail, as its client sees it.
#[derive(Debug)]
pub enum ApiError {
    MalformedJson,
    Invalid(Vec<FieldError>),
    /// The identity provider's answer could not be verified; the reason is for the log.
    SignInRejected(String),
    Unauthenticated,
    /// The code is unknown, expired, used or invalidated; the client does not learn which.
    InvalidPairingCode,
    /// The bundle belongs to somebody else.
    MismatchedPlatformId,
    CrossSite,
    /// There is no admin.
    AdminDisabled,
    /// Not on the allowlist of admins.
    NotAdmin,
    /// A guest on what only the owner of a server may do.
    OwnerOnly,
    /// The token of an overlay, on anything but minting a relay token.
    InsufficientScope,
    NotFound,
    /// No such invitation link, or it was taken back.
    UnknownInvite,
    /// Somebody else has accepted the link.
    InviteUsed,
    InviteExpired,
    MethodNotAllowed,
    Conflict,
    /// The key came with another request before.
    IdempotencyKeyReused,
    /// The request with this key is under way.
    IdempotencyKeyInUse,
    /// It is not any more what the client takes it for.
    PreconditionFailed,
    /// The uploaded file is no image that is taken.
    InvalidImage(String),
    /// There is a subscription already, which the portal changes.
    AlreadySubscribed,
    /// A subscription goes on, which ends only at the payment provider.
    SubscriptionRuns,
    /// The user was never at the checkout.
    NoCustomer,
    /// The payment provider knows no such charge.
    UnknownCharge,
    /// Nothing of the charge is left.
    AlreadyRefunded,
    /// The webhook was not signed by the payment provider; the reason is for the log.
    InvalidSignature(String),
    /// Only switches can be toggled.
    NotASwitch,
    /// The game server does not know the device any more.
    DeviceRemoved,
    /// This device has no camera frames.
    NotACamera,
    /// The paired player is in the game, which then shows no cameras.
    PlayerOnline,
    /// The paired player has no body in the game.
    NoPlayer,
    /// The game server does not show this camera.
    CameraAccessDenied,
    /// The game server shows no cameras.
    CamerasDisabled,
    /// The game server knows no such camera.
    UnknownCamera,
    /// What the game server sent is no picture.
    CameraUnreadable,
    /// The paired player is in no team.
    NoTeam,
    /// The game server takes no such line in the team's chat.
    MessageNotSent,
    /// The map of the server's world has not come yet.
    MapUnknown,
    /// What the game server sent as the picture of its map is none.
    MapUnreadable,
    /// There is no link to the game server, or it refused.
    GameServerUnavailable,
    GameServerTimeout,
    /// More of something than one user may have.
    LimitReached(String),
    BodyTooLarge,
    /// The body was not there in time.
    BodyTimeout,
    UnsupportedMediaType,
    /// This client has too many requests under way.
    TooManyConnections,
    RateLimited(LimitReport),
    Internal(Box<dyn StdError + Send + Sync>),
    IdentityProviderUnavailable(Box<dyn StdError + Send + Sync>),
    /// The player-statistics service cannot be asked, and nothing is kept; the reason is for the log.
    PlayerStatsUnavailable(String),
    /// No payment provider is configured.
    PaymentsDisabled,
    PaymentsUnavailable(Box<dyn StdError + Send + Sync>),
    /// The payment provider does not do what it was asked: a fault of the settings, here or there.
    PaymentsRefused(Box<dyn StdError + Send + Sync>),
    Chat(ChatProblem),
    /// The database or an actor does not answer.
    Unavailable(Box<dyn StdError + Send + Sync>),
    /// These parts of the service have not started yet, or do not answer.
    NotReady(Vec<FieldError>),
    /// A refusal of the web framework's own.
    Framework(StatusCode),
}

impl ApiError {
    /// One value that did not pass.
    pub fn invalid(path: &str, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError { path: path.to_owned(), message: message.into() }])
    }

    /// Whether it is sure that nothing was done. A conflict of idempotency keys says nothing of what the other one did.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Conflict => false,
            Self::PaymentsRefused(_) => true,
            error => error.entry().0.is_client_error(),
        }
    }

    /// The table: status, code, title.
    fn entry(&self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::MalformedJson => (S::BAD_REQUEST, "malformed_json", "Malformed JSON"),
            Self::Invalid(_) => (S::BAD_REQUEST, "invalid_request", "Invalid request"),
            Self::SignInRejected(_) => (S::BAD_REQUEST, "sign_in_rejected", "Sign-in rejected"),
            Self::Unauthenticated => (S::UNAUTHORIZED, "unauthenticated", "Not signed in"),
            Self::InvalidPairingCode => (S::UNAUTHORIZED, "invalid_pairing_code", "Invalid pairing code"),
            Self::MismatchedPlatformId => (S::BAD_REQUEST, "mismatched_platform_id", "Mismatched platform id"),
            Self::CrossSite => (S::FORBIDDEN, "cross_site_request", "Cross-site request"),
            Self::AdminDisabled => (S::SERVICE_UNAVAILABLE, "admin_disabled", "Administration is off"),
            Self::NotAdmin => (S::FORBIDDEN, "not_admin", "Not an admin"),
            Self::OwnerOnly => (S::FORBIDDEN, "owner_only", "Owner only"),
            Self::InsufficientScope => (S::FORBIDDEN, "insufficient_scope", "Insufficient scope"),
            Self::NotFound => (S::NOT_FOUND, "not_found", "Not found"),
            Self::UnknownInvite => (S::NOT_FOUND, "unknown_invite", "Unknown invitation"),
            Self::InviteUsed => (S::GONE, "invite_used", "Invitation used"),
            Self::InviteExpired => (S::GONE, "invite_expired", "Invitation expired"),
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed"),
            Self::Conflict => (S::CONFLICT, "conflict", "Conflict"),
            Self::PreconditionFailed => (S::PRECONDITION_FAILED, "conflict", "Precondition failed"),
            Self::InvalidImage(_) => (S::BAD_REQUEST, "invalid_image", "Invalid image"),
            Self::AlreadySubscribed => (S::CONFLICT, "already_subscribed", "Already subscribed"),
            Self::SubscriptionRuns => (S::CONFLICT, "subscription_runs", "Subscription runs"),
            Self::NoCustomer => (S::CONFLICT, "no_customer", "No customer"),
            Self::UnknownCharge => (S::NOT_FOUND, "unknown_charge", "Unknown charge"),
            Self::AlreadyRefunded => (S::CONFLICT, "already_refunded", "Already refunded"),
            Self::InvalidSignature(_) => (S::BAD_REQUEST, "invalid_signature", "Invalid signature"),
            Self::IdempotencyKeyReused => (S::UNPROCESSABLE_ENTITY, "idempotency_key_reused", "Idempotency key reused"),
            Self::IdempotencyKeyInUse => (S::CONFLICT, "idempotency_key_in_use", "Idempotency key in use"),
            Self::NotASwitch => (S::CONFLICT, "not_a_switch", "Not a switch"),
            Self::DeviceRemoved => (S::CONFLICT, "device_removed", "Device removed"),
            Self::NotACamera => (S::CONFLICT, "not_a_camera", "Not a camera"),
            Self::PlayerOnline => (S::CONFLICT, "player_online", "Player is online"),
            Self::NoPlayer => (S::CONFLICT, "no_player", "Player has no body"),
            Self::CameraAccessDenied => (S::CONFLICT, "camera_access_denied", "Camera access denied"),
            Self::CamerasDisabled => (S::CONFLICT, "cameras_disabled", "Cameras are disabled"),
            Self::UnknownCamera => (S::NOT_FOUND, "unknown_camera", "Unknown camera"),
            Self::CameraUnreadable => (S::BAD_GATEWAY, "camera_unreadable", "Camera frame unreadable"),
            Self::NoTeam => (S::CONFLICT, "no_team", "No team"),
            Self::MessageNotSent => (S::CONFLICT, "message_not_sent", "Message not sent"),
            Self::MapUnknown => (S::NOT_FOUND, "map_unknown", "Map unknown"),
            Self::MapUnreadable => (S::BAD_GATEWAY, "map_unreadable", "Map unreadable"),
            Self::GameServerUnavailable => {
                (S::SERVICE_UNAVAILABLE, "game_server_unavailable", "Game server unavailable")
            }
            Self::GameServerTimeout => (S::GATEWAY_TIMEOUT, "game_server_timeout", "Game server timeout"),
            Self::LimitReached(_) => (S::CONFLICT, "limit_reached", "Limit reached"),
            Self::BodyTooLarge => (S::PAYLOAD_TOO_LARGE, "body_too_large", "Body too large"),
            Self::BodyTimeout => (S::REQUEST_TIMEOUT, "request_timeout", "Request timeout"),
            Self::UnsupportedMediaType => {
                (S::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Unsupported media type")
            }
            Self::TooManyConnections => (S::TOO_MANY_REQUESTS, "too_many_connections", "Too many connections"),
            Self::RateLimited(_) => (S::TOO_MANY_REQUESTS, "rate_limited", "Too many requests"),
            Self::Internal(_) => (S::INTERNAL_SERVER_ERROR, "internal_error", "Internal error"),
            Self::IdentityProviderUnavailable(_) => {
                (S::SERVICE_UNAVAILABLE, "identity_provider_unavailable", "Identity provider unavailable")
            }
            Self::PlayerStatsUnavailable(_) => {
                (S::SERVICE_UNAVAILABLE, "player_stats_unavailable", "Player statistics unavailable")
            }
            Self::PaymentsDisabled => (S::SERVICE_UNAVAILABLE, "payments_disabled", "Payments are off"),
            Self::PaymentsUnavailable(_) => {
                (S::SERVICE_UNAVAILABLE, "payment_provider_unavailable", "Payment provider unavailable")
            }
            Self::PaymentsRefused(_) => (S::BAD_GATEWAY, "payment_provider_refused", "Payment provider refused"),
            Self::Chat(problem) => problem.entry(),
            Self::Unavailable(_) => (S::SERVICE_UNAVAILABLE, "unavailable", "Service unavailable"),
            Self::NotReady(_) => (S::SERVICE_UNAVAILABLE, "not_ready", "Not ready"),
            Self::Framework(status) if status.is_server_error() => (*status, "internal_error", "Internal error"),
            Self::Framework(status) => (*status, "bad_request", "Bad request"),
        }
    }

    /// A sentence for the client's user.
    fn detail(&self) -> String {
        match self {
            Self::MalformedJson => "The body is not well-formed JSON.".into(),
            Self::Invalid(_) => "Some values are missing or not allowed; see `errors`.".into(),
            Self::SignInRejected(_) => "The sign-in could not be verified. Please start it again.".into(),
            Self::Unauthenticated => "Please sign in.".into(),
            Self::InvalidPairingCode => "This pairing code is not valid. Please ask for a new one.".into(),
            Self::MismatchedPlatformId => "The bundle belongs to another account than this device.".into(),
            Self::CrossSite => "A request that changes something must come from this service's own pages.".into(),
            Self::AdminDisabled => "This service has no admins.".into(),
            Self::NotAdmin => "Only admins may do this.".into(),
            Self::OwnerOnly => "Only the owner of this server may do this.".into(),
            Self::InsufficientScope => "The token of an overlay opens the relay and nothing else.".into(),
            Self::NotFound => "There is nothing here.".into(),
            Self::UnknownInvite => "There is no such invitation, or it was taken back.".into(),
            Self::InviteUsed => "Somebody else has accepted this invitation. Please ask for a new one.".into(),
            Self::InviteExpired => "This invitation has expired. Please ask for a new one.".into(),
            Self::MethodNotAllowed => "This path does not support this method; see `Allow`.".into(),
            Self::Conflict => "Something else changed this at the same time, or it exists already.".into(),
            Self::IdempotencyKeyReused => {
                "Another request came with this idempotency key. Please make a new one for each request.".into()
            }
            Self::IdempotencyKeyInUse => "The request with this idempotency key is still under way.".into(),
            Self::PreconditionFailed => "Somebody changed this since you read it. Please read it again.".into(),
            Self::InvalidImage(why) => format!("The image {why}."),
            Self::AlreadySubscribed => "There is a subscription already. Change or cancel it in the portal.".into(),
            Self::SubscriptionRuns => {
                "A subscription runs. Cancel it first in the portal of the payment provider (`POST /billing/portal`)."
                    .into()
            }
            Self::NoCustomer => "There is nothing to manage yet. Please subscribe first.".into(),
            Self::UnknownCharge => "The payment provider knows no such charge.".into(),
            Self::AlreadyRefunded => "All of this charge was paid back before.".into(),
            Self::InvalidSignature(_) => "The signature of this event is not valid.".into(),
            Self::NotASwitch => "This device is not a smart switch.".into(),
            Self::DeviceRemoved => {
                "The device is gone from the game, or the paired player has lost its tool cupboard.".into()
            }
            Self::NotACamera => "This device is not a camera.".into(),
            Self::PlayerOnline => {
                "The paired player is in the game right now; the game then shows no cameras to the companion.".into()
            }
            Self::NoPlayer => "The paired player is dead in the game, and must wake up there first.".into(),
            Self::CameraAccessDenied => "The game server does not show this camera.".into(),
            Self::CamerasDisabled => "This game server shows no cameras.".into(),
            Self::UnknownCamera => "The game server knows no camera by this identifier, or it is out of range.".into(),
            Self::CameraUnreadable => "What the game server sent is no picture.".into(),
            Self::NoTeam => "The paired player is in no team.".into(),
            Self::MessageNotSent => {
                "The game server does not take this line: the player is muted, or it is filtered.".into()
            }
            Self::MapUnknown => "The map is not known yet. It comes with the first link to the game server.".into(),
            Self::MapUnreadable => "What the game server sent as its map is no picture.".into(),
            Self::GameServerUnavailable => "There is no link to the game server right now.".into(),
            Self::GameServerTimeout => "The game server did not answer in time. Please try again.".into(),
            Self::LimitReached(detail) => detail.clone(),
            Self::BodyTooLarge => "The body is too large.".into(),
            Self::BodyTimeout => "The body did not arrive in time.".into(),
            Self::UnsupportedMediaType => {
                "Send JSON, with `Content-Type: application/json`; a file as `multipart/form-data`.".into()
            }
            Self::TooManyConnections => "Too many requests of this address are under way. Please try again.".into(),
            Self::RateLimited(limit) => {
                format!("Too many requests. Try again in {} s.", whole_seconds(limit.reset))
            }
            Self::Internal(_) => "Something failed on our side.".into(),
            Self::IdentityProviderUnavailable(_) => {
                "The identity provider does not answer. Please try again in a minute.".into()
            }
            Self::PlayerStatsUnavailable(_) => "Player statistics are not available now.".into(),
            Self::PaymentsDisabled => "Nothing can be bought here.".into(),
            Self::PaymentsUnavailable(_) => {
                "The payment provider does not answer. Nothing was charged. Please try again in a minute.".into()
            }
            Self::PaymentsRefused(_) => "The payment provider refused. Nothing was charged; we look into it.".into(),
            Self::Chat(problem) => problem.detail().into(),
            Self::Unavailable(_) => "The service is not available. Please try again.".into(),
            Self::NotReady(_) => "Some parts of the service are not ready; see `errors`.".into(),
            Self::Framework(_) => "The request could not be read.".into(),
        }
    }

    /// The limit that it was refused by.
    pub fn limit(&self) -> Option<&LimitReport> {
        if let Self::RateLimited(limit) = self { Some(limit) } else { None }
    }

    /// Logs the cause, which no client may see. Called once, by the outermost middleware.
    pub fn log(&self, request_id: &str) {
        match self {
            Self::Internal(cause) => log::error!(request_id; "internal error: {}", Chain(cause.as_ref())),
            Self::Unavailable(cause) | Self::IdentityProviderUnavailable(cause) | Self::PaymentsUnavailable(cause) => {
                log::warn!(request_id; "unavailable: {}", Chain(cause.as_ref()));
            }
            Self::PlayerStatsUnavailable(reason) => log::info!(request_id; "player statistics unavailable: {reason}"),
            Self::PaymentsRefused(cause) => log::error!(request_id; "payments: {}", Chain(cause.as_ref())),
            Self::Chat(problem) => problem.log(request_id),
            Self::InvalidSignature(reason) => log::warn!(request_id; "webhook refused: {reason}"),
            Self::SignInRejected(reason) => log::warn!(request_id; "sign-in rejected: {reason}"),
            _ => {}
        }
    }

    /// The document.
    pub fn problem(&self, request_id: &str) -> Problem {
        let (status, code, title) = self.entry();
        Problem {
            kind: format!("urn:companion:problem:{code}"),
            title,
            status: status.as_u16(),
            detail: self.detail(),
            code,
            request_id: request_id.to_owned(),
            errors: match self {
                Self::Invalid(errors) | Self::NotReady(errors) => errors.clone(),
                Self::Chat(problem) => problem.values().iter().map(FieldError::from).collect(),
                _ => Vec::new(),
            },
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().1)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.entry().0
    }

    /// Status and headers; the outermost middleware, which knows the request id, writes the document.
    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        match self {
            Self::RateLimited(limit) => {
                response.insert_header((header::RETRY_AFTER, whole_seconds(limit.reset)));
            }
            Self::Unavailable(_)
            | Self::NotReady(_)
            | Self::TooManyConnections
            | Self::GameServerUnavailable
            | Self::IdempotencyKeyInUse => {
                response.insert_header((header::RETRY_AFTER, 1));
            }
            Self::IdentityProviderUnavailable(_) | Self::PlayerStatsUnavailable(_) | Self::PaymentsUnavailable(_) => {
                response.insert_header((header::RETRY_AFTER, 60));
            }
            Self::Chat(problem) => {
                if let Some(pause) = problem.retry_after() {
                    response.insert_header((header::RETRY_AFTER, whole_seconds(pause)));
                }
            }
            _ => {}
        }
        response.finish()
    }
}

impl LimitReport {
    /// An item of `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
    pub fn policy_item(&self) -> String {
        let Self { policy, quota, window, .. } = self;
        format!("\"{policy}\";q={quota};w={}", window.as_secs())
    }

    /// An item of `RateLimit`.
    pub fn item(&self) -> String {
        let Self { policy, remaining, reset, .. } = self;
        format!("\"{policy}\";r={remaining};t={}", whole_seconds(*reset))
    }
}

/// Rounded up, so that a client that waits this long has waited long enough.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// An error and its causes on one line.
struct Chain<'a>(&'a (dyn StdError + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl From<&RefusedValue> for FieldError {
    fn from(RefusedValue { path, code }: &RefusedValue) -> Self {
        Self { path: path.clone(), message: code.clone() }
    }
}

impl From<DbError> for ApiError {
    fn from(error: DbError) -> Self {
        match error {
            DbError::NotFound => Self::NotFound,
            DbError::Conflict => Self::Conflict,
            DbError::Unavailable(_) => Self::Unavailable(error.into()),
            DbError::Query(_) | DbError::Panicked => Self::Internal(error.into()),
        }
    }
}

impl From<garde::Report> for ApiError {
    fn from(report: garde::Report) -> Self {
        let error = |(path, error): &(garde::Path, garde::Error)| FieldError {
            path: camel_case(&path.to_string()),
            message: error.to_string(),
        };
        Self::Invalid(report.iter().map(error).collect())
    }
}

/// garde reports Rust names; on the wire they are camelCase.
fn camel_case(path: &str) -> String {
    let mut result = String::with_capacity(path.len());
    let mut upper = false;
    for c in path.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                result.extend(c.to_uppercase());
                upper = false;
            }
            c => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests;
