//! Databases for tests: a SQLite file each, and with TEST_POSTGRES_URL a PostgreSQL database each.

mod migrated;

use std::{
    env,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, Once},
    thread,
};

use bytes::Bytes;
use chrono::Duration;
use diesel::{Connection as _, PgConnection, connection::SimpleConnection as _};
use secrecy::SecretString;
use url::Url;

use crate::{
    config::Database,
    crypto::random::Random,
    db::{
        alarms::{
            alarm_ledger::{AlarmState, LedgerAlarm},
            incidents::LedgerWrite,
        },
        engine::{
            pool::{Db, Pool},
            prelude::RunQuery as _,
            schema_steps,
        },
        guests::{self, InviteKey, Invitee},
        paired_servers::{self, PairedServer, StoredPairing},
        users,
    },
    domain::{
        detect::wipe::World,
        incident::{AlarmPath, DevicePlace, Incident},
        monument::Monument,
        time::Timestamp,
        timeline::TimelineEntry,
        world_map::{MapDrawing, MapPicture, WorldMap},
    },
};

/// An empty PostgreSQL database, dropped with this value.
pub struct Postgres {
    server: String,
    name: String,
}

impl Postgres {
    /// `None` when TEST_POSTGRES_URL, a role that may create databases, is not set.
    pub fn create() -> Option<Self> {
        let postgres = Self::named()?;
        let create = format!("CREATE DATABASE {}", postgres.name);
        postgres.server().batch_execute(&create).expect("its role may make databases");
        Some(postgres)
    }

    /// The name of one that is to be made.
    fn named() -> Option<Self> {
        let Ok(server) = env::var("TEST_POSTGRES_URL") else {
            static ONCE: Once = Once::new();
            // Past the test harness, which hides what a passing test prints.
            ONCE.call_once(|| {
                let _ = writeln!(io::stderr(), "database tests SKIP PostgreSQL: TEST_POSTGRES_URL is not set");
            });
            return None;
        };
        let name = format!("companion_test_{}", Random::system().hex::<8>());
        Some(Self { server, name })
    }

    /// One with the newest schema.
    pub fn create_migrated() -> Option<Self> {
        let postgres = Self::named()?;
        migrated::create_on_postgres(&postgres.server, &postgres.name, || migrate(&postgres.database()));
        Some(postgres)
    }

    pub fn database(&self) -> Database {
        Database::Postgres(SecretString::from(String::from(self.url())))
    }

    /// A connection to the server, and not to this database.
    pub fn server(&self) -> PgConnection {
        PgConnection::establish(&self.server).expect("TEST_POSTGRES_URL answers")
    }

    /// Takes new connections, or refuses them.
    pub fn admit(&self, admit: bool) {
        let allow = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {admit}", self.name);
        self.server().batch_execute(&allow).expect("it is our own");
    }

    /// Ends all connections and refuses new ones, or takes them again.
    pub fn refuse(&self, refuse: bool) {
        self.admit(!refuse);
        if refuse {
            let name = &self.name;
            let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
            self.server().batch_execute(&end).expect("they are our own");
        }
    }

    fn url(&self) -> Url {
        let mut url = Url::parse(&self.server).expect("TEST_POSTGRES_URL is a URL");
        url.set_path(&self.name);
        url
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let dropped = PgConnection::establish(&self.server)
            .map(|mut connection| connection.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)));
        if !matches!(dropped, Ok(Ok(()))) {
            eprintln!("the test database {} is left behind", self.name);
        }
    }
}

/// Between the service and PostgreSQL: forwards until it freezes, as a server that is stopped does.
pub struct FreezingRelay {
    url: Url,
    frozen: Arc<(Mutex<bool>, Condvar)>,
}

impl FreezingRelay {
    pub fn before(postgres: &Postgres) -> Self {
        let mut url = postgres.url();
        let target = (url.host_str().expect("a host").to_owned(), url.port().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(address.port())).expect("a port");
        let frozen = Arc::new((Mutex::new(false), Condvar::new()));
        let state = frozen.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect((target.0.as_str(), target.1)).expect("PostgreSQL answers");
                let back = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
                for (from, to) in [(client, server), back] {
                    let state = state.clone();
                    thread::spawn(move || forward(from, to, &state));
                }
            }
        });
        Self { url, frozen }
    }

    pub fn database(&self) -> Database {
        Database::Postgres(SecretString::from(self.url.to_string()))
    }

    pub fn freeze(&self, frozen: bool) {
        *self.frozen.0.lock().expect("no panic") = frozen;
        self.frozen.1.notify_all();
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, (frozen, thawed): &(Mutex<bool>, Condvar)) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        drop(thawed.wait_while(frozen.lock().expect("no panic"), |frozen| *frozen));
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Runs the test on an empty, migrated database of each engine.
pub fn on_each_database(test: impl Fn(&Pool)) {
    on_sqlite(&test);
    if let Some(postgres) = Postgres::create_migrated() {
        eprintln!("on PostgreSQL:");
        test(&Pool::open(&postgres.database()).expect("PostgreSQL opens"));
    }
}

