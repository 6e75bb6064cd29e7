//! Teams that change: players of our users go over to rivals, leave, are kicked and come home, and their tokens are
//! revoked and accepted again. No client learns anything of a team that its player is not in; mates see the same, over
//! one link, and read on when the token of one of them is revoked.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use companion::{
    db::{engine::pool::Pool, schema::chat_lines},
    simulator::{
        game_server::{DEMO_TOKEN, GameServer},
        world::{LIGHTS_SWITCH, SimulatedTeam, SimulatedWorld, TEAM},
    },
};
use diesel::{QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;
use tokio::time::{Duration, sleep};

use crate::{
    dashboard::Dashboard,
    judge::Judge,
    link_starts::is_up_long,
    random::Stream,
    run::Run,
    script::{Act, HEALTHY_CHAT, HEALTHY_FROM, LENGTH, Script, UNSEEN_ALARM},
    team_commands,
    world::{GAMES, PAIRED, START, UserAct, World, world},
};

/// Another team on each game server, without a user of ours: SteamID64 and name.
pub const RIVALS: [(u64, &str); 2] = [(76561198000001001, "Vandal One"), (76561198000001002, "Vandal Two")];
/// The beginning of their names, which nothing else has.
const RIVAL: &str = "Vandal";
/// A mate of our users who never leaves the team.
const STAYS: u64 = TEAM[2].0;

/// Seeds in a hundred in which players change their teams, in which tokens are revoked, in which one is while all is
/// well, and in which a device is Alice's alone.
const TEAMS_CHANGE: u64 = 35;
const TOKENS_ARE_REVOKED: u64 = 30;
const REVOKED_IN_CALM: u64 = 40;
const HAS_VAULT: u64 = 20;

/// When a token is revoked while all is well, after all clients are back, and until when mates have to read on.
pub const REVOKED: u64 = 372_000;
const READ_ON_WITHIN: Duration = Duration::from_secs(20);
/// Virtual milliseconds after which a state no longer shows a member who has left: the time that all questions of a link
/// may take, which is more than a poll and the longest lag.
const SETTLED_AFTER: u64 = 40_000;
/// From one token of a player to the next, more than there are users.
const NEXT_TOKEN: i32 = 100;
/// The parts of a member that all mates see alike.
const SEEN_ALIKE: [&str; 6] = ["name", "x", "y", "grid", "online", "alive"];

/// A player's way to another team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamMove {
    Home,
    Rivals,
    /// Into no team.
    Alone,
    Kicked,
}

/// The teams as they are on the game servers, and as they were.
#[derive(Default)]
pub struct TeamTruth {
    /// By game and words: players who were in the team while its chat had this line.
    readers: BTreeMap<(usize, String), BTreeSet<u64>>,
    /// By game, player and former mate: since when they are mates no longer.
    parted: BTreeMap<(usize, u64, u64), u64>,
    /// By game: players who have lost a mate.
    moved: BTreeSet<(usize, u64)>,
    /// By game: until when its faults may hide from a link that a player has left.
    disturbed_until: [u64; GAMES.len()],
    /// By user and game: the token, if it is another than the first.
    tokens: BTreeMap<(usize, usize), i32>,
    /// Users and games whose token was pushed: it may be pushed once more at any time.
    pushed: BTreeSet<(usize, usize)>,
    /// By game: the fewest links that were seen at the end.
    fewest_links: [Option<usize>; GAMES.len()],
}

impl TeamTruth {
    /// The token that the game server accepts of this user, unless it is revoked.
    pub fn token(&self, user: usize, game: usize) -> i32 {
        self.tokens.get(&(user, game)).copied().unwrap_or(DEMO_TOKEN + user as i32)
    }

    /// The token, which is about to be pushed.
    pub fn push_token(&mut self, user: usize, game: usize) -> i32 {
        self.pushed.insert((user, game));
        self.token(user, game)
    }

    /// Another token. An old one that is pushed late may take its place where the clock was set back.
    fn replace_token(&mut self, user: usize, game: usize) {
        if !self.pushed.contains(&(user, game)) {
            let token = self.token(user, game) + NEXT_TOKEN;
            self.tokens.insert((user, game), token);
        }
    }

    /// The faults of this game change now: as long as it has some, and while links recover, news of teams may be lost.
    pub fn disturb(&mut self, game: usize, has_faults: bool, now: u64) {
        self.disturbed_until[game] = if has_faults { u64::MAX } else { now + SETTLED_AFTER };
    }

