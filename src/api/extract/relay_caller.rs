//! The caller who may open a socket at the relay: a signed-in browser, or the holder of a token.

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{
        answer::error::ApiError,
        extract::{
            bearer::{self, TokenHolder, bears_token},
            session_user::SessionUser,
        },
    },
    crypto::relay_token::RelayClaims,
    domain::relay_access::RelayAccess,
};

/// The user, the session or token (when it ends, the relay closes the socket), and what the socket may do.
pub struct RelayCaller(pub RelayClaims);

impl FromRequest for RelayCaller {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        // An invalid token is refused, also when a valid cookie was sent with it.
        if bears_token(req.headers()) {
            let holder = bearer::required(req);
            async move {
                let TokenHolder { user, access, session, .. } = holder.await?;
                Ok(Self(RelayClaims { user: user.id, session, access }))
            }
            .boxed_local()
        } else {
            let browser = SessionUser::from_request(req, payload);
            async move {
                let SessionUser { user, session, .. } = browser.await?;
                Ok(Self(RelayClaims { user: user.id, session, access: RelayAccess::Session }))
            }
            .boxed_local()
        }
    }
}
