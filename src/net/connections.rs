//! Counts the connections that clients have open: in all, and from one client network. Both listeners count here.
//!
//! The peer of a connection is counted when it is accepted. A trusted proxy is no client network: it is counted in all
//! only, and those behind it are counted where a request says who they are: each request of the API while it is
//! answered, and each socket of the relay while it is open.
//!
//! Where all are taken, a few spare ones are left to the operator's questions: the service reports that it is full. A
//! client network that has its share of these gets another one in place of one on which it has asked nothing yet.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix_http::header::HeaderMap;
use tokio::sync::oneshot;

use crate::{
    domain::{
        client_address::{TrustedProxies, client_network},
        problem,
        time::Moment,
    },
    net::{refusals, unread_forwarding::UnreadForwarding},
};

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Spare connections.
pub const SPARE: usize = 8;
/// The share of one client network.
const SPARE_PER_HOUSEHOLD: usize = 2;

/// Limits of open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub total: usize,
    pub per_client_network: usize,
    /// From the machine itself: a proxy that is not configured comes from there, too.
    pub from_loopback: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Connections {
    limits: ConnectionLimits,
    proxies: TrustedProxies,
    open: Mutex<OpenConnections>,
    /// `X-Forwarded-For` of peers that are no proxies.
    pub unread_forwarding: UnreadForwarding,
}

#[derive(Debug, Default)]
struct OpenConnections {
    total: usize,
    by_client_network: HashMap<IpAddr, usize>,
    /// The oldest first.
    spare: Vec<SparePlace>,
    /// Spare connections that there were.
    numbered: u64,
}

/// A spare connection.
#[derive(Debug)]
struct SparePlace {
    number: u64,
    client_network: Option<IpAddr>,
    /// Ends the connection; closed once it has asked something.
    end: oneshot::Sender<()>,
}

/// Reasons against a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooManyConnections {
    /// The service has as many as it can.
    Service,
    /// This client network has as many as it may.
    Household,
}

impl TooManyConnections {
    /// Counts a connection from there that is refused, or ended for another one.
    pub fn count(self, from: IpAddr) {
        let (code, full) = match self {
            Self::Service => (problem::UNAVAILABLE.code, true),
            Self::Household => (problem::TOO_MANY_CONNECTIONS.code, false),
        };
        refusals::count_connection(code, full, from);
    }
}

/// The right to one connection; given back when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    /// Counted in all.
    whole: bool,
    /// The number of a spare connection.
    spare: Option<u64>,
    /// Ready when a spare connection has to end.
    displaced: Option<oneshot::Receiver<()>>,
    client_network: Option<IpAddr>,
}

impl Connections {
    /// No connections yet; of these peers, `X-Forwarded-For` counts.
    pub fn new(limits: ConnectionLimits, proxies: TrustedProxies) -> Arc<Self> {
        Arc::new(Self { limits, proxies, open: Mutex::default(), unread_forwarding: UnreadForwarding::default() })
    }

