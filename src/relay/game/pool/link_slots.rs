//! Turns of links at game servers that take no more, of the whole process; see
//! [`domain::link_slots`](crate::domain::link_slots). A link has its slot from before it is made until it has ended.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::TimeDelta;
use futures_util::future::OptionFuture;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::wake::Wake;
use crate::{
    clock::Clock,
    domain::{
        ids::GameServerId,
        link_slots::{Claim, SlotChange, SlotNumber, Slots},
        time::{Moment, Timestamp},
    },
};

/// A need that grows or falls is noticed within this time.
const CLAIMS_LOOKED_AT: Duration = Duration::from_secs(5);
/// A time by which a turn comes is said once more when it is off by this.
const EXPECTED_ABOUT: TimeDelta = TimeDelta::seconds(15);

/// See the module.
pub struct LinkSlots {
    per_address: usize,
    /// Our addresses; none: the system chooses.
    addresses: Vec<IpAddr>,
    clock: Clock,
    /// Zero of the steady time.
    origin: Instant,
    /// Game servers with slots so far.
    begun: AtomicU64,
    servers: Mutex<HashMap<GameServerId, ServerSlots>>,
}

struct ServerSlots {
    slots: Slots,
    /// Our addresses of the game server's family.
    addresses: Vec<IpAddr>,
    links: HashMap<SlotNumber, Signal>,
}

struct Signal {
    wake: Arc<Wake>,
    /// A user waits for it.
    is_acting: bool,
    turn: watch::Sender<SlotTurn>,
}

/// The turn of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotTurn {
    /// Others are up; by when it is expected.
    Waits(Timestamp),
    /// The link may be made, from this address of ours; none: the system chooses.
    Granted(Option<IpAddr>),
    /// The link has to end, as others wait.
    GivenUp,
}

/// A slot, or a place among those who wait.
pub struct LinkSlot {
    held: HeldSlot,
    turn: watch::Receiver<SlotTurn>,
}

/// Dropping it gives the slot back.
pub struct HeldSlot {
    slots: Arc<LinkSlots>,
    at: GameServerId,
    number: SlotNumber,
}

/// Reports that the link of a slot has to end.
pub struct SlotEnd(watch::Receiver<SlotTurn>);

impl fmt::Debug for LinkSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSlots")
    }
}

/// Slots of all game servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUsage {
    pub open: usize,
    pub waiting: usize,
}

impl LinkSlots {
    /// All free. `per_address`: links that a game server takes from each of these addresses of ours.
    pub fn new(per_address: usize, addresses: Vec<IpAddr>, clock: Clock) -> Self {
        let (begun, servers) = Default::default();
        Self { per_address, addresses, clock, origin: Instant::now(), begun, servers }
    }

    /// True if a link to this game server need not wait, and takes the turn of no other.
    pub fn has_room(&self, at: &GameServerId) -> bool {
        self.lock().get(at).is_none_or(|server| server.slots.has_room())
    }

    /// A slot at this game server, or a place in the queue. `peer`: its address, if it is known. `instead_of`: a user
    /// waits for this link, which takes the slot of that one over unless there is room.
    pub fn ask(
        self: &Arc<Self>,
        at: &GameServerId,
        peer: Option<SocketAddr>,
        wake: Arc<Wake>,
        instead_of: Option<SlotNumber>,
    ) -> LinkSlot {
        let mut servers = self.lock();
        let server = servers.entry(at.clone()).or_insert_with(|| {
            let is_family = |own: &&IpAddr| peer.is_none_or(|peer| peer.is_ipv4() == own.is_ipv4());
            let addresses: Vec<IpAddr> = self.addresses.iter().filter(is_family).copied().collect();
            // A number is of one slot at one game server.
            let last = self.begun.fetch_add(1, Ordering::Relaxed) << 32;
            let slots = Slots::new(self.per_address, addresses.len().max(1), last);
            ServerSlots { slots, addresses, links: HashMap::new() }
        });
        let is_acting = instead_of.is_some();
        let claim = if is_acting { Claim::Acting } else { wake.claim() };
        let number = server.slots.ask(claim, instead_of, self.now());
        let (turn, is_turn) = watch::channel(SlotTurn::Waits(self.clock.now()));
        server.links.insert(number, Signal { wake, is_acting, turn });
        server.look(self.now());
        LinkSlot { held: HeldSlot { slots: self.clone(), at: at.clone(), number }, turn: is_turn }
    }

    /// Links that are up or are made, and those that wait.
    pub fn usage(&self) -> SlotUsage {
        self.lock().values().map(|server| server.slots.usage()).fold(SlotUsage::default(), |sum, (open, waiting)| {
            SlotUsage { open: sum.open + open, waiting: sum.waiting + waiting }
        })
    }

    fn now(&self) -> Moment {
        Moment::new(TimeDelta::from_std(self.origin.elapsed()).unwrap_or(TimeDelta::MAX), self.clock.now())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GameServerId, ServerSlots>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all changes follow that are due; the time until the next ones.
    fn look(&self, at: &GameServerId) -> Option<Duration> {
        let mut servers = self.lock();
        let server = servers.get_mut(at)?;
        server.look(self.now())
    }

    fn leave(&self, at: &GameServerId, number: SlotNumber) {
        let mut servers = self.lock();
        let Some(server) = servers.get_mut(at) else { return };
        server.slots.leave(number);
        server.links.remove(&number);
        if server.slots.is_unused() {
            servers.remove(at);
        } else {
            server.look(self.now());
        }
    }
}

impl ServerSlots {
    fn look(&mut self, now: Moment) -> Option<Duration> {
        for (number, Signal { wake, is_acting, turn }) in &self.links {
            let waits = matches!(*turn.borrow(), SlotTurn::Waits(_));
            self.slots.claim(*number, if *is_acting && waits { Claim::Acting } else { wake.claim() });
        }
        for change in self.slots.changes(now) {
            self.signal(change);
        }
        for (number, expected) in self.slots.expected(now) {
            if let Some(Signal { turn, .. }) = self.links.get(&number) {
                // The time moves with the clock: each who waits would wake all others.
                let is_known = matches!(*turn.borrow(), SlotTurn::Waits(known) if is_about(known, expected.stamp));
                if !is_known {
                    turn.send_replace(SlotTurn::Waits(expected.stamp));
                }
            }
        }
        self.slots.next_change_at(now).map(|next| (next - now).to_std().unwrap_or_default())
    }

