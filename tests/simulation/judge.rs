//! Promises that must hold, checked as it happens and at the end. A broken promise is named by its invariant and said once.
//!
//! To add an invariant: a name, the place where it is seen, and `self.broken("name", details)`.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    rc::Rc,
};

use companion::{
    db::{
        engine::pool::Pool,
        schema::{alarms, incidents, timeline},
    },
    domain::{ids::ServerId, time::Timestamp},
};
use diesel::{ExpressionMethods as _, QueryDsl as _, RunQueryDsl as _};
use serde_json::Value;
use tokio::time::{Duration, Instant};

use crate::{
    chat_lines::ChatLines,
    dashboard::{Dashboard, Known},
    gaps::Gaps,
    guests::Guests,
    oracle::{self, AlarmOracle},
    records::Records,
    script::{LAST_ALARM, REPLAY_FROM, SHED_ON},
    wire::{Wire, WireKind},
    wishes::Wishes,
    world::{self, PAIRED, World, world},
    writes::Writes,
};

/// Known faults: the invariant, the seed that breaks it, and why.
pub const KNOWN: [(&str, u64, &str); 0] = [];

/// Data frames in any ten seconds on one socket.
const FRAMES: usize = 60;
/// A deleted server may be received of for so long: a second, and the longest lag.
const GONE_WITHIN: Duration = Duration::from_secs(6);
/// A signed-out socket may receive for so long.
const REVOKED_WITHIN: Duration = Duration::from_secs(1);
/// Close code of a socket whose queue is full.
const TOO_SLOW: u16 = 4408;
/// Connections of one address that a game server allows.
const CONNECTIONS_PER_ADDRESS: usize = 5;

#[derive(Default)]
pub struct Judge {
    /// By name of the paired server, its id of now.
    servers: BTreeMap<String, ServerId>,
    broken: BTreeMap<&'static str, String>,
    /// By server, epoch and seq: the hash of the document.
    documents: BTreeMap<(String, u64, u64), u64>,
    /// Announcements (not updates) by dashboard and incident.
    announced: BTreeMap<(usize, String), u32>,
    /// Incidents that some dashboard received, with the id of their server.
    pub seen: BTreeMap<String, String>,
    pub oracle: AlarmOracle,
    pub wishes: Wishes,
    pub guests: Guests,
    pub records: Records,
    pub gaps: Gaps,
    pub chat_lines: ChatLines,
    pub writes: Writes,
    /// Servers whose alarms are said in the team's chat.
    pub announcing: BTreeSet<ServerId>,
    /// Lines that the journal did not keep: what is in them may be lost with the process.
    pub unsaved_alarms: Vec<String>,
    /// Titles of pushes of our own, with user and game server.
    pub pushed: BTreeMap<String, (usize, usize)>,
    /// Paired servers that were deleted, and their alarms with them.
    pub deleted: BTreeSet<usize>,
    /// Dashboards and servers whose last alarm arrived.
    last_alarms: BTreeSet<(usize, String)>,
    /// Servers whose deletion was acknowledged, and when.
    gone: BTreeMap<String, Instant>,
    /// The wall clock was set, and it was set back.
    pub jumped: bool,
    pub set_back: bool,
    /// The disk was full or very slow.
    pub bad_disk: bool,
    /// A socket was closed or cut, the service died, or a wire lost something.
    pub lossy: bool,
}

impl Judge {
    pub fn broken(&mut self, invariant: &'static str, details: String) {
        let at = world().millis();
        self.broken.entry(invariant).or_insert_with(|| {
            let details: String = details.chars().take(400).collect();
            format!("at {:.3} s: {details}", at as f64 / 1_000.0)
        });
    }

