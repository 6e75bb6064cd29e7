//! Trials of the service: alarms by push and link, kills, cuts, and clients that come and go.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use companion::{
    clock::Clock,
    db::{
        engine::pool::{Db, Pool},
        guests::{self, InviteKey, Invitee},
        paired_servers, smart_devices, users,
    },
    demo,
    domain::{
        ids::{GuestId, ServerId, UserId},
        time::Timestamp,
    },
    simulator::{
        game_server::{GameServer, GameServerOptions, Limits},
        push_service::{DEMO_ANDROID_ID as ACCOUNT, DEMO_SECURITY_TOKEN, PushService, PushedServer},
        world::{SimulatedDevice, SimulatedWorld, TEAM},
    },
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{interval, sleep, timeout},
};

use crate::{
    PATIENCE,
    channels::{self, Receiver, Woken},
    client::{Client, Order, Received},
    crash::{Addresses, Installation, Seeded, Service, binary},
    verdict::{unfinished, unheard},
};

/// Clients that watch all the time.
const STEADY: usize = 3;
/// Clients that come and go; every second one also stops reading for a while.
const FICKLE: usize = 4;
const FIRST_ALARM: u64 = 9_000_001;
const ALARM_DEVICES: u64 = 8;
const RECURRING: [&str; 3] = ["You're getting raided!", "Roof", "Alarm 9000003"];
/// Messages that the push service holds for the service; it forgets those above a thousand.
const WAITING: usize = 300;
/// A session or link that is cut comes back later each time.
const CUTS_PER_LIFE: u32 = 2;

/// An incident takes triggers for so long after its last one.
pub const QUIET: TimeDelta = TimeDelta::seconds(90);

/// A trigger that the link must have reported: alarm, and within which time.
pub struct Trigger {
    pub alarm: u64,
    pub from: Timestamp,
    pub to: Timestamp,
}

/// The service, its neighbours and clients, and what was done so far.
pub struct Trial {
    random: Seeded,
    installation: Installation,
    pub pool: Pool,
    /// The owner, and a guest.
    pub woken: [Woken; 2],
    pub receiver: Receiver,
    game: GameServer,
    pub pushes: Arc<PushService>,
    as_pushed: PushedServer,
    service: Option<Service>,
    up: watch::Sender<Option<Addresses>>,
    pub steady: Vec<Client>,
    pub fickle: Vec<Client>,
    /// Pushes sent, by title.
    pub sent: BTreeMap<String, usize>,
    pub pushed: usize,
    pub triggers: Vec<Trigger>,
    /// Alarms, and when they were triggered, that may not be stored yet; a kill may lose them.
    unsure: Vec<(u64, Timestamp)>,
    /// Alarms whose one push the game server has sent: its clock is stopped.
    fired: HashSet<u64>,
    next_alarm: u64,
    /// Since the last start of the service.
    cuts: u32,
    pub kills: u32,
    pub freezes: u32,
    http: reqwest::Client,
    /// Acknowledgements that were taken.
    pub acks: usize,
}

