//! Whose a request is: its peer's, or that of whoever stands behind a reverse proxy that is trusted.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net};

/// The networks of the reverse proxies whose `X-Forwarded-For` counts. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Arc<[IpNet]>);

/// Why a text names no proxies.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProxies {
    #[error("has {0}, which is neither an IP address nor a network such as 10.0.0.0/8 or fd00::/8")]
    NotAnAddress(String),
    #[error("has {0}, whose address does not end where its prefix does; the network is {1}")]
    BitsBeyondPrefix(String, IpNet),
    #[error("has {0}, which is every address; name the proxies alone")]
    Everybody(String),
}

impl TrustedProxies {
    /// Reads addresses and networks, IPv4 and IPv6, separated by commas.
    pub fn parse(text: &str) -> Result<Self, InvalidProxies> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(parse_network).collect::<Result<_, _>>().map(Self)
    }

    /// Whether this is the address of one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client's address: the peer's, or, when the peer is a proxy, the last one in `X-Forwarded-For` that is not a
    /// proxy's. `forwarded` are the fields of that name in their order. What no proxy of ours has written is not read.
    pub fn client<'a>(&self, peer: IpAddr, forwarded: impl Iterator<Item = &'a str>) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.contain(client) {
            return client;
        }
        let hops: Vec<&str> = forwarded.flat_map(|field| field.split(',')).collect();
        for hop in hops.into_iter().rev() {
            let Some(address) = parse_hop(hop.trim()) else { break };
            client = address;
            if !self.contain(client) {
                break;
            }
        }
        client
    }
}

fn parse_network(text: &str) -> Result<IpNet, InvalidProxies> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let network: IpNet = text.parse().map_err(|_| InvalidProxies::NotAnAddress(text.to_owned()))?;
    if network.prefix_len() == 0 {
        return Err(InvalidProxies::Everybody(text.to_owned()));
    }
    if network.trunc() != network {
        return Err(InvalidProxies::BitsBeyondPrefix(text.to_owned(), network.trunc()));
    }
    // Peers are compared as IPv4 addresses where they are.
    let as_ipv4 = |v6: Ipv6Addr| Ipv4Net::new(v6.to_ipv4_mapped()?, network.prefix_len().checked_sub(96)?).ok();
    Ok(match network {
        IpNet::V6(v6) => as_ipv4(v6.addr()).map_or(network, IpNet::V4),
        IpNet::V4(_) => network,
    })
}

/// Some proxies write the port too, or the brackets without one.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    address.ok().map(|address| address.to_canonical())
}

/// Those who share a budget: an IPv4 address, or an IPv6 /64, which one household has for itself.
pub fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str], trusted: &str) -> String {
        let trusted = TrustedProxies::parse(trusted).unwrap();
        trusted.client(peer.parse().unwrap(), forwarded.iter().copied()).to_string()
    }

    #[test]
    fn forwarded_addresses_count_only_from_trusted_proxies() {
        assert_eq!(client("203.0.113.9", &["198.51.100.1"], ""), "203.0.113.9");
        assert_eq!(client("203.0.113.9", &["198.51.100.1"], "10.0.0.1"), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["198.51.100.1"], "10.0.0.1"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "10.0.0.1"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.1, 10.0.0.2"], "10.0.0.1,10.0.0.2"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "198.51.100.1"], "10.0.0.1"), "198.51.100.1");
        assert_eq!(client("::ffff:10.0.0.1", &["198.51.100.1"], "10.0.0.1"), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["nonsense"], "10.0.0.1"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, nonsense, 10.0.0.2"], "10.0.0.0/8"), "10.0.0.2");
        assert_eq!(client("10.0.0.1", &[], "10.0.0.1"), "10.0.0.1");
    }

    #[test]
    fn a_chain_of_proxies_is_walked_from_its_end() {
        let trusted = "10.0.0.0/8, fd00::/8, ::ffff:172.16.0.0/108";
        assert_eq!(client("10.9.8.7", &["1.1.1.1, 198.51.100.1, fd00::2, 10.1.1.1"], trusted), "198.51.100.1");
        assert_eq!(client("fd00::1", &["1.1.1.1, 2001:db8::5", "172.16.3.4"], trusted), "2001:db8::5");
        assert_eq!(client("10.9.8.7", &["1.1.1.1, 198.51.100.1:4711, [fd00::2]:443"], trusted), "198.51.100.1");
        assert_eq!(client("10.9.8.7", &["1.1.1.1, [2001:db8::5], [fd00::2]"], trusted), "2001:db8::5");
        assert_eq!(client("10.9.8.7", &["10.2.2.2, 10.3.3.3"], trusted), "10.2.2.2", "all are ours");
        assert_eq!(client("11.0.0.1", &["198.51.100.1"], trusted), "11.0.0.1");
    }

    #[test]
    fn proxies_that_cannot_be_meant_are_refused() {
        let refused = |text: &str| TrustedProxies::parse(text).unwrap_err().to_string();
        for wrong in ["proxy.example.org", "10.0.0.0/33", "fd00::/129", "10.0.0.1/", "10.0.0", "10.0.0.1 10.0.0.2"] {
            assert!(refused(wrong).starts_with(&format!("has {wrong}, which is neither")), "{wrong}");
        }
        assert!(refused("::1, 10.0.0.1/8").ends_with("the network is 10.0.0.0/8"));
        assert!(refused("0.0.0.0/0").contains("every address"));
        assert!(refused("::/0").contains("every address"));
        assert!(TrustedProxies::parse(" 10.0.0.1, ::1,").is_ok() && TrustedProxies::parse("").is_ok());
    }

    #[test]
    fn all_addresses_of_an_ipv6_64_are_one_household() {
        let household_of = |text: &str| household(text.parse().unwrap()).to_string();
        assert_eq!(household_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(household_of("203.0.113.9"), "203.0.113.9");
        assert_eq!(household_of("::ffff:203.0.113.9"), "203.0.113.9");
    }
}
