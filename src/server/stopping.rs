//! The end of the service, in order: alarms that wait for the database, sockets, push sessions, links. What arrives
//! meanwhile is stored and delivered as ever; what was acknowledged is never lost.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use actix::Addr;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    push::worker::{PushWorker, StopPush},
    relay::{
        hub::{Drain, EndLinks, Hub, RelayHealth, STORED_WITHIN},
        shared::context::RelayContext,
    },
    tracking::worker::{StopTracking, TrackingWorker},
};

/// Time that open sockets may take to say goodbye.
const GOODBYES: Duration = Duration::from_secs(3);
/// Time in which unsaved data has to get into the database, or the journal; and in which links have to end.
const KEPT_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for sockets to take an alarm before they are closed.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// Parts of the service that have to end.
pub struct Stopping {
    pub health: Arc<RelayHealth>,
    pub hub: Addr<Hub>,
    pub push: Addr<PushWorker>,
    pub tracking: Option<Addr<TrackingWorker>>,
    pub kept: Arc<RelayContext>,
    /// The longest time over which open sockets are closed.
    pub drain: Duration,
}

impl Stopping {
    /// Ends everything but the two listeners, which answer meanwhile that the service stops.
    pub async fn end_sessions(&self) {
        let began = Instant::now();
        self.health.draining.store(true, Ordering::Relaxed);
        log::info!(sockets = self.health.active.load(Ordering::Relaxed); "stopping");
        // While there are sockets to hear of them.
        let unsaved_alarms = &self.kept.journal.unsaved_alarms;
        unsaved_alarms.flush(Duration::ZERO, KEPT_WITHIN).await;
        unsaved_alarms.deliver_all(TAKEN_WITHIN).await;
        if timeout(self.drain + GOODBYES, self.hub.send(Drain { over: self.drain })).await.is_err() {
            log::warn!("some sockets were not closed in time");
        }
        // They have their close code; a client that still lingers then is cut off.
        let deadline = Instant::now() + GOODBYES;
        while self.health.active.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        log::info!(ms = began.elapsed().as_millis() as u64; "the sockets are closed");
        // An alarm that came now would find no client; unacknowledged, it comes again at the next start.
        if let Err(error) = self.push.send(StopPush).await {
            log::warn!("the push worker had stopped before: {error}");
        }
        if let Some(tracking) = &self.tracking
            && tracking.send(StopTracking).await.is_err()
        {
            log::warn!("the tracking worker had stopped before");
        }
        // Before the game connections end: an alarm that waits to be stored would end with them.
        unsaved_alarms.flush(STORED_WITHIN, KEPT_WITHIN).await;
        if timeout(KEPT_WITHIN, self.hub.send(EndLinks)).await.is_err() {
            log::warn!("some game links did not end in time");
        }
    }

    /// Waits until everything is stored that came before.
    pub async fn flush(&self) {
        let RelayContext { journal, write_behind, .. } = &*self.kept;
        if let (false, _) =
            tokio::join!(journal.unsaved_alarms.flush(STORED_WITHIN, KEPT_WITHIN), write_behind.flush(KEPT_WITHIN))
        {
            log::error!("neither the database nor the journal took the last alarms");
        }
        write_behind.end();
    }
}
