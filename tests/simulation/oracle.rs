//! The oracle of alarms: what the game fired in the healthy minutes against what was told, counted and ended. The other
//! minutes have faults that may delay and repeat; there only what was never fired may not be told.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use companion::{
    db::{
        engine::pool::Pool,
        schema::{alarms, incidents},
    },
    domain::ids::ServerId,
    simulator::world::{BASE_ALARM, SimulatedDevice, SimulatedWorld, WALL_ALARM},
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;

use crate::{
    judge::Judge,
    script::{FIRST_HEALTHY_ALARM, SECOND_HEALTHY_ALARM},
    world::{GAMES, PAIRED, World, world},
};

/// Virtual milliseconds within which a dashboard hears of an alarm when nothing is wrong.
const TOLD_WITHIN: u64 = 2_000;
/// The same of a repeat: its update may wait for ten seconds after the message before.
const UPDATED_WITHIN: u64 = 12_000;
/// Quiet time after which an incident ends.
const QUIET: TimeDelta = TimeDelta::seconds(90);

/// A message about an incident, as a dashboard received it.
struct Told {
    at: u64,
    update: bool,
    count: u64,
}

#[derive(Default)]
pub struct AlarmOracle {
    /// By game: how often an alarm went on.
    rises: [i64; GAMES.len()],
    /// When the alarm of the healthy minutes went on, by the clock of the service.
    fired_at: Option<DateTime<Utc>>,
    /// The same of the one that went on while no link was up.
    unseen_at: Option<DateTime<Utc>>,
    /// By dashboard and incident.
    told: BTreeMap<(usize, String), Vec<Told>>,
}

/// Which alarms are on.
fn on(world: &SimulatedWorld) -> Vec<u64> {
    let is_on = |device: &SimulatedDevice| matches!(device, SimulatedDevice::Alarm { on: true, .. });
    world.devices().filter(|(.., device)| is_on(device)).map(|(id, ..)| id).collect()
}

/// Changes the world of a game server, and counts the alarms that went on.
pub fn change<T>(game: usize, change: impl FnOnce(&mut SimulatedWorld) -> T) -> T {
    let world = world();
    world.games[game].world(|simulated| {
        let before = on(simulated);
        let changed = change(simulated);
        let risen = on(simulated).iter().filter(|alarm| !before.contains(alarm)).count();
        world.judge.borrow_mut().oracle.rises[game] += risen as i64;
        changed
    })
}

impl AlarmOracle {
    /// The alarm of the healthy minutes goes on.
    pub fn fire(&mut self, now: DateTime<Utc>) {
        self.fired_at = Some(now);
    }

    /// An alarm goes on while no link is up.
    pub fn fire_unseen(&mut self, now: DateTime<Utc>) {
        self.unseen_at = Some(now);
    }

    /// A dashboard received a message about an incident.
    pub fn tell(&mut self, dashboard: usize, message: &Value) {
        let Some(incident) = message["incident"].as_str() else { return };
        let (update, count) = (message["update"] == true, message["count"].as_u64().unwrap_or_default());
        let told = Told { at: world().millis(), update, count };
        self.told.entry((dashboard, incident.to_owned())).or_default().push(told);
    }

    fn was_told(&self, dashboard: usize, incident: &str, holds: impl Fn(&Told) -> bool) -> bool {
        self.told.get(&(dashboard, incident.to_owned())).is_some_and(|told| told.iter().any(holds))
    }
}

/// An incident as the ledger has it.
#[derive(Debug, diesel::Queryable)]
struct Row {
    id: String,
    alarm_id: String,
    first_at: NaiveDateTime,
    last_at: NaiveDateTime,
    ended_at: Option<NaiveDateTime>,
    count: i64,
    state: String,
}

impl Judge {
    /// After the healthy minutes: `watched` are the dashboards and the paired servers that each watches.
    pub fn check_alarms(&mut self, world: &World, pool: &Pool, watched: &[(usize, usize)]) {
        for (name, _, game) in PAIRED {
            let Some(server) = self.server(name) else { continue };
            let (rows, pushes) = read(pool, &server);
            let counted: i64 = rows.iter().map(|row| row.count).sum();
            // A start may hear once more of an alarm whose value it does not know, and a deleted server knows none.
            let is_sure = world.lives.get() == 1 && self.deleted.is_empty();
            if is_sure && counted > self.oracle.rises[game] + pushes {
                let rises = self.oracle.rises[game];
                self.broken("none-invented", format!("{name} counts {counted}: {rises} rises, {pushes} pushes"));
            }
            let watchers = watched.iter().filter(|(_, paired)| PAIRED[*paired].0 == name);
            let watchers: Vec<usize> = watchers.map(|(dashboard, _)| *dashboard).collect();
            self.check_healthy_alarm(name, &rows, &watchers);
        }
    }

