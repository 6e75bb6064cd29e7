//! The link of a game connection: the one in use, the task that keeps it, and what the next process is to know of it.

use std::sync::Arc;

use actix::SpawnHandle;
use chrono::TimeDelta;

use super::last_heard::LastHeard;
use crate::{
    domain::{
        ids::GameServerId,
        time::{Moment, Timestamp},
    },
    game::{acting_link::ActingLink, reading_link::ReadingLink},
    relay::game::{echoes::Echoes, pool::wake::Wake},
};

/// A process that is killed has stored this long ago at most that its link was up.
const ALIVE_EVERY: TimeDelta = TimeDelta::seconds(60);

/// See the module.
pub struct HeldLink {
    pub heard: LastHeard,
    /// The link that reads for this paired server, if one is up.
    pub reading: Option<ReadingLink>,
    /// The link of the paired player, if one is up.
    pub acting: Option<ActingLink>,
    /// Lines that users said over it.
    pub echoes: Echoes,
    /// Peer of the link, or of the last one.
    pub game_server: Option<GameServerId>,
    /// When it was last stored that the link was up, and until when.
    alive_kept: Option<(Moment, Timestamp)>,
    /// A user asks for the first link: it waits for no turn.
    asked_for: bool,
    /// Keeps the link.
    pub task: Option<SpawnHandle>,
    pub wake: Arc<Wake>,
}

impl HeldLink {
    /// No link, and no task that keeps one.
    pub fn new(heard: LastHeard, asked_for: bool) -> Self {
        Self {
            heard,
            reading: None,
            acting: None,
            echoes: Echoes::default(),
            game_server: None,
            alive_kept: None,
            asked_for,
            task: None,
            wake: Arc::default(),
        }
    }

    /// The link is gone; its users' lines are not repeated.
    pub fn drop_link(&mut self) {
        (self.reading, self.acting) = (None, None);
        self.echoes = Echoes::default();
    }

    /// The first attempt is about to begin.
    pub fn begin(&mut self) {
        if std::mem::take(&mut self.asked_for) {
            self.wake.retry.notify_one();
        }
    }

    /// A user asks for the link; `changed`: address or credentials are not what they were.
    pub fn retry(&self, changed: bool) {
        if changed {
            self.wake.replaced.notify_one();
        } else if self.reading.is_none() {
            self.wake.retry.notify_one();
        }
    }

    /// When the link was last up, if that is to be stored now: once a minute, unless the link has been down since.
    /// `at_once`: there is no later.
    pub fn alive_to_store(&mut self, alive_at: Option<Timestamp>, now: Moment, at_once: bool) -> Option<Timestamp> {
        if !at_once && self.alive_kept.is_some_and(|(kept, _)| now - kept < ALIVE_EVERY) {
            return None;
        }
        let alive_at = alive_at.filter(|alive_at| self.alive_kept.is_none_or(|(_, known)| known != *alive_at))?;
        self.alive_kept = Some((now, alive_at));
        Some(alive_at)
    }
}
