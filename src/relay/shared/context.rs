//! Parts that the relay's actors share.

use std::sync::Arc;

use crate::{
    catalogue::SharedCatalogue,
    clock::Clock,
    config,
    crypto::random::Random,
    db::{alarms::early_alarms::EarlyAlarms, engine::pool::Pool, files::journal::Journal},
    domain::{
        fence::Fence,
        ids::{GameServerId, ServerId},
        timeline::{TimelineEntry, TimelineOwner},
        world_event::{EventKind, WorldEvent},
    },
    game::{decoding::MessageDecoder, outbound::Outbound, paced_link::Budgets},
    net::Network,
    relay::shared::{
        chat_texts::ChatTexts,
        connect_pacer::ConnectPacer,
        markets::Markets,
        monument_maps::MonumentMaps,
        recent_events::RecentEvents,
        team_timers::TeamTimers,
        teams::Teams,
        write_behind::{Record, WriteBehind},
    },
    vault::Vault,
};

/// Built once, shared by all. A clone shares everything with it.
#[derive(Clone)]
pub struct RelayContext {
    pub clock: Clock,
    pub random: Random,
    pub network: Network,
    pub pool: Pool,
    pub journal: Journal,
    /// Alarms that channels send before the database has them.
    pub early_alarms: Arc<EarlyAlarms>,
    pub vault: Vault,
    pub game: config::Game,
    pub budgets: Arc<Budgets>,
    pub connect_pacer: Arc<ConnectPacer>,
    pub outbound: Arc<Outbound>,
    pub recent_events: Arc<RecentEvents>,
    pub write_behind: WriteBehind,
    pub markets: Arc<Markets>,
    pub maps: Arc<MonumentMaps>,
    pub catalogue: SharedCatalogue,
    pub teams: Arc<Teams>,
    pub team_timers: Arc<TeamTimers>,
    pub chat_texts: Arc<ChatTexts>,
    pub decoder: MessageDecoder,
}

impl RelayContext {
    /// This context for a part of the service that this node has: nothing is stored through it once another node has it.
    pub fn fenced_by(&self, fence: Arc<Fence>) -> Self {
        let write_behind = self.write_behind.fenced_by(fence.clone());
        Self { pool: self.pool.clone().fenced_by(fence), write_behind, ..self.clone() }
    }

    /// Adds an event of this paired server to the timeline; gives its id there. What many links to one game server see
    /// is one entry. `game_server` is absent as long as there was no link.
    pub fn record(&self, server: &ServerId, game_server: Option<&GameServerId>, event: &WorldEvent) -> Option<String> {
        // Lines of chat that were left out concern only those who read now.
        if event.kind == EventKind::Chat {
            return None;
        }
        let now = self.clock.moment();
        let new_id = || self.random.id(now.stamp);
        let (owner, id, is_new) = match game_server.filter(|_| event.kind.is_of_world()) {
            Some(game_server) => {
                let (id, is_new) = self.recent_events.id(game_server, server, event, now, new_id);
                (TimelineOwner::GameServer(game_server.clone()), id, is_new)
            }
            None => (TimelineOwner::Server(server.clone()), new_id(), true),
        };
        if is_new {
            self.write_behind.store(Record::Event(owner, TimelineEntry::of_event(id.clone(), event)));
        }
        Some(id)
    }
}
