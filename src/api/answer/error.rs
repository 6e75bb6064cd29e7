//! Errors as answers: RFC 9457 problem documents, with the codes of [`domain::problem`](crate::domain::problem).
//!
//! Above 500 lines: one enum, and for each of its many variants a line in every match.
//!
//! A variant is a failure that a *client* can distinguish. Causes of internal failures go to the log, once, and nowhere
//! else; the request id joins the two.

use std::{error::Error as StdError, fmt};

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::answer::{chat_problem::ChatProblem, registration_problem::RegistrationProblem},
    clients::chat::RefusedValue,
    config::BaseUrl,
    db::engine::error::DbError,
    domain::problem::{self, ProblemCode},
    net::budgets::{LimitReport, whole_seconds},
    push::bundle_upload::BundleNotStored,
};

/// Media type of every error answer.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Characters of a name from outside that an answer repeats.
pub const SHOWN_CHARS: usize = 100;

/// A problem document (RFC 9457).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The page of the code: BASE_URL, `/problems/` and the code.
    #[serde(rename = "type")]
    #[schema(format = "uri")]
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

/// The advice where another key than the configured ones sealed what is stored.
pub const OPERATOR_REPAIRS: &str = "The operator is repairing this; there is nothing for you to do.";

/// Every way a request can fail, as its client sees it.
#[derive(Debug)]
pub enum ApiError {
    MalformedJson,
    Invalid(Vec<FieldError>),
    /// The identity provider's answer could not be verified; the reason is for the log.
    SignInRejected(String),
    /// No valid session.
    Unauthenticated,
    /// The session goes on, but began too long ago for what cannot be undone.
    FreshSignInRequired,
    /// No bearer token where one is needed.
    NoDeviceToken,
    /// The bearer token is none of ours, or was deleted.
    DeadToken,
    /// The code is unknown, expired, used or invalidated; the client does not learn which.
    InvalidPairingCode,
    /// The code is right, and its user has to confirm the device first.
    ConfirmationNeeded,
    /// The bundle belongs to another account.
    MismatchedPlatformId,
    CrossSite,
    /// There is no admin.
    AdminDisabled,
    /// Not on the allowlist of admins.
    NotAdmin,
    /// A guest on what only the owner of a server may do.
    OwnerOnly,
    /// The token is valid, and not for this.
    InsufficientScope,
    NotFound,
    /// No such invitation link, or it was taken back.
    UnknownInvite,
    /// Another user has accepted the link.
    InviteUsed,
    InviteExpired,
    MethodNotAllowed,
    Conflict,
    /// Something that exists already; the text says which.
    Exists(String),
    /// The key came with another request before.
    IdempotencyKeyReused,
    /// The request with this key is under way.
    IdempotencyKeyInUse,
    /// The content is no longer what the client takes it for.
    PreconditionFailed,
    /// The uploaded file is no image that is taken.
    InvalidImage(String),
    /// There is a subscription already, which the portal changes.
    AlreadySubscribed,
    /// A subscription goes on, which ends only at the payment provider.
    SubscriptionRuns,
    CheckoutClosed,
    /// The user was never at the checkout.
    NoCustomer,
    /// The payment provider knows no such charge.
    UnknownCharge,
    /// Nothing of the charge is left.
    AlreadyRefunded,
    /// The payer disputes the charge at their bank.
    ChargeDisputed,
    /// Another refund of the charge is under way, or what became of it was not shown yet; which one, in words.
    RefundOpen(String),
    /// The webhook was not signed by the payment provider; the reason is for the log.
    InvalidSignature(String),
    /// Only switches can be toggled.
    NotASwitch,
    /// The game server no longer knows the device.
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
    /// The game server's frame is no picture.
    CameraUnreadable,
    /// The paired player is in no team.
    NoTeam,
    /// The game server takes no such line in the team's chat.
    MessageNotSent,
    /// The map of the server's world has not come yet.
    MapUnknown,
    /// The game server's picture of its map is no picture.
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
    /// The payment provider was asked for a refund and did not answer: it was made, or not.
    RefundUnanswered(Box<dyn StdError + Send + Sync>),
    /// The payment provider does not do what it was asked: a fault of the settings, here or there.
    PaymentsRefused(Box<dyn StdError + Send + Sync>),
    Chat(ChatProblem),
    Registration(RegistrationProblem),
    /// The database or an actor does not answer.
    Unavailable(Box<dyn StdError + Send + Sync>),
    /// Another key sealed what would be replaced.
    AwaitsKey,
    /// A row that this needs cannot be read.
    UnreadableRow(Box<dyn StdError + Send + Sync>),
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

