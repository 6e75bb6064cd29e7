//! Pictures of maps on their way to clients. They are megabytes, so whoever reads the same one shares it, and only some
//! are in memory at once. Smaller sizes are drawn once, on a thread for blocking work, and kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use actix_web::web;
use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    api::error::ApiError,
    db::{
        maps::{self, AS_SENT},
        pool::Pool,
    },
    game::map_picture::scale,
};

/// Different pictures in memory at once, at most 12 MiB each, and how long one more waits for its turn.
const AT_ONCE: usize = 12;
const TURN_DEADLINE: Duration = Duration::from_secs(3);

/// Which picture.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PictureKey {
    pub address: String,
    pub port: u16,
    pub version: String,
    /// Longest edge in pixels, or [`AS_SENT`].
    pub size: u32,
}

/// See the module.
pub struct MapPictures {
    read: Mutex<HashMap<PictureKey, Weak<ReadPicture>>>,
    turns: Arc<Semaphore>,
    drawing: Arc<Semaphore>,
}

/// A picture that somebody reads.
struct ReadPicture {
    jpeg: Vec<u8>,
    _turn: OwnedSemaphorePermit,
}

/// The body of an answer: the picture stays until the last of them is sent.
struct SharedPicture(Arc<ReadPicture>);

impl AsRef<[u8]> for SharedPicture {
    fn as_ref(&self) -> &[u8] {
        &self.0.jpeg
    }
}

impl Default for MapPictures {
    fn default() -> Self {
        let (turns, drawing) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(1)));
        Self { read: Mutex::default(), turns, drawing }
    }
}

impl MapPictures {
    /// The picture; `None` if the map is another one by now.
    pub async fn get(&self, pool: &Pool, key: PictureKey) -> Result<Option<Bytes>, ApiError> {
        if let Some(known) = self.known(&key) {
            return Ok(Some(known));
        }
        let turn = next(&self.turns).await?;
        // Somebody else may have read it meanwhile.
        if let Some(known) = self.known(&key) {
            return Ok(Some(known));
        }
        let jpeg = match stored(pool, &key, key.size).await? {
            Some(jpeg) => jpeg,
            None if key.size == AS_SENT => return Ok(None),
            None => match self.draw(pool, &key).await? {
                Some(jpeg) => jpeg,
                None => return Ok(None),
            },
        };
        let picture = Arc::new(ReadPicture { jpeg, _turn: turn });
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.retain(|_, picture| picture.strong_count() > 0);
        read.insert(key, Arc::downgrade(&picture));
        Ok(Some(Bytes::from_owner(SharedPicture(picture))))
    }

    fn known(&self, key: &PictureKey) -> Option<Bytes> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.get(key).and_then(Weak::upgrade).map(|picture| Bytes::from_owner(SharedPicture(picture)))
    }

    /// The picture in a size that is not kept yet; one at a time.
    async fn draw(&self, pool: &Pool, key: &PictureKey) -> Result<Option<Vec<u8>>, ApiError> {
        let turn = next(&self.drawing).await?;
        if let Some(drawn) = stored(pool, key, key.size).await? {
            return Ok(Some(drawn));
        }
        let Some(original) = stored(pool, key, AS_SENT).await? else { return Ok(None) };
        let size = key.size;
        // The permit goes along: who stops waiting does not end the work.
        let drawn = web::block(move || {
            let _turn = turn;
            scale(&original, size)
        });
        let drawn = drawn.await.map_err(|error| ApiError::Internal(error.into()))?;
        // Its head was a JPEG's, the rest is not.
        let drawn = drawn.map_err(|_| ApiError::MapUnreadable)?;
        let (kept, key) = (drawn.clone(), key.clone());
        let keep = pool.write(move |db| maps::keep_scaled(db, &key.address, key.port, &key.version, key.size, &kept));
        if let Err(error) = keep.await {
            log::warn!("a picture of a map could not be kept: {error}");
        }
        Ok(Some(drawn))
    }
}

async fn stored(pool: &Pool, key: &PictureKey, size: u32) -> Result<Option<Vec<u8>>, ApiError> {
    let key = key.clone();
    Ok(pool.read(move |db| maps::picture(db, &key.address, key.port, &key.version, size)).await?)
}

async fn next(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    match timeout(TURN_DEADLINE, turns.clone().acquire_owned()).await {
        Ok(turn) => turn.map_err(|closed| ApiError::Internal(closed.into())),
        Err(_) => Err(ApiError::Unavailable("too many pictures of maps are under way".into())),
    }
}
