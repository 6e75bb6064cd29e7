//! The one way of world events and chat into the database: a bounded write-behind queue, written in batches. Only the
//! author of a line in the chat waits for it. While the database does not answer, the queue waits. Facts that do not
//! fit are dropped, counted and reported.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
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
        chat_lines,
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        map_notes::{self, StoredNote},
        maps,
        markets::{self, MarketStep},
        paired_servers, shop_watches, smart_devices, timeline,
    },
    domain::{
        backoff::Backoff,
        chat::KeptLine,
        ids::ServerId,
        shop::watch::ShopWatch,
        time::Timestamp,
        timeline::{TimelineEntry, TimelineOwner},
        world_map::WorldMap,
    },
    game::decoding::DecodingPermit,
};

/// Facts that wait. At a few hundred bytes each, some megabytes.
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
pub enum Fact {
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
    /// The facts that events have reported of this device of this server, as JSON.
    Device(ServerId, Arc<str>, String),
    /// A line of the team's chat.
    Chat(ServerId, KeptLine),
    /// A note of the detector.
    Note(ServerId, StoredNote),
    /// The notes that the team has placed in the game, all of them.
    GameNotes(ServerId, Vec<StoredNote>),
    /// The world of this server was wiped then: its map notes are gone.
    NotesWiped(ServerId, Timestamp),
}

impl Fact {
    /// This fact in parts of at most a batch.
    fn parts(self) -> Vec<Self> {
        match self {
            Self::Market(step) => step.parts(BATCH).into_iter().map(Self::Market).collect(),
            fact => vec![fact],
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Market(step) => step.rows(),
            // Few, but megabytes.
            Self::Map(_) => BATCH,
            Self::GameNotes(_, notes) => 1 + notes.len(),
            _ => 1,
        }
    }
}

enum Message {
    Fact(Box<Fact>),
    Market(Box<MarketStep>, MarketPermit),
    /// Answer when everything before is stored.
    Flush(oneshot::Sender<()>),
}

/// The right of a market to wait in the queue.
pub type MarketPermit = OwnedSemaphorePermit;

/// Takes facts; clones share the queue.
#[derive(Clone)]
pub struct FactSink {
    queue: mpsc::Sender<Message>,
    markets: Arc<Semaphore>,
    dropped: Arc<AtomicU64>,
}

/// The other end of the queue.
struct FactWriter {
    queue: mpsc::Receiver<Message>,
    dropped: Arc<AtomicU64>,
}

impl FactSink {
    /// A sink whose facts are written on this thread's runtime, until the last of its clones is gone.
    pub fn start(pool: Pool, random: Random) -> Self {
        let (sink, writer) = Self::new();
        actix::spawn(writer.run(pool, random));
        sink
    }

    fn new() -> (Self, FactWriter) {
        let (sender, queue) = mpsc::channel(WAITING);
        let dropped = Arc::<AtomicU64>::default();
        let markets = Arc::new(Semaphore::new(MARKETS_WAITING));
        (Self { queue: sender, markets, dropped: dropped.clone() }, FactWriter { queue, dropped })
    }

    /// Keeps a fact, if there is room.
    pub fn store(&self, fact: Fact) {
        if self.queue.try_send(Message::Fact(Box::new(fact))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A turn to store what is new of a market, unless many wait.
    pub fn turn_of_market(&self) -> Option<MarketPermit> {
        self.markets.clone().try_acquire_owned().ok()
    }

    /// Keeps what is new of a market, or gives it back if there is no room.
    pub fn store_market(&self, step: MarketStep, turn: MarketPermit) -> Result<(), Box<MarketStep>> {
        match self.queue.try_send(Message::Market(Box::new(step), turn)).map_err(TrySendError::into_inner) {
            Err(Message::Market(step, _)) => Err(step),
            _ => Ok(()),
        }
    }

    /// Waits until everything before is stored, but no longer than this.
    pub async fn flush(&self, deadline: Duration) {
        let (done, stored) = oneshot::channel();
        let flushed = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = stored.await;
            }
        };
        if timeout(deadline, flushed).await.is_err() {
            log::warn!("what waits to be stored was not stored in time");
        }
    }
}