    /// For a connection from this peer.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<ConnectionPermit, TooManyConnections> {
        let client_network = (!self.proxies.contain(peer)).then(|| client_network(peer));
        self.permit(true, client_network)
    }

    /// [`admit`](Self::admit), or a spare connection where there is no other. The machine itself gets one also when it has
    /// as many as it may: a proxy that is not configured may hold them.
    pub fn admit_or_spare(self: &Arc<Self>, peer: IpAddr) -> Result<ConnectionPermit, TooManyConnections> {
        self.admit(peer).or_else(|crowded| match crowded {
            TooManyConnections::Household if !peer.to_canonical().is_loopback() => Err(crowded),
            _ => self.spare(peer, crowded).ok_or(crowded),
        })
    }

    fn spare(self: &Arc<Self>, peer: IpAddr, crowded: TooManyConnections) -> Option<ConnectionPermit> {
        let client_network = (!self.proxies.contain(peer)).then(|| client_network(peer));
        let mut open = self.open();
        let is_own = |place: &SparePlace| client_network.is_some() && place.client_network == client_network;
        if open.spare.iter().filter(|place| is_own(place)).count() >= SPARE_PER_HOUSEHOLD {
            let silent = open.spare.iter().position(|place| is_own(place) && !place.end.is_closed())?;
            // Perhaps it has ended by itself.
            let _ = open.spare.remove(silent).end.send(());
            crowded.count(peer);
        } else if open.spare.len() >= SPARE {
            return None;
        }
        let (end, displaced) = oneshot::channel();
        let number = open.numbered;
        open.numbered += 1;
        open.spare.push(SparePlace { number, client_network, end });
        let (spare, displaced) = (Some(number), Some(displaced));
        Some(ConnectionPermit { connections: self.clone(), whole: false, spare, displaced, client_network: None })
    }

    /// For what the client of a request with these headers has open behind a proxy; `None` where its connection is
    /// counted already.
    pub fn admit_forwarded(
        self: &Arc<Self>,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Option<ConnectionPermit>, TooManyConnections> {
        if !self.proxies.contain(peer) {
            return Ok(None);
        }
        let client = self.proxies.client(peer, forwarded_for(headers));
        // A proxy that does not name its client is not cut off for it.
        if self.proxies.contain(client) {
            return Ok(None);
        }
        self.permit(false, Some(client_network(client))).map(Some)
    }

    /// The client of a request with these headers: the peer, or the address that trusted proxies name.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.proxies.client(peer, forwarded_for(headers))
    }

    /// Notes a request that names its client, and is not believed.
    pub fn note_forwarding(&self, peer: IpAddr, headers: &HeaderMap, now: Moment) {
        if !self.proxies.contain(peer) && headers.contains_key(FORWARDED_FOR) {
            self.unread_forwarding.note(peer, now);
        }
    }

    /// The number of open connections, and the most that there may be.
    pub fn load(&self) -> (usize, usize) {
        (self.open().total, self.limits.total)
    }

    fn permit(
        self: &Arc<Self>,
        whole: bool,
        client_network: Option<IpAddr>,
    ) -> Result<ConnectionPermit, TooManyConnections> {
        let mut open = self.open();
        if whole && open.total >= self.limits.total {
            return Err(TooManyConnections::Service);
        }
        if let Some(client_network) = client_network {
            let limit =
                if client_network.is_loopback() { self.limits.from_loopback } else { self.limits.per_client_network };
            let count = open.by_client_network.entry(client_network).or_default();
            if *count >= limit {
                return Err(TooManyConnections::Household);
            }
            *count += 1;
        }
        open.total += usize::from(whole);
        Ok(ConnectionPermit { connections: self.clone(), whole, spare: None, displaced: None, client_network })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// True for a connection that is only for the operator's questions.
    pub fn is_spare(&self) -> bool {
        self.spare.is_some()
    }

    /// Ready when this connection, a spare one, has to end because another one takes its place. It keeps its place once
    /// this is dropped.
    pub fn take_displaced(&mut self) -> Option<oneshot::Receiver<()>> {
        self.displaced.take()
    }
}

