//! The two listeners, how many connections clients may have of them, and the servers that accept these.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use actix_server::ServerBuilder;
use actix_web::{dev, web};
use socket2::{Domain, Protocol, Socket, Type};

use super::start_error::StartError;
use crate::{
    api::{self, context::ApiContext},
    config::Listen,
    net::{
        connections::{ConnectionLimits, Connections, SPARE},
        descriptors,
    },
    relay::{self, listener::ListenerContext},
};

/// Time that requests under way may take when the process stops, seconds.
const DRAIN: u64 = 5;
/// Connections of one worker that are accepted only to be refused.
const SURPLUS: usize = 4;

/// Connections that the kernel accepts before we do: as many as come back at once after a restart.
const BACKLOG: i32 = 4_096;

/// Both, bound.
pub struct Listeners {
    pub api: TcpListener,
    pub api_addr: SocketAddr,
    pub relay: TcpListener,
    pub relay_addr: SocketAddr,
}

impl Listeners {
    /// Binds both, or names the variable of the one that cannot be.
    pub fn bind(listen: &Listen) -> Result<Self, StartError> {
        let (api, api_addr) = bind("API_LISTEN", listen.api)?;
        let (relay, relay_addr) = bind("RELAY_LISTEN", listen.relay)?;
        Ok(Self { api, api_addr, relay, relay_addr })
    }
}

/// Open connections of clients, and the servers that accept no more than these.
pub struct Doors {
    workers: usize,
    limits: ConnectionLimits,
    pub connections: Arc<Connections>,
    /// The connections of the relay that are no sockets yet.
    pub handshakes: Arc<Connections>,
}

impl Doors {
    /// Raises the limit of open files as far as the system allows, and divides it.
    pub fn new(listen: &Listen) -> Self {
        let workers = listen.workers.get();
        let limits = connection_limits(descriptors::raise_limit(), workers, listen.connections_per_address.get());
        Self {
            workers,
            limits,
            connections: Connections::new(limits, listen.trusted_proxies.clone()),
            handshakes: Connections::new(handshake_limits(limits), listen.trusted_proxies.clone()),
        }
    }

    /// Starts both servers.
    pub fn open(
        &self,
        listeners: Listeners,
        context: &web::Data<ApiContext>,
        relay_context: ListenerContext,
    ) -> Result<(dev::Server, actix_server::Server), StartError> {
        let Listeners { api, api_addr, relay, relay_addr } = listeners;
        let builder = self.builder(self.limits.total + SPARE);
        let api = api::bind(builder, api, self.connections.clone(), context.clone())
            .map_err(|cause| StartError::Bind { variable: "API_LISTEN", address: api_addr, cause })?
            .run();
        log::info!("the API listens on http://{api_addr}");
        // Open sockets are not among these, only handshakes.
        let builder = self.builder(handshake_limits(self.limits).total);
        let relay = relay::listener::bind(builder, relay, relay_context)
            .map_err(|cause| StartError::Bind { variable: "RELAY_LISTEN", address: relay_addr, cause })?
            .run();
        log::info!("the relay listens on ws://{relay_addr}");
        Ok((api, relay))
    }

    /// A server with at most this number of connections. Beyond it none is refused: refusing needs a descriptor, too. The kernel
    /// keeps new connections.
    fn builder(&self, connections: usize) -> ServerBuilder {
        let builder = actix_server::Server::build().workers(self.workers).disable_signals().shutdown_timeout(DRAIN);
        builder.max_concurrent_connections(connections.div_ceil(self.workers) + SURPLUS)
    }
}

/// The connections that this limit of open files leaves to clients. One address never has more than half of it.
fn connection_limits(open_files: usize, workers: usize, wanted: usize) -> ConnectionLimits {
    let total = descriptors::for_clients(open_files, workers);
    let limits = ConnectionLimits { total, per_client_network: wanted.min(total / 2), from_loopback: total / 2 };
    let per_client_network = limits.per_client_network;
    if per_client_network < wanted {
        let needed = descriptors::limit_for(wanted.saturating_mul(2), workers);
        log::warn!(
            "the limit of {open_files} open files leaves {total} for connections of clients, and {per_client_network} for \
             those of one address instead of the {wanted} of CONNECTIONS_PER_ADDRESS; raise it to {needed} or more \
             (ulimit -n, LimitNOFILE=), or lower CONNECTIONS_PER_ADDRESS"
        );
    } else {
        log::info!(
            "clients may have {total} connections of {open_files} open files, {per_client_network} from one address"
        );
    }
    limits
}

/// The share of these connections that may be about to become sockets. One address never makes the others wait.
fn handshake_limits(connections: ConnectionLimits) -> ConnectionLimits {
    let total = connections.total / 4;
    ConnectionLimits { total, per_client_network: (total / 8).max(2), from_loopback: (total / 2).max(2) }
}

/// Binds one of the two listeners.
fn bind(variable: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |cause| StartError::Bind { variable, address, cause };
    let listen = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restart does not wait for the last connections of the process before it.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        Ok((listener.local_addr()?, listener))
    };
    let (bound, listener) = listen().map_err(failed)?;
    Ok((listener, bound))
}
