//! Channels by which users are woken: their other side, which outlives every life, and what is promised about messages.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::TimeDelta;
use companion::{
    channels::Channels,
    clients::channels::{ChannelAnswer, ChannelClient, ChannelRequest},
    config::PublicUrls,
    crypto::{ack_link::AckLinks, keys::Key32},
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
        ids::ServerId,
        time::Timestamp,
    },
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use futures_util::FutureExt as _;
use reqwest::StatusCode;
use serde_json::Value;
use tokio::time::sleep;
use url::Url;

use crate::{
    judge::Judge,
    life::Service,
    random::Stream,
    script::HEALTHY_FROM,
    world::{PAIRED, USERS, World, world},
};

/// Seeds in a hundred in which users have channels.
const HAVE_CHANNELS: u64 = 50;
/// Channels: their user, and a name that is in their URL. Alice's second one is tried a minute after the first.
const CHANNELS: [(usize, &str); 3] = [(0, "first"), (0, SECOND), (1, "only")];
const SECOND: &str = "second";
const SECOND_AFTER: u32 = 60;
/// The client waits no longer for an answer.
const NO_ANSWER: Duration = Duration::from_secs(8);
/// A message that is due goes out within this time in the healthy minutes.
const SENT_WITHIN: TimeDelta = TimeDelta::seconds(20);
/// The first message of an alarm of the healthy minutes is taken within this time, also while the database is slow and when
/// the process ends once more.
const TAKEN_WITHIN: TimeDelta = TimeDelta::seconds(60);

/// The receiver's treatment of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiverFate {
    #[default]
    Run,
    /// Each answer is delayed by this number of milliseconds.
    Slow(u64),
    Failing,
    Throttling,
    /// No message arrives.
    Silent,
    /// Messages arrive, their answers do not.
    Unanswered,
    /// The receiver of Alice's second channel says that it ended, from then on for good. The others run.
    Gone,
}

/// An answer that a channel is gone: the life of the service that was given it, and when.
#[derive(Clone, Copy)]
struct GoneAnswer {
    life: u32,
    millis: u64,
}

/// The other side of all channels.
#[derive(Default)]
pub struct Receiver {
    pub fate: Cell<ReceiverFate>,
    /// The answer to a message that was taken was lost at some time.
    lost_answers: Cell<bool>,
    /// Ids of the messages that were taken, and how often.
    taken: RefCell<BTreeMap<String, u32>>,
    /// The last answer that the second channel is gone.
    gone: Cell<Option<GoneAnswer>>,
}

impl Receiver {
    /// Answers a message.
    async fn receive(request: ChannelRequest) -> Option<ChannelAnswer> {
        let world = world();
        let lag = 1 + world.disk_random.borrow_mut().below(20);
        sleep(Duration::from_millis(lag)).await;
        if world.dead.get() {
            return std::future::pending().await;
        }
        let answer = |status, retry_after| Some(ChannelAnswer { status, retry_after, receipt: None });
        let id = request.headers.iter().find(|(name, _)| *name == "webhook-id").map(|(_, id)| id.clone());
        let fate = world.receiver.fate.get();
        world.trace(&format!("{} is sent {id:?}: {fate:?}", request.url));
        let is_gone = fate == ReceiverFate::Gone || world.receiver.gone.get().is_some();
        if is_gone && request.url.as_str().ends_with(SECOND) {
            world.receiver.say_gone(&world);
            return answer(StatusCode::GONE, None);
        }
        match fate {
            ReceiverFate::Failing => return answer(StatusCode::SERVICE_UNAVAILABLE, None),
            ReceiverFate::Throttling => return answer(StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(5))),
            ReceiverFate::Silent => {
                sleep(NO_ANSWER).await;
                return None;
            }
            ReceiverFate::Run | ReceiverFate::Slow(_) | ReceiverFate::Unanswered | ReceiverFate::Gone => {}
        }
        match (id, serde_json::from_slice::<Value>(&request.body)) {
            (Some(id), Ok(body)) if body["data"]["incident"].is_string() => {
                *world.receiver.taken.borrow_mut().entry(id).or_default() += 1;
            }
            _ => world.judge.borrow_mut().broken("messages-are-understood", format!("{request:?}")),
        }
        match fate {
            ReceiverFate::Unanswered => {
                world.receiver.lost_answers.set(true);
                sleep(NO_ANSWER).await;
                return None;
            }
            ReceiverFate::Slow(by) => sleep(Duration::from_millis(by)).await,
            _ => {}
        }
        // A life that ends meanwhile never sees the answer.
        if world.dead.get() { std::future::pending().await } else { answer(StatusCode::NO_CONTENT, None) }
    }
}

