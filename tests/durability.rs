//! Writes that were answered with success are on disk: the real binary is killed in the middle of a burst of writes,
//! and all that it had answered is there after the next start.

#![allow(clippy::disallowed_methods, reason = "a test is not part of a simulated run")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chrono::{Timelike as _, Utc};
use companion::{
    api::context::ApiContext,
    clock::Clock,
    crypto::random::Random,
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        money::{payment_events, subscriptions},
    },
    demo,
    domain::{ids::UserId, money::tier::SubscriptionStatus},
    simulator::payments::{PaymentFaults, PaymentService},
};
use diesel::{
    QueryableByName, RunQueryDsl as _, sql_query,
    sql_types::{BigInt, Text},
};
use futures_util::future::join_all;
use reqwest::{Client, Method, header::COOKIE};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

mod crash;

use crash::{Installation, Seeded, binary};

const ROUNDS: usize = 6;
/// Users who write at the same time; each may pair 50 servers.
const USERS: u64 = 4;
const SEED: u64 = 20_261_121;

/// Signs the users in; their cookies.
async fn sign_in(context: &ApiContext) -> Vec<String> {
    let mut cookies = Vec::new();
    for user in 0..USERS {
        cookies.push(demo::user::sign_in(context, 76_561_198_000_000_001 + user, "Writer").await.unwrap().cookie);
    }
    cookies
}

/// Answers to one user: the paired servers with their devices, `None` for a deleted one.
type Answered = BTreeMap<String, Option<Vec<String>>>;

/// A user who writes for as long as the service answers.
struct Writer {
    http: Client,
    base: String,
    cookie: String,
    known: Answered,
    /// Servers whose deletion was requested and not answered: they may be there or not.
    deleting: Vec<String>,
    port: u16,
}

impl Writer {
    fn new(http: Client, cookie: String) -> Self {
        Self { http, base: String::new(), cookie, known: Answered::new(), deleting: Vec::new(), port: 0 }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let request = self.http.request(method, format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await.ok()?;
        Some((status, if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).ok()? }))
    }

    /// Pairs a server, adds two devices, and deletes every third server; `None` when the service is dead.
    async fn write(&mut self, answered: &(impl Fn() + ?Sized)) -> Option<()> {
        self.port += 1;
        let pairing = json!({
            "address": "play.example.com", "port": self.port, "playerId": "76561198000000001", "playerToken": 1
        });
        let (status, server) = self.ask(Method::POST, "/paired-servers", Some(pairing)).await?;
        assert_eq!(status, 201, "{server}");
        let server = server["id"].as_str().unwrap().to_owned();
        self.known.insert(server.clone(), Some(Vec::new()));
        answered();
        for device in 1..=2 {
            let path = format!("/paired-servers/{server}/devices");
            let (status, answer) = self.ask(Method::POST, &path, Some(json!({ "entityId": device }))).await?;
            assert_eq!(status, 201, "{answer}");
            self.known.get_mut(&server).unwrap().as_mut().unwrap().push(device.to_string());
            answered();
        }
        if self.port.is_multiple_of(3) {
            self.deleting.push(server.clone());
            let (status, answer) = self.ask(Method::DELETE, &format!("/paired-servers/{server}"), None).await?;
            assert_eq!(status, 200, "{answer}");
            self.deleting.pop();
            self.known.insert(server, None);
            answered();
        }
        Some(())
    }

    /// Everything that was answered with success is there, and what was deleted is not.
    async fn check(&mut self) {
        let (_, listed) = self.ask(Method::GET, "/paired-servers", None).await.expect("it is up again");
        let listed: Vec<&str> =
            listed["servers"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap()).collect();
        for (server, devices) in &self.known {
            if self.deleting.contains(server) {
                continue;
            }
            assert_eq!(listed.contains(&server.as_str()), devices.is_some(), "{server}");
            let Some(devices) = devices else { continue };
            let path = format!("/paired-servers/{server}/devices");
            let (_, kept) = self.ask(Method::GET, &path, None).await.expect("it is up again");
            let kept = kept["devices"].as_array().unwrap();
            for device in devices {
                assert!(kept.iter().any(|kept| kept["deviceId"] == device.as_str()), "{device} of {server}");
            }
        }
    }

    /// Makes room for the next round.
    async fn clear(&mut self) {
        let (_, listed) = self.ask(Method::GET, "/paired-servers", None).await.expect("it is up again");
        for server in listed["servers"].as_array().unwrap() {
            let path = format!("/paired-servers/{}", server["id"].as_str().unwrap());
            assert_eq!(self.ask(Method::DELETE, &path, None).await.expect("it answers").0, 200);
        }
        self.known.clear();
        self.deleting.clear();
    }
}

