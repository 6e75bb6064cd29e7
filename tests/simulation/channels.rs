//! Channels by which users are woken: their other side, which outlives every life, and what is promised about messages.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use companion::{
    channels::Channels,
    clients::channels::{ChannelAnswer, ChannelClient, ChannelRequest},
    config::PublicUrls,
    crypto::{ack_link::AckLinks, keys::Key32},
    db::{
        alarms::early_alarms::EarlyAlarms,
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        notices::{alarm_rules, channels, count_updates::UPDATED, notice_queue::message_id},
        schema,
    },
    domain::{
        channels::{
            escalation::{AlarmRules, EscalationStep},
            quiet_hours::QuietHours,
            user_channel::ChannelTarget,
        },
        ids::{ChannelId, ServerId},
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
    browsers::{BROWSERS, Browsers},
    early_rings::{EarlyRings, RINGS_WITHIN},
    judge::Judge,
    life::Service,
    random::Stream,
    script::HEALTHY_FROM,
    world::{PAIRED, USERS, World, world},
};

/// Seeds in a hundred in which users have channels.
const HAVE_CHANNELS: u64 = 50;
/// Seeds in a hundred, of those, in which Bob has quiet hours all the time, which raids do not pierce.
const IS_QUIET: u64 = 40;
/// His paired server.
const OF_BOB: usize = 2;
/// Channels: their user, and a name that is in their URL. Alice's second one is tried a minute after the first.
const CHANNELS: [(usize, &str); 3] = [(0, FIRST), (0, SECOND), (1, "only")];
const FIRST: &str = "first";
const SECOND: &str = "second";
const SECOND_AFTER: u32 = 60;
const MOST_CHANNELS: usize = CHANNELS.len() + BROWSERS.len();
/// The client waits no longer for an answer.
pub const NO_ANSWER: Duration = Duration::from_secs(8);
/// A message that is due goes out within this time in the healthy minutes.
pub const SENT_WITHIN: TimeDelta = TimeDelta::seconds(20);
/// The first message of an alarm of the healthy minutes is taken within this time, also while the database is slow and when
/// the process ends once more.
pub const TAKEN_WITHIN: TimeDelta = TimeDelta::seconds(60);

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
    /// The receiver of Alice's second channel says that it ended, from then on for good. The others run. A browser's
    /// subscription is gone so, too.
    Gone,
}

/// An answer that a channel is gone: the life of the service that was given it, and when.
#[derive(Clone, Copy)]
pub struct GoneAnswer {
    pub life: u32,
    pub millis: u64,
}

/// The other side of all channels.
#[derive(Default)]
pub struct Receiver {
    pub fate: Cell<ReceiverFate>,
    /// The answer to a message that was taken was lost at some time.
    lost_answers: Cell<bool>,
    /// Ids of the messages that were taken, and how often.
    taken: RefCell<BTreeMap<String, u32>>,
    /// Messages that were stored as accepted at the start of a life, and how often each had come by then.
    accepted: RefCell<BTreeMap<String, u32>>,
    /// The last answer that the second channel is gone.
    gone: Cell<Option<GoneAnswer>>,
    /// The channels that are browsers.
    pub browsers: Browsers,
    /// When messages arrived, and what was wrong then.
    pub rings: EarlyRings,
    /// The server for which Alice has rules, and that of Bob's quiet hours, as long as they are not paired again.
    ruled: RefCell<Option<ServerId>>,
    quiet: RefCell<Option<ServerId>>,
}

impl Receiver {
    /// Answers a message.
    async fn receive(request: ChannelRequest) -> Option<ChannelAnswer> {
        let world = world();
        let began = world.millis();
        let lag = 1 + world.disk_random.borrow_mut().below(20);
        sleep(Duration::from_millis(lag)).await;
        if world.dead.get() {
            return std::future::pending().await;
        }
        if let Some(browser) = world.receiver.browsers.at(&request.url) {
            return browser.receive(request, began).await;
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
                let (channel, incident) = (request.url.rsplit('/').next(), body["data"]["incident"].as_str());
                world.receiver.rings.note(channel.unwrap_or_default(), incident.unwrap_or_default(), world.millis());
                world.receiver.note_taken(id);
            }
            _ => world.judge.borrow_mut().broken("messages-are-understood", format!("{request:?}")),
        }
        answer_taken(&world, fate, StatusCode::NO_CONTENT).await
    }
}

