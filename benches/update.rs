//! Costs of one change of the live state in the relay, from the edit to the frame that each watcher is due, and what
//! surrounds it: a whole answer of the game server, merging, snapshots. Times must not depend on the state's size,
//! except where the whole state is read or written.

use std::{hint::black_box, rc::Rc, sync::Arc};

use bytes::Bytes;
use companion::{
    catalogue::SharedCatalogue,
    clock::Clock,
    domain::{
        change::{self, Change, JsonPatch, Section},
        ids::ServerId,
        items::Catalogue,
        map::{MapPlace, Marker, MarkerKind, SellOrder},
        sections::Sections,
        server_state::ServerState,
        time::Timestamp,
    },
    relay::{
        client::{
            feed::Feed,
            frame_budget::Millis,
            patch_log::{CatchUp, PatchLog},
            send_queue::{Next, SendQueue},
        },
        wire::{
            deflate::Deflate,
            frame::SharedFrame,
            protocol,
            publication::Position,
            steps::{Step, Steps},
        },
    },
};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

const EPOCH: u64 = 1;
const SIZES: [u64; 3] = [100, 1_000, 10_000];
/// Longer than the pace of patches, so that every watcher is due one.
const BETWEEN_UPDATES: Millis = 300;

fn server() -> ServerId {
    ServerId::from("01929f3a-7b1c-7def-8123-456789abcdef")
}

/// A vending machine with a few orders, as most markers are; `moved` makes it a different one.
fn marker(id: u64, moved: u64) -> Marker {
    let order = |n: i32| SellOrder {
        item_id: 1_000 + n,
        quantity: 10,
        currency_id: -932_201_673,
        cost: 25 * n,
        in_stock: 4,
        item_is_blueprint: false,
        currency_is_blueprint: false,
        condition: None,
    };
    let place = MapPlace::at((id % 4_000) as f64 + moved as f64 / 100.0, (id * 7 % 4_000) as f64);
    Marker {
        name: Some(format!("Shop {id}").into()),
        out_of_stock: Some(false),
        sell_orders: (0..3).map(order).collect(),
        ..Marker::new(MarkerKind::VendingMachine, place, 4_000)
    }
}

/// A game connection's state with the patch log of one worker thread, without actors.
struct Relay {
    server: ServerId,
    state: ServerState,
    position: Position,
    feed: Rc<Feed>,
    moved: u64,
}

impl Relay {
    fn new(markers: u64) -> Self {
        let mut state = ServerState::new(Timestamp::UNIX_EPOCH);
        let all = (0..markers).map(|id| (id, marker(id, 0)));
        state.map_markers.replace(Section::MapMarkers, all, &mut Vec::new());
        let position = Position { epoch: EPOCH, seq: 0 };
        let feed = Feed::new(server(), Clock::system(), SharedCatalogue::default());
        let relay = Self { server: server(), state, position, feed, moved: 0 };
        relay.feed.log.borrow_mut().restart(position, relay.snapshot(), Steps::default());
        relay
    }

    fn snapshot(&self) -> SharedFrame {
        protocol::snapshot(&self.server, EPOCH, self.position.seq, &self.state.document(Catalogue::embedded()))
    }

    /// Watchers that have their snapshot.
    fn watchers(&self, count: usize) -> Vec<SendQueue> {
        let watcher = |_| {
            let mut queue = SendQueue::default();
            queue.watch(&self.feed, None, Sections::ALL);
            assert!(matches!(queue.next(0), Next::Send(_)), "the snapshot comes first");
            queue
        };
        (0..count).map(watcher).collect()
    }

    /// One marker moves.
    fn edit(&mut self) -> Vec<Change> {
        self.moved += 1;
        let id = self.moved * 31 % self.state.map_markers.len() as u64;
        let mut changes = Vec::new();
        self.state.map_markers.put(Section::MapMarkers, id, Some(marker(id, self.moved)), &mut changes);
        changes
    }

    /// The step that these changes are, encoded.
    fn step(&mut self, changes: Vec<Change>) -> Arc<Step> {
        let base = self.position.seq;
        self.position.seq += 1;
        let catalogue = Catalogue::embedded();
        let frame =
            protocol::patch(&self.server, EPOCH, base, self.position.seq, JsonPatch { changes: &changes, catalogue });
        Step::new(base, changes, frame, catalogue, Timestamp::UNIX_EPOCH.into())
    }

