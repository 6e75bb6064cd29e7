//! The caller of a route that takes tokens besides cookies.

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{
        answer::error::ApiError,
        extract::{
            bearer::{self, SentToken, TokenHolder},
            route_facts::{self, TokenKind},
            session_user::{SessionUser, signed_in},
        },
    },
    db::{
        engine::{error::DbError, pool::Db},
        users::User,
    },
    domain::{ids::UserId, relay_access::RelayAccess},
};

/// A user, and the access by which they came.
pub struct Caller {
    pub user: User,
    pub access: RelayAccess,
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let req = req.clone();
        async move { Ok(calling(&req, |_, _| Ok(())).await?.0) }.boxed_local()
    }
}

/// The caller, by a token where the route takes one and it was sent, or else by the session's cookie; and the result of
/// `also`, read in the same trip to the database.
pub async fn calling<T, F>(req: &HttpRequest, also: F) -> Result<(Caller, T), ApiError>
where
    T: Send + 'static,
    F: FnOnce(&mut Db, &UserId) -> Result<T, DbError> + Send + 'static,
{
    let kinds = route_facts::of(req, req.method()).tokens;
    let Some(token) = bearer::sent_token(req.headers()).filter(|token| is_taken(token, kinds)) else {
        let (SessionUser { user, .. }, more) = signed_in(req, also).await?;
        return Ok((Caller { user, access: RelayAccess::Session }, more));
    };
    let (TokenHolder { user, access, .. }, more) = bearer::holder(req, token, also).await?;
    match kinds.iter().any(|kind| kind.is_of(&access)) {
        true => Ok((Caller { user, access }, more)),
        false => Err(ApiError::InsufficientScope),
    }
}

/// True if tokens of this form are looked at where these kinds are taken.
fn is_taken(token: &SentToken, kinds: &[TokenKind]) -> bool {
    match token {
        SentToken::Device { .. } => kinds.iter().any(|kind| matches!(kind, TokenKind::Helper | TokenKind::Overlay)),
        SentToken::Api { .. } => kinds.iter().any(|kind| matches!(kind, TokenKind::Api(_))),
    }
}