    /// All who are in a team may know the lines of its chat.
    fn note_lines(&mut self, game: usize, world: &SimulatedWorld) {
        for team in world.teams() {
            for line in team.lines() {
                self.readers.entry((game, line.message.clone())).or_default().extend(team.members());
            }
        }
    }

    /// Counts the links of now.
    fn count_links(&mut self, games: &[GameServer]) {
        for (fewest, server) in self.fewest_links.iter_mut().zip(games) {
            *fewest = Some(fewest.unwrap_or(usize::MAX).min(server.connections()));
        }
    }

    /// True if this player may know the line; none if no chat is known to have it.
    fn may_read(&self, game: usize, text: &str, player: u64) -> Option<bool> {
        self.readers.get(&(game, text.to_owned())).map(|readers| readers.contains(&player))
    }
}

/// Changes the world of a game server in a way that may change its teams.
pub fn change(game: usize, change: impl FnOnce(&mut SimulatedWorld)) {
    let world = world();
    let now = world.millis();
    world.games[game].world(|simulated| {
        let mut teams = world.teams.borrow_mut();
        teams.note_lines(game, simulated);
        let before = mates(simulated);
        change(simulated);
        teams.note_lines(game, simulated);
        let after = mates(simulated);
        for (player, mate) in before.union(&after) {
            let key = (game, *player, *mate);
            match after.contains(&(*player, *mate)) {
                true => _ = teams.parted.remove(&key),
                false => {
                    teams.moved.insert((game, *player));
                    teams.parted.insert(key, now);
                }
            }
        }
    });
}

/// Each player with each member of the same team.
fn mates(world: &SimulatedWorld) -> BTreeSet<(u64, u64)> {
    let of_team = |team: &SimulatedTeam| {
        let members = team.members();
        members.iter().flat_map(|player| members.iter().map(|mate| (*player, *mate))).collect::<Vec<_>>()
    };
    world.teams().flat_map(of_team).collect()
}

/// The members of the player's team, or the player alone.
fn members_with(world: &SimulatedWorld, player: u64) -> Vec<u64> {
    world.team_of(player).map_or_else(|| vec![player], |team| team.members().to_vec())
}

/// Founds the team of the rivals, at whose base Alice may use the devices.
pub fn found_rivals(world: &mut SimulatedWorld) {
    world.found_team(&RIVALS.map(|(player, name)| (player, name.to_owned())));
    world.authorise(1, TEAM[0].0, true);
}

/// A switch at the base of the rivals: Alice may use it, and Bob may not.
fn vault() -> u64 {
    SimulatedWorld::device_of(1, LIGHTS_SWITCH)
}

/// The switch that is Alice's alone, in the seeds in which every user pairs it. Then Bob's link cannot read for her.
pub fn paired_vault(seed: u64) -> Option<u64> {
    Stream::of(seed, "vault").chance(HAS_VAULT).then(vault)
}

/// When players change their teams: a stream of its own, so that the rest of the script is what it was.
pub fn moves(seed: u64) -> Script {
    let mut random = Stream::of(seed, "teams");
    let mut script = Script::new();
    if !random.chance(TEAMS_CHANGE) {
        return script;
    }
    let pause = random.between(2_000, 15_000);
    let mut at = 8_000 + random.below(pause);
    while at < HEALTHY_FROM {
        let paired = random.below(PAIRED.len() as u64) as usize;
        let to = match random.below(10) {
            0..5 => None,
            5 | 6 => Some(TeamMove::Home),
            7 => Some(TeamMove::Rivals),
            8 => Some(TeamMove::Alone),
            _ => Some(TeamMove::Kicked),
        };
        script.push((at, to.map_or(Act::TeamTalk(PAIRED[paired].2), |to| Act::Move { paired, to })));
        at += 300 + random.below(2 * pause);
    }
    script
}

/// When tokens are revoked: likewise.
pub fn revocations(seed: u64) -> Script {
    let mut random = Stream::of(seed, "revoked tokens");
    if !random.chance(TOKENS_ARE_REVOKED) {
        return Script::new();
    }
    let revoke = |_| {
        let paired = random.below(PAIRED.len() as u64) as usize;
        let (millis, is_replaced) = (random.between(500, 60_000), random.chance(50));
        (random.between(10_000, HEALTHY_FROM - 10_000), Act::RevokeToken { paired, millis, is_replaced })
    };
    let times = Stream::of(seed, "times that tokens are revoked").between(1, 4);
    (0..times).map(revoke).collect()
}

