//! Looks through the cameras of a game connection.

use actix::prelude::*;

use super::GameConnection;
use crate::{
    domain::device::Reachable,
    relay::{
        game::camera_capture::{CameraError, CameraLook, CaptureFrame, LINGER},
        state::game_update::OwnUpdate,
    },
};

impl GameConnection {
    /// Looks later whether the camera is still wanted.
    fn plan_camera_end(&mut self, ctx: &mut Context<Self>) {
        let end = ctx.run_later(LINGER, |connection, ctx| {
            let link = connection.held.acting();
            if let Some(end) = connection.devices.cameras.end_unused(link.as_ref()) {
                ctx.spawn(end.into_actor(connection));
            }
        });
        self.devices.cameras.planned_end.replace(end, ctx);
    }
}

impl Handler<CaptureFrame> for GameConnection {
    type Result = ResponseActFuture<Self, CameraLook>;

    fn handle(&mut self, CaptureFrame { camera }: CaptureFrame, _: &mut Self::Context) -> Self::Result {
        let look = self.devices.cameras.look(&self.context.clock, camera.clone(), self.held.own_link());
        Box::pin(look.into_actor(self).map(move |looked, connection, ctx| {
            connection.plan_camera_end(ctx);
            let reachable = match &looked {
                Ok(_) => Some(Reachable::Ok),
                Err(CameraError::UnknownCamera) => Some(Reachable::Removed),
                Err(CameraError::AccessDenied) => Some(Reachable::NoPrivilege),
                Err(CameraError::TimedOut) => Some(Reachable::NoResponse),
                Err(_) => None,
            };
            if let Some(reachable) = reachable {
                let frame_at = looked.as_ref().ok().map(|shot| shot.at);
                connection.update(OwnUpdate::Camera { device: camera.into(), reachable, frame_at }, ctx);
            }
            looked
        }))
    }
}
