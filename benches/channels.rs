//! Alarms of many users at once, each with a browser that is woken by Web Push: the time until two push services on
//! loopback have taken the last one and all of it is stored, processor time of the service, messages on their way at
//! once, and meanwhile how long `GET /me` takes, and an alarm of others to their dashboard. Each figure is printed beside the
//! target that it has. The service is the real binary, beside this process. On SQLite, and with
//! `TEST_POSTGRES_URL`, a role that may create databases, on PostgreSQL.
//!
//! `cargo bench --bench channels -- 10000` alarms that many; 10 000 without an argument. With `dead`, every second browser is
//! at a push service that takes no connection: the figures are of the others.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    cell::Cell,
    env,
    net::{Ipv4Addr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use actix_web::{App, HttpResponse, HttpServer, rt, web};
use chrono::Utc;
use companion::{
    api::context::ApiContext,
    config::Database,
    db::{
        alarms::incidents::{self, LedgerWrite},
        engine::pool::{Db, Pool},
        notices::{channels, waiting_notices},
        paired_servers::{self, StoredPairing},
        users,
    },
    demo,
    domain::{
        channels::user_channel::ChannelTarget,
        ids::{PlatformId, ServerId, UserId},
        incident::{DevicePlace, Incident},
        time::Timestamp,
    },
};
use secrecy::ExposeSecret as _;

#[path = "../tests/crash/mod.rs"]
mod crash;
mod dashboards;
mod databases;
mod process;

use crash::{Installation, Service, binary};
use dashboards::{Asker, Dashboards};
use process::{Processor, Result};

const USERS: usize = 10_000;
/// Rows in a transaction while the database is filled.
const BATCH: usize = 500;
/// Time that the push service takes for a message.
const TAKES: Duration = Duration::from_millis(20);
/// Users who ask for `/me` in turn, and whose alarms are tried: none of them reaches a limit.
const ASKERS: u64 = 60;
/// Questions for `/me` before the alarm, and alarms.
const QUIET_QUESTIONS: usize = 200;
const QUIET_ALARMS: usize = 60;
/// Targets: processor time of ten thousand messages, messages at once, and the slowest hundredth of answers and of others' alarms.
const TARGET_PROCESSOR: f64 = 10.0;
const TARGET_AT_ONCE: usize = 500;
const TARGET_OTHERS: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const DEADLINE: Duration = Duration::from_secs(600);
/// A browser's keys (RFC 8291, section 5).
const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// Figures of the push service.
#[derive(Default)]
struct Taken {
    messages: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

async fn take(_body: web::Bytes, taken: web::Data<Taken>) -> HttpResponse {
    let now = taken.now.fetch_add(1, Ordering::Relaxed) + 1;
    taken.most.fetch_max(now, Ordering::Relaxed);
    rt::time::sleep(TAKES).await;
    taken.now.fetch_sub(1, Ordering::Relaxed);
    taken.messages.fetch_add(1, Ordering::Relaxed);
    HttpResponse::Created().finish()
}

/// The push services.
struct PushServices {
    /// Addresses of those that take messages; half of a lane is for each.
    living: Vec<String>,
    /// One that takes no connection.
    dead: Option<(TcpListener, String)>,
    taken: Arc<Taken>,
}

impl PushServices {
    fn start(with_dead: bool) -> Result<Self> {
        let taken = web::Data::new(Taken::default());
        let figures = taken.clone().into_inner();
        let app = move || App::new().app_data(taken.clone()).default_service(web::post().to(take));
        let (mut server, mut living) = (HttpServer::new(app).workers(1).backlog(4_096).disable_signals(), Vec::new());
        for last in [1, 2] {
            let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0))?;
            living.push(format!("http://{}", listener.local_addr()?));
            server = server.listen(listener)?;
        }
        rt::spawn(server.run());
        let dead = if with_dead {
            let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 3), 0))?;
            let address = format!("http://{}", listener.local_addr()?);
            Some((listener, address))
        } else {
            None
        };
        Ok(Self { living, dead, taken: figures })
    }

    /// The one of this user.
    fn of(&self, number: usize) -> &str {
        match &self.dead {
            Some((_, dead)) if number % 2 == 1 => dead,
            Some(_) => &self.living[number / 2 % self.living.len()],
            None => &self.living[number % self.living.len()],
        }
    }

    /// Messages to this number of users that are taken.
    fn taken_of(&self, count: usize) -> usize {
        if self.dead.is_some() { count.div_ceil(2) } else { count }
    }
}

fn server_id(number: usize) -> ServerId {
    format!("server-{number:08}").into()
}

