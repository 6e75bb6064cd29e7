//! The camera that a game connection watches for its users. Pulls of one camera that come together share one look at
//! it; a game server shows a link one camera at a time (protocol §5.1), so looks at several take turns. A camera stays
//! subscribed to for some seconds after a look, so that a client that pulls again and again subscribes once.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix::Message;
use futures_util::{
    FutureExt as _,
    future::{LocalBoxFuture, Shared, WeakShared},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Mutex, Notify},
    time::{Instant, timeout},
};

use crate::{
    clock::Clock,
    domain::{
        ids::{ServerId, UserId},
        time::Timestamp,
    },
    game::{
        acting_link::ActingLink,
        budget::{Priority, cost},
        camera_shot::{CameraShot, CameraView, NoPicture, RayFrame, SeenEntity, read_entities},
        link::AskError,
        wire::{AppCameraRays, AppCameraSubscribe, AppEmpty, AppRequest, AppResponse},
    },
    relay::shared::own_link::OwnLink,
};

/// A pull waits this long for the game server, its turn included.
pub const CAMERA_DEADLINE: Duration = Duration::from_secs(5);
/// A shot serves all users this long.
const SHOT_LIFE: Duration = Duration::from_secs(2);
/// A camera without a pull for this long is unsubscribed from.
pub const LINGER: Duration = Duration::from_secs(5);
/// The game drops a viewer that does not renew within 30 s.
const RENEW_AFTER: Duration = Duration::from_secs(10);
/// Frames come ten times a second; without any for so long, the game has ended the subscription.
const SILENCE: Duration = Duration::from_millis(1_500);
/// Frames that are kept; a picture of real servers needs 5 or 20.
const FRAMES: usize = 256;

/// A user, who may watch this server, pulls a frame of one of its cameras.
#[derive(Message)]
#[rtype(result = "Result<Arc<CameraShot>, CameraError>")]
pub struct PullCameraFrame {
    pub server: ServerId,
    pub user: UserId,
    /// Its device id, which is the camera's identifier.
    pub device: String,
}

/// Look through this camera.
#[derive(Message)]
#[rtype(result = "Result<Arc<CameraShot>, CameraError>")]
pub struct CaptureFrame {
    pub camera: String,
}

/// Failure of a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CameraError {
    UnknownServer,
    UnknownDevice,
    NotACamera,
    /// There is no link, or the game server refused for a reason of its own.
    Unavailable,
    TimedOut,
    /// The game server knows no camera by this identifier, or it is out of range.
    UnknownCamera,
    /// The player is in the game right now.
    PlayerOnline,
    /// The player has no body in the game.
    NoPlayer,
    /// The game server does not show this camera, as newer ones do with those of monuments.
    AccessDenied,
    /// The game server shows no cameras at all.
    Disabled,
    /// The frames are no picture.
    Unreadable,
    /// Our own fault; try again.
    Internal,
}

impl From<AskError> for CameraError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::TimedOut => Self::TimedOut,
            AskError::TooMany(_) | AskError::Closed => Self::Unavailable,
            AskError::Refused(word) => match word.as_str() {
                "not_found" | "invalid_id" => Self::UnknownCamera,
                "player_online" => Self::PlayerOnline,
                "no_player" => Self::NoPlayer,
                "access_denied" => Self::AccessDenied,
                "not_enabled" => Self::Disabled,
                _ => Self::Unavailable,
            },
        }
    }
}

impl From<NoPicture> for CameraError {
    fn from(NoPicture: NoPicture) -> Self {
        Self::Unreadable
    }
}

/// The answer to a pull.
pub type CameraLook = Result<Arc<CameraShot>, CameraError>;
/// A look that everybody who pulls waits for.
pub type SharedCapture = Shared<LocalBoxFuture<'static, CameraLook>>;

