//! A script as it runs: what each act does to the service and its neighbours, until the healthy minutes.

use std::{rc::Rc, time::Duration};

use chrono::TimeDelta;
use companion::simulator::{
    game_server::GameServerFaults,
    push_service::{self, PushServiceFaults, PushedServer},
    world::{BASE_ALARM, GATE_SWITCH, SimulatedWorld, TEAM, WALL_ALARM},
};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::{
    dashboard::Dashboard,
    full_disks::ring_again,
    life,
    maps::new_map,
    oracle,
    script::{Act, DASHBOARDS, Script},
    teams,
    wire::WireKind,
    world::{Fate, GAMES, PAIRED, PHONES, USERS, UserAct, World},
};

/// A game server as its pushes name it.
pub fn pushed_server(game: usize) -> PushedServer {
    let (ip, port) = GAMES[game];
    PushedServer { id: String::new(), name: format!("Island {game}"), ip: ip.to_owned(), port }
}

/// A script as it runs.
pub struct Run {
    pub world: Rc<World>,
    pub dashboards: Vec<Rc<Dashboard>>,
    /// The clients of overlays, as dashboards that may less.
    pub overlays: Vec<Rc<Dashboard>>,
    sessions: std::cell::Cell<u32>,
    pushed: std::cell::Cell<u32>,
    said: std::cell::Cell<u32>,
}

impl Run {
    pub fn new(world: Rc<World>) -> Self {
        let start = |(number, (user, watches)): (usize, &(usize, &[usize]))| {
            Dashboard::start(number, *user, watches.to_vec(), None)
        };
        let dashboards = DASHBOARDS.iter().enumerate().map(start).collect();
        let overlays = Self::start_overlays(&world);
        Self {
            world,
            dashboards,
            overlays,
            sessions: std::cell::Cell::new(1),
            pushed: std::cell::Cell::new(0),
            said: std::cell::Cell::new(0),
        }
    }

    pub async fn play(self: Rc<Self>, script: Script) {
        let at = |millis| sleep_until(self.world.origin + Duration::from_millis(millis));
        for (millis, act) in script {
            at(millis).await;
            self.world.trace(&format!("{act:?}"));
            self.act(act);
        }
        self.stay_healthy().await;
    }

    /// Again and again until it is acknowledged, as a user would.
    pub fn user(&self, act: UserAct) {
        self.user_then(act, || {});
    }

