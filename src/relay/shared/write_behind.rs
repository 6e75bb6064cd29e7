//! The one way of world events and chat into the database: a bounded write-behind queue, written in batches. Only the
//! author of a line in the chat waits for it. While the database does not answer, the queue waits. Records that do not
//! fit are dropped, counted and reported. One for a part of the service that has passed to another node is left out.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::{sleep, timeout},
};

use crate::{
    crypto::random::Random,
    db::{
        alarms::spoken_alarms,
        chat_lines, day_speeds,
        engine::{
            error::DbError,
            pool::{Db, Pool},
            query_failures::log_failure,
        },
        held_parts,
        map_notes::{self, StoredNote},
        maps,
        markets::{self, MarketStep},
        paired_servers, shop_watches, smart_devices,
        switch_backs::{self, SwitchBack},
        team_timers::{self, StoredTimer},
        timeline,
    },
    domain::{
        backoff::Backoff,
        channels::spoken_alarm::SpokenLine,
        chat::StoredLine,
        fence::Fence,
        ids::{GameServerId, ServerId},
        shop::watch::ShopWatch,
        team_command::daylight::DaySpeeds,
        team_timer::TimerTeam,
        time::Timestamp,
        timeline::{TimelineEntry, TimelineOwner},
        world_map::WorldMap,
    },
    game::decoding::DecodingPermit,
};

/// Records that wait. At a few hundred bytes each, some megabytes.
const WAITING: usize = 20_000;
/// Markets that wait: the changes of one are dozens of kilobytes. Others keep theirs, which are fewer, until their next
/// answer.
const MARKETS_WAITING: usize = 64;
/// Rows of one transaction, and how long the first of them waits for others. All writers wait for a transaction, alarms
/// too: a large market is stored in several.
const BATCH: usize = 250;
const GATHERED_FOR: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The map of a game server, on its way into the database.
#[derive(Debug)]
pub struct NewMap {
    pub address: String,
    pub port: u16,
    pub map: WorldMap,
    pub at: Timestamp,
    /// Maps are large: this bounds how many wait.
    pub turn: Option<DecodingPermit>,
}

/// Something to keep.
#[derive(Clone, Debug)]
pub enum Record {
    Event(TimelineOwner, TimelineEntry),
    /// Changes of a game server's shops.
    Market(MarketStep),
    /// Finding for a watched offer.
    Finding(ShopWatch),
    Map(Arc<NewMap>),
    /// The link of this server was up then.
    LinkAlive(ServerId, Timestamp),
    /// The game server has accepted the credentials of this version.
    Accepted(ServerId, i32),
    /// The records that events have reported of this device of this server, as JSON.
    Device(ServerId, Arc<str>, String),
    /// A line of the team's chat.
    Chat(ServerId, StoredLine),
    /// The speeds of day and night of a game server.
    DaySpeeds(GameServerId, DaySpeeds),
    /// A note of the detector.
    Note(ServerId, StoredNote),
    /// The notes that the team has placed in the game, all of them.
    GameNotes(ServerId, Vec<StoredNote>),
    /// The timer of a team's chat with this id has ended, for all who have it.
    TimerEnded(Arc<str>),
    /// This server has a timer of its team, or that has another number.
    TimerOf(ServerId, StoredTimer),
    /// This server has the timers with these ids no longer, unlike others, perhaps.
    TimersLeft(ServerId, Vec<Arc<str>>),
    /// The team of the paired player, for the timers of this server.
    TeamOfTimers(ServerId, TimerTeam),
    /// A switch of this server turns back.
    TurnsBack(ServerId, SwitchBack),
    /// This switch of this server has turned back, or stays as it is.
    TurnedBack(ServerId, Arc<str>),
    /// The way of this incident's line into the team's chat.
    Spoken(ServerId, Arc<str>, SpokenLine),
    /// The world of this server was wiped then: its map notes and timers are gone.
    NotesWiped(ServerId, Timestamp),
}

impl Record {
    /// This record in parts of at most a batch.
    fn parts(self) -> Vec<Self> {
        match self {
            Self::Market(step) => step.parts(BATCH).into_iter().map(Self::Market).collect(),
            record => vec![record],
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Market(step) => step.rows(),
            // Few, but megabytes; and other maps wait for its turn.
            Self::Map(_) => BATCH,
            Self::GameNotes(_, notes) => 1 + notes.len(),
            Self::TimersLeft(_, ids) => ids.len(),
            _ => 1,
        }
    }
}

