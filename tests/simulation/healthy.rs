//! The healthy minutes at the end of a script: nothing is wrong but what each seed has, and what must follow does.

use std::{rc::Rc, time::Duration};

use chrono::TimeDelta;
use companion::simulator::{
    game_server::GameServerFaults,
    push_service::PushServiceFaults,
    world::{BASE_ALARM, GATE_SWITCH, SimulatedDevice, TEAM, WALL_ALARM},
};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    absence::ALL_LEAVE,
    channels::ReceiverFate,
    flickers::{SHIPS_COME, SHIPS_FLICKER},
    link_starts::{DEVICES_TRUE, LINKS_START},
    maps::add_devices,
    oracle::{self, change_all},
    random::Stream,
    records::HEALTHY_LINES,
    run::Run,
    script::{
        FIRST_HEALTHY_ALARM, HEALTHY_CHAT, HEALTHY_DEATH, HEALTHY_FROM, HEALTHY_NOTICE, HEALTHY_SAY, HEALTHY_TOGGLE,
        LAST_ALARM, LAST_END, MISSED_AFTER, REPLAY_FROM, REPLAY_UNTIL, ROOF_ON, SECOND_HEALTHY_ALARM, SHED_OFF,
        SHED_ON, SLOW_FROM, SLOW_PUSH, SLOW_UNTIL, UNSEEN_ALARM, UNSEEN_FOR,
    },
    team_alarms::roof_delay,
    team_commands::{self, BEFORE_LAST_END, HEALTHY_COMMAND, HEALTHY_LAMP, HEALTHY_TIMER},
    teams::REVOKED,
    wire::WireKind,
    wishes::is_between_attempts,
    world::{Fate, GAMES, JournalFate, PAIRED, ROOF_ALARM, SHED_ALARM, USERS, UserAct},
};

/// Seeds in a hundred in which the process ends once more, one way or the other.
const ENDS_ONCE_MORE: u64 = 40;
/// Seeds in a hundred in which the database is slow while everything is pushed once more.
const SLOW_REPLAY: u64 = 30;

/// Seconds of a game after which it pushes an alarm once more.
const PUSHES_APART: u32 = 31;
/// Seeds in a hundred in which the broadcast of the second rise of an alarm cannot be read.
const UNREADABLE: u64 = 30;

/// Titles of what is pushed of the alarms at the base and at its wall.
pub const BASE_NAME: &str = "Base alarm";
pub const WALL_NAME: &str = "Wall alarm";

/// True if the process ends once more in this seed.
pub fn ends_once_more(seed: u64) -> bool {
    Stream::of(seed, "the last end").chance(ENDS_ONCE_MORE)
}

/// Title of what is pushed for this paired server while the database is slow.
pub fn slow_title(paired: &str) -> String {
    format!("Slow wall of {paired}")
}

