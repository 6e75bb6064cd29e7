//! Channels under fire: webhooks and browsers of a user that work, fail at first, are slow, or end, while the service is killed
//! and the user acknowledges. Each message must end as taken, and the receiver must know of it; or as cancelled by an
//! acknowledgement, or as failed because its browser ended.

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
        count_updates::UPDATED,
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
use serde_json::Value;

use crate::crash::Seeded;

/// Paths of the webhooks and browsers, which are the names of the channels.
const STEADY: &str = "/steady";
const FAILING: &str = "/failing";
const SLOW: &str = "/slow";
const PUSH: &str = "/push";
const SLOW_PUSH: &str = "/push/slow";
const GONE_PUSH: &str = "/push/gone";
const PATHS: [&str; 6] = [STEADY, FAILING, SLOW, PUSH, SLOW_PUSH, GONE_PUSH];
/// Messages that the browser takes before its subscription ends.
const TAKEN_BEFORE: usize = 5;
/// A browser's keys (RFC 8291, section 5).
const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
/// Time that the slow ones take.
const TAKES: Duration = Duration::from_millis(50);
/// Longer than the service waits for an answer.
const HANGS: Duration = Duration::from_secs(9);

/// Messages as the receiver has seen them, by their ids; those to browsers by path and topic.
#[derive(Default)]
struct Seen {
    attempts: HashMap<String, usize>,
    /// Attempts that were answered with success.
    taken: HashSet<String>,
    /// Paths that have hung once.
    hung: HashSet<String>,
    /// Paths of the links by which alarms are acknowledged.
    acks: Vec<String>,
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
    let is_first = *attempts == 1;
    if (path == FAILING || path == SLOW_PUSH) && is_first && seen.hung.insert(path.to_owned()) {
        return Reply::Hang;
    }
    if path == GONE_PUSH && seen.taken.iter().filter(|taken| taken.starts_with(GONE_PUSH)).count() >= TAKEN_BEFORE {
        return Reply::Fail(410);
    }
    if path == FAILING && is_first {
        match id.bytes().map(usize::from).sum::<usize>() % 3 {
            0 => return Reply::Fail(503),
            1 => return Reply::Fail(429),
            _ => {}
        }
    }
    Reply::Take
}

/// The id of a message to a browser: push services keep the newest of each topic.
fn pushed(path: &str, topic: &str) -> String {
    format!("{path} {topic}")
}

