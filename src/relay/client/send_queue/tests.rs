use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{
    clock::Clock,
    domain::{
        change::{Change, JsonPatch, Section},
        device::{Device, DeviceKind, Reachable},
        items::Catalogue,
        map::{MapPlace, Marker, MarkerKind},
        server_state::ServerState,
        time::{Moment, Timestamp},
    },
    relay::wire::{
        frame::SharedFrame,
        protocol,
        publication::Position,
        steps::{Step, Steps},
    },
};

/// A game server's state with the feed of one thread, and what the state was at every `seq`.
struct World {
    server: ServerId,
    state: ServerState,
    position: Position,
    feed: Rc<Feed>,
    /// Steps of the publisher.
    steps: Steps,
    history: HashMap<u64, Value>,
    now: Moment,
}

impl World {
    fn new(name: &str) -> Self {
        let server = ServerId::from(name);
        let position = Position { epoch: 7, seq: 0 };
        let state = ServerState::new(Timestamp::UNIX_EPOCH);
        let feed = feed(name);
        let now = Timestamp::UNIX_EPOCH.into();
        let mut world = Self { server, state, position, feed, steps: Steps::default(), history: HashMap::new(), now };
        world.remember();
        world
    }

    fn remember(&mut self) {
        self.history
            .insert(self.position.seq, serde_json::to_value(self.state.document(Catalogue::embedded())).expect("JSON"));
    }