impl Run {
    /// The minutes from [`HEALTHY_FROM`] on.
    pub async fn stay_healthy(self: &Rc<Self>) {
        let at = |millis| sleep_until(self.world.origin + Duration::from_millis(millis));
        at(HEALTHY_FROM).await;
        self.heal();
        at(SHIPS_COME).await;
        self.send_ships();
        at(SHIPS_FLICKER).await;
        self.hide_ships();
        at(LINKS_START).await;
        self.restart_links();
        at(ALL_LEAVE).await;
        self.leave_all();
        at(REVOKED).await;
        self.revoke_in_calm();
        at(DEVICES_TRUE).await;
        self.world.judge.borrow_mut().check_devices(&self.world, &self.dashboards);
        at(HEALTHY_TOGGLE).await;
        self.toggle_gates();
        at(SLOW_FROM).await;
        self.world.fate.set(Fate::Slow(3_000));
        at(SLOW_PUSH).await;
        for (name, user, game) in PAIRED {
            self.push_titled(user, game, &slow_title(name), TimeDelta::zero());
        }
        at(SLOW_UNTIL).await;
        self.world.fate.set(Fate::Run);
        at(HEALTHY_CHAT).await;
        for game in &self.world.games {
            game.world(|world| HEALTHY_LINES.iter().for_each(|line| world.say(TEAM[1].0, line)));
        }
        at(HEALTHY_COMMAND).await;
        // On the first game server the second mate's own link answers, on the other the only one.
        for (game, mate) in (0..GAMES.len()).zip([1, TEAM.len() - 1]) {
            self.world.commands.borrow_mut().command(&self.world, game, mate);
        }
        at(HEALTHY_TIMER).await;
        (0..GAMES.len()).for_each(|game| self.world.commands.borrow_mut().timer(&self.world, game, 0));
        at(HEALTHY_LAMP).await;
        (0..GAMES.len()).for_each(|game| self.world.commands.borrow().lamp(&self.world, game, 2));
        at(HEALTHY_SAY).await;
        (0..PAIRED.len()).for_each(|paired| self.say_by_api(paired));
        at(HEALTHY_DEATH).await;
        for game in &self.world.games {
            game.world(|world| world.kill(TEAM[1].0));
        }
        at(HEALTHY_NOTICE).await;
        (0..USERS.len()).for_each(|user| self.push_notice(user, 2));
        at(REPLAY_FROM).await;
        // A user who was erased has received nothing of what was pushed before.
        if !self.world.judge.borrow().records.is_any_erased() {
            self.world.pushes.faults(|faults| faults.replay = true);
            self.world.pushes.drop_connections();
            // Then no push is stored within the half second for which an alarm waits.
            if Stream::of(self.world.seed, "slow replay").chance(SLOW_REPLAY) {
                self.world.fate.set(Fate::Slow(600));
            }
        }
        at(REPLAY_UNTIL).await;
        self.world.fate.set(Fate::Run);
        self.world.pushes.faults(|faults| *faults = PushServiceFaults::default());
        at(SHED_ON).await;
        change_all(|world| world.fire_alarm(SHED_ALARM));
        at(SHED_OFF).await;
        change_all(|world| world.release_alarm(SHED_ALARM));
        // In half of the seeds a push is here before the link says so.
        let are_links_slow = Stream::of(self.world.seed, "slow links").chance(50);
        let lag_links = |lag| {
            let wires = self.world.wires.borrow();
            wires.iter().filter(|wire| wire.kind == WireKind::Link).for_each(|wire| wire.set_lag(lag));
        };
        if are_links_slow {
            lag_links((300, 400));
        }
        // Links of servers that were deleted have ended; others may still have to be opened.
        self.world.judge.borrow_mut().check_links(&self.world, |links, paired| links <= paired);
        at(FIRST_HEALTHY_ALARM - 2_000).await;
        self.stall_one(true);
        at(FIRST_HEALTHY_ALARM).await;
        self.world.trace("an alarm");
        self.world.judge.borrow_mut().oracle.fire(self.world.clock.now());
        change_all(|world| world.fire_alarm(WALL_ALARM));
        at(FIRST_HEALTHY_ALARM + 1_000).await;
        self.stall_one(false);
        at(SECOND_HEALTHY_ALARM - 1_000).await;
        change_all(|world| world.release_alarm(WALL_ALARM));
        let is_unreadable = Stream::of(self.world.seed, "unreadable").chance(UNREADABLE);
        at(SECOND_HEALTHY_ALARM - 500).await;
        self.world.games.iter().for_each(|game| game.faults(|faults| faults.rubbish_broadcasts = is_unreadable));
        at(SECOND_HEALTHY_ALARM).await;
        change_all(|world| world.fire_alarm(WALL_ALARM));
        at(SECOND_HEALTHY_ALARM + 500).await;
        self.world.games.iter().for_each(|game| game.faults(|faults| faults.rubbish_broadcasts = false));
        at(SECOND_HEALTHY_ALARM + 2_000).await;
        lag_links((1, 5));
        at(UNSEEN_ALARM).await;
        let until = Instant::now() + Duration::from_millis(UNSEEN_FOR);
        for (host, _) in GAMES {
            self.world.refused.borrow_mut().insert(host.to_owned(), until);
        }
        self.world.games.iter().for_each(companion::simulator::game_server::GameServer::drop_connections);
        // A push that comes before the loss is noticed is taken for another trigger than what the next link sees.
        at(UNSEEN_ALARM + 1_000).await;
        self.world.judge.borrow_mut().oracle.fire_unseen(self.world.clock.now());
        change_all(|world| world.fire_alarm(BASE_ALARM));
        at(BEFORE_LAST_END).await;
        if team_commands::outlives(self.world.seed) {
            (0..GAMES.len()).for_each(|game| self.world.commands.borrow().set_what_outlives(&self.world, game));
        }
        at(ROOF_ON + roof_delay(self.world.seed)).await;
        change_all(|world| world.fire_alarm(ROOF_ALARM));
        at(LAST_END).await;
        self.end_once_more().await;
        at(LAST_ALARM - 10_000).await;
        change_all(|world| world.release_alarm(BASE_ALARM));
        at(LAST_ALARM).await;
        self.world.trace("the last alarms");
        change_all(|world| world.fire_alarm(BASE_ALARM));
        self.watch_links().await;
    }

    /// The second dashboard stops reading while a snapshot is on its way, or reads again.
    fn stall_one(&self, is_stalled: bool) {
        let dashboard = &self.dashboards[1];
        if let Some((wire, _)) = &*dashboard.wire.borrow() {
            wire.stall(is_stalled);
        }
        if is_stalled && dashboard.watches.borrow().contains(&0) {
            dashboard.send_subscribe(0, false);
        }
    }

