//! Nodes of the service as processes, on a NATS and a PostgreSQL of their own. The game servers that are paired with them are
//! in this process.

#[path = "../../src/cluster/nats_leases/tests/nats_server.rs"]
mod nats_server;

use std::{
    collections::BTreeSet,
    env,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use chrono::Utc;
use companion::{
    config::Database,
    crypto::{
        keys::{Key32, KeyDerivation, Purpose},
        random::Random,
        relay_token::{RelayClaims, RelayTokens},
        sealer::Sealer,
    },
    db::{
        encryption_keys,
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        held_parts::{self, PartHolder},
        paired_servers::{self, StoredPairing},
        schema::guests,
        sessions, users,
    },
    domain::{
        ids::{GameServerId, PartId, PlatformId, ServerId, SessionId, UserId},
        relay_access::RelayAccess,
        time::Timestamp,
    },
    vault::Vault,
};
use diesel::{Connection as _, ExpressionMethods as _, PgConnection, RunQueryDsl as _};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use self::nats_server::NatsServer;
use crate::{
    crash::{Installation, Service, binary},
    database::Postgres,
    game::{Game, PLAYER},
    process::{Processor, Result, proportional},
    watchers::{Seat, stamp},
};

const SESSION_SECRET: &str = "a secret of the nodes of a bench, and of no others";
const SESSION_SALT: &str = "their salt, of sixteen bytes or more";
const CREDENTIALS_KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
/// No one pushes, and no image is asked for.
const FLAGS: [&str; 5] = [
    "--push-address=127.0.0.1:9",
    "--allow-private-game-servers=true",
    "--images-s3-bucket=images",
    "--images-s3-access-key-id=key",
    "--images-s3-secret-access-key=secret",
];
/// Token of the player.
const TOKEN: i32 = 1;
/// For whatever is awaited, and the time between two looks at it.
const DEADLINE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The first of the variables that name neighbours of nodes that is not set.
pub fn missing() -> Option<&'static str> {
    ["TEST_NATS_SERVER", "TEST_POSTGRES_URL"].into_iter().find(|name| env::var_os(name).is_none())
}

fn now() -> Timestamp {
    Utc::now().into()
}

fn user(number: usize) -> UserId {
    UserId::from(format!("user-{number}"))
}

fn server(number: usize) -> ServerId {
    ServerId::from(format!("01929f3a-7b1c-7def-8123-{number:012x}"))
}

/// Asks until there is an answer.
fn until<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        } else if began.elapsed() > DEADLINE {
            return Err(format!("no {what} within {} s", DEADLINE.as_secs()).into());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Asks the nodes and NATS about themselves.
struct Questions {
    runtime: Runtime,
    http: reqwest::Client,
}

impl Questions {
    fn new() -> Result<Self> {
        // Its connections are looked after also between two questions.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime, http: binary::http() })
    }

    fn ask(&self, url: &str) -> Result<Value> {
        self.runtime.block_on(async {
            let answer = self.http.get(url).timeout(ANSWERS_WITHIN).send().await?.error_for_status()?;
            let answer: Value = answer.json().await?;
            Ok(answer)
        })
    }
}

/// Figures since a start, or of a span.
pub struct Figures {
    pub seconds: f64,
    /// Processor time of each node, and of NATS, seconds.
    pub nodes: Vec<f64>,
    pub nats: f64,
    /// Messages that NATS was sent and has sent, and bytes of the former.
    pub received: f64,
    pub sent: f64,
    pub bytes: f64,
    /// Transactions of PostgreSQL.
    pub transactions: f64,
}

impl Figures {
    /// Figures of the span that began with `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            seconds: self.seconds - before.seconds,
            nodes: self.nodes.iter().zip(&before.nodes).map(|(after, before)| after - before).collect(),
            nats: self.nats - before.nats,
            received: self.received - before.received,
            sent: self.sent - before.sent,
            bytes: self.bytes - before.bytes,
            transactions: self.transactions - before.transactions,
        }
    }
}