/// See the module. One of each game connection.
pub struct CameraCapture {
    clock: Clock,
    /// Held by the caller that asks the game server about cameras.
    turn: Mutex<()>,
    watched: RefCell<Option<WatchedCamera>>,
    /// A frame came, or none will.
    changed: Notify,
    /// When a camera was last wanted, as long as the game server may be sending frames.
    wanted: Cell<Option<Instant>>,
    looks: RefCell<HashMap<String, WeakShared<LocalBoxFuture<'static, CameraLook>>>>,
    shots: RefCell<HashMap<String, (Instant, Arc<CameraShot>)>>,
}

impl CameraCapture {
    /// One that watches nothing.
    pub fn new(clock: Clock) -> Rc<Self> {
        Rc::new(Self {
            clock,
            turn: Mutex::new(()),
            watched: RefCell::default(),
            changed: Notify::new(),
            wanted: Cell::default(),
            looks: RefCell::default(),
            shots: RefCell::default(),
        })
    }

    /// A shot of this camera: one of the last moments, that of a look that is under way, or that of a new one.
    pub fn look(self: &Rc<Self>, camera: String, link: Option<OwnLink>) -> SharedCapture {
        let now = Instant::now();
        self.shots.borrow_mut().retain(|_, (taken, _)| now - *taken < SHOT_LIFE);
        if let Some((_, shot)) = self.shots.borrow().get(&camera) {
            let shot = shot.clone();
            return async { Ok(shot) }.boxed_local().shared();
        }
        let mut looks = self.looks.borrow_mut();
        if let Some(look) = looks.get(&camera).and_then(WeakShared::upgrade) {
            return look;
        }
        looks.retain(|_, look| look.upgrade().is_some());
        let (own, name) = (self.clone(), camera.clone());
        let look = async move {
            let looked = timeout(CAMERA_DEADLINE, async {
                let link = link.ok_or(CameraError::Unavailable)?.acting().await;
                own.shoot(&name, &link.ok_or(CameraError::Unavailable)?).await
            });
            let looked = looked.await;
            own.looks.borrow_mut().remove(&name);
            looked.unwrap_or(Err(CameraError::TimedOut))
        };
        let look = look.boxed_local().shared();
        looks.extend(look.downgrade().map(|weak| (camera, weak)));
        look
    }

    async fn shoot(&self, camera: &str, link: &ActingLink) -> CameraLook {
        let _turn = self.turn.lock().await;
        if !self.is_streaming(camera) {
            self.subscribe(camera, link).await?;
        }
        self.wanted.set(Some(Instant::now()));
        loop {
            let changed = self.changed.notified();
            if let Some(shot) = self.shot()? {
                let shot = Arc::new(shot);
                self.shots.borrow_mut().insert(camera.to_owned(), (Instant::now(), shot.clone()));
                return Ok(shot);
            }
            changed.await;
        }
    }

    /// Frames of this camera come, and no renewal is due.
    fn is_streaming(&self, camera: &str) -> bool {
        let watched = self.watched.borrow();
        watched.as_ref().is_some_and(|watched| {
            watched.camera == camera && watched.heard.elapsed() < SILENCE && watched.renewed.elapsed() < RENEW_AFTER
        })
    }

    /// Subscribes, or renews.
    async fn subscribe(&self, camera: &str, link: &ActingLink) -> Result<(), CameraError> {
        let is_renewal = self.watched.borrow().as_ref().is_some_and(|watched| watched.camera == camera);
        if !is_renewal {
            // Frames that come now are of another camera.
            self.watched.take();
        }
        let wanted_before = self.wanted.replace(Some(Instant::now()));
        let answer = ask(link, || {
            let camera_subscribe = Some(AppCameraSubscribe { camera_id: camera.to_owned() });
            AppRequest { camera_subscribe, ..Default::default() }
        });
        let view = match answer.await {
            Ok(AppResponse { camera_subscribe_info: Some(info), .. }) => {
                CameraView::read(&info).map_err(CameraError::from)
            }
            Ok(_) => Err(CameraError::Unreadable),
            Err(error) => {
                if matches!(error, AskError::Refused(_)) {
                    self.wanted.set(wanted_before);
                }
                Err(error.into())
            }
        };
        let now = Instant::now();
        let mut watched = self.watched.borrow_mut();
        match (view, &mut *watched) {
            (Ok(view), Some(known)) if known.view == view && known.heard.elapsed() < SILENCE => {
                known.renewed = now;
                Ok(())
            }
            (Ok(view), watched) => {
                *watched = Some(WatchedCamera::new(camera.to_owned(), view, now));
                Ok(())
            }
            (Err(error), watched) => {
                *watched = None;
                Err(error)
            }
        }
    }

