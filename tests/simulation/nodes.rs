//! Two nodes of the service over one database, with the neighbours of the world of one process: clients of both nodes, and
//! nodes that are stopped, die, end in order, or lose their leases, while messages between them come late or not at all. In the
//! end all is well for two minutes, in which one node ends and hands over what it has.

mod gate;
mod node;
mod post;
mod script;
mod verdict;
mod watcher;

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    time::Duration,
};

use companion::{
    cluster::memory_leases::{CallFate, MemoryLeases},
    db::engine::pool::Pool,
    domain::ids::{GameServerId, PartId, SessionId, UserId},
    net::Memory,
    ownership::needed_parts::push_session,
    simulator::world::{BASE_ALARM, TEAM, WALL_ALARM},
};
use tokio::time::{Instant, sleep, sleep_until};

use self::{
    gate::Gate,
    node::Node,
    post::Post,
    script::{
        AT_HOME, AT_HOME_AGAIN, HANDED_OVER, LAST_ALARM, LENGTH, MATE_LEAVES, NodeAct, SHED_AGAIN, SHED_OFF, SHED_ON,
        SIGNED_OUT, WELL_FROM,
    },
    verdict::{OwnedFacts, Verdict},
    watcher::{WATCHERS, Watcher},
};
use crate::{
    life::{Service, session},
    oracle::{change, change_all},
    random::Stream,
    run::pushed_server,
    wire::Wire,
    world::{GAMES, PAIRED, PHONES, ROOF_ALARM, SHED_ALARM, USERS, UserAct, World},
};

pub use self::script::{NodeScript, script};

/// Nodes that run at a time.
const PLACES: usize = 2;
/// The game server that a node hands over while all is well, and the mate who comes then.
const HANDED_OVER_GAME: usize = 0;
const MATE: usize = 3;

/// Sockets of a session that was signed out are closed within this time, at whichever node.
const REVOKED_WITHIN: Duration = Duration::from_secs(3);
/// A node that was stopped may be late for so long.
const RECOVERS_WITHIN: Duration = Duration::from_secs(30);
/// Time between two looks at who has which part.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Pause after a node has ended in order while all is well, and time between two looks at its links meanwhile.
const BACK_AFTER: Duration = Duration::from_secs(1);
const LINKS_LOOK_EVERY: Duration = Duration::from_millis(20);

thread_local! {
    static NODES: RefCell<Option<Rc<Nodes>>> = const { RefCell::new(None) };
}

/// The nodes of this process.
pub fn nodes() -> Rc<Nodes> {
    NODES.with_borrow(|nodes| nodes.clone()).expect("they were made first")
}

/// The nodes, and what is between them.
pub struct Nodes {
    pub world: Rc<World>,
    /// To look at what is stored.
    pub pool: Pool,
    pub verdict: RefCell<Verdict>,
    pub random: RefCell<Stream>,
    leases: MemoryLeases,
    post: Rc<Post>,
    is_calm: Cell<bool>,
    /// All that there were, by number.
    all: RefCell<Vec<Rc<Node>>>,
    /// The nodes that run, and are not about to end.
    running: [RefCell<Option<Rc<Node>>>; PLACES],
    watchers: OnceCell<Vec<Rc<Watcher>>>,
    /// Sessions and pushes so far.
    sessions: Cell<u32>,
    pushed: Cell<u32>,
    said: Cell<u32>,
}

/// Lives through this script. Call it inside an actix system and the task set of the neighbours.
pub async fn live(world: Rc<World>, script: NodeScript) {
    let service = Service::open(&world, 0);
    service.furnish(&world);
    let nodes = Rc::new(Nodes::new(world, service.pool));
    NODES.set(Some(nodes.clone()));
    nodes.verdict.borrow_mut().owned = OwnedFacts::read(&nodes.pool);
    (0..PLACES).for_each(|place| nodes.start(place));
    let watchers = (0..WATCHERS.len()).map(|number| Watcher::start(&nodes, number)).collect();
    assert!(nodes.watchers.set(watchers).is_ok(), "they are started once");
    tokio::task::spawn_local(nodes.clone().look_at_parts());
    for (millis, act) in script {
        nodes.reach(millis).await;
        nodes.world.trace(&format!("{act:?}"));
        nodes.act(act);
    }
    nodes.stay_well().await;
    nodes.verdict.borrow_mut().end(&nodes, nodes.watchers());
    nodes.all.borrow().iter().for_each(|node| node.kill());
}

