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
        extract::{bearer::DeviceOwner, caller::Caller, json::is_json, session_user::SessionUser},
    },
    db::{
        engine::{error::DbError, pool::Db},
        push_credentials::{self, PushCredential, Slot},
        push_refusals::{self, PushRefusal},
        push_registrations::{self, PushRegistration},
    },
    domain::{
        credential::{self, CredentialState, InvalidBundle, Warning},
        ids::PlatformId,
        registration::StepFault,
        time::Timestamp,
    },
    push::{
        bundle_upload::{self, NewBundle},
        registration_rows,
        session_status::PushSession,
        worker::CredentialChanged,
    },
};

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Uploaded {
    ok: bool,
    /// The account to which the bundle belongs (SteamID64).
    platform_id: String,
    uploaded_at: Timestamp,
    /// True: the bundle in use works, and stays in use until this one has logged in too.
    staged: bool,
}

/// A user's stored credential, and its push session.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct PushCredentialView {
    /// The user's account (SteamID64), to which a bundle has to belong; for the user only.
    #[serde(skip_serializing_if = "Option::is_none")]
    platform_id: Option<String>,
    #[schema(value_type = String, format = "credential-state")]
    state: CredentialState,
    uploaded_at: Option<Timestamp>,
    /// As the bundle says, otherwise 14 days after its upload.
    expires_at: Option<Timestamp>,
    /// When the bundle in use last logged in at the push service.
    proven_at: Option<Timestamp>,
    /// Number of the key that sealed the bundle in use.
    key_version: Option<i32>,
    /// A newer upload that has not logged in yet.
    staged: Option<StagedView>,
    /// The last upload that does not work, until one does or this is dismissed.
    refusal: Option<RefusalView>,
    /// From 72 hours before it expires: `expires_soon`, from 24 hours on `expires_within_a_day`, then `expired`. A
    /// registration that the service renews reaches none of them, unless the renewal fails.
    #[schema(value_type = Option<String>)]
    warning: Option<Warning>,
    /// The push session: `connecting`, `connected`, `unreachable`, `refresh_needed` or `unreadable`, since when,
    /// and the times of its last heartbeat and message. `lastError` is `unresolved`, `no_connection`,
    /// `untrusted_certificate`, `timed_out`, `login_refused`, `service_fault`, `protocol`, `closed`, `connection_broke`,
    /// `silent`, `unusable_bundle`, `unknown_key` (the operator repairs it), `lost_bundle`, `database`, `push_not_stored`,
    /// `node_silent` (the part of the service that has the session does not answer, and its state is not known) or null.
    #[schema(value_type = Option<Object>)]
    session: Option<PushSession>,
    /// The registration that the service makes itself; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    registration: Option<RegistrationSummary>,
}

/// A registration that the service makes itself, in short.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RegistrationSummary {
    id: String,
    /// The service renews it.
    renew: bool,
    /// End of the registration at the game; null while it is being made.
    ends_at: Option<Timestamp>,
    /// When the service goes on by itself: with a renewal, or after a failure that may pass.
    continues_at: Option<Timestamp>,
    /// Code of the last failure, if nothing succeeded after it.
    code: Option<&'static str>,
    /// Advice to the user about it.
    advice: Option<&'static str>,
}

