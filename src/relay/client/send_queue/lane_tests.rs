//! Order and times of the lanes, whatever waits in them.

use std::collections::HashMap;

use bytes::Bytes;
use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use crate::{
    clock::Clock,
    domain::{
        change::{Change, JsonPatch, Key, Section},
        items::Catalogue,
        time::Timestamp,
    },
    relay::wire::{
        frame::SharedFrame,
        protocol,
        steps::{Step, Steps},
    },
};

pub(super) fn feed(name: &str) -> Rc<Feed> {
    Feed::new(name.into(), Clock::adjustable(Timestamp::UNIX_EPOCH), Default::default())
}

fn patch_of(change: &Change) -> JsonPatch<'_> {
    JsonPatch { changes: std::slice::from_ref(change), catalogue: Catalogue::embedded() }
}

fn text(frame: &str) -> QueuedFrame {
    SharedFrame::from(Bytes::copy_from_slice(frame.as_bytes())).into()
}

pub(super) fn line(feed: &Rc<Feed>, frame: &str) -> QueuedFrame {
    QueuedFrame { feed: Some(feed.clone()), ..text(frame) }
}

/// Larger than any patch of these tests.
fn snapshot() -> SharedFrame {
    Bytes::from_static(&[b'-'; 1 << 14]).into()
}

/// All that goes out now.
pub(super) fn drain(queue: &mut SendQueue, now: Millis) -> Vec<String> {
    let next = || match queue.next(now) {
        Next::Send(QueuedFrame { frame, .. }) => Some(String::from_utf8_lossy(frame.plain()).into_owned()),
        Next::ChatDropped { feed, lines } => Some(format!("{lines} of {:?}", feed.server.as_str())),
        Next::At(_) | Next::Idle => None,
    };
    std::iter::from_fn(next).collect()
}

/// A socket whose kernel takes everything at once, and what went out by it. Messages are numbered within their lane.
#[derive(Default)]
struct Traffic {
    queue: SendQueue,
    feeds: Vec<Rc<Feed>>,
    now: Millis,
    pushed: HashMap<usize, u32>,
    /// By lane: number and time.
    sent: HashMap<usize, Vec<(u32, Millis)>>,
    all: Vec<Millis>,
    reported: u32,
}

impl Traffic {
    /// Watches one server that takes steps, and hears the chat of two.
    fn new() -> Self {
        let mut traffic = Self { feeds: vec![feed("one"), feed("two")], ..Self::default() };
        traffic.feeds[0].log.borrow_mut().restart(Position { epoch: 7, seq: 0 }, snapshot(), Steps::default());
        traffic.queue.watch(&traffic.feeds[0], None, Sections::ALL);
        traffic.run();
        traffic
    }

    fn push(&mut self, lane: Lane, many: usize) {
        for _ in 0..many {
            let pushed = self.pushed.entry(lane as usize).or_default();
            let queued = line(&self.feeds[*pushed as usize % 2], &format!("{} {pushed}", lane as usize));
            *pushed += 1;
            self.queue.push(lane, queued, self.now).expect("there is room");
        }
    }

    fn waiting(&self, lane: Lane) -> usize {
        self.queue.waiting.as_ref().map_or(0, |waiting| waiting.lanes[lane as usize].len())
    }

    /// The watched server takes a step; and its snapshot comes if it was wanted.
    fn step(&mut self) {
        self.step_in(Section::Team);
    }

    fn step_in(&mut self, section: Section) {
        let mut log = self.feeds[0].log.borrow_mut();
        let Position { epoch, seq } = log.position();
        let change = Change { section, key: Key::Whole, old: None, new: None };
        let frame = protocol::patch(&self.feeds[0].server, epoch, seq, seq + 1, patch_of(&change));
        let now = Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(self.now as i64);
        let step = Step::new(seq, vec![change], frame, Catalogue::embedded(), now.into());
        assert!(log.advance(epoch, step), "it follows");
        if self.feeds[0].take_snapshot_wanted() {
            log.restart(Position { epoch, seq: seq + 1 }, snapshot(), Steps::default());
        }
    }

    /// Sends what may go now, and says until when the rest waits.
    fn run(&mut self) -> Next {
        loop {
            let next = self.queue.next(self.now);
            let (lane, number) = match &next {
                Next::Send(QueuedFrame { frame, .. }) => {
                    let words = std::str::from_utf8(frame.plain()).ok().and_then(|text| text.split_once(' '));
                    let numbers = words.and_then(|(lane, number)| Some((lane.parse().ok()?, number.parse().ok()?)));
                    numbers.unwrap_or((Lane::State as usize, 0))
                }
                Next::ChatDropped { lines, .. } => {
                    self.reported += lines;
                    (Lane::Event as usize, u32::MAX)
                }
                Next::At(_) | Next::Idle => return next,
            };
            self.all.push(self.now);
            if number != u32::MAX {
                self.sent.entry(lane).or_default().push((number, self.now));
            }
            assert!(self.recent(self.all.iter().copied()) <= 60, "more than 60 frames in ten seconds");
            let chat = self.sent.get(&(Lane::Chat as usize)).into_iter().flatten();
            assert!(self.recent(chat.map(|(_, at)| *at)) <= 20, "more than 20 lines in ten seconds");
        }
    }

