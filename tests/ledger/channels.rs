//! Channels under fire: webhooks and browsers of a user that work, fail at first, are slow, or end, while the service is killed
//! and the user acknowledges; and webhooks of a guest, who is woken in two steps and three rounds. Each message must end as
//! taken, and the receiver must know of it; or as cancelled by an acknowledgement, as superseded by the one of the next round, or as
//! failed because its browser ended.

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
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        notices::{alarm_rules, channels, count_updates::UPDATED},
        schema,
    },
    domain::{
        channels::{
            escalation::{AlarmRules, EscalationStep},
            user_channel::ChannelTarget,
        },
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
/// The guest's, in the order of their steps; the first fails at first.
const GUEST_FIRST: &str = "/guest/first";
const GUEST_SECOND: &str = "/guest/second";
/// Seconds from the guest's first step to the second, and from that to the next round.
const GUEST_SECOND_AFTER: u32 = 1;
const GUEST_REPEATS_AFTER: u32 = 3;
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
    if [FAILING, GUEST_FIRST].contains(&path) && is_first {
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
    pub async fn add_channels(&self, context: &ApiContext, woken: &Woken) {
        let user = &woken.user;
        let made: Vec<_> = woken
            .paths
            .iter()
            .map(|path| {
                let (url, secrets) =
                    (format!("{}{path}", self.base), vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()]);
                let target = if path.starts_with(PUSH) {
                    ChannelTarget::WebPush { endpoint: url, p256dh: P256DH.to_owned(), auth: AUTH.to_owned() }
                } else {
                    ChannelTarget::Webhook { url, secrets, template: None }
                };
                context.services.channels.new_channel(user, (*path).to_owned(), &target)
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

/// A user with channels.
pub struct Woken {
    pub user: UserId,
    paths: &'static [&'static str],
    rounds: u32,
}

impl Woken {
    /// The owner of the server, who is sent every alarm once, by all channels.
    pub fn owner(user: UserId) -> Self {
        Self { user, paths: &PATHS, rounds: 1 }
    }

    /// A guest, who is woken again and again.
    pub fn guest(user: UserId) -> Self {
        Self { user, paths: &[GUEST_FIRST, GUEST_SECOND], rounds: 3 }
    }

    /// Stores the rules of this user.
    pub fn set_rules(&self, pool: &Pool, server: &ServerId) {
        let known = pool.read_blocking(|db| channels::list(db, &self.user)).unwrap();
        let step = |after_seconds, is_in: &dyn Fn(&str) -> bool| {
            let of_step = known.iter().filter(|channel| is_in(&channel.name));
            let channels: Vec<ChannelId> = of_step.map(|channel| channel.id()).collect();
            EscalationStep { after_seconds, channels }
        };
        let mut steps = vec![step(0, &|name| name != GUEST_SECOND)];
        if self.rounds > 1 {
            steps.push(step(GUEST_SECOND_AFTER, &|name| name == GUEST_SECOND));
        }
        let (repeat_seconds, rounds) = (GUEST_REPEATS_AFTER, self.rounds);
        let rules = AlarmRules { steps, repeat_seconds, rounds, ..AlarmRules::default() };
        pool.write_blocking(|db| alarm_rules::put(db, server, &self.user, &rules)).unwrap();
    }
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

/// A message of the database.
#[derive(Queryable)]
struct Message {
    id: String,
    incident: String,
    user: String,
    channel: String,
    round: i32,
    state: String,
    reason: Option<String>,
}

fn messages(pool: &Pool) -> Vec<Message> {
    use schema::deliveries::dsl as row;
    let columns = (row::id, row::incident_id, row::user_id, row::channel_id, row::round, row::state, row::reason);
    // A message about the count alone may be of no use by then.
    let messages = row::deliveries.filter(row::round.ne(UPDATED)).select(columns);
    pool.read_blocking(|db| Ok(messages.load(db)?)).unwrap()
}

/// The fates of incidents.
struct Fates {
    /// Incidents, each with a user who has taken note.
    acknowledged: HashSet<(String, String)>,
    /// Incidents with those that are a part of them now.
    parts: HashMap<String, Vec<String>>,
}

fn fates(pool: &Pool) -> Fates {
    let read = |db: &mut Db| {
        use schema::{incident_acks as a, merged_incidents as m};
        let acknowledged = a::table.select((a::incident_id, a::user_id)).load(db)?.into_iter().collect();
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

/// The promises to this user that do not hold for these incidents.
pub fn judge(pool: &Pool, woken: &Woken, receiver: &Receiver, incidents: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    let (user, known) = (woken.user.as_str(), pool.read_blocking(|db| channels::list(db, &woken.user)).unwrap());
    let names: BTreeMap<String, String> = known.into_iter().map(|channel| (channel.id, channel.name)).collect();
    let (mut messages, fates, seen) = (messages(pool), fates(pool), receiver.seen.lock().unwrap());
    messages.retain(|message| message.user == user);
    let is_acknowledged = |incident: &str| fates.acknowledged.contains(&(incident.to_owned(), user.to_owned()));
    let mut last_rounds: HashMap<(&str, &str), i32> = HashMap::new();
    for Message { incident, channel, round, .. } in &messages {
        let last = last_rounds.entry((incident.as_str(), channel.as_str())).or_insert(*round);
        *last = (*last).max(*round);
    }
    let mut of_incident: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Message { id, incident, channel, round, state, reason, .. } in &messages {
        let label = format!("message {id} about {incident} by {} in round {round}", names[channel]);
        let path = names[channel].as_str();
        match (state.as_str(), reason.as_deref()) {
            ("accepted", _) if fates.is_taken(&seen, path, id, incident) => {
                of_incident.entry(incident).or_default().insert(path);
            }
            ("accepted", _) => broken.push(format!("{label} is accepted, and the receiver never took it")),
            ("cancelled", _) if is_acknowledged(incident) => {}
            ("superseded", _) if last_rounds[&(incident.as_str(), channel.as_str())] > *round => {}
            ("failed", Some("gone")) if path == GONE_PUSH => {}
            // The receiver takes every second attempt.
            _ => broken.push(format!("{label} is {state} because of {reason:?}")),
        }
        if *round >= woken.rounds as i32 {
            broken.push(format!("{label} is of a round too many"));
        }
    }
    for incident in incidents {
        let mut sent = of_incident.get(incident.as_str()).cloned().unwrap_or_default();
        sent.extend(woken.paths.iter().filter(|path| **path == GONE_PUSH));
        // A whole of which a part was acknowledged is acknowledged, too.
        if !woken.paths.iter().all(|path| sent.contains(path)) && !is_acknowledged(incident) {
            broken.push(format!("incident {incident} reached {user} by {sent:?} only"));
        }
    }
    broken
}

/// Figures of the messages, and of the receiver, in a line.
pub fn figures(pool: &Pool, receiver: &Receiver) -> String {
    let (messages, seen) = (messages(pool), receiver.seen.lock().unwrap());
    let again = seen.attempts.values().filter(|attempts| **attempts > 1).count();
    let count = |state: &str| messages.iter().filter(|message| message.state == state).count();
    format!(
        "{} messages by channels in {} attempts, {again} of them more than once; {} cancelled, {} failed",
        messages.len(),
        seen.attempts.values().sum::<usize>(),
        count("cancelled"),
        count("failed"),
    )
}