fn join(world: &mut SimulatedWorld, player: u64, mate: u64) {
    if let Some(team) = world.team_of(mate).map(SimulatedTeam::id) {
        world.join_team(player, team);
    }
}

/// The leader kicks the player; one who leads makes a mate the leader first.
fn kick(world: &mut SimulatedWorld, player: u64) {
    let Some(team) = world.team_of(player) else { return };
    let (leader, mate) = (team.leader(), team.members().iter().copied().find(|member| *member != player));
    let Some(mate) = mate else { return };
    let by = if leader == player { mate } else { leader };
    world.promote(leader, by).and_then(|()| world.kick(by, player)).expect("the leader may");
}

/// The game server accepts the token of this user again.
fn accept_token(world: &World, user: usize, game: usize) {
    let token = world.teams.borrow().token(user, game);
    world.games[game].set_token(TEAM[user].0, Some(token));
}

impl Run {
    /// The player of this paired server changes the team.
    pub fn move_player(&self, paired: usize, to: TeamMove) {
        let (_, user, game) = PAIRED[paired];
        let player = TEAM[user].0;
        // Another team's chat does not have the answers of this one.
        self.world.commands.borrow_mut().forget_chat(game, self.world.millis());
        change(game, |world| match to {
            TeamMove::Home => join(world, player, STAYS),
            TeamMove::Rivals => join(world, player, RIVALS[0].0),
            TeamMove::Alone => world.leave_team(player),
            TeamMove::Kicked => kick(world, player),
        });
    }

    /// Each team says a line of its own, and the switch turns that is Alice's alone.
    pub fn talk_in_teams(&self, game: usize) {
        [STAYS, RIVALS[0].0, TEAM[0].0].into_iter().for_each(|player| self.say(game, player, 1));
        self.world.games[game].world(|world| world.flip_device(vault()));
    }

    /// The game server revokes the token of a player, who pairs again after a while, with the same token or another.
    pub fn revoke_token(self: &Rc<Self>, paired: usize, millis: u64, is_replaced: bool) {
        let (_, user, game) = PAIRED[paired];
        self.world.games[game].set_token(TEAM[user].0, None);
        let run = self.clone();
        tokio::task::spawn_local(async move {
            sleep(Duration::from_millis(millis)).await;
            if run.world.millis() >= HEALTHY_FROM {
                return;
            }
            if is_replaced {
                run.world.teams.borrow_mut().replace_token(user, game);
            }
            accept_token(&run.world, user, game);
            run.attempt(UserAct::Pair(paired));
        });
    }

    /// All players are in one team again, and their tokens are accepted.
    pub fn heal_teams(&self) {
        for (paired, (_, user, game)) in PAIRED.into_iter().enumerate() {
            self.world.teams.borrow_mut().disturb(game, false, self.world.millis());
            self.move_player(paired, TeamMove::Home);
            accept_token(&self.world, user, game);
        }
    }

    /// Dashboards that show this paired server with a link, and nothing of it stale.
    fn fresh_at(&self, paired: usize) -> BTreeSet<usize> {
        let Some(server) = self.world.judge.borrow().server(PAIRED[paired].0) else { return BTreeSet::new() };
        let is_fresh = |dashboard: &&Rc<Dashboard>| {
            let known = dashboard.known.borrow();
            let head = known.get(server.as_str()).map(|known| &known.state["server"]);
            head.is_some_and(|head| head["connection"] == "connected" && head["stale"].is_null())
                && dashboard.open_wire().is_some_and(|wire| wire.lossless.get())
        };
        self.dashboards.iter().filter(is_fresh).map(|dashboard| dashboard.number).collect()
    }