impl Receiver {
    /// Notes that the second channel is called gone: once in each life of the service, which tries it never again.
    fn say_gone(&self, world: &World) {
        let answer = GoneAnswer { life: world.lives.get(), millis: world.millis() };
        if let Some(before) = self.gone.replace(Some(answer)).filter(|before| before.life == answer.life) {
            let details = format!("tried {} ms after it was gone", answer.millis - before.millis);
            world.judge.borrow_mut().broken("gone-is-not-tried-again", details);
        }
    }
}

/// True if users have channels in this seed.
pub fn are_there(seed: u64) -> bool {
    Stream::of(seed, "channels").chance(HAVE_CHANNELS)
}

impl Service {
    /// The real worker's context.
    pub fn channels(&self, world: &World) -> Channels {
        let url = || Url::parse("https://companion.example.com").expect("a URL").into();
        Channels {
            clock: world.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            vault: self.vault.clone(),
            client: ChannelClient::simulated(
                std::sync::Arc::new(|request| Receiver::receive(request).boxed_local()),
                self.random.clone(),
            ),
            team_chat: None,
            links: AckLinks::new(&Key32::new([2; 32])),
            urls: PublicUrls { base: url(), frontend: url(), admin: url(), relay: None },
            vapid: Default::default(),
            news: Default::default(),
            good_look: Default::default(),
            failing_since: Default::default(),
            early_alarms: Default::default(),
            early: Default::default(),
            orphaned: Default::default(),
        }
    }

    /// Channels, and Alice's rules for her first server; for the other one she has none.
    pub fn add_channels(&self, db: &mut Db, world: &World, server: &ServerId) -> Result<(), DbError> {
        let mut steps = Vec::new();
        let sender = self.channels(world);
        for (user, name) in CHANNELS {
            let (url, secrets) = (format!("https://channels.example.com/{name}"), vec!["whsec_c2VjcmV0".to_owned()]);
            let target = ChannelTarget::Webhook { url, secrets, template: None };
            let channel = sender.new_channel(&USERS[user].into(), name.to_owned(), &target);
            if user == 0 {
                let after_seconds = SECOND_AFTER * steps.len() as u32;
                steps.push(EscalationStep { after_seconds, channels: vec![channel.id()] });
            }
            channels::insert(db, &channel, CHANNELS.len())?.expect("far below the limit");
        }
        let rules = AlarmRules { steps, repeat_seconds: 120, rounds: 3, ..AlarmRules::default() };
        alarm_rules::put(db, server, &USERS[0].into(), &rules)
    }
}