impl Nodes {
    fn new(world: Rc<World>, pool: Pool) -> Self {
        let seed = world.seed;
        Self {
            world,
            pool,
            verdict: RefCell::default(),
            random: RefCell::new(Stream::of(seed, "nodes")),
            leases: MemoryLeases::default(),
            post: Post::new(seed),
            is_calm: Cell::new(false),
            all: RefCell::default(),
            running: Default::default(),
            watchers: OnceCell::new(),
            sessions: Cell::new(1),
            pushed: Cell::new(0),
            said: Cell::new(0),
        }
    }

    /// Waits for this number of milliseconds since the begin.
    async fn reach(&self, millis: u64) {
        sleep_until(self.world.origin + Duration::from_millis(millis)).await;
    }

    fn watchers(&self) -> &[Rc<Watcher>] {
        self.watchers.get().map(Vec::as_slice).unwrap_or_default()
    }

    pub fn gate(&self, number: usize) -> Rc<Gate> {
        self.all.borrow()[number].gate.clone()
    }

    /// The id of a paired server.
    pub fn server(&self, paired: usize) -> Option<String> {
        self.world.judge.borrow().server(PAIRED[paired].0).map(|server| server.to_string())
    }

    fn call_fate(&self, number: usize) -> CallFate {
        self.gate(number).call_fate(&mut self.random.borrow_mut(), self.is_calm.get())
    }

    fn check_write(&self, gate: &Gate) {
        self.verdict.borrow_mut().check_write(&self.pool, &gate.process);
    }

    /// The node at this place, if it runs, or else another one.
    fn at(&self, place: usize) -> Option<Rc<Node>> {
        let mut running = (0..PLACES).filter_map(|after| self.running[(place + after) % PLACES].borrow().clone());
        running.find(|node| node.gate.is_open())
    }

    fn start(&self, place: usize) {
        let number = self.all.borrow().len();
        let node = Node::start(&self.world, number, place, &self.leases, &self.post);
        self.world.trace(&format!("node {number} starts at {place}: {}", node.gate.process));
        self.all.borrow_mut().push(node.clone());
        *self.running[place].borrow_mut() = Some(node);
    }

    /// A client connects to the node at this place.
    pub async fn connect(
        &self,
        place: usize,
        user: UserId,
        session: SessionId,
    ) -> Option<(Memory, Rc<Wire>, Rc<Gate>)> {
        let node = self.running[place].borrow().clone()?;
        let (memory, wire) = node.connect(user, session).await?;
        Some((memory, wire, node.gate.clone()))
    }