impl FactWriter {
    async fn run(mut self, pool: Pool, random: Random) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.queue.recv_many(&mut batch, BATCH).await > 0 {
            if !batch.iter().any(|message| matches!(message, Message::Flush(_))) {
                let gather = async {
                    while batch.len() < BATCH
                        && let Some(message) = self.queue.recv().await
                    {
                        let is_awaited = matches!(message, Message::Flush(_));
                        batch.push(message);
                        if is_awaited {
                            return;
                        }
                    }
                };
                // All that is gathered by then is in the batch.
                let _ = timeout(GATHERED_FOR, gather).await;
            }
            let (mut facts, mut rows, mut waiting) = (Vec::new(), 0, Vec::new());
            for message in batch.drain(..) {
                let (fact, _turn) = match message {
                    Message::Fact(fact) => (*fact, None),
                    Message::Market(step, turn) => (Fact::Market(*step), Some(turn)),
                    Message::Flush(done) => {
                        waiting.push(done);
                        continue;
                    }
                };
                for part in fact.parts() {
                    if rows + part.rows() > BATCH && !facts.is_empty() {
                        store(&pool, &random, std::mem::take(&mut facts).into()).await;
                        rows = 0;
                    }
                    rows += part.rows();
                    facts.push(part);
                }
            }
            if !facts.is_empty() {
                store(&pool, &random, facts.into()).await;
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

/// Stores the facts, again and again until the database answers. One that it refuses is left out, and only that one.
async fn store(pool: &Pool, random: &Random, facts: Arc<[Fact]>) {
    let mut backoff = Backoff::between(Backoff::FIRST, LONGEST_PAUSE);
    loop {
        let all = facts.clone();
        let error = match pool.write(move |db| all.iter().try_for_each(|fact| write(db, fact))).await {
            Ok(()) => return,
            Err(error) => error,
        };
        match error {
            // Its paired server is gone.
            DbError::Conflict if facts.len() == 1 => return,
            DbError::Conflict => {
                for fact in facts.iter() {
                    Box::pin(store(pool, random, [fact.clone()].into())).await;
                }
                return;
            }
            error => {
                log::warn!(facts = facts.len(); "world events are stored again later: {error}");
                sleep(backoff.after(Duration::ZERO, Duration::ZERO, random.byte())).await;
            }
        }
    }
}

fn write(db: &mut Db, fact: &Fact) -> Result<(), DbError> {
    match fact {
        Fact::Event(owner, entry) => timeline::insert(db, owner, entry),
        Fact::Market(step) => markets::write(db, step),
        Fact::Finding(watch) => shop_watches::save_finding(db, watch),
        Fact::Map(new) => maps::put(db, &new.address, new.port, &new.map, new.at),
        Fact::LinkAlive(server, at) => paired_servers::set_link_alive(db, server, *at),
        Fact::Accepted(server, version) => paired_servers::set_accepted(db, server, *version),
        Fact::Device(server, device, reported) => smart_devices::set_reported(db, server, device, reported),
        Fact::Chat(server, line) => chat_lines::insert(db, server, line),
        Fact::Note(server, note) => map_notes::insert(db, server, note),
        Fact::GameNotes(server, notes) => map_notes::replace_game_notes(db, server, notes),
        Fact::NotesWiped(server, at) => map_notes::wipe(db, server, *at).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        db::testing,
        domain::{ids::ServerId, timeline::TimelinePage},
    };

    fn entry(id: &str) -> TimelineEntry {
        testing::timeline_entry(id, "heli", testing::now())
    }

    #[test]
    fn facts_are_stored_in_batches_and_a_deleted_server_keeps_out_only_its_own() {
        testing::on_each_database(|pool| {
            testing::user(pool, "owner");
            let server: ServerId = testing::server(pool, "owner", "server").id;
            let pool = pool.clone();
            actix::System::new().block_on(async move {
                let sink = FactSink::start(pool.clone(), Random::seeded(7));
                for number in 0..1_200 {
                    let owner = if number == 700 { "gone".into() } else { server.clone() };
                    sink.store(Fact::Event(TimelineOwner::Server(owner), entry(&format!("{number:04}"))));
                }
                sink.flush(Duration::from_secs(60)).await;
                let page = TimelinePage { since: None, before: None, kinds: None, limit: 5_000 };
                let stored = pool.read(move |db| timeline::list(db, &server, &page)).await.unwrap();
                assert_eq!(stored.len(), 1_199);
            });
        });
    }

    #[actix::test]
    async fn what_does_not_fit_is_dropped_and_counted() {
        let (sink, _writer) = FactSink::new();
        for _ in 0..WAITING + 3 {
            sink.store(Fact::Event(TimelineOwner::User("u".into()), entry("1")));
        }
        assert_eq!(sink.dropped.load(Ordering::Relaxed), 3);
    }
}
