//! The way from a game connection to all watchers: position, snapshot, subscribers. Each publication is encoded once,
//! for all.

use std::sync::Arc;

use actix::Recipient;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::{
    catalogue::SharedCatalogue,
    domain::{
        change::{Change, JsonPatch},
        ids::{ServerId, UserId},
        incident::Raid,
        sections::Sections,
        server_state::ServerState,
        time::Moment,
    },
    relay::wire::{
        frame::SharedFrame,
        protocol::{self, ServerMessage},
        publication::{AllowedUsers, Announcement, Lane, Position, Publication},
        receipt::DeliveryCount,
        steps::{Step, Steps},
    },
};

/// See the module.
pub struct Publisher {
    server: ServerId,
    catalogue: SharedCatalogue,
    position: Position,
    /// The snapshot of the current position, once a subscriber needed it.
    snapshot: Option<SharedFrame>,
    /// The last steps while there are subscribers, for a thread that has not got them.
    steps: Steps,
    subscribers: Vec<Subscriber>,
    /// Users who may watch, once they have changed since the start.
    allowed: Option<AllowedUsers>,
}

struct Subscriber {
    recipient: Recipient<Publication>,
    /// Its mailbox was full: it gets no steps until it has asked for a snapshot.
    behind: bool,
}

impl Publisher {
    /// A publisher without subscribers. Positions of another start of the same server have another epoch.
    pub fn new(server: ServerId, epoch: u64, catalogue: SharedCatalogue) -> Self {
        let (position, steps) = (Position { epoch, seq: 0 }, Steps::default());
        Self { server, catalogue, position, snapshot: None, steps, subscribers: Vec::new(), allowed: None }
    }

    /// Adds a subscriber. A snapshot comes when it is asked for.
    pub fn subscribe(&mut self, subscriber: Recipient<Publication>) {
        if let Some(allowed) = &self.allowed {
            subscriber.do_send(Publication::SetWatchers(allowed.clone()));
        }
        self.subscribers.push(Subscriber { recipient: subscriber, behind: false });
    }

    /// Removes a subscriber.
    pub fn unsubscribe(&mut self, subscriber: &Recipient<Publication>) {
        self.subscribers.retain(|known| known.recipient != *subscriber);
        if self.subscribers.is_empty() {
            self.steps.clear();
        }
    }

    /// Where the state is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// True if there are subscribers.
    pub fn has_subscribers(&self) -> bool {
        !self.subscribers.is_empty()
    }

    /// Passes on who may watch, unless something newer was passed on.
    pub fn set_watchers(&mut self, allowed: AllowedUsers) {
        if self.allowed.as_ref().is_some_and(|known| known.version > allowed.version) {
            return;
        }
        self.publish(&Publication::SetWatchers(allowed.clone()));
        self.allowed = Some(allowed);
    }

    /// Takes one step, encoded once. No change, no step.
    pub fn advance(&mut self, changes: Vec<Change>, now: Moment) {
        if changes.is_empty() {
            return;
        }
        let base = self.position.seq;
        self.position.seq += 1;
        self.snapshot = None;
        if self.subscribers.is_empty() {
            return self.steps.skip(self.position.seq, &changes);
        }
        let Position { epoch, seq } = self.position;
        let catalogue = &self.catalogue.current();
        let frame = protocol::patch(&self.server, epoch, base, seq, JsonPatch { changes: &changes, catalogue });
        let step = Step::new(base, changes, frame, catalogue, now);
        self.steps.push(step.clone());
        for subscriber in self.subscribers.iter_mut().filter(|subscriber| !subscriber.behind) {
            // One that is behind is not waited for: it gets one notice, and asks for a snapshot when it comes to it.
            if subscriber.recipient.try_send(Publication::Advance { epoch, step: step.clone() }).is_err() {
                subscriber.behind = true;
                subscriber.recipient.do_send(Publication::Skipped);
            }
        }
    }

    /// Sends a subscriber the snapshot of now; `state` is encoded at most once for a position. Resolves to the
    /// position once a socket has taken the snapshot, to `None` if none will.
    pub fn send_snapshot(
        &mut self,
        subscriber: &Recipient<Publication>,
        state: &ServerState,
        now: Moment,
    ) -> impl Future<Output = Option<Position>> + use<> {
        let Position { epoch, seq } = self.position;
        let encode = || protocol::snapshot(&self.server, epoch, seq, &state.document(&self.catalogue.current()));
        let frame = self.snapshot.get_or_insert_with(encode).clone();
        self.steps.set_snapshot_size(frame.plain().len());
        if let Some(known) = self.subscribers.iter_mut().find(|known| known.recipient == *subscriber) {
            known.behind = false;
        }
        let position = self.position;
        self.steps.forget_old(now);
        let steps = self.steps.clone();
        let taken = subscriber.send(Publication::Snapshot { position, frame, steps });
        async move { taken.await.is_ok_and(|sockets| sockets > 0).then_some(position) }
    }

