//! The caller who may open a socket at the relay: a signed-in browser or a helper device.

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use futures_util::{FutureExt as _, future::LocalBoxFuture};

use crate::{
    api::{
        error::ApiError,
        extract::{
            device_owner::{CallingDevice, bears_token},
            session_user::SessionUser,
        },
    },
    crypto::relay_token::RelayClaims,
    domain::ids::SessionId,
};

/// The user, the session or helper device (when it ends, the relay closes the socket), and the server of an overlay.
pub struct RelayCaller(pub RelayClaims);

impl FromRequest for RelayCaller {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, payload: &mut Payload) -> Self::Future {
        // An invalid token is refused, also when a valid cookie was sent with it.
        if bears_token(req.headers()) {
            let device = CallingDevice::from_request(req, payload);
            async move {
                let CallingDevice { user, device, overlay, .. } = device.await?;
                Ok(Self(RelayClaims { user: user.id, session: SessionId::of_device(&device), overlay }))
            }
            .boxed_local()
        } else {
            let browser = SessionUser::from_request(req, payload);
            async move {
                let SessionUser { user, session } = browser.await?;
                Ok(Self(RelayClaims { user: user.id, session, overlay: None }))
            }
            .boxed_local()
        }
    }
}
