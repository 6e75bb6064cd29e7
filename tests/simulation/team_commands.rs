//! Commands in the team's chat: no command is answered twice, whatever breaks; in the healthy minutes each is answered,
//! and what was set for a time ends. Two of our users are in one team on the first game server.

use std::collections::BTreeMap;

use companion::{
    db::{engine::pool::Pool, schema::team_timers},
    domain::time::Timestamp,
    game::wire::AppTeamMessage,
    simulator::{
        game_server::GameServer,
        world::{SimulatedDevice, TEAM},
    },
};
use diesel::{QueryDsl as _, RunQueryDsl as _};
use tokio::sync::mpsc;

use crate::{
    healthy::ends_once_more,
    judge::Judge,
    random::Stream,
    script::{Act, HEALTHY_FROM, LAST_END, Script},
    world::{GAMES, LAMP_SWITCH, World},
};

/// Percent of the seeds in which commands are given.
const GIVEN: u64 = 60;
/// When mates give a command, and set a timer, in the healthy minutes. The timer ends before another process may.
pub const HEALTHY_COMMAND: u64 = 421_000;
pub const HEALTHY_TIMER: u64 = 423_500;
/// When a mate turns the lamp on for twenty seconds.
pub const HEALTHY_LAMP: u64 = 424_000;
/// When a mate turns the lamp on, and another sets a timer: both end after the process has ended once more.
pub const BEFORE_LAST_END: u64 = LAST_END - 9_000;
/// Percent of the seeds with such an end in which they do.
const OUTLIVES: u64 = 50;
/// A command of an earlier minute may have stopped the answers, or waits for its turn.
const LAST_COMMAND: u64 = HEALTHY_FROM;

/// The commands of a seed: a stream of their own, so that the rest of its script is what it was.
pub fn commands(seed: u64) -> Script {
    let mut random = Stream::of(seed, "team commands");
    let mut script = Script::new();
    if !random.chance(GIVEN) {
        return script;
    }
    let pause = random.between(3_000, 20_000);
    let mut at = 8_000 + random.below(pause);
    while at < LAST_COMMAND {
        let game = random.below(GAMES.len() as u64) as usize;
        let mate = random.below(TEAM.len() as u64) as usize;
        script.push((at, if random.chance(80) { Act::Command { game, mate } } else { Act::Timer { game, mate } }));
        at += 500 + random.below(2 * pause);
    }
    script
}

/// True if something is set for longer than the process lives. To end it, a link is made, which then stays to the end.
pub fn outlives(seed: u64) -> bool {
    ends_once_more(seed) && Stream::of(seed, "outlives the process").chance(OUTLIVES)
}

/// Milliseconds from a command to the last attempt of its answer.
const ANSWERED_WITHIN: u64 = 30_000;

struct GivenCommand {
    game: usize,
    /// The beginning of its answer.
    answer: String,
    at: u64,
    /// A link of our players was there, or will be when the line comes.
    is_heard: bool,
}

/// Lines of the game servers' chats, and the commands that were given.
pub struct TeamCommands {
    heard: Vec<mpsc::UnboundedReceiver<AppTeamMessage>>,
    given: u64,
    commands: Vec<GivenCommand>,
    /// Games that have forgotten the history of their chat, and when.
    forgotten: Vec<(usize, u64)>,
}

