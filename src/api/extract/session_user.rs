//! A signed-in browser.

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use chrono::Duration;
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{
        answer::{error::ApiError, request_log_fields::RequestLogFields},
        context::ApiContext,
        extract::{cross_site, last_use},
    },
    crypto::session_cookie::SESSION_COOKIE,
    db::{
        engine::{error::DbError, pool::Db},
        sessions,
        users::{self, User},
    },
    domain::{
        ids::{SessionId, UserId},
        time::Timestamp,
    },
};

/// The user behind the session cookie `rp_sess`.
pub struct SessionUser {
    pub user: User,
    pub session: SessionId,
    pub signed_in_at: Timestamp,
}

impl SessionUser {
    /// Refuses what a stolen or forgotten session must not do, unless its user signed in within this time.
    pub fn signed_in_within(&self, time: Duration, now: Timestamp) -> Result<(), ApiError> {
        if now - self.signed_in_at <= time { Ok(()) } else { Err(ApiError::FreshSignInRequired) }
    }
}

impl FromRequest for SessionUser {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let caller = signed_in(req, |_, _| Ok(()));
        async move { caller.await.map(|(user, ())| user) }.boxed_local()
    }
}

/// A [`SessionUser`] who signs out, which is never refused because the user's budget is spent.
pub struct LeavingUser(pub SessionUser);

impl FromRequest for LeavingUser {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let caller = session_of(req, |_, _| Ok(()));
        async move { caller.await.map(|(user, ())| Self(user)) }.boxed_local()
    }
}

/// The caller, within their budget, and the result of `also`, read in the same trip to the database.
pub fn signed_in<T, F>(
    req: &HttpRequest,
    also: F,
) -> impl Future<Output = Result<(SessionUser, T), ApiError>> + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Db, &UserId) -> Result<T, DbError> + Send + 'static,
{
    let (context, notes) = (ApiContext::of(req).clone(), RequestLogFields::of(req));
    let caller = session_of(req, also);
    async move {
        let (caller, more) = caller.await?;
        context.limits.rate_limits.take_user(&notes, &caller.user.id)?;
        Ok((caller, more))
    }
}

fn session_of<T, F>(req: &HttpRequest, also: F) -> impl Future<Output = Result<(SessionUser, T), ApiError>> + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Db, &UserId) -> Result<T, DbError> + Send + 'static,
{
    let (context, notes) = (ApiContext::of(req).clone(), RequestLogFields::of(req));
    let presented = cross_site::check(req).map(|()| presented_session(req, &context));
    async move {
        let id = presented?.ok_or(ApiError::Unauthenticated)?;
        let now = context.clock.now();
        let found = context
            .pool
            .read(move |db| {
                let Some(session) = sessions::find(db, &id, now)? else { return Ok(None) };
                let Some(user) = users::find(db, &session.user_id)? else { return Ok(None) };
                let more = also(db, &user.id)?;
                Ok(Some((session, user, more)))
            })
            .await?;
        let (session, user, more) = found.ok_or(ApiError::Unauthenticated)?;
        notes.user.replace(Some(user.id.clone()));
        if session.wants_touch(now) {
            let id = session.id.clone();
            last_use::touch(context.pool.write(move |db| sessions::touch(db, &id, now))).await;
        }
        Ok((SessionUser { user, session: session.id, signed_in_at: session.created_at }, more))
    }
}

/// The session id in the first cookie of that name which we sealed: other paths and parent domains can add more. The
/// session itself may have ended.
pub fn presented_session(req: &HttpRequest, context: &ApiContext) -> Option<SessionId> {
    let cookies = req.cookies().ok()?;
    cookies
        .iter()
        .filter(|cookie| cookie.name() == SESSION_COOKIE)
        .find_map(|cookie| context.keys.session_cookie.open(cookie.value()))
        .map(SessionId::from)
}