    fn signal(&self, change: SlotChange) {
        let (number, turn) = match change {
            SlotChange::Granted(number, place) => (number, SlotTurn::Granted(self.addresses.get(place).copied())),
            SlotChange::GivenUp(number) => (number, SlotTurn::GivenUp),
        };
        if let Some(signal) = self.links.get(&number) {
            signal.turn.send_replace(turn);
        }
    }
}

fn is_about(known: Timestamp, expected: Timestamp) -> bool {
    (known - expected).abs() < EXPECTED_ABOUT
}

impl LinkSlot {
    /// The turn now.
    pub fn turn(&mut self) -> SlotTurn {
        *self.turn.borrow_and_update()
    }

    /// Completes when the turn is another one than was seen last. Those who wait see to it that all happens that is due.
    pub async fn changed(&mut self) {
        loop {
            let HeldSlot { slots, at, .. } = &self.held;
            let due = OptionFuture::from(slots.look(at).map(|due| sleep(due.min(CLAIMS_LOOKED_AT))));
            tokio::select! {
                biased;
                // The sender lives as long as the slot.
                _ = self.turn.changed() => return,
                Some(()) = due => {}
            }
        }
    }

    /// The slot for as long as the link lives, its number, and its end.
    pub fn hold(self) -> (HeldSlot, SlotNumber, SlotEnd) {
        let number = self.held.number;
        (self.held, number, SlotEnd(self.turn))
    }
}

impl SlotEnd {
    /// Completes when the link has to end.
    pub async fn given_up(&mut self) {
        if self.0.wait_for(|turn| *turn == SlotTurn::GivenUp).await.is_err() {
            // The slot was given back: the link has ended.
            std::future::pending().await
        }
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.slots.leave(&self.at, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn slots(per_address: usize, addresses: &[[u8; 4]]) -> Arc<LinkSlots> {
        let addresses = addresses.iter().map(|own| IpAddr::from(*own)).collect();
        Arc::new(LinkSlots::new(per_address, addresses, Clock::system()))
    }

    fn ask(slots: &Arc<LinkSlots>, wake: &Arc<Wake>, instead_of: Option<SlotNumber>) -> LinkSlot {
        let peer = SocketAddr::from(([203, 0, 113, 7], 28_082));
        slots.ask(&GameServerId::at("203.0.113.7", 28_082), Some(peer), wake.clone(), instead_of)
    }

    fn granted(own: [u8; 4]) -> SlotTurn {
        SlotTurn::Granted(Some(Ipv4Addr::from(own).into()))
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_take_turns_of_a_minute() {
        let (slots, wake) = (slots(1, &[[127, 0, 0, 2], [127, 0, 0, 3]]), Arc::new(Wake::default()));
        let (mut first, mut second) = (ask(&slots, &wake, None), ask(&slots, &wake, None));
        assert_eq!([first.turn(), second.turn()], [granted([127, 0, 0, 2]), granted([127, 0, 0, 3])]);
        assert_eq!(slots.usage(), SlotUsage { open: 2, waiting: 0 });
        let mut third = ask(&slots, &wake, None);
        let began = Instant::now();
        let (held, _, mut end) = first.hold();
        let given_up = async {
            end.given_up().await;
            assert_eq!(began.elapsed().as_secs(), 60);
            drop(held);
        };
        let waited = async {
            while !matches!(third.turn(), SlotTurn::Granted(_)) {
                third.changed().await;
            }
            third.turn()
        };
        assert_eq!(tokio::join!(given_up, waited).1, granted([127, 0, 0, 2]));
        drop((second, third));
        assert_eq!(slots.usage(), SlotUsage::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_who_waits_takes_the_slot_of_the_mate_whose_link_reads() {
        let (slots, wake) = (slots(1, &[]), Arc::new(Wake::default()));
        let mut mate = ask(&slots, &wake, None);
        assert_eq!(mate.turn(), SlotTurn::Granted(None));
        let (held, number, mut end) = mate.hold();
        sleep(Duration::from_secs(2)).await;
        let mut stranger = ask(&slots, &wake, None);
        let mut own = ask(&slots, &wake, Some(number));
        end.given_up().await;
        assert!(matches!(own.turn(), SlotTurn::Waits(_)));
        drop(held);
        assert_eq!(own.turn(), SlotTurn::Granted(None));
        assert!(matches!(stranger.turn(), SlotTurn::Waits(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_watched_while_it_waits_goes_before_one_that_is_not() {
        let (slots, wakes) = (slots(1, &[]), [(); 3].map(|()| Arc::new(Wake::default())));
        let first = ask(&slots, &wakes[0], None);
        let (mut second, mut third) = (ask(&slots, &wakes[1], None), ask(&slots, &wakes[2], None));
        wakes[2].watch(true);
        drop(first);
        assert!(matches!(second.turn(), SlotTurn::Waits(_)));
        assert_eq!(third.turn(), SlotTurn::Granted(None));
    }
}