    /// Picture of the watched camera; none until frames cover all of it.
    fn shot(&self) -> Result<Option<CameraShot>, CameraError> {
        let mut watched = self.watched.borrow_mut();
        // The link is gone.
        let camera = watched.as_mut().ok_or(CameraError::Unavailable)?;
        if camera.is_spoilt {
            *watched = None;
            return Err(CameraError::Unreadable);
        }
        Ok(camera.shot())
    }

    /// A frame of the camera that is watched came.
    pub fn hear(&self, rays: &AppCameraRays) {
        if let Some(watched) = &mut *self.watched.borrow_mut() {
            watched.add(rays, self.clock.now(), Instant::now());
            self.changed.notify_waiters();
        }
    }

    /// The link on which frames came is gone, and another one knows nothing of them.
    pub fn link_changed(&self) {
        self.watched.take();
        self.wanted.take();
        self.changed.notify_waiters();
    }

    /// Unsubscribes if no camera was wanted for [`LINGER`]. Call it that long after each look.
    pub fn end_unused(self: &Rc<Self>, link: Option<&ActingLink>) -> Option<impl Future<Output = ()> + use<>> {
        let is_unused = |looks: &Self| looks.wanted.get().is_some_and(|wanted| wanted.elapsed() >= LINGER);
        let link = link.filter(|_| is_unused(self))?.clone();
        let own = self.clone();
        Some(async move {
            let Ok(_turn) = own.turn.try_lock() else { return };
            if !is_unused(&own) {
                return;
            }
            own.watched.take();
            own.wanted.take();
            // If that fails, the game ends the subscription by itself, as it is not renewed.
            let unsubscribe = ask(&link, || AppRequest { camera_unsubscribe: Some(AppEmpty {}), ..Default::default() });
            if let Ok(Err(error)) = timeout(CAMERA_DEADLINE, unsubscribe).await {
                log::debug!("a camera could not be unsubscribed from: {error}");
            }
        })
    }
}

/// Asks, and again if the game refuses for the rate alone: the mirrored buckets then are empty, and asking waits.
async fn ask(link: &ActingLink, request: impl Fn() -> AppRequest) -> Result<AppResponse, AskError> {
    loop {
        match link.ask(request(), cost::REQUEST, Priority::Toggle, CAMERA_DEADLINE).await {
            Err(AskError::Refused(word)) if word == "rate_limit" => {}
            answer => return answer.map(|answered| *answered.content),
        }
    }
}

/// The camera that is subscribed to, and its last frames.
struct WatchedCamera {
    camera: String,
    view: CameraView,
    renewed: Instant,
    /// When the last frame came; before the first, when it was subscribed to.
    heard: Instant,
    /// Just as many as cover the picture, or fewer.
    frames: VecDeque<RayFrame>,
    /// Samples of all the frames.
    samples: usize,
    /// Time of the last frame.
    at: Timestamp,
    vertical_fov: f32,
    entities: Vec<SeenEntity>,
    /// A frame could not be read.
    is_spoilt: bool,
}

impl WatchedCamera {
    fn new(camera: String, view: CameraView, now: Instant) -> Self {
        Self {
            camera,
            view,
            renewed: now,
            heard: now,
            frames: VecDeque::new(),
            samples: 0,
            at: Timestamp::UNIX_EPOCH,
            vertical_fov: 0.0,
            entities: Vec::new(),
            is_spoilt: false,
        }
    }

