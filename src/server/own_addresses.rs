//! Where this service itself is reached: no game server and no channel has these addresses, whatever its name leads to.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use actix_web::web;
use tokio::time::{MissedTickBehavior, interval};
use url::{Host, Url};

use crate::{api::context::ApiContext, net::Names};

/// Interfaces come and go.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Names lead elsewhere when the service moves: every ten minutes.
const LOOKS_PER_LOOK_UP: u64 = 10;

/// Says which addresses are the service's own, as long as it runs: where it listens, those of the machine's interfaces, and
/// where its public URLs lead.
pub async fn watch(context: web::Data<ApiContext>, listening: [SocketAddr; 2]) {
    let urls = &context.settings.urls;
    let names = Names::system();
    let listening = listening.map(|address| address.ip().to_canonical());
    // An address that cannot be read now stays as it was.
    let (mut of_machine, mut named, mut is_read) = (Vec::new(), Vec::new(), true);
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in 0_u64.. {
        ticks.tick().await;
        match web::block(interfaces).await.map_err(io::Error::other).flatten() {
            Ok(found) => (of_machine, is_read) = (found, true),
            Err(error) => {
                if is_read {
                    log::warn!("the addresses of this machine cannot be read, so that they are not refused: {error}");
                }
                is_read = false;
            }
        }
        // Before names are looked up, which may take seconds.
        context.limits.outbound.set_own([&listening[..], &of_machine, &named].concat());
        if look.is_multiple_of(LOOKS_PER_LOOK_UP) {
            named = look_up(&names, [Some(&*urls.base), urls.relay.as_deref()].into_iter().flatten(), &named).await;
            context.limits.outbound.set_own([&listening[..], &of_machine, &named].concat());
        }
    }
}

/// The addresses of all interfaces of this machine, or of its container. Blocks.
fn interfaces() -> io::Result<Vec<IpAddr>> {
    Ok(if_addrs::get_if_addrs()?.iter().map(|interface| interface.ip().to_canonical()).collect())
}

/// Where these URLs lead; to those of `before` as well while a name is not found.
async fn look_up(names: &Names, urls: impl Iterator<Item = &Url>, before: &[IpAddr]) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for url in urls {
        match url.host() {
            Some(Host::Domain(name)) => match names.look_up(name, 0).await {
                Ok(addresses) => found.extend(addresses.into_iter().map(|address| address.ip().to_canonical())),
                Err(_) => found.extend(before),
            },
            Some(Host::Ipv4(ip)) => found.push(ip.into()),
            Some(Host::Ipv6(ip)) => found.push(IpAddr::from(ip).to_canonical()),
            None => {}
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn the_interfaces_have_the_address_that_packets_leave_from() {
        let found = interfaces().unwrap();
        assert!(found.contains(&IpAddr::from([127, 0, 0, 1])), "{found:?}");
        assert!(found.iter().all(|address| *address == address.to_canonical()));
        // Nothing is sent: the route alone decides. Without one there is no other address.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let ours = socket.local_addr().unwrap().ip();
            assert!(found.contains(&ours), "{ours} {found:?}");
        }
    }

    #[tokio::test]
    async fn a_name_that_is_not_found_keeps_its_addresses() {
        let names = Names::resolved_by(|host, port| match host {
            "here.example" => Ok(vec![SocketAddr::new([8, 8, 8, 8].into(), port)]),
            _ => Err(io::ErrorKind::NotFound.into()),
        });
        let urls = ["https://here.example", "https://gone.example", "https://[2a01:4f8::1]"]
            .map(|url| Url::parse(url).unwrap());
        let [here, before, literal] = ["8.8.8.8", "9.9.9.9", "2a01:4f8::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(look_up(&names, urls.iter(), &[before]).await, [here, before, literal]);
        assert_eq!(look_up(&names, urls[..1].iter(), &[before]).await, [here]);
    }
}
