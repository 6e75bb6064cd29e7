//! The connection of this node to NATS, which mends itself and has a deadline for everything.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, ConnectOptions, Event, ServerAddr, ServerInfo};
use rustls::ClientConfig;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{OLDEST_NATS, nats_version},
    domain::backoff::jittered,
};

/// Time for a connection, and for the answer to a request.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// A connection that does not answer two of these is made again: within half a lease.
const PING_EVERY: Duration = Duration::from_secs(2);
/// Messages that wait for the connection, and for each part of this process that receives some.
const WAITING: usize = 2_048;
/// Pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Way to the servers of NATS. It does not print itself: an address may have a password.
#[derive(Clone)]
pub struct NatsAccess {
    /// All of them: those that a server names are not used, as their addresses may be in no certificate.
    pub servers: Vec<ServerAddr>,
    /// The text of a credentials file: a JWT and the seed of its key.
    pub credentials: Option<SecretString>,
    /// For servers that want TLS.
    pub tls: Arc<ClientConfig>,
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    #[error("NATS_CREDENTIALS is not what `nsc` writes into a credentials file")]
    Credentials,
    #[error("NATS does not answer, or refuses this node: {0}")]
    Refused(String),
    #[error("NATS is version {0}, and {oldest}.{newer} or later is needed", oldest = OLDEST_NATS.0, newer = OLDEST_NATS.1)]
    TooOld(String),
    #[error("NATS runs without JetStream: start its servers with `-js`")]
    NoJetStream,
}

/// Connects, once. From then on the connection is made again whenever it ends. `random` makes pauses of many nodes differ.
pub async fn connect(access: &NatsAccess, random: u8) -> Result<Client, NatsError> {
    let pause = move |attempts: usize| {
        let doubled = FIRST_PAUSE.saturating_mul(1 << attempts.min(8));
        jittered(doubled.min(LONGEST_PAUSE), random)
    };
    let mut options = ConnectOptions::new()
        .name("companion")
        .tls_client_config((*access.tls).clone())
        .ignore_discovered_servers()
        .connection_timeout(ANSWERED_WITHIN)
        .request_timeout(Some(ANSWERED_WITHIN))
        .ping_interval(PING_EVERY)
        .client_capacity(WAITING)
        .subscription_capacity(WAITING)
        .reconnect_delay_callback(pause)
        .event_callback(|event| async move { report(&event) });
    if let Some(credentials) = &access.credentials {
        options = options.credentials(credentials.expose_secret()).map_err(|_| NatsError::Credentials)?;
    }
    let connected = options.connect(&access.servers).await;
    let client = connected.map_err(|error| NatsError::Refused(error.to_string()))?;
    check(&client.server_info())?;
    Ok(client)
}

/// Fails if this server cannot do what is needed.
fn check(server: &ServerInfo) -> Result<(), NatsError> {
    if nats_version(&server.version).is_none_or(|version| version < OLDEST_NATS) {
        return Err(NatsError::TooOld(server.version.clone()));
    }
    match server.jetstream {
        true => Ok(()),
        false => Err(NatsError::NoJetStream),
    }
}

fn report(event: &Event) {
    match event {
        Event::Connected => log::info!("this node is connected to NATS"),
        Event::Disconnected => log::warn!("the connection of this node to NATS has ended, and is made again"),
        event => log::warn!("the connection of this node to NATS: {event}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(version: &str, jetstream: bool) -> ServerInfo {
        ServerInfo { version: version.to_owned(), jetstream, ..ServerInfo::default() }
    }

    #[test]
    fn a_server_is_new_enough_and_has_jetstream() {
        for version in ["2.11.0", "2.15.1", "3.0.0-beta.1", "v2.11.4"] {
            assert!(check(&server(version, true)).is_ok(), "{version}");
        }
        for version in ["2.9.10", "2.10.29", "1.4.1", "", "newest"] {
            assert!(matches!(check(&server(version, true)), Err(NatsError::TooOld(_))), "{version}");
        }
        assert!(matches!(check(&server("2.15.1", false)), Err(NatsError::NoJetStream)));
        let shown = NatsError::TooOld("2.9.10".to_owned()).to_string();
        assert_eq!(shown, "NATS is version 2.9.10, and 2.11 or later is needed");
    }
}