/// A message in the database.
#[derive(Debug, diesel::Queryable)]
struct Message {
    id: String,
    incident: String,
    user: String,
    channel: String,
    round: i32,
    state: String,
    reason: Option<String>,
    attempts: i32,
    queued_at: Timestamp,
    due_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

struct StoredMessages {
    messages: Vec<Message>,
    /// Id and name.
    channels: BTreeMap<String, String>,
    /// Names of those that are gone.
    gone: BTreeSet<String>,
    /// Incident, user and time of what users took note of.
    acks: BTreeMap<(String, String), Timestamp>,
    /// Incidents that have taken others up, and what users had taken note of there: when, is not stored.
    wholes: BTreeSet<String>,
    incidents: BTreeMap<String, NoticedIncident>,
}

/// An incident in the database.
#[derive(diesel::Queryable)]
struct NoticedIncident {
    id: String,
    server: String,
    first_at: Timestamp,
    late: bool,
    drill: bool,
}

impl StoredMessages {
    fn acknowledged(&self, incident: &str, user: &str) -> Option<&Timestamp> {
        self.acks.get(&(incident.to_owned(), user.to_owned()))
    }
}

fn read(db: &mut Db) -> Result<StoredMessages, DbError> {
    use schema::{deliveries as d, incident_acks as a, incidents as i, merged_incidents as m};
    let columns = (
        d::id,
        d::incident_id,
        d::user_id,
        d::channel_id,
        d::round,
        d::state,
        d::reason,
        d::attempts,
        d::queued_at,
        d::due_at,
        d::ended_at,
    );
    let channels = schema::channels::table.select((schema::channels::id, schema::channels::name));
    let gone = schema::channels::table.filter(schema::channels::state.eq("gone")).select(schema::channels::name);
    let acks = a::table.select((a::incident_id, a::user_id, a::at)).load::<(String, String, Timestamp)>(db)?;
    let incidents = i::table.select((i::id, i::server_id, i::first_at, i::late, i::drill));
    let incidents = incidents.load::<NoticedIncident>(db)?;
    Ok(StoredMessages {
        messages: d::table.order(d::id).select(columns).load(db)?,
        channels: channels.load::<(String, String)>(db)?.into_iter().collect(),
        gone: gone.load::<String>(db)?.into_iter().collect(),
        wholes: m::table.select(m::incident_id).load(db)?.into_iter().collect(),
        acks: acks.into_iter().map(|(incident, user, at)| ((incident, user), at)).collect(),
        incidents: incidents.into_iter().map(|incident| (incident.id.clone(), incident)).collect(),
    })
}

impl Judge {
    /// Each message ends accepted or with a reason, or waits for its time; an alarm wakes its owner, and goes on to wake
    /// until it is acknowledged.
    pub fn check_channels(&mut self, world: &World, pool: &Pool) {
        if !are_there(world.seed) {
            return;
        }
        let stored = pool.read_blocking(read).expect("the database can be read");
        let now = world.clock.now();
        let mut rounds = BTreeSet::new();
        for message in &stored.messages {
            self.check_message(world, message, now);
            // Times from before and after a jump cannot be compared, and one of an hour ends raids.
            if !self.jumped {
                self.check_cause(&stored, message);
            }
            if !rounds.insert((&message.incident, &message.channel, message.round)) {
                self.broken("escalates-once", format!("{message:?}"));
            }
        }
        self.check_taken(world, &stored.messages);
        self.check_gone_channel(world, &stored);
        if !self.jumped {
            self.check_escalation(world, &stored, now);
        }
    }

    fn check_message(&mut self, world: &World, message: &Message, now: Timestamp) {
        let is_taken = world.receiver.taken.borrow().contains_key(&message.id);
        match (message.state.as_str(), message.due_at, message.ended_at) {
            ("accepted", None, Some(_)) if !is_taken => self.broken("accepted-was-taken", format!("{message:?}")),
            ("accepted" | "superseded" | "cancelled" | "suppressed", None, Some(_)) => {}
            ("failed", None, Some(_)) if message.reason.is_none() => {
                self.broken("failures-have-reasons", format!("{message:?}"));
            }
            ("failed", None, Some(_)) if message.reason.as_deref() == Some("too_late") => {}
            ("failed", None, Some(_)) if message.reason.as_deref() == Some("gone") => {}
            // Every other fault of the receiver passes.
            ("failed", ..) => self.broken("passing-faults-are-tried-again", format!("{message:?}")),
            ("queued", Some(due), None) if due + SENT_WITHIN > now || self.jumped => {}
            _ => self.broken("messages-end", format!("at {now}: {message:?}")),
        }
    }

    /// A message that ends without an attempt that was taken has a cause that can be seen. A run is shorter than any raid:
    /// only one that was pushed late is over, and no user has quiet hours.
    fn check_cause(&mut self, stored: &StoredMessages, message: &Message) {
        let Some(incident) = stored.incidents.get(&message.incident) else { return };
        // A guest's access may have ended.
        let is_owner = PAIRED.iter().any(|(name, owner, _)| {
            USERS[*owner] == message.user && self.server(name).is_some_and(|id| id.as_str() == incident.server)
        });
        let is_newer = |other: &&Message| {
            other.incident == message.incident
                && other.user == message.user
                && other.channel == message.channel
                && other.round > message.round
        };
        let is_caused = match message.state.as_str() {
            "cancelled" => {
                incident.late || !is_owner || stored.acknowledged(&message.incident, &message.user).is_some()
            }
            "superseded" => stored.messages.iter().any(|other| is_newer(&other)),
            "suppressed" => false,
            "failed" if message.reason.as_deref() == Some("gone") => {
                stored.channels.get(&message.channel).is_some_and(|name| stored.gone.contains(name))
            }
            "failed" => incident.late,
            _ => true,
        };
        if !is_caused {
            self.broken("ends-have-causes", format!("{message:?}"));
        }
    }

