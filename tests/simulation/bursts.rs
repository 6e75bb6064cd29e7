//! Bursts of alarms, and a process that dies among them, with a database that is slow or not: what was shown of an incident
//! is there after each restart.

use std::{collections::BTreeMap, time::Duration};

use companion::{
    db::{
        engine::{
            error::DbError,
            pool::{Db, Pool},
        },
        schema::{alarms, incidents},
    },
    simulator::world::{BASE_ALARM, WALL_ALARM},
};
use diesel::{QueryDsl as _, RunQueryDsl as _};
use tokio::time::sleep;

use crate::{
    healthy::BASE_NAME,
    judge::Judge,
    oracle,
    random::Stream,
    run::{Run, pushed_server},
    script::{Act, HEALTHY_FROM, Script},
    world::{Fate, GAMES, PAIRED, PHONES, ROOF_ALARM},
};

/// Seeds in a hundred in which the process dies among alarms.
const DIE_AT_BURSTS: u64 = 60;
/// Pulses of each alarm in a burst, and virtual milliseconds between two: further apart than what is taken for bounce.
const PULSES: u64 = 4;
const APART: u64 = 1_100;
/// A count that was shown is kept after so long: the pause between two writes, and the waits for the database and the
/// journal.
const KEPT_AFTER: u64 = 4_000;

/// When the process dies among alarms: a stream of its own, so that the rest of the script is what it was.
pub fn deaths(seed: u64) -> Script {
    let mut random = Stream::of(seed, "bursts");
    if !random.chance(DIE_AT_BURSTS) {
        return Script::new();
    }
    let deaths = random.between(1, 4);
    let die = |_| {
        let game = random.below(GAMES.len() as u64) as usize;
        let fate = if random.chance(30) { Fate::Run } else { Fate::Slow(random.between(600, 7_000)) };
        let at = random.between(8_000, HEALTHY_FROM - 20_000);
        (at, Act::DieAtBurst { game, fate, after: random.between(1_500, 14_000) })
    };
    (0..deaths).map(die).collect()
}

impl Run {
    /// Alarms go on again and again, the game pushes one of them, and the process dies `after` milliseconds later.
    pub fn die_at_burst(&self, game: usize, fate: Fate, after: u64) {
        self.lossy();
        let world = self.world.clone();
        world.judge.borrow_mut().bad_disk |= fate != Fate::Run;
        world.fate.set(fate);
        let mut random = Stream::of(world.seed, &format!("burst of {}", world.millis()));
        // A push at the time of an alarm of which nothing is pushed may be taken for its own.
        let is_pushed = random.chance(50);
        tokio::task::spawn_local(async move {
            for pulse in 0..PULSES {
                let (base_after, push_after) = (random.between(50, 500), random.between(50, 500));
                ring(game, WALL_ALARM);
                sleep(Duration::from_millis(base_after)).await;
                ring(game, if pulse == 1 && !is_pushed { ROOF_ALARM } else { BASE_ALARM });
                sleep(Duration::from_millis(push_after)).await;
                for (_, user, _) in PAIRED.iter().filter(|(.., of)| *of == game && is_pushed) {
                    world.pushes.push(PHONES[*user].0, pushed_server(game).alarm(BASE_NAME, "words"));
                }
                sleep(Duration::from_millis(APART - base_after - push_after)).await;
                if world.millis() >= HEALTHY_FROM {
                    return;
                }
            }
            sleep(Duration::from_secs(20)).await;
            oracle::change(game, |world| world.release_alarm(ROOF_ALARM));
        });
        let world = self.world.clone();
        tokio::task::spawn_local(async move {
            world.kill_after(after).await;
        });
    }
}

/// An alarm goes on, if it must also off before.
fn ring(game: usize, alarm: u64) {
    oracle::change(game, |world| world.release_alarm(alarm));
    oracle::change(game, |world| world.fire_alarm(alarm));
}

/// Id, count and paths of the incidents, and the incident and the path of each alarm.
type Ledger = (BTreeMap<String, (i64, String)>, Vec<(Option<String>, String)>);

fn ledger(db: &mut Db) -> Result<Ledger, DbError> {
    let known = incidents::table.select((incidents::id, incidents::count, incidents::paths));
    let known = known.load::<(String, i64, String)>(db)?;
    let alarms = alarms::table.order(alarms::id).select((alarms::incident, alarms::path)).load(db)?;
    Ok((known.into_iter().map(|(id, count, paths)| (id, (count, paths))).collect(), alarms))
}

impl Judge {
    /// When the service has started, before it does anything, and at the end: no incident counts less than it was shown
    /// to, and each knows the paths of its alarms.
    pub fn check_incidents_kept(&mut self, pool: &Pool) {
        let (known, alarms) = pool.read_blocking(ledger).expect("the ledger can be read");
        let shown = self.oracle.counts_shown(KEPT_AFTER);
        for (incident, count) in shown {
            let is_less = known.get(&incident).is_some_and(|(kept, _)| *kept < count);
            if is_less && !self.is_unkept(&incident) {
                let kept = &known[&incident];
                self.broken("shown-count-is-kept", format!("{incident} was shown with {count}, is {kept:?}"));
            }
        }
        for (incident, path) in alarms {
            let Some(incident) = incident else { continue };
            let knows = known.get(&incident).is_none_or(|(_, paths)| paths.split(',').any(|known| known == path));
            if !knows && !self.is_unkept(&incident) {
                let kept = &known[&incident];
                self.broken("incident-has-paths", format!("{incident} has an alarm by {path:?}, and is {kept:?}"));
            }
        }
    }
}
