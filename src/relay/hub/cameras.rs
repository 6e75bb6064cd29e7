//! Camera frames through the hub.

use actix::prelude::*;

use super::Hub;
use crate::{
    db::{
        engine::{error::DbError, pool::Db},
        smart_devices::{self, SmartDevice},
    },
    domain::{access::Action, device::DeviceKind},
    relay::game::camera_capture::{CameraError, CameraLook, CaptureFrame, PullCameraFrame},
};

impl Handler<PullCameraFrame> for Hub {
    type Result = ResponseActFuture<Self, CameraLook>;

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
        Box::pin(self.permitted(server.clone(), user, Action::Watch).then(move |connection, hub, _| {
            let look = async move {
                let connection = connection?;
                pool.read(check).await.unwrap_or_else(|error| {
                    log::error!(server = server.as_str(); "a camera could not be read: {error}");
                    Err(CameraError::Internal)
                })?;
                connection.send(CaptureFrame { camera }).await.unwrap_or(Err(CameraError::Unavailable))
            };
            look.into_actor(hub)
        }))
    }
}
