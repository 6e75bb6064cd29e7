//! A client's connection while it speaks HTTP, with the deadlines that the HTTP server leaves out.
//!
//! The server limits the time of the first head of a connection and of idleness. What it leaves out is here: the head of
//! every later request, and an answer that its client does not read.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Instant,
};

use crate::{
    domain::limits::{ANSWER_STALL, HEAD_DEADLINE},
    net::{connections::ConnectionPermit, timer::Timer},
};

/// See the module.
#[derive(Debug)]
pub struct HttpStream {
    stream: TcpStream,
    permit: ConnectionPermit,
    /// While it has not become another protocol.
    _handshake: Option<ConnectionPermit>,
    exchanges: Rc<Exchanges>,
    head: Timer,
    answer: Timer,
    /// Since when the client takes nothing.
    answer_due: Option<Instant>,
}

/// The requests and answers of one connection.
#[derive(Debug, Default)]
pub struct Exchanges {
    under_way: Cell<usize>,
    /// There was a request before.
    served: Cell<bool>,
    /// When the head must be whole of which some bytes have come.
    head_due: Cell<Option<Instant>>,
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
        UnderWay(self)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

impl HttpStream {
    pub fn new(stream: TcpStream, permit: ConnectionPermit) -> Self {
        let exchanges = Rc::default();
        let (head, answer) = (Timer::default(), Timer::default());
        Self { stream, permit, _handshake: None, exchanges, head, answer, answer_due: None }
    }

    /// Holds this permit, too, until it speaks another protocol.
    pub fn during_handshake(self, permit: Option<ConnectionPermit>) -> Self {
        Self { _handshake: permit, ..self }
    }

    pub fn exchanges(&self) -> Rc<Exchanges> {
        self.exchanges.clone()
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        match (&read, exchanges.head_due.get()) {
            // Nothing read is the end: what has come of the head is given up.
            (Poll::Pending, Some(due)) => this.head.poll(due, cx).map(Ok),
            (Poll::Ready(Ok(())), None) => {
                let between = exchanges.served.get() && exchanges.under_way.get() == 0;
                if between && buffer.filled().len() > before {
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
    };

    use super::*;
    use crate::{
        domain::client_address::TrustedProxies,
        net::connections::{ConnectionLimits, Connections},
    };

    /// Our end and the client's.
    async fn connected() -> (HttpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let limits = ConnectionLimits { total: 1, per_household: 1, from_loopback: 1 };
        let permit = Connections::new(limits, TrustedProxies::default()).admit(peer.ip()).unwrap();
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
    async fn while_a_request_is_answered_more_of_it_may_come_late() {
        let (mut stream, mut client) = connected().await;
        let _under_way = stream.exchanges().begin();
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
