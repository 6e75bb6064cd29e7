//! Actions of users, counted by kind for the admins' analytics: in memory, and added to the day's counts each minute.
//! The end of the process loses a minute of counts.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use actix_web::http::Method;

use crate::{
    clock::Clock,
    db::{daily_counts, engine::pool::Pool},
};

/// Actions that are not stored yet.
#[derive(Default)]
pub struct ActivityCounts(Mutex<BTreeMap<&'static str, i64>>);

/// The action that a successful request to this route means, if it is one of a user.
fn kind(method: &Method, route: &str) -> Option<&'static str> {
    Some(match (method.as_str(), route) {
        ("POST", "/relay/token") => "dashboard",
        ("POST", "/pairing/device/activate") => "helper_paired",
        ("PUT", "/credentials/push") => "credential_upload",
        ("POST", "/billing/checkout") => "checkout",
        ("POST", "/paired-servers") => "server_paired",
        ("POST", "/paired-servers/{id}/devices/{deviceId}/toggle") => "toggle",
        ("GET", "/paired-servers/{id}/devices/{deviceId}/camera-frame") => "camera",
        ("POST", "/paired-servers/{id}/chat") => "chat",
        ("POST", "/paired-servers/{id}/guests") => "guest_invited",
        ("POST", "/guest-invites/accept") => "guest_joined",
        ("POST", "/paired-servers/{id}/drill") => "drill",
        ("POST", "/paired-servers/{id}/alarms/{incident}/ack") => "alarm_acknowledged",
        ("POST", "/intel/{serverId}/tracking") => "player_tracked",
        ("POST", "/intel/{serverId}/shops") => "shop_watched",
        ("POST", "/intel/{serverId}/map-notes") => "map_note",
        _ => return None,
    })
}

impl ActivityCounts {
    /// A request to this route has succeeded.
    pub fn count(&self, method: &Method, route: &str) {
        if let Some(kind) = kind(method, route) {
            self.add(kind);
        }
    }

    /// A session has begun; a callback that begins none is answered alike.
    pub fn count_sign_in(&self) {
        self.add("sign_in");
    }

    /// A dashboard has begun with a token of the relay within its page.
    pub fn count_dashboard(&self) {
        self.add("dashboard");
    }

    fn add(&self, kind: &'static str) {
        *self.lock().entry(kind).or_default() += 1;
    }

    /// Adds the actions to the counts of the day; those that could not be stored are added later.
    pub async fn store(&self, pool: &Pool, clock: &Clock) {
        let done = std::mem::take(&mut *self.lock());
        if done.is_empty() {
            return;
        }
        let (now, stored) = (clock.now(), done.clone());
        if let Err(error) = pool.write(move |db| daily_counts::add(db, &stored, now)).await {
            log::warn!("what users did was not counted: {error}");
            let mut counts = self.lock();
            done.into_iter().for_each(|(kind, count)| *counts.entry(kind).or_default() += count);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
