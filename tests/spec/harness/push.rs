//! The simulated push service beside the service, and what the service has stored of its pushes.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{Arc, mpsc},
    thread,
};

use chrono::{Duration, TimeDelta};
use companion::{
    clock::Clock,
    config::Database,
    db::{
        engine::pool::{Db, Pool},
        push_refusals,
        schema::{alarms, incidents, timeline, users},
    },
    domain::{credential::RefusalReason, ids::UserId, time::Timestamp},
    simulator::{
        game_server::{DEMO_TOKEN, GameServer},
        push_service::{PushService, PushedServer},
    },
};
use diesel::{dsl::sql, expression::SqlLiteral, prelude::*, sql_query, sql_types::BigInt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use super::{
    app::{LINKS, TestApp},
    binary::companion,
    browser::Browser,
    game::ALICE,
    helper::HelperDevice,
    relay_client::PATIENCE,
};

/// Alice's phones, as she registers again, and Bob's: Android id and security token.
pub const PHONE: (u64, u64) = (5_000_000_000_000_000_001, 6_000_000_000_000_000_001);
pub const NEW_PHONE: (u64, u64) = (5_000_000_000_000_000_002, 6_000_000_000_000_000_002);
pub const BOBS_PHONE: (u64, u64) = (5_000_000_000_000_000_003, 6_000_000_000_000_000_003);

pub struct PushTest {
    pub app: TestApp,
    pub push: Arc<PushService>,
    pub pool: Pool,
    directory: TempDir,
}

/// A database that takes no write, until this is dropped.
pub struct HangingDatabase {
    release: Option<mpsc::Sender<()>>,
    holder: Option<thread::JoinHandle<()>>,
}

impl Drop for HangingDatabase {
    fn drop(&mut self) {
        drop(self.release.take());
        let _ = self.holder.take().map(thread::JoinHandle::join);
    }
}

/// An alarm of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerRow {
    pub path: String,
    pub title: String,
    pub state: String,
    pub incident: Option<String>,
    pub finished_at: Option<Timestamp>,
    /// Its incident: state, and sockets that took it.
    pub heard: Option<(String, i64)>,
}

impl LedgerRow {
    /// Path, title, state, and of one that opened an incident the sockets that took it.
    pub fn brief(&self) -> (&str, &str, &str, Option<i64>) {
        let sockets = self.heard.as_ref().filter(|_| self.state == "opened").map(|(_, sockets)| *sockets);
        (&self.path, &self.title, &self.state, sockets)
    }
}

/// An entry of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineRow {
    pub kind: String,
    pub server: Option<String>,
    pub ts: Timestamp,
    pub title: String,
    pub message: String,
}

impl PushTest {
    /// Only servers on the internet may be paired, and there is no connection to any.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Where simulated game servers may be paired.
    pub async fn start_beside_games() -> Self {
        Self::start_with(&["--allow-private-game-servers=true", LINKS]).await
    }

    async fn start_with(flags: &[&str]) -> Self {
        Self::start_for(vec![PHONE, NEW_PHONE, BOBS_PHONE], flags).await
    }

    /// The push service knows these phones, each by its Android id and security token.
    pub async fn start_for(phones: Vec<(u64, u64)>, flags: &[&str]) -> Self {
        let push = PushService::start((Ipv4Addr::LOCALHOST, 0).into(), phones, Clock::system()).await.unwrap();
        let trusted = push.ca_pem().to_owned();
        Self::start_trusting(push, &trusted, flags).await
    }

    /// The service trusts this certificate authority, whatever the push service shows.
    pub async fn start_trusting(push: PushService, ca_pem: &str, flags: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let (file, ca) = (directory.path().join("test.db"), directory.path().join("ca.pem"));
        std::fs::write(&ca, ca_pem).unwrap();
        let (address, ca) = (format!("--push-address={}", push.addr()), format!("--extra-ca-file={}", ca.display()));
        let flags = [flags, &[address.as_str(), ca.as_str()]].concat();
        let app = TestApp::start_on(format!("sqlite:{}", file.display()), &flags).await;
        let pool = Pool::open(&Database::Sqlite(file)).unwrap();
        Self { app, push: Arc::new(push), pool, directory }
    }

    /// Stops the service and starts it again; the push service runs on.
    pub async fn restart(self) -> Self {
        self.restart_after(|_| {}).await
    }

    /// Restarts, with something done to the database while it does not run.
    pub async fn restart_after(self, meanwhile: impl FnOnce(&Pool)) -> Self {
        let Self { app, push, pool, directory } = self;
        let app = app.restart_after(|| meanwhile(&pool)).await;
        Self { app, push, pool, directory }
    }

    /// Signs Alice in, with a helper device of hers.
    pub async fn alice(&self) -> (Browser, HelperDevice) {
        let mut alice = self.app.signed_in(ALICE).await;
        let helper = self.app.paired(&mut alice).await;
        (alice, helper)
    }