    pub fn user_then(&self, act: UserAct, then: impl FnOnce() + 'static) {
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
    pub fn attempt(&self, act: UserAct) {
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

    fn act(self: &Rc<Self>, act: Act) {
        let world = &self.world;
        let alarm_id = |alarm| [BASE_ALARM, WALL_ALARM][alarm];
        match act {
            Act::Alarm { game, alarm } => oracle::change(game, |game| game.fire_alarm(alarm_id(alarm))),
            Act::AlarmOff { game, alarm } => oracle::change(game, |game| game.release_alarm(alarm_id(alarm))),
            Act::Push { user, game } => self.push_alarm(user, game, TimeDelta::zero()),
            Act::LatePush { user, game } => self.push_alarm(user, game, TimeDelta::minutes(30)),
            Act::PushAgain(paired) => self.push_again(paired),
            Act::UnstoredPush { user, is_killed } => self.push_unstored(user, is_killed),
            Act::Chat(game) => self.say(game, TEAM[1].0, 1),
            Act::ChatBurst(game) => self.say(game, TEAM[1].0, 40),
            Act::PingBurst(number) => (0..25).for_each(|_| self.dashboards[number].send(json!({ "type": "ping" }))),
            Act::Market(game) => {
                oracle::change(game, |world| world.advance_to(world.now() + TimeDelta::milliseconds(700)))
            }
            Act::Switch(game) => {
                let _ = world.games[game].world(|world| world.set_switch(GATE_SWITCH, true));
            }
            Act::Die(game) => world.games[game].world(|world| {
                let mate = TEAM[1].0;
                match world.member(mate).is_some_and(|member| member.is_alive) {
                    true => world.kill(mate),
                    false => world.respawn(mate),
                }
            }),
            Act::Wipe(game) => {
                world.judge.borrow_mut().records.wiped.insert(game);
                world.commands.borrow_mut().forget_chat(game, world.millis());
                teams::change(game, SimulatedWorld::wipe);
            }
            Act::OtherMap(game) => {
                world.judge.borrow_mut().records.wiped.insert(game);
                world.commands.borrow_mut().forget_chat(game, world.millis());
                teams::change(game, |simulated| *simulated = new_map(!world.seed, world.origin.elapsed()));
                world.games[game].drop_connections();
            }
            Act::Say(paired) => self.say_by_api(paired),
            Act::Command { game, mate } => world.commands.borrow_mut().command(world, game, mate),
            Act::Timer { game, mate } => world.commands.borrow_mut().timer(world, game, mate),
            Act::Move { paired, to } => self.move_player(paired, to),
            Act::TeamTalk(game) => self.talk_in_teams(game),
            Act::RevokeToken { paired, millis, is_replaced } => self.revoke_token(paired, millis, is_replaced),
            Act::Restart(game) => world.games[game].drop_connections(),
            Act::RestartAndTalk(game) => self.restart_and_talk(game),
            Act::Toggle(number) => self.toggle(number),
            Act::Ping(number) => self.dashboards[number].send(json!({ "type": "ping" })),
            Act::Subscribe(number, paired) => {
                if PAIRED[paired].1 == self.dashboards[number].user || paired == 0 {
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
            Act::RemoveOverlay(number) => self.remove_overlay(number),
            Act::Erase => self.erase(),
            Act::UploadRefused(user) => self.attempt(UserAct::UploadRefused(user)),
            Act::Notice { user, kind } => self.push_notice(user, kind),
            Act::PairInGame(paired) => self.pair_in_game(paired),
            Act::Upload(user) => self.attempt(UserAct::UploadCredential(user)),
            Act::Guest(is_guest) => self.attempt(UserAct::Guest(is_guest)),
            Act::GuestBurst => self.change_guest_often(),
            Act::Drill(paired) => self.attempt(UserAct::Drill(paired)),
            Act::Cut(kind, pick) => {
                self.lossy();
                self.wires(kind, pick, |wire| wire.cut());
            }
            Act::CutAfter(kind, pick, bytes) => {
                self.lossy();
                self.wires(kind, pick, |wire| wire.cut_after(Some(bytes)));
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
            Act::GameFault(game, fault) => self.disturb_game(game, fault),
            Act::PushFault(fault) => self.disturb_pushes(fault),
            Act::DropPushes => world.pushes.drop_connections(),
            Act::ReceiverFault(fate) => world.receiver.fate.set(fate),
            Act::BrowserFault { user, fate } => world.receiver.browsers.disturb(user, fate),
            Act::Disk(fate) => {
                world.judge.borrow_mut().bad_disk |= matches!(fate, Fate::Full | Fate::Slow(400..));
                world.fate.set(fate);
            }
            Act::DieAtWrites { fate, journal, after } => self.die_at_writes(fate, journal, after),
            Act::JournalDisk(fate) => world.journal_fate.set(fate),
            Act::TornJournal(game) => self.tear_journal(game),
            Act::FailedStart(game) => self.fail_start(game),
            Act::FlakyStart(game) => self.start_on_flaky_disk(game),
            Act::Jump(seconds) => {
                let mut judge = world.judge.borrow_mut();
                (judge.jumped, judge.set_back) = (true, judge.set_back || seconds < 0);
                drop(judge);
                world.jump(seconds);
            }
            Act::Kill => {
                self.lossy();
                world.kill("killed");
            }
            Act::End => {
                self.lossy();
                world.end();
            }
            Act::EndAtAlarm(game) => self.end_at_alarm(game),
            Act::KillAtRecovery(in_queries) => self.kill_at_recovery(in_queries),
            Act::KillAtPush { paired, in_queries, committed } => {
                self.lossy();
                self.push_again(paired);
                world.fate.set(Fate::Die { in_queries, committed });
            }
            Act::DieAtBurst { game, fate, after } => self.die_at_burst(game, fate, after),
            Act::KillAtAnnouncement { game, alarm, after } => self.kill_at_announcement(game, alarm, after),
            Act::KillAtAlarm { game, in_queries, committed } => {
                self.lossy();
                ring_again(game);
                world.fate.set(Fate::Die { in_queries, committed });
            }
        }
    }

    /// The game server restarts, and the team talks on.
    fn restart_and_talk(self: &Rc<Self>, game: usize) {
        let world = &self.world;
        world.games[game].faults(|faults| faults.late_broadcasts = true);
        world.games[game].drop_connections();
        let run = self.clone();
        tokio::task::spawn_local(async move {
            for _ in 0..20 {
                run.say(game, TEAM[1].0, 1);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            run.world.games[game].faults(|faults| faults.late_broadcasts = false);
        });
    }

    /// The user presses *pair* in the game, for the server and for the base's alarm.
    fn pair_in_game(&self, paired: usize) {
        let world = &self.world;
        let (_, user, game) = PAIRED[paired];
        let server = PushedServer { id: format!("island-{game}"), ..pushed_server(game) };
        let token = world.teams.borrow_mut().push_token(user, game);
        for push in [
            server.pairing(TEAM[user].0, token),
            server.entity_pairing(TEAM[user].0, token, BASE_ALARM, 2, "Base alarm"),
        ] {
            world.pushes.push(PHONES[user].0, push);
        }
    }

    /// The user of a dashboard turns the gate of the server that it watched last.
    fn toggle(&self, number: usize) {
        let world = &self.world;
        let dashboard = &self.dashboards[number];
        // Perhaps one of which its user is only a guest.
        let paired = dashboard.watches.borrow().last().copied().unwrap_or_default();
        if let Some(server) = world.judge.borrow().server(PAIRED[paired].0) {
            dashboard.send(json!({ "type": "deviceToggle", "serverId": server, "deviceId": GATE_SWITCH.to_string(), "requestId": format!("turn {paired}") }));
        }
    }

    /// From now on the game server has this fault; of 8 and more, none.
    fn disturb_game(&self, game: usize, fault: u8) {
        let world = &self.world;
        world.teams.borrow_mut().disturb(game, fault < 8, world.millis());
        world.games[game].faults(|faults| {
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
        });
    }

    /// From now on the push service has this fault; of 6 and more, none.
    fn disturb_pushes(&self, fault: u8) {
        let world = &self.world;
        world.pushes.faults(|faults| {
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
        });
    }

    /// The time of the world is still: no line is said twice in its second.
    pub fn say(&self, game: usize, player: u64, lines: usize) {
        for _ in 0..lines {
            let number = self.said.replace(self.said.get() + 1);
            self.world.games[game].world(|world| world.say(player, &format!("Line {number}")));
        }
    }

    /// The owner says a line through the API, once.
    pub fn say_by_api(&self, paired: usize) {
        let number = self.said.replace(self.said.get() + 1);
        self.attempt(UserAct::Say(paired, format!("Said {number}")));
    }

    /// An alarm that the link does not see, sent so long ago. Its title is its own.
    pub fn push_alarm(&self, user: usize, game: usize, ago: TimeDelta) {
        let number = self.pushed.replace(self.pushed.get() + 1);
        let title = format!("{} {number}", if ago.is_zero() { "push" } else { "late" });
        self.push_titled(user, game, &title, ago);
    }

    pub fn push_titled(&self, user: usize, game: usize, title: &str, ago: TimeDelta) {
        let world = &self.world;
        world.judge.borrow_mut().pushed.insert(title.to_owned(), (user, game));
        let push = pushed_server(game).alarm(title, "words");
        world.pushes.push_at(PHONES[user].0, push, world.clock.now() - ago, TimeDelta::weeks(4));
    }

    /// An alarm that the link does not see, and that has rung before.
    fn push_again(&self, paired: usize) {
        let (_, user, game) = PAIRED[paired];
        self.world.pushes.push(PHONES[user].0, pushed_server(game).alarm("Sirens", "words"));
    }

    /// Its words are its own, so that it can be found.
    pub fn push_notice(&self, user: usize, kind: u8) {
        let number = self.pushed.replace(self.pushed.get() + 1);
        let who = format!("somebody-{number:04}");
        let server = pushed_server(PAIRED.iter().find(|paired| paired.1 == user).expect("each has one").2);
        let push = match kind {
            0 => server.death((0, &who)),
            1 => server.login((TEAM[0].0, &who)),
            _ => push_service::news(&who, "words"),
        };
        self.world.pushes.push(PHONES[user].0, push);
        let is_of_server = kind < 2;
        self.world.judge.borrow_mut().records.notices.insert(who, (user, is_of_server));
    }

    pub fn lossy(&self) {
        self.world.judge.borrow_mut().lossy = true;
    }

    /// The number of a new session.
    pub fn next_session(&self) -> u32 {
        self.sessions.replace(self.sessions.get() + 1)
    }

    /// The session of a dashboard ends; its user signs in again five seconds later.
    fn sign_out(&self, number: usize) {
        let (world, dashboard) = (self.world.clone(), self.dashboards[number].clone());
        let (user, next) = (dashboard.user, self.next_session());
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
