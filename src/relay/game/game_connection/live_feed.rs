//! The live state of a game connection, and the way of its changes to all who watch and of its world to the database.

use actix::Recipient;

use super::latest_task::LatestTask;
use crate::{
    catalogue::SharedCatalogue,
    db::paired_servers::Baseline,
    domain::{
        chat::StoredLine,
        ids::ServerId,
        monument::Monument,
        one_at_a_time::OneAtATime,
        time::{Moment, Timestamp},
        world_event::WorldEvent,
    },
    relay::{
        state::{live_state::LiveState, outcome::Outcome},
        wire::{
            protocol::{ChatMessage, EventMessage, ServerMessage},
            publication::{Lane, Position, Publication},
            publisher::Publisher,
        },
    },
};

/// See the module.
pub struct LiveFeed {
    server: ServerId,
    pub live: LiveState,
    pub publisher: Publisher,
    /// The next tick, and when it is planned for.
    pub planned_tick: LatestTask,
    planned_for: Option<Moment>,
    /// The read of the stored map notes: an answer to an earlier one may come later.
    pub notes_read: LatestTask,
    /// The write of the game server's world, also while it is tried again.
    world_write: OneAtATime,
}

impl LiveFeed {
    /// Nothing known, and no subscriber.
    pub fn new(server: ServerId, epoch: u64, catalogue: SharedCatalogue, now: Timestamp) -> Self {
        let (live, publisher) = (LiveState::new(now), Publisher::new(server.clone(), epoch, catalogue));
        let (planned_tick, notes_read) = (LatestTask::default(), LatestTask::default());
        let world_write = OneAtATime::default();
        Self { server, live, publisher, planned_tick, planned_for: None, notes_read, world_write }
    }

    /// Delivers an event; `id` is that of its entry in the timeline.
    pub fn deliver_event(&self, id: Option<&str>, event: &WorldEvent) {
        let event = EventMessage { id, event };
        self.publisher.deliver(Lane::Event, &ServerMessage::Event { server_id: &self.server, event });
    }

    /// Delivers a line of the team's chat.
    pub fn deliver_line(&self, StoredLine { id, line }: &StoredLine) {
        let chat = ChatMessage { id, line };
        self.publisher.deliver(Lane::Chat, &ServerMessage::Chat { server_id: &self.server, chat });
    }

    /// See [`Publisher::send_snapshot`].
    pub fn send_snapshot(
        &mut self,
        subscriber: &Recipient<Publication>,
        now: Moment,
    ) -> impl Future<Output = Option<Position>> + use<> {
        self.publisher.send_snapshot(subscriber, self.live.state(), now)
    }

    /// When a tick is to be planned now, unless one is for then or before: that one looks again. What comes due moves away
    /// with most answers, and the timer does not have to.
    pub fn plan_tick(&mut self, now: Moment) -> Option<Moment> {
        let due = self.live.next_due(now)?;
        if self.planned_for.is_some_and(|planned| planned <= due) {
            return None;
        }
        self.planned_for = Some(due);
        Some(due)
    }

    /// The planned tick has come.
    pub fn tick(&mut self, now: Moment) -> Outcome {
        // Ends by itself.
        (self.planned_tick, self.planned_for) = (LatestTask::default(), None);
        self.live.tick(now)
    }

    /// The known world and the monuments of a known map, of which a write begins now. None while one is under way: another
    /// one follows that.
    pub fn begin_world_write(&mut self) -> Option<(Baseline, Option<Vec<Monument>>)> {
        let world = self.live.world()?;
        self.world_write.begin().then(|| (world.into(), self.live.monuments().map(<[_]>::to_vec)))
    }

    /// The write of the world has ended; true if another one is to follow.
    pub fn end_world_write(&mut self) -> bool {
        self.world_write.end()
    }
}