#[derive(diesel::QueryableByName)]
struct Transactions {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    count: i64,
}

/// Nodes that serve, and their neighbours; all end when dropped, in this order.
pub struct Nodes {
    services: Vec<Service>,
    _installations: Vec<Installation>,
    questions: Questions,
    vault: Vault,
    tokens: RelayTokens,
    pool: Pool,
    nats: NatsServer,
    database: Postgres,
}

impl Nodes {
    /// Starts this many, with users who are signed in. All nodes see one another when this returns.
    pub fn start(count: usize, users: usize) -> Result<Self> {
        let (questions, nats) = (Questions::new()?, NatsServer::start().ok_or("TEST_NATS_SERVER is not set")?);
        let database = Postgres::create().ok_or("TEST_POSTGRES_URL is not set")?;
        let pool = Pool::open(&Database::Postgres(database.url().into()))?;
        let (now, random) = (now(), Random::system());
        let key = Key32::parse(CREDENTIALS_KEY).ok_or("not a key")?;
        let sign_in = |db: &mut Db, number: usize| {
            let account = PlatformId::from((PLAYER + number as u64).to_string());
            users::sign_in(db, &user(number), &account, None, now)?;
            sessions::insert(db, &SessionId::from(user(number).as_str()), &user(number), now)
        };
        let key_version = pool.write_blocking(|db: &mut Db| {
            (0..users).try_for_each(|number| sign_in(db, number))?;
            encryption_keys::take_into_use(db, &key.fingerprint(), now)
        })?;
        let vault = Vault::new(pool.clone(), Arc::new(Sealer::new(&key, None, key_version, random.clone())));
        let keys = KeyDerivation::new(SESSION_SECRET, SESSION_SALT);
        let tokens = RelayTokens::new(&keys.key(Purpose::RelayToken), random);
        let own = [
            format!("--database-url={}", database.url()),
            format!("--nats-url={}", nats.url),
            format!("--session-secret={SESSION_SECRET}"),
            format!("--session-salt={SESSION_SALT}"),
            format!("--creds-encryption-key={CREDENTIALS_KEY}"),
        ];
        let flags: Vec<String> = own.into_iter().chain(FLAGS.map(str::to_owned)).collect();
        let installations: Vec<Installation> = (0..count).map(|_| Installation::new(|_| flags.clone())).collect();
        let services = installations.iter().map(Installation::start).collect();
        let nodes = Self { services, _installations: installations, questions, vault, tokens, pool, nats, database };
        until("nodes that see one another", || {
            let see_all = (0..count).all(|node| nodes.counted(node, "/node/live") == Some(count));
            Ok(see_all.then_some(()))
        })?;
        Ok(nodes)
    }

    pub fn count(&self) -> usize {
        self.services.len()
    }

    /// A count in the status of this node.
    fn counted(&self, node: usize, of: &str) -> Option<usize> {
        let status = self.questions.ask(&format!("{}/status", self.services[node].addresses.api)).ok()?;
        usize::try_from(status.pointer(of)?.as_u64()?).ok()
    }

    /// Pairs these game servers, each for the user of its number, and shares them out among further users as guests. Each
    /// has its node and its link when this returns: the numbers of their nodes.
    pub fn pair(&self, games: &[Game], users: usize) -> Result<Vec<usize>> {
        let now = now();
        let pair = |db: &mut Db, number: usize, game: &Game| {
            let (id, address, port) = (server(number), game.address.ip().to_string(), game.address.port());
            let pairing = StoredPairing {
                owner: user(number),
                game_server_id: None,
                name: "Bench".to_owned(),
                player_token_sealed: self.vault.seal_player_token(&id, &address, port, TOKEN),
                address,
                port,
                player_id: PLAYER.to_string(),
                key_version: self.vault.key_version(),
            };
            paired_servers::put(db, &id, &pairing, now).map(drop)
        };
        let invite = |db: &mut Db, number: usize| -> std::result::Result<(), DbError> {
            let (guest, watched) = (user(number), server(number % games.len()));
            let row = (
                guests::id.eq(format!("guest-{number}")),
                guests::server_id.eq(watched.as_str()),
                guests::user_id.eq(guest.as_str()),
                guests::invited_at.eq(now),
                guests::since.eq(now),
            );
            diesel::insert_into(guests::table).values(row).execute(db)?;
            Ok(())
        };
        self.pool.write_blocking(|db: &mut Db| {
            games.iter().enumerate().try_for_each(|(number, game)| pair(db, number, game))?;
            (games.len()..users).try_for_each(|number| invite(db, number))
        })?;
        until("link to each game server", || self.linked(games))
    }