/// A record, and the right of this node to write it; without one, no other node may.
#[derive(Clone, Debug)]
struct FencedRecord {
    record: Record,
    fence: Option<Arc<Fence>>,
}

enum Message {
    Record(Box<FencedRecord>),
    Market(Box<MarketStep>, MarketPermit, Option<Arc<Fence>>),
    /// Answer when everything before is stored.
    Flush(oneshot::Sender<()>),
}

impl Message {
    /// Rows of a batch that it takes: all of them if a caller waits for the end of it.
    fn rows(&self) -> usize {
        match self {
            Self::Record(fenced) => fenced.record.rows(),
            Self::Market(step, ..) => step.rows(),
            Self::Flush(_) => BATCH,
        }
    }
}

/// The right of a market to wait in the queue.
pub type MarketPermit = OwnedSemaphorePermit;

/// Takes records; clones share the queue.
#[derive(Clone)]
pub struct WriteBehind {
    queue: mpsc::Sender<Message>,
    /// For the records of this clone.
    fence: Option<Arc<Fence>>,
    markets: Arc<Semaphore>,
    dropped: Arc<AtomicU64>,
    has_ended: Arc<AtomicBool>,
}

/// The other end of the queue.
struct WriteBehindTask {
    queue: mpsc::Receiver<Message>,
    dropped: Arc<AtomicU64>,
}

impl WriteBehind {
    /// A sink whose records are written on this thread's runtime, until the last of its clones is gone.
    pub fn start(pool: Pool, random: Random) -> Self {
        let (sink, writer) = Self::new();
        actix::spawn(writer.run(pool, random));
        sink
    }

    fn new() -> (Self, WriteBehindTask) {
        let (sender, queue) = mpsc::channel(WAITING);
        let dropped = Arc::<AtomicU64>::default();
        let markets = Arc::new(Semaphore::new(MARKETS_WAITING));
        let sink = Self { queue: sender, fence: None, markets, dropped: dropped.clone(), has_ended: Arc::default() };
        (sink, WriteBehindTask { queue, dropped })
    }

    /// This sink for a part of the service, of whose records none is stored once another node has the part. As long as some
    /// wait, the right is shared.
    pub fn fenced_by(&self, fence: Arc<Fence>) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// Stores nothing more: the process ends, and the lines that wait for a team's chat are dropped without being said. The
    /// next process says them.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Keeps a record, if there is room.
    pub fn store(&self, record: Record) {
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        let record = Box::new(FencedRecord { record, fence: self.fence.clone() });
        if self.queue.try_send(Message::Record(record)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A turn to store what is new of a market, unless many wait.
    pub fn turn_of_market(&self) -> Option<MarketPermit> {
        self.markets.clone().try_acquire_owned().ok()
    }

    /// Keeps what is new of a market, or gives it back if there is no room.
    pub fn store_market(&self, step: MarketStep, turn: MarketPermit) -> Result<(), Box<MarketStep>> {
        let market = Message::Market(Box::new(step), turn, self.fence.clone());
        match self.queue.try_send(market).map_err(TrySendError::into_inner) {
            Err(Message::Market(step, ..)) => Err(step),
            _ => Ok(()),
        }
    }

    /// Waits until everything before is stored, but no longer than this; true if it is.
    pub async fn flush(&self, deadline: Duration) -> bool {
        let (done, stored) = oneshot::channel();
        let flushed = async { self.queue.send(Message::Flush(done)).await.is_ok() && stored.await.is_ok() };
        let flushed = timeout(deadline, flushed).await;
        if flushed.is_err() {
            log::warn!("what waits to be stored was not stored in time");
        }
        flushed.unwrap_or(false)
    }
}

impl WriteBehindTask {
    /// Takes what waits, and what comes within a moment, until a batch is full. False once the queue has ended.
    async fn fill(&mut self, batch: &mut Vec<Message>) -> bool {
        if self.queue.recv_many(batch, BATCH).await == 0 {
            return false;
        }
        let mut rows: usize = batch.iter().map(Message::rows).sum();
        let gather = async {
            while rows < BATCH
                && let Some(message) = self.queue.recv().await
            {
                rows += message.rows();
                batch.push(message);
            }
        };
        // All that is gathered by then is in the batch.
        let _ = timeout(GATHERED_FOR, gather).await;
        true
    }

    async fn run(mut self, pool: Pool, random: Random) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.fill(&mut batch).await {
            let (mut records, mut rows, mut waiting) = (Vec::new(), 0, Vec::new());
            for message in batch.drain(..) {
                let (FencedRecord { record, fence }, _turn) = match message {
                    Message::Record(record) => (*record, None),
                    Message::Market(step, turn, fence) => {
                        (FencedRecord { record: Record::Market(*step), fence }, Some(turn))
                    }
                    Message::Flush(done) => {
                        waiting.push(done);
                        continue;
                    }
                };
                for part in record.parts() {
                    if rows + part.rows() > BATCH && !records.is_empty() {
                        store(&pool, &random, std::mem::take(&mut records).into()).await;
                        rows = 0;
                    }
                    rows += part.rows();
                    records.push(FencedRecord { record: part, fence: fence.clone() });
                }
            }
            if !records.is_empty() {
                store(&pool, &random, records.into()).await;
            }
            for done in waiting {
                let _ = done.send(());
            }
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                log::error!(dropped = dropped; "world events were not stored: too many waited");
            }
        }
    }
}

