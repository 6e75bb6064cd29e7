//! The address of a game server, as it was typed or as a push message has it: a host name or an IP address.

use std::net::IpAddr;

use url::Host;

/// Longest name in the domain name system, characters.
const MAX_NAME: usize = 253;

/// A host name in lower case, or an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GameAddress {
    Name(String),
    Ip(IpAddr),
}

impl GameAddress {
    /// Reads a host name or an IP address (IPv6 with or without brackets), without a port. Spellings that a resolver
    /// would read as an IP address (`127.1`, `0x7f000001`) are read as that address. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Some(Self::Ip(ip.to_canonical()));
        }
        match Host::parse(text).ok()? {
            Host::Ipv4(ip) => Some(Self::Ip(IpAddr::V4(ip))),
            Host::Ipv6(ip) => Some(Self::Ip(IpAddr::V6(ip).to_canonical())),
            Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                let label = |label: &str| {
                    (1..=63).contains(&label.len())
                        && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
                };
                (name.len() <= MAX_NAME && name.split('.').all(label)).then(|| Self::Name(name.to_owned()))
            }
        }
    }

    /// True if this name can only mean the machine itself (RFC 6761 §6.3).
    pub fn is_localhost_name(&self) -> bool {
        matches!(self, Self::Name(name) if name == "localhost" || name.ends_with(".localhost"))
    }
}

impl std::fmt::Display for GameAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(ip) => write!(f, "{ip}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_spelling() {
        for (text, expected) in [
            ("Play.Example.com", "play.example.com"),
            (" play.example.com. ", "play.example.com"),
            ("203.0.113.9", "203.0.113.9"),
            ("127.1", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("2001:DB8::1", "2001:db8::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(GameAddress::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_host_is_refused() {
        for text in
            ["", ".", "a..b", "a b", "host:28083", "http://host", "host/path", "user@host", "a%00b", "256.1.1.1"]
        {
            assert_eq!(GameAddress::parse(text), None, "{text}");
        }
        assert_eq!(GameAddress::parse(&"a".repeat(64)), None);
        assert_eq!(GameAddress::parse(&vec!["a"; 130].join(".")), None);
    }

    #[test]
    fn localhost_is_known_by_name() {
        assert!(GameAddress::parse("LOCALHOST").unwrap().is_localhost_name());
        assert!(GameAddress::parse("a.localhost").unwrap().is_localhost_name());
        assert!(!GameAddress::parse("localhost.example").unwrap().is_localhost_name());
    }
}