impl From<PushRegistration> for RegistrationSummary {
    fn from(row: PushRegistration) -> Self {
        let fault = row.progress.fault.as_deref().map(StepFault::of);
        Self {
            id: row.id,
            renew: row.renew,
            ends_at: row.ends_at,
            continues_at: row.due_at,
            code: fault.map(StepFault::code),
            advice: fault.map(StepFault::advice),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StagedView {
    uploaded_at: Timestamp,
    expires_at: Timestamp,
}

/// An uploaded bundle that does not work. One in use stays in use.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusalView {
    /// The label of the helper device that uploaded it.
    device_label: Option<String>,
    uploaded_at: Timestamp,
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

impl PushCredentialView {
    pub(crate) fn new(
        credential: Option<PushCredential>,
        refusal: Option<PushRefusal>,
        session: Option<PushSession>,
        now: Timestamp,
    ) -> Self {
        let Some(PushCredential { in_use, proven_at, staged, .. }) = credential else {
            return Self {
                platform_id: None,
                state: CredentialState::Missing,
                uploaded_at: None,
                expires_at: None,
                proven_at: None,
                key_version: None,
                staged: None,
                refusal: None,
                warning: None,
                session: None,
                registration: None,
            };
        };
        Self {
            platform_id: None,
            state: if proven_at.is_some() { CredentialState::Proven } else { CredentialState::Unproven },
            uploaded_at: Some(in_use.uploaded_at),
            expires_at: Some(in_use.expires_at),
            proven_at,
            key_version: Some(in_use.key_version),
            staged: staged.map(|staged| StagedView { uploaded_at: staged.uploaded_at, expires_at: staged.expires_at }),
            refusal: refusal.map(RefusalView::from),
            warning: credential::warning(in_use.expires_at, now),
            session,
            registration: None,
        }
    }

    /// With what only this user sees: the account, and the registration that the service makes itself.
    fn for_owner(self, owner: PlatformId, registration: Option<PushRegistration>) -> Self {
        let registration = registration.map(RegistrationSummary::from);
        Self { platform_id: Some(owner.to_string()), registration, ..self }
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
#[utoipa::path(put, path = "/credentials/push", tag = "push credential",
    request_body(content = HelperBundle, content_type = "application/json"), responses(
    (status = 200, body = Uploaded),
    (status = 400, description = "`mismatched_platform_id`: the bundle belongs to another account"),
    (status = 403, description = "`insufficient_scope`"),
    (status = 503, description = "`awaits_key`: what is stored cannot be read now, and is not replaced"),
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
    let (vault, owner) = (context.keys.vault.clone(), user.id.clone());
    let bundle = NewBundle { json: body.to_vec(), uploaded_by: label, expires_at: bundle.expires_at };
    let upload = move |db: &mut Db| Ok::<_, ApiError>(bundle_upload::store(db, &vault, &owner, &bundle, now)?);
    let (push, changed) = (context.services.push.clone(), user.id.clone());
    let notify = move |_: &_| push.do_send(CredentialChanged { user: changed });
    let (slot, uploaded_at) = context.pool.write_and_notify(upload, notify).await?;
    log::info!(user:% = user.id, staged = slot == Slot::Staged; "a push credential was uploaded");
    Ok(HttpResponse::Ok().json(Uploaded {
        ok: true,
        platform_id: user.platform_id.to_string(),
        uploaded_at,
        staged: slot == Slot::Staged,
    }))
}

/// This user's stored credential, and its push session. A helper device reads it too, to see that the service receives
/// the pushes.
#[utoipa::path(get, path = "/credentials/push", tag = "push credential", responses(
    (status = 200, body = PushCredentialView),
))]
pub async fn get(Caller { user, .. }: Caller, context: web::Data<ApiContext>) -> Result<HttpResponse, ApiError> {
    let session = context.push_session(&user.id).await?;
    let owner = user.platform_id;
    let read = move |db: &mut Db| {
        let stored = (push_credentials::get(db, &user.id)?, push_refusals::get(db, &user.id)?);
        let registration = push_registrations::get(db, &user.id)?.filter(|row| !row.is_device_only());
        Ok((stored, registration))
    };
    let ((credential, refusal), registration) = context.pool.read(read).await?;
    let view = PushCredentialView::new(credential, refusal, session, context.clock.now());
    Ok(HttpResponse::Ok().json(view.for_owner(owner, registration)))
}

/// A credential that was deleted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RemovedCredential {
    ok: bool,
    /// Absent: the service had not registered it. True: the registration at the game has ended. False: that was not
    /// possible, because the service has no token of the account or the game did not answer, and it ends by itself 14 days
    /// after it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    unregistered: Option<bool>,
    /// With `unregistered` false: until then the game sends to the device, which nothing reads. Absent where it was not
    /// known to be registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends_at: Option<Timestamp>,
}

/// Deletes the credential, also a staged one, and ends its push session. A registration that the service made is ended at
/// the game, if it has the token for that, and deleted. The identity of its device stays, sealed, until the user is erased:
/// the next registration takes it up.
#[utoipa::path(delete, path = "/credentials/push", tag = "push credential", responses(
    (status = 200, body = RemovedCredential),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`not_found`"),
))]
pub async fn delete(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (push, owner, user_id) = (context.services.push.clone(), user.id.clone(), user.id.clone());
    let notify = move |removed: &Option<Option<PushRegistration>>| {
        if removed.is_some() {
            push.do_send(CredentialChanged { user: user.id });
        }
    };
    let (vault, id) = (context.keys.vault.clone(), context.random.id(context.clock.now()));
    let remove = move |db: &mut Db| -> Result<_, DbError> {
        let registration = registration_rows::close(db, &vault, &owner, id)?;
        let is_removed = push_credentials::delete(db, &owner)? || registration.is_some();
        Ok(is_removed.then_some(registration))
    };
    let registration = context.pool.write_and_notify(remove, notify).await?.ok_or(ApiError::NotFound)?;
    if let Some(running) = &context.services.registrar {
        running.cancel(&user_id);
    }
    let ends_at = registration.as_ref().and_then(|registration| registration.ends_at);
    let unregistered = match (registration, &context.services.registrar) {
        (Some(registration), Some(registrar)) => match registrar.opened(&registration) {
            Some(device) => Some(registrar.unregister(&device).await),
            None => Some(false),
        },
        (registration, _) => registration.map(|_| false),
    };
    let ends_at = ends_at.filter(|_| unregistered == Some(false));
    Ok(HttpResponse::Ok().json(RemovedCredential { ok: true, unregistered, ends_at }))
}

/// Dismisses the refusal that `GET /credentials/push` shows. It is not shown again unless another bundle is refused.
#[utoipa::path(delete, path = "/credentials/push/refusal", tag = "push credential", responses(
    (status = 200, body = Done),
    (status = 404, body = Problem, content_type = "application/problem+json", description = "`not_found`"),
))]
pub async fn delete_refusal(
    SessionUser { user, .. }: SessionUser,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    Done::if_found(context.pool.write(move |db| push_refusals::dismiss(db, &user.id)).await?)
}