impl Trial {
    /// A service with a paired server and its alarms, which all clients watch.
    pub async fn start(seed: u64) -> Self {
        let (owner, name) = TEAM[0];
        let mut world = SimulatedWorld::new(seed, Utc::now().into());
        for id in FIRST_ALARM..FIRST_ALARM + ALARM_DEVICES {
            let device = SimulatedDevice::Alarm { on: false, subscribers: BTreeSet::from([owner]) };
            world.add_device(id, &alarm_name(id), device);
        }
        // A service that comes back every second would spend the real limits in no time.
        let limits = Limits { player_tokens: (1e6, 1e6), address_tokens: (1e6, 1e6), ..Limits::default() };
        let game = GameServerOptions { time_scale: 0.0, limits, ..GameServerOptions::new(world) };
        let game = GameServer::start(game).await.unwrap();
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let pushes =
            Arc::new(PushService::start(listen, vec![(ACCOUNT, DEMO_SECURITY_TOKEN)], Clock::system()).await.unwrap());

        let installation = Installation::new(|directory| {
            let ca = directory.join("push-ca.pem");
            fs::write(&ca, pushes.ca_pem()).unwrap();
            vec![
                format!("--push-address={}", pushes.addr()),
                format!("--extra-ca-file={}", ca.display()),
                "--allow-private-game-servers=true".to_owned(),
                "--allow-private-channel-targets=true".to_owned(),
            ]
        });
        let receiver = Receiver::start();
        let (woken, cookie) = installation.fill(async |context| {
            let user = demo::user::sign_in(context, owner, name).await.unwrap();
            let phone = (ACCOUNT, DEMO_SECURITY_TOKEN);
            demo::user::upload_push_credential(context, &user.id, owner, phone).await.unwrap();
            let guest = demo::user::sign_in(context, TEAM[1].0, TEAM[1].1).await.unwrap();
            let woken = [Woken::owner(user.id), Woken::guest(guest.id)];
            for woken in &woken {
                receiver.add_channels(context, woken).await;
            }
            (woken, user.cookie)
        });
        let pool = Pool::open(&installation.database()).unwrap();

        let devices: Vec<u64> = (FIRST_ALARM..FIRST_ALARM + ALARM_DEVICES).collect();
        game.push_through(pushes.clone(), "Island", HashMap::from([(owner, ACCOUNT)]));
        game.pair(owner, &devices);
        let service = installation.start();
        let paired = timeout(PATIENCE, pushes.until(|pushes| pushes.unacknowledged(ACCOUNT) == 0)).await;
        paired.expect("the pairings arrive");
        let server = pool.read_blocking(|db| Ok(paired_servers::list_for(db, &woken[0].user)?.remove(0).id)).unwrap();
        admit(&pool, &server, &woken[1].user);
        woken.iter().for_each(|woken| woken.set_rules(&pool, &server));
        let known = pool.read_blocking(|db| smart_devices::list(db, &server)).unwrap();
        assert_eq!(known.len(), devices.len(), "all alarms are paired");

        let as_pushed = PushedServer {
            id: "5b6ad1f7-7f3c-4a53-9d7e-2f1f6a0c9e11".to_owned(),
            name: "Island".to_owned(),
            ip: game.addr().ip().to_string(),
            port: game.addr().port(),
        };
        let http = binary::http();
        let (up, is_up) = watch::channel(Some(service.addresses.clone()));
        let clients = |count| (0..count).map(|_| Client::start(&http, &cookie, &server, &is_up)).collect::<Vec<_>>();
        let (steady, fickle) = (clients(STEADY), clients(FICKLE));
        join_all(steady.iter().map(|client| client.until("snapshot", |received| received.state.is_some()))).await;
        Self {
            random: Seeded(seed),
            installation,
            pool,
            woken,
            receiver,
            game,
            pushes,
            as_pushed,
            service: Some(service),
            steady,
            fickle,
            up,
            sent: BTreeMap::new(),
            pushed: 0,
            triggers: Vec::new(),
            unsure: Vec::new(),
            fired: HashSet::new(),
            next_alarm: 0,
            cuts: 0,
            kills: 0,
            freezes: 0,
            http,
            acks: 0,
        }
    }

    fn push(&mut self) {
        let title = match self.random.below(4) {
            0 => RECURRING[self.random.below(RECURRING.len())].to_owned(),
            _ => format!("alarm {}", self.pushed),
        };
        self.push_titled(title);
    }

    fn push_titled(&mut self, title: String) {
        self.pushes.push(ACCOUNT, self.as_pushed.alarm(&title, "Your base is under attack!"));
        *self.sent.entry(title).or_default() += 1;
        self.pushed += 1;
    }

    fn burst(&mut self, most: usize) {
        for _ in 0..=self.random.below(most) {
            self.push();
        }
    }

    fn fire(&mut self, alarm: u64) {
        self.game.world(|world| world.fire_alarm(alarm));
        if self.fired.insert(alarm) {
            *self.sent.entry(alarm_name(alarm)).or_default() += 1;
            self.pushed += 1;
        }
    }

    fn next_alarm(&mut self) -> u64 {
        self.next_alarm = (self.next_alarm + 1) % ALARM_DEVICES;
        FIRST_ALARM + self.next_alarm
    }

    /// Waits until so few pushes are not acknowledged.
    async fn drained(&self, to: usize) {
        let drained = self.pushes.until(|pushes| pushes.unacknowledged(ACCOUNT) <= to);
        timeout(PATIENCE, drained).await.unwrap_or_else(|_| {
            let (left, counts) = (self.pushes.unacknowledged(ACCOUNT), self.pushes.counts());
            panic!("{left} pushes were not acknowledged; {counts:?}");
        });
    }

    async fn connected(&self, is: bool) {
        let change = self.pushes.until(|pushes| pushes.connected(ACCOUNT) == is);
        timeout(PATIENCE, change).await.unwrap_or_else(|_| panic!("push session up: not {is}"));
    }

    /// Waits until the link is up and all alarms are known, and off.
    async fn linked(&self) {
        let known = |received: &Received| {
            let Some(state) = &received.state else { return false };
            let ready = |alarm: u64| {
                let device = &state["devices"][alarm.to_string()];
                device["reachable"] == "ok" && device["value"] == false
            };
            state["server"]["connection"] == "connected" && (FIRST_ALARM..FIRST_ALARM + ALARM_DEVICES).all(ready)
        };
        self.steady[0].until("link", known).await;
    }