    /// Delivers an event or a line of chat. Their senders bound them; none is dropped here.
    pub fn deliver(&self, lane: Lane, message: &ServerMessage<'_>) {
        if self.has_subscribers() {
            let about = match message {
                ServerMessage::Event { event, .. } => event.event.kind.sections(),
                _ => Sections::ALL,
            };
            self.publish(&Publication::Deliver { lane, about, frame: message.frame() });
        }
    }

    /// Delivers a raid alarm to all but these users, and with `again` to those who have not got it; `received_at` is when
    /// it was received, if it was just now. Returns the sockets that took it so far, and a future of their number once all
    /// have or are gone: what still waits in this process would be lost with it.
    pub fn deliver_alarm(
        &self,
        raid: &Raid,
        again: bool,
        acknowledged: &[UserId],
        received_at: Option<Instant>,
    ) -> (Arc<DeliveryCount>, impl Future<Output = usize> + use<>) {
        let frame = ServerMessage::Raid { server_id: &self.server, raid }.frame();
        let taken = DeliveryCount::since(received_at);
        let about =
            Announcement { incident: raid.incident.as_str().into(), count: raid.count, update: raid.update, again };
        let (acknowledged, counted) = (acknowledged.into(), taken.clone());
        let alarm = Publication::DeliverAlarm { frame, about, number: None, acknowledged, taken: counted };
        let send = |known: &Subscriber| known.recipient.send(alarm.clone());
        let answers = join_all(self.subscribers.iter().map(send).collect::<Vec<_>>());
        // A subscription that has just ended has no sockets left.
        (taken, async move { answers.await.into_iter().filter_map(Result::ok).sum() })
    }

    /// Notifies every subscriber that this connection has failed.
    pub fn fail(&self) {
        self.publish(&Publication::ConnectionFailed);
    }