/// Stores the records, again and again until the database answers. One that it refuses is left out, and only that one.
async fn store(pool: &Pool, random: &Random, records: Arc<[FencedRecord]>) {
    let mut backoff = Backoff::between(Backoff::FIRST, LONGEST_PAUSE);
    loop {
        let all = records.clone();
        let error = match pool.write(move |db| write_all(db, &all)).await {
            Ok(()) => return,
            Err(error) => error,
        };
        match error {
            // Its paired server is gone, or another node has it.
            DbError::Conflict | DbError::Fenced if records.len() == 1 => return,
            DbError::Conflict | DbError::Fenced => {
                for record in records.iter() {
                    Box::pin(store(pool, random, [record.clone()].into())).await;
                }
                return;
            }
            error => {
                log_failure("world events are stored again later", &error);
                sleep(backoff.after(Duration::ZERO, Duration::ZERO, random.byte())).await;
            }
        }
    }
}

fn write_all(db: &mut Db, records: &[FencedRecord]) -> Result<(), DbError> {
    records.iter().try_for_each(|one| write(db, &one.record))?;
    let fences: BTreeSet<&Fence> = records.iter().filter_map(|one| one.fence.as_deref()).collect();
    match fences.is_empty() {
        true => Ok(()),
        false => held_parts::check(db, &fences),
    }
}

