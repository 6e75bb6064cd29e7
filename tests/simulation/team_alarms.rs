//! Alarms in the team's chat: an alarm of the healthy minutes is said, also when the process ends while its line waits, and
//! each process says it once for each of its paired servers at most.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use companion::{
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        schema::{incidents, spoken_alarms},
        team_chat_settings,
    },
    domain::{
        ids::ServerId,
        team_command::settings::{Announcements, TeamChatSettings},
        time::Timestamp,
    },
    game::wire::AppTeamMessage,
    simulator::world::WALL_ALARM,
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use tokio::time::{Duration, sleep};

use crate::{
    judge::Judge,
    oracle,
    random::Stream,
    run::Run,
    script::{Act, FIRST_HEALTHY_ALARM, HEALTHY_FROM, LAST_END, ROOF_ON, Script},
    world::{GAMES, PAIRED, ROOF_ALARM, SHED_ALARM, START, World},
};

/// Seeds in a hundred in which alarms are said in the team's chat.
const ARE_ANNOUNCED: u64 = 60;
/// Alarms that go off before such a death, each once.
const DEADLY: [u64; 2] = [ROOF_ALARM, SHED_ALARM];
/// The beginning of an alarm's line, before its name.
const LINE: &str = "ALARM: ";
/// An incident begins within this time of its alarm; the last end delays it.
const NEAR: TimeDelta = TimeDelta::seconds(30);

/// True if owners let alarms be said in this seed.
fn are_announced(seed: u64) -> bool {
    Stream::of(seed, "team alarms").chance(ARE_ANNOUNCED)
}

/// Owners let alarms of these servers be said, before the first life.
pub fn announce(db: &mut Db, world: &World) -> Result<(), DbError> {
    let announcements = Announcements { raid: are_announced(world.seed), ..Announcements::default() };
    let settings = TeamChatSettings { announcements, ..TeamChatSettings::default() };
    for (name, ..) in PAIRED {
        let Some(server) = world.judge.borrow().server(name).filter(|_| announcements.raid) else { continue };
        team_chat_settings::put(db, &server, &settings)?;
        world.judge.borrow_mut().announcing.insert(server);
    }
    Ok(())
}

/// When the process dies at an alarm that is to be said: a stream of its own, so that the rest of the script is what it was.
pub fn deaths(seed: u64) -> Script {
    let mut random = Stream::of(seed, "deaths at team alarms");
    if !are_announced(seed) || !random.chance(50) {
        return Script::new();
    }
    let die = |alarm| {
        let game = random.below(GAMES.len() as u64) as usize;
        let at = random.between(10_000, HEALTHY_FROM - 15_000);
        (at, Act::KillAtAnnouncement { game, alarm, after: random.between(1, 4_000) })
    };
    (0..DEADLY.len()).map(die).collect()
}

/// Milliseconds by which the alarm that stays on comes later: then it is said while the process may end.
pub fn roof_delay(seed: u64) -> u64 {
    let mut random = Stream::of(seed, "roof");
    if random.chance(50) { random.below(LAST_END - ROOF_ON) } else { 0 }
}

impl Run {
    /// An alarm goes off, and the process dies `after` milliseconds later.
    pub fn kill_at_announcement(&self, game: usize, alarm: usize, after: u64) {
        self.lossy();
        let alarm = DEADLY[alarm];
        oracle::change(game, |world| world.fire_alarm(alarm));
        let world = self.world.clone();
        tokio::task::spawn_local(async move {
            world.kill_after(after).await;
            sleep(Duration::from_secs(10)).await;
            oracle::change(game, |world| world.release_alarm(alarm));
        });
    }
}

/// An incident and the end of its line.
#[derive(Debug, diesel::Queryable)]
struct SpokenIncident {
    id: String,
    server: String,
    alarm_id: String,
    alarm_name: String,
    first_at: Timestamp,
}

#[derive(Debug, diesel::Queryable)]
struct StoredLine {
    incident: String,
    server: String,
    state: String,
    reason: Option<String>,
}

