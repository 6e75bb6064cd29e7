//! Browsers that pushes wake (RFC 8030): each has a subscription at a push service, decrypts by its keys what comes, and
//! shows one notification for each alarm. Both outlive every life. A promise about a push is checked as it is shown, the others
//! in [`browser_checks`](crate::browser_checks).

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use actix_web::test::TestRequest;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use companion::{
    clients::channels::{ChannelAnswer, ChannelRequest},
    db::{
        engine::pool::Pool,
        notices::{
            channels::StoredChannel,
            count_updates::UPDATED,
            notice_queue::{ACKNOWLEDGED, message_id},
        },
        schema,
    },
    domain::{channels::user_channel::ChannelTarget, ids::ChannelId},
    simulator::browser_push::{PushHeaders, PushSender},
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use reqwest::StatusCode;
use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
    rand::SystemRandom,
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    channels::{self, GoneAnswer, NO_ANSWER, ReceiverFate, answer_taken},
    random::Stream,
    script::{self, Act, HEALTHY_FROM, Script},
    world::{USERS, World, world},
};

/// Users in a hundred, of those with channels, who have a browser as well.
const HAVE_BROWSER: u64 = 40;
/// Names of their channels, by user. In Alice's rules hers is tried together with the first channel.
pub const BROWSERS: [&str; USERS.len()] = ["browser of alice", "browser of bob"];
/// The push service of all of them.
const ORIGIN: &str = "https://push.example.net";
/// Most faults of a subscription.
const MOST_FAULTS: u64 = 3;
/// No fault is so close to the begin of the script or of its healthy minutes.
const FAULTS_AWAY: u64 = 5_000;
/// Attempts that began so soon after an answer that the subscription is gone were on their way together with that one.
const TOGETHER: u64 = 1_000;

const OPENED_WORD: &str = "raid.opened";
pub const REPEATED_WORD: &str = "raid.repeated";
const UPDATED_WORD: &str = "raid.updated";
const ACKNOWLEDGED_WORD: &str = "raid.acknowledged";

/// The word of the messages of this round.
fn word_of(round: i32) -> &'static str {
    match round {
        ACKNOWLEDGED => ACKNOWLEDGED_WORD,
        UPDATED => UPDATED_WORD,
        0 => OPENED_WORD,
        _ => REPEATED_WORD,
    }
}

/// The users who have a browser in this seed.
fn users(seed: u64) -> impl Iterator<Item = usize> {
    let mut random = Stream::of(seed, "browsers");
    let has = USERS.map(|_| random.chance(HAVE_BROWSER));
    (0..USERS.len()).filter(move |user| has[*user] && channels::are_there(seed))
}

/// Faults of the subscriptions: a stream of their own, so that the rest of the script is what it was.
pub fn faults(seed: u64) -> Script {
    let mut script = Script::new();
    for user in users(seed) {
        let mut random = Stream::of(seed, &format!("{} has faults", BROWSERS[user]));
        for _ in 0..random.below(MOST_FAULTS + 1) {
            let at = random.between(FAULTS_AWAY, HEALTHY_FROM - FAULTS_AWAY);
            script.push((at, Act::BrowserFault { user, fate: script::receiver(&mut random) }));
        }
    }
    script
}

fn endpoint(user: usize) -> String {
    format!("{ORIGIN}/send/{}", USERS[user])
}

/// The keys of a subscription. They are the operating system's: nothing that is traced depends on them.
struct SubscriptionKeys {
    private: EphemeralPrivateKey,
    public: Vec<u8>,
    auth: [u8; 16],
}

impl SubscriptionKeys {
    fn generate(user: usize) -> Self {
        let private = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).expect("a key");
        let public = private.compute_public_key().expect("its point").as_ref().to_vec();
        Self { private, public, auth: [7 + user as u8; 16] }
    }

    /// Opens the body of a push (RFC 8291, RFC 8188).
    fn decrypt(&self, body: &[u8]) -> Option<Vec<u8>> {
        let (salt, rest) = body.split_first_chunk::<16>()?;
        let (_record_size, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first()?;
        let (theirs, record) = rest.split_at_checked(usize::from(*length))?;
        // SAFETY: the key is plain bytes and a reference, without a destructor. ring has no key for more than one agreement,
        // and a browser's agrees with the key of each push.
        let private = unsafe { std::ptr::read(&raw const self.private) };
        let theirs_read = UnparsedPublicKey::new(&ECDH_P256, theirs);
        let shared = agree_ephemeral(private, &theirs_read, <[u8]>::to_vec).ok()?;
        let (mut input, mut key, mut nonce) = ([0; 32], [0; 16], [0; NONCE_LEN]);
        let prk = Salt::new(HKDF_SHA256, &self.auth).extract(&shared);
        expand(&prk, &[b"WebPush: info\0", self.public.as_slice(), theirs], &mut input)?;
        let prk = Salt::new(HKDF_SHA256, salt).extract(&input);
        expand(&prk, &[b"Content-Encoding: aes128gcm\0"], &mut key)?;
        expand(&prk, &[b"Content-Encoding: nonce\0"], &mut nonce)?;
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
        let mut record = record.to_vec();
        let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record).ok()?;
        // Padding follows the byte that ends the last record.
        let end = opened.iter().rposition(|byte| *byte != 0)?;
        (opened[end] == 2).then(|| opened[..end].to_vec())
    }
}