    /// In some seeds a token is revoked while all is well. Mates read on, perhaps over another link.
    pub fn revoke_in_calm(self: &Rc<Self>) {
        let mut random = Stream::of(self.world.seed, "revoked in calm");
        if !random.chance(REVOKED_IN_CALM) {
            return;
        }
        let (paired, mate) = if random.chance(50) { (0, 2) } else { (2, 0) };
        let (_, user, game) = PAIRED[paired];
        let (run, before) = (self.clone(), self.fresh_at(mate));
        self.world.trace(&format!("the token of {} is revoked", PAIRED[paired].0));
        self.world.games[game].set_token(TEAM[user].0, None);
        tokio::task::spawn_local(async move {
            sleep(READ_ON_WITHIN).await;
            let after = run.fresh_at(mate);
            if !before.is_subset(&after) {
                let (revoked, name) = (PAIRED[paired].0, PAIRED[mate].0);
                let details = format!("{name} was fresh at {before:?}, and without {revoked} is at {after:?}");
                run.world.judge.borrow_mut().broken("mates-read-on", details);
            }
            accept_token(&run.world, user, game);
            run.user(UserAct::Pair(paired));
        });
    }

    /// Counts links until the end: a link that is made in its turn rests again soon.
    pub async fn watch_links(&self) {
        while self.world.millis() < LENGTH - 2_000 {
            self.world.teams.borrow_mut().count_links(&self.world.games);
            sleep(Duration::from_secs(1)).await;
        }
    }
}

impl Judge {
    /// A client received this text: it does not name rivals, unless its player was among them.
    pub fn check_names(&mut self, client: &Dashboard, message: &Value, text: &str) {
        if !text.contains(RIVAL) {
            return;
        }
        let Some(paired) = self.paired(message["serverId"].as_str().unwrap_or_default()) else { return };
        let (name, owner, game) = PAIRED[paired];
        let (world, player, rival) = (world(), TEAM[owner].0, RIVALS[0].0);
        let is_mate = world.games[game].world(|world| members_with(world, player).contains(&rival));
        if !is_mate && !world.teams.borrow().parted.contains_key(&(game, player, rival)) {
            self.broken("nothing-of-another-team", format!("client {} of {name}: {text}", client.number));
        }
    }

    /// A client shows this state of a server: its members are mates of the player, or were so a moment ago, and no
    /// device that the player may not use has a value.
    pub fn check_team(&mut self, client: &Dashboard, server: &str, state: &Value) {
        let Some(paired) = self.paired(server) else { return };
        let (name, owner, game) = PAIRED[paired];
        let (world, player) = (world(), TEAM[owner].0);
        let (members, may_use) =
            world.games[game].world(|world| (members_with(world, player), world.may_use(player, vault()).is_ok()));
        let value = &state["devices"][vault().to_string()]["value"];
        if !may_use && !value.is_null() {
            let details = format!("client {} of {name} shows that a device is {value}", client.number);
            self.broken("nothing-of-another-team", details);
        }
        let shown = state["team"]["members"].as_object().into_iter().flatten();
        let shown = shown.filter_map(|(id, _)| id.parse::<u64>().ok());
        for member in shown.filter(|member| !members.contains(member)) {
            let parted = world.teams.borrow().parted.get(&(game, player, member)).copied();
            // Since when a link is up is a time of the clock.
            let is_late = |parted: u64| {
                let is_read = !self.jumped && is_read(&world, state);
                world.millis() - parted > SETTLED_AFTER && is_read && self.is_settled(client, game)
            };
            if parted.is_none_or(is_late) {
                let details = format!("client {} of {name} shows {member}, no mate since {parted:?}", client.number);
                self.broken("nothing-of-another-team", details);
            }
        }
    }

    /// A client received a line of chat: its player was in the team that had it.
    pub fn check_reader(&mut self, client: &Dashboard, server: &str, text: &str) {
        let Some(paired) = self.paired(server) else { return };
        let (name, owner, game) = PAIRED[paired];
        let (world, player) = (world(), TEAM[owner].0);
        let may_read = || world.teams.borrow().may_read(game, text, player);
        if may_read() == Some(true) {
            return;
        }
        world.games[game].world(|simulated| world.teams.borrow_mut().note_lines(game, simulated));
        if may_read() == Some(false) && self.is_settled(client, game) {
            self.broken("nothing-of-another-team", format!("client {} of {name}: {text:?}", client.number));
        }
    }

    /// True if the player of this server, or a mate, has left a team, and the service was started again.
    pub fn has_moved(&self, server: &str) -> bool {
        let Some((_, owner, game)) = self.paired(server).map(|paired| PAIRED[paired]) else { return false };
        let world = world();
        let teams = world.teams.borrow();
        world.lives.get() > 1 && teams.moved.contains(&(game, TEAM[owner].0))
    }