    /// Invariant and details.
    pub fn verdict(&self) -> &BTreeMap<&'static str, String> {
        &self.broken
    }

    pub fn name_server(&mut self, name: &str, id: ServerId) {
        self.servers.insert(name.to_owned(), id);
    }

    pub fn server(&self, name: &str) -> Option<ServerId> {
        self.servers.get(name).cloned()
    }

    /// The paired server that has this id now.
    pub fn paired(&self, server: &str) -> Option<usize> {
        PAIRED.iter().position(|(name, ..)| self.servers.get(*name).is_some_and(|id| id.as_str() == server))
    }

    /// A deletion was acknowledged.
    pub fn server_gone(&mut self, id: &ServerId) {
        self.gone.insert(id.to_string(), Instant::now());
    }

    pub fn see_connections(&mut self, game: usize, connections: usize) {
        if connections > CONNECTIONS_PER_ADDRESS {
            self.broken("five-connections", format!("{connections} connections to game server {game}"));
        }
    }

    /// A dashboard received a message.
    pub fn receive(&mut self, dashboard: &Dashboard, message: &Value) {
        let number = dashboard.number;
        let server = message["serverId"].as_str().unwrap_or_default().to_owned();
        let gone = self.gone.get(&server).is_some_and(|gone| gone.elapsed() > GONE_WITHIN);
        let exact = dashboard.wire.borrow().as_ref().is_some_and(|(wire, _)| !wire.was_stalled.get());
        if gone && exact && message["type"] != "error" {
            self.broken("deleted", format!("dashboard {number} still receives: {message}"));
        }
        if let Some(overlay) = &dashboard.overlay {
            self.check_overlay(dashboard, overlay, message);
        }
        self.check_may_watch(dashboard, &server, message);
        self.check_gaps_heard(dashboard, &server);
        self.check_dropped_lines(dashboard, &server, message);
        let (epoch, seq) = (message["epoch"].as_u64(), message["seq"].as_u64());
        let mut known = dashboard.known.borrow_mut();
        match (message["type"].as_str(), epoch, seq) {
            (Some("snapshot"), Some(epoch), Some(seq)) => {
                let state = message["state"].clone();
                self.compare(&server, epoch, seq, &state);
                self.see_link(dashboard, &server, &state, false);
                self.check_team(dashboard, &server, &state);
                known.insert(server, Known { epoch, seq, state, changed: Instant::now() });
            }
            (Some("patch"), Some(epoch), Some(seq)) => {
                let Some(before) = known.get_mut(&server) else {
                    return self.broken("patches-follow", format!("dashboard {number}: a patch before a snapshot"));
                };
                if before.epoch != epoch || Some(before.seq) != message["base"].as_u64() {
                    let (at, is) = (before.epoch, before.seq);
                    return self.broken(
                        "patches-follow",
                        format!("dashboard {number} is at {at}/{is}, the patch on {}/{}", epoch, message["base"]),
                    );
                }
                let patch: json_patch::Patch = serde_json::from_value(message["patch"].clone()).expect("a patch");
                if let Err(error) = json_patch::patch(&mut before.state, &patch) {
                    return self.broken("patches-follow", format!("dashboard {number}: {error}"));
                }
                let follows = before.seq + 1 == seq;
                (before.seq, before.changed) = (seq, Instant::now());
                self.compare(&server, epoch, seq, &before.state);
                self.see_link(dashboard, &server, &before.state, follows);
                self.check_team(dashboard, &server, &before.state);
            }
            (Some("raid"), ..) => {
                self.oracle.hear(dashboard, message);
                self.check_is_wanted(dashboard, &server, message["incident"].as_str().unwrap_or_default());
                let incident = message["incident"].as_str().unwrap_or_default().to_owned();
                if message["drill"] != true {
                    self.seen.insert(incident.clone(), server.clone());
                }
                // If the clock was set back, a push may seem to have been sent after its server was paired again.
                let is_replay = !self.set_back && (REPLAY_FROM..SHED_ON).contains(&world().millis());
                if is_replay && message["update"] == false {
                    self.broken("resent-rings-nothing", format!("dashboard {number}: {message}"));
                }
                if world().millis() >= LAST_ALARM {
                    self.last_alarms.insert((number, server.clone()));
                }
                if message["update"] == false {
                    let count = self.announced.entry((number, incident)).or_default();
                    *count += 1;
                    if *count > 1 {
                        self.broken("announced-once", format!("dashboard {number}: {message}"));
                    }
                }
            }
            (Some("chat"), ..) => self.receive_line(dashboard, &server, &message["chat"]),
            (Some("event"), ..) => self.receive_event(number, &server, &message["event"]),
            (Some("ack"), ..) => self.receive_ack(dashboard, message["requestId"].as_str().unwrap_or_default()),
            (Some("error"), ..) if message["code"] == "malformed" => self.broken("understood", message.to_string()),
            _ => {}
        }
    }

    /// A dashboard's socket was closed with this code. Only one that does not read may be too slow.
    pub fn closed(&mut self, dashboard: &Dashboard, code: u16) {
        self.lossy = true;
        let reads = dashboard.wire.borrow().as_ref().is_some_and(|(wire, _)| !wire.was_stalled.get());
        if code == TOO_SLOW && reads {
            self.broken(
                "queues-are-bounded",
                format!("dashboard {} reads, and was closed as too slow", dashboard.number),
            );
        }
    }

    /// A dashboard's socket ended without a close frame while the service ended gracefully.
    pub fn no_goodbye(&mut self, dashboard: &Dashboard) {
        if dashboard.wire.borrow().as_ref().is_some_and(|(wire, _)| wire.lossless.get()) {
            self.broken("goodbye", format!("dashboard {} was cut off", dashboard.number));
        }
    }

    /// Every client has the same document at the same position.
    fn compare(&mut self, server: &str, epoch: u64, seq: u64, state: &Value) {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let hash = hasher.finish();
        let first = *self.documents.entry((server.to_owned(), epoch, seq)).or_insert(hash);
        if first != hash {
            self.broken("equal-state", format!("{server} at {epoch}/{seq}: {state}"));
        }
    }

    /// No ten seconds of a socket hold more than sixty data frames, counted where they are written.
    pub fn count_frames(&mut self, dashboard: usize, wire: &Wire) {
        if wire.was_stalled.get() {
            return;
        }
        let written_at = &wire.frames.borrow().written_at;
        if let Some(revoked) = wire.revoked_at.get()
            && written_at.last().is_some_and(|last| *last > revoked + REVOKED_WITHIN)
        {
            self.broken("revoked", format!("dashboard {dashboard} still receives after its session was signed out"));
        }
        for (last, first) in written_at.iter().skip(FRAMES).zip(written_at) {
            if last.duration_since(*first) < Duration::from_secs(10) {
                return self.broken("sixty-frames", format!("61 frames in ten seconds to dashboard {dashboard}"));
            }
        }
    }

    /// After the healthy minutes at the end.
    pub fn end(&mut self, world: &World, pool: &Pool, dashboards: &[Rc<Dashboard>], overlays: &[Rc<Dashboard>]) {
        if let Some(panic) = world::PANIC.lock().expect("nothing panics within").take() {
            self.broken("nothing-panics", panic);
        }
        self.check_kept(pool);
        self.check_incidents_kept(pool);
        self.check_ledger(world, pool);
        // Users of one team share a link, unless something was done as one of them lately.
        self.check_links(world, |links, paired| (1..=paired).contains(&links));
        let sockets = world.wires.borrow().iter().filter(|wire| wire.kind == WireKind::Relay && wire.is_open()).count();
        let clients = dashboards.len() + overlays.len();
        if sockets > clients {
            let details = format!("{sockets} sockets of {clients} clients");
            self.broken("dead-sockets-end", details);
        }
        for dashboard in dashboards.iter().chain(overlays) {
            if let Some((wire, _)) = &*dashboard.wire.borrow() {
                self.count_frames(dashboard.number, wire);
            }
        }
        let watches = |dashboard: &Rc<Dashboard>| {
            let number = dashboard.number;
            dashboard.watches.borrow().iter().map(move |paired| (number, *paired)).collect::<Vec<_>>()
        };
        let watched: Vec<_> = dashboards.iter().flat_map(watches).collect();
        // An alarm rings on overlays, too.
        let rings = |client: &&Rc<Dashboard>| client.overlay.as_ref().is_some_and(|overlay| overlay.sees("raids"));
        let ringing: Vec<_> = watched.iter().copied().chain(overlays.iter().filter(rings).flat_map(watches)).collect();
        self.check_alarms(world, pool, &ringing);
        self.check_wishes(world, pool);
        let gone: Vec<String> = self.gone.keys().cloned().collect();
        self.check_gone(pool, &gone);
        self.check_records(world, pool, &watched);
        self.check_gaps(world, pool);
        let said = self.check_commands(world, pool);
        self.check_team_alarms(world, pool, &said);
        self.check_channels(world, pool);
        self.check_mates(world, pool, dashboards);
        let raids = oracle::raids(pool);
        self.check_overlays(overlays, dashboards, &raids);
        for dashboard in dashboards {
            let (known, number) = (dashboard.known.borrow(), dashboard.number);
            for paired in dashboard.watches.borrow().iter() {
                let name = PAIRED[*paired].0;
                let Some(server) = self.server(name) else { continue };
                self.check_last_alarm(number, name, &server);
                if let Some(Known { state, .. }) = known.get(server.as_str()) {
                    self.check_raids(&format!("dashboard {number} of {name}"), &server, &state["raids"], &raids);
                }
                match known.get(server.as_str()) {
                    None => self.broken("all-watch", format!("dashboard {number} has no state of {name}")),
                    Some(Known { state, .. }) if state["server"]["connection"] != "connected" => {
                        self.broken("links-heal", format!("{name}: {}", state["server"]));
                    }
                    Some(Known { state, .. }) => {
                        self.check_end(world, *paired, state);
                        self.check_notes_shown(server.as_str(), state);
                        self.check_notes(world, pool, &server, state);
                    }
                }
            }
        }
    }

    /// The last alarm of this server reached this client.
    pub fn check_last_alarm(&mut self, number: usize, name: &str, server: &ServerId) {
        if !self.last_alarms.contains(&(number, server.to_string())) {
            self.broken("last-alarm", format!("dashboard {number} did not receive that of {name}"));
        }
    }

    /// Links of each game server, and how often it is paired.
    pub fn check_links(&mut self, world: &World, are_right: impl Fn(usize, usize) -> bool) {
        for (game, server) in world.games.iter().enumerate() {
            let (links, paired) = (server.connections(), PAIRED.iter().filter(|paired| paired.2 == game).count());
            if !are_right(links, paired) {
                let details = format!("{links} links to game server {game}, paired {paired} times");
                self.broken("one-link-per-server", details);
            }
        }
    }

    fn check_ledger(&mut self, world: &World, pool: &Pool) {
        type Row = (String, String, String, Option<String>, Option<Timestamp>);
        type IncidentRow = (String, String, i64, bool, String, i64);
        let (rows, stored): (Vec<Row>, Vec<IncidentRow>) = pool
            .read_blocking(|db| {
                let columns = (alarms::path, alarms::title, alarms::state, alarms::incident, alarms::finished_at);
                let rows = alarms::table.order(alarms::id).select(columns).load(db)?;
                let columns = (
                    incidents::id,
                    incidents::state,
                    incidents::sockets,
                    incidents::late,
                    incidents::alarm_id,
                    incidents::count,
                );
                Ok((rows, incidents::table.order(incidents::id).select(columns).load(db)?))
            })
            .expect("the ledger can be read");
        let of_ledger: BTreeMap<&str, &IncidentRow> = stored.iter().map(|row| (row.0.as_str(), row)).collect();
        let notes: Vec<String> = pool
            .read_blocking(|db| {
                Ok(timeline::table.filter(timeline::kind.eq("raid")).select(timeline::title).load(db)?)
            })
            .expect("the timeline can be read");
        let mut opened: BTreeMap<&str, u32> = BTreeMap::new();
        let announced: BTreeSet<String> = self.announced.keys().map(|(_, incident)| incident.clone()).collect();
        let mut dishonest = None;
        for (path, title, state, incident, finished) in &rows {
            let of_incident = incident.as_deref().and_then(|incident| of_ledger.get(incident));
            let sockets = of_incident.map(|row| row.2);
            if incident.is_some() && of_incident.is_none() {
                self.broken("incident-has-row", format!("{path} {title:?} is in {incident:?}"));
            }
            let received = incident.as_deref().is_some_and(|incident| announced.contains(incident));
            // A life that ends between delivery and count delivers again; a lossy wire takes what no one reads.
            if state == "opened" && world.lives.get() == 1 && !self.bad_disk {
                let (none, some) = (sockets == Some(0), sockets.is_some_and(|sockets| sockets > 0));
                if (none && received) || (some && !received && !self.lossy) {
                    dishonest = Some(format!("{path} {title:?}: {sockets:?} sockets, announced: {received}"));
                }
            }
            let what = format!("{path} {title:?} {state}");
            if finished.is_none() {
                self.broken("rows-end", what.clone());
            }
            match (state.as_str(), incident) {
                ("opened" | "merged", None) => self.broken("one-incident", what),
                ("opened", Some(incident)) => *opened.entry(incident).or_default() += 1,
                _ => {}
            }
        }
        if let Some(details) = dishonest {
            self.broken("sockets-are-honest", details);
        }
        for (id, .., alarm, count) in stored.iter().filter(|row| row.4.starts_with("push:")) {
            let of_it: Vec<&str> = rows
                .iter()
                .filter(|row| row.0 == "push" && row.3.as_ref() == Some(id))
                .map(|row| row.1.as_str())
                .collect();
            let pushes = of_it.len() as i64;
            // One that comes again while the ledger is not known may ring twice.
            let is_sure = world.lives.get() == 1 && !self.bad_disk;
            if *count < pushes || (is_sure && *count != pushes) {
                self.broken("each-push-counted", format!("{alarm:?} counts {count}: {of_it:?}"));
            }
        }
        if let Some((incident, times)) = opened.iter().find(|(_, times)| **times > 1) {
            self.broken("one-incident", format!("{incident} was opened {times} times"));
        }
        // Everything that was acknowledged is stored.
        let waiting: usize = crate::world::PHONES.iter().map(|(phone, _)| world.pushes.unacknowledged(*phone)).sum();
        if waiting > 0 {
            self.broken("pushes-arrive", format!("{waiting} pushes are not acknowledged"));
        }
        for (title, (user, game)) in self.pushed.clone() {
            // An alarm of a game server that its user never paired is taken for one of the user's others.
            let is_paired = PAIRED.iter().any(|(_, owner, of)| (*owner, *of) == (user, game));
            let may_have = |of: usize| of == game || !is_paired;
            let went_with_its_server = PAIRED
                .iter()
                .enumerate()
                .any(|(paired, (_, owner, of))| *owner == user && may_have(*of) && self.deleted.contains(&paired));
            if went_with_its_server {
                continue;
            }
            let stored = rows.iter().filter(|row| row.1 == title).count();
            let noted = notes.iter().filter(|note| **note == title).count();
            let is_late = title.starts_with("late");
            // A clock that was set back cannot know it.
            let is_fresh = |row: &Row| {
                let incident = row.3.as_deref().and_then(|incident| of_ledger.get(incident));
                row.1 == title && row.2 == "opened" && incident.is_some_and(|incident| !incident.3)
            };
            if is_paired && rows.iter().any(|row| row.1 == title && row.3.is_none()) {
                self.broken("pushes-have-incidents", format!("{title:?} is in none"));
            }
            if stored == 1 && !self.set_back && is_late && rows.iter().any(is_fresh) {
                self.broken("late-is-late", format!("{title:?} was sent long ago and rang"));
            }
            if stored != 1 {
                let details = format!("{title:?} has {stored} rows in the ledger, {noted} in the timeline");
                self.broken("acknowledged-is-stored", details);
            }
        }
    }
}