/// Answers a message that was taken, as this fate has it: late, by this status or not at all.
pub async fn answer_taken(world: &World, fate: ReceiverFate, status: StatusCode) -> Option<ChannelAnswer> {
    match fate {
        ReceiverFate::Unanswered => {
            world.receiver.lose_answer();
            sleep(NO_ANSWER).await;
            return None;
        }
        ReceiverFate::Slow(by) => sleep(Duration::from_millis(by)).await,
        _ => {}
    }
    // A life that ends meanwhile never sees the answer.
    if world.dead.get() {
        return std::future::pending().await;
    }
    Some(ChannelAnswer { status, retry_after: None, receipt: None })
}

impl Receiver {
    /// Notes that the message with this id was taken.
    pub fn note_taken(&self, id: String) {
        *self.taken.borrow_mut().entry(id).or_default() += 1;
    }

    /// The answer to a message that was taken is lost.
    pub fn lose_answer(&self) {
        self.lost_answers.set(true);
    }

    /// True if such an answer was lost.
    pub fn has_lost_answers(&self) -> bool {
        self.lost_answers.get()
    }

    /// When the service has started, before it does anything: notes which messages are stored as accepted. No life sends them
    /// again.
    pub fn note_accepted(&self, pool: &Pool) {
        use schema::deliveries as d;
        let ids: Vec<String> = pool
            .read_blocking(|db| Ok(d::table.filter(d::state.eq("accepted")).select(d::id).load(db)?))
            .expect("the messages can be read");
        let (taken, mut accepted) = (self.taken.borrow(), self.accepted.borrow_mut());
        for id in ids {
            let times = taken.get(&id).copied().unwrap_or_default();
            accepted.entry(id).or_insert(times);
        }
    }

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
    pub fn channels(&self, world: &World, early_alarms: Arc<EarlyAlarms>) -> Channels {
        let url = || Url::parse("https://companion.example.com").expect("a URL").into();
        Channels {
            clock: world.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            vault: self.vault.clone(),
            client: ChannelClient::simulated(
                Arc::new(|request| Receiver::receive(request).boxed_local()),
                self.random.clone(),
            ),
            team_chat: None,
            links: AckLinks::new(&Key32::new([2; 32])),
            urls: PublicUrls { base: url(), frontend: url(), admin: url(), relay: None },
            vapid: Default::default(),
            news: Default::default(),
            good_look: Default::default(),
            failing_since: Default::default(),
            early_alarms,
            early: Default::default(),
            gone: Default::default(),
            orphaned: Default::default(),
        }
    }