    /// The process ends, and an alarm that it knows to be off goes on before it is back.
    async fn end_once_more(&self) {
        let mut random = Stream::of(self.world.seed, "the last end");
        if !random.chance(ENDS_ONCE_MORE) {
            return;
        }
        self.lossy();
        match random.chance(50) {
            true => self.world.kill("killed"),
            false => self.world.end(),
        }
        sleep(Duration::from_millis(MISSED_AFTER)).await;
        self.world.judge.borrow_mut().oracle.miss(self.world.clock.now());
        change_all(|world| world.fire_alarm(SHED_ALARM));
    }

    /// Every fault ends, and everybody is signed in and watches.
    fn heal(self: &Rc<Self>) {
        self.world.trace("healthy");
        self.world.fate.set(Fate::Run);
        self.world.next_fate.set(Fate::Run);
        self.world.journal_fate.set(JournalFate::Run);
        self.world.refused.borrow_mut().clear();
        self.world.receiver.fate.set(ReceiverFate::Run);
        self.world.receiver.browsers.heal();
        // In half of the seeds only the link says that an alarm went off.
        let are_pushed = Stream::of(self.world.seed, "pushed").chance(50);
        for game in 0..GAMES.len() {
            self.world.games[game].faults(|faults| *faults = GameServerFaults::default());
            // A game does not push again what it has pushed lately.
            for _ in 0..PUSHES_APART {
                oracle::change(game, |world| world.advance_to(world.now() + TimeDelta::seconds(1)));
            }
            oracle::change(game, |world| {
                // A wipe has destroyed them; the owner builds them again.
                let plays = |user: &usize| PAIRED.iter().any(|(_, owner, of)| (*owner, *of) == (*user, game));
                let players = (0..USERS.len()).filter(plays).map(|user| TEAM[user].0).collect();
                let everybody = [TEAM[0].0, TEAM[1].0].into();
                for (alarm, name, subscribers) in [(BASE_ALARM, BASE_NAME, everybody), (WALL_ALARM, WALL_NAME, players)]
                {
                    let subscribers = if are_pushed { subscribers } else { Default::default() };
                    world.release_alarm(alarm);
                    world.add_device(alarm, name, SimulatedDevice::Alarm { on: false, subscribers });
                }
                add_devices(world);
                world.respawn(TEAM[1].0);
                if !world.devices().any(|(id, ..)| id == GATE_SWITCH) {
                    world.add_device(GATE_SWITCH, "Gate", SimulatedDevice::Switch { on: false });
                }
            });
        }
        self.heal_teams();
        self.world.pushes.faults(|faults| *faults = PushServiceFaults::default());
        // In half of the seeds both ends of a dead connection must notice it.
        let are_cut = Stream::of(self.world.seed, "heal").chance(50);
        let wires = self.world.wires.borrow().clone();
        for wire in wires {
            wire.set_lag((1, 5));
            wire.cut_after(None);
            if !wire.lossless.get() {
                wire.stall(false);
                if are_cut {
                    wire.cut();
                }
            }
        }
        for paired in 0..PAIRED.len() {
            let dashboards: Vec<_> =
                self.dashboards.iter().filter(|it| it.watches.borrow().contains(&paired)).cloned().collect();
            // A server that was deleted has another id now.
            let run = self.clone();
            self.user_then(UserAct::Pair(paired), move || {
                run.restore_overlays(paired);
                let subscribe = move || dashboards.iter().for_each(|it| it.send_subscribe(paired, false));
                match paired {
                    0 => run.user_then(UserAct::Guest(true), subscribe),
                    _ => subscribe(),
                }
            });
        }
        if are_cut {
            (0..USERS.len()).for_each(|user| self.user(UserAct::UploadCredential(user)));
        }
    }

    /// The owner wants a value of each gate that can be reached.
    fn toggle_gates(&self) {
        let mut random = Stream::of(self.world.seed, "gates");
        for paired in [0, 1] {
            let mut judge = self.world.judge.borrow_mut();
            let Some(server) = judge.server(PAIRED[paired].0) else { continue };
            let (value, request) = (random.chance(50), format!("gate {paired}"));
            let (now, known) = (self.world.clock.now(), self.dashboards[0].known.borrow());
            if !known.get(server.as_str()).is_some_and(|known| is_between_attempts(&known.state, now)) {
                judge.wishes.want(&request, PAIRED[paired].2, value);
            }
            drop(known);
            self.dashboards[0].send(json!({ "type": "deviceToggle", "serverId": server, "value": value,
                "deviceId": GATE_SWITCH.to_string(), "requestId": request }));
        }
    }
}
