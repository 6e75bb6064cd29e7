//! A client's connection while it speaks HTTP, with the deadlines that the HTTP server leaves out.
//!
//! The server limits the time of the first head of a connection and of idleness. What it leaves out is here: the head of
//! every later request, an answer that its client does not read, and a request that is answered before it is read to its
//! end: there the server has a deadline, which is lost when the thread was busy for longer than that. The head of a spare
//! connection has less time, so that one that asks nothing soon makes room.
//!
//! And it is not given more requests than it should hold. The server decodes whatever it has read, up to 128 KiB, and a
//! request of 25 bytes takes kilobytes of memory until it is answered. So it gets little at once, and while it answers a
//! request nothing but what that request's handler waits for.

use std::{
    cell::{Cell, RefCell},
    future::Future as _,
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::oneshot,
    time::Instant,
};

use crate::{
    domain::limits::{ANSWER_STALL, HEAD_DEADLINE, SPARE_HEAD_DEADLINE},
    net::{connections::ConnectionPermit, timer::Timer},
};

/// Time that a client whose request is not read to its end may take to read the answer.
pub const LINGER: Duration = Duration::from_secs(1);
/// Bytes that the server gets at once: some dozen requests at the most.
const PIECE: usize = 512;

/// See the module.
#[derive(Debug)]
pub struct HttpStream {
    stream: TcpStream,
    permit: ConnectionPermit,
    /// While it has not become another protocol.
    _handshake: Option<ConnectionPermit>,
    exchanges: Rc<Exchanges>,
    /// The server has a piece that it did not decode yet.
    gave_piece: bool,
    head: Timer,
    answer: Timer,
    /// Since when the client takes nothing.
    answer_due: Option<Instant>,
}

/// The requests and answers of one connection.
#[derive(Debug, Default)]
pub struct Exchanges {
    under_way: Cell<usize>,
    /// A handler waits for more of a body.
    body_wanted: Cell<bool>,
    /// The task that serves the connection.
    server: RefCell<Option<Waker>>,
    /// There was a request before.
    served: Cell<bool>,
    /// When the head must be whole of which some bytes have come.
    head_due: Cell<Option<Instant>>,
    /// See [`Self::linger_due`].
    linger_due: Cell<Option<Instant>>,
    /// Ends a spare connection without a request yet: another one takes its place.
    displaced: RefCell<Option<oneshot::Receiver<()>>>,
}

/// A request whose answer is not yet written.
#[derive(Debug)]
pub struct UnderWay(Rc<Exchanges>);

impl Exchanges {
    /// The head of a request is whole.
    pub fn begin(self: Rc<Self>) -> UnderWay {
        self.under_way.set(self.under_way.get() + 1);
        self.served.set(true);
        self.head_due.set(None);
        self.displaced.take();
        UnderWay(self)
    }

    /// Sets whether a handler waits for more of its request's body, which is read then.
    pub fn want_body(&self, wanted: bool) {
        if !self.body_wanted.replace(wanted) && wanted {
            self.wake_server();
        }
    }

    /// When the connection ends, as a request is answered and not read to its end.
    pub fn linger_due(&self) -> Option<Instant> {
        self.linger_due.get()
    }

    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        self.server.borrow_mut().get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        match self.under_way.get() == 0 || self.body_wanted.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn poll_displaced(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.displaced.borrow_mut() {
            Some(displaced) => Pin::new(displaced).poll(cx).map(drop),
            None => Poll::Pending,
        }
    }

    /// Also what it has read and not decoded may be a request whose turn has come.
    fn wake_server(&self) {
        if let Some(server) = &*self.server.borrow() {
            server.wake_by_ref();
        }
    }
}

impl UnderWay {
    /// The request is answered, and is not read to its end: no other one follows.
    pub fn linger(&self) {
        self.0.linger_due.set(Some(Instant::now() + LINGER));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Self(exchanges) = self;
        exchanges.under_way.set(exchanges.under_way.get() - 1);
        exchanges.body_wanted.set(false);
        exchanges.wake_server();
    }
}

impl HttpStream {
    pub(crate) fn new(stream: TcpStream, mut permit: ConnectionPermit) -> Self {
        let exchanges = Rc::<Exchanges>::default();
        if permit.is_spare() {
            exchanges.head_due.set(Some(Instant::now() + SPARE_HEAD_DEADLINE));
            exchanges.displaced.replace(permit.take_displaced());
        }
        let (head, answer) = (Timer::default(), Timer::default());
        Self { stream, permit, _handshake: None, exchanges, gave_piece: false, head, answer, answer_due: None }
    }

    /// Holds this permit, too, until it speaks another protocol.
    pub fn during_handshake(self, permit: Option<ConnectionPermit>) -> Self {
        Self { _handshake: permit, ..self }
    }

    /// The requests and answers on this stream, which the service counts.
    pub fn exchanges(&self) -> Rc<Exchanges> {
        self.exchanges.clone()
    }

    /// True for a connection that is only for the operator's questions.
    pub fn is_spare(&self) -> bool {
        self.permit.is_spare()
    }

