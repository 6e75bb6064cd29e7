//! Signals that wake a link's task.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures_util::FutureExt as _;
use tokio::sync::Notify;

use crate::domain::link_slots::Claim;

/// See the module.
#[derive(Default)]
pub struct Wake {
    /// A user asks for the link: try at once. One that is up stays.
    pub retry: Notify,
    /// Address or credentials changed: open the link again at once.
    pub replaced: Notify,
    is_watched: AtomicBool,
    /// Mates who sit at the link and are watched by a user.
    watched_mates: AtomicUsize,
    /// The owner has alarms that come by no push message.
    has_alarms: AtomicBool,
    /// Mates likewise.
    alarm_mates: AtomicUsize,
    watched: Notify,
    /// Version of the credentials with which the link waits for a slot or for its next attempt, if it does.
    waits_with: Mutex<Option<i32>>,
    /// The link waits for its next attempt.
    is_paused: AtomicBool,
}

impl Wake {
    /// Sets whether a user watches: then more is asked for, and at once.
    pub fn watch(&self, is_watched: bool) {
        if !self.is_watched.swap(is_watched, Ordering::Relaxed) && is_watched {
            self.watched.notify_one();
        }
    }

    /// A user watches a mate who sits at the link, as long as this is not dropped.
    pub fn watch_mate(self: &Arc<Self>) -> WatchedMate {
        let was_watched = self.is_watched();
        self.watched_mates.fetch_add(1, Ordering::Relaxed);
        if !was_watched {
            self.watched.notify_one();
        }
        WatchedMate(self.clone())
    }

    /// Sets whether alarms come over this link alone.
    pub fn set_alarms(&self, has_alarms: bool) {
        self.has_alarms.store(has_alarms, Ordering::Relaxed);
    }

    /// True if alarms of its owner come over this link alone.
    pub fn has_alarms(&self) -> bool {
        self.has_alarms.load(Ordering::Relaxed)
    }

    /// A mate who sits at the link has alarms that come over it alone, as long as this is not dropped.
    pub fn carry_alarms(self: &Arc<Self>) -> AlarmMate {
        self.alarm_mates.fetch_add(1, Ordering::Relaxed);
        AlarmMate(self.clone())
    }

    /// The need for the link, for its owner and all mates.
    pub fn claim(&self) -> Claim {
        match (self.has_alarms() || self.alarm_mates.load(Ordering::Relaxed) > 0, self.is_watched()) {
            (true, _) => Claim::Alarms,
            (false, true) => Claim::Watched,
            (false, false) => Claim::Other,
        }
    }

    /// The link waits for a slot with these credentials, as long as this is not dropped.
    pub fn wait_for_slot(&self, credentials: i32) -> SlotWait<'_> {
        self.set_waits_with(Some(credentials));
        SlotWait(self)
    }

    /// Version of the credentials with which the link waits for a slot or for its next attempt, if it does.
    pub fn waits_with(&self) -> Option<i32> {
        *self.waits_with.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_waits_with(&self, credentials: Option<i32>) {
        *self.waits_with.lock().unwrap_or_else(PoisonError::into_inner) = credentials;
    }

    /// The link waits for its next attempt, as long as this is not dropped. `credentials`: those of the last one, if they
    /// are known.
    pub fn pause(&self, credentials: Option<i32>) -> LinkPause<'_> {
        self.set_waits_with(credentials);
        self.is_paused.store(true, Ordering::Relaxed);
        LinkPause(self)
    }

    /// True while the link waits for its next attempt.
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// True while a user watches the player of the link, or a mate.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed) || self.watched_mates.load(Ordering::Relaxed) > 0
    }

    /// Completes when a user begins to watch.
    pub async fn watched(&self) {
        self.watched.notified().await;
    }

    /// Completes when a link is asked for, once for all that asked until then.
    pub async fn asked_for(&self) {
        tokio::select! {
            () = self.retry.notified() => {}
            () = self.replaced.notified() => {}
        }
        self.answered();
    }

    /// Clears all calls for a new attempt until now: this is it.
    pub fn answered(&self) {
        self.retry.notified().now_or_never();
        self.replaced.notified().now_or_never();
    }
}

/// See [`Wake::watch_mate`].
pub struct WatchedMate(Arc<Wake>);

impl Drop for WatchedMate {
    fn drop(&mut self) {
        self.0.watched_mates.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See [`Wake::carry_alarms`].
pub struct AlarmMate(Arc<Wake>);

impl Drop for AlarmMate {
    fn drop(&mut self) {
        self.0.alarm_mates.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See [`Wake::wait_for_slot`].
pub struct SlotWait<'a>(&'a Wake);

impl Drop for SlotWait<'_> {
    fn drop(&mut self) {
        self.0.set_waits_with(None);
    }
}

/// See [`Wake::pause`].
pub struct LinkPause<'a>(&'a Wake);

impl Drop for LinkPause<'_> {
    fn drop(&mut self) {
        self.0.set_waits_with(None);
        self.0.is_paused.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_need_for_a_link_is_the_greatest_of_its_owner_and_the_mates() {
        let wake = Arc::new(Wake::default());
        assert_eq!(wake.claim(), Claim::Other);
        wake.watch(true);
        assert_eq!(wake.claim(), Claim::Watched);
        let mate = wake.carry_alarms();
        assert_eq!(wake.claim(), Claim::Alarms);
        drop(mate);
        assert_eq!(wake.claim(), Claim::Watched);
        wake.set_alarms(true);
        assert_eq!(wake.claim(), Claim::Alarms);
    }

    #[test]
    fn a_mate_who_is_watched_counts_like_the_player_of_the_link() {
        let wake = Arc::new(Wake::default());
        let mate = wake.watch_mate();
        assert!(wake.is_watched() && wake.watched().now_or_never().is_some(), "more is asked for at once");
        wake.watch(true);
        wake.watched().now_or_never();
        let other = wake.watch_mate();
        assert!(wake.watched().now_or_never().is_none(), "it was watched before");
        wake.watch(false);
        drop(mate);
        assert!(wake.is_watched());
        drop(other);
        assert!(!wake.is_watched());
    }
}