    fn update(&mut self) {
        let changes = self.edit();
        let step = self.step(changes);
        assert!(self.feed.log.borrow_mut().advance(EPOCH, step), "it follows");
    }
}

/// Edit, patch, log, and the frame of every watcher.
fn update(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update");
    for watchers in [1, 1_000] {
        for markers in SIZES {
            let mut relay = Relay::new(markers);
            let mut queues = relay.watchers(watchers);
            let mut now = 0;
            let id = BenchmarkId::new(format!("watchers {watchers}, markers"), markers);
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    now += BETWEEN_UPDATES;
                    relay.update();
                    for queue in &mut queues {
                        assert!(matches!(queue.next(now), Next::Send(_)), "a patch is due");
                    }
                });
            });
        }
    }
    group.finish();
}

/// A whole answer of the game server in which one marker has moved.
fn poll(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("poll, 1 of n changed");
    for markers in SIZES {
        let mut relay = Relay::new(markers);
        let mut moved = 0;
        group.bench_function(BenchmarkId::from_parameter(markers), |bencher| {
            bencher.iter_batched(
                || {
                    moved += 1;
                    (0..markers).map(|id| (id, marker(id, if id == markers / 2 { moved } else { 0 }))).collect()
                },
                |answer: Vec<(u64, Marker)>| {
                    let mut changes = Vec::new();
                    relay.state.map_markers.replace(Section::MapMarkers, answer, &mut changes);
                    assert_eq!(changes.len(), 1);
                    changes
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

/// One patch out of a hundred pending steps: of the changes alone, and as a client that fell behind gets it.
fn merge(criterion: &mut Criterion) {
    let mut relay = Relay::new(1_000);
    let start = relay.position;
    let steps: Vec<_> = (0..100)
        .map(|_| {
            let changes = relay.edit();
            relay.step(changes)
        })
        .collect();
    criterion.bench_function("merge/changes of 100 steps", |bencher| {
        bencher.iter(|| change::merge(steps.iter().flat_map(|step| &step.changes)));
    });
    criterion.bench_function("merge/patch frame of 100 steps", |bencher| {
        bencher.iter_batched_ref(
            || {
                let mut log = PatchLog::new(server(), SharedCatalogue::default());
                log.restart(start, Bytes::from(vec![0; 1 << 20]).into(), Steps::default());
                assert!(steps.iter().all(|step| log.advance(EPOCH, step.clone())), "they follow");
                log
            },
            |log| assert!(matches!(log.since(start, Sections::ALL), CatchUp::Patch { .. }), "smaller than a snapshot"),
            BatchSize::SmallInput,
        );
    });
}

/// Encoding a snapshot, and handing out the one that is there.
fn snapshot(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot");
    for markers in SIZES {
        let relay = Relay::new(markers);
        group.bench_function(BenchmarkId::new("encode", markers), |bencher| bencher.iter(|| relay.snapshot()));
        group.bench_function(BenchmarkId::new("cached", markers), |bencher| {
            bencher.iter(|| black_box(relay.feed.log.borrow_mut().snapshot(Sections::ALL)));
        });
    }
    group.finish();
}

/// Compressing what is sent, once for all clients that want it so; and how much smaller it gets.
fn deflate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("deflate");
    let deflate = Deflate::default();
    let snapshots = SIZES.map(|markers| (format!("snapshot of {markers}"), Relay::new(markers).snapshot()));
    let patches = [1, 10].map(|changed| {
        let mut relay = Relay::new(1_000);
        let changes = (0..changed).flat_map(|_| relay.edit()).collect();
        (format!("patch of {changed}"), relay.step(changes).frame.clone())
    });
    for (name, frame) in snapshots.into_iter().chain(patches) {
        println!("{name}: {} bytes, {} compressed", frame.plain().len(), frame.deflated(&deflate).len());
        group.bench_function(name, |bencher| {
            let another = || SharedFrame::from(frame.plain().clone());
            bencher.iter_batched(another, |frame| frame.deflated(&deflate).clone(), BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, update, poll, merge, snapshot, deflate);
criterion_main!(benches);