#[actix_web::test]
async fn nothing_that_was_answered_is_lost_when_the_process_is_killed() {
    // No game server is dialled: only the writes matter.
    let installation = Installation::new(|_| {
        ["--push-address=127.0.0.1:9", "--game-link-policy=subscribed"].map(str::to_owned).into()
    });
    let cookies = installation.fill(sign_in);
    let http = binary::http();
    let mut writers: Vec<Writer> = cookies.into_iter().map(|cookie| Writer::new(http.clone(), cookie)).collect();
    let mut random = Seeded(SEED);
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let kill_after = 1 + random.below(60);
        let service = Arc::new(Mutex::new(installation.start()));
        let answers = Arc::new(AtomicUsize::new(0));
        let base = service.lock().unwrap().addresses.api.clone();
        let burst = writers.iter_mut().map(|writer| {
            writer.base.clone_from(&base);
            let (service, answers) = (service.clone(), answers.clone());
            // The answer of that number kills the service, while the requests of the other users are under way.
            let answered = move || {
                if answers.fetch_add(1, Ordering::Relaxed) + 1 == kill_after {
                    service.lock().unwrap().kill();
                }
            };
            async move { while writer.write(&answered).await.is_some() {} }
        });
        join_all(burst).await;
        assert!(answers.load(Ordering::Relaxed) >= kill_after, "round {round}: it ended too early");
        acknowledged += answers.load(Ordering::Relaxed);
        drop(service);

        let again = installation.start();
        for writer in &mut writers {
            writer.base.clone_from(&again.addresses.api);
            writer.check().await;
            writer.clear().await;
        }
    }
    assert!(acknowledged >= ROUNDS, "{acknowledged} answers in all");
}

async fn sign_in_payer(context: &ApiContext) -> UserId {
    demo::user::sign_in(context, 76_561_198_000_000_001, "Payer").await.unwrap().id
}

#[actix_web::test]
async fn a_payment_event_is_applied_once_whenever_the_process_is_killed() {
    let provider = PaymentService::start(([127, 0, 0, 1], 0).into(), Clock::system(), Random::system()).await.unwrap();
    provider.set_faults(PaymentFaults { hold_events: true, answer_delay: 5, ..Default::default() });
    let installation = Installation::new(|_| {
        let flag = |(name, value): (&str, String)| format!("--{}={value}", name.to_lowercase().replace('_', "-"));
        let own = ["--push-address=127.0.0.1:9", "--game-link-policy=subscribed"].map(str::to_owned);
        own.into_iter().chain(provider.settings().into_iter().map(flag)).collect()
    });
    let payer = installation.fill(sign_in_payer);
    let (http, mut random) = (binary::http(), Seeded(SEED));
    for round in 0..ROUNDS {
        let id = provider.subscribe(&format!("cus_{round}"), Some(payer.as_str()), "price_operator");
        let event = provider.events().pop().unwrap();
        let event_id = event["id"].as_str().unwrap().to_owned();
        let event = event.to_string();
        let send = |api: &str| {
            let signature = provider.signature(&event);
            let request = http.post(format!("{api}/billing/webhook")).header("stripe-signature", signature);
            request.body(event.clone()).send()
        };
        let mut service = installation.start();
        let sent = actix_web::rt::spawn(send(&service.addresses.api));
        sleep(Duration::from_millis(random.below(40) as u64)).await;
        service.kill();
        // The request may have been answered, or not.
        let _ = sent.await.unwrap();
        let pool = Pool::open(&installation.database()).unwrap();
        let stored = || {
            let stored = pool.read_blocking(|db| subscriptions::get(db, &id)).unwrap();
            stored.map(|stored| (stored.owned.subscription.status, stored.version))
        };
        let was_settled = pool.read_blocking(|db| payment_events::is_settled(db, &event_id)).unwrap();
        let after_kill = stored();
        assert!(!was_settled || after_kill.is_some(), "round {round}: its effect was stored with it");

        // The provider sends it again, and once more.
        let again = installation.start();
        let mut after = Vec::new();
        for _ in 0..2 {
            let answer = send(&again.addresses.api).await.unwrap();
            assert_eq!(answer.status(), 200, "round {round}");
            after.push(stored().expect("it is stored"));
        }
        drop(again);
        assert_eq!(after[0].0, SubscriptionStatus::Active);
        // At night (UTC) the comparison of a start may store the subscription before its event comes.
        let most = if [3, 4].contains(&Utc::now().hour()) { 2 } else { 1 };
        assert!((1..=most).contains(&after[0].1), "round {round}: its effect was applied once, {after:?}");
        assert_eq!(after[1], after[0], "round {round}: its effect was applied once");
        assert!(!was_settled || after_kill == Some(after[0]), "round {round}: its effect was applied before the kill");
    }
}

