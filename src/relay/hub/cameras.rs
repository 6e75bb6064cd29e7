//! Camera frames through the hub.

use actix::{fut::ready, prelude::*};

use super::Hub;
use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        smart_devices::{self, SmartDevice},
    },
    domain::{access::Action, device::DeviceKind},
    relay::game::camera_capture::{CameraError, CameraLook, CaptureFrame, PullCameraFrame},
};

/// The answer to a pull.
type PulledFrame = ResponseActFuture<Hub, CameraLook>;

impl Handler<PullCameraFrame> for Hub {
    type Result = PulledFrame;

    fn handle(&mut self, pull: PullCameraFrame, _: &mut Self::Context) -> Self::Result {
        let PullCameraFrame { server, user, device } = pull;
        let (pool, paired, camera) = (self.context.pool.clone(), server.clone(), device.clone());
        let check = move |db: &mut Db| {
            Ok(match smart_devices::get(db, &paired, &device) {
                Ok(SmartDevice { kind: DeviceKind::Camera, .. }) => Ok(()),
                Ok(_) => Err(CameraError::NotACamera),
                Err(DbError::NotFound) => Err(CameraError::UnknownDevice),
                Err(error) => return Err(error),
            })
        };
        let (permitted, failing) = (self.may(server.clone(), user, Action::Watch), server.clone());
        let checked = async move {
            permitted.await?;
            pool.read(check).await.unwrap_or_else(|error| {
                log::error!(server = failing.as_str(); "a camera could not be read: {error}");
                Err(CameraError::Internal)
            })
        };
        Box::pin(checked.into_actor(self).then(move |checked, hub, ctx| -> PulledFrame {
            match checked {
                Ok(()) => hub.carry_out(server, CaptureFrame { camera }, CameraError::Unavailable, ctx),
                Err(refused) => Box::pin(ready(Err(refused))),
            }
        }))
    }
}