    fn add(&mut self, rays: &AppCameraRays, at: Timestamp, now: Instant) {
        let Ok(frame) = RayFrame::read(rays, &self.view) else {
            self.is_spoilt = true;
            return;
        };
        // Zoomed since: older frames show something else.
        if self.vertical_fov != rays.vertical_fov {
            self.frames.clear();
            self.samples = 0;
        }
        self.samples += frame.samples();
        self.frames.push_back(frame);
        while let Some(oldest) = self.frames.front()
            && (self.samples - oldest.samples() >= self.view.pixels() || self.frames.len() > FRAMES)
        {
            self.samples -= oldest.samples();
            self.frames.pop_front();
        }
        (self.at, self.heard, self.vertical_fov) = (at, now, rays.vertical_fov);
        self.entities = read_entities(rays);
    }

    fn shot(&self) -> Option<CameraShot> {
        let Self { view, at, vertical_fov, .. } = *self;
        let (frames, entities) = (self.frames.iter().cloned().collect(), self.entities.clone());
        (self.samples >= view.pixels()).then_some(CameraShot { view, at, frames, vertical_fov, entities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    const VIEW: CameraView = CameraView { width: 100, height: 10, near_plane: 0.0, far_plane: 250.0 };

    fn rays(offset: i32, samples: usize) -> AppCameraRays {
        AppCameraRays {
            vertical_fov: 65.0,
            sample_offset: offset,
            ray_data: vec![0; samples].into(),
            ..Default::default()
        }
    }

    fn watched(frames: &[AppCameraRays]) -> WatchedCamera {
        let mut watched = WatchedCamera::new("CAM1".into(), VIEW, Instant::now());
        for rays in frames {
            watched.add(rays, Timestamp::from_unix(1_790_000_000).unwrap(), Instant::now());
        }
        watched
    }

    fn offsets(camera: &WatchedCamera) -> Option<Vec<usize>> {
        Some(camera.shot()?.frames.iter().map(|frame| frame.offset).collect())
    }

    #[test]
    fn a_shot_has_the_last_frames_that_cover_the_picture() {
        let frames: Vec<_> = (0..5).map(|n| rays(n * 300, 300)).collect();
        assert_eq!(offsets(&watched(&frames[..3])), None);
        assert_eq!(offsets(&watched(&frames[..4])), Some(vec![0, 300, 600, 900]));
        assert_eq!(offsets(&watched(&frames)), Some(vec![300, 600, 900, 200]));
    }

    #[test]
    fn frames_before_a_zoom_are_forgotten() {
        let zoomed = AppCameraRays { vertical_fov: 26.0, ..rays(300, 700) };
        assert_eq!(offsets(&watched(&[rays(0, 300), zoomed.clone()])), None);
        let rest = AppCameraRays { vertical_fov: 26.0, ..rays(1_000, 300) };
        assert_eq!(offsets(&watched(&[rays(0, 300), zoomed, rest])), Some(vec![300, 0]));
    }

    #[test]
    fn tiny_frames_and_unreadable_ones_fill_no_memory() {
        let tiny: Vec<_> = (0..2_000).map(|n| rays(n, 1)).collect();
        let camera = watched(&tiny);
        assert_eq!((camera.frames.len(), camera.samples, camera.is_spoilt), (FRAMES, FRAMES, false));
        let unreadable = watched(&[rays(-1, 1_000)]);
        assert!(unreadable.is_spoilt && unreadable.shot().is_none());
    }

    #[test]
    fn each_refusal_of_the_game_has_its_reason() {
        let reason = |word: &str| CameraError::from(AskError::Refused(word.into()));
        assert_eq!(reason("not_found"), CameraError::UnknownCamera);
        assert_eq!(reason("player_online"), CameraError::PlayerOnline);
        assert_eq!(reason("no_player"), CameraError::NoPlayer);
        assert_eq!(reason("access_denied"), CameraError::AccessDenied);
        assert_eq!(reason("not_enabled"), CameraError::Disabled);
        assert_eq!(reason("server_error"), CameraError::Unavailable);
        assert_eq!(CameraError::from(AskError::TimedOut), CameraError::TimedOut);
    }
}
