//! The parts of the service that this node has, of the nodes that serve from one database.
//!
//! A caller that acts for a part asks [`Ownership`], which says no as soon as the lease of this node has ended by its own
//! clock, and writes through a pool that is fenced by the answer. [`PartKeeper`] takes the parts that belong here
//! ([`placement`](crate::cluster::placement)) and that no live node has. Those that belong at another node it gives up, some
//! each second, and each only when nothing is done for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, pending},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use crate::{
    clock::Clock,
    cluster::{
        node_lease::{NodeEnd, NodeView},
        placement::place,
    },
    db::{
        engine::{error::DbError, pool::Pool, query_failures::log_failure},
        held_parts,
    },
    domain::{
        fence::Fence,
        ids::{NodeId, PartId},
    },
    ownership::{
        needed_parts::PUSH,
        part_listing::{ListedParts, PartListing},
        part_moves::PartMoves,
    },
};

pub mod needed_parts;
mod next_process;
pub mod nodes;
mod part_listing;
mod part_moves;
pub mod sweeps;

/// Time between two looks at the parts that no live node has.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the nodes that have something: shorter than a lease.
const HOLDERS_EVERY: Duration = Duration::from_secs(5);
/// Time for what is done for a part that is given up. After that its writes are refused.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Time between two looks at parts that are given up.
const ENDING_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Parts of one transaction.
const AT_ONCE: usize = 500;
/// Parts that wait to be noted; what finds no room is found by the next look at everything.
const WAITING: usize = 1_024;

/// The parts of a node, with its right to write for each.
pub type HeldParts = BTreeMap<PartId, Arc<Fence>>;

/// The parts of this node, for those who act for them. Clones share them.
#[derive(Clone)]
pub struct Ownership {
    process: Arc<str>,
    view: watch::Receiver<NodeView>,
    held: watch::Receiver<HeldParts>,
    untaken_since: watch::Receiver<Option<Instant>>,
    wanted: mpsc::Sender<PartId>,
}

/// A node in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFigures {
    /// True while the node has its lease.
    pub holds: bool,
    /// Nodes that live, as far as this one sees.
    pub live: usize,
    /// Game servers, push sessions, and kinds of work for all that it has.
    pub links: usize,
    pub push_sessions: usize,
    pub sweeps: usize,
    /// For how long the oldest of the parts that no live node has has waited for one, as far as this node sees: with a lease.
    pub untaken_for: Duration,
}

impl Ownership {
    /// The name of this process, which its nodes have in theirs.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// The right of this node to write for a part; `None` if it does not have it. As long as the right is kept, the part
    /// passes to no other node, unless that takes seconds or the lease ends: see [`changed`](Self::changed).
    pub fn fence(&self, part: &PartId) -> Option<Arc<Fence>> {
        let fence = self.held.borrow().get(part).cloned();
        fence.filter(|_| self.view.borrow().holds(Instant::now()))
    }

    /// The processes of the other nodes that live.
    pub fn other_processes(&self) -> BTreeSet<String> {
        let view = self.view.borrow();
        let processes = view.live.iter().map(NodeId::process).filter(|process| *process != &*self.process);
        processes.map(str::to_owned).collect()
    }

    /// The node of this process, as it is now.
    pub fn figures(&self) -> NodeFigures {
        let (held, view, now) = (self.held.borrow(), self.view.borrow(), Instant::now());
        let count = |is: fn(&str) -> bool| held.keys().filter(|part| is(part.as_str())).count();
        let untaken_since = *self.untaken_since.borrow();
        NodeFigures {
            holds: view.holds(now),
            live: view.live.len(),
            links: count(|part| part.starts_with(PartId::LINKS)),
            push_sessions: count(|part| part.starts_with(PUSH)),
            sweeps: count(|part| !part.starts_with(PartId::LINKS) && !part.starts_with(PUSH)),
            untaken_for: untaken_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
        }
    }

    /// Number of push sessions among the parts of this node.
    pub fn push_sessions(&self) -> usize {
        self.held.borrow().keys().filter(|part| part.as_str().starts_with(PUSH)).count()
    }

    /// Completes when parts have come or gone since the last time; false once this process is no node any longer.
    pub async fn changed(&mut self) -> bool {
        self.held.changed().await.is_ok()
    }

    /// Completes when this node no longer has the part of this right.
    pub async fn lost(&mut self, right: &Fence) {
        while self.fence(&right.part).as_deref() == Some(right) {
            if !self.changed().await {
                return;
            }
        }
    }

    /// A node is to have this part, one of those that live.
    pub fn want(&self, part: PartId) {
        let _ = self.wanted.try_send(part);
    }
}

