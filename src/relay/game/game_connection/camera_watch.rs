//! The camera that a game connection watches: set up by the first look through one.

use std::rc::Rc;

use super::latest_task::LatestTask;
use crate::{
    clock::Clock,
    game::acting_link::ActingLink,
    relay::{
        game::camera_capture::{CameraCapture, SharedCapture},
        shared::own_link::OwnLink,
        state::game_update::GameUpdate,
    },
};

/// See the module.
#[derive(Default)]
pub struct CameraWatch {
    /// Set by the first look.
    capture: Option<Rc<CameraCapture>>,
    /// The look whether a camera is still wanted.
    pub planned_end: LatestTask,
}

impl CameraWatch {
    /// Takes the camera's frame out of an update, if there is one.
    pub fn take_frame(&self, update: &mut GameUpdate) {
        if let GameUpdate::Broadcast(_, broadcast) = update
            && let Some(rays) = broadcast.camera_rays.take()
            && let Some(capture) = &self.capture
        {
            capture.hear(&rays);
        }
    }

    /// There is another link, or none.
    pub fn link_changed(&self) {
        if let Some(capture) = &self.capture {
            capture.link_changed();
        }
    }

    /// A shot of this camera, as [`CameraCapture::look`] takes it.
    pub fn look(&mut self, clock: &Clock, camera: String, link: Option<OwnLink>) -> SharedCapture {
        self.capture.get_or_insert_with(|| CameraCapture::new(clock.clone())).look(camera, link)
    }

    /// Unsubscribes over this link if no camera is wanted any longer.
    pub fn end_unused(&self, link: Option<&ActingLink>) -> Option<impl Future<Output = ()> + use<>> {
        self.capture.as_ref()?.end_unused(link)
    }
}