    /// Alice, whose credential has been uploaded and used.
    pub async fn alice_receiving(&self) -> (Browser, HelperDevice) {
        let (alice, mut helper) = self.alice().await;
        upload(&mut helper, PHONE).await;
        self.until(|push| push.connected(PHONE.0)).await;
        (alice, helper)
    }

    /// Pushes to Alice's phone, sent now.
    pub fn push(&self, app_data: Vec<(String, String)>) -> String {
        self.push_sent(PHONE, app_data, self.app.clock.now())
    }

    /// Pushes to this phone as if sent then; it waits as long as it takes.
    pub fn push_sent(&self, phone: (u64, u64), app_data: Vec<(String, String)>, sent: Timestamp) -> String {
        self.push.push_at(phone.0, app_data, sent, TimeDelta::days(36_500))
    }

    /// Pushes to Alice's phone, and waits until the service has acknowledged it.
    pub async fn deliver(&self, app_data: Vec<(String, String)>) {
        self.push(app_data);
        self.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    }

    /// Waits until this holds at the push service.
    #[track_caller]
    pub fn until(&self, holds: impl Fn(&PushService) -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let held = timeout(PATIENCE, self.push.until(holds)).await;
            assert!(held.is_ok(), "it never held, at {caller}: {:?}", self.push.counts());
            assert_eq!(self.push.counts().violations, Vec::<String>::new(), "at {caller}");
        }
    }

    /// The ledger, in the order in which it was written.
    pub async fn ledger(&self) -> Vec<LedgerRow> {
        let columns = (alarms::path, alarms::title, alarms::state, alarms::incident, alarms::finished_at);
        let rows = self.pool.read(move |db| {
            let rows = alarms::table.order(stored()).select(columns).load(db)?;
            let heard = incidents::table.select((incidents::id, incidents::state, incidents::sockets)).load(db)?;
            Ok((rows, heard))
        });
        type Row = (String, String, String, Option<String>, Option<Timestamp>);
        let (rows, heard): (Vec<Row>, Vec<(String, String, i64)>) = rows.await.unwrap();
        let heard: HashMap<String, (String, i64)> =
            heard.into_iter().map(|(id, state, sockets)| (id, (state, sockets))).collect();
        let row = |(path, title, state, incident, finished_at): Row| {
            let heard = incident.as_ref().and_then(|incident| heard.get(incident)).cloned();
            LedgerRow { path, title, state, incident, finished_at, heard }
        };
        rows.into_iter().map(row).collect()
    }

    /// The ledger, once it is this: path, title, state and sockets of each alarm, all finished.
    #[track_caller]
    pub fn ledger_until(&self, expected: &[(&str, &str, &str, Option<i64>)]) -> impl Future<Output = Vec<LedgerRow>> {
        let caller = std::panic::Location::caller();
        async move {
            let mut rows = Vec::new();
            let reached = async {
                loop {
                    rows = self.ledger().await;
                    let finished = rows.iter().all(|row| row.finished_at.is_some());
                    if finished && rows.iter().map(LedgerRow::brief).eq(expected.iter().copied()) {
                        return;
                    }
                }
            };
            let reached = timeout(PATIENCE, reached).await;
            assert!(reached.is_ok(), "at {caller}: {rows:?}");
            rows
        }
    }

    /// The part of the timeline that came by push, in the order in which it was written.
    pub async fn timeline(&self) -> Vec<TimelineRow> {
        let columns = (timeline::kind, timeline::server_id, timeline::ts, timeline::title, timeline::data);
        let pushed = timeline::table.filter(timeline::action.eq("pushed"));
        let rows = self.pool.read(move |db| Ok(pushed.order(stored()).select(columns).load(db)?)).await.unwrap();
        let row = |(kind, server, ts, title, data): (String, Option<String>, Timestamp, String, String)| {
            let data: Value = serde_json::from_str(&data).unwrap();
            TimelineRow { kind, server, ts, title, message: data["message"].as_str().unwrap().to_owned() }
        };
        rows.into_iter().map(row).collect()
    }

    /// From now on the database refuses to store an alarm with the title "Poison", for this reason.
    pub fn refuse(&self, reason: &str) {
        self.execute(&format!(
            "CREATE TRIGGER poison BEFORE INSERT ON alarms WHEN NEW.title = 'Poison' \
             BEGIN SELECT RAISE(ABORT, '{reason}'); END"
        ));
    }

    /// Like that, but only while no incident has it: the push cannot be stored, its incident can.
    pub fn refuse_received(&self, reason: &str) {
        self.execute(&format!(
            "CREATE TRIGGER poison BEFORE INSERT ON alarms WHEN NEW.title = 'Poison' AND NEW.state = 'received' \
             BEGIN SELECT RAISE(ABORT, '{reason}'); END"
        ));
    }

    /// Locks the database against other writers until this is dropped: for the service it hangs.
    pub fn hang(&self) -> HangingDatabase {
        let (pool, (hangs, hanging), (release, released)) = (self.pool.clone(), mpsc::channel(), mpsc::channel::<()>());
        let holder = thread::spawn(move || {
            let held = pool.write_blocking(|_| {
                hangs.send(()).expect("the test waits for it");
                // The wait ends when the other side is dropped.
                let _ = released.recv();
                Ok(())
            });
            held.expect("nothing was written");
        });
        hanging.recv().expect("the write lock is taken");
        HangingDatabase { release: Some(release), holder: Some(holder) }
    }

    /// Lets the database store everything again.
    pub fn refuse_nothing(&self) {
        self.execute("DROP TRIGGER poison");
    }

    fn execute(&self, statement: &str) {
        self.pool.write_blocking(|db| Ok(sql_query(statement).execute(db).map(drop)?)).unwrap();
    }

    /// Waits until a refusal of Alice's credential is stored for this reason.
    pub async fn refused(&self, reason: RefusalReason) {
        let stored = async {
            let mut found = None;
            while found != Some(reason) {
                let user = self.user_of(ALICE);
                found = self.pool.read(move |db| push_refusals::get(db, &user)).await.unwrap().map(|it| it.reason);
            }
        };
        timeout(PATIENCE, stored).await.expect("it is refused");
    }

    /// The user with this account.
    pub fn user_of(&self, account: &str) -> UserId {
        let user = |db: &mut Db| Ok(users::table.filter(users::platform_id.eq(account)).select(users::id).first(db)?);
        UserId::from(self.pool.read_blocking::<String>(user).unwrap())
    }

    /// Output of a command of the binary about this database.
    pub fn printed(&self, command: &[&str]) -> String {
        let url = format!("--database-url=sqlite:{}", self.directory.path().join("test.db").display());
        let output = companion(self.directory.path()).args(command).arg(url).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Number of pushes that changed nothing for this reason, in this process.
    pub async fn ignored(&self, reason: &str) -> u64 {
        self.metric(&format!("companion_push_ignored_total{{reason=\"{reason}\"}}")).await
    }

    /// A number of `GET /metrics`; 0 while there is none.
    pub async fn metric(&self, name: &str) -> u64 {
        let text = self.app.browser().get("/metrics").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or_default()
    }

    /// This many minutes back in time, seen from the service.
    pub fn ago(&self, minutes: i64) -> Timestamp {
        self.app.clock.now() - Duration::minutes(minutes)
    }
}