    fn publish(&self, publication: &Publication) {
        for subscriber in &self.subscribers {
            subscriber.recipient.do_send(publication.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use actix::prelude::*;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::domain::incident::DevicePlace;
    use crate::domain::time::Timestamp;

    /// Notes what it gets; reports two sockets for every alarm.
    struct Probe {
        mailbox: usize,
        got: Rc<RefCell<Vec<Publication>>>,
    }

    impl Actor for Probe {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            ctx.set_mailbox_capacity(self.mailbox);
        }
    }

    impl Handler<Publication> for Probe {
        type Result = usize;

        fn handle(&mut self, publication: Publication, _: &mut Self::Context) -> usize {
            let sockets = if matches!(publication, Publication::DeliverAlarm { .. }) { 2 } else { 0 };
            self.got.borrow_mut().push(publication);
            sockets
        }
    }

    /// A subscriber, and what it got.
    fn subscriber(mailbox: usize) -> (Recipient<Publication>, Rc<RefCell<Vec<Publication>>>) {
        let got = Rc::new(RefCell::new(Vec::new()));
        (Probe { mailbox, got: got.clone() }.start().recipient(), got)
    }

    fn publisher() -> (Publisher, ServerState) {
        (Publisher::new("one".into(), 7, SharedCatalogue::default()), ServerState::new(Timestamp::UNIX_EPOCH))
    }

    fn now() -> Moment {
        Timestamp::UNIX_EPOCH.into()
    }

    fn leader(state: &mut ServerState, id: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        state.edit_team(&mut changes, |team| team.leader_id = Some(id.to_string()));
        changes
    }

    fn allowed(version: u64) -> AllowedUsers {
        AllowedUsers { version, ..AllowedUsers::default() }
    }

    /// Everything sent before is handled once this one is.
    async fn settle(subscriber: &Recipient<Publication>) {
        subscriber.send(Publication::Skipped).await.unwrap();
    }

    #[actix::test]
    async fn a_step_is_encoded_once_and_a_snapshot_once_for_its_position() {
        let (mut publisher, mut state) = publisher();
        let subscribers = [subscriber(16), subscriber(16)];
        subscribers.iter().for_each(|(recipient, _)| publisher.subscribe(recipient.clone()));
        publisher.advance(Vec::new(), now());
        publisher.advance(leader(&mut state, 1), now());
        for (recipient, _) in &subscribers {
            let _ = publisher.send_snapshot(recipient, &state, now()).await;
            settle(recipient).await;
        }
        let mut frames = Vec::new();
        for (_, got) in &subscribers {
            let got = got.borrow();
            let [Publication::Advance { epoch: 7, step }, Publication::Snapshot { position, frame, .. }, _] = &got[..]
            else {
                panic!("not a step and a snapshot: {got:?}")
            };
            assert_eq!((step.base, step.seq, *position), (0, 1, Position { epoch: 7, seq: 1 }));
            frames.push((step.frame.plain().as_ptr(), frame.plain().as_ptr()));
        }
        assert_eq!(frames[0], frames[1], "the very same bytes");
    }

    #[actix::test]
    async fn a_subscriber_with_a_full_mailbox_gets_one_notice_and_no_steps_until_it_asks() {
        let (mut publisher, mut state) = publisher();
        let (recipient, got) = subscriber(1);
        settle(&recipient).await; // its capacity is set
        got.borrow_mut().clear();
        publisher.subscribe(recipient.clone());
        (1..20).for_each(|id| publisher.advance(leader(&mut state, id), now()));
        settle(&recipient).await;
        let steps = got.borrow().iter().filter(|got| matches!(got, Publication::Advance { .. })).count();
        let notices = got.borrow().iter().filter(|got| matches!(got, Publication::Skipped)).count();
        assert!(steps < 19, "{steps} steps");
        assert_eq!(notices, 1 + 1, "one notice, and this test's own");
        let _ = publisher.send_snapshot(&recipient, &state, now()).await;
        settle(&recipient).await;
        publisher.advance(leader(&mut state, 99), now());
        settle(&recipient).await;
        assert!(matches!(&got.borrow()[..], [.., Publication::Advance { .. }, Publication::Skipped]));
    }

    #[actix::test]
    async fn an_older_answer_about_who_may_watch_is_not_passed_on() {
        let (mut publisher, _) = publisher();
        let (first, got_first) = subscriber(16);
        publisher.subscribe(first.clone());
        publisher.set_watchers(allowed(5));
        publisher.set_watchers(allowed(4));
        let (second, got_second) = subscriber(16);
        publisher.subscribe(second.clone());
        for (recipient, got) in [(&first, got_first), (&second, got_second)] {
            settle(recipient).await;
            let got = got.borrow();
            assert!(matches!(&got[..], [Publication::SetWatchers(known), _] if known.version == 5), "{got:?}");
        }
    }

    fn raid() -> Raid {
        Raid {
            incident: "i".into(),
            alarm_id: "7".into(),
            alarm_name: "Front door".into(),
            place: DevicePlace::default(),
            ts: Timestamp::UNIX_EPOCH,
            count: 1,
            update: false,
            late: false,
            drill: false,
        }
    }

    #[actix::test]
    async fn an_alarm_counts_the_sockets_of_all_subscribers() {
        let (mut publisher, _) = publisher();
        assert_eq!(publisher.deliver_alarm(&raid(), false, &[], None).1.await, 0, "without watchers");
        let subscribers = [subscriber(16), subscriber(16)];
        subscribers.iter().for_each(|(recipient, _)| publisher.subscribe(recipient.clone()));
        assert_eq!(publisher.deliver_alarm(&raid(), false, &[], None).1.await, 4);
        publisher.unsubscribe(&subscribers[0].0);
        assert_eq!(publisher.deliver_alarm(&raid(), false, &[], None).1.await, 2);
    }

    #[actix::test]
    async fn an_alarm_goes_into_a_full_mailbox_the_first_time_that_its_answer_is_polled() {
        let (mut publisher, mut state) = publisher();
        let (recipient, got) = subscriber(1);
        settle(&recipient).await; // its capacity is set
        publisher.subscribe(recipient.clone());
        (1..20).for_each(|id| publisher.advance(leader(&mut state, id), now()));
        let mut sockets = Box::pin(publisher.deliver_alarm(&raid(), false, &[], None).1);
        assert_eq!((&mut sockets).now_or_never(), None);
        settle(&recipient).await;
        let is_alarm = |publication: &Publication| matches!(publication, Publication::DeliverAlarm { .. });
        assert!(got.borrow().iter().any(is_alarm), "nothing wakes the one that sends it");
        assert_eq!(sockets.await, 2);
    }
}