/// A length of key material.
struct KeyLength(usize);

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(prk: &Prk, info: &[&[u8]], output: &mut [u8]) -> Option<()> {
    prk.expand(info, KeyLength(output.len())).and_then(|material| material.fill(output)).ok()
}

/// The count in the words of a message: `It went off 3 times since 08:01:02 UTC.`
fn count(words: &str) -> Option<u64> {
    let line = words.lines().find_map(|line| line.strip_prefix("It went off "))?;
    match line.split_once(" times since ") {
        Some((count, _)) => count.parse().ok(),
        None => line.starts_with("at ").then_some(1),
    }
}

/// A push as a browser took it.
pub struct ShownPush {
    pub event: String,
    pub incident: String,
    pub count: u64,
    pub millis: u64,
}

impl ShownPush {
    /// True for one that makes a sound.
    pub fn rings(&self) -> bool {
        self.event == OPENED_WORD || self.event == REPEATED_WORD
    }

    /// True for one of an alarm that this other push names as a part of its own.
    fn is_of_part(&self, text: &Value) -> bool {
        text["parts"].as_array().is_some_and(|parts| parts.iter().any(|part| *part == self.incident.as_str()))
    }
}

/// A browser and its push service.
pub struct Browser {
    pub user: usize,
    channel: ChannelId,
    keys: SubscriptionKeys,
    fate: Cell<ReceiverFate>,
    /// The public key of the sender: a subscription is of one.
    sender: RefCell<Option<String>>,
    /// The incident of each topic, and whether it is that of counts.
    topics: RefCell<BTreeMap<String, (String, bool)>>,
    pub shown: RefCell<Vec<ShownPush>>,
    /// The last answer that the subscription is gone.
    gone: Cell<Option<GoneAnswer>>,
    /// This life began with that stored.
    is_stored_gone: Cell<bool>,
}

/// The browsers of all users.
#[derive(Default)]
pub struct Browsers {
    by_user: RefCell<BTreeMap<usize, Rc<Browser>>>,
    /// The push service has asked for a pause: pushes to other browsers there wait, too.
    has_throttled: Cell<bool>,
}

impl Browsers {
    /// Subscribes the browsers that users have in this seed, each with its channel.
    pub fn subscribe(
        &self,
        seed: u64,
        new_channel: impl Fn(usize, &ChannelTarget) -> StoredChannel,
    ) -> Vec<(usize, StoredChannel)> {
        let subscribe = |user| {
            let keys = SubscriptionKeys::generate(user);
            let (p256dh, auth) = (URL_SAFE_NO_PAD.encode(&keys.public), URL_SAFE_NO_PAD.encode(keys.auth));
            let channel = new_channel(user, &ChannelTarget::WebPush { endpoint: endpoint(user), p256dh, auth });
            let browser = Browser {
                user,
                channel: channel.id(),
                keys,
                fate: Cell::default(),
                sender: RefCell::default(),
                topics: RefCell::default(),
                shown: RefCell::default(),
                gone: Cell::new(None),
                is_stored_gone: Cell::new(false),
            };
            self.by_user.borrow_mut().insert(user, Rc::new(browser));
            (user, channel)
        };
        users(seed).map(subscribe).collect()
    }

    /// The browser of a user.
    pub fn of(&self, user: usize) -> Option<Rc<Browser>> {
        self.by_user.borrow().get(&user).cloned()
    }

    /// The browser behind an endpoint.
    pub fn at(&self, url: &str) -> Option<Rc<Browser>> {
        self.by_user.borrow().values().find(|browser| endpoint(browser.user) == url).cloned()
    }

    /// The browser behind the channel of this name.
    pub fn named(&self, name: &str) -> Option<Rc<Browser>> {
        self.of(BROWSERS.iter().position(|known| *known == name)?)
    }

