//! One seed: three nodes and all of their neighbours, the faults and alarms of its script, and the judges in the end.

mod upgrade;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    env, fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use companion::{clock::Clock, simulator::push_service::PushService};
use diesel::PgConnection;
use futures_util::future::join_all;
use reqwest::Client;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    join, select,
    time::{sleep, sleep_until},
};
use url::Url;

use crate::{
    crash::binary,
    database::Postgres,
    figures::{self, Figures},
    games::{self, GAMES, Game, Pairing, USERS, phone},
    nats::NatsCluster,
    nodes::{Neighbours, Node, address_of},
    records::{HolderChange, LiveNode, RaisedAlarm, TakeOver},
    script::{Fault, FaultKind, NODES, PlannedAlarm, Script},
    stored::{self, HolderWatch},
    until,
    verdict::{judge_announcements, judge_holders, judge_ledger, judge_numbers, judge_states, judge_take_overs},
    watchers::{Watcher, WatcherStart},
    ways::{Trouble, Ways},
};

/// Longest wait for what is due once all faults have ended; only a seed that fails waits this long.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
/// Longest wait for a link in place of one that a node lost. The judges allow less.
const LINKED_WITHIN: Duration = Duration::from_secs(90);
/// Time between two looks at links.
const LINKS_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time between two looks at everything else.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The outcome of a seed.
pub struct Outcome {
    /// Promises that do not hold.
    pub broken: Vec<String>,
    /// Faults, with the times at which they began.
    pub story: Vec<String>,
    pub figures: String,
    /// Logs of the nodes and of NATS. Removed if all holds.
    pub logs: PathBuf,
}

/// Programs that the test does not bring along.
pub struct Needs {
    pub nats_server: PathBuf,
    pub postgres: Postgres,
}

impl Needs {
    /// `None`, and a line on stdout, where something is missing.
    pub fn find() -> Option<Self> {
        if !cfg!(feature = "cluster") {
            println!("SKIPPED several nodes under faults: they are not in this build (cargo feature `cluster`)");
            return None;
        }
        let Some(nats_server) = env::var_os("TEST_NATS_SERVER").map(PathBuf::from) else {
            println!("SKIPPED several nodes under faults: TEST_NATS_SERVER is not set (2.11 or later)");
            return None;
        };
        if env::var_os("TEST_POSTGRES_URL").is_none() {
            println!("SKIPPED several nodes under faults: TEST_POSTGRES_URL is not set");
            return None;
        }
        let postgres = Postgres::create()?;
        if address_of(&Url::parse(&postgres.url()).expect("a URL")).is_none() {
            println!("SKIPPED several nodes under faults: TEST_POSTGRES_URL names no host and port");
            return None;
        }
        Some(Self { nats_server, postgres })
    }
}

/// The neighbours and the nodes. Dropped in this order: nodes before what they need.
pub struct Trial {
    began: Instant,
    /// When the script began.
    plays_since: Cell<Instant>,
    prints: bool,
    story: RefCell<Vec<String>>,
    watchers: Vec<Watcher>,
    nodes: Vec<Node>,
    /// Promises that were broken while the script was carried out, as when a node has ended by itself.
    mishaps: RefCell<Vec<String>>,
    /// Steps of the schema that the earlier build does not know.
    steps: usize,
    /// Messages that processes which have ended did not understand.
    unreadable: Cell<u64>,
    http: Client,
    pairings: Vec<Pairing>,
    games: Vec<Game>,
    pushes: PushService,
    holders: HolderWatch,
    sql: RefCell<PgConnection>,
    nats: NatsCluster,
    _ways: Ways,
    _directory: TempDir,
    _postgres: Postgres,
}

/// Runs one seed: with faults, or an upgrade from an earlier build.
pub async fn run(seed: u64, needs: Needs, prints: bool, earlier: Option<&Path>) -> Outcome {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chaos").join(format!("seed-{seed}"));
    // Logs of a run before.
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir_all(&logs).expect("the target directory takes files");
    let trial = Trial::start(seed, needs, &logs, prints, earlier).await;
    let counts: Vec<u64> = trial.pairings.iter().map(Pairing::alarms).collect();
    let script = if earlier.is_some() { Script::of_upgrade(seed, &counts) } else { Script::of(seed, &counts) };
    let played = async {
        let (raised, take_overs) = trial.play(&script, earlier).await;
        let healed = Instant::now();
        let broken = trial.settle(async || trial.unsettled(&raised).await).await;
        if earlier.is_some() {
            trial.report_messages().await;
        }
        (raised, take_overs, broken, healed.elapsed())
    };
    let (raised, take_overs, mut broken, settled_after) = select! {
        played = played => played,
        never = trial.keep_running() => match never {},
    };
    broken.extend(trial.broken_on_the_way(&take_overs));
    let figures = Figures {
        faults: script.faults.iter().map(|fault| fault.kind).collect(),
        raised: &raised,
        take_overs: &take_overs,
        ledger: stored::ledger(&mut trial.sql.borrow_mut()),
        known: trial.first_known(),
        raids: trial.watchers.iter().flat_map(|watcher| watcher.seen(|seen| seen.raids.clone())).collect(),
        sockets: trial.watchers.iter().map(|watcher| watcher.seen(|seen| seen.sockets())).sum(),
        errors: trial.errors(),
        settled_after,
    };
    let figures = figures::line(&figures);
    if broken.is_empty() {
        // They are of no use any longer.
        let _ = fs::remove_dir_all(&logs);
    }
    let story = trial.story.take();
    Outcome { broken, story, figures, logs }
}

