//! The admin who calls, and the only doors through which an admin's request changes something: [`Admin::write`] for the
//! database, [`Admin::effect`] for requests to other services. Both leave an entry in the audit log.

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpMessage as _, HttpRequest, HttpResponse, dev::Payload, http::StatusCode, rt, web};
use serde::Serialize;
use serde_json::json;

use crate::{
    api::{
        answer::error::ApiError,
        context::ApiContext,
        extract::{
            idempotent::{Idempotent, KeyCaller, ReplayableAnswer},
            session_user::signed_in,
        },
    },
    db::{
        audit::{self, AuditPayload, LockedHead, NewAuditEntry},
        engine::{error::DbError, pool::Db},
        sessions,
    },
    domain::{
        audit::{AdminAction, AuditResult, Written},
        ids::{PlatformId, SessionId},
        time::Timestamp,
    },
    net::trace,
};

/// A signed-in user whose account is on the allowlist. Only `middleware::admin_only` makes one.
#[derive(Clone)]
pub struct Admin {
    pub platform_id: PlatformId,
    session: SessionId,
    context: web::Data<ApiContext>,
}

impl FromRequest for Admin {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(req.extensions().get::<Self>().cloned().ok_or(ApiError::NotAdmin))
    }
}

impl Admin {
    /// The caller, if it is an admin.
    pub fn calling(req: &HttpRequest) -> impl Future<Output = Result<Self, ApiError>> + use<> {
        let context = ApiContext::of(req).clone();
        let (caller, is_final) = (signed_in(req, |_, _| Ok(())), is_final(req.method().as_str(), req.path()));
        async move {
            let (caller, ()) = caller.await?;
            if !context.settings.admins.contains(&caller.user.platform_id) {
                return Err(ApiError::NotAdmin);
            }
            if let Some(time) = context.settings.fresh_sign_in.filter(|_| is_final) {
                caller.signed_in_within(time, context.clock.now())?;
            }
            Ok(Self { platform_id: caller.user.platform_id, session: caller.session, context })
        }
    }

    /// Changes the database, and says so in the audit log, in one transaction. A refusal of `change` undoes both.
    pub async fn write<T, F>(&self, action: AdminAction, target: &str, change: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db, Timestamp) -> Result<Written<T>, ApiError> + Send + 'static,
    {
        self.write_and_notify(action, target, change, |_| ()).await
    }

    /// [`write`](Self::write) that also notifies others after the commit, as `Pool::write_and_notify` does.
    pub async fn write_and_notify<T, F>(
        &self,
        action: AdminAction,
        target: &str,
        change: F,
        notify: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db, Timestamp) -> Result<Written<T>, ApiError> + Send + 'static,
    {
        let change = self.recorded(action, target, change);
        self.context.pool.write_and_notify(change, notify).await
    }

    /// [`write`](Self::write) of what may be sent again; the closure gives the answer.
    pub async fn write_once<V, F>(
        &self,
        once: Idempotent,
        action: AdminAction,
        target: &str,
        change: F,
    ) -> Result<HttpResponse, ApiError>
    where
        V: Serialize + 'static,
        F: FnOnce(&mut Db, Timestamp) -> Result<Written<(StatusCode, V)>, ApiError> + Send + 'static,
    {
        let change = self.recorded(action, target, change);
        let answered = move |db: &mut Db| change(db).map(|(status, view)| (ReplayableAnswer::new(status, &view), ()));
        once.write(KeyCaller::Admin(self.platform_id.clone()), answered, |()| ()).await
    }

    /// Does something while the end of the audit log is locked, which it may follow with an entry of its own.
    pub async fn locked<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Db, LockedHead, Timestamp) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (session, now) = (self.session.clone(), self.context.clock.now());
        let change = move |db: &mut Db| {
            let head = audit::lock(db)?;
            still_signed_in(db, &session)?;
            change(db, head, now)
        };
        self.context.pool.write(change).await
    }

    /// The change, with its entry in the audit log.
    fn recorded<T, F>(
        &self,
        action: AdminAction,
        target: &str,
        change: F,
    ) -> impl FnOnce(&mut Db) -> Result<T, ApiError> + Send + use<T, F>
    where
        F: FnOnce(&mut Db, Timestamp) -> Result<Written<T>, ApiError> + Send + 'static,
    {
        let (actor, target, now) = (self.platform_id.clone(), target.to_owned(), self.context.clock.now());
        let session = self.session.clone();
        move |db| {
            // One admin at a time: what a change finds is what it changes.
            let head = audit::lock(db)?;
            still_signed_in(db, &session)?;
            let Written { value, before, after } = change(db, now)?;
            let payload = AuditPayload::of_change(before, after);
            let (target, payload, result) = (target.as_str(), &payload, AuditResult::Done);
            audit::append(db, head, &NewAuditEntry { actor: &actor, action, target, payload, result }, now)?;
            Ok(value)
        }
    }

    /// Runs an effect at another service, after an entry that it is `asked`; a second entry records the outcome. Goes
    /// on when the client leaves. `call` has its own deadlines.
    pub async fn effect<T: 'static>(
        &self,
        action: AdminAction,
        target: &str,
        asked: impl Serialize,
        call: impl Future<Output = Result<Written<T>, ApiError>> + 'static,
    ) -> Result<T, ApiError> {
        let asked = Written::new((), (), asked).after;
        let (begin, session) =
            (self.entry(action, target, AuditPayload::of_intent(asked), AuditResult::Begun), self.session.clone());
        let begin = move |db: &mut Db| {
            let begun = begin(db)?;
            still_signed_in(db, &session).map(|()| begun)
        };
        let begun = self.context.pool.write(begin).await?;
        let (admin, target) = (self.clone(), target.to_owned());
        let done = rt::spawn(trace::carried(async move {
            let (answer, after, result) = match call.await {
                Ok(Written { value, after, .. }) => (Ok(value), after, AuditResult::Done),
                Err(error) => {
                    let result = if error.is_refusal() { AuditResult::Failed } else { AuditResult::Unknown };
                    let why = json!({ "error": error.to_string() });
                    (Err(error), why, result)
                }
            };
            // The effect is over, and the log says that it was begun.
            let payload = AuditPayload::of_outcome(begun, after);
            if let Err(error) = admin.context.pool.write(admin.entry(action, &target, payload, result)).await {
                log::error!("the audit log does not say what came of entry {begun}: {error}");
            }
            answer
        }));
        done.await.map_err(|panicked| ApiError::Internal(panicked.into()))?
    }

    /// Writes an entry of the audit log.
    fn entry(
        &self,
        action: AdminAction,
        target: &str,
        payload: AuditPayload,
        result: AuditResult,
    ) -> impl FnOnce(&mut Db) -> Result<i64, DbError> + Send + use<> {
        let (actor, target, now) = (self.platform_id.clone(), target.to_owned(), self.context.clock.now());
        move |db| {
            let (target, payload) = (target.as_str(), &payload);
            let head = audit::lock(db)?;
            audit::append(db, head, &NewAuditEntry { actor: &actor, action, target, payload, result }, now)
        }
    }
}

/// True for requests to admin routes that pay back or delete: an operator may ask for a fresh sign-in before that.
pub fn is_final(method: &str, path: &str) -> bool {
    method.eq_ignore_ascii_case("delete") || path == "/admin/refund"
}

/// Refuses an admin who has signed out or was erased meanwhile: the request may have been under way for long.
fn still_signed_in(db: &mut Db, session: &SessionId) -> Result<(), ApiError> {
    match sessions::lock(db, session)? {
        true => Ok(()),
        false => Err(ApiError::Unauthenticated),
    }
}
