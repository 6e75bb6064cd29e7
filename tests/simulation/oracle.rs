//! The oracle of alarms: what the game fired in the healthy minutes against what was announced, counted and ended. The other
//! minutes have faults that may delay and repeat; there only what was never fired may not be announced.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use companion::{
    db::{
        engine::pool::Pool,
        schema::{alarms, incidents},
    },
    domain::{ids::ServerId, raid::SHOWN, time::Timestamp},
    simulator::world::{BASE_ALARM, SimulatedDevice, SimulatedWorld, WALL_ALARM},
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;

use crate::{
    dashboard::Dashboard,
    healthy::{BASE_NAME, WALL_NAME, slow_title},
    judge::Judge,
    script::{FIRST_HEALTHY_ALARM, ROOF_ON, SECOND_HEALTHY_ALARM, SLOW_PUSH},
    world::{GAMES, PAIRED, ROOF_ALARM, SHED_ALARM, World, world},
};

/// Virtual milliseconds within which a dashboard hears of an alarm when nothing is wrong.
const ANNOUNCED_WITHIN: u64 = 2_000;
/// Its update may have to wait for so long after the message before.
const UPDATES_APART: u64 = 10_000;
/// Quiet time after which an incident ends.
const QUIET: TimeDelta = TimeDelta::seconds(90);

/// A message about an incident, as a dashboard received it.
struct Announced {
    at: u64,
    update: bool,
    count: u64,
    /// The life that sent it had not ended.
    in_its_life: bool,
}

#[derive(Default)]
pub struct AlarmOracle {
    /// By game and alarm: when it went on.
    rises_at: BTreeMap<(usize, u64), Vec<u64>>,
    /// When lives of the service ended.
    deaths: Vec<u64>,
    /// When the alarm of the healthy minutes went on, by the clock of the service.
    pub fired_at: Option<Timestamp>,
    /// When the one went on that no link saw.
    unseen_at: Option<Timestamp>,
    /// When the one went on while there was no process.
    missed_at: Option<Timestamp>,
    /// By dashboard and incident.
    announced: BTreeMap<(usize, String), Vec<Announced>>,
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
        let oracle = &mut world.judge.borrow_mut().oracle;
        for alarm in on(simulated).into_iter().filter(|alarm| !before.contains(alarm)) {
            oracle.rises_at.entry((game, alarm)).or_default().push(world.millis());
        }
        changed
    })
}

/// Changes the worlds of all game servers.
pub fn change_all(change_one: fn(&mut SimulatedWorld)) {
    (0..GAMES.len()).for_each(|game| change(game, change_one));
}

impl AlarmOracle {
    /// The alarm of the healthy minutes goes on.
    pub fn fire(&mut self, now: Timestamp) {
        self.fired_at = Some(now);
    }

    /// An alarm goes on while no link is up.
    pub fn fire_unseen(&mut self, now: Timestamp) {
        self.unseen_at = Some(now);
    }

    /// An alarm goes on while there is no process.
    pub fn miss(&mut self, now: Timestamp) {
        self.missed_at = Some(now);
    }

    /// A dashboard received a message about an incident.
    pub fn hear(&mut self, dashboard: &Dashboard, message: &Value) {
        let Some(incident) = message["incident"].as_str() else { return };
        let (update, count) = (message["update"] == true, message["count"].as_u64().unwrap_or_default());
        let in_its_life = dashboard.open_wire().is_some_and(|wire| wire.is_open());
        let announced = Announced { at: world().millis(), update, count, in_its_life };
        self.announced.entry((dashboard.number, incident.to_owned())).or_default().push(announced);
    }

    /// The number of times that an alarm of this game went on.
    fn rises(&self, game: usize) -> i64 {
        self.rises_at.range((game, 0)..=(game, u64::MAX)).map(|(_, times)| times.len() as i64).sum()
    }

    /// A life of the service has ended.
    pub fn end_life(&mut self) {
        self.deaths.push(world().millis());
    }

    /// No life ended within this number of milliseconds after this time.
    fn is_calm(&self, at: u64, within: u64) -> bool {
        !self.deaths.iter().any(|death| (at..at + within).contains(death))
    }