    /// One step; a lost one never reaches the thread.
    fn step(&mut self, changes: Vec<Change>, lost: bool) {
        if changes.is_empty() {
            return;
        }
        let base = self.position.seq;
        self.position.seq += 1;
        self.remember();
        let frame = protocol::patch(
            &self.server,
            self.position.epoch,
            base,
            self.position.seq,
            JsonPatch { changes: &changes, catalogue: Catalogue::embedded() },
        );
        let step = Step::new(base, changes, frame, Catalogue::embedded(), self.now);
        self.steps.push(step.clone());
        if !lost && !self.feed.log.borrow_mut().advance(self.position.epoch, step) {
            self.feed.mark_snapshot_wanted();
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
                    place: Default::default(),
                    kind: DeviceKind::Switch,
                    name: "a/b~c".into(),
                    label: None,
                    value: *value,
                    reachable: Reachable::Ok,
                    storage: None,
                    turns_back: None,
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

    /// Acts as the subscription does when a socket needs a snapshot.
    fn supply(&self) {
        if self.feed.take_snapshot_wanted() {
            let Position { epoch, seq } = self.position;
            let frame = protocol::snapshot(&self.server, epoch, seq, &self.state.document(Catalogue::embedded()));
            self.feed.log.borrow_mut().restart(self.position, frame, self.steps.clone());
        }
    }
}

fn marker(x: f64, named: bool) -> Marker {
    let ship = Marker::new(MarkerKind::CargoShip, MapPlace::at(x, 0.0), 4_000);
    Marker { name: named.then(|| "named".into()), ..ship }
}

/// A feed that only the test fills.
fn feed(name: &str) -> Rc<Feed> {
    Feed::new(name.into(), Clock::adjustable(Timestamp::UNIX_EPOCH), Default::default())
}

/// A client that applies what it gets with a JSON Patch library.
#[derive(Default)]
struct Client {
    queue: SendQueue,
    /// The keys of the state that it wants; none: all.
    wants: Option<Sections>,
    known: HashMap<String, (u64, Value)>,
    snapshots: HashMap<String, Millis>,
    sent: Vec<Millis>,
    /// Raids, events, lines of chat and replies.
    messages: u32,
    chat: Vec<Millis>,
    /// Lines of chat that were reported to it as dropped.
    dropped: u32,
}

impl Client {
    fn sections(&self) -> Sections {
        self.wants.unwrap_or(Sections::ALL)
    }

    fn watch(&mut self, world: &World, from: Option<Position>) {
        let sections = self.sections();
        self.queue.watch(&world.feed, from, sections);
    }

    /// State of the world that it should have at this `seq`.
    fn expected(&self, world: &World, seq: u64) -> Value {
        let mut state = world.history[&seq].clone();
        let fields = state.as_object_mut().expect("a state");
        fields.retain(|key, _| self.sections().iter().any(|wanted| wanted.word() == key));
        state
    }

    /// Takes at most `most` frames, and checks every one.
    fn take(&mut self, worlds: &[World], most: usize, now: Millis) -> Next {
        for _ in 0..most {
            match self.queue.next(now) {
                Next::Send(QueuedFrame { frame, .. }) => self.apply(worlds, frame.plain(), now),
                Next::ChatDropped { lines, .. } => {
                    self.dropped += lines;
                    self.count(now);
                }
                next => return next,
            }
        }
        Next::Idle
    }

    fn count(&mut self, now: Millis) {
        self.sent.push(now);
        assert!(recent(&self.sent, now) <= 60, "more than 60 frames in ten seconds");
    }

    fn apply(&mut self, worlds: &[World], frame: &[u8], now: Millis) {
        self.count(now);
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
            kind => {
                if kind == "chat" {
                    self.chat.push(now);
                    assert!(recent(&self.chat, now) <= 20, "more than 20 lines in ten seconds");
                }
                return self.messages += 1;
            }
        }
        let world = worlds.iter().find(|world| world.server.as_str() == text("serverId")).expect("a world");
        let (seq, state) = &self.known[&text("serverId")];
        assert_eq!(state, &self.expected(world, *seq), "the client holds the server's state at seq {seq}");
    }
}

/// Number of these times within ten seconds before now.
fn recent(times: &[Millis], now: Millis) -> usize {
    times.iter().rev().take_while(|at| now - **at < 10_000).count()
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
    /// Client, lane, and number of messages at once.
    Push(usize, Lane, usize),
    /// A client reads this number of frames, as its socket has room.
    Take(usize, usize),
    Supply,
    /// With what it knew, and asks to go on from there.
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
    let lane = proptest::sample::select(&QUEUED[..]);
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
        acts in proptest::collection::vec(acts(), 1..250),
        wants in proptest::sample::select(&["", "mapMarkers", "devices raids", "server team", "team mapMarkers devices"]),
    ) {
        let mut worlds = [World::new("one"), World::new("two")];
        let wants = Some(Sections::from(wants.to_owned()));
        let mut clients = [Client::default(), Client { wants, ..Client::default() }];
        let mut now = 1_000;
        let mut pushed = [0_u32; 2];
        let talkative = feed("talkative");
        for client in &mut clients {
            client.watch(&worlds[0], None);
        }
        for act in acts {
            match act {
                Act::Edit(world, edit, lost) => worlds[world].edit(&edit, lost),
                Act::Wait(pause) => {
                    now += pause;
                    worlds.iter_mut().for_each(|world| world.now = world.now + TimeDelta::milliseconds(pause as i64));
                }
                Act::Watch(client, world) => clients[client].watch(&worlds[world], None),
                Act::Unwatch(client, world) => {
                    clients[client].queue.unwatch(&worlds[world].server, now);
                    clients[client].known.remove(worlds[world].server.as_str());
                }
                Act::Push(client, lane, many) => {
                    let text: &[u8] = if lane == Lane::Chat { br#"{"type":"chat"}"# } else { br#"{"type":"other"}"# };
                    let frame = SharedFrame::text(text);
                    for _ in 0..many {
                        let queued = QueuedFrame { feed: Some(talkative.clone()), ..frame.clone().into() };
                        pushed[client] += u32::from(clients[client].queue.push(lane, queued, now).is_ok());
                    }
                }
                Act::Take(client, most) => { clients[client].take(&worlds, most, now); }
                Act::Supply => worlds.iter().for_each(World::supply),
                Act::Reconnect(client) => {
                    let Client { mut known, wants, .. } = std::mem::take(&mut clients[client]);
                    clients[client].wants = wants;
                    known.retain(|server, _| server == worlds[0].server.as_str());
                    let epoch = 7 + clients[client].sections().number();
                    let from = known.values().next().map(|(seq, _)| Position { epoch, seq: *seq });
                    clients[client].known = known;
                    pushed[client] = 0;
                    clients[client].watch(&worlds[0], from);
                }
            }
        }
        // Given time and room, everybody arrives at now, and nothing that was pushed is missing untold.
        for client in &mut clients {
            for _ in 0..4_000 {
                worlds.iter().for_each(World::supply);
                match client.take(&worlds, 1_000, now) {
                    Next::At(at) => now = at,
                    _ => now += 1,
                }
            }
            for world in &worlds {
                if client.queue.watches(&world.server) {
                    let missed = world.feed.log.borrow().position() != world.position;
                    let (seq, state) = &client.known[world.server.as_str()];
                    prop_assert!(missed || !client.sections().is_all() || *seq == world.position.seq);
                    prop_assert!(missed || *state == client.expected(world, world.position.seq));
                }
            }
        }
        for (client, pushed) in clients.iter().zip(pushed) {
            prop_assert_eq!(client.messages + client.dropped, pushed);
        }
    }
}

#[test]
fn many_steps_between_two_turns_become_one_patch_that_all_share() {
    let mut world = World::new("one");
    let mut clients = [Client::default(), Client::default()];
    for client in &mut clients {
        client.queue.watch(&world.feed, None, Sections::ALL);
        client.take(std::slice::from_ref(&world), 1, 0);
    }
    world.supply();
    let mut take = |world: &World, now| {
        let frames = clients.each_mut().map(|client| match client.queue.next(now) {
            Next::Send(QueuedFrame { frame, .. }) => {
                client.apply(std::slice::from_ref(world), frame.plain(), now);
                frame
            }
            next => panic!("a frame was due, not {next:?}"),
        });
        assert_eq!(frames[0].plain().as_ptr(), frames[1].plain().as_ptr(), "the very same bytes");
    };
    take(&world, 0);
    for x in 0..50 {
        world.edit(&Edit::Marker(1, Some((x, false))), false);
    }
    take(&world, 1);
    assert!(matches!(clients[0].queue.next(1), Next::Idle), "one patch was enough");
}
