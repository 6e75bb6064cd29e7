//! What is done to the service: made from the seed first, then run. Every seed draws its own mix of faults ("swarm"), or
//! they would mask one another. The last minutes are healthy.
//!
//! To add a fault: a variant of [`Act`], its weight in [`MENU`], and what it does in [`Run::act`].

use std::{rc::Rc, time::Duration};

use chrono::TimeDelta;
use companion::simulator::{
    game_server::GameServerFaults,
    push_service::PushServiceFaults,
    world::{BASE_ALARM, GATE_SWITCH, SimulatedDevice, TEAM, WALL_ALARM},
};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::{
    dashboard::Dashboard,
    life,
    random::Stream,
    wire::WireKind,
    world::{Fate, GAMES, PAIRED, PHONES, USERS, UserAct, World},
};

/// Ten minutes, of which the last five are healthy: longer than silence, longest pause and deadlines in a row.
pub const LENGTH: u64 = 600_000;
pub const HEALTHY_FROM: u64 = 270_000;
/// When the last alarm goes off, which everybody must receive.
pub const LAST_ALARM: u64 = LENGTH - 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    // The world
    Alarm {
        game: usize,
        alarm: usize,
    },
    AlarmOff {
        game: usize,
        alarm: usize,
    },
    /// A push of an alarm that the link does not see.
    Push {
        user: usize,
        game: usize,
    },
    /// One that was sent half an hour ago.
    LatePush {
        user: usize,
        game: usize,
    },
    /// Many lines at once.
    ChatBurst(usize),
    /// Many pings at once.
    PingBurst(usize),
    Chat(usize),
    Market(usize),
    Switch(usize),
    Wipe(usize),
    /// The game server restarts: every connection to it ends.
    Restart(usize),
    // Users
    Toggle(usize),
    Ping(usize),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    PairAgain(usize),
    Delete(usize),
    SignOut(usize),
    Upload(usize),
    Drill(usize),
    // Faults
    Cut(WireKind, u64),
    CutAfter(WireKind, u64, usize),
    Hole(WireKind, u64),
    Lag(WireKind, u64, u64),
    Stall(usize, bool),
    RefuseGame(usize, u64),
    GameFault(usize, u8),
    PushFault(u8),
    DropPushes,
    Disk(Fate),
    Jump(i64),
    Kill,
    /// The process dies so many queries after an alarm.
    KillAtAlarm {
        game: usize,
        in_queries: u64,
        committed: bool,
    },
}

/// Draws one act of a kind.
type Draw = fn(&mut Stream) -> Act;

/// Kinds of acts with their weights; a seed keeps only some of the faults.
const MENU: [(u64, Draw); 33] = [
    (30, |r| Act::Alarm { game: game(r), alarm: r.below(2) as usize }),
    (20, |r| Act::AlarmOff { game: game(r), alarm: r.below(2) as usize }),
    (12, |r| Act::Push { user: user(r), game: game(r) }),
    (3, |r| Act::LatePush { user: user(r), game: game(r) }),
    (10, |r| Act::Chat(game(r))),
    (2, |r| Act::ChatBurst(game(r))),
    (2, |r| Act::PingBurst(dashboard(r))),
    (40, |r| Act::Market(game(r))),
    (8, |r| Act::Switch(game(r))),
    (1, |r| Act::Wipe(game(r))),
    (1, |r| Act::Restart(game(r))),
    (8, |r| Act::Toggle(dashboard(r))),
    (5, |r| Act::Ping(dashboard(r))),
    (6, |r| Act::Subscribe(dashboard(r), paired(r))),
    (4, |r| Act::Unsubscribe(dashboard(r), paired(r))),
    (3, |r| Act::PairAgain(paired(r))),
    (1, |r| Act::Delete(paired(r))),
    (2, |r| Act::SignOut(dashboard(r))),
    (2, |r| Act::Upload(user(r))),
    (2, |r| Act::Drill(paired(r))),
    // From here on faults.
    (8, |r| Act::Cut(kind(r), r.bits())),
    (5, |r| Act::CutAfter(kind(r), r.bits(), r.between(1, 3_000) as usize)),
    (3, |r| Act::Hole(kind(r), r.bits())),
    (5, |r| Act::Lag(kind(r), r.bits(), r.between(10, 4_000))),
    (5, |r| Act::Stall(dashboard(r), r.chance(60))),
    (3, |r| Act::RefuseGame(game(r), r.between(1, 40))),
    (5, |r| Act::GameFault(game(r), r.below(9) as u8)),
    (5, |r| Act::PushFault(r.below(7) as u8)),
    (3, |_| Act::DropPushes),
    (6, |r| Act::Disk(disk(r))),
    (2, |r| Act::Jump(r.between(0, 7_200) as i64 - 3_600)),
    (3, |_| Act::Kill),
    (4, |r| Act::KillAtAlarm { game: game(r), in_queries: r.below(5), committed: r.chance(50) }),
];
const FIRST_FAULT: usize = 20;
const DASHBOARDS: [(usize, &[usize]); 5] = [(0, &[0, 1]), (0, &[0]), (0, &[1]), (1, &[2]), (1, &[2])];