impl Trial {
    /// Starts everything, and waits until all alarms are known to be off, and all sockets watch.
    async fn start(seed: u64, needs: Needs, logs: &Path, prints: bool, earlier: Option<&Path>) -> Self {
        let Needs { nats_server, postgres } = needs;
        let (began, http, ways) = (Instant::now(), binary::http(), Ways::start());
        let directory = TempDir::new().expect("a directory");
        let logins = (0..USERS).map(phone).collect();
        let pushes = PushService::start((Ipv4Addr::LOCALHOST, 0).into(), logins, Clock::system()).await;
        let pushes = pushes.expect("a free port");
        let push_ca = directory.path().join("push-ca.pem");
        fs::write(&push_ca, pushes.ca_pem()).expect("the directory takes files");
        let nats = NatsCluster::start(nats_server, directory.path(), logs, http.clone()).await;
        let pairings = games::pairings();
        let mut all_games = Vec::new();
        for number in 0..GAMES {
            all_games.push(Game::start(number, seed, &pairings).await);
        }
        let url = postgres.url();
        let neighbours = Neighbours {
            nats: nats.addresses(),
            postgres: Url::parse(&url).expect("a URL"),
            push: pushes.addr(),
            push_ca: &push_ca,
        };
        let nodes: Vec<Node> = (0..NODES).map(|number| Node::new(number, &ways, &neighbours, logs)).collect();
        let ports: Vec<u16> = all_games.iter().map(Game::port).collect();
        if let Some(earlier) = earlier {
            nodes[0].installation.migrate_with(earlier);
            nodes.iter().for_each(|node| node.install(earlier));
        }
        let mut sql = stored::connect(&url);
        let known = earlier.map(|_| stored::steps(&mut sql));
        let cookies = nodes[0].installation.fill(async |context| games::fill(context, &ports, &pairings).await);
        let steps = known.map_or(0, |known| stored::take_back(&mut sql, &known));
        nodes.iter().for_each(Node::start);
        for node in &nodes {
            until("three nodes", async || node.live_nodes(&http).await == Some(NODES as u64)).await;
        }
        let watcher = |(user, node): (usize, &Node)| {
            let of_user = pairings.iter().filter(|pairing| pairing.user == user);
            Watcher::start(WatcherStart {
                user,
                node: node.number,
                http: http.clone(),
                addresses: node.addresses.clone(),
                cookie: cookies[user].clone(),
                servers: of_user.map(|pairing| pairing.server.clone()).collect(),
                began,
            })
        };
        let watchers = (0..USERS).flat_map(|user| nodes.iter().map(move |node| (user, node))).map(watcher).collect();
        let trial = Self {
            began,
            plays_since: Cell::new(began),
            prints,
            story: RefCell::default(),
            watchers,
            nodes,
            mishaps: RefCell::default(),
            steps,
            unreadable: Cell::default(),
            http,
            pairings,
            games: all_games,
            pushes,
            holders: HolderWatch::start(url.clone(), began),
            sql: RefCell::new(sql),
            nats,
            _ways: ways,
            _directory: directory,
            _postgres: postgres,
        };
        // One that is on when it is known first is not taken for one that has just gone off.
        until("alarms that are off", async || stored::unknown_devices(&mut trial.sql.borrow_mut()) == 0).await;
        until("push sessions", async || (0..USERS).all(|user| trial.pushes.connected(phone(user).0))).await;
        until("states of all servers", async || trial.unequal(&[]).is_empty()).await;
        trial
    }

    fn say(&self, text: String) {
        let line = format!("{:>6.1} s  {text}", self.plays_since.get().elapsed().as_secs_f64());
        if self.prints {
            println!("{line}");
        }
        self.story.borrow_mut().push(line);
    }

