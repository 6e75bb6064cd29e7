//! Connections to others: over the system's network, or over a simulated one. Handed down, like the clock.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::LocalBoxFuture;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::net::{memory::Memory, names::Names, stream::Stream};

/// Connects a simulated network: host and port to our end of a connection.
pub type Dial = dyn Fn(&str, u16) -> LocalBoxFuture<'static, io::Result<Memory>> + Send + Sync;

/// See the module. Clones share it.
#[derive(Clone)]
pub struct Network(NetworkKind);

#[derive(Clone)]
enum NetworkKind {
    System(Names),
    Simulated(Arc<Dial>),
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

/// Failure of a connection.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("the address could not be resolved: {0}")]
    Unresolved(io::Error),
    #[error("the address is not a public one")]
    AddressRefused,
    #[error("no connection: {0}")]
    Unreachable(io::Error),
}

impl Network {
    /// The system's network. Its look-ups are its own: the names of game servers hold up no others.
    pub fn system() -> Self {
        Self::resolving(Names::system())
    }

    /// The system's network, with names looked up there.
    pub fn resolving(names: Names) -> Self {
        Self(NetworkKind::System(names))
    }

    /// A simulated network. It has neither names nor private addresses: nothing is resolved or refused.
    pub fn simulated(dial: Arc<Dial>) -> Self {
        Self(NetworkKind::Simulated(dial))
    }

    /// Connects. A name is resolved once, and only addresses that passed `allowed` are connected to, in turn.
    pub async fn connect(
        &self,
        host: &str,
        port: u16,
        allowed: impl Fn(IpAddr) -> bool,
    ) -> Result<Stream, NetworkError> {
        let addresses = self.find(host, port, allowed).await?;
        self.connect_from(None, host, port, &addresses).await
    }

    /// Addresses of a host, of which each has passed `allowed`; none in a simulated network.
    pub async fn find(
        &self,
        host: &str,
        port: u16,
        allowed: impl Fn(IpAddr) -> bool,
    ) -> Result<Vec<SocketAddr>, NetworkError> {
        match &self.0 {
            NetworkKind::System(names) => find(names, host, port, allowed).await,
            NetworkKind::Simulated(_) => Ok(Vec::new()),
        }
    }

    /// Connects to what [`Self::find`] found, in turn. `own`: the address of ours to do so from, if its family is that of
    /// the peer; none: the system chooses.
    pub async fn connect_from(
        &self,
        own: Option<IpAddr>,
        host: &str,
        port: u16,
        addresses: &[SocketAddr],
    ) -> Result<Stream, NetworkError> {
        match &self.0 {
            NetworkKind::System(_) => Ok(connect_tcp(own, addresses).await?.into()),
            NetworkKind::Simulated(dial) => Ok(dial(host, port).await.map_err(NetworkError::Unreachable)?.into()),
        }
    }

    /// Connects, and makes sure by TLS that the peer is `host`.
    pub async fn connect_secure(
        &self,
        host: &str,
        port: u16,
        tls: Arc<ClientConfig>,
    ) -> Result<SecureStream, NetworkError> {
        match &self.0 {
            NetworkKind::System(names) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| NetworkError::Unresolved(io::ErrorKind::InvalidInput.into()))?;
                let stream = connect_tcp(None, &find(names, host, port, |_| true).await?).await?;
                let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(NetworkError::Unreachable)?;
                Ok(SecureStream(Secure::Tls(Box::new(stream))))
            }
            NetworkKind::Simulated(dial) => {
                Ok(SecureStream(Secure::Memory(dial(host, port).await.map_err(NetworkError::Unreachable)?)))
            }
        }
    }
}

async fn find(
    names: &Names,
    host: &str,
    port: u16,
    allowed: impl Fn(IpAddr) -> bool,
) -> Result<Vec<SocketAddr>, NetworkError> {
    let mut addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => names.look_up(host, port).await.map_err(NetworkError::Unresolved)?,
    };
    addresses.retain(|address| allowed(address.ip()));
    if addresses.is_empty() { Err(NetworkError::AddressRefused) } else { Ok(addresses) }
}

/// Every address has passed the check: the next one may answer where this one does not.
async fn connect_tcp(own: Option<IpAddr>, addresses: &[SocketAddr]) -> Result<TcpStream, NetworkError> {
    let mut failure = NetworkError::AddressRefused;
    for address in addresses {
        match connect_to(own, *address).await {
            Ok(stream) => {
                // Messages are small; without it they are only slower.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            // Its kind in words; the operating system's number helps no user.
            Err(error) => failure = NetworkError::Unreachable(error.kind().into()),
        }
    }
    Err(failure)
}

#[allow(clippy::disallowed_methods, reason = "the one place that connects")]
async fn connect_to(own: Option<IpAddr>, address: SocketAddr) -> io::Result<TcpStream> {
    let Some(own) = own.filter(|own| own.is_ipv4() == address.is_ipv4()) else {
        return TcpStream::connect(address).await;
    };
    let socket = if own.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(own, 0))?;
    socket.connect(address).await
}

/// A stream whose peer is proven and that has no other reader: TLS over TCP, or within this process. Only a simulated
/// network makes one without TLS.
#[derive(Debug)]
pub struct SecureStream(Secure);

#[derive(Debug)]
enum Secure {
    Tls(Box<TlsStream<TcpStream>>),
    Memory(Memory),
}

impl AsyncRead for SecureStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Secure::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Secure::Memory(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Secure::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Secure::Memory(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Secure::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Secure::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Secure::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Secure::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_not_allowed_is_not_connected_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let network = Network::system();
        for host in ["127.0.0.1", "localhost"] {
            let refused = network.connect(host, port, |_| false).await;
            assert!(matches!(refused, Err(NetworkError::AddressRefused)), "{host}: {refused:?}");
        }
        assert!(matches!(network.connect("127.0.0.1", port, |_| true).await, Ok(Stream::Tcp(_))));
    }
}
