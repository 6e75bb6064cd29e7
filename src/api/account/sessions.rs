//! Where the user is signed in: `/me/sessions`.

use actix_web::{HttpResponse, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        account::{ended_credentials, sign_in::clear_session_cookie},
        answer::{
            done::Done,
            error::ApiError,
            list_page::{ListPage, ListPlace},
        },
        context::ApiContext,
        extract::{query::Query, session_user::SessionUser},
    },
    db::{
        engine::pool::Db,
        helper_devices,
        sessions::{self, Session},
    },
    domain::{
        ids::{HelperDeviceId, SessionId},
        time::Timestamp,
    },
    relay::hub::SessionEnded,
};

/// A browser that is signed in.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SignedInBrowser {
    id: String,
    /// When the user signed in.
    created_at: Timestamp,
    /// To the minute.
    last_seen_at: Timestamp,
    /// Latest end of the session; an unused one ends earlier.
    expires_at: Timestamp,
    /// The session that asks.
    current: bool,
}

impl SignedInBrowser {
    fn new(session: Session, current: &SessionId) -> Self {
        let Session { id, created_at, last_seen_at, expires_at, .. } = session;
        Self { current: id == *current, id: id.to_string(), created_at, last_seen_at, expires_at }
    }
}

#[derive(Serialize, ToSchema)]
struct SessionList {
    sessions: Vec<SignedInBrowser>,
    next: Option<String>,
}

/// Which credentials end besides the sessions.
#[derive(Deserialize, IntoParams, Validate)]
pub struct EndingOptions {
    /// `true`: delete all helper devices and overlays too.
    #[garde(skip)]
    #[serde(default)]
    devices: bool,
}

/// The number of sessions that ended.
#[derive(Serialize, ToSchema)]
struct SessionsEnded {
    ok: bool,
    sessions: usize,
    devices: usize,
}

/// Where this user is signed in, the newest sign-in first.
#[utoipa::path(get, path = "/me/sessions", tag = "sign-in", operation_id = "list_sessions",
    params(ListPage), responses(
    (status = 200, body = SessionList),
))]
pub async fn list(
    SessionUser { user, session, .. }: SessionUser,
    Query(page): Query<ListPage>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let now = context.clock.now();
    let known = context.pool.read(move |db| sessions::list(db, &user.id, now)).await?;
    let known = known.into_iter().map(|known| SignedInBrowser::new(known, &session)).collect();
    let (sessions, next) =
        page.cut(known, |known: &SignedInBrowser| ListPlace::newest_first(known.created_at, &known.id))?;
    Ok(HttpResponse::Ok().json(SessionList { sessions, next }))
}

/// Ends a session: every copy of its cookie is invalid from then on, and its sockets at the relay close. It may be the one
/// that asks.
#[utoipa::path(delete, path = "/me/sessions/{id}", tag = "sign-in", operation_id = "end_session",
    params(("id" = String, Path)), responses(
    (status = 200, body = Done),
))]
pub async fn delete(
    SessionUser { user, session: current, .. }: SessionUser,
    path: web::Path<String>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let session = SessionId::from(path.into_inner());
    let (ended, is_current) = (session.clone(), session == current);
    let delete = move |db: &mut Db| sessions::delete_of(db, &user.id, &session);
    let mut response = ended_credentials::end(&context, ended, delete).await?;
    if is_current {
        clear_session_cookie(&mut response, &context, &current);
    }
    Ok(response)
}

/// Ends all sessions but the one that asks, with their sockets; with `devices`, also every helper device and overlay. API
/// tokens stay: `/me/tokens` lists and deletes them.
#[utoipa::path(delete, path = "/me/sessions", tag = "sign-in", operation_id = "end_other_sessions",
    params(EndingOptions), responses(
    (status = 200, body = SessionsEnded),
))]
pub async fn delete_others(
    SessionUser { user, session, .. }: SessionUser,
    Query(EndingOptions { devices }): Query<EndingOptions>,
    context: web::Data<ApiContext>,
) -> Result<HttpResponse, ApiError> {
    let (hub, id) = (context.services.hub.clone(), user.id.clone());
    let end = move |db: &mut Db| -> Result<_, ApiError> {
        let Some(sessions) = sessions::delete_others(db, &id, &session)? else { return Ok(None) };
        let devices = if devices { helper_devices::delete_all(db, &id)? } else { Vec::new() };
        Ok(Some((sessions, devices)))
    };
    let notify = move |ended: &Option<(Vec<SessionId>, Vec<HelperDeviceId>)>| {
        let Some((sessions, devices)) = ended else { return };
        for session in sessions.iter().cloned().chain(devices.iter().map(SessionId::of_device)) {
            hub.do_send(SessionEnded { session });
        }
    };
    let ended = context.pool.write_and_notify(end, notify).await?;
    let (sessions, devices) = ended.ok_or(ApiError::Unauthenticated)?;
    log::info!(user:% = user.id, sessions = sessions.len(), devices = devices.len(); "a user ended their other sessions");
    Ok(HttpResponse::Ok().json(SessionsEnded { ok: true, sessions: sessions.len(), devices: devices.len() }))
}