async fn receive(request: HttpRequest, body: web::Bytes, seen: web::Data<Mutex<Seen>>) -> HttpResponse {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let id = match header("topic") {
        Some(topic) => pushed(request.path(), topic),
        None => header("webhook-id").unwrap_or_default().to_owned(),
    };
    if let Ok(message) = serde_json::from_slice::<Value>(&body)
        && let Some((_, token)) = message["data"]["ackUrl"].as_str().and_then(|url| url.split_once("/a/"))
    {
        seen.lock().unwrap().acks.push(format!("/a/{token}"));
    }
    let reply = reply(request.path(), &id, &mut seen.lock().unwrap());
    match reply {
        Reply::Hang => {
            rt::time::sleep(HANGS).await;
            HttpResponse::Ok().finish()
        }
        Reply::Fail(status) => HttpResponse::build(status.try_into().unwrap()).finish(),
        Reply::Take => {
            if [SLOW, SLOW_PUSH].contains(&request.path()) {
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

    /// The path of a link that acknowledges, of those that were sent so far.
    pub fn ack_path(&self, random: &mut Seeded) -> Option<String> {
        let acks = &self.seen.lock().unwrap().acks;
        (!acks.is_empty()).then(|| acks[random.below(acks.len())].clone())
    }

    /// Adds the channels of this user.
    pub async fn add_channels(&self, context: &ApiContext, user: &UserId) {
        let made: Vec<_> = PATHS
            .into_iter()
            .map(|path| {
                let (url, secrets) =
                    (format!("{}{path}", self.base), vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()]);
                let target = if path.starts_with(PUSH) {
                    ChannelTarget::WebPush { endpoint: url, p256dh: P256DH.to_owned(), auth: AUTH.to_owned() }
                } else {
                    ChannelTarget::Webhook { url, secrets, template: None }
                };
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
        let messages = row::deliveries.filter(row::due_at.is_not_null()).filter(row::round.ne(UPDATED));
        let messages: i64 = messages.count().get_result(db)?;
        Ok(steps + messages)
    };
    pool.read_blocking(count).unwrap()
}

/// A message: id, incident, channel, state and reason.
type Message = (String, String, String, String, Option<String>);

fn messages(pool: &Pool) -> Vec<Message> {
    use schema::deliveries::dsl as row;
    let columns = (row::id, row::incident_id, row::channel_id, row::state, row::reason);
    // A message about the count alone may be of no use by then.
    let messages = row::deliveries.filter(row::round.ne(UPDATED)).select(columns);
    pool.read_blocking(|db| Ok(messages.load(db)?)).unwrap()
}

/// The fates of incidents.
struct Fates {
    /// Incidents of which the user has taken note.
    acknowledged: HashSet<String>,
    /// Incidents with those that are a part of them now.
    parts: HashMap<String, Vec<String>>,
}

fn fates(pool: &Pool) -> Fates {
    let read = |db: &mut Db| {
        use schema::{incident_acks as a, merged_incidents as m};
        let acknowledged = a::table.select(a::incident_id).load::<String>(db)?.into_iter().collect();
        let mut parts: HashMap<String, Vec<String>> = HashMap::new();
        for (part, whole) in m::table.select((m::id, m::incident_id)).load::<(String, String)>(db)? {
            parts.entry(whole).or_default().push(part);
        }
        Ok(Fates { acknowledged, parts })
    };
    pool.read_blocking(read).unwrap()
}

impl Fates {
    /// True if the receiver took this message, which for a browser may have come about a part.
    fn is_taken(&self, seen: &Seen, path: &str, id: &str, incident: &str) -> bool {
        if !path.starts_with(PUSH) {
            return seen.taken.contains(id);
        }
        let parts = self.parts.get(incident).into_iter().flatten().map(String::as_str);
        let mut topics = parts.chain([incident]).map(|incident| incident.replace('-', ""));
        topics.any(|topic| seen.taken.contains(&pushed(path, &topic)))
    }
}

/// The promises that do not hold for these incidents.
pub fn judge(pool: &Pool, user: &UserId, receiver: &Receiver, incidents: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    let known = pool.read_blocking(|db| channels::list(db, user)).unwrap();
    let names: BTreeMap<String, String> = known.into_iter().map(|channel| (channel.id, channel.name)).collect();
    let (messages, fates, seen) = (messages(pool), fates(pool), receiver.seen.lock().unwrap());
    let mut of_incident: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (id, incident, channel, state, reason) in &messages {
        let label = format!("message {id} about {incident} by {}", names[channel]);
        let path = names[channel].as_str();
        match (state.as_str(), reason.as_deref()) {
            ("accepted", _) if fates.is_taken(&seen, path, id, incident) => {}
            ("accepted", _) => broken.push(format!("{label} is accepted, and the receiver never took it")),
            ("cancelled", _) if fates.acknowledged.contains(incident) => {}
            ("failed", Some("gone")) if path == GONE_PUSH => {}
            // The receiver takes every second attempt.
            _ => broken.push(format!("{label} is {state} because of {reason:?}")),
        }
        of_incident.entry(incident).or_default().insert(path);
    }
    for incident in incidents {
        let mut sent = of_incident.get(incident.as_str()).cloned().unwrap_or_default();
        sent.insert(GONE_PUSH);
        // A whole of which a part was acknowledged is acknowledged, too.
        if sent != BTreeSet::from(PATHS) && !fates.acknowledged.contains(incident) {
            broken.push(format!("incident {incident} was sent by {sent:?} only"));
        }
    }
    broken
}

/// Figures of the messages, and of the receiver, in a line.
pub fn figures(pool: &Pool, receiver: &Receiver) -> String {
    let (messages, seen) = (messages(pool), receiver.seen.lock().unwrap());
    let again = seen.attempts.values().filter(|attempts| **attempts > 1).count();
    let count = |state: &str| messages.iter().filter(|message| message.3 == state).count();
    format!(
        "{} messages by channels in {} attempts, {again} of them more than once; {} cancelled, {} failed",
        messages.len(),
        seen.attempts.values().sum::<usize>(),
        count("cancelled"),
        count("failed"),
    )
}