/// The account of the first user who is erased; the others follow.
const LEAVER: u64 = 76_561_198_000_000_101;
/// Entries of the timeline of each of them: enough that an erasure takes a while.
const ENTRIES: usize = 10_000;

#[derive(QueryableByName)]
struct NamingRows {
    #[diesel(sql_type = Text)]
    place: String,
    #[diesel(sql_type = BigInt)]
    rows: i64,
}

/// The columns in which rows have one of these words, and how many.
fn naming(db: &mut Db, words: &[String]) -> Result<BTreeMap<String, i64>, DbError> {
    let columns = "SELECT m.name || '.' || c.name AS place, 0 AS rows FROM sqlite_master m, pragma_table_info(m.name) c
        WHERE m.type = 'table' AND lower(c.type) = 'text'";
    let mut found = BTreeMap::new();
    for NamingRows { place, .. } in sql_query(columns).load(db)? {
        let (table, column) = place.split_once('.').expect("a table and a column");
        let has = words.iter().map(|word| format!("{column} LIKE '%{word}%'")).collect::<Vec<_>>().join(" OR ");
        let query = format!("SELECT '{place}' AS place, count(*) AS rows FROM {table} WHERE {has}");
        let NamingRows { place, rows } = sql_query(query).get_result(db)?;
        if rows > 0 {
            found.insert(place, rows);
        }
    }
    Ok(found)
}

#[actix_web::test]
async fn a_user_is_erased_whole_or_not_at_all_whenever_the_process_is_killed() {
    let installation = Installation::new(|_| {
        ["--push-address=127.0.0.1:9", "--game-link-policy=subscribed"].map(str::to_owned).into()
    });
    let users = installation.fill(async |context: &ApiContext| {
        let mut users = Vec::new();
        for account in LEAVER..LEAVER + ROUNDS as u64 {
            users.push((demo::user::sign_in(context, account, "Leaver").await.unwrap(), account.to_string()));
        }
        users
    });
    let pool = Pool::open(&installation.database()).unwrap();
    let (http, mut random) = (binary::http(), Seeded(SEED));
    for (round, (user, account)) in users.into_iter().enumerate() {
        let mut service = installation.start();
        let mut leaver = Writer::new(http.clone(), user.cookie);
        leaver.base.clone_from(&service.addresses.api);
        for _ in 0..3 {
            leaver.write(&|| ()).await.expect("it is up");
        }
        let (_, code) = leaver.ask(Method::POST, "/pairing/device/code", None).await.expect("it is up");
        assert!(code["code"].is_string(), "{code}");
        let entries = format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ENTRIES})
            INSERT INTO timeline (id, user_id, kind, action, ts, grid, title, data)
            SELECT '{account}-' || n, '{}', 'news', 'seen', '2026-11-21 12:00:00', '', '', '{{}}' FROM numbers",
            user.id
        );
        pool.write_blocking(|db| Ok(sql_query(entries).execute(db)?)).unwrap();
        let words: Vec<String> = leaver.known.keys().cloned().chain([user.id.to_string(), account.clone()]).collect();
        let left = || pool.read_blocking(|db| naming(db, &words)).unwrap();
        let before = left();
        assert!(before.len() > 5 && before["timeline.user_id"] == ENTRIES as i64, "{before:?}");

        let confirm = json!({ "confirm": account });
        let request = http.delete(format!("{}/me", leaver.base)).header(COOKIE, &leaver.cookie).json(&confirm);
        let mut asked = actix_web::rt::spawn(request.send());
        // The first is answered; then one is killed wherever it is.
        let patience = if round == 0 { 60_000 } else { random.below(120) as u64 };
        let answer = timeout(Duration::from_millis(patience), &mut asked).await;
        service.kill();
        let answer = match answer {
            Ok(answered) => answered,
            Err(_) => asked.await,
        };
        let is_answered = answer.unwrap().is_ok_and(|answer| answer.status() == 200);
        assert!(is_answered || round > 0);

        let again = installation.start();
        leaver.base.clone_from(&again.addresses.api);
        let (kept, (status, _)) = (left(), leaver.ask(Method::GET, "/me", None).await.expect("it is up again"));
        println!("round {round}: answered {is_answered}, {} columns left", kept.len());
        match status {
            401 => assert_eq!(kept, BTreeMap::new(), "round {round}"),
            _ => assert_eq!((status, is_answered, kept), (200, false, before), "round {round}"),
        }
        let second = leaver.ask(Method::DELETE, "/me", Some(confirm)).await.expect("it is up again");
        assert_eq!(second.0, status, "round {round}: {}", second.1);
        assert_eq!(left(), BTreeMap::new(), "round {round}");
    }
}
