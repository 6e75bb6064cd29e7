//! The two listeners, and how many connections clients may have of them.

use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::start_error::StartError;
use crate::{
    config::Listen,
    net::{connections::ConnectionLimits, descriptors},
};

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
    pub fn bind(listen: &Listen) -> Result<Self, StartError> {
        let (api, api_addr) = bind("API_LISTEN", listen.api)?;
        let (relay, relay_addr) = bind("RELAY_LISTEN", listen.relay)?;
        Ok(Self { api, api_addr, relay, relay_addr })
    }
}

/// The connections that this limit of open files leaves to clients. One address never has more than half of it.
pub fn connection_limits(open_files: usize, workers: usize, wanted: usize) -> ConnectionLimits {
    let total = descriptors::for_clients(open_files, workers);
    let limits = ConnectionLimits { total, per_household: wanted.min(total / 2), from_loopback: total / 2 };
    let per_household = limits.per_household;
    if per_household < wanted {
        let needed = descriptors::limit_for(wanted.saturating_mul(2), workers);
        log::warn!(
            "the limit of {open_files} open files leaves {total} for connections of clients, and {per_household} for \
             those of one address instead of the {wanted} of CONNECTIONS_PER_ADDRESS; raise it to {needed} or more \
             (ulimit -n, LimitNOFILE=), or lower CONNECTIONS_PER_ADDRESS"
        );
    } else {
        log::info!("clients may have {total} connections of {open_files} open files, {per_household} from one address");
    }
    limits
}

/// The share of these connections that may be about to become sockets. One address never makes the others wait.
pub fn handshake_limits(connections: ConnectionLimits) -> ConnectionLimits {
    let total = connections.total / 4;
    ConnectionLimits { total, per_household: (total / 8).max(2), from_loopback: (total / 2).max(2) }
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
