//! The live state of a game connection, and the way of its changes to all who watch.

use actix::{Recipient, SpawnHandle};

use crate::{
    catalogue::SharedCatalogue,
    domain::{
        chat::StoredLine,
        ids::ServerId,
        time::{Moment, Timestamp},
        world_event::WorldEvent,
    },
    relay::{
        state::live_state::LiveState,
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
    pub planned: Option<(SpawnHandle, Moment)>,
    /// The latest read of the stored map notes, which the next one ends.
    pub notes_read: Option<SpawnHandle>,
}

impl LiveFeed {
    /// Nothing known, and no subscriber.
    pub fn new(server: ServerId, epoch: u64, catalogue: SharedCatalogue, now: Timestamp) -> Self {
        let (live, publisher) = (LiveState::new(now), Publisher::new(server.clone(), epoch, catalogue));
        Self { server, live, publisher, planned: None, notes_read: None }
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
}