fn game(random: &mut Stream) -> usize {
    random.below(GAMES.len() as u64) as usize
}

fn user(random: &mut Stream) -> usize {
    random.below(USERS.len() as u64) as usize
}

fn paired(random: &mut Stream) -> usize {
    random.below(PAIRED.len() as u64) as usize
}

fn dashboard(random: &mut Stream) -> usize {
    random.below(DASHBOARDS.len() as u64) as usize
}

fn kind(random: &mut Stream) -> WireKind {
    [WireKind::Link, WireKind::Push, WireKind::Relay][random.below(3) as usize]
}

fn disk(random: &mut Stream) -> Fate {
    match random.below(4) {
        0 => Fate::Slow(random.between(20, 400)),
        1 => Fate::Slow(random.between(400, 7_000)),
        2 => Fate::Full,
        _ => Fate::Run,
    }
}

/// When what is done.
pub type Script = Vec<(u64, Act)>;

/// The script of a seed.
pub fn script(seed: u64) -> Script {
    let mut random = Stream::of(seed, "script");
    let weights: Vec<u64> = MENU
        .iter()
        .enumerate()
        .map(|(index, (weight, _))| match index < FIRST_FAULT || random.chance(35) {
            true => weight * random.between(1, 4),
            false => 0,
        })
        .collect();
    let total: u64 = weights.iter().sum();
    let mut script = Script::new();
    let mut at = 2_000;
    let pause = random.between(200, 2_500);
    while at < HEALTHY_FROM {
        let mut pick = random.below(total);
        let index = weights.iter().position(|weight| {
            let found = pick < *weight;
            pick = pick.saturating_sub(*weight);
            found
        });
        script.push((at, MENU[index.expect("below the total")].1(&mut random)));
        at += random.below(2 * pause);
    }
    script
}

/// A script as it runs.
pub struct Run {
    pub world: Rc<World>,
    pub dashboards: Vec<Rc<Dashboard>>,
    sessions: std::cell::Cell<u32>,
    pushed: std::cell::Cell<u32>,
}

impl Run {
    pub fn new(world: Rc<World>) -> Self {
        let start =
            |(number, (user, watches)): (usize, &(usize, &[usize]))| Dashboard::start(number, *user, watches.to_vec());
        let dashboards = DASHBOARDS.iter().enumerate().map(start).collect();
        Self { world, dashboards, sessions: std::cell::Cell::new(1), pushed: std::cell::Cell::new(0) }
    }

    pub async fn play(self: Rc<Self>, script: Script) {
        let at = |millis| sleep_until(self.world.origin + Duration::from_millis(millis));
        for (millis, act) in script {
            at(millis).await;
            self.world.trace(&format!("{act:?}"));
            self.act(act);
        }
        at(HEALTHY_FROM).await;
        self.heal();
        at(LAST_ALARM).await;
        self.world.trace("the last alarms");
        for game in 0..GAMES.len() {
            self.world.games[game].world(|world| world.fire_alarm(BASE_ALARM));
        }
    }