    /// True if certainly nothing was done. A conflict of idempotency keys says nothing about the other request.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Conflict | Self::Exists(_) => false,
            Self::PaymentsRefused(_) | Self::GameServerUnavailable => true,
            error => error.status_code().is_client_error(),
        }
    }

    /// Its code: what there is to know of it beside `detail`.
    pub fn code(&self) -> &'static ProblemCode {
        match self {
            Self::MalformedJson => &problem::MALFORMED_JSON,
            Self::Invalid(_) => &problem::INVALID_REQUEST,
            Self::SignInRejected(_) => &problem::SIGN_IN_REJECTED,
            Self::Unauthenticated | Self::NoDeviceToken | Self::DeadToken => &problem::UNAUTHENTICATED,
            Self::FreshSignInRequired => &problem::FRESH_SIGN_IN_REQUIRED,
            Self::InvalidPairingCode => &problem::INVALID_PAIRING_CODE,
            Self::ConfirmationNeeded => &problem::CONFIRMATION_NEEDED,
            Self::MismatchedPlatformId => &problem::MISMATCHED_PLATFORM_ID,
            Self::CrossSite => &problem::CROSS_SITE_REQUEST,
            Self::AdminDisabled => &problem::ADMIN_DISABLED,
            Self::NotAdmin => &problem::NOT_ADMIN,
            Self::OwnerOnly => &problem::OWNER_ONLY,
            Self::InsufficientScope => &problem::INSUFFICIENT_SCOPE,
            Self::NotFound => &problem::NOT_FOUND,
            Self::UnknownInvite => &problem::UNKNOWN_INVITE,
            Self::InviteUsed => &problem::INVITE_USED,
            Self::InviteExpired => &problem::INVITE_EXPIRED,
            Self::MethodNotAllowed => &problem::METHOD_NOT_ALLOWED,
            Self::Conflict | Self::Exists(_) | Self::PreconditionFailed => &problem::CONFLICT,
            Self::InvalidImage(_) => &problem::INVALID_IMAGE,
            Self::SubscriptionRuns => &problem::SUBSCRIPTION_RUNS,
            Self::CheckoutClosed => &problem::CHECKOUT_CLOSED,
            Self::IdempotencyKeyReused => &problem::IDEMPOTENCY_KEY_REUSED,
            Self::IdempotencyKeyInUse => &problem::IDEMPOTENCY_KEY_IN_USE,
            Self::AlreadySubscribed => &problem::ALREADY_SUBSCRIBED,
            Self::NoCustomer => &problem::NO_CUSTOMER,
            Self::UnknownCharge => &problem::UNKNOWN_CHARGE,
            Self::AlreadyRefunded => &problem::ALREADY_REFUNDED,
            Self::ChargeDisputed => &problem::CHARGE_DISPUTED,
            Self::RefundOpen(_) => &problem::REFUND_OPEN,
            Self::InvalidSignature(_) => &problem::INVALID_SIGNATURE,
            Self::NotASwitch => &problem::NOT_A_SWITCH,
            Self::DeviceRemoved => &problem::DEVICE_REMOVED,
            Self::NotACamera => &problem::NOT_A_CAMERA,
            Self::PlayerOnline => &problem::PLAYER_ONLINE,
            Self::NoPlayer => &problem::NO_PLAYER,
            Self::CameraAccessDenied => &problem::CAMERA_ACCESS_DENIED,
            Self::CamerasDisabled => &problem::CAMERAS_DISABLED,
            Self::UnknownCamera => &problem::UNKNOWN_CAMERA,
            Self::CameraUnreadable => &problem::CAMERA_UNREADABLE,
            Self::NoTeam => &problem::NO_TEAM,
            Self::MessageNotSent => &problem::MESSAGE_NOT_SENT,
            Self::MapUnknown => &problem::MAP_UNKNOWN,
            Self::MapUnreadable => &problem::MAP_UNREADABLE,
            Self::GameServerUnavailable => &problem::GAME_SERVER_UNAVAILABLE,
            Self::GameServerTimeout => &problem::GAME_SERVER_TIMEOUT,
            Self::LimitReached(_) => &problem::LIMIT_REACHED,
            Self::BodyTooLarge => &problem::BODY_TOO_LARGE,
            Self::BodyTimeout => &problem::REQUEST_TIMEOUT,
            Self::UnsupportedMediaType => &problem::UNSUPPORTED_MEDIA_TYPE,
            Self::TooManyConnections => &problem::TOO_MANY_CONNECTIONS,
            Self::RateLimited(_) => &problem::RATE_LIMITED,
            Self::Internal(_) => &problem::INTERNAL_ERROR,
            Self::IdentityProviderUnavailable(_) => &problem::IDENTITY_PROVIDER_UNAVAILABLE,
            Self::PlayerStatsUnavailable(_) => &problem::PLAYER_STATS_UNAVAILABLE,
            Self::PaymentsDisabled => &problem::PAYMENTS_DISABLED,
            Self::PaymentsUnavailable(_) | Self::RefundUnanswered(_) => &problem::PAYMENT_PROVIDER_UNAVAILABLE,
            Self::PaymentsRefused(_) => &problem::PAYMENT_PROVIDER_REFUSED,
            Self::Unavailable(_) => &problem::UNAVAILABLE,
            Self::AwaitsKey => &problem::AWAITS_KEY,
            Self::UnreadableRow(_) => &problem::UNREADABLE_ROW,
            Self::NotReady(_) => &problem::NOT_READY,
            Self::Chat(chat) => chat.code(),
            Self::Registration(problem) => problem.code(),
            Self::Framework(status) if status.is_server_error() => &problem::INTERNAL_ERROR,
            Self::Framework(_) => &problem::BAD_REQUEST,
        }
    }

    /// A sentence for the client's user.
    fn detail(&self) -> String {
        match self {
            Self::MalformedJson => "The body is not well-formed JSON.".into(),
            Self::Invalid(_) => "Some values are missing or not allowed; see `errors`.".into(),
            Self::SignInRejected(_) => "The sign-in could not be verified. Please start it again.".into(),
            Self::Unauthenticated => "Please sign in.".into(),
            Self::FreshSignInRequired => {
                "This cannot be undone: please sign in again first, and then repeat it.".into()
            }
            Self::NoDeviceToken => {
                "Send the device token of a paired helper device, as `Authorization: Bearer`.".into()
            }
            Self::DeadToken => {
                "This token is not valid: it is unknown, has ended, or was deleted. Please pair the device again, or make a new token.".into()
            }
            Self::InvalidPairingCode => "This pairing code is not valid. Please ask for a new one.".into(),
            Self::ConfirmationNeeded => {
                "Please confirm this device where you asked for the code, and try again with the same code.".into()
            }
            Self::MismatchedPlatformId => "The bundle belongs to another account than this device.".into(),
            Self::CrossSite => "A request that changes something must come from this service's own pages.".into(),
            Self::AdminDisabled => "This service has no admins.".into(),
            Self::NotAdmin => "Only admins may do this.".into(),
            Self::OwnerOnly => "Only the owner of this server may do this.".into(),
            Self::InsufficientScope => "This token is valid, and not for this: another kind or scope is needed.".into(),
            Self::NotFound => "There is nothing here.".into(),
            Self::UnknownInvite => "There is no such invitation, or it was taken back.".into(),
            Self::InviteUsed => "Another user has accepted this invitation. Please ask for a new one.".into(),
            Self::InviteExpired => "This invitation has expired. Please ask for a new one.".into(),
            Self::MethodNotAllowed => "This path does not support this method; see `Allow`.".into(),
            Self::Conflict => "Something else changed this at the same time, or it exists already.".into(),
            Self::IdempotencyKeyReused => {
                "Another request came with this idempotency key. Please make a new one for each request.".into()
            }
            Self::IdempotencyKeyInUse => "The request with this idempotency key is still under way.".into(),
            Self::PreconditionFailed => "This was changed since you read it. Please read it again.".into(),
            Self::InvalidImage(why) => format!("The image {why}."),
            Self::AlreadySubscribed => "There is a subscription already. Change or cancel it in the portal.".into(),
            Self::CheckoutClosed => {
                "The page that was opened with this idempotency key is closed. Please make a new key for another one."
                    .into()
            }
            Self::SubscriptionRuns => {
                "A subscription runs. Cancel it first in the portal of the payment provider (`POST /billing/portal`)."
                    .into()
            }
            Self::NoCustomer => "There is nothing to manage yet. Please subscribe first.".into(),
            Self::UnknownCharge => "The payment provider knows no such charge.".into(),
            Self::AlreadyRefunded => "All of this charge was paid back before.".into(),
            Self::ChargeDisputed => "The payer disputes this charge at their bank.".into(),
            Self::RefundOpen(which) => which.clone(),
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
            Self::LimitReached(detail) | Self::Exists(detail) => detail.clone(),
            Self::BodyTooLarge => "The body is too large.".into(),
            Self::BodyTimeout => "The body did not arrive in time.".into(),
            Self::UnsupportedMediaType => {
                "Send JSON, with `Content-Type: application/json`, as it is or as gzip; a file as `multipart/form-data`.".into()
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
            Self::RefundUnanswered(_) => {
                "The payment provider did not answer: it is not known whether the refund was made. It is asked again each minute, \
                 and the audit log will say. Asking for the same again is safe, as it is made at most once."
                    .into()
            }
            Self::PaymentsRefused(_) => {
                "The payment provider refused. Nothing was charged or paid back; we look into it.".into()
            }
            Self::Chat(problem) => problem.detail().into(),
            Self::Registration(problem) => problem.detail(),
            Self::Unavailable(_) => "The service is not available. Please try again.".into(),
            Self::AwaitsKey => OPERATOR_REPAIRS.into(),
            Self::UnreadableRow(_) => {
                "What is stored for this cannot be read. The operator has to repair it; there is nothing for you to do."
                    .into()
            }
            Self::NotReady(_) => "Some parts of the service are not ready; see `errors`.".into(),
            Self::Framework(_) => "The request could not be read.".into(),
        }
    }

    /// True if it may be an attack, so that an operator wants to know of many.
    pub fn is_notable(&self) -> bool {
        match self {
            Self::SignInRejected(_)
            | Self::DeadToken
            | Self::InvalidPairingCode
            | Self::ConfirmationNeeded
            | Self::MismatchedPlatformId
            | Self::CrossSite
            | Self::NotAdmin
            | Self::InsufficientScope
            | Self::UnknownInvite
            | Self::InvalidSignature(_)
            | Self::TooManyConnections
            | Self::RateLimited(_) => true,
            Self::Chat(problem) => problem.is_notable(),
            _ => false,
        }
    }

    /// The limit that it was refused by.
    pub fn limit(&self) -> Option<&LimitReport> {
        if let Self::RateLimited(limit) = self { Some(limit) } else { None }
    }

    /// Logs the cause, which no client may see. Called once, by the outermost middleware.
    pub fn log(&self, request_id: &str) {
        match self {
            Self::UnreadableRow(cause) => log::error!(request_id; "{}", Chain(cause.as_ref())),
            Self::Internal(cause) => log::error!(request_id; "internal error: {}", Chain(cause.as_ref())),
            Self::Unavailable(cause)
            | Self::IdentityProviderUnavailable(cause)
            | Self::PaymentsUnavailable(cause)
            | Self::RefundUnanswered(cause) => {
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

    /// The document, whose `type` is a page below the public URL of the API.
    pub fn problem(&self, request_id: &str, base: &BaseUrl) -> Problem {
        let code = self.code();
        Problem {
            kind: base.at(&code.path()),
            title: code.title,
            status: self.status_code().as_u16(),
            detail: self.detail(),
            code: code.code,
            request_id: request_id.to_owned(),
            errors: match self {
                Self::Invalid(errors) | Self::NotReady(errors) => errors.clone(),
                Self::Chat(problem) => problem.values().iter().map(FieldError::from).collect(),
                _ => Vec::new(),
            },
        }
    }

    /// Credential that the client should present instead (RFC 9110 §11.6.1). No scheme is registered for cookies;
    /// browsers pass over those that they do not know.
    fn challenge(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unauthenticated => "Cookie realm=\"companion\", cookie-name=\"rp_sess\"",
            // As RFC 9470 names it.
            Self::FreshSignInRequired => {
                "Cookie realm=\"companion\", cookie-name=\"rp_sess\", error=\"insufficient_user_authentication\""
            }
            Self::NoDeviceToken => "Bearer realm=\"companion\"",
            Self::DeadToken => "Bearer realm=\"companion\", error=\"invalid_token\"",
            Self::InsufficientScope => "Bearer realm=\"companion\", error=\"insufficient_scope\"",
            Self::InvalidPairingCode => "PairingCode realm=\"companion\"",
            Self::Chat(ChatProblem::Unsigned(_)) => "Signature realm=\"companion\"",
            _ => return None,
        })
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code().code)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::Framework(status) => *status,
            _ => StatusCode::from_u16(self.code().status()).expect("the table holds valid statuses"),
        }
    }

    /// Status and headers; the outermost middleware, which knows the request id, writes the document.
    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        if let Some(challenge) = self.challenge() {
            response.insert_header((header::WWW_AUTHENTICATE, challenge));
        }
        match self {
            Self::RateLimited(limit) => {
                response.insert_header((header::RETRY_AFTER, whole_seconds(limit.reset)));
            }
            Self::Unavailable(_)
            | Self::AwaitsKey
            | Self::NotReady(_)
            | Self::TooManyConnections
            | Self::GameServerUnavailable
            | Self::ConfirmationNeeded
            | Self::IdempotencyKeyInUse => {
                response.insert_header((header::RETRY_AFTER, 1));
            }
            Self::IdentityProviderUnavailable(_)
            | Self::PlayerStatsUnavailable(_)
            | Self::PaymentsUnavailable(_)
            | Self::RefundUnanswered(_) => {
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
            DbError::Unavailable(_) | DbError::Damaged(_) | DbError::Fenced => Self::Unavailable(error.into()),
            DbError::Malformed(_) => Self::UnreadableRow(error.into()),
            DbError::Query(_) | DbError::NewerSchema(_) | DbError::Panicked => Self::Internal(error.into()),
        }
    }
}

impl From<RegistrationProblem> for ApiError {
    fn from(problem: RegistrationProblem) -> Self {
        Self::Registration(problem)
    }
}

impl From<BundleNotStored> for ApiError {
    fn from(error: BundleNotStored) -> Self {
        match error {
            BundleNotStored::AwaitsKey => Self::AwaitsKey,
            BundleNotStored::Database(error) => error.into(),
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
