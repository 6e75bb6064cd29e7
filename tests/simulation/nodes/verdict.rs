//! Promises of several nodes, checked as it happens and at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    rc::Rc,
};

use companion::{
    db::{
        engine::pool::Pool,
        schema::{alarms, held_parts, incidents, paired_servers, smart_devices, timeline},
    },
    domain::{
        ids::{GameServerId, NodeId, PartId},
        time::Timestamp,
    },
    simulator::world::TEAM,
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;

use super::{HANDED_OVER_GAME, MATE, Nodes, script::LAST_ALARM, watcher::Watcher};
use crate::world::{GAMES, PAIRED, PANIC, PHONES, ROOF_ALARM, SHED_ALARM, world};

/// Facts of game servers that only the node with their links writes, by its part, and the node of each part with its number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnedFacts {
    facts: BTreeMap<PartId, String>,
    pub holders: BTreeMap<PartId, (NodeId, i64)>,
}

impl OwnedFacts {
    pub fn read(pool: &Pool) -> Self {
        type Servers = Vec<(String, String, i32, Option<Timestamp>)>;
        type Devices = Vec<(String, String, Option<bool>)>;
        let read = pool.read_blocking(|db| {
            let columns =
                (paired_servers::id, paired_servers::address, paired_servers::port, paired_servers::link_alive_at);
            let servers: Servers = paired_servers::table.order(paired_servers::id).select(columns).load(db)?;
            let columns = (smart_devices::server_id, smart_devices::device_id, smart_devices::last_value);
            let in_order = (smart_devices::server_id, smart_devices::device_id);
            let devices: Devices = smart_devices::table.order(in_order).select(columns).load(db)?;
            let columns = (held_parts::part, held_parts::node, held_parts::number);
            let held: Vec<(String, String, i64)> = held_parts::table.select(columns).load(db)?;
            Ok((servers, devices, held))
        });
        let (servers, devices, held) = read.expect("the database can be read");
        let mut facts = BTreeMap::<PartId, String>::new();
        for (server, address, port, alive_at) in servers {
            let part = PartId::links(&GameServerId::at(&address, port as u16));
            let values: Vec<_> = devices.iter().filter(|(of, ..)| *of == server).map(|(_, id, on)| (id, on)).collect();
            *facts.entry(part).or_default() += &format!("{server} was up at {alive_at:?}, {values:?}; ");
        }
        let holders = held.into_iter().map(|(part, node, number)| (part.into(), (node.into(), number)));
        Self { facts, holders: holders.collect() }
    }
}

#[derive(Default)]
pub struct Verdict {
    /// By server, epoch and seq: the hash of the document.
    documents: BTreeMap<(String, u64, u64), u64>,
    /// By client and socket: incidents that were announced as new.
    announced: BTreeSet<((usize, u32), String)>,
    /// Clients and servers whose last alarm arrived.
    last_alarms: BTreeSet<(usize, String)>,
    /// Titles of what was pushed.
    pub pushed: Vec<String>,
    pub owned: OwnedFacts,
    /// Nodes and numbers of parts, when nothing is to move any longer.
    pub settled: Option<BTreeMap<PartId, (NodeId, i64)>>,
    /// When the mate left the game.
    pub mate_left_at: Option<Timestamp>,
}

impl Verdict {
    pub fn broken(&self, invariant: &'static str, details: String) {
        world().judge.borrow_mut().broken(invariant, details);
    }

    /// Every client, at whichever node, has the same document at the same position.
    pub fn compare(&mut self, server: &str, (epoch, seq): (u64, u64), state: &Value) {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let hash = hasher.finish();
        if *self.documents.entry((server.to_owned(), epoch, seq)).or_insert(hash) != hash {
            self.broken("equal-state", format!("{server} at {epoch}/{seq}: {state}"));
        }
    }

