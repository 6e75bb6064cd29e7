//! Push credentials: `/credentials/push`, and why the last one was refused: `/credentials/push/refusal`.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        account::push_bundle::HelperBundle,
        answer::{
            done::Done,
            error::{ApiError, Problem},
        },
        context::ApiContext,
        extract::{bearer::DeviceOwner, json::is_json, session_user::SessionUser},
    },
    db::{
        engine::pool::Db,
        push_credentials::{self, PushCredential, SealedBundle, Slot},
        push_refusals::{self, PushRefusal},
    },
    domain::{
        credential::{self, InvalidBundle, Warning},
        time::{self, Timestamp},
    },
    push::{session_status::PushSession, worker::CredentialChanged},
};

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Uploaded {
    ok: bool,
    /// The account to which the bundle belongs (SteamID64).
    platform_id: String,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    uploaded_at: Timestamp,
    /// True: the bundle in use works, and stays in use until this one has logged in too.
    staged: bool,
}

/// A user's stored credential, and its push session.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct PushCredentialView {
    state: CredentialState,
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    uploaded_at: Option<Timestamp>,
    /// As the bundle says, otherwise 14 days after its upload.
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// When the bundle in use last logged in at the push service.
    #[serde(serialize_with = "time::wire_option")]
    #[schema(value_type = Option<String>, format = DateTime)]
    proven_at: Option<Timestamp>,
    /// Number of the key that sealed the bundle in use.
    key_version: Option<i32>,
    /// A newer upload that has not logged in yet.
    staged: Option<StagedView>,
    /// The last upload that does not work, until one does or this is dismissed.
    refusal: Option<RefusalView>,
    /// From 72 hours before it expires: `expires_soon`, then `expired`.
    #[schema(value_type = Option<String>)]
    warning: Option<Warning>,
    /// The push session: `connecting`, `connected`, `unreachable`, `refresh_needed` or `unreadable`, since when,
    /// and the times of its last heartbeat and message. `lastError` is `unresolved`, `no_connection`,
    /// `untrusted_certificate`, `timed_out`, `login_refused`, `service_fault`, `protocol`, `closed`, `connection_broke`,
    /// `silent`, `unusable_bundle`, `unknown_key` (the operator repairs it), `lost_bundle`, `database`, `push_not_stored` or null.
    #[schema(value_type = Option<Object>)]
    session: Option<PushSession>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StagedView {
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    uploaded_at: Timestamp,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// An uploaded bundle that does not work. One in use stays in use.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusalView {
    /// The label of the helper device that uploaded it.
    device_label: Option<String>,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    uploaded_at: Timestamp,
    #[serde(serialize_with = "time::wire")]
    #[schema(value_type = String, format = DateTime)]
    refused_at: Timestamp,
    /// `login_refused` or `unusable_bundle`.
    #[schema(format = "credential-refusal")]
    reason: &'static str,
    /// Advice to its owner.
    advice: &'static str,
}

impl From<PushRefusal> for RefusalView {
    fn from(PushRefusal { uploaded_at, uploaded_by, reason, refused_at }: PushRefusal) -> Self {
        Self { device_label: uploaded_by, uploaded_at, refused_at, reason: reason.word(), advice: reason.advice() }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum CredentialState {
    /// Nothing is stored.
    Missing,
    /// Stored, and has not logged in at the push service yet.
    Unproven,
    /// Has logged in.
    Proven,
}

impl PushCredentialView {
    pub fn new(
        credential: Option<PushCredential>,
        refusal: Option<PushRefusal>,
        session: Option<PushSession>,
        now: Timestamp,
    ) -> Self {
        let Some(PushCredential { in_use, proven_at, staged, .. }) = credential else {
            return Self {
                state: CredentialState::Missing,
                uploaded_at: None,
                expires_at: None,
                proven_at: None,
                key_version: None,
                staged: None,
                refusal: None,
                warning: None,
                session: None,
            };
        };
        Self {
            state: if proven_at.is_some() { CredentialState::Proven } else { CredentialState::Unproven },
            uploaded_at: Some(in_use.uploaded_at),
            expires_at: Some(in_use.expires_at),
            proven_at,
            key_version: Some(in_use.key_version),
            staged: staged.map(|staged| StagedView { uploaded_at: staged.uploaded_at, expires_at: staged.expires_at }),
            refusal: refusal.map(RefusalView::from),
            warning: credential::warning(in_use.expires_at, now),
            session,
        }
    }
}

/// The result of the game's companion login: only the account is read, everything else is kept as it is.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", example = json!({
    "platformId": "76561198000000001",
    "fcm_credentials": { "gcm": { "androidId": "5017632489311047125", "securityToken": "6391402857712039184" } }
}))]
#[allow(dead_code, reason = "the shape of what `domain::credential` reads")]
struct OpaqueBundle {
    /// The user's SteamID64.
    #[schema(format = "steamid64")]
    platform_id: String,
}

