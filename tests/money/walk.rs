//! A random walk: two users and an admin, the payment provider with a bad way to it, and the service, which is killed and
//! started again. What is done, and in which order, is drawn from the seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use companion::{
    clock::Clock,
    crypto::random::Random,
    simulator::payments::{PAYMENT_KEY, PaymentFaults, PaymentService},
};
use reqwest::{
    Method,
    header::{COOKIE, ORIGIN},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    acts::runs,
    binary,
    database::Postgres,
    erasures::Erasure,
    proxy::{FaultProxy, WireFault},
    random::Stream,
    refunds::RefundIntent,
    service::ServiceProcess,
};

const FRONTEND: &str = "https://app.companion.test";
const ADMIN: u64 = 76_561_198_000_000_009;
/// Longest wait for what the service does by itself.
pub const PATIENCE: Duration = Duration::from_secs(30);
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// Events that came too early are tried again within this time.
pub const RETRIED_WITHIN: i64 = 7 * 3_600;

/// A user, or several one after the other: who has erased themselves signs in as a new one.
pub struct Person {
    pub name: &'static str,
    pub account: u64,
    /// The last is the one who is signed in, if `cookie` is there.
    pub users: Vec<String>,
    pub cookie: Option<String>,
    /// Checkouts that were opened, also those that are closed.
    pub pages: Vec<String>,
    /// Portals that were opened: their pages stay open.
    pub portals: Vec<String>,
    /// Key and plan of checkouts that may be asked for again.
    pub keys: Vec<(String, usize)>,
    /// The tier as a beta tester.
    pub beta: Option<&'static str>,
}

/// The answer of the service; status 0 if nothing came.
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    /// True if it says what became of the request.
    pub fn is_known(&self) -> bool {
        (200..500).contains(&self.status)
    }

    /// For the story.
    pub fn brief(&self) -> String {
        let word = self.body["code"].as_str().or(self.body["id"].as_str()).or(self.body["outcome"].as_str());
        format!("{} {}", self.status, word.unwrap_or_default())
    }
}

/// See the module.
pub struct Walk {
    pub random: Stream,
    pub clock: Clock,
    pub provider: PaymentService,
    pub proxy: FaultProxy,
    pub persons: Vec<Person>,
    pub intents: Vec<RefundIntent>,
    pub erasures: Vec<Erasure>,
    /// When a page was paid, seconds since 1970.
    pub paid_at: BTreeSet<i64>,
    /// Broken invariants by name: the first time.
    pub broken: BTreeMap<&'static str, String>,
    pub story: Vec<String>,
    prints: bool,
    service: Option<ServiceProcess>,
    http: reqwest::Client,
    admin: String,
    /// Events that were not delivered yet.
    events: Vec<Value>,
    /// Some events never arrive.
    loses_events: bool,
    flags: Vec<String>,
    directory: TempDir,
    _postgres: Option<Postgres>,
}