    /// Incidents, and the highest count that a dashboard was shown of each, unless a life ended within this number of
    /// milliseconds.
    pub fn counts_shown(&self, within: u64) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for ((_, incident), shown) in &self.announced {
            let is_due = |shown: &&Announced| {
                shown.in_its_life && self.is_calm(shown.at, within) && shown.at + within <= world().millis()
            };
            let highest = shown.iter().filter(is_due).map(|shown| shown.count as i64).max();
            if let Some(highest) = highest {
                let known = counts.entry(incident.clone()).or_insert(highest);
                *known = highest.max(*known);
            }
        }
        counts
    }

    fn was_announced(&self, dashboard: usize, incident: &str, holds: impl Fn(&Announced) -> bool) -> bool {
        self.announced.get(&(dashboard, incident.to_owned())).is_some_and(|shown| shown.iter().any(holds))
    }
}

/// An incident as the ledger has it.
#[derive(Debug, diesel::Queryable)]
struct Row {
    id: String,
    alarm_id: String,
    first_at: Timestamp,
    last_at: Timestamp,
    ended_at: Option<Timestamp>,
    count: i64,
    state: String,
    sockets: i64,
    late: bool,
    title: Option<String>,
}

impl Row {
    fn is_near(&self, at: Timestamp) -> bool {
        (self.first_at - at).abs() < TimeDelta::seconds(5)
    }
}

/// Server, id, count, end and state of a raid.
pub type ShownRaid = (String, String, i64, Option<Timestamp>, String);