    /// Nothing is wrong any more, and everybody is signed in and watches.
    fn heal(&self) {
        self.world.trace("healthy");
        self.world.fate.set(Fate::Run);
        self.world.refused.borrow_mut().clear();
        for game in 0..GAMES.len() {
            self.world.games[game].faults(|faults| *faults = GameServerFaults::default());
            self.world.games[game].world(|world| {
                // A wipe has destroyed them; the owner builds them again.
                let subscribers = [TEAM[0].0, TEAM[1].0].into();
                world.add_device(BASE_ALARM, "Base alarm", SimulatedDevice::Alarm { on: false, subscribers });
                world.release_alarm(WALL_ALARM);
            });
        }
        self.world.pushes.faults(|faults| *faults = PushServiceFaults::default());
        let wires = self.world.wires.borrow().clone();
        for wire in wires {
            wire.set_lag((1, 5));
            if !wire.lossless.get() {
                wire.stall(false);
                wire.cut();
            }
        }
        for paired in 0..PAIRED.len() {
            let dashboards: Vec<_> =
                self.dashboards.iter().filter(|it| it.watches.borrow().contains(&paired)).cloned().collect();
            // A server that was deleted has another id now.
            self.user_then(UserAct::Pair(paired), move || dashboards.iter().for_each(|it| it.send_subscribe(paired)));
        }
        (0..USERS.len()).for_each(|user| self.user(UserAct::UploadCredential(user)));
    }

    /// Again and again until it is acknowledged, as a user would.
    fn user(&self, act: UserAct) {
        self.user_then(act, || {});
    }