    /// No part is ever of two nodes.
    async fn look_at_parts(self: Rc<Self>) {
        let links = GAMES.map(|(host, port)| PartId::links(&GameServerId::at(host, port)));
        let parts: Vec<PartId> = links.into_iter().chain(USERS.map(|user| push_session(&user.into()))).collect();
        loop {
            for part in &parts {
                let all = self.all.borrow();
                let has = |node: &&Rc<Node>| !node.gate.is_dead() && node.ownership.fence(part).is_some();
                let having: Vec<usize> = all.iter().filter(has).map(|node| node.gate.number).collect();
                if having.len() > 1 {
                    self.verdict.borrow().broken("one-node", format!("{part} is of {having:?}"));
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn act(self: &Rc<Self>, act: NodeAct) {
        let world = &self.world;
        let alarm_id = |alarm: usize| [BASE_ALARM, WALL_ALARM][alarm];
        let running = |place: usize| self.running[place].borrow().clone();
        match act {
            NodeAct::Alarm { game, alarm } => change(game, |world| world.fire_alarm(alarm_id(alarm))),
            NodeAct::AlarmOff { game, alarm } => change(game, |world| world.release_alarm(alarm_id(alarm))),
            NodeAct::Push(paired) => self.push(paired),
            NodeAct::Chat(game) => {
                let number = self.said.replace(self.said.get() + 1);
                world.games[game].world(|world| world.say(TEAM[1].0, &format!("Line {number}")));
            }
            NodeAct::Market(game) => {
                change(game, |world| world.advance_to(world.now() + chrono::TimeDelta::milliseconds(700)));
            }
            NodeAct::Drill(paired) => {
                let nodes = self.clone();
                tokio::task::spawn_local(async move {
                    let place = nodes.random.borrow_mut().below(PLACES as u64) as usize;
                    let Some(node) = nodes.at(place) else { return };
                    let done = node.act(UserAct::Drill(paired)).await;
                    nodes.world.trace(&format!("drill of {paired}: {done}"));
                });
            }
            NodeAct::SignOut(number) => self.sign_out(number),
            NodeAct::Cut(number) => self.watchers()[number].cut(),
            NodeAct::Restart(game) => world.games[game].drop_connections(),
            NodeAct::Stop { place, millis } => {
                running(place).filter(|node| node.gate.is_open()).iter().for_each(|node| node.gate.stop(millis));
            }
            NodeAct::Kill { place, millis } => {
                if let Some(node) = self.running[place].take() {
                    node.kill();
                    self.start_after(place, millis);
                }
            }
            NodeAct::End { place, millis } => {
                if running(place).is_some_and(|node| node.gate.is_open())
                    && let Some(node) = self.running[place].take()
                {
                    let nodes = self.clone();
                    tokio::task::spawn_local(async move {
                        node.end().await;
                        nodes.world.trace(&format!("node {} has ended", node.gate.number));
                        nodes.start_after(place, millis);
                    });
                }
            }
            NodeAct::LeasesAway { place, millis } => {
                let until = Instant::now() + Duration::from_millis(millis);
                running(place).iter().for_each(|node| node.gate.leases_away_until.set(until));
            }
            NodeAct::LeasesLost => self.leases.lose_everything(),
            NodeAct::Silence(millis) => {
                self.post.silent_until.set(Instant::now() + Duration::from_millis(millis));
            }
        }
    }

    fn start_after(self: &Rc<Self>, place: usize, millis: u64) {
        let nodes = self.clone();
        tokio::task::spawn_local(async move {
            sleep(Duration::from_millis(millis)).await;
            nodes.start(place);
        });
    }

    /// An alarm that the link does not see. Its title is its own.
    fn push(&self, paired: usize) {
        let (_, user, game) = PAIRED[paired];
        let number = self.pushed.replace(self.pushed.get() + 1);
        let title = format!("push {number}");
        self.world.pushes.push(PHONES[user].0, pushed_server(game).alarm(&title, "words"));
        self.verdict.borrow_mut().pushed.push(title);
    }

    /// The session of a client ends, at the other node; its user signs in again.
    fn sign_out(self: &Rc<Self>, number: usize) {
        let (nodes, watcher) = (self.clone(), self.watchers()[number].clone());
        let (user, session_before) = (watcher.user, watcher.session());
        let next = self.sessions.replace(self.sessions.get() + 1);
        let place = watcher.open_socket().map_or(0, |socket| socket.gate.place);
        tokio::task::spawn_local(async move {
            if let Some(node) = nodes.at((place + 1) % PLACES)
                && node.act(UserAct::SignOut(session_before.clone())).await
            {
                nodes.world.trace(&format!("signed out at node {}: {session_before}", node.gate.number));
                nodes.expect_closed(&session_before, &node.gate);
            }
            sleep(Duration::from_secs(2)).await;
            let sign_in = || UserAct::SignIn(USERS[user].into(), session(user, next));
            loop {
                if let Some(node) = nodes.at(place)
                    && node.act(sign_in()).await
                {
                    break;
                }
                sleep(Duration::from_secs(2)).await;
            }
            let of_session = nodes.watchers().iter().filter(|watcher| watcher.session() == session_before);
            of_session.for_each(|watcher| watcher.use_session(next));
        });
    }

    /// This session was signed out at the node of this gate: its sockets are closed, at whichever node, unless one of the two
    /// was stopped.
    fn expect_closed(self: &Rc<Self>, session: &SessionId, at: &Rc<Gate>) {
        let sockets = self.watchers().iter().filter_map(|watcher| watcher.open_socket());
        for socket in sockets.filter(|socket| socket.session == *session) {
            let (nodes, at, now) = (self.clone(), at.clone(), Instant::now());
            tokio::task::spawn_local(async move {
                sleep(REVOKED_WITHIN).await;
                let Some(then) = now.checked_sub(RECOVERS_WITHIN) else { return };
                let is_due = at.was_open_since(then) && socket.gate.was_open_since(then);
                if is_due && !socket.is_closed.get() {
                    let details = format!("a socket at node {} outlives its session", socket.gate.number);
                    nodes.verdict.borrow().broken("revoked", details);
                }
            });
        }
    }

    /// The minutes from [`WELL_FROM`] on.
    async fn stay_well(self: &Rc<Self>) {
        self.reach(WELL_FROM).await;
        self.world.trace("all is well");
        self.is_calm.set(true);
        self.post.is_calm.set(true);
        self.post.silent_until.set(Instant::now());
        for node in &*self.all.borrow() {
            node.gate.leases_away_until.set(Instant::now());
            node.gate.wake();
        }
        (0..GAMES.len()).for_each(|game| {
            [BASE_ALARM, WALL_ALARM].into_iter().for_each(|alarm| change(game, |world| world.release_alarm(alarm)));
        });
        self.reach(AT_HOME).await;
        self.watchers().iter().for_each(|watcher| watcher.cut());
        self.reach(SIGNED_OUT).await;
        self.sign_out(0);
        self.reach(MATE_LEAVES).await;
        self.verdict.borrow_mut().mate_left_at = Some(self.world.clock.now());
        self.world.games[HANDED_OVER_GAME].world(|world| world.set_online(TEAM[MATE].0, false));
        self.reach(SHED_ON).await;
        change_all(|world| world.fire_alarm(SHED_ALARM));
        self.reach(SHED_OFF).await;
        change_all(|world| world.release_alarm(SHED_ALARM));
        self.reach(SHED_AGAIN).await;
        change_all(|world| world.fire_alarm(SHED_ALARM));
        self.reach(HANDED_OVER).await;
        self.hand_over().await;
        self.reach(AT_HOME_AGAIN).await;
        self.watchers().iter().for_each(|watcher| watcher.cut());
        self.reach(LAST_ALARM).await;
        self.world.trace("the last alarms");
        self.verdict.borrow_mut().check_settled(&self.pool);
        change_all(|world| world.fire_alarm(ROOF_ALARM));
        self.reach(LENGTH).await;
    }

    /// The node that has a game server ends; a mate comes into the game while there is no link to that.
    async fn hand_over(self: &Rc<Self>) {
        let (host, port) = GAMES[HANDED_OVER_GAME];
        let part = PartId::links(&GameServerId::at(host, port));
        let has = |place: &usize| {
            let node = self.running[*place].borrow().clone();
            node.is_some_and(|node| node.ownership.fence(&part).is_some())
        };
        let Some(place) = (0..PLACES).find(has) else {
            return self.verdict.borrow().broken("each-part-has-a-node", format!("{part} has none"));
        };
        let Some(node) = self.running[place].take() else { return };
        self.world.trace(&format!("node {} ends", node.gate.number));
        let nodes = self.clone();
        tokio::task::spawn_local(async move {
            let server = &nodes.world.games[HANDED_OVER_GAME];
            while server.connections() > 0 {
                sleep(LINKS_LOOK_EVERY).await;
            }
            nodes.world.trace("the mate comes");
            server.world(|world| world.set_online(TEAM[MATE].0, true));
        });
        node.end().await;
        sleep(BACK_AFTER).await;
        self.start(place);
    }
}
