//! Signals that wake a link's task.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use tokio::sync::Notify;

/// See the module.
#[derive(Default)]
pub struct Wake {
    /// A user asks for the link: try at once. One that is up stays.
    pub retry: Notify,
    /// Address or credentials changed: open the link again at once.
    pub replaced: Notify,
    is_watched: AtomicBool,
    watched: Notify,
}

impl Wake {
    /// Sets whether a user watches: then more is asked for, and at once.
    pub fn watch(&self, is_watched: bool) {
        if !self.is_watched.swap(is_watched, Ordering::Relaxed) && is_watched {
            self.watched.notify_one();
        }
    }

    /// True while a user watches.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
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