    async fn shown_as(&self, alarm: u64, value: bool) {
        let is = |received: &Received| {
            received.state.as_ref().is_some_and(|state| state["devices"][alarm.to_string()]["value"] == value)
        };
        self.steady[0].until("broadcast of an alarm", is).await;
    }

    /// An alarm goes off while the link is up, often with a push of the same trigger before or after.
    async fn live(&mut self) {
        self.linked().await;
        let (alarm, pushed) = (self.next_alarm(), self.random.below(3));
        if pushed == 1 {
            self.push_titled(alarm_name(alarm));
        }
        let from = Utc::now().into();
        self.fire(alarm);
        if pushed == 2 {
            self.push_titled(alarm_name(alarm));
        }
        self.shown_as(alarm, true).await;
        self.game.world(|world| world.release_alarm(alarm));
        self.shown_as(alarm, false).await;
        self.unsure.push((alarm, from));
        if self.random.below(2) == 0 {
            self.make_sure().await;
        }
    }

    /// The ledger is written in order: once a push is acknowledged, it has everything that came before.
    async fn make_sure(&mut self) {
        if !self.unsure.is_empty() {
            self.push();
        }
        self.drained(0).await;
        let to = Utc::now().into();
        self.triggers.extend(self.unsure.drain(..).map(|(alarm, from)| Trigger { alarm, from, to }));
    }

    /// Kills the service at one of the moments that matter, sends more meanwhile, and starts it again.
    pub async fn kill(&mut self) {
        let moment = self.random.below(4);
        let most = 12;
        let announced = self.steady[0].received(|received| received.raids.len());
        self.burst(most);
        let left = self.random.below(most);
        match moment {
            // In the middle of whatever it does.
            0 => {}
            // A push is stored and acknowledged: the hub may not have it yet.
            1 => self.drained(left).await,
            // An alarm is delivered: its row may not be finished yet.
            2 => {
                self.push();
                let delivered = self.steady[0].until("raid", |received| received.raids.len() > announced);
                tokio::select! {
                    () = delivered => {}
                    () = self.drained(0) => {}
                }
            }
            // An alarm goes off on the link, which no push may repeat.
            _ => {
                let alarm = self.next_alarm();
                self.fire(alarm);
                self.game.world(|world| world.release_alarm(alarm));
            }
        }
        self.end_life().await;
        self.unsure.clear();
        self.begin_life();
    }

    async fn end_life(&mut self) {
        self.up.send_replace(None);
        self.service = None;
        for client in &self.steady {
            client.until("end", |received| received.state.is_none()).await;
        }
        self.kills += 1;
    }

    fn begin_life(&mut self) {
        self.cuts = 0;
        if self.random.below(2) == 0 {
            self.burst(6);
        }
        let service = self.installation.start();
        self.up.send_replace(Some(service.addresses.clone()));
        self.service = Some(service);
    }

    /// The database takes nothing for a while: an alarm is shown all the same, and a kill meanwhile loses none.
    async fn freeze(&mut self) {
        self.linked().await;
        let lock = self.installation.lock_database();
        self.freezes += 1;
        let (alarm, from) = (self.next_alarm(), Utc::now().into());
        self.fire(alarm);
        self.burst(4);
        let id = json!(alarm.to_string());
        // The link has reported it: its push alone, or an earlier incident, would not do. What is shown is kept.
        let is_of_link = |raid: &Value| {
            let last: Timestamp = serde_json::from_value(raid["lastAt"].clone()).unwrap();
            raid["alarmId"] == id && raid["paths"].as_array().unwrap().contains(&json!("link")) && from <= last + QUIET
        };
        let is_shown = |received: &Received| {
            let raids = received.state.as_ref().and_then(|state| state["raids"].as_object());
            raids.is_some_and(|raids| raids.values().any(is_of_link))
        };
        self.steady[0].until("raid while the database is frozen", is_shown).await;
        self.triggers.push(Trigger { alarm, from, to: Utc::now().into() });
        self.game.world(|world| world.release_alarm(alarm));
        if self.random.below(2) == 0 {
            self.end_life().await;
            self.unsure.clear();
            drop(lock);
            self.begin_life();
        } else {
            self.shown_as(alarm, false).await;
        }
    }

    /// A wall of alarms goes off, the second half while the database is frozen; and a kill comes while those wait for it,
    /// or when the journal has them. Each half is as much as the push service may hold.
    pub async fn wall(&mut self, alarms: usize) {
        assert!(alarms / 2 < WAITING);
        self.drained(0).await;
        (0..alarms / 2).for_each(|number| self.push_titled(format!("wall {number}")));
        self.drained(0).await;
        let lock = self.installation.lock_database();
        self.freezes += 1;
        (alarms / 2..alarms).for_each(|number| self.push_titled(format!("wall {number}")));
        sleep(Duration::from_millis(self.random.below(2_000) as u64)).await;
        self.end_life().await;
        self.unsure.clear();
        drop(lock);
        self.begin_life();
    }