/// The order in which SQLite stored the rows: ids of one moment are in no order, and the clock is stopped.
fn stored() -> SqlLiteral<BigInt> {
    sql("rowid")
}

/// A bundle of this account for this phone.
pub fn bundle(account: &str, phone: (u64, u64)) -> Value {
    json!({
        "platformId": account,
        "fcm_credentials": { "gcm": { "androidId": phone.0.to_string(), "securityToken": phone.1.to_string() } },
    })
}

/// Uploads a bundle of Alice's; what was answered.
pub async fn upload(helper: &mut HelperDevice, phone: (u64, u64)) -> Value {
    let answer = helper.upload(&bundle(ALICE, phone)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Waits for the state of the push session.
#[track_caller]
pub fn session_is(browser: &mut Browser, state: &str) -> impl Future<Output = Value> {
    browser.get_until("/credentials/push", move |shown| shown["session"]["state"] == state)
}

/// The simulated game server as its pushes name it.
pub fn named(game: &GameServer) -> PushedServer {
    at("127.0.0.1", game.addr().port())
}

/// A game server there.
pub fn at(ip: &str, port: u16) -> PushedServer {
    PushedServer { id: format!("guid of {ip}:{port}"), name: "Sim Valley".to_owned(), ip: ip.to_owned(), port }
}

/// Alice presses "pair" there.
pub fn pairing(server: &PushedServer) -> Vec<(String, String)> {
    server.pairing(ALICE.parse().unwrap(), DEMO_TOKEN)
}

/// Alice presses "pair" at a smart alarm there.
pub fn alarm_pairing(server: &PushedServer, device: u64, name: &str) -> Vec<(String, String)> {
    server.entity_pairing(ALICE.parse().unwrap(), DEMO_TOKEN, device, 2, name)
}

/// The paired servers, as their owner sees them.
pub async fn servers(browser: &mut Browser) -> Vec<Value> {
    let answer = browser.get("/paired-servers").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["servers"].as_array().unwrap().clone()
}

/// The id of the only one.
pub async fn only_server(browser: &mut Browser) -> String {
    let servers = servers(browser).await;
    assert_eq!(servers.len(), 1, "{servers:?}");
    servers[0]["id"].as_str().unwrap().to_owned()
}