    fn user_then(&self, act: UserAct, then: impl FnOnce() + 'static) {
        let world = self.world.clone();
        tokio::task::spawn_local(async move {
            while !world.act(act.clone()).await {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            world.trace(&format!("acknowledged: {act:?}"));
            then();
        });
    }

    /// Once; whether it is acknowledged does not matter.
    fn attempt(&self, act: UserAct) {
        let world = self.world.clone();
        tokio::task::spawn_local(async move {
            let done = world.act(act.clone()).await;
            world.trace(&format!("{act:?}: {done}"));
        });
    }

    fn wires(&self, kind: WireKind, pick: u64, with: impl FnOnce(&crate::wire::Wire)) {
        let wires: Vec<_> = self.world.wires.borrow().iter().filter(|wire| wire.kind == kind).cloned().collect();
        if !wires.is_empty() {
            with(&wires[(pick % wires.len() as u64) as usize]);
        }
    }

    fn act(&self, act: Act) {
        let world = &self.world;
        let alarm_id = |alarm| [BASE_ALARM, WALL_ALARM][alarm];
        match act {
            Act::Alarm { game, alarm } => world.games[game].world(|game| game.fire_alarm(alarm_id(alarm))),
            Act::AlarmOff { game, alarm } => world.games[game].world(|game| game.release_alarm(alarm_id(alarm))),
            Act::Push { user, game } | Act::LatePush { user, game } => {
                let number = self.pushed.replace(self.pushed.get() + 1);
                let late = matches!(act, Act::LatePush { .. });
                let title = format!("{} {number}", if late { "late" } else { "push" });
                let server = companion::simulator::push_service::PushedServer {
                    id: String::new(),
                    name: format!("Island {game}"),
                    ip: GAMES[game].0.to_owned(),
                    port: GAMES[game].1,
                };
                let push = server.alarm(&title, "words");
                world.judge.borrow_mut().pushed.insert(title, (user, game));
                let sent = world.clock.now() - TimeDelta::minutes(if late { 30 } else { 0 });
                world.pushes.push_at(PHONES[user].0, push, sent, TimeDelta::weeks(4));
            }
            Act::Chat(game) => world.games[game].world(|world| world.say(TEAM[1].0, &format!("{:?}", world.now()))),
            Act::ChatBurst(game) => world.games[game].world(|world| {
                (0..40).for_each(|line| world.say(TEAM[1].0, &format!("{line} {:?}", world.now())));
            }),
            Act::PingBurst(number) => (0..25).for_each(|_| self.dashboards[number].send(json!({ "type": "ping" }))),
            Act::Market(game) => world.games[game].advance(Duration::from_millis(700)),
            Act::Switch(game) => {
                let _ = world.games[game].world(|world| world.set_switch(GATE_SWITCH, true));
            }
            Act::Wipe(game) => world.games[game].wipe(),
            Act::Restart(game) => world.games[game].drop_connections(),
            Act::Toggle(number) => {
                let dashboard = &self.dashboards[number];
                let paired = dashboard.watches.borrow().first().copied().unwrap_or_default();
                if let Some(server) = world.judge.borrow().server(PAIRED[paired].0) {
                    dashboard.send(json!({ "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": "t" }));
                }
            }
            Act::Ping(number) => self.dashboards[number].send(json!({ "type": "ping" })),
            Act::Subscribe(number, paired) => {
                if PAIRED[paired].1 == self.dashboards[number].user {
                    self.dashboards[number].subscribe(paired);
                }
            }
            Act::Unsubscribe(number, paired) => self.dashboards[number].unsubscribe(paired),
            Act::PairAgain(paired) => self.attempt(UserAct::Pair(paired)),
            Act::Delete(paired) => {
                world.judge.borrow_mut().deleted.insert(paired);
                self.attempt(UserAct::Delete(paired));
            }
            Act::SignOut(number) => self.sign_out(number),
            Act::Upload(user) => self.attempt(UserAct::UploadCredential(user)),
            Act::Drill(paired) => self.attempt(UserAct::Drill(paired)),
            Act::Cut(kind, pick) => {
                self.lossy();
                self.wires(kind, pick, |wire| wire.cut());
            }
            Act::CutAfter(kind, pick, bytes) => {
                self.lossy();
                self.wires(kind, pick, |wire| wire.cut_after(bytes));
            }
            Act::Hole(kind, pick) => {
                self.lossy();
                self.wires(kind, pick, |wire| wire.open_hole());
            }
            Act::Lag(kind, pick, lag) => self.wires(kind, pick, |wire| wire.set_lag((1, lag))),
            Act::Stall(number, stalled) => {
                self.lossy();
                if let Some((wire, _)) = &*self.dashboards[number].wire.borrow() {
                    wire.stall(stalled);
                }
            }
            Act::RefuseGame(game, seconds) => {
                let until = Instant::now() + Duration::from_secs(seconds);
                world.refused.borrow_mut().insert(GAMES[game].0.to_owned(), until);
            }
            Act::GameFault(game, fault) => world.games[game].faults(|faults| {
                *faults = GameServerFaults::default();
                match fault {
                    0 => faults.frozen = true,
                    1 => faults.refuse = true,
                    2 => faults.rate_limit = true,
                    3 => faults.rubbish = true,
                    4 => faults.truncate = true,
                    5 => faults.unknown_fields = true,
                    6 => faults.delay = Some(Duration::from_millis(800)),
                    7 => faults.delay = Some(Duration::from_secs(12)),
                    _ => {}
                }
            }),
            Act::PushFault(fault) => world.pushes.faults(|faults| {
                *faults = PushServiceFaults::default();
                match fault {
                    0 => faults.mute_login = true,
                    1 => faults.frozen = true,
                    2 => faults.delay = Some(Duration::from_secs(5)),
                    3 => faults.duplicate = true,
                    4 => faults.replay = true,
                    5 => faults.close_after = Some(2),
                    _ => {}
                }
            }),
            Act::DropPushes => world.pushes.drop_connections(),
            Act::Disk(fate) => {
                world.judge.borrow_mut().bad_disk |= matches!(fate, Fate::Full | Fate::Slow(400..));
                world.fate.set(fate);
            }
            Act::Jump(seconds) => {
                world.judge.borrow_mut().set_back |= seconds < 0;
                world.jump(seconds);
            }
            Act::Kill => {
                self.lossy();
                world.kill("killed");
            }
            Act::KillAtAlarm { game, in_queries, committed } => {
                self.lossy();
                world.games[game].world(|world| {
                    world.release_alarm(WALL_ALARM);
                    world.fire_alarm(WALL_ALARM);
                });
                world.fate.set(Fate::Die { in_queries, committed });
            }
        }
    }

    fn lossy(&self) {
        self.world.judge.borrow_mut().lossy = true;
    }

    /// The session of a dashboard ends; its user signs in again five seconds later.
    fn sign_out(&self, number: usize) {
        let (world, dashboard) = (self.world.clone(), self.dashboards[number].clone());
        let (user, next) = (dashboard.user, self.sessions.replace(self.sessions.get() + 1));
        let session = dashboard.session();
        let others: Vec<_> = self.dashboards.iter().filter(|other| other.session() == session).cloned().collect();
        tokio::task::spawn_local(async move {
            if world.act(UserAct::SignOut(session.clone())).await {
                world.trace(&format!("signed out: {}", session.as_str()));
                for other in &others {
                    if let Some((wire, from)) = &*other.wire.borrow()
                        && *from == session
                    {
                        wire.revoked_at.set(Some(Instant::now()));
                    }
                }
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
            while !world.act(UserAct::SignIn(USERS[user].into(), life::session(user, next))).await {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            others.iter().for_each(|other| other.use_session(next));
        });
    }
}
