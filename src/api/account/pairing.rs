//! Pairing of helper devices: `/pairing/device`, `/pairing/device/code`, `/pairing/device/activate`.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use chrono::TimeDelta;
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{
        account::ended_credentials,
        answer::{
            done::Done,
            error::ApiError,
            fields::one_line,
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{
            bearer::TOKEN_BYTES,
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            json::{Json, OptionalJson},
            query::Query,
            session_user::SessionUser,
        },
        rate_limits::Guessed,
    },
    crypto::digest::sha256_hex,
    db::{
        access,
        engine::{error::DbError, pool::Db},
        helper_devices::{self, HelperDevice},
        notices::new_devices,
        pairing_codes::{self, CodePurpose},
        pairing_requests,
    },
    domain::{
        guessing::Guess,
        ids::{HelperDeviceId, ServerId, SessionId, UserId},
        limits::{ACTIVATION_KEY_LENGTH, ACTIVATION_REPLAY_MINUTES, HELPER_DEVICES_PER_USER},
        pairing::{self, ActivatedDevice, CodeAdmission, ConfirmationRequest, DeviceScope, LIFETIME, PairingCode},
        sections::{Sections, StateKey},
        time::Timestamp,
    },
    relay::hub::PairingNews,
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
    /// `helper`, if absent: uploads credentials, and watches at the relay; or `overlay`: watches one server at the relay and
    /// reads its map, and nothing else.
    #[garde(custom(is_scope))]
    #[schema(pattern = "^(helper|overlay)$")]
    scope: Option<String>,
    /// The server of an overlay, which the user may watch.
    #[garde(length(max = 128), custom(one_line))]
    #[schema(format = "one-line", max_length = 128)]
    server_id: Option<String>,
    /// The keys of the state that an overlay shows, whatever it asks for; absent: all.
    #[garde(length(max = 20))]
    #[schema(max_items = 20)]
    sections: Option<Vec<StateKey>>,
}

const HELPER: &str = DeviceScope::Helper.word();
const OVERLAY: &str = DeviceScope::Overlay.word();