    /// True if the push service has asked for a pause.
    pub fn have_paused(&self) -> bool {
        self.has_throttled.get()
    }

    /// The push service treats the browser of this user so from now on, unless its subscription is gone.
    pub fn disturb(&self, user: usize, fate: ReceiverFate) {
        if let Some(browser) = self.of(user).filter(|browser| !browser.has_ended()) {
            browser.fate.set(fate);
        }
    }

    /// Nothing is wrong any longer, but what is gone.
    pub fn heal(&self) {
        (0..USERS.len()).for_each(|user| self.disturb(user, ReceiverFate::Run));
    }

    /// When the service has started, before it does anything: notes which channels are stored as gone. No life tries them again.
    pub fn note_gone(&self, pool: &Pool) {
        use schema::channels as c;
        let browsers = self.by_user.borrow();
        if browsers.is_empty() {
            return;
        }
        let gone: Vec<String> = pool
            .read_blocking(|db| Ok(c::table.filter(c::state.eq("gone")).select(c::id).load(db)?))
            .expect("the channels can be read");
        let is_gone = |browser: &&Rc<Browser>| gone.contains(&browser.channel.to_string());
        browsers.values().filter(is_gone).for_each(|browser| browser.is_stored_gone.set(true));
    }
}

impl Browser {
    /// The subscription has ended, which its push service says with the next push.
    fn has_ended(&self) -> bool {
        self.fate.get() == ReceiverFate::Gone
    }

    /// True if nothing holds up a push.
    pub fn is_calm(&self) -> bool {
        self.fate.get() == ReceiverFate::Run
    }

    /// The last answer that the subscription is gone.
    pub fn gone(&self) -> Option<GoneAnswer> {
        self.gone.get()
    }

    /// True if a message of this round was taken.
    pub fn has_shown(&self, incident: &str, round: i32) -> bool {
        self.shown.borrow().iter().any(|shown| shown.incident == incident && shown.event == word_of(round))
    }

