//! The client address of a request: the peer's, or the one that a trusted reverse proxy reports.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net};

/// The networks of the reverse proxies whose `X-Forwarded-For` counts. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Arc<[IpNet]>);

/// Error in a list of proxies.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProxies {
    #[error("has {0}, which is neither an IP address nor a network such as 10.0.0.0/8 or fd00::/8")]
    NotAnAddress(String),
    #[error("has {0}, whose address does not end where its prefix does; the network is {1}")]
    BitsBeyondPrefix(String, IpNet),
    #[error("has {0}, which is every address; name the proxies alone")]
    Everybody(String),
    #[error("has networks that together are more than half of all addresses; name the proxies alone")]
    Most,
}

impl TrustedProxies {
    /// Reads addresses and networks, IPv4 and IPv6, separated by commas.
    pub fn parse(text: &str) -> Result<Self, InvalidProxies> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let networks = entries.map(parse_network).collect::<Result<Arc<[IpNet]>, _>>()?;
        if are_most(&networks) { Err(InvalidProxies::Most) } else { Ok(Self(networks)) }
    }

    /// True if this is the address of one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client's address: the peer's, or, when the peer is a proxy, the last one in `X-Forwarded-For` that is not a
    /// proxy's. `forwarded` are the fields of that name in their order. Only entries of trusted proxies are read.
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

/// True if these are more than half of the addresses of IPv4, or of those of IPv6 that are given out, which is
/// 2000::/3.
fn are_most(networks: &[IpNet]) -> bool {
    let bits = |network: IpNet| u128::from(network.max_prefix_len() - network.prefix_len());
    let is_given_out = |network: &IpNet| match network {
        IpNet::V4(_) => true,
        IpNet::V6(v6) => v6.prefix_len() < 3 || v6.addr().segments()[0] >> 13 == 1,
    };
    let sum = |is_v4: bool| -> u128 {
        let of_kind = |network: &IpNet| matches!(network, IpNet::V4(_)) == is_v4 && is_given_out(network);
        let kind = networks.iter().filter(|network| of_kind(network)).copied().collect();
        // Networks within others are counted once.
        IpNet::aggregate(&kind).into_iter().map(|network| 1_u128 << bits(network)).sum()
    };
    sum(true) > 1 << 31 || sum(false) > 1 << 124
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

/// The unit that shares a budget: an IPv4 address, or an IPv6 /64, which one client network has for itself.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

/// The network of an address, as a log names it: no client network, and enough to know where many requests come from.
pub fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(v4) => format!("{}/24", Ipv4Addr::from_bits(v4.to_bits() & !0xff)),
        IpAddr::V6(v6) => format!("{}/48", Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 48))),
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
    fn networks_that_are_most_of_all_addresses_are_no_proxies() {
        for most in [
            "0.0.0.0/1, 128.0.0.0/1",
            "0.0.0.0/1, 128.0.0.0/2",
            "::ffff:0.0.0.0/97, 128.0.0.0/8",
            "2000::/3",
            "2000::/4, 3000::/8",
            "::/1",
        ] {
            assert_eq!(TrustedProxies::parse(most), Err(InvalidProxies::Most), "{most}");
        }
        for some in ["0.0.0.0/1", "10.0.0.0/8, 10.1.0.0/16, 128.0.0.0/2, 128.0.0.0/3", "2000::/4", "fc00::/7", ""] {
            assert!(TrustedProxies::parse(some).is_ok(), "{some}");
        }
    }

    #[test]
    fn a_network_is_larger_than_a_client_network() {
        for (address, expected) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("::ffff:192.0.2.77", "192.0.2.0/24"),
            ("2001:db8:1:2:3::4", "2001:db8:1::/48"),
        ] {
            assert_eq!(network(address.parse().unwrap()), expected);
        }
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
    fn all_addresses_of_an_ipv6_64_are_one_client_network() {
        let network_of = |text: &str| client_network(text.parse().unwrap()).to_string();
        assert_eq!(network_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network_of("203.0.113.9"), "203.0.113.9");
        assert_eq!(network_of("::ffff:203.0.113.9"), "203.0.113.9");
    }
}