    /// A socket was sent a message about an incident.
    pub fn hear_of_raid(&mut self, socket: (usize, u32), server: &str, incident: &str, is_new: bool) {
        if world().millis() >= LAST_ALARM {
            self.last_alarms.insert((socket.0, server.to_owned()));
        }
        if is_new && !self.announced.insert((socket, incident.to_owned())) {
            self.broken("announced-once", format!("{incident} as new, twice, to socket {socket:?}"));
        }
    }

    /// A node, of this process, has just made a change: no fact of a part that it has not.
    pub fn check_write(&mut self, pool: &Pool, process: &str) {
        let now = OwnedFacts::read(pool);
        for (part, fact) in &now.facts {
            let holder = now.holders.get(part);
            if self.owned.facts.get(part) != Some(fact) && holder.is_none_or(|(node, _)| node.process() != process) {
                let before = self.owned.facts.get(part);
                self.broken("fenced", format!("{process} writes for {part} of {holder:?}: {fact}, before {before:?}"));
            }
        }
        self.owned = now;
    }

    /// When nothing has moved for a while, each part has a node; it is the same until the end.
    pub fn check_settled(&mut self, pool: &Pool) {
        let now = OwnedFacts::read(pool).holders;
        let free = now.iter().find(|(_, (node, _))| node.as_str().is_empty());
        if let Some((part, _)) = free {
            self.broken("each-part-has-a-node", format!("{part} has none"));
        }
        match self.settled.replace(now.clone()) {
            Some(before) if before != now => {
                self.broken("parts-stay", format!("{now:?}, before {before:?}"));
            }
            _ => {}
        }
    }

    /// The end.
    pub fn end(&mut self, nodes: &Nodes, watchers: &[Rc<Watcher>]) {
        if let Some(panic) = PANIC.lock().expect("nothing panics within").take() {
            self.broken("nothing-panics", panic);
        }
        self.check_settled(&nodes.pool);
        for (paired, (name, ..)) in PAIRED.into_iter().enumerate() {
            let watching = watchers.iter().filter(|watcher| watcher.watches.contains(&paired));
            let watching: Vec<_> = watching.collect();
            let mut first: Option<(u64, u64, Value)> = None;
            for watcher in &watching {
                let label = watcher.label(paired);
                let Some(known) = watcher.state_of(nodes, paired).filter(|_| watcher.open_socket().is_some()) else {
                    self.broken("all-watch", format!("{label} has no state"));
                    continue;
                };
                if known.state["server"]["connection"] != "connected" {
                    self.broken("links-heal", format!("{label}: {}", known.state["server"]));
                }
                let is_heard = nodes.server(paired).is_some_and(|id| self.last_alarms.contains(&(watcher.number, id)));
                if !is_heard {
                    self.broken("last-alarm", format!("{label} did not receive it"));
                }
                let state = (known.epoch, known.seq, known.state);
                let other = first.get_or_insert_with(|| state.clone());
                if *other != state {
                    let (at, other_at) = ((state.0, state.1), (other.0, other.1));
                    let keys = state.2.as_object().into_iter().flatten().map(|(key, _)| key);
                    let keys: Vec<_> = keys.filter(|key| state.2[*key] != other.2[*key]).collect();
                    self.broken("watchers-are-equal", format!("{label}: {at:?}, {other_at:?}: {keys:?} differ"));
                }
            }
            self.check_alarms(nodes, paired, name);
        }
        self.check_ledger(&nodes.pool);
        self.check_handed_over(nodes);
    }

    /// The alarms of the time when all is well: of the one that went on twice while its server passed on, and of the last.
    fn check_alarms(&self, nodes: &Nodes, paired: usize, name: &str) {
        let Some(server) = nodes.server(paired) else { return };
        for (alarm, count) in [(SHED_ALARM, 2), (ROOF_ALARM, 1)] {
            let read = nodes.pool.read_blocking(|db| {
                let of_it = incidents::table.filter(incidents::server_id.eq(server.as_str()));
                let of_it = of_it.filter(incidents::alarm_id.eq(alarm.to_string()));
                Ok(of_it.select((incidents::id, incidents::count)).load::<(String, i64)>(db)?)
            });
            let incidents = read.expect("the ledger can be read");
            if incidents.iter().map(|(_, count)| *count).collect::<Vec<_>>() != [count] {
                self.broken("one-incident", format!("{name}: {alarm} rang {count} times, as {incidents:?}"));
            }
        }
    }

