//! Pictures of maps on their way to clients. They are megabytes, so all readers of one share it, and only some are in
//! memory at once. Smaller sizes are drawn once, on a thread for blocking work, and kept; a picture that cannot be
//! drawn is not tried again.

use std::{
    collections::{HashMap, HashSet},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    body::{BodySize, MessageBody},
    web,
};
use bytes::Bytes;
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use crate::{
    api::answer::error::ApiError,
    db::{
        engine::pool::Pool,
        maps::{self, AS_SENT},
    },
    domain::ids::UserId,
    game::map_picture::scale,
};

/// Different pictures in memory at once, at most 12 MiB each, and the longest wait of one more.
const AT_ONCE: usize = 12;
/// Most of those that one user was the first to read.
const PER_USER: usize = 3;
const TURN_DEADLINE: Duration = Duration::from_secs(3);
/// A reader that has not finished a picture after this time loses it when another needs its place.
const READING_TIME: Duration = Duration::from_secs(30);
/// Bytes of a picture that are handed over at once.
const PIECE: usize = 16 * 1024;
/// Most pictures that are known to be unreadable; then they are forgotten and tried again.
const UNREADABLE: usize = 1_000;

/// Game server, version and size that a picture is of.
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
    read: Mutex<HashMap<PictureKey, PictureSlot>>,
    turns: Arc<Semaphore>,
    shares: Mutex<HashMap<UserId, Weak<Semaphore>>>,
    drawing: Arc<Semaphore>,
    /// By version, which is a digest of the picture.
    unreadable: Mutex<HashSet<String>>,
}

/// Place of a picture while it is read. The request that fetches it holds the lock: the others wait for the same one.
type PictureSlot = Arc<AsyncMutex<Weak<ReadPicture>>>;

/// A picture that is being read.
struct ReadPicture {
    size: u64,
    since: Instant,
    /// `None` once it had to make room.
    held: Mutex<Option<HeldPicture>>,
}

struct HeldPicture {
    jpeg: Vec<u8>,
    _turn: PictureTurn,
}

/// A place among the pictures at once, and among those of a user.
struct PictureTurn {
    _of_all: OwnedSemaphorePermit,
    _of_user: OwnedSemaphorePermit,
}

impl ReadPicture {
    fn new(jpeg: Vec<u8>, turn: PictureTurn) -> Arc<Self> {
        let (size, since) = (jpeg.len() as u64, Instant::now());
        Arc::new(Self { size, since, held: Mutex::new(Some(HeldPicture { jpeg, _turn: turn })) })
    }

    fn held(&self) -> MutexGuard<'_, Option<HeldPicture>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer: the picture stays until the last of them is sent.
pub struct PictureBody {
    picture: Arc<ReadPicture>,
    sent: usize,
}

impl MessageBody for PictureBody {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.picture.size)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, io::Error>>> {
        let this = self.get_mut();
        let piece = match &*this.picture.held() {
            // The client sees that it is cut off, by its length.
            None => return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into()))),
            Some(HeldPicture { jpeg, .. }) => {
                let rest = &jpeg[this.sent..];
                Bytes::copy_from_slice(&rest[..PIECE.min(rest.len())])
            }
        };
        this.sent += piece.len();
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}

impl Default for MapPictures {
    fn default() -> Self {
        let (turns, drawing) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(1)));
        Self { read: Mutex::default(), turns, shares: Mutex::default(), drawing, unreadable: Mutex::default() }
    }
}

impl MapPictures {
    /// The picture, for this user; `None` if the map is another one by now.
    pub async fn get(&self, pool: &Pool, user: &UserId, key: PictureKey) -> Result<Option<PictureBody>, ApiError> {
        let mut slot = within(self.slot(&key).lock_owned()).await?;
        if let Some(picture) = slot.upgrade().filter(|picture| picture.held().is_some()) {
            return Ok(Some(PictureBody { picture, sent: 0 }));
        }
        let turn = self.turn(user).await?;
        let jpeg = match stored(pool, &key, key.size).await? {
            Some(jpeg) => jpeg,
            None if key.size == AS_SENT => return Ok(None),
            None => match self.draw(pool, &key).await? {
                Some(jpeg) => jpeg,
                None => return Ok(None),
            },
        };
        let picture = ReadPicture::new(jpeg, turn);
        *slot = Arc::downgrade(&picture);
        Ok(Some(PictureBody { picture, sent: 0 }))
    }

    fn slot(&self, key: &PictureKey) -> PictureSlot {
        let mut read = self.read();
        let is_used = |slot: &PictureSlot| slot.try_lock().map_or(true, |picture| picture.strong_count() > 0);
        read.retain(|_, slot| Arc::strong_count(slot) > 1 || is_used(slot));
        read.entry(key.clone()).or_default().clone()
    }

