//! Addresses of the public internet. Those of game servers and channels come from outside and are untrusted: none may
//! make this service call its own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True if the address belongs to the public internet (IANA special-purpose registries, RFC 6890).
///
/// Resolve a name once, check **every** address with this, and connect to the one that was checked.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0, ..] => true,             // this network
        [100, 64..=127, ..] => true, // carrier-grade NAT
        [192, 0, 0, _] => true,      // protocol assignments
        [192, 88, 99, _] => true,    // 6to4 relays, deprecated
        [168, 63, 129, 16] => true,  // services of Azure to its machines
        [198, 18..=19, ..] => true,  // benchmarks
        [224..=255, ..] => true,     // multicast, reserved, broadcast
        _ => false,
    };
    !(special || address.is_private() || address.is_loopback() || address.is_link_local() || address.is_documentation())
}

/// Only 2000::/3 is given out for global unicast. That leaves out the unspecified and loopback addresses, unique local,
/// link-local, multicast, and every form that carries an IPv4 address (mapped, compatible, NAT64) below it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let global_unicast = segments[0] & 0xe000 == 0x2000;
    let special = match segments {
        [0x2001, 0..=0x1ff, ..] => true, // protocol assignments: Teredo, benchmarks, ORCHID
        [0x2001, 0xdb8, ..] => true,     // documentation
        [0x2002, ..] => true,            // 6to4, carries an IPv4 address
        [0x3fff, 0..=0xfff, ..] => true, // documentation
        _ => false,
    };
    global_unicast && !special
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::is_public;

    fn check(addresses: &[&str], expected: bool) {
        for text in addresses {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(is_public(address), expected, "{text}");
        }
    }

    #[test]
    fn public_addresses_pass() {
        check(
            &[
                "1.1.1.1",
                "8.8.8.8",
                "100.63.255.255",
                "100.128.0.0",
                "172.15.255.255",
                "172.32.0.1",
                "168.63.129.15",
                "168.63.129.17",
                "192.0.1.1",
                "192.167.1.1",
                "198.17.255.255",
                "198.20.0.0",
                "223.255.255.255",
                "2600::1",
                "2001:200::1",
                "2001:4860:4860::8888",
                "2a01:4f8::1",
            ],
            true,
        );
    }

    #[test]
    fn our_own_network_is_refused() {
        check(
            &[
                "0.0.0.0",
                "0.1.2.3",
                "10.0.0.1",
                "10.255.255.255",
                "100.64.0.0",
                "100.127.255.255",
                "127.0.0.1",
                "127.255.255.254",
                "169.254.169.254",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.0.1",
                "::",
                "::1",
                "fc00::1",
                "fd12:3456::1",
                "fe80::1",
                "fec0::1",
            ],
            false,
        );
    }

    #[test]
    fn special_ranges_are_refused() {
        check(
            &[
                "192.0.0.1",
                "192.0.2.1",
                "192.88.99.1",
                "168.63.129.16",
                "198.18.0.1",
                "198.19.255.255",
                "198.51.100.1",
                "203.0.113.1",
                "224.0.0.1",
                "239.255.255.250",
                "240.0.0.1",
                "255.255.255.255",
                "ff02::1",
                "100::1",
                "2001::1",
                "2001:2::1",
                "2001:10::1",
                "2001:20::1",
                "2001:db8::1",
                "3fff::1",
                "5f00::1",
            ],
            false,
        );
    }

    #[test]
    fn an_ipv4_address_inside_an_ipv6_address_is_refused_whatever_it_is() {
        check(
            &[
                "::ffff:127.0.0.1",
                "::ffff:8.8.8.8",
                "::ffff:169.254.169.254",
                "::127.0.0.1",
                "::ffff:0:127.0.0.1",
                "64:ff9b::10.0.0.1",
                "64:ff9b:1::10.0.0.1",
                "2002:7f00:1::1",
            ],
            false,
        );
    }

    proptest! {
        #[test]
        fn no_mapped_address_passes(bits in any::<u32>()) {
            prop_assert!(!is_public(IpAddr::V6(Ipv4Addr::from(bits).to_ipv6_mapped())));
            prop_assert!(!is_public(IpAddr::V6(Ipv4Addr::from(bits).to_ipv6_compatible())));
        }
    }
}