    /// Channels, and Alice's rules for her first server; for the other one she has none, and Bob has some in few seeds. In some
    /// seeds a user has a browser as well.
    pub fn add_channels(&self, db: &mut Db, world: &World, server: &ServerId) -> Result<(), DbError> {
        let mut steps = Vec::new();
        let sender = self.channels(world, Arc::default());
        for (user, name) in CHANNELS {
            let (url, secrets) = (format!("https://channels.example.com/{name}"), vec!["whsec_c2VjcmV0".to_owned()]);
            let target = ChannelTarget::Webhook { url, secrets, template: None };
            let channel = sender.new_channel(&USERS[user].into(), name.to_owned(), &target);
            if user == 0 {
                let after_seconds = SECOND_AFTER * steps.len() as u32;
                steps.push(EscalationStep { after_seconds, channels: vec![channel.id()] });
            }
            channels::insert(db, &channel, MOST_CHANNELS)?.expect("far below the limit");
        }
        let new_channel = |user: usize, target: &ChannelTarget| {
            sender.new_channel(&USERS[user].into(), BROWSERS[user].to_owned(), target)
        };
        for (user, channel) in world.receiver.browsers.subscribe(world.seed, new_channel) {
            if let Some(first) = steps.first_mut().filter(|_| user == 0) {
                first.channels.push(channel.id());
            }
            channels::insert(db, &channel, MOST_CHANNELS)?.expect("far below the limit");
        }
        let rules = AlarmRules { steps, repeat_seconds: 120, rounds: 3, ..AlarmRules::default() };
        world.receiver.ruled.replace(Some(server.clone()));
        alarm_rules::put(db, server, &USERS[0].into(), &rules)?;
        let of_bob = world.judge.borrow().server(PAIRED[OF_BOB].0);
        match of_bob.filter(|_| Stream::of(world.seed, "quiet hours").chance(IS_QUIET)) {
            Some(server) => {
                // A run begins at eight o'clock in winter, and takes ten minutes.
                let (from, to) = ("07:30".to_owned(), "08:30".to_owned());
                let quiet = Some(QuietHours { from, to, time_zone: "Europe/London".to_owned(), raids_pierce: false });
                let rules = AlarmRules { quiet, ..AlarmRules::default() };
                world.receiver.quiet.replace(Some(server.clone()));
                alarm_rules::put(db, &server, &USERS[PAIRED[OF_BOB].1].into(), &rules)
            }
            None => Ok(()),
        }
    }
}