    /// The user's share comes first: a request that waits for it takes no turn of others.
    async fn turn(&self, user: &UserId) -> Result<PictureTurn, ApiError> {
        let share = {
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            let known = shares.get(user).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                shares.retain(|_, share| share.strong_count() > 0);
                let share = Arc::new(Semaphore::new(PER_USER));
                shares.insert(user.clone(), Arc::downgrade(&share));
                share
            })
        };
        let of_user = next(&share).await?;
        if self.turns.available_permits() == 0 {
            self.make_room();
        }
        Ok(PictureTurn { _of_all: next(&self.turns).await?, _of_user: of_user })
    }

    /// Takes the picture away that has been read for the longest, if that is too long.
    fn make_room(&self) {
        let read: Vec<_> = self.read().values().filter_map(|slot| slot.try_lock().ok()?.upgrade()).collect();
        let held = read.iter().filter(|picture| picture.held().is_some());
        let longest = held.min_by_key(|picture| picture.since).filter(|picture| picture.since.elapsed() > READING_TIME);
        if let Some(picture) = longest {
            *picture.held() = None;
        }
    }

    fn read(&self) -> MutexGuard<'_, HashMap<PictureKey, PictureSlot>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable(&self) -> MutexGuard<'_, HashSet<String>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_readable(&self, key: &PictureKey) -> Result<(), ApiError> {
        if self.unreadable().contains(&key.version) {
            return Err(ApiError::MapUnreadable);
        }
        Ok(())
    }

    /// The picture in a size that is not kept yet; one at a time.
    async fn draw(&self, pool: &Pool, key: &PictureKey) -> Result<Option<Vec<u8>>, ApiError> {
        self.check_readable(key)?;
        let turn = next(&self.drawing).await?;
        self.check_readable(key)?;
        if let Some(drawn) = stored(pool, key, key.size).await? {
            return Ok(Some(drawn));
        }
        let Some(original) = stored(pool, key, AS_SENT).await? else { return Ok(None) };
        let size = key.size;
        // The permit goes along: the work goes on when the caller stops waiting.
        let drawn = web::block(move || {
            let _turn = turn;
            scale(&original, size)
        });
        let drawn = drawn.await.map_err(|error| ApiError::Internal(error.into()))?;
        // Its head was a JPEG's, the rest is not.
        let drawn = drawn.map_err(|_| {
            let mut unreadable = self.unreadable();
            if unreadable.len() >= UNREADABLE {
                unreadable.clear();
            }
            unreadable.insert(key.version.clone());
            ApiError::MapUnreadable
        })?;
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
    within(turns.clone().acquire_owned()).await?.map_err(|closed| ApiError::Internal(closed.into()))
}

async fn within<T>(turn: impl Future<Output = T>) -> Result<T, ApiError> {
    let turn = timeout(TURN_DEADLINE, turn).await;
    turn.map_err(|_| ApiError::Unavailable("too many pictures of maps are under way".into()))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::future::join_all;

    use super::*;
    use crate::{config::Database, db::testing};

    fn key(port: u16) -> PictureKey {
        PictureKey { address: "192.0.2.1".into(), port, version: "1".into(), size: AS_SENT }
    }

    /// Begins to read a picture.
    async fn read(pictures: &MapPictures, port: u16, turn: PictureTurn) -> PictureBody {
        let picture = ReadPicture::new(vec![1; PIECE + 1], turn);
        *pictures.slot(&key(port)).lock_owned().await = Arc::downgrade(&picture);
        PictureBody { picture, sent: 0 }
    }

    async fn piece(body: &mut PictureBody) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_for_too_long_makes_room() {
        let pictures = MapPictures::default();
        let mut readers = Vec::new();
        for port in 0..AT_ONCE as u16 {
            let turn = pictures.turn(&format!("user {}", port / 3).into()).await.unwrap();
            readers.push(read(&pictures, port, turn).await);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(piece(&mut readers[0]).await.unwrap().unwrap().len(), PIECE);
        pictures.make_room();
        assert_eq!(pictures.turns.available_permits(), 0, "they may still read");

        tokio::time::advance(READING_TIME).await;
        pictures.make_room();
        assert_eq!(pictures.turns.available_permits(), 1);
        assert!(piece(&mut readers[0]).await.unwrap().is_err(), "cut off");

        let picture = pictures.slot(&key(1)).lock_owned().await.upgrade().unwrap();
        let mut another = PictureBody { picture, sent: 0 };
        for length in [PIECE, 1] {
            assert_eq!(piece(&mut another).await.unwrap().unwrap().len(), length);
        }
        assert!(piece(&mut another).await.is_none());
        drop((readers, another));
        assert_eq!(pictures.turns.available_permits(), AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_leaves_turns_to_others() {
        let pictures = MapPictures::default();
        let (greedy, other) = ("greedy".into(), "other".into());
        let mut turns = Vec::new();
        for _ in 0..PER_USER {
            turns.push(pictures.turn(&greedy).await.unwrap());
        }
        assert!(pictures.turn(&greedy).await.is_err());
        turns.push(pictures.turn(&other).await.unwrap());
        turns.remove(0);
        turns.push(pictures.turn(&greedy).await.unwrap());
    }

    #[tokio::test]
    async fn those_who_read_the_same_picture_at_once_share_it() {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::open(&Database::Sqlite(directory.path().join("test.db"))).unwrap();
        let map = testing::world_map(1, b"picture");
        pool.write_blocking(|db| maps::put(db, "192.0.2.1", 7, &map, testing::now())).unwrap();
        let stored = pool.read_blocking(|db| maps::get(db, "192.0.2.1", 7)).unwrap();
        let key = PictureKey { version: stored.unwrap().picture.unwrap().version, ..key(7) };
        let (pictures, user) = (MapPictures::default(), "user".into());
        let readers = join_all((0..2 * PER_USER).map(|_| pictures.get(&pool, &user, key.clone()))).await;
        assert!(readers.iter().all(|reader| matches!(reader, Ok(Some(_)))));
        assert_eq!(pictures.turns.available_permits(), AT_ONCE - 1);
    }
}