    /// Answers a push as the push service does. The service began then to send it.
    pub async fn receive(&self, request: ChannelRequest, began: u64) -> Option<ChannelAnswer> {
        let world = world();
        let answer = |status, retry_after| Some(ChannelAnswer { status, retry_after, receipt: None });
        let fate = self.fate.get();
        world.trace(&format!("{} is sent a push: {fate:?}", BROWSERS[self.user]));
        match fate {
            ReceiverFate::Gone => {
                self.say_gone(&world, began);
                return answer(StatusCode::GONE, None);
            }
            ReceiverFate::Failing => return answer(StatusCode::SERVICE_UNAVAILABLE, None),
            ReceiverFate::Throttling => {
                world.receiver.browsers.has_throttled.set(true);
                return answer(StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(5)));
            }
            ReceiverFate::Silent => {
                sleep(NO_ANSWER).await;
                return None;
            }
            ReceiverFate::Run | ReceiverFate::Slow(_) | ReceiverFate::Unanswered => {}
        }
        if let Err(fault) = self.take(&world, &request) {
            world.judge.borrow_mut().broken("pushes-are-understood", fault);
            return answer(StatusCode::BAD_REQUEST, None);
        }
        answer_taken(&world, fate, StatusCode::CREATED).await
    }

    /// Notes that the subscription is called gone: once in each life of the service that does not know it yet.
    fn say_gone(&self, world: &World, began: u64) {
        let answer = GoneAnswer { life: world.lives.get(), millis: world.millis() };
        let before = self.gone.replace(Some(answer));
        let is_known = |before: GoneAnswer| before.life == answer.life && began > before.millis + TOGETHER;
        if self.is_stored_gone.get() || before.is_some_and(is_known) {
            let before = before.map(|before| before.millis);
            let details = format!("{} is tried, and was gone at {before:?} ms", BROWSERS[self.user]);
            world.judge.borrow_mut().broken("gone-is-not-tried-again", details);
        }
    }

    /// Takes a push as the strictest push service does, and shows it.
    fn take(&self, world: &World, request: &ChannelRequest) -> Result<(), String> {
        let sent = request
            .headers
            .iter()
            .fold(TestRequest::post(), |sent, (name, value)| sent.insert_header((&**name, value.as_str())));
        let sent = sent.to_http_request();
        let headers = PushHeaders::read(&sent).map_err(|refusal| refusal.to_string())?;
        let authorization = sent.headers().get("authorization").and_then(|value| value.to_str().ok());
        let sender = PushSender::read(authorization.unwrap_or_default(), ORIGIN, world.clock.now());
        let sender = sender.map_err(|refusal| refusal.to_string())?.key;
        if *self.sender.borrow_mut().get_or_insert_with(|| sender.clone()) != sender {
            return Err("the subscription is of another key".to_owned());
        }
        let text = self.keys.decrypt(&request.body).ok_or("a push that cannot be decrypted")?;
        let text: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        self.show(world, &headers, &text)
    }

    /// Shows a push, and holds it against those before.
    fn show(&self, world: &World, headers: &PushHeaders, text: &Value) -> Result<(), String> {
        let (event, notification) = (text["event"].as_str().unwrap_or_default(), &text["notification"]);
        let (Some(incident), Some(count)) =
            (text["incident"].as_str(), count(notification["body"].as_str().unwrap_or_default()))
        else {
            return Err(text.to_string());
        };
        let is_known = [OPENED_WORD, REPEATED_WORD, UPDATED_WORD, ACKNOWLEDGED_WORD].contains(&event);
        let has_button = text["ackUrl"].is_string();
        let is_whole = text["web_push"] == 8030 && notification["navigate"].is_string();
        if !is_known || !is_whole || has_button == (event == ACKNOWLEDGED_WORD) {
            return Err(text.to_string());
        }
        let name = BROWSERS[self.user];
        world.trace(&format!("{name} shows {event} of {incident}, {count} times"));
        let push = ShownPush { event: event.to_owned(), incident: incident.to_owned(), count, millis: world.millis() };
        for (invariant, details) in self.faults(&push, headers, text) {
            world.judge.borrow_mut().broken(invariant, format!("{name}: {details}: {text}"));
        }
        match event {
            OPENED_WORD => world.receiver.note_taken(message_id(incident, &self.channel, 0)),
            ACKNOWLEDGED_WORD => world.receiver.note_taken(self.acknowledgement_id(incident, text)),
            // The rounds of repetitions are not in the push.
            _ => {}
        }
        if push.rings() {
            world.receiver.rings.note(name, incident, push.millis);
        }
        self.shown.borrow_mut().push(push);
        Ok(())
    }

    /// The id of this acknowledgement, which is not in the push. Each message of a part that rang here may have it said once more, by
    /// the next id: it named no such part before, or the part rang after it.
    fn acknowledgement_id(&self, incident: &str, text: &Value) -> String {
        let shown = self.shown.borrow();
        let is_said = shown.iter().any(|before| before.incident == incident && before.event == ACKNOWLEDGED_WORD);
        let of_parts = shown.iter().filter(|before| is_said && before.rings() && before.is_of_part(text));
        let first = message_id(incident, &self.channel, ACKNOWLEDGED);
        of_parts.fold(first, |id, _| message_id(&id, &self.channel, ACKNOWLEDGED))
    }

    /// The promises that this push breaks.
    fn faults(&self, push: &ShownPush, headers: &PushHeaders, text: &Value) -> Vec<(&'static str, String)> {
        let (mut faults, rings, shown) = (Vec::new(), push.rings(), self.shown.borrow());
        let notification = &text["notification"];
        let urgency = if rings { "high" } else { "normal" };
        if notification["silent"] != !rings || headers.urgency != urgency {
            faults.push(("only-alarms-sound", format!("urgency {}", headers.urgency)));
        }
        // One of a topic takes the place of another that waits: a count never that of an alarm, and nothing that of another
        // incident.
        let of_topic = (push.incident.clone(), push.event == UPDATED_WORD);
        let topic = headers.topic.clone().unwrap_or_default();
        let mut topics = self.topics.borrow_mut();
        let other = topics.iter().find(|(known, of)| (**known == topic) != (**of == of_topic));
        if let Some(other) = other {
            faults.push(("one-notification-for-incident", format!("topic {topic}, and {other:?}")));
        }
        topics.insert(topic, of_topic);
        if notification["tag"] != push.incident.as_str() {
            faults.push(("one-notification-for-incident", "another tag".to_owned()));
        }
        // News take the place of what was shown of a part, too.
        let is_before = |before: &ShownPush| before.incident == push.incident || before.is_of_part(text);
        if !rings && !shown.iter().any(is_before) {
            faults.push(("news-follow-an-alarm", "nothing rang before".to_owned()));
        }
        for before in shown.iter().filter(|before| before.incident == push.incident) {
            if before.count > push.count {
                faults.push(("counts-never-fall", format!("{} before", before.count)));
            }
            if before.event == ACKNOWLEDGED_WORD && push.event != ACKNOWLEDGED_WORD {
                faults.push(("acknowledged-rings-nothing", format!("acknowledged at {} ms", before.millis)));
            }
        }
        faults
    }
}