impl TeamCommands {
    pub fn new(games: &[GameServer]) -> Self {
        Self {
            heard: games.iter().map(GameServer::chat).collect(),
            given: 0,
            commands: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// This game has forgotten the history of its chat.
    pub fn forget_chat(&mut self, game: usize, at: u64) {
        self.forgotten.push((game, at));
    }

    /// True if the game may have forgotten the answer to a command of this time before we saw it: it is said again then.
    fn may_be_forgotten(&self, game: usize, at: u64) -> bool {
        let near = at.saturating_sub(ANSWERED_WITHIN)..at + ANSWERED_WITHIN;
        self.forgotten.iter().any(|(forgetful, when)| *forgetful == game && near.contains(when))
    }

    /// A mate asks for what no other asks for.
    pub fn command(&mut self, world: &World, game: usize, mate: usize) {
        self.given += 1;
        let number = self.given;
        self.say(world, game, mate, &format!("!decay armored wall {number}"), format!("armored wall {number}/2000: "));
    }

    /// A mate sets a timer of twenty seconds.
    pub fn timer(&mut self, world: &World, game: usize, mate: usize) {
        self.given += 1;
        let number = self.given;
        self.say(world, game, mate, &format!("!timer 20s t{number}."), format!(": t{number}. in 20s"));
    }

    /// A mate turns the lamp on for twenty seconds.
    pub fn lamp(&self, world: &World, game: usize, mate: usize) {
        world.games[game].world(|world| world.say(TEAM[mate].0, "!lamp on 20s"));
    }

    /// Mates turn the lamp on, and set a timer, for longer than the process lives.
    pub fn set_what_outlives(&self, world: &World, game: usize) {
        world.games[game].world(|world| {
            world.say(TEAM[2].0, "!lamp on 34s");
            world.say(TEAM[0].0, "!timer 33s over.");
        });
    }

    fn say(&mut self, world: &World, game: usize, mate: usize, line: &str, answer: String) {
        // Late, it comes to links that are there by then.
        let mut is_heard = false;
        world.games[game].faults(|faults| is_heard = faults.late_broadcasts);
        is_heard |= TEAM.iter().any(|(player, _)| world.games[game].connections_of(*player) > 0);
        self.commands.push(GivenCommand { game, answer, at: world.millis(), is_heard });
        world.games[game].world(|world| world.say(TEAM[mate].0, line));
    }

    /// Lines of our players on each game server.
    fn answers(&mut self) -> Vec<Vec<AppTeamMessage>> {
        let ours = |line: &AppTeamMessage| !line.message.starts_with('!');
        let said = self.heard.iter_mut().map(|heard| std::iter::from_fn(|| heard.try_recv().ok()));
        said.map(|said| said.filter(ours).collect()).collect()
    }
}

impl Judge {
    /// After the healthy minutes; the lines of our players on each game server.
    pub fn check_commands(&mut self, world: &World, pool: &Pool) -> Vec<Vec<AppTeamMessage>> {
        let mut commands = world.commands.borrow_mut();
        let heard = commands.answers();
        let said: Vec<Vec<&str>> =
            heard.iter().map(|lines| lines.iter().map(|line| line.message.as_str()).collect()).collect();
        let count = |game: usize, text: &str| said[game].iter().filter(|line| line.contains(text)).count();
        for GivenCommand { game, answer, at, is_heard } in &commands.commands {
            let answers = count(*game, answer);
            let is_healthy = *at >= HEALTHY_FROM;
            let is_repeated = answers > 1 && !commands.may_be_forgotten(*game, *at);
            if is_repeated || (is_healthy && answers == 0) {
                let at = at / 1_000;
                self.broken("one-answer", format!("{answer:?} of {at} s on game server {game}: {answers} times"));
            }
            if answers > 0 && !is_heard {
                let at = at / 1_000;
                self.broken(
                    "no-history-is-asked",
                    format!("{answer:?} of {at} s on game server {game} was in a history"),
                );
            }
            if let Some((_, text)) = answer.split_once(": t").filter(|_| is_healthy) {
                let text = text.trim_end_matches(" in 20s");
                // Timers that end together share a line.
                let all = said[*game].iter().flat_map(|line| line.split(", "));
                let ends = all.filter(|said| said.ends_with(&format!(": t{text}"))).count();
                if ends != 1 {
                    self.broken("a-duration-ends", format!("timer t{text} on game server {game} ended {ends} times"));
                }
            }
        }
        for (game, server) in world.games.iter().enumerate() {
            let later = count(game, "lamp is on, off again in 34s");
            for (line, wanted) in [("lamp is on, off again in 20s", 1), ("lamp is off again", 1 + later)] {
                if count(game, line) != wanted {
                    let (times, lamp) = (count(game, line), said[game].iter().filter(|line| line.contains("lamp")));
                    let lamp: Vec<_> = lamp.collect();
                    self.broken(
                        "a-duration-ends",
                        format!("{line:?} on game server {game}: {times} times in {lamp:?}"),
                    );
                }
            }
            let lines = said[game].iter().flat_map(|line| line.split(", "));
            let ends = lines.filter(|said| said.ends_with(": over.")).count();
            if count(game, ": over. in 33s") == 1 && ends != 1 {
                let details = format!("the timer of the last life on game server {game} ended {ends} times");
                self.broken("a-duration-ends", details);
            }
            let is_on = |(id, _, device): (u64, &str, &SimulatedDevice)| {
                id == LAMP_SWITCH && matches!(device, SimulatedDevice::Switch { on: true })
            };
            if server.world(|world| world.devices().any(is_on)) {
                self.broken("a-duration-ends", format!("the lamp on game server {game} is on"));
            }
        }
        let timers = team_timers::table.select((team_timers::text, team_timers::ends_at));
        let timers: Vec<(String, Timestamp)> =
            pool.read_blocking(|db| Ok(timers.load(db)?)).expect("the timers can be read");
        // By the clock of the service, which may have been set back.
        let left: BTreeMap<_, _> = timers.into_iter().filter(|_| !self.set_back).collect();
        if !left.is_empty() {
            self.broken("a-duration-ends", format!("timers are left: {left:?}"));
        }
        heard
    }
}