/// The place of a node in its process. A node that has lost its lease leaves it to the next one.
pub struct NodeSeat {
    process: Arc<str>,
    view: watch::Sender<NodeView>,
    held: watch::Sender<HeldParts>,
    /// Since when the oldest of the parts that no live node has has none.
    untaken_since: watch::Sender<Option<Instant>>,
    wanted: mpsc::Receiver<PartId>,
}

impl NodeSeat {
    /// The place in the process of this name, which is free, and what the rest of the process asks.
    pub fn new(process: &str) -> (Self, Ownership) {
        let process: Arc<str> = process.into();
        let (view, seen) = watch::channel(NodeView::default());
        let (held, known) = watch::channel(HeldParts::new());
        let (untaken_since, untaken) = watch::channel(None);
        let (want, wanted) = mpsc::channel(WAITING);
        let ownership =
            Ownership { process: process.clone(), view: seen, held: known, untaken_since: untaken, wanted: want };
        (Self { process, view, held, untaken_since, wanted }, ownership)
    }
}

#[cfg(test)]
impl NodeSeat {
    /// For an hour, the node has the parts of these rights, and no others.
    pub fn seat(&self, rights: impl IntoIterator<Item = Arc<Fence>>) {
        let holds_until = Some(Instant::now() + Duration::from_secs(3_600));
        self.view.send_replace(NodeView { holds_until, ..NodeView::default() });
        self.held.send_replace(rights.into_iter().map(|right| (right.part.clone(), right)).collect());
    }

    /// These nodes live, as far as this one sees.
    pub fn sees(&self, live: &[&str]) {
        self.view.send_modify(|view| view.live = live.iter().map(|node| NodeId::from(*node)).collect());
    }

    /// The parts that were wanted since the last time.
    pub fn wanted(&mut self) -> Vec<PartId> {
        std::iter::from_fn(|| self.wanted.try_recv().ok()).collect()
    }
}

/// Task: see the module.
pub struct PartKeeper {
    pool: Pool,
    clock: Clock,
    node: NodeId,
    seat: NodeSeat,
    view: watch::Receiver<NodeView>,
    /// Parts that others will take once nothing is done for them here.
    ending: Vec<EndingPart>,
    moves: PartMoves,
    /// Parts that are to be noted.
    unnoted: BTreeSet<PartId>,
    /// Parts of this node that the last look at everything did not find. Those of the look before are given up.
    unneeded: BTreeSet<PartId>,
    /// Parts that no live node has, and when they were seen first.
    untaken: BTreeMap<PartId, Instant>,
    /// Nodes that have something by the database, for the lease.
    holders: watch::Sender<BTreeSet<NodeId>>,
    holders_read_at: Option<Instant>,
    listing: PartListing,
    /// A change had no answer, and may have given this node more than it knows.
    is_unsure: bool,
}

struct EndingPart {
    fence: Arc<Fence>,
    since: Instant,
    /// No other node is to take it.
    is_unneeded: bool,
}

impl EndingPart {
    /// True if nothing is done for it any longer.
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.fence) == 1
    }

    /// True if that is so, or something is done for too long.
    fn has_ended(&self, now: Instant) -> bool {
        self.is_unused() || now.saturating_duration_since(self.since) >= ENDS_WITHIN
    }
}

impl PartKeeper {
    /// The keeper of a node that has nothing yet. `holders` is for its lease
    /// ([`NodeLease::new`](crate::cluster::node_lease::NodeLease::new)), which writes its view of the nodes into the seat.
    pub fn new(
        pool: Pool,
        clock: Clock,
        node: NodeId,
        holders: watch::Sender<BTreeSet<NodeId>>,
        seat: NodeSeat,
    ) -> Self {
        let view = seat.view.subscribe();
        Self {
            pool,
            clock,
            node,
            seat,
            view,
            ending: Vec::new(),
            moves: PartMoves::default(),
            unnoted: BTreeSet::new(),
            unneeded: BTreeSet::new(),
            untaken: BTreeMap::new(),
            holders,
            holders_read_at: None,
            listing: PartListing::default(),
            is_unsure: false,
        }
    }