    /// True if no fault hides changes of the teams from the service, and none delays what this client gets.
    fn is_settled(&self, client: &Dashboard, game: usize) -> bool {
        let world = world();
        let is_calm = world.millis() >= world.teams.borrow().disturbed_until[game];
        is_calm && client.open_wire().is_some_and(|wire| !wire.was_stalled.get())
    }

    /// After the healthy minutes: users of one team see it as it is, have the same lines of its chat, and one link reads for
    /// them.
    pub fn check_mates(&mut self, world: &World, pool: &Pool, dashboards: &[Rc<Dashboard>]) {
        let mut views = BTreeMap::<(usize, u64), Vec<Value>>::new();
        for dashboard in dashboards {
            let known = dashboard.known.borrow();
            for paired in dashboard.watches.borrow().iter() {
                let (name, owner, game) = PAIRED[*paired];
                let Some(known) = self.server(name).and_then(|server| known.get(server.as_str())) else { continue };
                let shown = &known.state["team"];
                let team = world.games[game].world(|world| world.team_info(TEAM[owner].0));
                let there: BTreeSet<String> = team.members.iter().map(|member| member.steam_id.to_string()).collect();
                let members: BTreeSet<String> =
                    shown["members"].as_object().into_iter().flatten().map(|(id, _)| id.clone()).collect();
                let leader = team.leader_steam_id.to_string();
                if members != there || shown["leaderId"].as_str() != Some(&leader) {
                    let details = format!("{name}: {there:?} led by {}: {shown}", team.leader_steam_id);
                    self.broken("mates-see-the-same", details);
                }
                for member in &team.members {
                    let view = SEEN_ALIKE.map(|part| shown["members"][member.steam_id.to_string()][part].clone());
                    let first = views.entry((game, member.steam_id)).or_insert_with(|| view.to_vec());
                    if first[..] != view[..] {
                        self.broken("mates-see-the-same", format!("{name}: {view:?}, another user {first:?}"));
                    }
                }
            }
        }
        self.check_same_lines(world, pool);
        // The last alarm is said over the own link of a user, as are the ends of what outlived a process, and Bob's link cannot
        // read what is Alice's alone.
        let is_acted = !self.announcing.is_empty() || team_commands::outlives(world.seed);
        if !is_acted && paired_vault(world.seed).is_none() {
            let fewest_links = world.teams.borrow().fewest_links;
            for (game, links) in fewest_links.into_iter().enumerate().filter(|(_, links)| *links > Some(1)) {
                self.broken("one-link-per-team", format!("{links:?} links to game server {game}, never fewer"));
            }
        }
    }

    /// A line that was said while all links were up is stored for all of a team, or for none of them.
    fn check_same_lines(&mut self, world: &World, pool: &Pool) {
        let read = pool.read_blocking(|db| {
            Ok(chat_lines::table.select((chat_lines::server_id, chat_lines::text)).load::<(String, String)>(db)?)
        });
        let stored: BTreeSet<(String, String)> = read.expect("the lines can be read").into_iter().collect();
        let while_up = START + HEALTHY_CHAT as i64 / 1_000..START + UNSEEN_ALARM as i64 / 1_000;
        for (game, server) in world.games.iter().enumerate() {
            let said: BTreeSet<String> = server.world(|world| {
                let lines = world.team_of(STAYS).into_iter().flat_map(SimulatedTeam::lines);
                let lines = lines.filter(|line| while_up.contains(&i64::from(line.time)));
                lines.map(|line| line.message.clone()).collect()
            });
            let of_game: Vec<&str> = PAIRED.iter().filter(|paired| paired.2 == game).map(|(name, ..)| *name).collect();
            for text in said {
                let has = |name: &&str| {
                    self.server(name).is_some_and(|server| stored.contains(&(server.to_string(), text.clone())))
                };
                let having: Vec<&str> = of_game.iter().copied().filter(has).collect();
                if !having.is_empty() && having.len() < of_game.len() {
                    self.broken("mates-see-the-same", format!("{having:?} alone of {of_game:?} have {text:?}"));
                }
            }
        }
    }
}

/// True if a link has read the team of this state lately.
fn is_read(world: &World, state: &Value) -> bool {
    let head = &state["server"];
    head["connection"] == "connected" && head["stale"]["team"].is_null() && is_up_long(world, state)
}
