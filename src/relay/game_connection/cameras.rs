//! Looks through the cameras of a game connection.

use actix::prelude::*;

use super::GameConnection;
use crate::{
    domain::device::Reachable,
    relay::{
        camera_looks::{CameraError, CameraLook, LookThrough},
        live_state::GameUpdate,
    },
};

impl GameConnection {
    /// Takes the camera's frame out of an update, if there is one.
    pub(super) fn take_camera_frame(&self, update: &mut GameUpdate) {
        if let GameUpdate::Broadcast(_, broadcast) = update
            && let Some(rays) = broadcast.camera_rays.take()
        {
            self.cameras.hear(&rays);
        }
    }

    pub(super) fn end_unused_camera(&self, ctx: &mut Context<Self>) {
        if let Some(end) = self.cameras.end_unused(self.link.as_ref()) {
            ctx.spawn(end.into_actor(self));
        }
    }
}

impl Handler<LookThrough> for GameConnection {
    type Result = ResponseActFuture<Self, CameraLook>;

    fn handle(&mut self, LookThrough { camera }: LookThrough, _: &mut Self::Context) -> Self::Result {
        let look = self.cameras.look(camera.clone(), self.link.clone());
        Box::pin(look.into_actor(self).map(move |looked, connection, ctx| {
            let reachable = match &looked {
                Ok(_) => Some(Reachable::Ok),
                Err(CameraError::UnknownCamera) => Some(Reachable::Removed),
                Err(CameraError::AccessDenied) => Some(Reachable::NoPrivilege),
                Err(CameraError::TimedOut) => Some(Reachable::NoResponse),
                Err(_) => None,
            };
            if let Some(reachable) = reachable {
                connection.update(GameUpdate::Camera { device: camera.into(), reachable }, ctx);
            }
            looked
        }))
    }
}