fn main() -> Result<()> {
    let count = env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(USERS);
    let with_dead = env::args().any(|argument| argument == "dead");
    databases::on_each(|engine, database| {
        let measured = rt::System::new().block_on(measure(engine, database, count, with_dead));
        measured.expect("everything can be measured");
    });
    Ok(())
}

async fn measure(engine: &str, database: &Database, count: usize, with_dead: bool) -> Result<()> {
    let services = PushServices::start(with_dead)?;
    let taken = &services.taken;
    let installation = Installation::new(|_| {
        // No one has a dashboard open: there are no links.
        let mut flags =
            ["--allow-private-channel-targets=true", "--game-link-policy=subscribed"].map(str::to_owned).to_vec();
        if let Database::Postgres(url) = database {
            flags.push(format!("--database-url={}", url.expose_secret()));
        }
        flags
    });
    let began = Instant::now();
    let askers =
        installation.fill(async |context| fill(context, &services, count).await.expect("the database is filled"));
    println!("{engine}: {count} users with a browser each, in {:.1?}", began.elapsed());
    let pool = Pool::open(&installation.database())?;
    databases::vacuum(&installation.database());
    let service = installation.start();
    let mut dashboards = Dashboards::open(binary::http(), &service.addresses, &askers).await?;
    let questions = Questions {
        http: binary::http(),
        url: format!("{}/me", service.addresses.api),
        cookies: askers.into_iter().map(|asker| asker.cookie).collect(),
        asked: Cell::default(),
    };
    for _ in 0..QUIET_QUESTIONS / 10 {
        questions.ask().await?;
    }
    let mut before = Vec::new();
    for _ in 0..QUIET_QUESTIONS {
        before.push(questions.ask().await?);
    }
    let mut rung_before = Vec::new();
    for _ in 0..QUIET_ALARMS {
        rung_before.push(dashboards.ring().await?);
    }
    let mut others = Others { questions: &questions, dashboards: &mut dashboards, asked: Vec::new(), rung: Vec::new() };
    let alarmed = alarm(&pool, &service, &services, count, &mut others).await?;
    let Others { asked: mut meanwhile, mut rung, .. } = others;
    println!("{:>34}: {:>8.2?}", "the last one was taken after", alarmed.taken);
    if let Some(stored) = alarmed.stored {
        println!("{:>34}: {stored:>8.2?}", "all of it was stored after");
    }
    println!(
        "{:>34}: {:>7.2} s (target {TARGET_PROCESSOR} s for {USERS})",
        "processor time of the service", alarmed.processor
    );
    println!("{:>34}: {:>8} (target {TARGET_AT_ONCE})", "most at once", taken.most.load(Ordering::Relaxed));
    println!("{:>34}: {:>8}", "messages", taken.messages.load(Ordering::Relaxed));
    print_times("/me before", &mut before);
    print_times("/me meanwhile", &mut meanwhile);
    print_times("alarm of others before", &mut rung_before);
    print_times("alarm of others meanwhile", &mut rung);
    Ok(())
}

fn print_times(name: &str, took: &mut [Duration]) {
    took.sort_unstable();
    let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default();
    let (middle, slowest, count) = (at(50), at(99), took.len());
    println!("{name:>34}: p50 {middle:>8.2?}, p99 {slowest:>8.2?} of {count} (target of p99 {TARGET_OTHERS:?})");
}

/// Users whose alarms are not counted.
struct Others<'a> {
    questions: &'a Questions,
    dashboards: &'a mut Dashboards,
    /// Times of answers to `/me`.
    asked: Vec<Duration>,
    /// Times of alarms to the dashboard.
    rung: Vec<Duration>,
}