    /// Carries out the script, and the upgrade if there is one. The alarms that were raised, and what became of the links
    /// that nodes lost.
    async fn play(&self, script: &Script, earlier: Option<&Path>) -> (Vec<RaisedAlarm>, Vec<TakeOver>) {
        self.plays_since.set(Instant::now());
        let happens = async {
            match earlier {
                Some(earlier) => self.upgrade(earlier).await,
                None => join_all(script.faults.iter().map(|fault| self.carry_out(fault))).await.concat(),
            }
        };
        let played = join!(self.raise(&script.alarms), happens);
        self.say("all faults have ended, and all alarms were raised".to_owned());
        played
    }

    async fn reach(&self, at: Duration) {
        sleep_until((self.plays_since.get() + at).into()).await;
    }

    async fn raise(&self, alarms: &[PlannedAlarm]) -> Vec<RaisedAlarm> {
        let mut raised = Vec::new();
        for PlannedAlarm { at, pairing, number, push_first } in alarms {
            self.reach(*at).await;
            let pairing = &self.pairings[*pairing];
            self.games[pairing.game].raise(pairing, *number, *push_first, &self.pushes);
            let (server, name) = (pairing.server.clone(), pairing.alarm_name(*number));
            raised.push(RaisedAlarm { server, name, way: pairing.way, at: self.began.elapsed() });
        }
        raised
    }

    /// Carries out a fault, and follows the links that it costs.
    async fn carry_out(&self, fault: &Fault) -> Vec<TakeOver> {
        self.reach(fault.at).await;
        self.say(fault.to_string());
        let (node, lasts) = (&self.nodes[fault.node], fault.lasts);
        match fault.kind {
            FaultKind::Kill => {
                let lost = self.links_of(node);
                node.kill();
                let again = async {
                    sleep(lasts).await;
                    node.start();
                };
                join!(again, self.taken_over(fault, lost)).1
            }
            FaultKind::KillUnstored => {
                let trouble = node.postgres.trouble(fault.trouble);
                sleep(lasts / 2).await;
                let lost = self.links_of(node);
                node.kill();
                // Its start waits for PostgreSQL, too.
                let again = async {
                    sleep(lasts / 4).await;
                    node.start();
                    sleep(lasts / 4).await;
                    drop(trouble);
                };
                join!(again, self.taken_over(fault, lost)).1
            }
            FaultKind::Stop => {
                let lost = self.links_of(node);
                node.signal(Signal::STOP);
                let again = async {
                    sleep(lasts).await;
                    node.signal(Signal::CONT);
                };
                join!(again, self.taken_over(fault, lost)).1
            }
            FaultKind::CutNats => {
                let _troubles: Vec<_> = node.nats.iter().map(|way| way.trouble(fault.trouble)).collect();
                sleep(lasts).await;
                Vec::new()
            }
            FaultKind::CutPostgres => {
                let _trouble = node.postgres.trouble(fault.trouble);
                sleep(lasts).await;
                Vec::new()
            }
            FaultKind::FreezePostgres => {
                let _troubles: Vec<_> = self.nodes.iter().map(|node| node.postgres.trouble(Trouble::Held)).collect();
                sleep(lasts).await;
                Vec::new()
            }
            FaultKind::RestartNats => {
                self.nats.restart_one_by_one(lasts).await;
                Vec::new()
            }
        }
    }

    /// The game servers that this node has, each with its last connection.
    fn links_of(&self, node: &Node) -> Vec<(usize, u64)> {
        let (Some(id), holders) = (node.id(), self.holders.holders()) else { return Vec::new() };
        let is_here = |game: &Game| holders.get(&game.part()).is_some_and(|(holder, _)| *holder == id);
        let games = self.games.iter().enumerate().filter(|(_, game)| is_here(game));
        games.map(|(number, game)| (number, game.last_connection())).collect()
    }

    /// Follows these game servers until each has a newer link.
    async fn taken_over(&self, fault: &Fault, lost: Vec<(usize, u64)>) -> Vec<TakeOver> {
        let follow = |(game, last): (usize, u64)| async move {
            let began = Instant::now();
            while !self.games[game].is_linked_since(last) && began.elapsed() < LINKED_WITHIN {
                sleep(LINKS_LOOK_EVERY).await;
            }
            let after = self.games[game].is_linked_since(last).then(|| began.elapsed());
            TakeOver { fault: format!("{:?} of node {}", fault.kind, fault.node), game, after }
        };
        join_all(lost.into_iter().map(follow)).await
    }