/// Stores the bundle with which the game's pushes are received: opaque JSON, at most 64 KiB, with the account as
/// `platformId` at its top level. Sealed at rest, never shown again.
#[utoipa::path(put, path = "/credentials/push", tag = "push credential", security(("device" = [])),
    request_body(content = HelperBundle, content_type = "application/json"), responses(
    (status = 200, body = Uploaded),
    (status = 400, body = Problem, content_type = "application/problem+json",
        description = "`mismatched_platform_id`: the bundle belongs to another account"),
    (status = 403, body = Problem, content_type = "application/problem+json", description = "`insufficient_scope`"),
    (status = 503, body = Problem, content_type = "application/problem+json",
        description = "`awaits_key`: what is stored cannot be read now, and is not replaced"),
))]
pub async fn upload(
    DeviceOwner { user, label, .. }: DeviceOwner,
    req: HttpRequest,
    body: web::Bytes,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    if !is_json(&req) {
        return Err(ApiError::UnsupportedMediaType);
    }
    let now = context.clock.now();
    let bundle = credential::read(&body, now).map_err(|error| match error {
        InvalidBundle::TooLarge => ApiError::BodyTooLarge,
        InvalidBundle::Malformed => ApiError::MalformedJson,
        InvalidBundle::NotAnObject => ApiError::invalid("", "must be an object"),
        InvalidBundle::NoPlatformId => ApiError::invalid("platformId", "must be a SteamID64, at the top level, once"),
    })?;
    if bundle.platform_id != user.platform_id {
        return Err(ApiError::MismatchedPlatformId);
    }
    let (vault, owner, expires_at) = (context.vault.clone(), user.id.clone(), bundle.expires_at);
    let upload = move |db: &mut Db| {
        if let Some(PushCredential { in_use, staged, .. }) = push_credentials::get(db, &owner)?
            && [Some(&in_use), staged.as_ref()]
                .into_iter()
                .flatten()
                .any(|known| vault.bundle_awaits_key(&owner, known))
        {
            return Err(ApiError::AwaitsKey);
        }
        let sealed = vault.seal_push_bundle(&owner, &body);
        let key_version = vault.key_version();
        let bundle = SealedBundle { sealed, key_version, uploaded_at: now, uploaded_by: label, expires_at };
        Ok(push_credentials::upload(db, &owner, &bundle)?)
    };
    let (push, changed) = (context.push.clone(), user.id.clone());
    let tell = move |_: &_| push.do_send(CredentialChanged { user: changed });
    let (slot, uploaded_at) = context.pool.write_and_tell(upload, tell).await?;
    log::info!(user:% = user.id, staged = slot == Slot::Staged; "a push credential was uploaded");
    Ok(HttpResponse::Ok().json(Uploaded {
        ok: true,
        platform_id: user.platform_id.to_string(),
        uploaded_at,
        staged: slot == Slot::Staged,
    }))
}

/// This user's stored credential, and its push session.
#[utoipa::path(get, path = "/credentials/push", tag = "push credential", security(("session" = [])), responses(
    (status = 200, body = PushCredentialView),
))]
pub async fn get(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let session = context.push_session(&user.id).await?;
    let read = move |db: &mut Db| Ok((push_credentials::get(db, &user.id)?, push_refusals::get(db, &user.id)?));
    let (credential, refusal) = context.pool.read(read).await?;
    Ok(HttpResponse::Ok().json(PushCredentialView::new(credential, refusal, session, context.clock.now())))
}

/// Deletes the credential, also a staged one, and ends its push session.
#[utoipa::path(delete, path = "/credentials/push", tag = "push credential", security(("session" = [])), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn remove(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (push, owner) = (context.push.clone(), user.id.clone());
    let tell = move |removed: &bool| {
        if *removed {
            push.do_send(CredentialChanged { user: user.id });
        }
    };
    if !context.pool.write_and_tell(move |db| push_credentials::delete(db, &owner), tell).await? {
        return Err(ApiError::NotFound);
    }
    Ok(HttpResponse::Ok().json(Done::OK))
}

/// Dismisses the refusal that `GET /credentials/push` shows. It is not shown again unless another bundle is refused.
#[utoipa::path(delete, path = "/credentials/push/refusal", tag = "push credential", security(("session" = [])), responses(
    (status = 200, body = Done),
    (status = 404, body = Problem, content_type = "application/problem+json"),
))]
pub async fn dismiss_refusal(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    if !context.pool.write(move |db| push_refusals::dismiss(db, &user.id)).await? {
        return Err(ApiError::NotFound);
    }
    Ok(HttpResponse::Ok().json(Done::OK))
}
