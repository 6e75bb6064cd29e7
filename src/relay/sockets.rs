//! The open sockets of one worker thread, by number. One task with one timer serves those whose turn has come.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Arc,
};

use slab::Slab;
use tokio::{task::yield_now, time::sleep_until};

use crate::{
    domain::ids::UserId,
    net::Stream,
    panics,
    relay::{
        close::Reason,
        send_counts::SendCounts,
        socket::{Socket, SocketThread},
    },
};

/// Sockets that are served before others on this thread get a turn: about two milliseconds of writing.
pub const BATCH: usize = 256;

/// See the module.
pub struct Sockets {
    thread: Rc<SocketThread>,
    open: RefCell<Slab<Rc<Socket>>>,
}

impl Sockets {
    /// None yet; starts the task on this thread. What goes out is counted here.
    pub fn start(counts: Arc<SendCounts>) -> Rc<Self> {
        let thread = SocketThread::new(counts);
        let sockets = Rc::new(Self { thread: thread.clone(), open: RefCell::default() });
        actix::spawn(serve_turns(thread, Rc::downgrade(&sockets)));
        sockets
    }

    /// A socket that owns this stream from after the handshake.
    pub fn open(&self, user: UserId, stream: Stream) -> Rc<Socket> {
        let mut open = self.open.borrow_mut();
        let entry = open.vacant_entry();
        let number = u32::try_from(entry.key()).expect("a process has fewer sockets");
        entry.insert(Socket::new(self.thread.clone(), number, user, stream)).clone()
    }

    /// Forgets a socket, whose number may then be another's.
    pub fn remove(&self, socket: &Socket) {
        self.open.borrow_mut().try_remove(socket.number as usize);
    }

    /// The socket of this number.
    pub fn get(&self, number: u32) -> Option<Rc<Socket>> {
        self.open.borrow().get(number as usize).cloned()
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
            for batch in due.chunks(BATCH) {
                for number in batch {
                    let Some(socket) = sockets.get(*number) else { continue };
                    // One that fails takes no other with it.
                    if panics::caught_at_once("relay_socket", socket.user.as_str(), || socket.take_turn()).is_none() {
                        socket.close(Reason::Failed);
                    }
                }
                yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use futures_util::StreamExt as _;
    use tokio::{runtime::Builder, task::LocalSet, time::Instant};

    use super::*;
    use crate::{
        net::Memory,
        relay::{
            frame_budget::Millis,
            publication::Lane,
            socket::{GOODBYE_DEADLINE, Inbound},
        },
    };

    #[test]
    fn a_socket_that_overflows_is_over_after_the_goodbye_deadline_whatever_its_peer_does() {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            for room in [1, 1 << 20] {
                let sockets = Sockets::start(Arc::default());
                let (ours, _peer) = Memory::pair(room);
                let socket = sockets.open("alice".into(), ours.into());
                let mut inbound = Inbound::new(socket.clone(), BytesMut::new());
                let began = Instant::now();
                let filling = async {
                    tokio::task::yield_now().await;
                    while socket.closing().is_none() {
                        socket.push(Lane::Raid, Bytes::from_static(b"raid"));
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
}