    /// A channel is gone if and only if its receiver has said so. A life that ended first may not have stored it.
    fn check_gone_channel(&mut self, world: &World, stored: &StoredMessages) {
        let said = world.receiver.gone.get();
        if let Some(name) = stored.gone.iter().find(|name| said.is_none() || *name != SECOND) {
            self.broken("gone-was-said", format!("{name} is gone"));
        }
        let is_stored = |answer: &GoneAnswer| {
            answer.life == world.lives.get()
                && world.millis() - answer.millis > SENT_WITHIN.num_milliseconds() as u64
                && !self.bad_disk
        };
        if said.filter(is_stored).is_some() && !stored.gone.contains(SECOND) {
            self.broken("gone-is-kept", format!("{:?}", stored.gone));
        }
    }

    /// A message is sent twice only if its answer, or what was stored of it, was lost.
    fn check_taken(&mut self, world: &World, messages: &[Message]) {
        let states: BTreeMap<&str, &str> =
            messages.iter().map(|message| (message.id.as_str(), message.state.as_str())).collect();
        if self.lossy || self.bad_disk || world.receiver.lost_answers.get() {
            return;
        }
        for (id, count) in world.receiver.taken.borrow().iter() {
            if *count > 1 {
                self.broken("sent-once", format!("{id} came {count} times"));
            }
            if states.get(id.as_str()).is_some_and(|state| *state != "accepted") {
                self.broken("taken-is-accepted", format!("{id}: {:?}", states.get(id.as_str())));
            }
        }
    }

    fn check_escalation(&mut self, world: &World, stored: &StoredMessages, now: Timestamp) {
        let millis = |millis: u64| TimeDelta::milliseconds(millis as i64);
        let healthy_from = now - millis(world.millis()) + millis(HEALTHY_FROM);
        let owned: BTreeSet<String> = PAIRED
            .iter()
            .filter(|paired| paired.1 == 0)
            .filter_map(|paired| self.server(paired.0))
            .map(|id| id.to_string())
            .collect();
        let second_after = TimeDelta::seconds(i64::from(SECOND_AFTER));
        let is_checked =
            |incident: &&NoticedIncident| !incident.late && !incident.drill && owned.contains(&incident.server);
        for NoticedIncident { id: incident, server, first_at, .. } in stored.incidents.values().filter(is_checked) {
            let of_incident = |name: &str| {
                let name = name.to_owned();
                stored.messages.iter().filter(move |message| {
                    message.incident == *incident
                        && message.round == 0
                        && message.user == USERS[0]
                        && stored.channels.get(&message.channel) == Some(&name)
                })
            };
            let (first, second) = (of_incident("first").next(), of_incident(SECOND).next());
            let acked = stored.acknowledged(incident, USERS[0]);
            if let Some(first) = first
                && acked.is_none()
                && first.state != "accepted"
                && (healthy_from..now - TAKEN_WITHIN).contains(first_at)
            {
                self.broken("healthy-alarms-are-taken", format!("{incident} at {first_at}: {first:?}"));
            }
            match (first, second, acked) {
                (None, _, None) if *first_at + SENT_WITHIN < now => {
                    self.broken("alarms-wake-their-owner", format!("{incident} of {server} at {first_at}"));
                }
                (Some(Message { state, attempts: 0, ended_at: Some(at), .. }), None, None)
                    if state == "accepted"
                        && *at + second_after + SENT_WITHIN < now
                        && world.receiver.gone.get().is_none() =>
                {
                    self.broken("escalation-goes-on", format!("{incident}: {first:?}"));
                }
                (Some(first), Some(second), _)
                    if first.attempts == 0 && second.queued_at - first.queued_at < second_after =>
                {
                    self.broken("escalation-waits", format!("{first:?}, {second:?}"));
                }
                _ => {}
            }
            let Some(acked) = acked.filter(|_| !stored.wholes.contains(incident)) else { continue };
            let late = stored.messages.iter().find(|message| {
                message.incident == *incident
                    && message.user == USERS[0]
                    && message.round >= 0
                    && message.queued_at > *acked + TimeDelta::seconds(2)
            });
            if let Some(late) = late {
                self.broken("acknowledged-is-quiet", format!("acknowledged at {acked}: {late:?}"));
            }
        }
    }
}
