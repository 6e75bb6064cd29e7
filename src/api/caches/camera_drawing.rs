//! Camera pictures are drawn on threads for blocking work, a few at once.

use std::{sync::Arc, time::Duration};

use actix_web::web;
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    api::answer::error::ApiError,
    game::{
        camera_picture::{PictureFormat, draw},
        camera_shot::CameraShot,
    },
};

/// Pictures that are drawn at once, and the longest wait of one more.
const DRAWN_AT_ONCE: usize = 2;
const DRAW_DEADLINE: Duration = Duration::from_secs(3);

/// Bounds how many pictures are drawn at once.
pub struct RenderLimit(Arc<Semaphore>);

impl Default for RenderLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(DRAWN_AT_ONCE)))
    }
}

impl RenderLimit {
    /// The shot as a file, drawn on a thread for blocking work.
    pub async fn draw(
        &self,
        shot: Arc<CameraShot>,
        format: PictureFormat,
        with_entities: bool,
    ) -> Result<Vec<u8>, ApiError> {
        let turn = timeout(DRAW_DEADLINE, self.0.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| ApiError::Unavailable("too many camera pictures are drawn".into()))?;
        // The permit goes along: the work goes on when the caller stops waiting.
        let drawn = web::block(move || {
            let _turn = turn;
            format.encode(&draw(&shot, with_entities))
        });
        let encoded = drawn.await.map_err(|error| ApiError::Internal(error.into()))?;
        encoded.map_err(|error| ApiError::Internal(error.into()))
    }
}