impl Issue {
    /// The server of an overlay; `None` for a helper.
    fn overlay(&self) -> Result<Option<ServerId>, ApiError> {
        match (self.scope.as_deref(), &self.server_id) {
            (Some(OVERLAY), Some(server)) => Ok(Some(server.as_str().into())),
            (Some(OVERLAY), None) => Err(ApiError::invalid("serverId", "is required for an overlay")),
            (_, Some(_)) => Err(ApiError::invalid("serverId", "is for an overlay only")),
            (_, None) if self.sections.is_some() => Err(ApiError::invalid("sections", "is for an overlay only")),
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
    expires_at: Timestamp,
}

/// A pairing code as it was typed.
#[derive(Deserialize, ToSchema, Validate)]
#[schema(example = json!({ "code": "LINK-7K3M" }))]
pub struct Activate {
    /// Spaces around it and case do not matter.
    #[garde(length(max = 64))]
    #[schema(max_length = 64)]
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
    #[schema(format = "device-scope")]
    scope: &'static str,
    /// The server of an overlay.
    server_id: Option<String>,
    /// The keys of the state that an overlay shows; null: all.
    sections: Option<Vec<StateKey>>,
    created_at: Timestamp,
    /// To the minute; null when it was never used.
    last_used_at: Option<Timestamp>,
    /// When the user said that they know of it; null: not yet.
    seen_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
struct HelperDeviceList {
    devices: Vec<HelperDeviceView>,
    /// Devices that have typed a code of the user in another network than it was issued in, while many wrong codes are
    /// tried: each waits for the user to confirm it. Oldest first, on every page.
    #[schema(max_items = 15)]
    requests: Vec<ConfirmationRequest>,
    /// The `before` of the next page; `null` after the last.
    next: Option<String>,
}

impl From<HelperDevice> for HelperDeviceView {
    fn from(device: HelperDevice) -> Self {
        let HelperDevice { id, label, created_at, last_used_at, overlay, sections, seen_at, .. } = device;
        let sections = sections.map(|text| Sections::from(text).iter().collect());
        let scope = if overlay.is_some() { OVERLAY } else { HELPER };
        let server_id = overlay.map(|server| server.to_string());
        Self { id: id.to_string(), label, scope, server_id, sections, created_at, last_used_at, seen_at }
    }
}

/// Issues a code that pairs one helper device, or one overlay of a server that the user may watch. Three are valid at once; a fourth invalidates the oldest.
#[utoipa::path(post, path = "/pairing/device/code", tag = "pairing",
    request_body = Option<Issue>, responses(
    (status = 200, body = IssuedCode),
    (status = 404, description = "No such `serverId`"),
    (status = 409, description = "`limit_reached`"),
))]
pub async fn create_code(
    req: HttpRequest,
    SessionUser { user, .. }: SessionUser,
    once: Idempotent,
    OptionalJson(issue): OptionalJson<Issue>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let overlay = issue.overlay()?;
    let sections = issue.sections.map(|keys| keys.into_iter().collect::<Sections>().text());
    let purpose = CodePurpose { user: user.id, overlay, label: issue.label, sections };
    let (prefix, random, now) =
        (context.settings.pairing_code_prefix.clone(), context.random.clone(), context.clock.now());
    let (caller, network) = (purpose.user.clone(), context.limits.rate_limits.client_network(&req).to_string());
    let issue = move |db: &mut Db| {
        if !still_allowed(db, &purpose)? {
            return Err(ApiError::NotFound);
        }
        if helper_devices::count(db, &purpose.user)? >= HELPER_DEVICES_PER_USER {
            return Err(ApiError::LimitReached(format!(
                "One user can pair {HELPER_DEVICES_PER_USER} helper devices at most. Delete one first."
            )));
        }
        let code = pairing_codes::issue(db, &purpose, &network, || PairingCode::new(&prefix, random.bytes()), now)?;
        let issued = IssuedCode { code: code.as_str().to_owned(), expires_at: now + LIFETIME };
        Ok((ReplayableAnswer::new(StatusCode::OK, &issued), ()))
    };
    once.write(KeyCaller::User(caller), issue, |()| ()).await
}

/// True if the user may watch the server of an overlay; a helper is always allowed.
fn still_allowed(db: &mut Db, purpose: &CodePurpose) -> Result<bool, DbError> {
    let Some(server) = &purpose.overlay else { return Ok(true) };
    access::may_watch(db, &purpose.user, server)
}

/// Exchanges a code, once, for a device token. The code is the credential. From another network than that of the session
/// which asked for it, and while many wrong codes are tried, it also takes the user's confirmation.
#[utoipa::path(post, path = "/pairing/device/activate", tag = "pairing", request_body = Activate, responses(
    (status = 200, body = Activated),
    (status = 401, description = "`invalid_pairing_code`: unknown, expired, used or invalidated"),
    (status = 429,
        description = "`rate_limited`: too many wrong codes from this network or from all; `confirmation_needed`: send the same code again once its user has confirmed the device"),
))]
pub async fn activate(
    req: HttpRequest,
    once: Idempotent,
    Json(Activate { code }): Json<Activate>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (limits, moment) = (&context.limits.rate_limits, context.clock.moment());
    // Paid before the look-up, so that concurrent and aborted requests get no extra guesses.
    let (what, guess) = match limits.begin_guess(Guessed::PairingCode, &req, moment) {
        Ok(guess) => (Guessed::PairingCode, guess),
        Err(refused) => {
            let at_home = limits.begin_guess(Guessed::PairingCodeAtHome, &req, moment);
            (Guessed::PairingCodeAtHome, at_home.map_err(|_| refused)?)
        }
    };
    let typed = TypedByDevice { network: limits.client_network(&req).to_string(), what, guess };
    match exchange(&context, once, &code, typed).await {
        Err(ApiError::InvalidPairingCode) => Err(limits.guessed_wrong(what, guess, ApiError::InvalidPairingCode)),
        answered => {
            limits.pay_back_guess(what, guess);
            answered
        }
    }
}

/// The network in which a code was typed, and the guess that paid for its look-up.
struct TypedByDevice {
    network: String,
    what: Guessed,
    guess: Guess,
}

