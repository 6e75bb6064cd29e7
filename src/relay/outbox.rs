//! What waits to be written to one WebSocket, and when it may be. Pure: told the time, it answers with frames.
//!
//! The limit is a true sliding window: no 10 seconds ever hold more than 60 data frames. Over budget nothing is lost:
//! raids go first, then events and chat, then replies, and patches last, merged at the moment they are sent. Each
//! lane has a share of the window that the lanes below it cannot use up.

use std::{collections::VecDeque, rc::Rc};

use bytes::Bytes;

use crate::{
    domain::{ids::ServerId, limits, rate::Window},
    relay::feed::{CatchUp, Feed, Position},
};

/// Milliseconds on a monotonic clock.
pub type Millis = u64;

/// How much of the window may be full when a frame of a lane goes out.
const RAID_SHARE: usize = limits::OUTBOUND_FRAMES;
const LIVE_SHARE: usize = RAID_SHARE - 3;
const REPLY_SHARE: usize = LIVE_SHARE - 5;
const PATCH_SHARE: usize = REPLY_SHARE - 7;

/// Patches of one connection come in a short burst, then evenly, so that no client that is over budget has to look at
/// a still map until its window slides. Burst and pace together stay within `PATCH_SHARE`.
const PATCH_PACE: Millis = 250;
const PATCH_BURST: Millis = 4 * PATCH_PACE;

/// Which queue a message that is not state stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Raid,
    /// Events and chat.
    Live,
    /// Pong, ack, error.
    Reply,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Next {
    Frame(Bytes),
    /// Something waits for its turn until then.
    At(Millis),
    /// Nothing waits, or only for a snapshot on its way.
    Idle,
}

/// More messages wait that may not be dropped than the limit allows: the client is too slow.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

/// One watched server.
struct View {
    feed: Rc<Feed>,
    /// What the client has; none until its first snapshot.
    position: Option<Position>,
}

/// See the module.
pub struct Outbox {
    window: Window,
    lanes: [VecDeque<Bytes>; 3],
    views: Vec<View>,
    /// The view whose turn is next.
    turn: usize,
    /// When the last patch would have been due had all come evenly.
    paced: Millis,
    /// When snapshots were sent; outlives unsubscribing. Only those of the last 5 s are kept.
    snapshots: Vec<(ServerId, Millis)>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            window: Window::new(limits::OUTBOUND_FRAMES, limits::OUTBOUND_SPAN),
            lanes: Default::default(),
            views: Vec::new(),
            turn: 0,
            paced: 0,
            snapshots: Vec::new(),
        }
    }
}

impl Outbox {
    /// Puts a message into its lane. None is ever dropped; too many waiting end the connection.
    pub fn push(&mut self, lane: Lane, frame: Bytes) -> Result<(), Overflow> {
        if self.lanes.iter().map(VecDeque::len).sum::<usize>() >= limits::WAITING_MESSAGES {
            return Err(Overflow);
        }
        self.lanes[lane as usize].push_back(frame);
        Ok(())
    }

    /// Starts watching, or asks for a fresh snapshot of what is watched already.
    pub fn watch(&mut self, feed: &Rc<Feed>) {
        match self.views.iter_mut().find(|view| view.feed.server == feed.server) {
            Some(view) => *view = View { feed: feed.clone(), position: None },
            None => self.views.push(View { feed: feed.clone(), position: None }),
        }
    }

    /// Stops watching; returns what was watched.
    pub fn unwatch(&mut self, server: &ServerId) -> Option<Rc<Feed>> {
        let index = self.views.iter().position(|view| view.feed.server == *server)?;
        Some(self.views.swap_remove(index).feed)
    }

    /// Stops watching everything.
    pub fn unwatch_all(&mut self) -> Vec<Rc<Feed>> {
        self.views.drain(..).map(|view| view.feed).collect()
    }

    /// Whether this server is watched.
    pub fn watches(&self, server: &ServerId) -> bool {
        self.views.iter().any(|view| view.feed.server == *server)
    }

    /// How many servers are watched.
    pub fn watching(&self) -> usize {
        self.views.len()
    }