/// A message in the database.
#[derive(Debug, diesel::Queryable)]
pub struct Message {
    pub id: String,
    pub incident: String,
    pub user: String,
    pub channel: String,
    pub round: i32,
    pub state: String,
    pub reason: Option<String>,
    pub attempts: i32,
    pub queued_at: Timestamp,
    pub due_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// Messages in the database, and what they are about.
pub struct StoredMessages {
    pub messages: Vec<Message>,
    /// Id and name.
    pub channels: BTreeMap<String, String>,
    /// Names of those that are gone.
    gone: BTreeSet<String>,
    /// Incident, user and time of what users took note of.
    acks: BTreeMap<(String, String), Timestamp>,
    /// Incidents that have taken others up, and what users had taken note of there: when, is not stored.
    pub wholes: BTreeSet<String>,
    pub incidents: BTreeMap<String, NoticedIncident>,
    /// Incidents that an alarm on the link opened.
    of_link: BTreeSet<String>,
}

/// An incident in the database.
#[derive(diesel::Queryable)]
pub struct NoticedIncident {
    pub id: String,
    pub server: String,
    pub first_at: Timestamp,
    pub late: bool,
    pub drill: bool,
}

impl StoredMessages {
    /// When the user took note of the incident.
    pub fn acknowledged(&self, incident: &str, user: &str) -> Option<&Timestamp> {
        self.acks.get(&(incident.to_owned(), user.to_owned()))
    }
}

fn read(db: &mut Db) -> Result<StoredMessages, DbError> {
    use schema::{alarms as l, deliveries as d, incident_acks as a, incidents as i, merged_incidents as m};
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
    let of_link = l::table.filter(l::state.eq("opened")).filter(l::path.eq("link")).select(l::incident);
    let of_link = of_link.load::<Option<String>>(db)?;
    Ok(StoredMessages {
        messages: d::table.order(d::id).select(columns).load(db)?,
        channels: channels.load::<(String, String)>(db)?.into_iter().collect(),
        gone: gone.load::<String>(db)?.into_iter().collect(),
        wholes: m::table.select(m::incident_id).load(db)?.into_iter().collect(),
        acks: acks.into_iter().map(|(incident, user, at)| ((incident, user), at)).collect(),
        incidents: incidents.into_iter().map(|incident| (incident.id.clone(), incident)).collect(),
        of_link: of_link.into_iter().flatten().collect(),
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
            self.check_message(world, &stored, message, now);
            // Times from before and after a jump cannot be compared, and one of an hour ends raids.
            if !self.jumped {
                self.check_cause(world, &stored, message);
            }
            if !rounds.insert((&message.incident, &message.channel, message.round)) {
                self.broken("escalates-once", format!("{message:?}"));
            }
        }
        self.check_taken(world, &stored.messages);
        self.check_gone_channels(world, &stored);
        self.check_browsers(world, &stored, now);
        if !self.jumped {
            self.check_escalation(world, &stored, now);
            self.check_early(world, &stored, now);
            self.check_quiet(world, &stored);
        }
    }

    fn check_message(&mut self, world: &World, stored: &StoredMessages, message: &Message, now: Timestamp) {
        let browser = stored.channels.get(&message.channel).and_then(|name| world.receiver.browsers.named(name));
        // One that was sent of a part has the whole's incident by now.
        let is_shown = browser.is_some_and(|browser| {
            browser.has_shown(&message.incident, message.round) || stored.wholes.contains(&message.incident)
        });
        let is_taken = is_shown || world.receiver.taken.borrow().contains_key(&message.id);
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
    /// only one that was pushed late is over, and of quiet hours only Bob has any.
    fn check_cause(&mut self, world: &World, stored: &StoredMessages, message: &Message) {
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
            // A count that was in the alarm itself is no news.
            "cancelled" if message.round == UPDATED => true,
            "cancelled" => {
                incident.late || !is_owner || stored.acknowledged(&message.incident, &message.user).is_some()
            }
            "superseded" => stored.messages.iter().any(|other| is_newer(&other)),
            "suppressed" => {
                world.receiver.quiet.borrow().as_ref().is_some_and(|server| server.as_str() == incident.server)
                    && message.user == USERS[PAIRED[OF_BOB].1]
                    && !incident.drill
            }
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
    fn check_gone_channels(&mut self, world: &World, stored: &StoredMessages) {
        let browser = |name: &str| world.receiver.browsers.named(name).and_then(|browser| browser.gone());
        let said = |name: &str| if name == SECOND { world.receiver.gone.get() } else { browser(name) };
        if let Some(name) = stored.gone.iter().find(|name| said(name).is_none()) {
            self.broken("gone-was-said", format!("{name} is gone"));
        }
        let bad_disk = self.bad_disk;
        let is_stored = |answer: &GoneAnswer| {
            answer.life == world.lives.get()
                && world.millis() - answer.millis > SENT_WITHIN.num_milliseconds() as u64
                && !bad_disk
        };
        for name in [SECOND].into_iter().chain(BROWSERS) {
            // A user who was erased has no channels.
            let is_there = stored.channels.values().any(|known| known == name);
            if is_there && said(name).filter(is_stored).is_some() && !stored.gone.contains(name) {
                self.broken("gone-is-kept", format!("{name}: {:?}", stored.gone));
            }
        }
    }

    /// A message is sent twice only if its answer, or what was stored of it, was lost.
    fn check_taken(&mut self, world: &World, messages: &[Message]) {
        let states: BTreeMap<&str, &str> =
            messages.iter().map(|message| (message.id.as_str(), message.state.as_str())).collect();
        for (id, before) in world.receiver.accepted.borrow().iter() {
            let times = world.receiver.taken.borrow().get(id).copied().unwrap_or_default();
            if times > *before {
                self.broken("accepted-is-not-sent-again", format!("{id} came {times} times, {before} before a start"));
            }
        }
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

    /// An alarm on the link that the database does not take wakes Alice all the same, by each channel of the first step.
    fn check_early(&mut self, world: &World, stored: &StoredMessages, now: Timestamp) {
        let ruled = world.receiver.ruled.borrow().as_ref().map(ServerId::to_string);
        for NoticedIncident { id: incident, server, first_at, late, drill } in stored.incidents.values() {
            let is_whole = stored.wholes.contains(incident);
            if *late || *drill || is_whole || ruled.as_ref() != Some(server) || !stored.of_link.contains(incident) {
                continue;
            }
            let ago = u64::try_from((now - *first_at).num_milliseconds()).unwrap_or_default();
            let at = world.millis().saturating_sub(ago);
            let within = TimeDelta::milliseconds(RINGS_WITHIN as i64);
            let is_acknowledged =
                stored.acknowledged(incident, USERS[0]).is_some_and(|acked| *acked < *first_at + within);
            let rings = &world.receiver.rings;
            if is_acknowledged || ago <= RINGS_WITHIN || !rings.only_database_was_stuck(at) {
                continue;
            }
            let browser = world.receiver.browsers.of(0).filter(|browser| browser.gone().is_none());
            let browser = browser.filter(|_| rings.browser_was_calm(at)).map(|_| BROWSERS[0]);
            for name in [FIRST].into_iter().chain(browser) {
                if !rings.has_rung(name, incident, at + RINGS_WITHIN) {
                    self.broken("alarms-ring-without-database", format!("{incident} at {first_at}: {name}"));
                }
            }
        }
    }

    /// In Bob's quiet hours nothing but a drill wakes him.
    fn check_quiet(&mut self, world: &World, stored: &StoredMessages) {
        let quiet = world.receiver.quiet.borrow().as_ref().map(ServerId::to_string);
        let is_quiet = |incident: &NoticedIncident| quiet.as_ref() == Some(&incident.server) && !incident.drill;
        let of_bob = stored.messages.iter().filter(|message| message.user == USERS[PAIRED[OF_BOB].1]);
        let woken = of_bob.filter(|message| stored.incidents.get(&message.incident).is_some_and(is_quiet));
        let woken: Vec<String> = woken.filter(|one| one.state != "suppressed").map(|one| format!("{one:?}")).collect();
        woken.into_iter().for_each(|message| self.broken("quiet-hours-are-quiet", message));
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
        let ruled = world.receiver.ruled.borrow().as_ref().map(ServerId::to_string);
        let has_lost_browser = world.receiver.browsers.of(0).is_some_and(|browser| browser.gone().is_some());
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
            let [browser, first, second] = [BROWSERS[0], FIRST, SECOND].map(|name| of_incident(name).next());
            // A channel that fails passes the alarm on at once, and so does one that waits for its push service.
            let is_smooth = !world.receiver.browsers.have_paused()
                && browser.is_none_or(|browser| browser.attempts == 0 && browser.state == "accepted");
            let is_any_gone = world.receiver.gone.get().is_some() || has_lost_browser;
            // Without rules a browser is first, and all others are a step later.
            let leads = ruled.as_ref() != Some(server) && browser.is_some();
            let (first, second) = if leads { (browser, first) } else { (first, second) };
            // Others came with a part, whose steps had a time of their own.
            let is_own = |message: &Message| {
                message.id == message_id(incident, &ChannelId::from(message.channel.as_str()), message.round)
            };
            let acked = stored.acknowledged(incident, USERS[0]);
            if let Some(first) = first
                && acked.is_none()
                && first.state != "accepted"
                && first.reason.as_deref() != Some("gone")
                && (healthy_from..now - TAKEN_WITHIN).contains(first_at)
            {
                self.broken("healthy-alarms-are-taken", format!("{incident} at {first_at}: {first:?}"));
            }
            match (first, second, acked) {
                (None, _, None) if *first_at + SENT_WITHIN < now => {
                    self.broken("alarms-wake-their-owner", format!("{incident} of {server} at {first_at}"));
                }
                (Some(Message { state, attempts: 0, ended_at: Some(at), .. }), None, None)
                    if state == "accepted" && *at + second_after + SENT_WITHIN < now && !is_any_gone =>
                {
                    self.broken("escalation-goes-on", format!("{incident}: {first:?}"));
                }
                (Some(first), Some(second), _)
                    if is_smooth
                        && [first, second].into_iter().all(is_own)
                        && first.attempts == 0
                        && second.queued_at - first.queued_at < second_after =>
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
                    // One that was kept in the journal reaches the rows later; what they have until then is not sent.
                    && (message.state != "cancelled" || message.attempts > 0)
                    && message.queued_at > *acked + TimeDelta::seconds(2)
            });
            if let Some(late) = late {
                self.broken("acknowledged-is-quiet", format!("acknowledged at {acked}: {late:?}"));
            }
        }
    }
}
