//! Channels under fire: webhooks of a user that work, fail at first, or are slow, while the service is killed. Each message
//! must end as taken, and the receiver must know of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, rt, web};
use companion::{
    api::context::ApiContext,
    db::{
        alarm_rules, channels,
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        schema,
    },
    domain::{
        channel::ChannelTarget,
        escalation::{AlarmRules, EscalationStep},
        ids::{ChannelId, ServerId, UserId},
    },
};
use diesel::prelude::*;

/// Paths of the webhooks, which are the names of the channels.
const STEADY: &str = "/steady";
const FAILING: &str = "/failing";
const SLOW: &str = "/slow";
const PATHS: [&str; 3] = [STEADY, FAILING, SLOW];
/// Time that the slow one takes.
const TAKES: Duration = Duration::from_millis(50);
/// Longer than the service waits for an answer.
const HANGS: Duration = Duration::from_secs(9);

/// Messages as the receiver has seen them, by their ids.
#[derive(Default)]
struct Seen {
    attempts: HashMap<String, usize>,
    /// Attempts that were answered with success.
    taken: HashSet<String>,
    hung: bool,
}

/// The other side of the channels.
pub struct Receiver {
    base: String,
    seen: Arc<Mutex<Seen>>,
}

enum Reply {
    Take,
    Fail(u16),
    Hang,
}

fn reply(path: &str, id: &str, seen: &mut Seen) -> Reply {
    let attempts = seen.attempts.entry(id.to_owned()).or_default();
    *attempts += 1;
    if path == FAILING && *attempts == 1 {
        if !std::mem::replace(&mut seen.hung, true) {
            return Reply::Hang;
        }
        match id.bytes().map(usize::from).sum::<usize>() % 3 {
            0 => return Reply::Fail(503),
            1 => return Reply::Fail(429),
            _ => {}
        }
    }
    Reply::Take
}

async fn receive(request: HttpRequest, _: web::Bytes, seen: web::Data<Mutex<Seen>>) -> HttpResponse {
    let id = request.headers().get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let reply = reply(request.path(), &id, &mut seen.lock().unwrap());
    match reply {
        Reply::Hang => {
            rt::time::sleep(HANGS).await;
            HttpResponse::Ok().finish()
        }
        Reply::Fail(status) => HttpResponse::build(status.try_into().unwrap()).finish(),
        Reply::Take => {
            if request.path() == SLOW {
                rt::time::sleep(TAKES).await;
            }
            seen.lock().unwrap().taken.insert(id);
            HttpResponse::Ok().finish()
        }
    }
}

impl Receiver {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = web::Data::new(Mutex::new(Seen::default()));
        let known = seen.clone().into_inner();
        let app = move || App::new().app_data(seen.clone()).default_service(web::to(receive));
        rt::spawn(HttpServer::new(app).workers(1).disable_signals().listen(listener).unwrap().run());
        Self { base, seen: known }
    }

    /// Adds the channels of this user.
    pub async fn add_channels(&self, context: &ApiContext, user: &UserId) {
        let made: Vec<_> = PATHS
            .into_iter()
            .map(|path| {
                let secrets = vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()];
                let target = ChannelTarget::Webhook { url: format!("{}{path}", self.base), secrets, template: None };
                context.services.channels.new_channel(user, path.to_owned(), &target)
            })
            .collect();
        let insert = move |db: &mut Db| -> Result<(), DbError> {
            for channel in &made {
                channels::insert(db, channel, PATHS.len())?.expect("there is room");
            }
            Ok(())
        };
        context.pool.write(insert).await.unwrap();
    }
}

/// Rules that send every alarm once, by all channels.
pub fn send_once(pool: &Pool, server: &ServerId, user: &UserId) {
    let known = pool.read_blocking(|db| channels::list(db, user)).unwrap();
    let channels: Vec<ChannelId> = known.iter().map(|channel| channel.id()).collect();
    let steps = vec![EscalationStep { after_seconds: 0, channels }];
    let rules = AlarmRules { steps, rounds: 1, ..AlarmRules::default() };
    pool.write_blocking(|db| alarm_rules::put(db, server, user, &rules)).unwrap();
}

/// Number of messages and steps that are due, or will be.
pub fn waiting(pool: &Pool) -> i64 {
    let count = |db: &mut Db| {
        let steps: i64 = {
            use schema::notices::dsl as row;
            row::notices.filter(row::due_at.is_not_null()).count().get_result(db)?
        };
        use schema::deliveries::dsl as row;
        let messages: i64 = row::deliveries.filter(row::due_at.is_not_null()).count().get_result(db)?;
        Ok(steps + messages)
    };
    pool.read_blocking(count).unwrap()
}

/// A message: id, incident, channel, state and reason.
type Message = (String, String, String, String, Option<String>);

fn messages(pool: &Pool) -> Vec<Message> {
    use schema::deliveries::dsl as row;
    let columns = (row::id, row::incident_id, row::channel_id, row::state, row::reason);
    pool.read_blocking(|db| Ok(row::deliveries.select(columns).load(db)?)).unwrap()
}

/// The promises that do not hold for these incidents.
pub fn judge(pool: &Pool, user: &UserId, receiver: &Receiver, incidents: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    let known = pool.read_blocking(|db| channels::list(db, user)).unwrap();
    let names: BTreeMap<String, String> = known.into_iter().map(|channel| (channel.id, channel.name)).collect();
    let messages = messages(pool);
    let mut of_incident: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (id, incident, channel, state, reason) in &messages {
        let label = format!("message {id} about {incident} by {}", names[channel]);
        let ends_well = state == "accepted" || state == "failed" && reason.is_some();
        if !ends_well {
            broken.push(format!("{label} is {state} because of {reason:?}"));
        }
        if state == "failed" {
            broken.push(format!("{label} failed, and the receiver takes every second attempt"));
        }
        if state == "accepted" && !receiver.seen.lock().unwrap().taken.contains(id) {
            broken.push(format!("{label} is accepted, and the receiver never took it"));
        }
        of_incident.entry(incident).or_default().insert(&names[channel]);
    }
    for incident in incidents {
        let sent = of_incident.get(incident.as_str()).cloned().unwrap_or_default();
        if sent != BTreeSet::from(PATHS) {
            broken.push(format!("incident {incident} was sent by {sent:?} only"));
        }
    }
    broken
}

/// Counts for the summary: messages, attempts at the receiver, and those that it saw more than once.
pub fn figures(pool: &Pool, receiver: &Receiver) -> (usize, usize, usize) {
    let seen = receiver.seen.lock().unwrap();
    let again = seen.attempts.values().filter(|attempts| **attempts > 1).count();
    (messages(pool).len(), seen.attempts.values().sum(), again)
}