    /// Keeps the parts until the lease ends, or until `ends` completes. A node that leaves gives what is done for its parts
    /// some seconds to end. Afterwards it has nothing, and its lease may say so.
    pub async fn run(mut self, ends: impl Future<Output = NodeEnd>) -> (NodeEnd, NodeSeat) {
        let mut view = self.view.clone();
        let end = tokio::select! {
            () = lease_ended(&mut view) => NodeEnd::Lost,
            () = self.keep() => NodeEnd::Lost,
            end = ends => end,
        };
        let held = self.seat.held.send_replace(HeldParts::new());
        self.seat.untaken_since.send_replace(None);
        if end == NodeEnd::Left {
            let until = Instant::now() + ENDS_WITHIN;
            let ending: Vec<Arc<Fence>> =
                held.into_values().chain(self.ending.into_iter().map(|part| part.fence)).collect();
            while ending.iter().any(|fence| Arc::strong_count(fence) > 1) && Instant::now() < until {
                sleep(ENDING_LOOK_EVERY).await;
            }
        }
        (end, self.seat)
    }

    async fn keep(&mut self) {
        loop {
            let looked = if self.holds() { self.look(Instant::now()).await } else { Ok(()) };
            let is_well = went_well(looked);
            self.until_next_look(is_well).await;
        }
    }

    /// Waits for the time of the next look, for news of the nodes, or for the end of a look at everything. Meanwhile,
    /// `if_well`, parts are freed as soon as what is done for them ends.
    async fn until_next_look(&mut self, mut if_well: bool) {
        let next_look = Instant::now() + LOOK_EVERY;
        loop {
            tokio::select! {
                () = sleep_until(next_look) => return,
                changed = self.view.changed() => match changed {
                    Ok(()) => return,
                    Err(_) => pending::<()>().await,
                },
                listed = self.listing.ended() => return self.end_listing(listed, Instant::now()),
                () = sleep(ENDING_LOOK_EVERY), if if_well && self.holds() && !self.ending.is_empty() => {
                    if_well = went_well(self.release(Instant::now()).await.map(drop));
                }
            }
        }
    }

    fn holds(&self) -> bool {
        self.view.borrow().holds(Instant::now())
    }

    /// Takes and gives up what is due. After a failure the next look goes on.
    async fn look(&mut self, now: Instant) -> Result<(), DbError> {
        let began = Instant::now();
        // Before all that may take its time: the parts of a node that has died wait. If it fails once more, those that the
        // change before has brought do not.
        let taken = self.take(now).await;
        if self.is_unsure {
            let node = self.node.clone();
            let own = self.pool.read(move |db| held_parts::of_node(db, &node)).await?;
            self.is_unsure = false;
            self.keep_only(&own);
            self.hold(own);
        }
        taken?;
        if self.release(now).await? {
            self.take(now).await?;
        }
        while self.note().await? {
            self.take(now).await?;
        }
        if is_due(self.holders_read_at, HOLDERS_EVERY, now) {
            let holders = self.pool.read(held_parts::holders).await?;
            self.holders.send_if_modified(|known| {
                let has_changed = *known != holders;
                *known = holders;
                has_changed
            });
            self.holders_read_at = Some(now);
        }
        self.begin_moves(now, now + began.elapsed());
        self.listing.begin_if_due(&self.pool, self.seat.held.borrow().keys(), now);
        Ok(())
    }

    fn end_listing(&mut self, ListedParts { missing, unneeded }: ListedParts, now: Instant) {
        self.unnoted.extend(missing);
        self.give_up(unneeded, now);
        self.is_unsure = true;
    }

    /// Notes some of the parts that are wanted, for all nodes to see; true if there were any.
    async fn note(&mut self) -> Result<bool, DbError> {
        while let Ok(part) = self.seat.wanted.try_recv() {
            self.unnoted.insert(part);
        }
        let parts: BTreeSet<PartId> = self.unnoted.iter().take(AT_ONCE).cloned().collect();
        if parts.is_empty() {
            return Ok(false);
        }
        let (noted, now) = (parts.clone(), self.clock.now());
        self.pool.write(move |db| held_parts::note(db, &noted, now)).await?;
        self.unnoted.retain(|part| !parts.contains(part));
        Ok(true)
    }

    /// Lets others take the parts for which nothing is done here any longer; true if there were any.
    async fn release(&mut self, now: Instant) -> Result<bool, DbError> {
        let ended = self.ending.iter().filter(|part| part.has_ended(now));
        // The numbers of a deleted part begin again: not while its right is used.
        let ended = ended.map(|part| (Fence::clone(&part.fence), part.is_unneeded && part.is_unused()));
        // In the order in which all nodes change them.
        let ended: BTreeMap<Fence, bool> = ended.collect();
        if ended.is_empty() {
            return Ok(false);
        }
        let (given_up, now) = (ended.clone(), self.clock.now());
        self.pool.write(move |db| needed_parts::give_up(db, given_up, now)).await?;
        self.ending.retain(|part| !ended.contains_key(&*part.fence));
        Ok(true)
    }

