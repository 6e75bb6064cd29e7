//! Permits to connect to game servers, of the whole process. When few links want one they have it at once; when many do,
//! as after a start or when the network was lost, they go one after another, so that neither we nor our neighbours get
//! all of them in one instant.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};

use crate::{
    crypto::random::Random,
    domain::{
        backoff::jittered,
        rate::{Bucket, TOKEN},
    },
};

/// Links that connect without waiting, and how many more do so a second.
const BURST: u32 = 50;
const PER_SECOND: u32 = 500;
/// Links that connect at a time.
const AT_ONCE: usize = 512;
/// A connect that takes longer holds up no other: many game servers may be gone at once.
const SLOW: Duration = Duration::from_secs(2);

/// See the module.
pub struct ConnectPacer {
    at_once: Arc<Semaphore>,
    /// All links wait here, in order; only the first waits for the bucket.
    pace: Mutex<Pace>,
}

struct Pace {
    /// Start of the bucket's milliseconds.
    origin: Instant,
    bucket: Bucket,
}

/// Permit to connect now.
pub struct ConnectPermit {
    /// Given back when dropped; one out of turn has none.
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for ConnectPacer {
    fn default() -> Self {
        let pace = Pace { origin: Instant::now(), bucket: Bucket::new(BURST, PER_SECOND, 0) };
        Self { at_once: Arc::new(Semaphore::new(AT_ONCE)), pace: Mutex::new(pace) }
    }
}

impl ConnectPacer {
    /// Waits for a permit.
    pub async fn next(&self, random: &Random) -> ConnectPermit {
        let mut pace = self.pace.lock().await;
        let permit = self.at_once.clone().acquire_owned().await;
        while let Err(wait) = pace.take() {
            sleep(jittered(wait, random.byte())).await;
        }
        ConnectPermit { permit: permit.ok() }
    }
}

impl Pace {
    fn take(&mut self) -> Result<(), Duration> {
        let now = self.origin.elapsed().as_millis() as u64;
        self.bucket.take(now, TOKEN).map_err(Duration::from_millis)
    }
}

impl ConnectPermit {
    /// A permit out of turn: for what a user has just asked for. The limits on requests of users bound these.
    pub fn at_once() -> Self {
        Self { permit: None }
    }

    /// Connects. The permit ends with it, or earlier if it is slow.
    pub async fn connect<T>(self, connect: impl Future<Output = T>) -> T {
        let mut connect = pin!(connect);
        if let Ok(connected) = timeout(SLOW, &mut connect).await {
            return connected;
        }
        drop(self.permit);
        connect.await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{join_all, pending};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_connect_at_once_and_many_one_after_another() {
        let (pacer, random) = (ConnectPacer::default(), Random::seeded(1));
        let began = Instant::now();
        let wait = || async {
            pacer.next(&random).await.connect(async {}).await;
            began.elapsed()
        };
        assert_eq!(join_all((0..50).map(|_| wait())).await, [Duration::ZERO; 50]);
        let times = join_all((0..2_000).map(|_| wait())).await;
        assert!(times.is_sorted(), "in order");
        assert!((4..=6).contains(&times[1_999].as_secs()), "spread over seconds: {:?}", times[1_999]);
        let most = times.iter().map(|from| times.iter().filter(|at| (*from..*from + SLOW / 20).contains(*at)).count());
        assert!(most.max() < Some(110), "never many at a time");
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_do_not_answer_hold_up_the_others_for_a_moment_only() {
        let (pacer, random) = (ConnectPacer::default(), Random::seeded(1));
        let dead =
            join_all((0..2 * AT_ONCE).map(|_| async { pacer.next(&random).await.connect(pending::<()>()).await }));
        let alive = async {
            tokio::task::yield_now().await;
            pacer.next(&random).await.connect(async { Instant::now() }).await
        };
        let began = Instant::now();
        let alive = tokio::select! {
            alive = alive => alive,
            _ = dead => unreachable!("they never answer"),
        };
        assert!((2..8).contains(&(alive - began).as_secs()), "{:?}", alive - began);
    }
}