    /// Starts nodes that have ended by themselves, as whatever runs them would.
    async fn keep_running(&self) -> Infallible {
        loop {
            for node in self.nodes.iter().filter(|node| node.has_ended()) {
                self.mishap(format!("node {} has ended by itself", node.number));
                node.start();
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn mishap(&self, text: String) {
        self.say(text.clone());
        self.mishaps.borrow_mut().push(text);
    }

    /// Waits until everything is as promised, and says what is not by then.
    async fn settle(&self, unsettled: impl AsyncFn() -> Vec<String>) -> Vec<String> {
        let began = Instant::now();
        loop {
            let broken = unsettled().await;
            if broken.is_empty() || began.elapsed() >= SETTLED_WITHIN {
                return broken;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The nodes of now.
    fn live(&self) -> Vec<LiveNode> {
        let live = |node: &Node| Some(LiveNode { id: node.id()?, address: node.source_address() });
        self.nodes.iter().filter_map(live).collect()
    }

    /// Promises about nodes and their parts that do not hold, or not yet.
    async fn unsettled_nodes(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for node in &self.nodes {
            let live = node.live_nodes(&self.http).await;
            if live != Some(NODES as u64) {
                broken.push(format!("node {} sees {live:?} live nodes", node.number));
            }
        }
        let links: Vec<_> = self.games.iter().map(Game::links).collect();
        broken.extend(judge_holders(&self.holders.holders(), &self.live(), &links));
        broken
    }

    /// Promises that do not hold, or not yet.
    async fn unsettled(&self, raised: &[RaisedAlarm]) -> Vec<String> {
        let mut broken = self.unsettled_nodes().await;
        for node in &self.nodes {
            let journaled = node.journaled();
            if journaled != Some(0) {
                broken.push(format!("{journaled:?} writes are in the journal of node {}", node.number));
            }
        }
        for (user, phone) in (0..USERS).map(|user| (user, phone(user).0)) {
            let waiting = self.pushes.unacknowledged(phone);
            if waiting > 0 {
                broken.push(format!("{waiting} pushes to user {user} are not acknowledged"));
            }
        }
        let ledger = stored::ledger(&mut self.sql.borrow_mut());
        broken.extend(judge_ledger(raised, &ledger));
        broken.extend(self.unequal(raised));
        broken
    }

    /// Servers of which those who watch do not have the same state, with all of these alarms.
    fn unequal(&self, raised: &[RaisedAlarm]) -> Vec<String> {
        let of_server = |pairing: &Pairing| {
            let alarms = raised.iter().filter(|alarm| alarm.server == pairing.server);
            let alarms: Vec<&str> = alarms.map(|alarm| alarm.name.as_str()).collect();
            let watchers = self.watchers.iter().filter(|watcher| watcher.user == pairing.user);
            let state = |watcher: &Watcher| {
                let state = watcher.seen(|seen| seen.states.get(&pairing.server).cloned());
                (format!("user {} at node {}", watcher.user, watcher.node), state)
            };
            let watched: Vec<_> = watchers.map(state).collect();
            judge_states(&pairing.server, &alarms, &watched)
        };
        self.pairings.iter().flat_map(of_server).collect()
    }

    /// Promises that were broken on the way, which no time mends.
    fn broken_on_the_way(&self, take_overs: &[TakeOver]) -> Vec<String> {
        let ledger = stored::ledger(&mut self.sql.borrow_mut());
        let changes: Vec<HolderChange> = self.holders.changes();
        let raids: Vec<_> = self.watchers.iter().flat_map(|watcher| watcher.seen(|seen| seen.raids.clone())).collect();
        let part = |pairing: &Pairing| (pairing.server.clone(), self.games[pairing.game].part());
        let parts: BTreeMap<String, String> = self.pairings.iter().map(part).collect();
        let mut broken = judge_announcements(&raids, &ledger, &changes, &parts);
        broken.extend(judge_numbers(&changes));
        broken.extend(judge_take_overs(take_overs));
        broken.extend(self.watchers.iter().flat_map(|watcher| watcher.seen(|seen| seen.faults.clone())));
        broken.extend(self.nodes.iter().flat_map(Node::panics));
        broken.extend(self.mishaps.borrow().iter().cloned());
        if self.holders.is_blind() {
            broken.push("the holders of parts were not looked at to the end".to_owned());
        }
        let violations: BTreeSet<String> = self.pushes.counts().violations.into_iter().collect();
        broken.extend(violations.into_iter().map(|violation| format!("the push service: {violation}")));
        broken
    }

    /// When the first socket knew of each alarm, by server and name.
    fn first_known(&self) -> BTreeMap<(String, String), Duration> {
        let mut first = BTreeMap::<(String, String), Duration>::new();
        for watcher in &self.watchers {
            for (alarm, at) in watcher.seen(|seen| seen.known.clone()) {
                first.entry(alarm).and_modify(|first| *first = at.min(*first)).or_insert(at);
            }
        }
        first
    }

    /// Errors that sockets were answered, by code.
    fn errors(&self) -> BTreeMap<String, usize> {
        let mut errors = BTreeMap::new();
        for watcher in &self.watchers {
            for (code, count) in watcher.seen(|seen| seen.errors.clone()) {
                *errors.entry(code).or_default() += count;
            }
        }
        errors
    }
}
