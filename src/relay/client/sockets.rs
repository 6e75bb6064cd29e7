//! The open sockets of one worker thread, by number. One task with one timer serves those whose turn has come, and
//! another one pings them all.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use slab::Slab;
use tokio::{
    task::yield_now,
    time::{MissedTickBehavior, interval, sleep_until},
};

use crate::{
    domain::ids::UserId,
    net::Stream,
    panics::{self, Part},
    relay::{
        client::socket::{PONG_DEADLINE, Socket, SocketThread, with_read_ahead},
        wire::send_counts::SendCounts,
    },
};

/// Sockets that are served before others on this thread get a turn: about two milliseconds of writing.
pub const BATCH: usize = 256;

/// Seconds between two pings of a socket; those of the same remainder are pinged together. Its pong may take ten.
const HEARTBEAT: usize = 25;
const PONG_WITHIN: usize = PONG_DEADLINE as usize / 1_000;

/// See the module.
pub struct Sockets {
    thread: Rc<SocketThread>,
    open: RefCell<Slab<Rc<Socket>>>,
}

impl Sockets {
    /// None yet; starts the tasks on this thread. What goes out is counted here.
    pub fn start(counts: Arc<SendCounts>) -> Rc<Self> {
        let thread = SocketThread::new(counts);
        let sockets = Rc::new(Self { thread: thread.clone(), open: RefCell::default() });
        actix::spawn(serve_turns(thread, Rc::downgrade(&sockets)));
        actix::spawn(ping_in_turn(Rc::downgrade(&sockets)));
        sockets
    }

    /// A socket that owns this stream from after the handshake, in which permessage-deflate was agreed or was not.
    pub fn open(&self, user: UserId, stream: Stream, deflates: bool) -> Rc<Socket> {
        let mut open = self.open.borrow_mut();
        let entry = open.vacant_entry();
        let number = u32::try_from(entry.key()).expect("a process has fewer sockets");
        entry.insert(Socket::new(self.thread.clone(), number, user, stream, deflates)).clone()
    }

    /// Forgets a socket, whose number may then be another's.
    pub fn remove(&self, socket: &Socket) {
        self.open.borrow_mut().try_remove(socket.number as usize);
    }

    /// The sockets of these numbers that are there, in order.
    pub fn of(&self, numbers: &[u32]) -> Vec<Rc<Socket>> {
        let open = self.open.borrow();
        numbers.iter().filter_map(|number| open.get(*number as usize).cloned()).collect()
    }

    /// Calls this for the sockets of these numbers, for some before others on this thread get a turn. One that fails is
    /// given up, and takes no other with it.
    async fn call_for(&self, numbers: &[u32], call: impl Fn(&Socket)) {
        for numbers in numbers.chunks(BATCH) {
            for socket in with_read_ahead(&self.of(numbers)) {
                if panics::caught_at_once(Part::RelaySocket, socket.user.as_str(), || call(socket)).is_none() {
                    socket.give_up();
                }
            }
            yield_now().await;
        }
    }

    /// The numbers of all sockets that are pinged at this second.
    fn of_second(&self, second: usize) -> Vec<u32> {
        let numbers = second % HEARTBEAT..self.open.borrow().capacity();
        numbers.step_by(HEARTBEAT).map(|number| number as u32).collect()
    }
}

async fn serve_turns(thread: Rc<SocketThread>, sockets: Weak<Sockets>) {
    loop {
        match thread.first_turn() {
            None => thread.earlier_turn().await,
            Some(at) => tokio::select! {
                () = sleep_until(at) => {}
                () = thread.earlier_turn() => continue,
            },
        }
        let Some(sockets) = sockets.upgrade() else { return };
        while let Some(due) = thread.take_due() {
            sockets.call_for(&due, Socket::take_turn).await;
        }
    }
}

async fn ping_in_turn(sockets: Weak<Sockets>) {
    let mut seconds = interval(Duration::from_secs(1));
    // None is shorter than a second, so that no pong has less time.
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for second in HEARTBEAT.. {
        seconds.tick().await;
        let Some(sockets) = sockets.upgrade() else { return };
        sockets.call_for(&sockets.of_second(second - PONG_WITHIN), Socket::drop_if_dead).await;
        sockets.call_for(&sockets.of_second(second), Socket::ping).await;
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use futures_util::{StreamExt as _, future::join_all};
    use tokio::{io::AsyncReadExt as _, runtime::Builder, task::LocalSet, time::Instant};

    use super::*;
    use crate::{
        net::Memory,
        relay::{
            client::{
                frame_budget::Millis,
                socket::{GOODBYE_DEADLINE, Inbound},
            },
            wire::{
                close::{PING, Reason},
                frame::SharedFrame,
                publication::Lane,
            },
        },
    };

    #[test]
    fn a_socket_that_overflows_is_over_after_the_goodbye_deadline_whatever_its_peer_does() {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            for room in [1, 1 << 20] {
                let sockets = Sockets::start(Arc::default());
                let (ours, _peer) = Memory::pair(room);
                let socket = sockets.open("alice".into(), ours.into(), false);
                let mut inbound = Inbound::new(socket.clone(), BytesMut::new());
                let began = Instant::now();
                let filling = async {
                    tokio::task::yield_now().await;
                    while socket.closing().is_none() {
                        socket.push(Lane::Raid, SharedFrame::from(Bytes::from_static(b"raid")));
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    frame = inbound.next() => assert!(frame.is_none(), "it ends"),
                    () = filling => {}
                }
                assert_eq!(socket.closing(), Some(Reason::TooSlow));
                assert_eq!(began.elapsed().as_millis() as Millis, GOODBYE_DEADLINE, "room {room}");
            }
        });
    }

    #[test]
    fn a_client_is_pinged_within_25_s_and_dropped_10_s_after_a_ping_that_it_does_not_answer() {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let sockets = Sockets::start(Arc::default());
            // More than are called without a pause.
            let connected: Vec<_> = (0..30 * BATCH)
                .map(|_| {
                    let (ours, theirs) = Memory::pair(1 << 10);
                    let socket = sockets.open("alice".into(), ours.into(), false);
                    (Inbound::new(socket.clone(), BytesMut::new()), theirs, socket)
                })
                .collect();
            let began = Instant::now();
            let all = connected.into_iter().map(|(mut inbound, mut peer, socket)| async move {
                let answering = async {
                    let mut pings = [0; 8];
                    for _ in 0..2 {
                        peer.read_exact(&mut pings[..2]).await.expect("a ping");
                        assert_eq!(pings[..2], PING[..]);
                        socket.heard();
                    }
                    assert!((25..50).contains(&began.elapsed().as_secs()));
                    peer.read_exact(&mut pings[..2]).await.expect("a ping that it does not answer");
                    Instant::now()
                };
                let (ended, last_ping) = tokio::join!(inbound.next(), answering);
                assert!(ended.is_none());
                assert_eq!(last_ping.elapsed().as_millis() as Millis, PONG_DEADLINE);
            });
            join_all(all).await;
        });
    }
}