    /// Each push is in the ledger once, and in one incident.
    fn check_ledger(&self, pool: &Pool) {
        type Row = (String, String, Option<String>, Option<Timestamp>);
        let read = pool.read_blocking(|db| {
            let columns = (alarms::path, alarms::title, alarms::incident, alarms::finished_at);
            let rows: Vec<Row> = alarms::table.order(alarms::id).select(columns).load(db)?;
            let stored: Vec<(String, String, String)> =
                incidents::table.select((incidents::id, incidents::server_id, incidents::alarm_id)).load(db)?;
            Ok((rows, stored))
        });
        let (rows, stored) = read.expect("the ledger can be read");
        let ids: BTreeSet<&str> = stored.iter().map(|(id, ..)| id.as_str()).collect();
        // A drill ends with the node that began it.
        for row in rows.iter().filter(|row| row.0 != "drill") {
            if row.3.is_none() {
                self.broken("rows-end", format!("{row:?}"));
            } else if row.2.as_ref().is_some_and(|incident| !ids.contains(incident.as_str())) {
                self.broken("incident-has-row", format!("{row:?}"));
            }
        }
        for title in &self.pushed {
            let of_it: Vec<&Row> = rows.iter().filter(|row| row.0 == "push" && row.1 == *title).collect();
            if of_it.len() != 1 || of_it.iter().any(|row| row.2.is_none()) {
                self.broken("each-push-once", format!("{title:?}: {of_it:?}"));
            }
            let alarm = format!("push:{title}");
            let incidents: Vec<_> = stored.iter().filter(|(.., of)| *of == alarm).collect();
            if incidents.len() > 1 {
                self.broken("one-incident", format!("{title:?}: {incidents:?}"));
            }
        }
        let waiting: usize = PHONES.iter().map(|(phone, _)| world().pushes.unacknowledged(*phone)).sum();
        if waiting > 0 {
            self.broken("pushes-arrive", format!("{waiting} pushes are not acknowledged"));
        }
    }

    /// A server passes on with all that is known of it: the mate who came while no link was up has come once, and nothing
    /// that was known before is news.
    fn check_handed_over(&self, nodes: &Nodes) {
        type Event = (Option<String>, Option<String>, String, String);
        let Some(since) = self.mate_left_at else { return };
        let read = nodes.pool.read_blocking(|db| {
            let columns = (timeline::server_id, timeline::game_server_id, timeline::kind, timeline::title);
            let events =
                timeline::table.filter(timeline::kind.eq_any(vec!["login", "wipe"])).filter(timeline::ts.ge(since));
            Ok(events.select(columns).load::<Event>(db)?)
        });
        let events = read.expect("the timeline can be read");
        let game_server = GameServerId::at(GAMES[HANDED_OVER_GAME].0, GAMES[HANDED_OVER_GAME].1);
        let is_mate = |event: &Event| event.2 == "login" && event.3.starts_with(TEAM[MATE].1);
        for (paired, (name, _, game)) in PAIRED.into_iter().enumerate() {
            let Some(server) = nodes.server(paired).filter(|_| game == HANDED_OVER_GAME) else { continue };
            let is_of_it =
                |event: &&Event| event.0.as_ref() == Some(&server) || event.1.as_deref() == Some(game_server.as_str());
            let came = events.iter().filter(is_of_it).filter(|event| is_mate(event)).count();
            if came != 1 {
                self.broken("nothing-is-forgotten", format!("{name}: the mate has come {came} times: {events:?}"));
            }
        }
        if let Some(event) = events.iter().find(|event| !is_mate(event)) {
            self.broken("nothing-is-repeated", format!("{event:?}"));
        }
    }
}