    /// The next frame, which the caller then writes; or when to ask again.
    pub fn next(&mut self, now: Millis) -> Next {
        for (lane, share) in [(Lane::Raid, RAID_SHARE), (Lane::Live, LIVE_SHARE), (Lane::Reply, REPLY_SHARE)] {
            if self.lanes[lane as usize].is_empty() {
                continue;
            }
            // A lane that must wait holds back those below it: they could only make it wait longer.
            if let Some(at) = self.window.available_at(now, share) {
                return Next::At(at);
            }
            let frame = self.lanes[lane as usize].pop_front().expect("it is not empty");
            self.window.record(now);
            return Next::Frame(frame);
        }
        self.next_view(now)
    }

    /// The next snapshot or patch, the views taking turns.
    fn next_view(&mut self, now: Millis) -> Next {
        let mut wait: Option<Millis> = None;
        for offset in 0..self.views.len() {
            let index = (self.turn + offset) % self.views.len();
            let View { feed, position } = &self.views[index];
            let mut stream = feed.stream.borrow_mut();
            let catch_up = position.map_or(CatchUp::Snapshot, |from| stream.since(from));
            let catch_up = match catch_up {
                // If the smaller snapshot may not come yet: better a large patch than a map that stands still.
                CatchUp::Patch { large: true, .. } if self.snapshot_at(&feed.server, now).is_none() => {
                    CatchUp::Snapshot
                }
                other => other,
            };
            let (frame, is_snapshot) = match catch_up {
                CatchUp::Nothing => continue,
                CatchUp::Patch { frame, .. } => {
                    if let Some(at) = self.patch_at(now) {
                        return Next::At(wait.map_or(at, |earlier| earlier.min(at)));
                    }
                    (frame, false)
                }
                CatchUp::Snapshot => {
                    if let Some(at) = self.snapshot_at(&feed.server, now) {
                        wait = Some(wait.map_or(at, |earlier| earlier.min(at)));
                        continue;
                    }
                    if let Some(at) = self.window.available_at(now, PATCH_SHARE) {
                        return Next::At(wait.map_or(at, |earlier| earlier.min(at)));
                    }
                    match stream.snapshot() {
                        Some(frame) => (frame.clone(), true),
                        None => {
                            feed.want_snapshot();
                            continue;
                        }
                    }
                }
            };
            let reached = stream.position();
            drop(stream);
            if is_snapshot {
                let server = feed.server.clone();
                self.snapshots.retain(|(_, at)| at + limits::SNAPSHOT_SPAN_MS > now);
                self.snapshots.push((server, now));
            } else {
                self.paced = self.paced.max(now) + PATCH_PACE;
            }
            self.window.record(now);
            self.views[index].position = Some(reached);
            self.turn = index + 1;
            return Next::Frame(frame);
        }
        wait.map_or(Next::Idle, Next::At)
    }

    /// When a patch may go out; none = now.
    fn patch_at(&self, now: Millis) -> Option<Millis> {
        let paced = (self.paced + PATCH_PACE).checked_sub(PATCH_BURST).filter(|at| *at > now);
        self.window.available_at(now, PATCH_SHARE).max(paced)
    }

