//! A connection as the relay and the game link use it.

use std::{
    io,
    net::{Shutdown, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use crate::net::memory::Memory;

/// A connection to a client or a game server.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Memory(Memory),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<Memory> for Stream {
    fn from(stream: Memory) -> Self {
        Self::Memory(stream)
    }
}

impl Stream {
    /// Writes what fits without waiting; [`io::ErrorKind::WouldBlock`] if nothing does.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Memory(stream) => stream.try_write(bytes),
        }
    }

    /// Address of the other end, if it has one.
    pub fn peer(&self) -> Option<SocketAddr> {
        let Self::Tcp(stream) = self else { return None };
        let peer = stream.peer_addr().ok()?;
        Some(SocketAddr::new(peer.ip().to_canonical(), peer.port()))
    }

    /// Reads what writing will read, so that it is in the processor's cache by then.
    pub fn read_ahead(&self) {
        if let Self::Tcp(stream) = self {
            // Writability is kept in memory of its own.
            let _ = stream.try_io(Interest::WRITABLE, || Ok(()));
        }
    }

    /// Ready when a write may succeed.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Memory(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Appends what has arrived, without waiting; 0 at the end of the stream.
    pub fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_buf(buffer),
            Self::Memory(stream) => stream.try_read_buf(buffer),
        }
    }

    /// Ready when a read may succeed.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Memory(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Ends our direction; the peer reads what was written, then the end.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
            Self::Memory(stream) => {
                stream.shutdown_write();
                Ok(())
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Memory(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Memory(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
