//! The two listeners.

use std::{net::SocketAddr, num::NonZeroUsize, thread};

use crate::{
    config::check::{Check, given},
    domain::{client_address::TrustedProxies, limits::CONNECTIONS_PER_ADDRESS},
};

/// The listeners, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct ListenSettings {
    /// Address and port of the HTTP API
    #[arg(long, env, default_value = "127.0.0.1:8080")]
    pub api_listen: String,
    /// Address and port of the WebSocket relay
    #[arg(long, env, default_value = "127.0.0.1:8081")]
    pub relay_listen: String,
    /// `true`: compress messages for WebSocket clients that offer it (permessage-deflate): less traffic, more CPU
    #[arg(long, env, default_value = "false")]
    pub relay_deflate: String,
    /// Worker threads of each listener [default: one per core]
    #[arg(long, env)]
    pub workers: Option<String>,
    /// Comma-separated addresses and networks (10.0.0.0/8) of reverse proxies whose X-Forwarded-For is trusted
    #[arg(long, env)]
    pub trusted_proxies: Option<String>,
    /// Open connections of one client address to both listeners [default: 1024]
    #[arg(long, env)]
    pub connections_per_address: Option<String>,
}

/// The listeners.
#[derive(Clone, Debug)]
pub struct Listen {
    pub api: SocketAddr,
    pub relay: SocketAddr,
    /// permessage-deflate is agreed with WebSocket clients that offer it.
    pub relay_deflate: bool,
    /// Threads of each listener.
    pub workers: NonZeroUsize,
    pub trusted_proxies: TrustedProxies,
    /// Open connections of one client address to both listeners.
    pub connections_per_address: NonZeroUsize,
}

impl ListenSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Listen> {
        let api: Option<SocketAddr> = check.parse("API_LISTEN", &self.api_listen, "an address and port");
        let relay: Option<SocketAddr> = check.parse("RELAY_LISTEN", &self.relay_listen, "an address and port");
        if let (Some(api), Some(relay)) = (api, relay)
            && api == relay
            && api.port() != 0
        {
            check.fault("API_LISTEN and RELAY_LISTEN", format!("are both {api}: each needs a port of its own"));
        }
        let relay_deflate = check.flag("RELAY_DEFLATE", &self.relay_deflate);
        let workers = match given(self.workers) {
            Some(workers) => check.parse("WORKERS", &workers, "a number from 1"),
            None => Some(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        };
        let trusted_proxies = given(self.trusted_proxies);
        if check.production && trusted_proxies.is_none() {
            check.warning(
                "TRUSTED_PROXIES",
                "names none: behind a reverse proxy, all clients then share the limits of one address",
            );
        }
        let trusted_proxies = TrustedProxies::parse(&trusted_proxies.unwrap_or_default());
        let trusted_proxies = trusted_proxies.map_err(|error| check.fault("TRUSTED_PROXIES", error)).ok();
        let connections_per_address = match given(self.connections_per_address) {
            Some(connections) => check.parse("CONNECTIONS_PER_ADDRESS", &connections, "a number from 1"),
            None => NonZeroUsize::new(CONNECTIONS_PER_ADDRESS),
        };
        Some(Listen {
            api: api?,
            relay: relay?,
            relay_deflate: relay_deflate?,
            workers: workers?,
            trusted_proxies: trusted_proxies?,
            connections_per_address: connections_per_address?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read() {
        let settings = ListenSettings {
            api_listen: " 127.0.0.1:0".into(),
            relay_listen: "[::1]:0".into(),
            relay_deflate: "true".into(),
            workers: Some(" 3 ".into()),
            trusted_proxies: Some("10.0.0.1, ::1,".into()),
            connections_per_address: Some(" 9 ".into()),
        };
        let listen = settings.check(&mut Check::default()).unwrap();
        assert!(listen.trusted_proxies.contain([10, 0, 0, 1].into()));
        assert_eq!(listen.connections_per_address.get(), 9);
        assert_eq!((listen.workers.get(), listen.relay.port(), listen.relay_deflate), (3, 0, true));
    }

    #[test]
    fn two_listeners_have_two_addresses_unless_the_system_chooses_the_ports() {
        for (port, faults) in [("8080", 1), ("0", 0)] {
            let settings = ListenSettings {
                api_listen: format!("127.0.0.1:{port}"),
                relay_listen: format!("127.0.0.1:{port}"),
                relay_deflate: "false".into(),
                workers: None,
                trusted_proxies: None,
                connections_per_address: None,
            };
            let mut check = Check::default();
            settings.check(&mut check);
            assert_eq!(check.faults.len(), faults, "{:?}", check.faults);
            assert!(check.faults.iter().all(|fault| fault.contains("API_LISTEN and RELAY_LISTEN")));
        }
    }
}