impl Walk {
    /// A service that sells, and has no payments yet.
    pub async fn start(seed: u64, postgres: Option<Postgres>, prints: bool) -> Self {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let listen = ([127, 0, 0, 1], 0).into();
        let provider = PaymentService::start(listen, clock.clone(), Random::seeded(seed)).await.unwrap();
        provider.set_faults(PaymentFaults { hold_events: true, ..Default::default() });
        let proxy = FaultProxy::start(provider.addr(), Stream::of(seed, "wire")).await.unwrap();
        let directory = TempDir::new().unwrap();
        let mut flags = flags(directory.path(), postgres.as_ref(), &provider, &proxy);
        let days = if Stream::of(seed, "trials").chance(50) { 7 } else { 0 };
        flags.push(format!("--payment-trial-days={days}"));
        let mut service = ServiceProcess::start(directory.path(), &flags, clock.now()).await;
        let admin = service.sign_in(ADMIN).await.1;
        let person = |name, account| Person {
            name,
            account,
            users: Vec::new(),
            cookie: None,
            pages: Vec::new(),
            portals: Vec::new(),
            keys: Vec::new(),
            beta: None,
        };
        let mut random = Stream::of(seed, "walk");
        let loses_events = random.chance(25);
        Self {
            random,
            clock,
            provider,
            proxy,
            persons: vec![person("alice", 76_561_198_000_000_001), person("bob", 76_561_198_000_000_002)],
            intents: Vec::new(),
            erasures: Vec::new(),
            paid_at: BTreeSet::new(),
            broken: BTreeMap::new(),
            story: Vec::new(),
            prints,
            service: Some(service),
            http: binary::http(),
            admin,
            events: Vec::new(),
            loses_events,
            flags,
            directory,
            _postgres: postgres,
        }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A line of the story.
    pub fn say(&mut self, line: String) {
        let line = format!("{}  {line}", self.clock.now().format("%m-%d %H:%M:%S"));
        if self.prints {
            println!("{line}");
        }
        self.story.push(line);
    }

    /// This does not hold.
    pub fn broke(&mut self, invariant: &'static str, why: String) {
        self.say(format!("BROKEN {invariant}: {why}"));
        self.broken.entry(invariant).or_insert(why);
    }

    pub fn service(&mut self) -> &mut ServiceProcess {
        self.service.as_mut().expect("it runs")
    }

    /// Kills the service.
    pub fn kill(&mut self) {
        self.service = None;
    }

    /// Starts the service again.
    pub async fn start_again(&mut self) {
        self.kill();
        self.service = Some(ServiceProcess::start(self.directory.path(), &self.flags, self.clock.now()).await);
    }

    /// Time goes on, for all.
    pub async fn advance(&mut self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
        self.provider.pass_time();
        self.service().advance(seconds).await;
        self.take_events();
    }

    /// Asks the service.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        cookie: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> impl Future<Output = Answer> + use<> {
        let address = self.service.as_ref().expect("it runs").address;
        let mut request = self
            .http
            .request(method, format!("http://{address}{path}"))
            .header(COOKIE, cookie)
            .header(ORIGIN, FRONTEND)
            .timeout(ANSWERS_WITHIN);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        async move {
            let lost = || Answer { status: 0, body: Value::Null };
            let Ok(response) = request.send().await else { return lost() };
            let status = response.status().as_u16();
            let Ok(body) = response.bytes().await else { return lost() };
            Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() }
        }
    }

    /// Asks as the admin.
    pub async fn admin(&mut self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.ask(method.clone(), path, &self.admin, None, body).await;
        if answer.status != 401 {
            return self.seen(answer, path);
        }
        // The session was too old.
        self.admin = self.service().sign_in(ADMIN).await.1;
        let answer = self.ask(method, path, &self.admin, None, body).await;
        self.seen(answer, path)
    }

    /// The cookie of the admin, after a new sign-in.
    pub async fn admin_cookie(&mut self) -> String {
        self.admin = self.service().sign_in(ADMIN).await.1;
        self.admin.clone()
    }

    /// Asks as this person, who is signed out if the service says so.
    pub async fn person(
        &mut self,
        person: usize,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> Answer {
        let Some(cookie) = self.persons[person].cookie.clone() else {
            return Answer { status: 401, body: Value::Null };
        };
        let answer = self.ask(method, path, &cookie, key, body).await;
        if answer.status == 401 {
            self.persons[person].cookie = None;
        }
        self.seen(answer, path)
    }

    /// No answer may be of an error of our own.
    pub fn seen(&mut self, answer: Answer, path: &str) -> Answer {
        if answer.status == 500 {
            self.broke("no_internal_error", format!("{path}: {}", answer.body));
        }
        answer
    }

    /// A list of the provider's, without the bad way to it.
    pub async fn books(&self, list: &str) -> Vec<Value> {
        let (mut all, mut after) = (Vec::<Value>::new(), String::new());
        loop {
            let url = format!("{}/v1/{list}?status=all&limit=100{after}", self.provider.url());
            let answer = self.http.get(url).bearer_auth(PAYMENT_KEY).send().await.unwrap().bytes().await.unwrap();
            let page: Value = serde_json::from_slice(&answer).unwrap();
            all.extend(page["data"].as_array().unwrap_or_else(|| panic!("{page}")).iter().cloned());
            if page["has_more"] != true {
                return all;
            }
            after = format!("&starting_after={}", all.last().unwrap()["id"].as_str().unwrap());
        }
    }

    /// A checkout of the provider's.
    pub async fn session(&self, id: &str) -> Value {
        let url = format!("{}/v1/checkout/sessions/{id}", self.provider.url());
        let answer = self.http.get(url).bearer_auth(PAYMENT_KEY).send().await.unwrap().bytes().await.unwrap();
        serde_json::from_slice(&answer).unwrap()
    }

    /// Sends the form of a page of the provider.
    pub async fn click(&self, page: &str, form: &[(&str, &str)]) -> u16 {
        self.http.post(page).form(form).send().await.unwrap().status().as_u16()
    }

    /// The subscriptions of a person, also those of the users before.
    pub fn subscriptions_of<'a>(&self, person: usize, all: &'a [Value]) -> Vec<&'a Value> {
        let users: BTreeSet<&str> = self.persons[person].users.iter().map(String::as_str).collect();
        all.iter().filter(|one| one["metadata"]["userId"].as_str().is_some_and(|user| users.contains(user))).collect()
    }

    /// The subscriptions that go on, but for those about to be ended for users who are gone.
    pub fn running_of<'a>(&self, person: usize, all: &'a [Value]) -> Vec<&'a Value> {
        self.subscriptions_of(person, all).into_iter().filter(|one| runs(one) && !self.is_ending(one)).collect()
    }

    pub async fn sign_in(&mut self, person: usize) {
        let account = self.persons[person].account;
        let (user, cookie) = self.service().sign_in(account).await;
        let known = &mut self.persons[person];
        known.cookie = Some(cookie);
        if known.users.last() != Some(&user) {
            known.users.push(user);
            known.keys.clear();
        }
        let (name, count) = (known.name, known.users.len());
        self.say(format!("{name} signs in (user {count})"));
    }

    /// Keeps the events that the provider has made since.
    pub fn take_events(&mut self) {
        for event in self.provider.take_held() {
            if self.loses_events && self.random.chance(8) {
                self.say(format!("lost: {}", event["type"]));
            } else {
                self.events.push(event);
            }
        }
    }

    /// Delivers one of the events that wait, whichever; it may come again.
    pub async fn deliver_one(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let place = self.random.below(self.events.len() as u64) as usize;
        let again = self.random.chance(20);
        let event = if again { self.events[place].clone() } else { self.events.swap_remove(place) };
        let body = event.to_string();
        let address = self.service().address;
        let request = self
            .http
            .post(format!("http://{address}/billing/webhook"))
            .header("Stripe-Signature", self.provider.signature(&body))
            .header("Content-Type", "application/json")
            .timeout(ANSWERS_WITHIN)
            .body(body);
        let (status, answer) = match request.send().await {
            Ok(answer) => (answer.status().as_u16(), answer.bytes().await.unwrap_or_default()),
            Err(_) => (0, Default::default()),
        };
        let about = event["data"]["object"]["id"].as_str().unwrap_or_default().to_owned();
        let is_applied = serde_json::from_slice::<Value>(&answer).is_ok_and(|answer| answer["outcome"] == "applied");
        self.say(format!("event {} of {about}{}: {status}", event["type"], if again { ", to come again" } else { "" }));
        if is_applied && event["data"]["object"]["object"] == "dispute" {
            self.compare_dispute(&event).await;
        }
        if status != 200 && !again {
            self.events.push(event);
        }
    }

    pub async fn deliver_all(&mut self) {
        self.take_events();
        // One that comes again stays.
        for _ in 0..2_000 {
            if self.events.is_empty() {
                return;
            }
            self.deliver_one().await;
        }
        self.broke("events_are_taken", format!("{} events are not taken", self.events.len()));
    }

    /// All is well again, for long enough that the service has done what it does by itself.
    pub async fn settle(&mut self) {
        self.proxy.set(WireFault::None);
        self.say("settles".to_owned());
        self.deliver_all().await;
        self.advance(RETRIED_WITHIN).await;
        self.deliver_all().await;
        // The service looks what is left when it starts.
        self.start_again().await;
        let began = Instant::now();
        loop {
            let parked = self.admin(Method::GET, "/admin/payment-events", None).await.body;
            let open = self.open_attempts().await;
            if parked["total"] == 0 && open.is_empty() {
                break;
            }
            if began.elapsed() > PATIENCE {
                if parked["total"] != 0 {
                    self.broke("no_event_waits", parked["events"].to_string());
                }
                if !open.is_empty() {
                    self.broke("every_refund_ends", open.join("; "));
                }
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn flags(directory: &Path, postgres: Option<&Postgres>, provider: &PaymentService, proxy: &FaultProxy) -> Vec<String> {
    let database = match postgres {
        Some(postgres) => postgres.url(),
        None => format!("sqlite:{}", directory.join("money.db").display()),
    };
    let mut flags = vec![
        format!("--data-dir={}", directory.display()),
        format!("--database-url={database}"),
        format!("--frontend-url={FRONTEND}"),
        format!("--admin-platform-ids={ADMIN}"),
    ];
    let fixed = [
        "--app-env=development",
        "--api-listen=127.0.0.1:0",
        "--relay-listen=127.0.0.1:0",
        "--workers=1",
        "--base-url=http://api.companion.test",
        "--admin-origin=https://admin.companion.test",
        // Ports without a listener: nothing outside is called.
        "--push-address=127.0.0.1:9",
        "--platform-api-url=http://127.0.0.1:9",
        "--game-link-policy=subscribed",
    ];
    flags.extend(fixed.map(str::to_owned));
    let flag = |(name, value): (&str, String)| {
        let value = if name == "PAYMENT_API_URL" { format!("http://{}", proxy.address) } else { value };
        format!("--{}={value}", name.to_lowercase().replace('_', "-"))
    };
    flags.extend(provider.settings().into_iter().map(flag));
    flags
}
