//! A signed-in browser.

use actix_web::{FromRequest, HttpRequest, dev::Payload, web};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{error::ApiError, state::AppState},
    crypto::session_cookie::SESSION_COOKIE,
    db::{sessions, users, users::User},
    domain::ids::SessionId,
};

/// The user behind the session cookie `rp_sess`.
pub struct SessionUser {
    pub user: User,
    pub session: SessionId,
}

impl FromRequest for SessionUser {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = req.app_data::<web::Data<AppState>>().expect("the App carries its state").clone();
        let presented = presented_session(req, &state);
        async move { signed_in(&state, presented.ok_or(ApiError::Unauthenticated)?).await }.boxed_local()
    }
}

/// The session id in the first cookie of that name which we sealed: other paths and parent domains can plant more.
fn presented_session(req: &HttpRequest, state: &AppState) -> Option<SessionId> {
    let cookies = req.cookies().ok()?;
    cookies
        .iter()
        .filter(|cookie| cookie.name() == SESSION_COOKIE)
        .find_map(|cookie| state.session_cookie.open(cookie.value()))
        .map(SessionId::from)
}

async fn signed_in(state: &AppState, id: SessionId) -> Result<SessionUser, ApiError> {
    let now = state.clock.now();
    let found = state
        .pool
        .read(move |db| {
            let Some(session) = sessions::find(db, &id, now)? else { return Ok(None) };
            let user = users::find(db, &session.user_id)?;
            Ok(user.map(|user| (session, user)))
        })
        .await?;
    let (session, user) = found.ok_or(ApiError::Unauthenticated)?;
    state.rate_limits.take_user(&user.id)?;
    if session.wants_touch(now) {
        let id = session.id.clone();
        // Not worth failing a request for: the next one tries again.
        if let Err(error) = state.pool.write(move |db| sessions::touch(db, &id, now)).await {
            log::warn!("a session's last use was not noted: {error}");
        }
    }
    Ok(SessionUser { user, session: session.id })
}
