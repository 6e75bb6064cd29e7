//! The ports of a demo, one after the other.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

/// Ports after that of the API: those of the relay and of each neighbour.
const NEXT: u16 = 10;

/// Reasons for which a demo does not have the ports that it was asked to take.
#[derive(Debug, thiserror::Error)]
pub enum PortRefused {
    #[error(
        "--port {port} takes the ports {port} to {last}, and {taken} (of {whose}) is in use; another --port, or --port 0 for \
         free ones, helps"
    )]
    Taken { port: u16, last: u16, taken: u16, whose: String },
    #[error(
        "--port {port} is too high for {nodes} nodes: there are no ports after 65535; a lower one, or --port 0, helps"
    )]
    TooHigh { port: u16, nodes: u16 },
}

/// Before anything starts: a port in use is reported by the number that was asked for.
pub fn are_free(port: u16, nodes: u16) -> Result<(), PortRefused> {
    const TAKEN_BY: [&str; 11] = [
        "the API",
        "the relay",
        "the game server",
        "the identity provider",
        "the push service",
        "the player-statistics service",
        "the payment provider",
        "the chat platform",
        "the sites of a registration",
        "the phone",
        "the push service of a browser",
    ];
    if port == 0 {
        return Ok(());
    }
    let of_nodes =
        (2..=nodes).flat_map(|node| [format!("the API of node {node}"), format!("the relay of node {node}")]);
    let last = port.checked_add(NEXT + 2 * nodes.saturating_sub(1)).ok_or(PortRefused::TooHigh { port, nodes })?;
    for (whose, taken) in TAKEN_BY.map(str::to_owned).into_iter().chain(of_nodes).zip(port..=last) {
        if TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).is_err() {
            return Err(PortRefused::Taken { port, last, taken, whose });
        }
    }
    Ok(())
}

/// Ports of the API and the relay of each node, and that of NATS. Those that are free now are another program's if that is
/// quicker.
pub fn of_nodes(port: u16, nodes: u16) -> io::Result<(Vec<[u16; 2]>, u16)> {
    let mut free = Vec::new();
    let mut listeners = Vec::new();
    for _ in 0..=2 * nodes {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        free.push(listener.local_addr()?.port());
        // Until all are known, so that they differ.
        listeners.push(listener);
    }
    let of_nodes = match port {
        0 => free[1..].chunks_exact(2).map(|ports| [ports[0], ports[1]]).collect(),
        port => {
            let first = |node: u16| if node == 0 { port } else { port + NEXT - 1 + 2 * node };
            (0..nodes).map(|node| [first(node), first(node) + 1]).collect()
        }
    };
    Ok((of_nodes, free[0]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn further_nodes_have_the_ports_after_those_of_the_neighbours() {
        let (ports, _) = of_nodes(8080, 3).unwrap();
        assert_eq!(ports, [[8080, 8081], [8091, 8092], [8093, 8094]]);
        let (ports, nats) = of_nodes(0, 9).unwrap();
        let different: BTreeSet<u16> = ports.iter().flatten().copied().chain([nats]).collect();
        assert_eq!((ports.len(), different.len()), (9, 19));
    }

    #[test]
    fn a_port_after_the_last_one_is_refused() {
        let refused = are_free(65525, 9).unwrap_err().to_string();
        assert!(refused.starts_with("--port 65525 is too high for 9 nodes"), "{refused}");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port() - 11;
        match are_free(port, 2).unwrap_err() {
            PortRefused::Taken { last, taken, .. } => assert!(last == port + 12 && taken <= last),
            refused => panic!("{refused}"),
        }
    }
}