fn write(db: &mut Db, record: &Record) -> Result<(), DbError> {
    match record {
        Record::Event(owner, entry) => timeline::insert(db, owner, entry),
        Record::Market(step) => markets::write(db, step),
        Record::Finding(watch) => shop_watches::save_finding(db, watch),
        Record::Map(new) => maps::put(db, &new.address, new.port, &new.map, new.at),
        Record::LinkAlive(server, at) => paired_servers::set_link_alive(db, server, *at),
        Record::Accepted(server, version) => paired_servers::set_accepted(db, server, *version),
        Record::Device(server, device, reported) => smart_devices::set_reported(db, server, device, reported),
        Record::Chat(server, line) => chat_lines::insert(db, server, line),
        Record::DaySpeeds(game_server, speeds) => day_speeds::put(db, game_server, *speeds),
        Record::Note(server, note) => map_notes::insert(db, server, note),
        Record::GameNotes(server, notes) => map_notes::replace_game_notes(db, server, notes),
        Record::TimerEnded(id) => team_timers::delete(db, id).map(drop),
        Record::TimerOf(server, timer) => team_timers::put(db, server, timer),
        Record::TimersLeft(server, ids) => team_timers::leave(db, server, ids).map(drop),
        Record::TeamOfTimers(server, team) => team_timers::set_team(db, server, team),
        Record::TurnsBack(server, back) => switch_backs::put(db, server, back),
        Record::TurnedBack(server, device) => switch_backs::delete(db, server, device),
        Record::Spoken(server, incident, line) => spoken_alarms::put(db, server, incident, *line),
        Record::NotesWiped(server, at) => {
            map_notes::wipe(db, server, *at)?;
            team_timers::wipe(db, server, *at).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::{
        db::testing,
        domain::{
            detect::wipe::World,
            ids::{NodeId, PartId, ServerId},
            timeline::TimelinePage,
            world_map::MapDrawing,
        },
    };

    fn entry(id: &str) -> TimelineEntry {
        testing::timeline_entry(id, "heli", testing::now())
    }

    #[actix::test]
    async fn nothing_is_stored_after_the_end() {
        let (sink, mut writer) = WriteBehind::new();
        let store = |id: &str| sink.store(Record::TimerEnded(id.into()));
        store("said");
        sink.clone().end();
        store("dropped");
        assert!(
            matches!(writer.queue.try_recv(), Ok(Message::Record(record)) if format!("{record:?}").contains("said"))
        );
        assert!(writer.queue.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_map_fills_a_batch_and_a_smaller_record_waits_for_others() {
        let map = WorldMap { world: World::default(), monuments: Vec::new(), drawing: MapDrawing::default() };
        let map = NewMap { address: "game.example.com".to_owned(), port: 28_082, map, at: testing::now(), turn: None };
        for (record, waits) in [(Record::TimerEnded("1".into()), true), (Record::Map(Arc::new(map)), false)] {
            let (sink, mut writer) = WriteBehind::new();
            sink.store(record);
            let (began, mut batch) = (Instant::now(), Vec::new());
            assert!(writer.fill(&mut batch).await);
            assert_eq!((batch.len(), began.elapsed() >= GATHERED_FOR), (1, waits));
        }
    }

    #[test]
    fn facts_are_stored_in_batches_and_a_deleted_server_keeps_out_only_its_own() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server: ServerId = testing::server(pool, "owner", "server").id;
            let pool = pool.clone();
            actix::System::new().block_on(async move {
                let sink = WriteBehind::start(pool.clone(), Random::seeded(7));
                for number in 0..1_200 {
                    let owner = if number == 700 { "gone".into() } else { server.clone() };
                    sink.store(Record::Event(TimelineOwner::Server(owner), entry(&format!("{number:04}"))));
                }
                sink.flush(Duration::from_secs(60)).await;
                let page = TimelinePage { since: None, before: None, kinds: None, limit: 5_000 };
                let stored = pool.read(move |db| timeline::list(db, &server, &page)).await.unwrap();
                assert_eq!(stored.len(), 1_199);
            });
        });
    }

    #[test]
    fn records_of_a_part_that_has_passed_to_another_node_are_left_out() {
        testing::on_each_database(|pool| {
            let parts = ["one", "two"].map(PartId::from);
            let take = |gone: &str, node: &str, parts: &[PartId]| {
                let parts: BTreeSet<PartId> = parts.iter().cloned().collect();
                let gone = BTreeSet::from([NodeId::from(gone)]);
                let take = |db: &mut Db| {
                    held_parts::note(db, &parts, testing::now())?;
                    held_parts::take(db, &parts, &gone, &node.into(), testing::now())
                };
                pool.write_blocking(take).unwrap()
            };
            testing::user(pool, "owner");
            let server: ServerId = testing::server(pool, "owner", "server").id;
            let fences: Vec<Arc<Fence>> = take("no one", "here", &parts).into_iter().map(Arc::new).collect();
            take("here", "elsewhere", &parts[1..]);
            actix::System::new().block_on(async {
                let sink = WriteBehind::start(pool.clone(), Random::seeded(7));
                let sinks = [sink.clone(), sink.fenced_by(fences[0].clone()), sink.fenced_by(fences[1].clone())];
                for number in 0..30 {
                    let event = entry(&format!("{number:04}"));
                    sinks[number % 3].store(Record::Event(TimelineOwner::Server(server.clone()), event));
                }
                assert!(Arc::strong_count(&fences[0]) > 10, "what waits shares the right");
                assert!(sink.flush(Duration::from_secs(60)).await);
                let page = TimelinePage { since: None, before: None, kinds: None, limit: 50 };
                let stored = pool.read(move |db| timeline::list(db, &server, &page)).await.unwrap();
                assert_eq!(stored.len(), 20);
                drop(sinks);
                assert_eq!(Arc::strong_count(&fences[0]), 1);
            });
        });
    }

    #[actix::test]
    async fn what_does_not_fit_is_dropped_and_counted() {
        let (sink, _writer) = WriteBehind::new();
        for _ in 0..WAITING + 3 {
            sink.store(Record::Event(TimelineOwner::User("u".into()), entry("1")));
        }
        assert_eq!(sink.dropped.load(Ordering::Relaxed), 3);
    }
}
