//! The two listeners.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    thread,
};

use crate::config::check::{Check, given};

/// The listeners, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct ListenSettings {
    /// Address and port of the HTTP API
    #[arg(long, env, default_value = "127.0.0.1:8080")]
    pub api_listen: String,
    /// Address and port of the WebSocket relay
    #[arg(long, env, default_value = "127.0.0.1:8081")]
    pub relay_listen: String,
    /// Worker threads of each listener [default: one per core]
    #[arg(long, env)]
    pub workers: Option<String>,
    /// Comma-separated addresses of reverse proxies whose X-Forwarded-For is trusted
    #[arg(long, env)]
    pub trusted_proxies: Option<String>,
}

/// The listeners.
#[derive(Clone, Debug)]
pub struct Listen {
    pub api: SocketAddr,
    pub relay: SocketAddr,
    /// Threads of each listener.
    pub workers: NonZeroUsize,
    pub trusted_proxies: Vec<IpAddr>,
}

impl ListenSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Listen> {
        let api = check.parse("API_LISTEN", &self.api_listen, "an address and port");
        let relay = check.parse("RELAY_LISTEN", &self.relay_listen, "an address and port");
        let workers = match given(self.workers) {
            Some(workers) => check.parse("WORKERS", &workers, "a number from 1"),
            None => Some(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        };
        let proxies = self.trusted_proxies.unwrap_or_default();
        let proxies = proxies.split(',').map(str::trim).filter(|address| !address.is_empty());
        let trusted_proxies: Option<Vec<IpAddr>> = proxies.map(|address| address.parse().ok()).collect();
        if trusted_proxies.is_none() {
            check.fault("TRUSTED_PROXIES", "is not a comma-separated list of IP addresses");
        }
        Some(Listen { api: api?, relay: relay?, workers: workers?, trusted_proxies: trusted_proxies? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_proxies_are_separated_by_commas() {
        let settings = ListenSettings {
            api_listen: " 127.0.0.1:0".into(),
            relay_listen: "[::1]:0".into(),
            workers: Some(" 3 ".into()),
            trusted_proxies: Some("10.0.0.1, ::1,".into()),
        };
        let listen = settings.check(&mut Check::default()).unwrap();
        assert_eq!(listen.trusted_proxies, ["10.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
        assert_eq!((listen.workers.get(), listen.relay.port()), (3, 0));
    }
}