/// The raids of all servers.
pub fn raids(pool: &Pool) -> Vec<ShownRaid> {
    let read = pool.read_blocking(|db| {
        let raids = incidents::table.filter(incidents::drill.eq(false));
        let columns = (incidents::server_id, incidents::id, incidents::count, incidents::ended_at, incidents::state);
        Ok(raids.select(columns).load(db)?)
    });
    read.expect("the ledger can be read")
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
            let rises = self.oracle.rises(game);
            if is_sure && counted > rises + pushes {
                self.broken("none-invented", format!("{name} counts {counted}: {rises} rises, {pushes} pushes"));
            }
            self.check_none_twice(name, game, &rows);
            let watchers = watched.iter().filter(|(_, paired)| PAIRED[*paired].0 == name);
            let watchers: Vec<usize> = watchers.map(|(dashboard, _)| *dashboard).collect();
            self.check_one_at_a_time(name, &rows, pool);
            self.check_healthy_alarm(name, &rows, &watchers);
            self.check_slow_push(name, &rows, &watchers);
            self.check_missed(name, &rows, &watchers);
            self.check_roof(name, &rows);
        }
    }

    /// An alarm of which nothing is pushed rings no more often than it went on, however often the process ended.
    fn check_none_twice(&mut self, name: &str, game: usize, rows: &[Row]) {
        for alarm in [ROOF_ALARM, SHED_ALARM] {
            let of_it: Vec<&Row> = rows.iter().filter(|row| row.alarm_id == alarm.to_string()).collect();
            let counted: i64 = of_it.iter().map(|row| row.count).sum();
            let rises = self.oracle.rises_at.get(&(game, alarm)).map(Vec::as_slice).unwrap_or_default();
            // A push may have been taken for its own.
            if of_it.iter().all(|row| row.title.is_none()) && counted > rises.len() as i64 {
                self.broken("none-twice", format!("{name}: {alarm} rises at {rises:?}: {of_it:?}"));
            }
        }
    }

    /// An alarm that goes off again within the quiet time goes on with its incident.
    fn check_one_at_a_time(&mut self, name: &str, rows: &[Row], pool: &Pool) {
        // Rows are labelled by the wall clock.
        if self.jumped {
            return;
        }
        // One that a push has opened may be the link's by its time alone.
        let opened = opened_by_link(pool);
        let is_device = |row: &&Row| !row.late && opened.contains(&row.id);
        let mut devices: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        rows.iter().filter(is_device).for_each(|row| devices.entry(&row.alarm_id).or_default().push(row));
        for of_device in devices.values_mut() {
            of_device.sort_by_key(|row| row.first_at);
            for pair in of_device.windows(2) {
                if pair[1].first_at - pair[0].last_at <= QUIET {
                    self.broken("one-at-a-time", format!("{name}: {:?}, then {:?}", pair[0], pair[1]));
                }
            }
        }
    }

    /// A push while the database is slow is not late.
    fn check_slow_push(&mut self, name: &str, rows: &[Row], watchers: &[usize]) {
        let title = slow_title(name);
        let is_it = |row: &&Row| row.alarm_id == format!("push:{title}") || row.title.as_ref() == Some(&title);
        let Some(row) = rows.iter().find(is_it) else {
            return self.broken("announced-in-time", format!("{title:?} has no incident"));
        };
        // A server that was paired before the clock was set back seems to have been paired after the push was sent.
        let is_clear = !self.set_back;
        for dashboard in watchers.iter().filter(|_| is_clear) {
            if !self.oracle.was_announced(*dashboard, &row.id, |shown| shown.at <= SLOW_PUSH + ANNOUNCED_WITHIN) {
                self.broken("announced-in-time", format!("dashboard {dashboard} of {name}: {row:?}"));
            }
        }
    }

    /// An alarm that went on while there was no process is heard of once there is one.
    fn check_missed(&mut self, name: &str, rows: &[Row], watchers: &[usize]) {
        let Some(missed) = self.oracle.missed_at else { return };
        let is_it = |row: &&Row| {
            let after = row.first_at - missed;
            row.alarm_id == SHED_ALARM.to_string() && after > -TimeDelta::seconds(1) && after < TimeDelta::seconds(25)
        };
        let all: Vec<&Row> = rows.iter().filter(is_it).collect();
        let is_heard = |row: &Row| watchers.is_empty() || row.state != "unheard";
        // Nothing of it is pushed, but a push just before may be taken for its own, and has rung.
        let of_shed = || rows.iter().filter(|row| row.alarm_id == SHED_ALARM.to_string());
        let goes_on = |row: &Row| row.first_at < missed && row.ended_at.is_none_or(|end| end > missed);
        if of_shed().any(|row| row.title.is_some() && goes_on(row) && is_heard(row)) {
            return;
        }
        let is_right = |row: &Row| row.count == 1 && is_heard(row);
        if !self.is_the_one(&all, is_right) {
            let of_shed: Vec<&Row> = of_shed().collect();
            self.broken("missed-is-counted", format!("{name}: what went on at {missed} is {all:?} of {of_shed:?}"));
        }
    }

    /// True if these are one, which is right. One from before the clock was set back may be as near.
    fn is_the_one(&self, near: &[&Row], is_right: impl Fn(&Row) -> bool) -> bool {
        match near {
            [row] => is_right(row),
            _ => self.set_back && near.iter().any(|row| is_right(row)),
        }
    }

    /// An alarm that stays on rings once, also if the process ends meanwhile.
    fn check_roof(&mut self, name: &str, rows: &[Row]) {
        let Some(rung) = self.oracle.fired_at else { return };
        let rung = rung + TimeDelta::milliseconds((ROOF_ON - FIRST_HEALTHY_ALARM) as i64);
        let is_it = |row: &&Row| {
            let after = row.first_at - rung;
            row.alarm_id == ROOF_ALARM.to_string() && after > -TimeDelta::seconds(1) && after < TimeDelta::seconds(30)
        };
        let all: Vec<&Row> = rows.iter().filter(is_it).collect();
        let is_mistaken = |row: &Row| row.alarm_id == ROOF_ALARM.to_string() && row.title.is_some();
        // A push may have been taken for its own, and so it goes on with that.
        if !self.is_the_one(&all, |row| row.count == 1) && !rows.iter().any(is_mistaken) {
            self.broken("each-alarm-counted", format!("{name}: what stays on rang as {all:?}"));
        }
    }

    /// The raids of a state are those of the ledger, and the ledger has it that they were heard of.
    pub fn check_raids(&mut self, whose: &str, server: &ServerId, shown: &Value, raids: &[ShownRaid]) {
        let shown = shown.as_object().into_iter().flatten().filter(|(_, raid)| raid["drill"] == false);
        let shown: BTreeMap<&str, &Value> = shown.map(|(id, raid)| (id.as_str(), raid)).collect();
        let of_server = raids.iter().filter(|(of, ..)| of == server.as_str());
        let of_server: BTreeMap<&str, &ShownRaid> = of_server.map(|raid| (raid.1.as_str(), raid)).collect();
        let (open, ended): (Vec<&str>, Vec<&str>) = of_server.keys().partition(|id| of_server[**id].3.is_none());
        let stored: BTreeSet<&str> = ended.into_iter().rev().take(SHOWN).chain(open).collect();
        let ids: BTreeSet<&str> = shown.keys().copied().collect();
        if ids != stored {
            self.broken("raids-are-shown", format!("{whose} has {ids:?}, {stored:?}"));
        }
        for (id, (.., count, ended_at, state)) in of_server.iter().filter(|(id, _)| shown.contains_key(**id)) {
            let raid = shown[id];
            if raid["count"] != *count || raid["endedAt"].is_null() != ended_at.is_none() {
                self.broken("raids-are-true", format!("{whose}: {raid} is stored as {count}, ended at {ended_at:?}"));
            }
            if state == "unheard" {
                self.broken("shown-is-heard", format!("{whose} has {id}, which the ledger has as unheard"));
            }
        }
    }

    fn check_healthy_alarm(&mut self, name: &str, rows: &[Row], watchers: &[usize]) {
        let Some(fired) = self.oracle.fired_at else { return };
        // Two alarms at once, of which one was pushed: its title may be taken for that of the other, and stays with it.
        let titles = [(WALL_ALARM, BASE_NAME), (BASE_ALARM, WALL_NAME)].map(|(id, title)| (id.to_string(), title));
        let is_mistaken =
            |row: &Row| titles.contains(&(row.alarm_id.clone(), row.title.as_deref().unwrap_or_default()));
        if rows.iter().any(is_mistaken) {
            return;
        }
        let is_near = |row: &&Row| row.is_near(fired);
        let wall = WALL_ALARM.to_string();
        let of_wall: Vec<&Row> = rows.iter().filter(|row| row.alarm_id == wall).filter(is_near).collect();
        let [row] = of_wall[..] else {
            // One from before the clock was set back may be as near.
            if self.set_back && of_wall.iter().any(|row| row.count == 2) {
                return;
            }
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
        if usize::try_from(row.sockets) != Ok(watchers.len()) {
            self.broken("sockets-are-counted", format!("{name}: {watchers:?} watch, {row:?}"));
        }
        if watchers.is_empty() && row.state == "delivered" {
            self.broken("delivered-is-true", format!("{name}: no one watches, {row:?}"));
        }
        for dashboard in watchers {
            let first = FIRST_HEALTHY_ALARM + ANNOUNCED_WITHIN;
            if !self.oracle.was_announced(*dashboard, &row.id, |shown| !shown.update && shown.at <= first) {
                self.broken("announced-in-time", format!("dashboard {dashboard} of {name}: {row:?}"));
            }
            let second = SECOND_HEALTHY_ALARM.max(FIRST_HEALTHY_ALARM + UPDATES_APART) + ANNOUNCED_WITHIN;
            if !self
                .oracle
                .was_announced(*dashboard, &row.id, |shown| shown.update && shown.count == 2 && shown.at <= second)
            {
                self.broken("updated-in-time", format!("dashboard {dashboard} of {name}: {row:?}"));
            }
        }
        let base = BASE_ALARM.to_string();
        if let Some(unseen) = self.oracle.unseen_at {
            // After a jump of the clock a push that comes again may have begun it.
            let goes_on = |row: &Row| self.jumped && (row.first_at..row.last_at).contains(&unseen);
            let is_near = |row: &&Row| (row.first_at - unseen).abs() < TimeDelta::seconds(60) || goes_on(row);
            let is_it = |row: &&Row| row.alarm_id == base || row.alarm_id == format!("push:{BASE_NAME}");
            let counted: i64 = rows.iter().filter(is_near).filter(is_it).map(|row| row.count).sum();
            // The last alarm comes within the quiet time of the one that rose unseen, and whether it was pushed or seen
            // first, or both, it is one, unless other pushes are taken for its own. Bob is pushed that of a game server,
            // too, that he has not paired.
            let is_other =
                |row: &Row| row.alarm_id == base && row.title.as_ref().is_some_and(|title| title != BASE_NAME);
            let may_be_more = self.jumped
                || rows.iter().any(is_other)
                || PAIRED.iter().any(|(paired, owner, _)| *paired == name && *owner != 0);
            if counted < 2 || (counted > 2 && !may_be_more) {
                let of_base: Vec<&Row> = rows.iter().filter(is_it).collect();
                self.broken(
                    "unseen-is-counted",
                    format!("{name}: what rose at {unseen} counts {counted} in {of_base:?}"),
                );
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
            incidents::sockets,
            incidents::late,
            incidents::title,
        );
        let of_server = incidents::table.filter(incidents::server_id.eq(server.as_str()));
        let rows = of_server.filter(incidents::drill.eq(false)).select(columns).load(db)?;
        let pushes = alarms::table.filter(alarms::server_id.eq(server.as_str())).filter(alarms::path.eq("push"));
        Ok((rows, pushes.count().get_result(db)?))
    });
    read.expect("the ledger can be read")
}

/// Incidents that an alarm on the link has opened.
fn opened_by_link(pool: &Pool) -> BTreeSet<String> {
    let read = pool.read_blocking(|db| {
        let opened = alarms::table.filter(alarms::path.eq("link")).filter(alarms::state.eq("opened"));
        Ok(opened.select(alarms::incident).load::<Option<String>>(db)?)
    });
    read.expect("the ledger can be read").into_iter().flatten().collect()
}
