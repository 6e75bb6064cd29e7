//! Pairing of helper devices: `/pairing/device`, `/pairing/device/code`, `/pairing/device/activate`.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        context::ApiContext,
        done::Done,
        error::{ApiError, Problem},
        extract::{
            device_owner::TOKEN_BYTES,
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::{Json, OptionalJson},
            session_user::SessionUser,
        },
        fields::one_line,
        rate_limits::{Guessed, guess_refused},
    },
    crypto::digest::sha256_hex,
    db::{
        access,
        error::DbError,
        helper_devices::{self, HelperDevice},
        pairing_codes::{self, CodePurpose},
        pool::Db,
    },
    domain::{
        access::Action,
        ids::{HelperDeviceId, ServerId, SessionId, UserId},
        limits::HELPER_DEVICES_PER_USER,
        pairing::{LIFETIME, PairingCode, WRONG_PER_ADDRESS},
        time::{self, Timestamp},
    },
    relay::hub::SessionEnded,
};

/// The device that the code is for.
#[derive(Default, Deserialize, ToSchema, Validate)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({ "label": "PC at home" }))]
pub struct Issue {
    /// The device's name in the list of devices.
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    #[schema(format = "one-line", min_length = 1, max_length = 100)]
    label: Option<String>,
    /// `helper`, if absent: acts for the user; or `overlay`: mints relay tokens that watch one server, and nothing else.
    #[garde(custom(is_scope))]
    #[schema(pattern = "^(helper|overlay)$")]
    scope: Option<String>,
    /// The server of an overlay, which the user may watch.
    #[garde(length(max = 128), custom(one_line))]
    #[schema(format = "one-line", max_length = 128)]
    server_id: Option<String>,
}

const HELPER: &str = "helper";
const OVERLAY: &str = "overlay";

impl Issue {
    /// The server of an overlay; `None` for a helper.
    fn overlay(&self) -> Result<Option<ServerId>, ApiError> {
        match (self.scope.as_deref(), &self.server_id) {
            (Some(OVERLAY), Some(server)) => Ok(Some(server.as_str().into())),
            (Some(OVERLAY), None) => Err(ApiError::invalid("serverId", "is required for an overlay")),
            (_, Some(_)) => Err(ApiError::invalid("serverId", "is for an overlay only")),
            (_, None) => Ok(None),
        }
    }
}

