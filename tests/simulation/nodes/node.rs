//! One process of the service as a node: the real lease, parts, hub, links and push sessions behind a gate. It is started,
//! killed, or ended as an operator does.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix::Addr;
use bytes::BytesMut;
use companion::{
    cluster::{memory_leases::MemoryLeases, node_mail::mail},
    crypto::{keys::Key32, random::Random, sealer::Sealer},
    db::{
        engine::pool::Pool,
        files::journal::{self, Journal},
    },
    domain::{
        ids::{SessionId, UserId},
        relay_access::RelayAccess,
    },
    net::{Memory, Network},
    ownership::{self, NodeSeat, Ownership},
    push::worker::StopPush,
    relay::{
        client::{admission::Admit, client_socket::ClientSocket, relay_worker::RelayWorker},
        hub::{EndLinks, Hub, HubNode},
    },
    vault::Vault,
};
use futures_util::FutureExt as _;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};

use super::{
    gate::{self, Gate},
    nodes,
    post::Post,
};
use crate::{
    life::{Running, Service},
    wire::Wire,
    world::{UserAct, World},
};

/// Longest wait for the answer to what a user does.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);
/// Longest time in which a node gives up what it has, as the real process waits for it.
const LEAVES_WITHIN: Duration = Duration::from_secs(8);

pub struct Node {
    pub gate: Rc<Gate>,
    pub ownership: Ownership,
    service: Service,
    running: Running,
    workers: [Rc<RelayWorker>; 2],
    turn: Cell<usize>,
    /// The task of its lease and parts, and what ends it in order.
    task: RefCell<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// Opens the database and the journal of the node of this number.
fn open(world: &World, number: usize, place: usize) -> Service {
    let random = Random::seeded(world.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let disk = Arc::new(move |moment| gate::disk(number, moment).boxed_local());
    let pool = Pool::open_simulated(&world.database, disk).expect("a database");
    let directory = world.directory.join(format!("node-{place}"));
    journal::replay_on_node(&directory, &pool, &Default::default()).expect("the journal is stored");
    let journal = Journal::open_simulated(&directory).expect("a journal");
    let journal = journal.on_disk(Arc::new(move |_: &[u8]| gate::journal(number).boxed_local()));
    let sealer = Arc::new(Sealer::new(&Key32::new([1; 32]), None, 1, random.clone()));
    let vault = Vault::new(pool.clone(), sealer);
    Service { pool, vault, journal, random }
}

impl Node {
    /// Starts the node of this number at this place, with these leases and this post.
    pub fn start(world: &World, number: usize, place: usize, leases: &MemoryLeases, post: &Rc<Post>) -> Rc<Self> {
        let service = open(world, number, place);
        let process: String = service.random.id(world.clock.now());
        let gate = Rc::new(Gate::new(number, process.clone(), place));
        let ((seat, ownership), (mail, route)) = (NodeSeat::new(&process), mail());
        post.serve(&gate, route);
        let leases = leases.over(Arc::new(move || nodes().call_fate(number)));
        let (pool, clock, (leave, left)) = (service.pool.clone(), world.clock.clone(), oneshot::channel::<()>());
        let task = tokio::task::spawn_local(async move {
            ownership::nodes::run(&leases, pool, clock, seat, left.map(drop)).await;
        });
        let dial = Arc::new(move |host: &str, port| gate::dial(number, host.to_owned(), port).boxed_local());
        let hub_node = HubNode { ownership: ownership.clone(), mail, guesses: Arc::default() };
        let running = service.start(world, Network::simulated(dial), Arc::default(), Some(hub_node));
        let (workers, task) = (running.workers(world), RefCell::new(Some((leave, task))));
        Rc::new(Self { gate, ownership, service, running, workers, turn: Cell::new(0), task })
    }

    fn hub(&self) -> &Addr<Hub> {
        &self.running.hub
    }

    /// A client connects with a token of this session.
    pub async fn connect(&self, user: UserId, session: SessionId) -> Option<(Memory, Rc<Wire>)> {
        self.gate.pass().await;
        let admit = Admit { user: user.clone(), session, access: RelayAccess::Session };
        let admission = self.hub().send(admit).await.ok()?.ok()?;
        let (service, client, wire) = nodes().world.make_socket();
        self.gate.add_wire(wire.clone());
        let turn = self.turn.replace(self.turn.get() + 1);
        let worker = self.workers[turn % self.workers.len()].clone();
        ClientSocket::start(worker, user, admission, service.into(), BytesMut::new(), false);
        Some((client, wire))
    }

    /// Acts for a user, as the API does; true once it is acknowledged.
    pub async fn act(&self, act: UserAct) -> bool {
        let answer = self.service.act(act, self.hub(), &self.running.push);
        timeout(ANSWERED_WITHIN, answer).await.unwrap_or(false)
    }

    /// kill -9.
    pub fn kill(&self) {
        self.gate.kill();
        if let Some((leave, task)) = self.task.take() {
            task.abort();
            drop(leave);
        }
        // Nothing of it is seen outside; what it would still do takes time.
        self.running.push.do_send(StopPush);
        self.hub().do_send(EndLinks);
    }

    /// As an operator ends it: its parts pass on with what is known of them.
    pub async fn end(&self) {
        let stopping = self.running.stopping();
        stopping.end_sessions().await;
        if let Some((leave, task)) = self.task.take() {
            let _ = leave.send(());
            let abort = task.abort_handle();
            if timeout(LEAVES_WITHIN, task).await.is_err() {
                abort.abort();
            }
        }
        stopping.flush().await;
        self.kill();
    }
}