/// Users with a paired server and a browser; the cookies of those who ask, who have a server, too.
async fn fill(context: &ApiContext, services: &PushServices, count: usize) -> Result<Vec<Asker>> {
    let (mut askers, now) = (Vec::new(), context.clock.now());
    for number in 0..ASKERS {
        let user = demo::user::sign_in(context, 76_561_197_000_000_000 + number, "Asker").await?;
        let server = ServerId::from(format!("asker-{number:08}"));
        let (id, pairing) = (server.clone(), pairing(&user.id, &PlatformId::from(number.to_string())));
        context.pool.write(move |db: &mut Db| paired_servers::put(db, &id, &pairing, now)).await?;
        askers.push(Asker { cookie: user.cookie, server });
    }
    for begin in (0..count).step_by(BATCH) {
        let made: Vec<_> = (begin..count.min(begin + BATCH))
            .map(|number| {
                let user = UserId::from(format!("user-{number:08}"));
                let target = ChannelTarget::WebPush {
                    endpoint: format!("{}/push/{number}", services.of(number)),
                    p256dh: P256DH.to_owned(),
                    auth: AUTH.to_owned(),
                };
                let channel = context.services.channels.new_channel(&user, "Phone".to_owned(), &target);
                // As users do it: they have tested it.
                let channel = channels::StoredChannel { accepted_at: Some(channel.created_at), ..channel };
                (number, user, channel)
            })
            .collect();
        let now = context.clock.now();
        let write = move |db: &mut Db| {
            for (number, user, channel) in &made {
                let account = PlatformId::from((76_561_198_000_000_001 + number).to_string());
                users::sign_in(db, user, &account, None, now)?;
                paired_servers::put(db, &server_id(*number), &pairing(user, &account), now)?;
                channels::insert(db, channel, 9)?.expect("there is room for one");
            }
            Ok::<(), companion::db::engine::error::DbError>(())
        };
        context.pool.write(write).await?;
    }
    Ok(askers)
}

/// A pairing of this user's, with a game server that does not answer.
fn pairing(owner: &UserId, player: &PlatformId) -> StoredPairing {
    StoredPairing {
        owner: owner.clone(),
        game_server_id: None,
        name: "Base".into(),
        address: "192.0.2.1".into(),
        port: 28_082,
        player_id: player.to_string(),
        player_token_sealed: b"sealed".to_vec(),
        key_version: 1,
    }
}

struct Alarmed {
    taken: Duration,
    /// `None`: what is for the dead push service waits.
    stored: Option<Duration>,
    processor: f64,
}

/// Alarms every user, and asks for `/me` until all is stored.
async fn alarm(
    pool: &Pool,
    service: &Service,
    services: &PushServices,
    count: usize,
    others: &mut Others<'_>,
) -> Result<Alarmed> {
    let (processor, now) = (Processor::of(service.id())?, Timestamp::from(Utc::now()));
    let (taken, expected) = (&services.taken, services.taken_of(count));
    let write = move |db: &mut Db| {
        (0..count).try_for_each(|number| {
            let incident = (incident(now), None);
            let incidents = [(format!("0193aa0b-6c7d-7e8f-9a0b-{number:012x}"), incident)].into();
            incidents::write(db, &server_id(number), &LedgerWrite { incidents, ..Default::default() })
        })
    };
    // Longer than a query of the service may take.
    pool.write_blocking(write)?;
    let began = Instant::now();
    let mut last = None;
    loop {
        others.asked.push(others.questions.ask().await?);
        // Beyond that a user's drills are refused.
        if others.rung.len() < others.dashboards.most_rings() - QUIET_ALARMS {
            others.rung.push(others.dashboards.ring().await?);
        }
        if last.is_none() && taken.messages.load(Ordering::Relaxed) >= expected {
            last = Some(began.elapsed());
        }
        if let Some(last) = last {
            let is_stored = services.dead.is_none() && pool.read(waiting_notices::read).await?.messages == 0;
            if is_stored || services.dead.is_some() {
                let processor = Processor::of(service.id())?.minus(processor).total();
                return Ok(Alarmed { taken: last, stored: is_stored.then(|| began.elapsed()), processor });
            }
        }
        if began.elapsed() > DEADLINE {
            let taken = taken.messages.load(Ordering::Relaxed);
            return Err(format!("only {taken} of {expected} were taken in time").into());
        }
        rt::time::sleep(LOOK_EVERY).await;
    }
}

fn incident(now: Timestamp) -> Incident {
    Incident {
        alarm_id: "7".into(),
        alarm_name: "Front door".into(),
        place: DevicePlace { x: Some(1_000.0), y: Some(2_000.0), grid: "H12".into() },
        first_at: now,
        last_at: now,
        ended_at: None,
        count: 1,
        paths: Default::default(),
        late: false,
        drill: false,
        acks: Default::default(),
    }
}

/// Users who look at the dashboard, one after the other.
struct Questions {
    http: reqwest::Client,
    url: String,
    cookies: Vec<String>,
    asked: Cell<usize>,
}

impl Questions {
    /// The time of one answer.
    async fn ask(&self) -> Result<Duration> {
        let asker = self.asked.replace(self.asked.get() + 1) % self.cookies.len();
        let began = Instant::now();
        let answer = self.http.get(&self.url).header("cookie", &self.cookies[asker]).send().await?;
        answer.error_for_status()?.bytes().await?;
        Ok(began.elapsed())
    }
}