fn is_scope(scope: &Option<String>, _: &()) -> garde::Result {
    match scope.as_deref() {
        None | Some(HELPER | OVERLAY) => Ok(()),
        Some(_) => Err(garde::Error::new("must be helper or overlay")),
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct IssuedCode {
    /// `PREFIX-XXXX`.
    code: String,
    /// 10 minutes from now.
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// A pairing code as it was typed.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "code": "LINK-7K3M" }))]
pub struct Activate {
    /// Spaces around it and case do not matter.
    #[garde(skip)]
    code: String,
}

/// The answer to an activation. The token is not shown again.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Activated {
    /// 96 hex digits, for `Authorization: Bearer`; valid until the device is deleted.
    token: String,
    user_id: String,
    device_id: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HelperDeviceView {
    id: String,
    label: Option<String>,
    /// `helper` or `overlay`.
    scope: &'static str,
    /// The server of an overlay.
    server_id: Option<String>,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// To the minute; null when it was never used.
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
struct HelperDeviceList {
    devices: Vec<HelperDeviceView>,
}

impl From<HelperDevice> for HelperDeviceView {
    fn from(device: HelperDevice) -> Self {
        let HelperDevice { id, label, created_at, last_used_at, overlay, .. } = device;
        let scope = if overlay.is_some() { OVERLAY } else { HELPER };
        let server_id = overlay.map(|server| server.to_string());
        Self { id: id.to_string(), label, scope, server_id, created_at, last_used_at }
    }
}

/// Issues a code that pairs one helper device, or one overlay of a server that the user may watch. Three are valid at once; a fourth invalidates the oldest.
#[utoipa::path(post, path = "/pairing/device/code", tag = "pairing", security(("session" = [])),
    request_body = Option<Issue>, responses(
    (status = 200, body = IssuedCode),
    (status = 400, body = Problem, content_type = "application/problem+json"),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "No such `serverId`"),
    (status = 409, body = Problem, content_type = "application/problem+json", description = "`limit_reached`"),
))]
pub async fn issue(
    SessionUser { user, .. }: SessionUser,
    once: Idempotent,
    OptionalJson(issue): OptionalJson<Issue>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let purpose = CodePurpose { user: user.id, overlay: issue.overlay()?, label: issue.label };
    let (prefix, random, now) = (context.pairing_code_prefix.clone(), context.random.clone(), context.clock.now());
    let caller = purpose.user.clone();
    let issue = move |db: &mut Db| {
        if !still_allowed(db, &purpose)? {
            return Err(ApiError::NotFound);
        }
        if helper_devices::count(db, &purpose.user)? >= HELPER_DEVICES_PER_USER {
            return Err(ApiError::LimitReached(format!(
                "One user can pair {HELPER_DEVICES_PER_USER} helper devices at most. Delete one first."
            )));
        }
        let code = pairing_codes::issue(db, &purpose, || PairingCode::new(&prefix, random.bytes()), now)?;
        let issued = IssuedCode { code: code.as_str().to_owned(), expires_at: now + LIFETIME };
        Ok((ReplayableAnswer::new(StatusCode::OK, &issued), ()))
    };
    once.write(KeyCaller::User(caller), issue, |()| ()).await
}

/// Whether the user may watch the server of an overlay; a helper is always allowed.
fn still_allowed(db: &mut Db, purpose: &CodePurpose) -> Result<bool, DbError> {
    let Some(server) = &purpose.overlay else { return Ok(true) };
    Ok(access::role(db, &purpose.user, server)?.is_some_and(|role| role.may(Action::Watch)))
}

/// Exchanges a code, once, for a device token. The code is the credential.
#[utoipa::path(post, path = "/pairing/device/activate", tag = "pairing", request_body = Activate, responses(
    (status = 200, body = Activated),
    (status = 401, body = Problem, content_type = "application/problem+json",
        description = "`invalid_pairing_code`: unknown, expired, used or invalidated"),
    (status = 429, body = Problem, content_type = "application/problem+json",
        description = "`rate_limited`: too many wrong codes"),
))]
pub async fn activate(
    req: HttpRequest,
    once: Idempotent,
    Json(Activate { code }): Json<Activate>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    // Paid before the look-up, so that concurrent and aborted requests get no extra guesses.
    let guess = context.rate_limits.begin_guess(Guessed::PairingCode, &req, context.clock.moment())?;
    let wrong = || {
        if guess.within_global {
            ApiError::InvalidPairingCode
        } else {
            guess_refused(Guessed::PairingCode, WRONG_PER_ADDRESS.every.to_std().unwrap_or_default())
        }
    };
    let code = PairingCode::parse(&context.pairing_code_prefix, &code).ok_or_else(wrong)?;
    let token = context.random.hex::<TOKEN_BYTES>();
    let device = context.random.id::<HelperDeviceId>(now);
    // Nobody is signed in: whoever has the code and the key is the same caller.
    let caller = KeyCaller::Knowing(format!("code {}", sha256_hex(code.as_str().as_bytes())));
    let activate = move |db: &mut Db| {
        let purpose = pairing_codes::take(db, &code, now)?.ok_or(ApiError::InvalidPairingCode)?;
        if !still_allowed(db, &purpose)? {
            return Err(ApiError::InvalidPairingCode);
        }
        helper_devices::insert(db, &device, &purpose, &sha256_hex(token.as_bytes()), now)?;
        let activated = Activated { token, user_id: purpose.user.to_string(), device_id: device.to_string() };
        Ok((ReplayableAnswer::of_device(device.clone(), &activated), (purpose.user, device)))
    };
    let tell = |(user, device): &(UserId, HelperDeviceId)| log::info!(user:%, device:%; "a helper device was paired");
    match once.write(caller, activate, tell).await {
        Err(ApiError::InvalidPairingCode) => Err(wrong()),
        answered => {
            context.rate_limits.pay_back_guess(Guessed::PairingCode, guess);
            answered
        }
    }
}

/// This user's helper devices, oldest first.
#[utoipa::path(get, path = "/pairing/device", tag = "pairing", security(("session" = [])), responses(
    (status = 200, body = HelperDeviceList),
    (status = 401, body = Problem, content_type = "application/problem+json"),
))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let devices = context.pool.read(move |db| helper_devices::list(db, &user.id)).await?;
    Ok(HttpResponse::Ok().json(HelperDeviceList { devices: devices.into_iter().map(Into::into).collect() }))
}

/// Deletes a helper device: its token is invalid from then on, and its sockets at the relay close.
#[utoipa::path(delete, path = "/pairing/device/{id}", tag = "pairing", security(("session" = [])),
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 401, body = Problem, content_type = "application/problem+json"),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn remove(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let device = HelperDeviceId::from(path.into_inner());
    let (hub, session) = (context.hub.clone(), SessionId::of_device(&device));
    let tell = move |deleted: &bool| {
        if *deleted {
            hub.do_send(SessionEnded { session });
        }
    };
    if !context.pool.write_and_tell(move |db| helper_devices::delete(db, &user.id, &device), tell).await? {
        return Err(ApiError::NotFound);
    }
    Ok(HttpResponse::Ok().json(Done::OK))
}
