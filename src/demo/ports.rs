//! The ports of a demo, one after the other.

use std::net::{Ipv4Addr, TcpListener};

/// A port is in use by another program.
#[derive(Debug, thiserror::Error)]
#[error(
    "--port {port} takes the ports {port} to {}, and {taken} (of {whose}) is in use; another --port, or --port 0 for \
     free ones, helps", port + 10
)]
pub struct PortTaken {
    port: u16,
    taken: u16,
    whose: &'static str,
}

/// Before anything starts: a port in use is reported by the number that was asked for.
pub fn are_free(port: u16) -> Result<(), PortTaken> {
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
    for (whose, taken) in TAKEN_BY.into_iter().zip(port..) {
        if port != 0 && TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).is_err() {
            return Err(PortTaken { port, taken, whose });
        }
    }
    Ok(())
}
