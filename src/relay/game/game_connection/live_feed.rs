//! The live state of a game connection, and the way of its changes to all who watch and of its world to the database.

use actix::{Recipient, SpawnHandle};

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
    planned: Option<(SpawnHandle, Moment)>,
    /// The latest read of the stored map notes, which the next one ends.
    notes_read: Option<SpawnHandle>,
    /// The write of the game server's world, also while it is tried again.
    world_write: OneAtATime,
}

impl LiveFeed {
    /// Nothing known, and no subscriber.
    pub fn new(server: ServerId, epoch: u64, catalogue: SharedCatalogue, now: Timestamp) -> Self {
        let (live, publisher) = (LiveState::new(now), Publisher::new(server.clone(), epoch, catalogue));
        let world_write = OneAtATime::default();
        Self { server, live, publisher, planned: None, notes_read: None, world_write }
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

    /// When a tick must be planned, if none is for then or before: that one looks again. What comes due moves away with
    /// most answers, and the timer does not have to.
    pub fn unplanned_tick(&self, now: Moment) -> Option<Moment> {
        let due = self.live.next_due(now)?;
        self.planned.is_none_or(|(_, planned)| planned > due).then_some(due)
    }

    /// A tick is planned for then. Returns the one that it replaces.
    pub fn plan(&mut self, tick: SpawnHandle, due: Moment) -> Option<SpawnHandle> {
        self.planned.replace((tick, due)).map(|(before, _)| before)
    }

    /// The planned tick has come.
    pub fn tick(&mut self, now: Moment) -> Outcome {
        self.planned = None;
        self.live.tick(now)
    }

    /// A read of the stored map notes begins. An answer to the earlier one, which is returned, may come later.
    pub fn begin_notes_read(&mut self, read: SpawnHandle) -> Option<SpawnHandle> {
        self.notes_read.replace(read)
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