    /// Cuts the push session or the link, in one of many ways.
    async fn cut(&mut self) {
        self.cuts += 1;
        if self.cuts > CUTS_PER_LIFE {
            return;
        }
        match self.random.below(4) {
            0 => {
                self.linked().await;
                // The link may be back before the client sees that it was lost.
                let since = |received: &Received| received.state.as_ref().map(|state| state["server"]["since"].clone());
                let before = self.steady[0].received(since);
                self.game.drop_connections();
                let lost = |received: &Received| received.state.is_some() && since(received) != before;
                self.steady[0].until("loss of the link", lost).await;
            }
            1 => self.pushes.drop_connections(),
            2 => {
                self.connected(true).await;
                self.pushes.faults(|faults| faults.truncate = true);
                self.push();
                self.connected(false).await;
                self.pushes.faults(|faults| faults.truncate = false);
            }
            _ => {
                self.connected(true).await;
                self.pushes.faults(|faults| faults.replay = true);
                self.pushes.drop_connections();
                self.connected(true).await;
                self.pushes.faults(|faults| faults.replay = false);
            }
        }
    }

    fn bother_a_client(&mut self) {
        let which = self.random.below(FICKLE);
        let order = match self.random.below(3) {
            0 if which.is_multiple_of(2) => Order::Stall,
            1 => Order::Resume,
            _ => Order::Reconnect,
        };
        self.fickle[which].order(order);
    }

    /// The user acknowledges an alarm, by the link in one of its messages.
    pub async fn acknowledge(&mut self) {
        let (Some(path), Some(service)) = (self.receiver.ack_path(&mut self.random), &self.service) else { return };
        let answer = self.http.post(format!("{}{path}", service.addresses.api)).send().await.expect("it runs");
        self.acks += usize::from(answer.status() == 200);
    }

    /// Does one thing; a burst has `most` pushes at most.
    pub async fn act(&mut self, most: usize) {
        match self.random.below(22) {
            0..=7 => self.burst(most),
            8..=9 => self.make_sure().await,
            10..=12 => self.live().await,
            13..=14 => self.bother_a_client(),
            15 => {
                let duplicate = self.random.below(2) == 0;
                self.pushes.faults(|faults| faults.duplicate = duplicate);
            }
            16 => self.cut().await,
            17 => self.freeze().await,
            18..=19 => self.kill().await,
            _ => self.acknowledge().await,
        }
        if self.pushes.unacknowledged(ACCOUNT) > WAITING {
            self.drained(WAITING / 4).await;
        }
    }

    /// Ends all faults, and waits until all that was sent is stored, delivered and received.
    pub async fn settle(&mut self) {
        self.pushes.faults(|faults| *faults = Default::default());
        self.fickle.iter().for_each(|client| client.order(Order::Resume));
        self.drained(0).await;
        self.linked().await;
        // The database does not report its changes.
        let mut looks = interval(Duration::from_millis(20));
        let finished = async {
            while unfinished(&self.pool) + channels::waiting(&self.pool) + unheard(&self.pool) > 0 {
                looks.tick().await;
            }
        };
        if timeout(PATIENCE, finished).await.is_err() {
            let (alarms, messages) = (unfinished(&self.pool), channels::waiting(&self.pool));
            println!("{alarms} alarms stay unfinished, and {messages} messages and steps of channels");
        }
        for client in &self.steady {
            client.order(Order::Sync);
            client.until("pong", |received| received.synced > 0).await;
        }
        self.up.send_replace(None);
        self.service = None;
        for client in self.steady.iter().chain(&self.fickle) {
            client.order(Order::Resume);
            client.until("end", |received| received.state.is_none()).await;
        }
    }
}

/// Makes this user a guest of the server.
fn admit(pool: &Pool, server: &ServerId, guest: &UserId) {
    let (invitation, account) = (GuestId::from("guest"), Invitee::Account(TEAM[1].0.to_string().into()));
    let admit = |db: &mut Db| {
        let now = Utc::now().into();
        guests::invite(db, &invitation, server, &account, None, now)?.expect("there is room");
        let user = users::find(db, guest)?.expect("the guest has signed in");
        guests::accept(db, &InviteKey::Account(invitation.clone()), &user, now)
    };
    pool.write_blocking(admit).unwrap().expect("the invitation is open");
}

fn alarm_name(alarm: u64) -> String {
    format!("Alarm {alarm}")
}
