//! Facts about the team's chat that a game connection holds for its commands.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use actix::SpawnHandle;
use chrono::TimeDelta;

use crate::{
    domain::{
        ids::UserId,
        team_command::{
            device_words::OwnWords, memory::WorldMemory, settings::TeamChatSettings, turn_back::PendingTurnBack,
            vocabulary::Vocabulary,
        },
        time::{Moment, Timestamp},
    },
    relay::{shared::teams::TeamKey, state::team_chat::ReceivedLine},
};

/// The game shows another leader within this time, or did not do it. Until then there is no other change.
const PROMOTED_WITHIN: TimeDelta = TimeDelta::seconds(10);

/// See the module.
#[derive(Default)]
pub struct TeamCommands {
    pub(super) settings: TeamChatSettings,
    /// The user who paired the server: switches are turned in this name.
    pub(super) owner: Option<UserId>,
    /// SteamID64 of those who may watch.
    pub(super) users: HashSet<u64>,
    pub(super) words: HashMap<Arc<str>, OwnWords>,
    pub(super) vocabulary: Arc<Vocabulary>,
    pub(super) memory: WorldMemory,
    /// Switches that turn back, by device id.
    pub(super) switch_backs: HashMap<Arc<str>, PendingTurnBack>,
    /// The switches that were turned from the chat lately.
    pub(super) turned: HashMap<Arc<str>, Moment>,
    /// The switches that turn back now.
    pub(super) turning_back: HashSet<Arc<str>>,
    /// The team as it was last known: what is asked while the link ends is answered there.
    pub(super) key: Option<TeamKey>,
    /// SteamID64 of the paired player, as the last link had it.
    pub(super) player: u64,
    /// Everything was asked since the link is up, so that the team is known.
    pub(super) is_resynced: bool,
    /// Lines that were just said, and when they came: they wait until the team and its commands are known.
    pub(super) unread: Vec<(Moment, ReceivedLine)>,
    /// Lines that may be ours, as [`Teams::echo`](crate::relay::shared::teams::Teams::echo) takes them: they wait until
    /// the team is known.
    pub(super) echoes: Vec<(u64, String, Option<Timestamp>)>,
    pub(super) connected_since: Option<Moment>,
    pub(super) promotion: Option<Promotion>,
    /// Another bot was noticed under this prefix.
    pub(super) has_other_bot: bool,
    /// The end of the notice of a loop.
    pub(super) loop_ends: Option<SpawnHandle>,
    /// The stored rows were read once.
    pub(super) is_loaded: bool,
    /// The latest read of it is not answered.
    pub(super) is_reading: bool,
    pub(super) read: Option<SpawnHandle>,
    /// The next look at what is due, and when.
    pub(super) planned: Option<(SpawnHandle, Moment)>,
}

/// A change of the leader that was asked for.
pub struct Promotion {
    pub(super) player: u64,
    pub(super) until: Moment,
    pub(super) is_said: bool,
}

impl Promotion {
    /// The game was asked at this moment.
    pub fn new(player: u64, now: Moment) -> Self {
        Self { player, until: now + PROMOTED_WITHIN, is_said: false }
    }
}