    /// The node of each of these game servers, once each has one and its link is up.
    fn linked(&self, games: &[Game]) -> Result<Option<Vec<usize>>> {
        let part = |game: &Game| PartId::links(&GameServerId::at(&game.address.ip().to_string(), game.address.port()));
        let parts: Vec<PartId> = games.iter().map(part).collect();
        let all: BTreeSet<PartId> = parts.iter().cloned().collect();
        let (nodes, held) =
            self.pool.read_blocking(|db| Ok((held_parts::holders(db)?, held_parts::holders_of(db, &all)?)))?;
        if nodes.len() < self.count() {
            return Ok(None);
        }
        // The name of a node begins with the time of its start: they are in the order in which they were started.
        let place = |part: &PartId| match held.get(part)? {
            PartHolder::Node(holder) => nodes.iter().position(|node| node == holder),
            PartHolder::Free => None,
        };
        let Some(places) = parts.iter().map(place).collect::<Option<Vec<usize>>>() else { return Ok(None) };
        let is_linked = |node: usize| {
            let count = places.iter().filter(|place| **place == node).count();
            ["/node/gameServers", "/links/connected"].iter().all(|of| self.counted(node, of) == Some(count))
        };
        Ok((0..self.count()).all(is_linked).then_some(places))
    }

    /// A seat of this user at a node, before this server.
    pub fn seat(&self, node: usize, of_user: usize, of_server: usize) -> Seat {
        let user = user(of_user);
        let session = SessionId::from(user.as_str());
        let (token, _) = self.tokens.mint(&RelayClaims { user, session, access: RelayAccess::Session }, now());
        Seat { relay: self.services[node].addresses.relay, token, server: server(of_server).to_string() }
    }

    /// Figures since the start.
    pub fn figures(&self) -> Result<Figures> {
        let traffic = self.questions.ask(&format!("{}/varz", self.nats.monitor))?;
        let figure = |name: &str| traffic[name].as_f64().ok_or_else(|| format!("NATS gives no {name}"));
        let used = |process: u32| -> Result<f64> { Ok(Processor::of(process)?.total()) };
        Ok(Figures {
            seconds: stamp() as f64 / 1e6,
            nodes: self.services.iter().map(|service| used(service.id())).collect::<Result<_>>()?,
            nats: used(self.nats.id())?,
            received: figure("in_msgs")?,
            sent: figure("out_msgs")?,
            bytes: figure("in_bytes")?,
            transactions: self.transactions()?,
        })
    }

    /// Figures of so much time from now.
    pub fn over(&self, span: Duration) -> Result<Figures> {
        let before = self.figures()?;
        thread::sleep(span);
        Ok(self.figures()?.since(&before))
    }

    /// Memory of each node, MiB.
    pub fn memory(&self) -> Result<Vec<f64>> {
        let memory = |service: &Service| -> Result<f64> { Ok(proportional(service.id())? / 1_024.0) };
        self.services.iter().map(memory).collect()
    }

    fn transactions(&self) -> Result<f64> {
        let query =
            "SELECT xact_commit + xact_rollback AS count FROM pg_stat_database WHERE datname = current_database()";
        let mut connection = PgConnection::establish(&self.database.url())?;
        Ok(diesel::sql_query(query).get_result::<Transactions>(&mut connection)?.count as f64)
    }
}