    fn check_healthy_alarm(&mut self, name: &str, rows: &[Row], watchers: &[usize]) {
        let Some(fired) = self.oracle.fired_at.map(|at| at.naive_utc()) else { return };
        let is_near = |row: &&Row| (row.first_at - fired).abs() < TimeDelta::seconds(5);
        let wall = WALL_ALARM.to_string();
        let of_wall: Vec<&Row> = rows.iter().filter(|row| row.alarm_id == wall).filter(is_near).collect();
        let [row] = of_wall[..] else {
            let all: Vec<String> = rows.iter().filter(is_near).map(|row| format!("{row:?}")).collect();
            return self.broken("each-alarm-counted", format!("{name}: one alarm made {all:?}"));
        };
        if row.count != 2 {
            self.broken("each-alarm-counted", format!("{name}: two triggers, {row:?}"));
        }
        let second = fired + TimeDelta::milliseconds((SECOND_HEALTHY_ALARM - FIRST_HEALTHY_ALARM) as i64);
        if (row.last_at - second).abs() > TimeDelta::seconds(5) {
            self.broken("each-alarm-counted", format!("{name}: the second trigger came at {second}, {row:?}"));
        }
        if row.ended_at != Some(row.last_at + QUIET) {
            self.broken("incidents-end", format!("{name}: {row:?}"));
        }
        if !watchers.is_empty() && row.state == "unheard" {
            self.broken("delivered-is-true", format!("{name}: {watchers:?} watch, {row:?}"));
        }
        if watchers.is_empty() && row.state == "delivered" {
            self.broken("delivered-is-true", format!("{name}: nobody watches, {row:?}"));
        }
        for dashboard in watchers {
            let first = FIRST_HEALTHY_ALARM + TOLD_WITHIN;
            if !self.oracle.was_told(*dashboard, &row.id, |told| !told.update && told.at <= first) {
                self.broken("told-in-time", format!("dashboard {dashboard} of {name}: {row:?}"));
            }
            let second = SECOND_HEALTHY_ALARM + UPDATED_WITHIN;
            if !self.oracle.was_told(*dashboard, &row.id, |told| told.update && told.count == 2 && told.at <= second) {
                self.broken("updated-in-time", format!("dashboard {dashboard} of {name}: {row:?}"));
            }
        }
        let base = BASE_ALARM.to_string();
        if let Some(unseen) = self.oracle.unseen_at.map(|at| at.naive_utc()) {
            let is_it = |row: &&Row| (row.first_at - unseen).abs() < TimeDelta::seconds(60) && row.alarm_id == base;
            let counted: i64 = rows.iter().filter(is_it).map(|row| row.count).sum();
            // The last alarm comes within the quiet time of the one that rose unseen. A player who paired twice has each
            // push twice.
            if counted < 2 {
                self.broken("unseen-is-counted", format!("{name}: what rose while no link was up counts {counted}"));
            }
        }
        let last = rows.iter().filter(|row| row.alarm_id == base).max_by_key(|row| row.first_at);
        if let Some(last) = last.filter(|last| last.state == "unheard" && !watchers.is_empty()) {
            self.broken("delivered-is-true", format!("{name}: {watchers:?} watch, {last:?}"));
        }
    }
}

/// The incidents of a server, drills aside, and how many pushes it had.
fn read(pool: &Pool, server: &ServerId) -> (Vec<Row>, i64) {
    let read = pool.read_blocking(|db| {
        let columns = (
            incidents::id,
            incidents::alarm_id,
            incidents::first_at,
            incidents::last_at,
            incidents::ended_at,
            incidents::count,
            incidents::state,
        );
        let of_server = incidents::table.filter(incidents::server_id.eq(server.as_str()));
        let rows = of_server.filter(incidents::drill.eq(false)).select(columns).load(db)?;
        let pushes = alarms::table.filter(alarms::server_id.eq(server.as_str())).filter(alarms::path.eq("push"));
        Ok((rows, pushes.count().get_result(db)?))
    });
    read.expect("the ledger can be read")
}