/// Runs a test on SQLite alone.
pub fn on_sqlite(test: impl FnOnce(&Pool)) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    eprintln!("on SQLite:");
    let path = directory.path().join("test.db");
    migrated::create_on_sqlite(&path, |path| migrate(&Database::Sqlite(path.to_owned())));
    test(&Pool::open(&Database::Sqlite(path)).expect("SQLite opens"));
}

fn migrate(database: &Database) {
    schema_steps::migrate(database).expect("it is new");
}

/// Makes rows unreadable. On SQLite alone: PostgreSQL takes nothing but a time as a time.
pub fn spoil(pool: &Pool, sql: &str) {
    let spoilt = pool.write_blocking(|db| Ok(diesel::sql_query(sql).execute(db)?));
    assert_ne!(spoilt.expect("it is taken"), 0, "{sql}");
}

/// Waits until another transaction waits for this one, on PostgreSQL.
pub fn until_another_waits(db: &mut Db) {
    let Db::Pg(db) = db else { panic!("transactions of SQLite come one after the other") };
    let waits = "pg_backend_pid() = ANY(pg_blocking_pids(pid))";
    let waiting = || diesel::sql_query(format!("SELECT 1 FROM pg_stat_activity WHERE {waits}"));
    while waiting().execute(db).expect("PostgreSQL answers") == 0 {
        thread::yield_now();
    }
}

/// An instant with microseconds.
pub fn now() -> Timestamp {
    Timestamp::from_timestamp_micros(1_800_000_000_123_456).expect("within the calendar")
}

/// This many seconds after [`now`].
pub fn later(seconds: i64) -> Timestamp {
    now() + Duration::seconds(seconds)
}

/// Adds a user whose account has the same id.
pub fn user(pool: &Pool, id: &str) {
    pool.write_blocking(|db| users::sign_in(db, &id.into(), &id.into(), None, now())).expect("the user is new");
}

/// A pairing of this owner.
pub fn pairing(owner: &str) -> StoredPairing {
    StoredPairing {
        owner: owner.into(),
        game_server_id: None,
        name: "Test server".into(),
        address: "192.0.2.1".into(),
        port: 28082,
        player_id: "76561198000000001".into(),
        player_token_sealed: b"sealed".to_vec(),
        key_version: 1,
    }
}

/// A push of Alice for her server "one", as the inbox stores it.
pub fn received_alarm(id: &str) -> LedgerAlarm {
    LedgerAlarm {
        id: id.into(),
        user: "alice".into(),
        server: Some("one".into()),
        path: AlarmPath::Push,
        alarm_id: String::new(),
        title: "Roof".into(),
        message: String::new(),
        state: AlarmState::Received,
        incident: None,
        received_at: now(),
        sent_at: Some(now()),
    }
}

/// An alarm of the link to the server "one", which has opened this incident.
pub fn opened_alarm(id: &str, incident: &str) -> LedgerAlarm {
    LedgerAlarm {
        user: "".into(),
        path: AlarmPath::Link,
        alarm_id: "7".into(),
        state: AlarmState::Opened,
        incident: Some(incident.into()),
        sent_at: None,
        ..received_alarm(id)
    }
}

/// A ledger's write of an incident that goes on, which has this count.
pub fn incident_write(id: &str, count: u32) -> LedgerWrite {
    let incident = Incident {
        alarm_id: "7".into(),
        alarm_name: "Roof".into(),
        place: DevicePlace::default(),
        first_at: now(),
        last_at: now(),
        ended_at: None,
        count,
        paths: Default::default(),
        late: false,
        drill: false,
        acks: Default::default(),
    };
    LedgerWrite { incidents: [(id.to_owned(), (incident, None))].into(), ..Default::default() }
}

/// An entry of the timeline without a place.
pub fn timeline_entry(id: &str, kind: &str, ts: Timestamp) -> TimelineEntry {
    let (id, kind, action, title) = (id.to_owned(), kind.to_owned(), "seen".to_owned(), String::new());
    TimelineEntry { id, kind, action, ts, grid: String::new(), x: None, y: None, title, data: Default::default() }
}

/// The map of the world of this seed.
pub fn world_map(seed: u32, jpeg: &'static [u8]) -> WorldMap {
    let picture = MapPicture { width: 40, height: 30, margin: 5, jpeg: Bytes::from_static(jpeg) };
    WorldMap {
        world: World { seed: Some(seed), map_size: Some(3_000), ..World::default() },
        monuments: Monument::new("launchsite", 1.5, 2.5).into_iter().collect(),
        drawing: MapDrawing { background: Some("#12404D".into()), picture: Some(picture) },
    }
}

/// Makes the user a guest of the server, whose account has the same id.
pub fn guest(pool: &Pool, id: &str, server: &str, user: &str) {
    let accepted = pool.write_blocking(|db| {
        let account = Invitee::Account(user.into());
        guests::invite(db, &id.into(), &server.into(), &account, None, now())?.expect("the account is not known there");
        let user = users::find(db, &user.into())?.expect("the user is there");
        guests::accept(db, &InviteKey::Account(id.into()), &user, now())
    });
    accepted.expect("the database answers").expect("the invitation is open");
}

/// Adds a paired server.
pub fn server(pool: &Pool, owner: &str, id: &str) -> PairedServer {
    pool.write_blocking(|db| paired_servers::put(db, &id.into(), &pairing(owner), now())).expect("it is new")
}