/// The fields of `X-Forwarded-For`, in their order.
pub fn forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers.get_all(FORWARDED_FOR).filter_map(|field| field.to_str().ok())
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.total -= usize::from(self.whole);
        if let Some(number) = self.spare {
            open.spare.retain(|place| place.number != number);
        }
        if let Some(client_network) = self.client_network
            && let Some(count) = open.by_client_network.get_mut(&client_network)
        {
            *count -= 1;
            if *count == 0 {
                open.by_client_network.remove(&client_network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_http::header::{HeaderName, HeaderValue};

    use super::*;

    fn connections(total: usize, per_client_network: usize) -> Arc<Connections> {
        let limits = ConnectionLimits { total, per_client_network, from_loopback: per_client_network + 1 };
        Connections::new(limits, TrustedProxies::parse("10.0.0.0/8").unwrap())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_its_share_and_leaves_the_rest_to_others() {
        let connections = connections(6, 2);
        let mut held = vec![connections.admit(address("2001:db8::1")).unwrap()];
        held.push(connections.admit(address("2001:db8::2")).unwrap());
        assert_eq!(connections.admit(address("2001:db8::3")).unwrap_err(), TooManyConnections::Household);
        held.push(connections.admit(address("2001:db8:0:1::3")).unwrap());
        held.push(connections.admit(address("203.0.113.9")).unwrap());
        held.swap_remove(0);
        held.push(connections.admit(address("2001:db8::3")).unwrap());
        held.push(connections.admit(address("203.0.113.9")).unwrap());
        held.push(connections.admit(address("203.0.113.10")).unwrap());
        assert_eq!(connections.admit(address("203.0.113.11")).unwrap_err(), TooManyConnections::Service);
        held.clear();
        let open = connections.open();
        assert!(open.total == 0 && open.by_client_network.is_empty(), "{open:?}");
    }

    #[test]
    fn a_full_service_has_spare_connections() {
        let connections = connections(4, 2);
        let mut held: Vec<_> = (1..=4).map(|last| connections.admit([192, 0, last, 1].into()).unwrap()).collect();
        assert!(held.iter().all(|permit| !permit.is_spare()));
        let spare_of = |client_network: u8| connections.admit_or_spare([192, 0, client_network, 1].into());
        let mut spare: Vec<_> = (0..SPARE_PER_HOUSEHOLD).map(|_| spare_of(9).unwrap()).collect();
        let [first, second] = [0, 1].map(|at| spare[at].take_displaced().unwrap());
        drop(first);
        let third = spare_of(9).unwrap();
        assert!(!second.is_empty(), "the oldest that has asked nothing ends");
        drop((second, third));
        spare.push(spare_of(9).unwrap());
        drop(spare.last_mut().unwrap().take_displaced());
        assert_eq!(spare_of(9).unwrap_err(), TooManyConnections::Service, "one address leaves some to others");
        spare.swap_remove(1);
        spare.extend((0..SPARE - SPARE_PER_HOUSEHOLD).map(|other| spare_of(10 + other as u8).unwrap()));
        assert!(spare.iter().all(ConnectionPermit::is_spare));
        assert_eq!(spare_of(99).unwrap_err(), TooManyConnections::Service);
        assert_eq!(connections.load(), (4, 4));
        drop(spare);
        held.truncate(1);
        assert!(!connections.admit_or_spare(address("192.0.9.1")).unwrap().is_spare());
        held.extend((0..2).map(|_| connections.admit(address("192.0.9.1")).unwrap()));
        assert_eq!(connections.admit_or_spare(address("192.0.9.1")).unwrap_err(), TooManyConnections::Household);
        assert!(connections.open().spare.is_empty());
    }

    #[test]
    fn the_machine_itself_has_a_limit_of_its_own() {
        let connections = connections(9, 2);
        let held: Vec<_> = (0..3).map(|_| connections.admit(address("127.0.0.1")).unwrap()).collect();
        assert_eq!(connections.admit(address("127.0.0.1")).unwrap_err(), TooManyConnections::Household);
        assert!(connections.admit_or_spare(address("127.0.0.1")).unwrap().is_spare());
        assert!(connections.admit(address("127.0.0.2")).is_ok());
        drop(held);
    }

    #[test]
    fn a_proxy_is_not_cut_off_and_those_behind_it_are() {
        let connections = connections(9, 2);
        let proxy = address("10.0.0.1");
        let _through: Vec<_> = (0..5).map(|_| connections.admit(proxy).unwrap()).collect();
        let headers = |client| {
            let field = (HeaderName::from_static("x-forwarded-for"), HeaderValue::from_static(client));
            HeaderMap::from_iter([field])
        };
        let forwarded = |client| connections.admit_forwarded(proxy, &headers(client));
        let held = (forwarded("198.51.100.1").unwrap().unwrap(), forwarded("198.51.100.1").unwrap().unwrap());
        assert_eq!(forwarded("198.51.100.1").unwrap_err(), TooManyConnections::Household);
        assert!(forwarded("198.51.100.2").unwrap().is_some());
        drop(held);
        assert!(forwarded("198.51.100.1").unwrap().is_some());
        let unnamed = connections.admit_forwarded(proxy, &HeaderMap::new());
        assert!(unnamed.unwrap().is_none(), "the proxy itself");
        let direct = connections.admit_forwarded(address("203.0.113.9"), &headers("198.51.100.1"));
        assert!(direct.unwrap().is_none(), "counted when it was accepted");
    }
}
