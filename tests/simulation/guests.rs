//! Rights to watch: Alice lets Bob watch her first server, and takes that back. He may never turn her switches.

use std::collections::BTreeMap;

use companion::domain::ids::ServerId;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    dashboard::Dashboard,
    judge::Judge,
    random::Stream,
    run::Run,
    script::{Act, HEALTHY_FROM, Script},
    world::{PAIRED, USERS, UserAct},
};

/// Frames sent before a right was taken back may still be on its way: a second, and the longest lag.
const SHUT_WITHIN: Duration = Duration::from_secs(6);

/// Seeds in a hundred in which Alice changes her mind again and again.
const CHANGES_OFTEN: u64 = 60;
/// A dashboard of Bob's.
const OF_BOB: usize = 3;

#[derive(Default)]
pub struct Guests {
    /// Servers that Bob may watch, or might since then no longer.
    granted: BTreeMap<String, Option<Instant>>,
    /// When Alice last asked to take that back.
    taken_back: Option<Instant>,
    changes: u32,
}

impl Guests {
    /// Alice asks for a change; its number. It may be stored though no one hears so.
    pub fn attempt(&mut self, server: &ServerId, is_guest: bool) -> u32 {
        self.changes += 1;
        if is_guest {
            self.granted.insert(server.to_string(), None);
        } else {
            self.taken_back = Some(Instant::now());
        }
        self.changes
    }

    /// The change is stored.
    pub fn acknowledge(&mut self, server: &ServerId, is_guest: bool, change: u32) {
        if let Some(granted) = self.granted.get_mut(server.as_str()).filter(|_| !is_guest && change == self.changes) {
            *granted = Some(Instant::now());
        }
    }

    fn may_watch(&self, server: &str) -> bool {
        self.granted.get(server).is_some_and(|ended| ended.is_none_or(|at| at.elapsed() <= SHUT_WITHIN))
    }

    /// True if this user was a guest of the server at this time, and perhaps has not been all the time since.
    pub fn may_have_left(&self, server: &str, user: usize, since: Instant) -> bool {
        let is_guest = user != PAIRED[0].1 && self.granted.contains_key(server);
        is_guest && self.taken_back.is_some_and(|at| at + SHUT_WITHIN >= since)
    }
}

/// When Alice changes her mind: a stream of its own, so that the rest of the script is what it was.
pub fn changes(seed: u64) -> Script {
    let mut random = Stream::of(seed, "guests");
    if !random.chance(CHANGES_OFTEN) {
        return Script::new();
    }
    (0..random.between(1, 4)).map(|_| (random.between(10_000, HEALTHY_FROM - 30_000), Act::GuestBurst)).collect()
}

impl Run {
    /// Alice lets Bob watch, and he does; then she changes her mind three times within a moment, and he may not.
    pub fn change_guest_often(&self) {
        let (world, dashboard) = (self.world.clone(), self.dashboards[OF_BOB].clone());
        let mut random = Stream::of(world.seed, &format!("guest of {}", world.millis()));
        tokio::task::spawn_local(async move {
            if !world.act(UserAct::Guest(true)).await {
                return;
            }
            dashboard.subscribe(0);
            sleep(Duration::from_secs(1)).await;
            for is_guest in [false, true, false] {
                let world = world.clone();
                tokio::task::spawn_local(async move { world.act(UserAct::Guest(is_guest)).await });
                sleep(Duration::from_millis(random.below(10))).await;
            }
        });
    }
}

impl Judge {
    /// A dashboard received a message of this server.
    pub fn check_may_watch(&mut self, dashboard: &Dashboard, server: &str, message: &Value) {
        let owned_by = |user: usize| {
            let names = PAIRED.iter().filter(move |(_, owner, _)| *owner == user).map(|(name, ..)| *name);
            names.filter_map(|name| self.server(name)).any(|own| own.as_str() == server)
        };
        let is_guest = (0..USERS.len()).any(|user| user != dashboard.user && owned_by(user));
        let reads = dashboard.wire.borrow().as_ref().is_some_and(|(wire, _)| !wire.was_stalled.get());
        if is_guest && reads && message["type"] != "error" && !self.guests.may_watch(server) {
            self.broken("guests-alone-watch", format!("dashboard {}: {message}", dashboard.number));
        }
    }

    /// A dashboard's request to turn a switch of this paired server was carried out.
    pub fn check_may_turn(&mut self, dashboard: &Dashboard, paired: usize) {
        if PAIRED[paired].1 != dashboard.user {
            self.broken(
                "owners-alone-turn",
                format!("dashboard {} turned one of {}", dashboard.number, PAIRED[paired].0),
            );
        }
    }
}