    /// Gives up the parts that neither this look at everything has found nor the one before: a pairing that is just being made
    /// may have noted its part.
    fn give_up(&mut self, unneeded: BTreeSet<PartId>, now: Instant) {
        let before = std::mem::replace(&mut self.unneeded, unneeded);
        let twice: BTreeSet<PartId> = &before & &self.unneeded;
        self.end_parts(&twice, true, now);
    }

    fn end_parts(&mut self, parts: &BTreeSet<PartId>, is_unneeded: bool, now: Instant) {
        if parts.is_empty() {
            return;
        }
        self.seat.held.send_modify(|held| {
            let given_up = parts.iter().filter_map(|part| held.remove(part));
            self.ending.extend(given_up.map(|fence| EndingPart { fence, since: now, is_unneeded }));
        });
    }

    /// Takes the parts that belong here and that no live node has.
    async fn take(&mut self, now: Instant) -> Result<(), DbError> {
        let NodeView { live, gone, .. } = self.view.borrow().clone();
        let lost = gone.clone();
        let untaken = self.pool.read(move |db| held_parts::untaken(db, &lost)).await?;
        self.note_untaken(&untaken, now);
        let here = untaken.into_iter().filter(|part| place(part, &live) == Some(&self.node));
        let here: Vec<PartId> = here.collect();
        for parts in here.chunks(AT_ONCE) {
            if !self.holds() {
                return Ok(());
            }
            let parts: BTreeSet<PartId> = parts.iter().cloned().collect();
            let (gone, node, now) = (gone.clone(), self.node.clone(), self.clock.now());
            let was_unsure = std::mem::replace(&mut self.is_unsure, true);
            let taken = self.pool.write(move |db| held_parts::take(db, &parts, &gone, &node, now)).await?;
            self.is_unsure = was_unsure;
            self.hold(taken);
        }
        Ok(())
    }

    fn note_untaken(&mut self, untaken: &[PartId], now: Instant) {
        let before = std::mem::take(&mut self.untaken);
        let since = |part: &PartId| before.get(part).copied().unwrap_or(now);
        self.untaken = untaken.iter().map(|part| (part.clone(), since(part))).collect();
        self.seat.untaken_since.send_replace(self.untaken.values().min().copied());
    }

    /// By the database, this node has no other parts than these. A database that lost its last changes, when a standby took
    /// its place, may have given some to others.
    fn keep_only(&self, own: &[Fence]) {
        let own: BTreeSet<&Fence> = own.iter().collect();
        self.seat.held.send_if_modified(|held| {
            let before = held.len();
            held.retain(|_, fence| own.contains(&&**fence));
            held.len() < before
        });
    }

    /// This node has these parts by the database, perhaps since long ago.
    fn hold(&self, mut parts: Vec<Fence>) {
        parts.retain(|fence| !self.ending.iter().any(|ending| *ending.fence == *fence));
        self.seat.held.send_if_modified(|held| {
            parts.retain(|fence| held.get(&fence.part).is_none_or(|known| **known != *fence));
            let has_changed = !parts.is_empty();
            held.extend(parts.into_iter().map(|fence| (fence.part.clone(), Arc::new(fence))));
            has_changed
        });
    }

    /// Gives up some of the parts that belong at another node. At the end of a slow look that is later than `now`.
    fn begin_moves(&mut self, now: Instant, given_up_at: Instant) {
        let live = self.view.borrow().live.clone();
        let begin = self.moves.begin(live, now, |live| {
            let held = self.seat.held.borrow();
            held.keys().filter(|part| place(part, live) != Some(&self.node)).cloned().collect()
        });
        self.end_parts(&begin.into_iter().collect(), false, given_up_at);
    }
}

/// True if it went well. A failure is in the log.
fn went_well(done: Result<(), DbError>) -> bool {
    if let Err(error) = &done {
        log_failure("parts of the service may have no node", error);
    }
    done.is_ok()
}

/// True if this was not done for so long.
fn is_due(done_at: Option<Instant>, every: Duration, now: Instant) -> bool {
    done_at.is_none_or(|at| now.saturating_duration_since(at) >= every)
}

/// Completes when the lease of this node, which it may not have yet, has ended.
async fn lease_ended(view: &mut watch::Receiver<NodeView>) {
    if view.wait_for(|view| view.holds_until.is_some()).await.is_err() {
        return;
    }
    loop {
        let until = view.borrow_and_update().holds_until.filter(|until| Instant::now() < *until);
        let Some(until) = until else { return };
        if let Ok(Err(_)) = timeout_at(until, view.changed()).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