    /// The connection, for another protocol.
    pub fn into_parts(self) -> (TcpStream, ConnectionPermit) {
        (self.stream, self.permit)
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let exchanges = &this.exchanges;
        ready!(exchanges.poll_readable(cx));
        if mem::take(&mut this.gave_piece) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(PIECE.min(buffer.remaining())));
        let read = Pin::new(&mut this.stream).poll_read(cx, &mut piece);
        let count = piece.filled().len();
        buffer.advance(count);
        this.gave_piece = count > 0;
        match (&read, exchanges.head_due.get()) {
            // Nothing read is the end: what has come of the head is given up.
            (Poll::Pending, Some(due)) => match exchanges.poll_displaced(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => this.head.poll(due, cx).map(Ok),
            },
            (Poll::Pending, None) => match exchanges.linger_due() {
                Some(due) => this.head.poll(due, cx).map(Ok),
                None => read,
            },
            (Poll::Ready(Ok(())), None) => {
                let between = exchanges.served.get() && exchanges.under_way.get() == 0;
                if between && count > 0 {
                    exchanges.head_due.set(Some(Instant::now() + HEAD_DEADLINE));
                }
                read
            }
            _ => read,
        }
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if written.is_ready() {
            this.answer_due = None;
            return written;
        }
        let due = *this.answer_due.get_or_insert_with(|| Instant::now() + ANSWER_STALL);
        this.answer.poll(due, cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::timeout,
    };

    use super::*;
    use crate::{
        domain::client_address::TrustedProxies,
        net::connections::{ConnectionLimits, Connections},
    };

    /// Our end and the client's.
    async fn connected() -> (HttpStream, TcpStream) {
        connected_of(1).await
    }

    /// A stream within a limit of `total` connections; with a limit of 0 it is a spare one.
    async fn connected_of(total: usize) -> (HttpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let limits = ConnectionLimits { total, per_client_network: 1, from_loopback: 1 };
        let permit = Connections::new(limits, TrustedProxies::default()).admit_or_spare(peer.ip()).unwrap();
        (HttpStream::new(stream, permit), client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_head_has_a_deadline() {
        let (mut stream, mut client) = connected().await;
        drop(stream.exchanges().begin());
        client.write_all(b"G").await.unwrap();
        let mut bytes = [0; 9];
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 1);
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 0, "given up");
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_answer_to_what_is_not_read_to_its_end_the_client_has_a_second() {
        let (mut stream, _client) = connected().await;
        let under_way = stream.exchanges().begin();
        under_way.linger();
        drop(under_way);
        let (began, mut bytes) = (Instant::now(), [0; 9]);
        let read = timeout(2 * LINGER, stream.read(&mut bytes)).await.expect("an end");
        assert_eq!((read.unwrap(), began.elapsed()), (0, LINGER));
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_connection_that_asks_nothing_makes_room_soon() {
        let (mut stream, mut client) = connected_of(0).await;
        let (began, mut bytes) = (Instant::now(), [0; 9]);
        client.write_all(b"G").await.unwrap();
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 1);
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 0, "given up");
        assert_eq!(began.elapsed(), SPARE_HEAD_DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_connection_that_asks_nothing_makes_room_for_others_of_its_network() {
        let limits = ConnectionLimits { total: 0, per_client_network: 1, from_loopback: 1 };
        let connections = Connections::new(limits, TrustedProxies::default());
        let (mut spare, mut clients) = (Vec::new(), Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..9 {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (stream, peer) = listener.accept().await.unwrap();
            spare.push(HttpStream::new(stream, connections.admit_or_spare(peer.ip()).unwrap()));
        }
        let (began, mut bytes) = (Instant::now(), [0; 9]);
        for displaced in &mut spare[..7] {
            assert_eq!(displaced.read(&mut bytes).await.unwrap(), 0);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        clients[8].write_all(b"G").await.unwrap();
        assert_eq!(spare[8].read(&mut bytes).await.unwrap(), 1);
        let _asked = [7, 8].map(|last: usize| spare[last].exchanges().begin());
        assert!(connections.admit_or_spare([127, 0, 0, 1].into()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_request_is_answered_more_of_it_may_come_late() {
        let (mut stream, mut client) = connected().await;
        let exchanges = stream.exchanges();
        let _under_way = exchanges.clone().begin();
        exchanges.want_body(true);
        client.write_all(b"a").await.unwrap();
        let mut bytes = [0; 9];
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 1);
        let later = async {
            tokio::time::sleep(2 * HEAD_DEADLINE).await;
            client.write_all(b"b").await.unwrap();
        };
        let (read, ()) = tokio::join!(stream.read(&mut bytes), later);
        assert_eq!(read.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_request_is_answered_no_more_is_read_than_its_handler_wants() {
        let (mut stream, mut client) = connected().await;
        client.write_all(&[b'a'; 9 * PIECE]).await.unwrap();
        let mut bytes = vec![0; 9 * PIECE];
        assert_eq!(stream.read(&mut bytes).await.unwrap(), PIECE, "a piece at once");
        let exchanges = stream.exchanges();
        let under_way = exchanges.clone().begin();
        let answering = async {
            tokio::time::sleep(HEAD_DEADLINE / 2).await;
            exchanges.want_body(true);
            tokio::time::sleep(HEAD_DEADLINE / 2).await;
            drop(under_way);
        };
        let before = Instant::now();
        let reading = async {
            for after in [HEAD_DEADLINE / 2, HEAD_DEADLINE] {
                assert_eq!(stream.read(&mut bytes).await.unwrap(), PIECE);
                assert_eq!(before.elapsed(), after);
                exchanges.want_body(false);
            }
        };
        tokio::join!(reading, answering);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (mut stream, _client) = connected().await;
        let failure = loop {
            if let Err(error) = stream.write_all(&[0; 64 * 1024]).await {
                break error;
            }
        };
        assert_eq!(failure.kind(), io::ErrorKind::TimedOut);
    }
}
