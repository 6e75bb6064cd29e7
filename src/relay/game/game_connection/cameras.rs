//! Looks through the cameras of a game connection.

use actix::prelude::*;

use super::GameConnection;
use crate::{
    domain::device::Reachable,
    relay::{
        game::camera_capture::{CameraCapture, CameraError, CameraLook, CaptureFrame, LINGER},
        state::live_state::GameUpdate,
    },
};

impl GameConnection {
    /// Takes the camera's frame out of an update, if there is one.
    pub(super) fn take_camera_frame(&self, update: &mut GameUpdate) {
        if let GameUpdate::Broadcast(_, broadcast) = update
            && let Some(rays) = broadcast.camera_rays.take()
            && let Some(cameras) = self.cameras.get()
        {
            cameras.hear(&rays);
        }
    }

    /// There is another link, or none.
    pub(super) fn cameras_link_changed(&self) {
        if let Some(cameras) = self.cameras.get() {
            cameras.link_changed();
        }
    }

    /// Looks later whether anybody still wants the camera.
    fn plan_camera_end(&mut self, ctx: &mut Context<Self>) {
        let end = ctx.run_later(LINGER, |connection, ctx| {
            let end = connection.cameras.get().and_then(|cameras| cameras.end_unused(connection.link.as_ref()));
            if let Some(end) = end {
                ctx.spawn(end.into_actor(connection));
            }
        });
        if let Some(planned) = self.camera_end.replace(end) {
            ctx.cancel_future(planned);
        }
    }
}

impl Handler<CaptureFrame> for GameConnection {
    type Result = ResponseActFuture<Self, CameraLook>;

    fn handle(&mut self, CaptureFrame { camera }: CaptureFrame, _: &mut Self::Context) -> Self::Result {
        let cameras = self.cameras.get_or_init(|| CameraCapture::new(self.context.clock.clone()));
        let look = cameras.look(camera.clone(), self.link.clone());
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
                connection.update(GameUpdate::Camera { device: camera.into(), reachable, frame_at }, ctx);
            }
            looked
        }))
    }
}
