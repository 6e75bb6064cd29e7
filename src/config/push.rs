//! The push service.

use std::str::FromStr;

use url::Host;

use crate::config::check::Check;

/// The push service, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct PushSettings {
    /// Host and port of the push service
    #[arg(long, env, default_value = "mtalk.google.com:5228")]
    pub push_address: String,
}

/// Where the push service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushAddress {
    /// Host name or IP address; the certificate must be for it.
    pub host: String,
    pub port: u16,
}

/// The text is not `host:port`; an IPv6 address is in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not host:port")]
pub struct NotHostAndPort;

impl FromStr for PushAddress {
    type Err = NotHostAndPort;

    fn from_str(text: &str) -> Result<Self, NotHostAndPort> {
        let (host, port) = text.rsplit_once(':').ok_or(NotHostAndPort)?;
        let host = match Host::parse(host).map_err(|_| NotHostAndPort)? {
            Host::Domain(name) => name,
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(NotHostAndPort)?;
        Ok(Self { host, port })
    }
}

impl PushSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<PushAddress> {
        check.parse("PUSH_ADDRESS", &self.push_address, "host:port")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let read = |text: &str| text.parse::<PushAddress>().map(|address| (address.host, address.port));
        assert_eq!(read("mtalk.google.com:5228"), Ok(("mtalk.google.com".to_owned(), 5228)));
        assert_eq!(read("[::1]:443"), Ok(("::1".to_owned(), 443)));
        for text in ["mtalk.google.com", "mtalk.google.com:65536", "mtalk.google.com:0", "a b:1", ":1", "::1:443"] {
            assert_eq!(read(text), Err(NotHostAndPort), "{text}");
        }
    }
}