    /// When a snapshot of this server may go out; none = now.
    fn snapshot_at(&self, server: &ServerId, now: Millis) -> Option<Millis> {
        let last = self.snapshots.iter().rev().find(|(sent, _)| sent == server)?.1;
        Some(last + limits::SNAPSHOT_SPAN_MS).filter(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc};

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{
        domain::{
            server_state::{Change, Device, DeviceKind, Marker, MarkerKind, Reachable, Section, ServerState},
            time::Timestamp,
        },
        relay::{
            feed::{Position, Step},
            protocol,
        },
    };

    /// A game server's state with the feed of one thread, and what the state was at every `seq`.
    struct World {
        server: ServerId,
        state: ServerState,
        position: Position,
        feed: Rc<Feed>,
        history: HashMap<u64, Value>,
    }

    impl World {
        fn new(name: &str) -> Self {
            let server = ServerId::from(name);
            let position = Position { epoch: 7, seq: 0 };
            let state = ServerState::new(Timestamp::UNIX_EPOCH);
            let feed = Feed::new(server.clone());
            let mut world = Self { server, state, position, feed, history: HashMap::new() };
            world.remember();
            world
        }

        fn remember(&mut self) {
            let mut json = Vec::new();
            self.state.write_json(&mut json);
            self.history.insert(self.position.seq, serde_json::from_slice(&json).expect("JSON"));
        }

        /// One step; a lost one never reaches the thread.
        fn step(&mut self, changes: Vec<Change>, lost: bool) {
            if changes.is_empty() {
                return;
            }
            let base = self.position.seq;
            self.position.seq += 1;
            self.remember();
            let frame = protocol::patch(&self.server, self.position.epoch, base, self.position.seq, &changes);
            let step = Arc::new(Step { base, seq: self.position.seq, changes, frame });
            if !lost && !self.feed.stream.borrow_mut().advance(self.position.epoch, step) {
                self.feed.snapshot_wanted.set(true);
            }
        }

        fn edit(&mut self, edit: &Edit, lost: bool) {
            let mut changes = Vec::new();
            match edit {
                Edit::Marker(id, None) => {
                    self.state.map_markers.put(Section::MapMarkers, u64::from(*id), None, &mut changes);
                }
                Edit::Marker(id, Some((x, name))) => {
                    let marker = marker(f64::from(*x), *name);
                    self.state.map_markers.put(Section::MapMarkers, u64::from(*id), Some(marker), &mut changes);
                }
                Edit::AllMarkers(markers) => {
                    let markers = markers.iter().map(|(id, x)| (u64::from(*id), marker(f64::from(*x), false)));
                    self.state.map_markers.replace(Section::MapMarkers, markers, &mut changes);
                }
                Edit::Device(id, value) => {
                    let device = Device {
                        kind: DeviceKind::Switch,
                        name: "a/b~c".into(),
                        label: None,
                        value: *value,
                        reachable: Reachable::Ok,
                        storage: None,
                    };
                    let id = Arc::from(format!("dev~/{id}"));
                    self.state.devices.put(Section::Devices, id, Some(device), &mut changes);
                }
                Edit::Leader(id) => {
                    self.state.edit_team(&mut changes, |team| team.leader_id = Some(id.to_string()));
                }
            }
            self.step(changes, lost);
        }

        /// What the subscription does when somebody needs a snapshot.
        fn supply(&self) {
            if self.feed.snapshot_wanted.take() {
                let Position { epoch, seq } = self.position;
                let frame = protocol::snapshot(&self.server, epoch, seq, &self.state);
                self.feed.stream.borrow_mut().restart(self.position, frame);
            }
        }
    }

    fn marker(x: f64, named: bool) -> Marker {
        Marker {
            kind: MarkerKind::CargoShip,
            x,
            y: 0.0,
            grid: "A0".into(),
            rotation: None,
            steam_id: None,
            radius: None,
            color: None,
            name: named.then(|| "named".to_owned()),
            out_of_stock: None,
            sell_orders: Vec::new(),
        }
    }

    /// A client that applies what it gets with a JSON Patch library.
    #[derive(Default)]
    struct Client {
        outbox: Outbox,
        known: HashMap<String, (u64, Value)>,
        snapshots: HashMap<String, Millis>,
        sent: Vec<Millis>,
        raids: u32,
        others: u32,
    }

    impl Client {
        /// Takes up to so many frames, and checks every one.
        fn take(&mut self, worlds: &[World], most: usize, now: Millis) -> Next {
            for _ in 0..most {
                match self.outbox.next(now) {
                    Next::Frame(frame) => self.apply(worlds, &frame, now),
                    next => return next,
                }
            }
            Next::Idle
        }

        fn apply(&mut self, worlds: &[World], frame: &[u8], now: Millis) {
            self.sent.push(now);
            let recent = self.sent.iter().rev().take_while(|sent| now - **sent < 10_000).count();
            assert!(recent <= 60, "{recent} frames in ten seconds");
            let message: Value = serde_json::from_slice(payload(frame)).expect("JSON");
            let text = |field: &str| message[field].as_str().expect("text").to_owned();
            let number = |field: &str| message[field].as_u64().expect("a number");
            match message["type"].as_str().expect("a type") {
                "snapshot" => {
                    let before = self.snapshots.insert(text("serverId"), now);
                    assert!(before.is_none_or(|before| now - before >= 5_000), "snapshots come too soon");
                    self.known.insert(text("serverId"), (number("seq"), message["state"].clone()));
                }
                "patch" => {
                    let (seq, state) = self.known.get_mut(&text("serverId")).expect("a snapshot came first");
                    assert_eq!(*seq, number("base"), "base is the last seq sent");
                    let patch: json_patch::Patch = serde_json::from_value(message["patch"].clone()).expect("a patch");
                    json_patch::patch(state, &patch).expect("it applies");
                    *seq = number("seq");
                }
                "raid" => return self.raids += 1,
                _ => return self.others += 1,
            }
            let world = worlds.iter().find(|world| world.server.as_str() == text("serverId")).expect("a world");
            let (seq, state) = &self.known[&text("serverId")];
            assert_eq!(state, &world.history[seq], "the client holds the server's state at seq {seq}");
        }
    }

    /// The text of an unmasked frame.
    fn payload(frame: &[u8]) -> &[u8] {
        match frame[1] {
            127 => &frame[10..],
            126 => &frame[4..],
            _ => &frame[2..],
        }
    }

    #[derive(Clone, Debug)]
    enum Edit {
        Marker(u8, Option<(u8, bool)>),
        AllMarkers(Vec<(u8, u8)>),
        Device(u8, Option<bool>),
        Leader(u8),
    }

    #[derive(Clone, Debug)]
    enum Act {
        /// In which world, what, and whether the step is lost on its way to the thread.
        Edit(usize, Edit, bool),
        Wait(Millis),
        Watch(usize, usize),
        Unwatch(usize, usize),
        /// So many messages at once.
        Push(usize, Lane, usize),
        /// A client reads so many frames, as its socket has room.
        Take(usize, usize),
        Supply,
        Reconnect(usize),
    }

    fn edits() -> impl Strategy<Value = Edit> {
        prop_oneof![
            6 => (0..12u8, proptest::option::of((any::<u8>(), any::<bool>()))).prop_map(|(id, to)| Edit::Marker(id, to)),
            1 => proptest::collection::vec((0..12u8, any::<u8>()), 0..12).prop_map(Edit::AllMarkers),
            2 => (0..3u8, any::<Option<bool>>()).prop_map(|(id, value)| Edit::Device(id, value)),
            1 => (0..3u8).prop_map(Edit::Leader),
        ]
    }

    fn acts() -> impl Strategy<Value = Act> {
        let lane = prop_oneof![Just(Lane::Raid), Just(Lane::Live), Just(Lane::Reply)];
        prop_oneof![
            8 => (0..2usize, edits(), proptest::bool::weighted(0.05)).prop_map(|(w, e, lost)| Act::Edit(w, e, lost)),
            3 => prop_oneof![0..50u64, 0..1_000u64, 0..7_000u64].prop_map(Act::Wait),
            1 => (0..2usize, 0..2usize).prop_map(|(c, w)| Act::Watch(c, w)),
            1 => (0..2usize, 0..2usize).prop_map(|(c, w)| Act::Unwatch(c, w)),
            3 => (0..2usize, lane, prop_oneof![3 => 1..3usize, 1 => 1..80usize]).prop_map(|(c, lane, n)| Act::Push(c, lane, n)),
            6 => (0..2usize, 0..80usize).prop_map(|(c, most)| Act::Take(c, most)),
            4 => Just(Act::Supply),
            1 => (0..2usize).prop_map(Act::Reconnect),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn a_client_holds_the_servers_state_at_every_seq_within_60_frames_in_10_s(
            acts in proptest::collection::vec(acts(), 1..250)
        ) {
            let mut worlds = [World::new("one"), World::new("two")];
            let mut clients = [Client::default(), Client::default()];
            let mut now = 1_000;
            let mut told = [0_u32; 2];
            for client in &mut clients {
                client.outbox.watch(&worlds[0].feed);
            }
            for act in acts {
                match act {
                    Act::Edit(world, edit, lost) => worlds[world].edit(&edit, lost),
                    Act::Wait(pause) => now += pause,
                    Act::Watch(client, world) => clients[client].outbox.watch(&worlds[world].feed),
                    Act::Unwatch(client, world) => {
                        clients[client].outbox.unwatch(&worlds[world].server);
                        clients[client].known.remove(worlds[world].server.as_str());
                    }
                    Act::Push(client, lane, many) => {
                        let text: &[u8] = if lane == Lane::Raid { br#"{"type":"raid"}"# } else { br#"{"type":"chat"}"# };
                        let frame = [&[0x81, text.len() as u8], text].concat();
                        for _ in 0..many {
                            told[client] += u32::from(clients[client].outbox.push(lane, frame.clone().into()).is_ok());
                        }
                    }
                    Act::Take(client, most) => { clients[client].take(&worlds, most, now); }
                    Act::Supply => worlds.iter().for_each(World::supply),
                    Act::Reconnect(client) => {
                        clients[client] = Client::default();
                        told[client] = 0;
                        clients[client].outbox.watch(&worlds[0].feed);
                    }
                }
            }
            // Given time and room, everybody arrives at now, and nothing that was told is missing.
            for client in &mut clients {
                for _ in 0..4_000 {
                    worlds.iter().for_each(World::supply);
                    match client.take(&worlds, 1_000, now) {
                        Next::At(at) => now = at,
                        _ => now += 1,
                    }
                }
                for world in &worlds {
                    if client.outbox.watches(&world.server) {
                        let missed = world.feed.stream.borrow().position() != world.position;
                        prop_assert!(missed || client.known[world.server.as_str()].0 == world.position.seq);
                    }
                }
            }
            for (client, told) in clients.iter().zip(told) {
                prop_assert_eq!(client.raids + client.others, told);
            }
        }
    }

    fn text(frame: &str) -> Bytes {
        Bytes::copy_from_slice(frame.as_bytes())
    }

    #[test]
    fn a_raid_goes_out_although_everything_else_has_used_its_share() {
        let mut outbox = Outbox::default();
        for _ in 0..100 {
            outbox.push(Lane::Live, text("chat")).expect("there is room");
        }
        let sent = std::iter::from_fn(|| matches!(outbox.next(0), Next::Frame(_)).then_some(())).count();
        assert_eq!(sent, LIVE_SHARE);
        outbox.push(Lane::Raid, text("raid")).expect("there is room");
        assert_eq!(outbox.next(1), Next::Frame(text("raid")));
    }

    #[test]
    fn the_thousand_and_first_waiting_message_is_one_too_many() {
        let mut outbox = Outbox::default();
        for _ in 0..limits::WAITING_MESSAGES {
            outbox.push(Lane::Raid, text("raid")).expect("there is room");
        }
        assert_eq!(outbox.push(Lane::Raid, text("raid")), Err(Overflow));
    }

    #[test]
    fn many_steps_between_two_turns_become_one_patch_that_all_share() {
        let mut world = World::new("one");
        let mut clients = [Client::default(), Client::default()];
        for client in &mut clients {
            client.outbox.watch(&world.feed);
            client.take(std::slice::from_ref(&world), 1, 0);
        }
        world.supply();
        let mut take = |world: &World, now| {
            let frames = clients.each_mut().map(|client| match client.outbox.next(now) {
                Next::Frame(frame) => {
                    client.apply(std::slice::from_ref(world), &frame, now);
                    frame
                }
                next => panic!("a frame was due, not {next:?}"),
            });
            assert_eq!(frames[0].as_ptr(), frames[1].as_ptr(), "the very same bytes");
        };
        take(&world, 0);
        for x in 0..50 {
            world.edit(&Edit::Marker(1, Some((x, false))), false);
        }
        take(&world, 1);
        assert_eq!(clients[0].outbox.next(1), Next::Idle, "one patch was enough");
    }
}
