//! Pictures of players, fetched from the platform for browsers, which ask no other origin than this service: by the
//! account alone, never by an address from a client. Each is fetched once at a time, and kept in memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use chrono::TimeDelta;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    time::timeout,
};

use crate::{
    api::answer::error::ApiError,
    clients::identity::IdentityClient,
    clock::Clock,
    crypto::digest::sha256_hex,
    domain::{
        fair_budget::FairBudget,
        ids::{PlatformId, UserId},
        retention,
        time::Moment,
    },
};

/// Accounts whose picture is known or being fetched; a picture has at most 32 KiB, and mostly 3.
const ACCOUNTS: usize = 2_000;
/// Pictures that are fetched at once, and the longest wait of one more.
const AT_ONCE: usize = 4;
const TURN_DEADLINE: Duration = Duration::from_secs(3);
/// Accounts that are asked for in a day, by all users together: the platform answers 100 000 requests of a key, and
/// sign-ins need some.
const PER_DAY: u32 = 50_000;
/// Time for which a failure is not tried again.
const PAUSE: TimeDelta = TimeDelta::minutes(1);

/// A picture, a JPEG.
#[derive(Debug, PartialEq, Eq)]
pub struct Avatar {
    pub jpeg: Bytes,
    /// SHA-256.
    pub digest: String,
}

/// See the module.
pub struct Avatars {
    clock: Clock,
    known: Mutex<HashMap<PlatformId, AvatarSlot>>,
    turns: Semaphore,
    budget: Mutex<FairBudget>,
}

/// Place of a picture. The request that fetches it holds the lock: the others wait for the same one.
type AvatarSlot = Arc<AsyncMutex<Option<KnownAvatar>>>;

/// The end of an attempt to fetch a picture.
struct KnownAvatar {
    at: Moment,
    outcome: AvatarOutcome,
}

#[derive(Clone)]
enum AvatarOutcome {
    Picture(Arc<Avatar>),
    NoPicture,
    Failed,
}

impl KnownAvatar {
    fn is_valid(&self, now: Moment) -> bool {
        now - self.at < if matches!(self.outcome, AvatarOutcome::Failed) { PAUSE } else { retention::AVATAR }
    }
}

impl Avatars {
    /// No pictures yet, with the whole budget of the day.
    pub fn new(clock: &Clock) -> Self {
        let budget = FairBudget::new(PER_DAY, clock.now()).into();
        Self { clock: clock.clone(), known: Mutex::default(), turns: Semaphore::new(AT_ONCE), budget }
    }

    /// The picture of a player, for this user; `None` if the platform has none.
    pub async fn get(
        &self,
        identity: &IdentityClient,
        user: &UserId,
        player: &PlatformId,
    ) -> Result<Option<Arc<Avatar>>, ApiError> {
        let slot = self.slot(player);
        let mut known = slot.lock().await;
        let now = self.clock.moment();
        if let Some(known) = known.as_ref().filter(|known| known.is_valid(now)) {
            return answer(known.outcome.clone());
        }
        let unavailable = |why: &str| ApiError::Unavailable(why.into());
        let turn = timeout(TURN_DEADLINE, self.turns.acquire()).await;
        let _turn = turn.map_err(|_| unavailable("too many pictures of players are fetched"))?;
        if !locked(&self.budget).take(std::slice::from_ref(user), self.clock.now()) {
            return Err(unavailable("this day's requests for pictures of players are spent"));
        }
        let outcome = match identity.avatar(player).await {
            Ok(Some(jpeg)) => AvatarOutcome::Picture(Arc::new(Avatar { digest: sha256_hex(&jpeg), jpeg })),
            Ok(None) => AvatarOutcome::NoPicture,
            Err(error) => {
                log::info!("the picture of a player was not fetched: {error}");
                AvatarOutcome::Failed
            }
        };
        *known = Some(KnownAvatar { at: self.clock.moment(), outcome: outcome.clone() });
        answer(outcome)
    }

    fn slot(&self, player: &PlatformId) -> AvatarSlot {
        let mut known = locked(&self.known);
        if known.len() >= ACCOUNTS && !known.contains_key(player) {
            known.clear();
        }
        known.entry(player.clone()).or_default().clone()
    }
}

fn answer(outcome: AvatarOutcome) -> Result<Option<Arc<Avatar>>, ApiError> {
    match outcome {
        AvatarOutcome::Picture(avatar) => Ok(Some(avatar)),
        AvatarOutcome::NoPicture => Ok(None),
        AvatarOutcome::Failed => Err(ApiError::Unavailable("the platform does not give the picture".into())),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