    fn recent(&self, times: impl DoubleEndedIterator<Item = Millis>) -> usize {
        times.rev().take_while(|at| self.now - at < 10_000).count()
    }

    fn numbers(&self, lane: Lane) -> Vec<u32> {
        self.sent.get(&(lane as usize)).into_iter().flatten().map(|(number, _)| *number).collect()
    }

    /// Times at which frames of this lane went out from then on.
    fn times(&self, lane: Lane, from: Millis) -> Vec<Millis> {
        self.sent.get(&(lane as usize)).into_iter().flatten().map(|(_, at)| *at).filter(|at| *at >= from).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_but_chat_is_dropped_each_lane_keeps_its_order_and_the_reported_number_is_exact(
        traffic in proptest::collection::vec(
            (
                prop_oneof![3 => 0..50_u64, 3 => 0..1_000_u64, 1 => 0..12_000_u64],
                proptest::sample::select(&QUEUED[..]),
                prop_oneof![3 => 0..4_usize, 1 => 0..90_usize],
                any::<bool>(),
            ),
            1..150,
        )
    ) {
        let mut socket = Traffic::new();
        for (pause, lane, many, reads) in traffic {
            socket.now += pause;
            let room = limits::WAITING_MESSAGES
                - socket.queue.waiting.as_ref().map_or(0, |waiting| waiting.undroppable());
            socket.push(lane, many.min(room));
            socket.step();
            if reads {
                socket.run();
            }
        }
        while let Next::At(at) = socket.run() {
            prop_assert!(at > socket.now);
            socket.now = at;
        }
        for lane in QUEUED {
            let (pushed, sent) = (socket.pushed.get(&(lane as usize)).copied().unwrap_or(0), socket.numbers(lane));
            if lane == Lane::Chat {
                prop_assert!(sent.is_sorted_by(|one, next| one < next), "chat keeps its order");
                prop_assert_eq!(sent.len() as u32 + socket.reported, pushed);
                // The lines said last are never the ones that are dropped.
                let last = sent.iter().rev().zip((0..pushed).rev()).take(limits::CHAT_LINES);
                prop_assert!(last.clone().all(|(sent, said)| *sent == said), "{sent:?} of {pushed}");
            } else {
                prop_assert_eq!(sent, (0..pushed).collect::<Vec<_>>());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]

    #[test]
    fn whatever_lanes_never_end_a_patch_a_pong_an_event_and_a_line_leave_in_every_window(
        raids in 0..600_usize,
        endless in proptest::sample::subsequence(&QUEUED[1..], 0..=3),
        every in 20..400_u64,
    ) {
        let mut socket = Traffic::new();
        socket.push(Lane::Raid, raids);
        let calm = (raids as Millis / 28 + 2) * SPAN;
        let end = calm + 5 * SPAN;
        while socket.now < end {
            for lane in &endless {
                socket.push(*lane, 100_usize.saturating_sub(socket.waiting(*lane)));
            }
            socket.step();
            socket.run();
            socket.now += every;
        }
        prop_assert_eq!(socket.numbers(Lane::Raid).len(), raids);
        for window in 0..5 {
            let start = calm + window * SPAN;
            let held = |lane| socket.times(lane, start).iter().take_while(|at| **at < start + SPAN + every).count();
            prop_assert!(held(Lane::State) >= 12, "{} patches", held(Lane::State));
            for (lane, least) in [(Lane::Event, 3), (Lane::Chat, 2), (Lane::Reply, 7)] {
                prop_assert!(!endless.contains(&lane) || held(lane) >= least, "{} of {lane:?}", held(lane));
            }
        }
        // The map moves on evenly.
        let patches = socket.times(Lane::State, calm);
        let still = patches.windows(2).map(|two| two[1] - two[0]).max();
        prop_assert!(still.is_some_and(|still| still <= 1_500 + every), "still for {still:?} ms");
    }
}

#[test]
fn a_raid_goes_out_although_everything_else_has_used_its_share() {
    let mut socket = Traffic::new();
    for lane in [Lane::Event, Lane::Chat, Lane::Reply] {
        socket.push(lane, 100);
    }
    socket.run();
    let before = socket.all.len();
    assert!(before <= 57);
    socket.push(Lane::Raid, 3);
    socket.run();
    assert_eq!(socket.numbers(Lane::Raid), [0, 1, 2]);
}

/// An alarm every 20 ms, also when others have filled the window as far as they may. A client knows of one when it has
/// its message or the state that shows it.
#[test]
fn many_raids_at_once_are_known_soon_by_the_patches_ahead_of_their_messages_and_each_of_these_follows() {
    const ALARMS: usize = 500;
    const EVERY: Millis = 20;
    for others in [0, 100] {
        let mut socket = Traffic::new();
        for lane in &QUEUED[1..] {
            socket.push(*lane, others);
        }
        socket.run();
        let (mut fired, mut known_after) = (0, Vec::new());
        while known_after.len() < ALARMS {
            if socket.now.is_multiple_of(EVERY) && fired < ALARMS {
                let feed = socket.feeds[0].clone();
                socket.queue.push(Lane::Raid, line(&feed, &format!("0 {fired}")), socket.now).expect("there is room");
                fired += 1;
                socket.run();
                socket.step_in(Section::Raids);
            }
            socket.run();
            let shown = socket.queue.views[0].position.position().map_or(0, |position| position.seq as usize);
            for alarm in known_after.len()..shown.max(socket.numbers(Lane::Raid).len()) {
                known_after.push(socket.now - alarm as Millis * EVERY);
            }
            socket.now += 10;
        }
        known_after.sort_unstable();
        let p99 = known_after[ALARMS * 99 / 100];
        let patches = socket.times(Lane::State, 0);
        assert!(p99 <= 1_500, "p99 {p99} ms, with {others} of the others; patches at {patches:?}");
        while let Next::At(at) = socket.run() {
            socket.now = at;
        }
        assert_eq!(socket.numbers(Lane::Raid), (0..ALARMS as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_patch_ahead_of_raids_is_for_those_alone_who_want_raids_and_counts_as_their_receipt() {
    let patch_of = |sections: &str| {
        let feed = feed("one");
        feed.log.borrow_mut().restart(Position { epoch: 64, seq: 0 }, snapshot(), Steps::default());
        let mut queue = SendQueue::default();
        queue.watch(&feed, Some(feed.log.borrow().head(Sections::ALL)), Sections::from(sections.to_owned()));
        queue.views[0].position = ClientPosition::Sent(feed.log.borrow().head(queue.views[0].sections));
        for _ in 0..100 {
            queue.push(Lane::Raid, line(&feed, "raid"), 0).expect("there is room");
        }
        assert_eq!(drain(&mut queue, 0), ["raid"; 28]);
        for section in [Section::Team, Section::Raids] {
            let mut log = feed.log.borrow_mut();
            let Position { epoch, seq } = log.position();
            let change = Change { section, key: Key::Whole, old: None, new: None };
            let frame = protocol::patch(&feed.server, epoch, seq, seq + 1, patch_of(&change));
            assert!(log.advance(
                epoch,
                Step::new(seq, vec![change], frame, Catalogue::embedded(), Timestamp::UNIX_EPOCH.into())
            ));
        }
        match queue.next(1) {
            Next::Send(queued) => Some(queued.receipt.is_some()),
            Next::At(_) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(patch_of("server team mapMarkers devices mapNotes raids timers"), Some(true));
    assert_eq!(patch_of("team server"), None);
}

#[test]
fn the_thousand_and_first_waiting_message_is_one_too_many_and_chat_does_not_count() {
    let mut queue = SendQueue::default();
    let one = feed("one");
    for _ in 0..limits::WAITING_MESSAGES {
        queue.push(Lane::Raid, text("raid"), 0).expect("there is room");
    }
    for _ in 0..5_000 {
        queue.push(Lane::Chat, line(&one, "chat"), 0).expect("chat never closes a socket");
    }
    assert_eq!(queue.push(Lane::Reply, text("pong"), 0), Err(Overflow));
    let waiting = queue.waiting.as_ref().expect("some wait");
    assert!(waiting.lanes[Lane::Chat as usize].capacity() < 100, "what waits of chat is little");
}

#[test]
fn dropped_lines_are_reported_once_for_each_server_before_later_lines() {
    let (one, two) = (feed("one"), feed("two"));
    let mut queue = SendQueue::default();
    for n in 0..30 {
        queue.push(Lane::Chat, line(&one, &format!("one {n}")), 0).expect("chat is never too much");
    }
    assert_eq!(drain(&mut queue, 0), (10..30).map(|n| format!("one {n}")).collect::<Vec<_>>());
    for n in 0..21 {
        queue.push(Lane::Chat, line(&two, &format!("two {n}")), 5).expect("chat is never too much");
    }
    assert!(matches!(queue.next(5), Next::At(at) if at == SPAN), "when the first of them is sent");
    assert_eq!(drain(&mut queue, SPAN), [r#"10 of "one""#]);
    let later = drain(&mut queue, SPAN + 5);
    assert_eq!(later[0], r#"1 of "two""#);
    assert_eq!(later[1..], (1..21).map(|n| format!("two {n}")).collect::<Vec<_>>());
}

#[test]
fn what_waits_from_a_server_is_not_sent_after_its_watch_has_ended() {
    let (one, other) = (feed("one"), feed("other"));
    let mut queue = SendQueue::default();
    for lane in [Lane::Raid, Lane::Event] {
        queue.push(lane, line(&one, "one"), 0).expect("there is room");
        queue.push(lane, line(&other, "other"), 0).expect("there is room");
    }
    for _ in 0..30 {
        queue.push(Lane::Chat, line(&one, "one"), 0).expect("chat is never too much");
    }
    queue.push(Lane::Reply, text("pong"), 0).expect("there is room");
    queue.unwatch(&one.server, 0);
    assert_eq!(drain(&mut queue, 0), ["other", "other", "pong"]);
    assert!(matches!(queue.next(SPAN), Next::Idle), "nor is it reported as dropped");
}

#[test]
fn what_waits_and_what_was_sent_is_counted_however_it_ends() {
    use crate::relay::wire::send_counts::ThreadCounts;
    let all = ThreadCounts::default();
    let counts = all.of_new_thread();
    let waiting = || all.totals().waiting.map(|(_, count)| count);
    let (one, other) = (feed("one"), feed("other"));
    for feed in [&one, &other] {
        feed.log.borrow_mut().restart(Position { epoch: 1, seq: 0 }, snapshot(), Steps::default());
    }
    let mut queue = SendQueue::new(0, counts.clone());
    for feed in [&one, &other, &one] {
        queue.watch(feed, None, Sections::ALL);
    }
    for _ in 0..limits::CHAT_LINES + 5 {
        queue.push(Lane::Chat, line(&one, "one"), 0).expect("chat is never too much");
    }
    queue.push(Lane::Raid, line(&other, "other"), 0).expect("there is room");
    queue.push(Lane::Reply, text("pong"), 0).expect("there is room");
    assert_eq!((waiting(), all.totals().subscriptions), ([1, 0, limits::CHAT_LINES as u64, 1], 2));
    queue.unwatch(&one.server, 0);
    assert_eq!((waiting(), all.totals().subscriptions), ([1, 0, 0, 1], 1));
    drain(&mut queue, 0);
    let step = |base| {
        let frame = SharedFrame::from(Bytes::from_static(b"step"));
        assert!(
            other
                .log
                .borrow_mut()
                .advance(1, Step::new(base, Vec::new(), frame, Catalogue::embedded(), Timestamp::UNIX_EPOCH.into()))
        );
    };
    step(0);
    drain(&mut queue, 0);
    (1..4).for_each(step);
    drain(&mut queue, 1);
    let totals = all.totals();
    let sent = [("raid", 1), ("event", 0), ("chat", 0), ("reply", 1), ("snapshot", 1), ("patch", 2)];
    assert_eq!((waiting(), totals.frames, totals.merged_patches), ([0; 4], sent, 1));
    // A socket that goes leaves nothing behind.
    queue.push(Lane::Event, line(&other, "late"), 1).expect("there is room");
    drop(queue);
    assert_eq!((waiting(), all.totals().subscriptions), ([0; 4], 0));
}

#[test]
fn a_feed_lists_a_socket_once_however_often_it_is_served_and_again_for_the_next_step() {
    let (feed, mut queue) = (feed("one"), SendQueue::new(3, Arc::default()));
    queue.watch(&feed, None, Sections::ALL);
    (0..3).for_each(|now| drop(queue.next(now)));
    assert_eq!(feed.awaiting_snapshot.take(), [3]);
    assert!(matches!(queue.next(3), Next::Idle));
    assert_eq!(feed.awaiting_snapshot.take(), [3], "it still waits");
    feed.log.borrow_mut().restart(
        Position { epoch: 7, seq: 0 },
        Bytes::from_static(b"snapshot").into(),
        Steps::default(),
    );
    assert!(matches!(queue.next(4), Next::Send(_)));
    (5..9).for_each(|now| drop(queue.next(now)));
    assert_eq!((feed.idle.take(), feed.awaiting_snapshot.take()), (vec![3], vec![]));
    queue.next(9);
    queue.unwatch(&feed.server, 9);
    assert!(feed.idle.take().is_empty());
}