fn read(db: &mut Db) -> Result<(Vec<SpokenIncident>, Vec<StoredLine>), DbError> {
    use incidents as i;
    use spoken_alarms as s;
    let rung = i::table.filter(i::late.eq(false)).filter(i::drill.eq(false));
    let rung = rung.select((i::id, i::server_id, i::alarm_id, i::alarm_name, i::first_at));
    let lines = s::table.select((s::incident_id, s::server_id, s::state, s::reason));
    Ok((rung.order(i::id).load(db)?, lines.order(s::incident_id).load(db)?))
}

impl Judge {
    /// After the healthy minutes; `heard` are the lines of our players on each game server.
    pub fn check_team_alarms(&mut self, world: &World, pool: &Pool, heard: &[Vec<AppTeamMessage>]) {
        let (incidents, lines) = pool.read_blocking(read).expect("the ledger can be read");
        if let Some(line) = lines.iter().find(|line| line.state == "failed" && line.reason.is_none()) {
            self.broken("failures-have-reasons", format!("{line:?}"));
        }
        let line_of = |incident: &SpokenIncident| {
            lines.iter().find(|line| line.incident == incident.id && line.server == incident.server)
        };
        let Some(fired) = self.oracle.fired_at else { return };
        let after = |millis: u64| fired + TimeDelta::milliseconds((millis - FIRST_HEALTHY_ALARM) as i64);
        let checked = [(WALL_ALARM, FIRST_HEALTHY_ALARM), (ROOF_ALARM, ROOF_ON + roof_delay(world.seed))];
        for (game, heard) in heard.iter().enumerate() {
            let announcing: BTreeSet<ServerId> = PAIRED
                .iter()
                .filter(|paired| paired.2 == game)
                .filter_map(|(name, ..)| self.server(name))
                .filter(|server| self.announcing.contains(server))
                .collect();
            let is_of_game = |server: &str| announcing.iter().any(|known| known.as_str() == server);
            let accepted = lines.iter().filter(|line| line.state == "accepted" && is_of_game(&line.server)).count();
            let said =
                heard.iter().filter(|line| line.message.starts_with(LINE) || line.message.starts_with("DRILL: "));
            let said = said.count();
            if said < accepted {
                self.broken("accepted-was-said", format!("{said} lines on game server {game}, {accepted} accepted"));
            }
            for (alarm, at) in checked {
                let is_it = |incident: &&SpokenIncident| {
                    let since = incident.first_at - after(at);
                    incident.alarm_id == alarm.to_string()
                        && is_of_game(&incident.server)
                        && (-TimeDelta::seconds(1)..NEAR).contains(&since)
                };
                let rung: Vec<&SpokenIncident> = incidents.iter().filter(is_it).collect();
                let is_ended = |incident: &SpokenIncident| {
                    line_of(incident).is_some_and(|line| matches!(line.state.as_str(), "accepted" | "superseded"))
                };
                for incident in rung.iter().filter(|incident| !is_ended(incident)) {
                    // One from before the clock was set back may be as near.
                    let is_it = |other: &&SpokenIncident| other.server == incident.server && is_ended(other);
                    if !(self.set_back && rung.iter().any(is_it)) {
                        self.broken("alarms-are-said", format!("{incident:?}: {:?}", line_of(incident)));
                    }
                }
                // By the clock of the game, which never jumps.
                let from = START + at as i64 / 1_000 - 2;
                let said: Vec<&str> = heard
                    .iter()
                    .filter(|line| i64::from(line.time) >= from && line.message.starts_with(LINE))
                    .map(|line| line.message.as_str())
                    .collect();
                let is_accepted =
                    |incident: &&SpokenIncident| line_of(incident).is_some_and(|line| line.state == "accepted");
                if said.is_empty() && rung.iter().any(is_accepted) {
                    self.broken("accepted-was-said", format!("game server {game} took no line: {rung:?}"));
                }
                let names: BTreeSet<String> =
                    rung.iter().map(|incident| format!("{LINE}{}", incident.alarm_name)).collect();
                let is_about = |line: &&&str| names.iter().any(|name| line.starts_with(name.as_str()));
                let times = said.iter().filter(is_about).count();
                // The process may end once more: each says it for each of its servers at most.
                if alarm == ROOF_ALARM && times > 2 * announcing.len() {
                    self.broken("alarms-are-said", format!("{times} times on game server {game}: {said:?}"));
                }
            }
        }
    }
}
