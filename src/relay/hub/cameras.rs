//! Camera frames through the hub.

use actix::prelude::*;

use super::Hub;
use crate::{
    db::{
        access,
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
        let (pool, asked, camera) = (self.context.pool.clone(), server.clone(), device.clone());
        let check = move |db: &mut Db| {
            if !access::role(db, &user, &asked)?.is_some_and(|role| role.may(Action::Watch)) {
                return Ok(Err(CameraError::UnknownServer));
            }
            match smart_devices::get(db, &asked, &device) {
                Ok(SmartDevice { kind: DeviceKind::Camera, .. }) => Ok(Ok(())),
                Ok(_) => Ok(Err(CameraError::NotACamera)),
                Err(DbError::NotFound) => Ok(Err(CameraError::UnknownDevice)),
                Err(error) => Err(error),
            }
        };
        let checked = async move { pool.read(check).await };
        let connection = checked.into_actor(self).map(move |checked, hub, ctx| {
            checked.unwrap_or_else(|error| {
                log::error!("a camera could not be read: {error}");
                Err(CameraError::Internal)
            })?;
            hub.connection(&server, false, ctx).ok_or(CameraError::Unavailable)
        });
        Box::pin(connection.then(|connection, hub, _| {
            async move { connection?.send(CaptureFrame { camera }).await.map_err(|_| CameraError::Unavailable)? }
                .into_actor(hub)
        }))
    }
}
