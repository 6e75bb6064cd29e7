//! The caller who may open a socket at the relay: a signed-in browser or a helper device.

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{
        error::ApiError,
        extract::{
            device_owner::{DeviceOwner, bears_token},
            session_user::SessionUser,
        },
    },
    domain::ids::{SessionId, UserId},
};

/// The user, and the session or helper device: when it ends, the relay closes the socket.
pub struct RelayCaller {
    pub user: UserId,
    pub session: SessionId,
}

impl FromRequest for RelayCaller {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        // An invalid token is refused, also when a valid cookie was sent with it.
        if bears_token(req.headers()) {
            let owner = DeviceOwner::from_request(req, payload);
            async move {
                let DeviceOwner { user, device, .. } = owner.await?;
                Ok(Self { user: user.id, session: SessionId::of_device(&device) })
            }
            .boxed_local()
        } else {
            let browser = SessionUser::from_request(req, payload);
            async move {
                let SessionUser { user, session } = browser.await?;
                Ok(Self { user: user.id, session })
            }
            .boxed_local()
        }
    }
}