async fn exchange(
    context: &web::Data<ApiContext>,
    once: Idempotent,
    code: &str,
    TypedByDevice { network, what, guess }: TypedByDevice,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let code = PairingCode::parse(&context.settings.pairing_code_prefix, code).ok_or(ApiError::InvalidPairingCode)?;
    let (asked, from) = (code.clone(), network.clone());
    let live = context.pool.read(move |db| pairing_codes::find(db, &asked, &from, now)).await?;
    // No user is signed in: in one network, all requests with the code and the key are of the same caller.
    let caller = KeyCaller::Knowing(format!("code {} {network}", sha256_hex(code.as_str().as_bytes())));
    let since = now - TimeDelta::minutes(ACTIVATION_REPLAY_MINUTES);
    match live {
        // Most guesses end here, with a read. The answer to a code that was used may be kept under the request's key.
        None if !once.is_known_since(&caller, since, ACTIVATION_KEY_LENGTH).await? => {
            return Err(ApiError::InvalidPairingCode);
        }
        None => {}
        Some(live) => {
            let home_only = what == Guessed::PairingCodeAtHome;
            match pairing::admission(live.at_home, live.confirmed, home_only, guess.ceiling) {
                CodeAdmission::Paired => {}
                CodeAdmission::Refused => return Err(ApiError::InvalidPairingCode),
                CodeAdmission::Confirmation => return Err(ask_user(context, code, network).await?),
            }
        }
    }
    let token = context.random.hex::<TOKEN_BYTES>();
    let id = context.random.id::<HelperDeviceId>(now);
    let hub = context.services.hub.clone();
    let activate = move |db: &mut Db| {
        let purpose = pairing_codes::take(db, &code, now)?.ok_or(ApiError::InvalidPairingCode)?;
        if !still_allowed(db, &purpose)? {
            return Err(ApiError::InvalidPairingCode);
        }
        helper_devices::insert(db, &id, &purpose, &sha256_hex(token.as_bytes()), now)?;
        let CodePurpose { user, label, overlay: server_id, .. } = purpose;
        let activated = Activated { token, user_id: user.to_string(), device_id: id.to_string() };
        let device = ActivatedDevice { id: id.clone(), label, server_id, network };
        Ok((ReplayableAnswer::of_device(id, &activated), (user, device)))
    };
    let notify = move |(user, device): &(UserId, ActivatedDevice)| {
        log::info!(user:%, device:% = device.id; "a helper device was paired");
        hub.do_send(PairingNews::Paired { user: user.clone(), device: device.clone() });
    };
    once.write(caller, activate, notify).await
}

/// Lists the device for the user of the code, who has to confirm it.
async fn ask_user(context: &web::Data<ApiContext>, code: PairingCode, network: String) -> Result<ApiError, ApiError> {
    let (now, hub) = (context.clock.now(), context.services.hub.clone());
    let id: String = context.random.id(now);
    let ask = move |db: &mut Db| pairing_requests::ask(db, &code, &network, &id, now);
    let notify = move |asked: &Option<_>| {
        if let Some((user, request)) = asked.clone() {
            hub.do_send(PairingNews::Requested { user, request });
        }
    };
    context.pool.write_and_notify(ask, notify).await?;
    Ok(ApiError::ConfirmationNeeded)
}

/// Confirms a device that waits: it is paired when it sends its code again.
#[utoipa::path(post, path = "/pairing/device/requests/{id}", tag = "pairing",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
    (status = 404, description = "No such request, or its code has been used or has expired"),
))]
pub async fn confirm(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (id, now) = (path.into_inner(), context.clock.now());
    let caller = user.id.clone();
    if !context.pool.write(move |db| pairing_requests::confirm(db, &caller, &id, now)).await? {
        return Err(ApiError::NotFound);
    }
    log::info!(user:% = user.id; "a device was confirmed");
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// This user's helper devices, oldest first, and those that wait for a confirmation.
#[utoipa::path(get, path = "/pairing/device", tag = "pairing", params(ListPage), responses(
    (status = 200, body = HelperDeviceList),
))]
pub async fn list(
    SessionUser { user, .. }: SessionUser,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let read = move |db: &mut Db| Ok((helper_devices::list(db, &user.id)?, pairing_requests::list(db, &user.id, now)?));
    let (devices, requests) = context.pool.read(read).await?;
    let devices = devices.into_iter().map(HelperDeviceView::from).collect();
    let (devices, next) =
        page.cut(devices, |device: &HelperDeviceView| ListPlace::oldest_first(device.created_at, &device.id))?;
    Ok(HttpResponse::Ok().json(HelperDeviceList { devices, requests, next }))
}

/// Says that the user knows of a helper device: dashboards and channels announce it no more.
#[utoipa::path(post, path = "/pairing/device/{id}/seen", tag = "pairing",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn note_seen(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (device, now) = (HelperDeviceId::from(path.into_inner()), context.clock.now());
    Done::if_found(context.pool.write(move |db| new_devices::note_seen(db, &user.id, &device, now)).await?)
}

/// Deletes a helper device: its token is invalid from then on, and its sockets at the relay close.
#[utoipa::path(delete, path = "/pairing/device/{id}", tag = "pairing",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    SessionUser { user, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let device = HelperDeviceId::from(path.into_inner());
    let session = SessionId::of_device(&device);
    ended_credentials::end(&context, session, move |db| helper_devices::delete(db, &user.id, &device)).await
}
