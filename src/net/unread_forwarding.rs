//! `X-Forwarded-For` that is ignored, because it comes from a peer that is no trusted proxy. A reverse proxy that
//! `TRUSTED_PROXIES` does not name looks like this, and all of its clients share the limits of one address.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use chrono::TimeDelta;

use crate::domain::{client_address::network, time::Moment};

/// Between two lines of the log.
const LOGGED_EVERY: TimeDelta = TimeDelta::minutes(1);
/// For how long the status says so.
const SHOWN_FOR: TimeDelta = TimeDelta::minutes(10);
const COUNTER: &str = "companion_forwarding_unread_total";

/// See the module.
#[derive(Debug, Default)]
pub struct UnreadForwarding(Mutex<Noted>);

/// By the steady clock.
#[derive(Debug, Default)]
struct Noted {
    logged: Option<TimeDelta>,
    /// From a network that is not public: clients do not come from there, proxies do.
    from_near: Option<TimeDelta>,
    left_out: u64,
}

/// Counts from 0.
pub fn describe() {
    metrics::describe_counter!(COUNTER, "Requests with X-Forwarded-For from peers that TRUSTED_PROXIES does not name.");
    metrics::counter!(COUNTER).absolute(0);
}

impl UnreadForwarding {
    /// Notes a request with the header from this peer. True if it has a line in the log.
    pub fn note(&self, peer: IpAddr, now: Moment) -> bool {
        metrics::counter!(COUNTER).increment(1);
        let now = now.steady();
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_near = is_near(peer);
        if is_near {
            noted.from_near = Some(now);
        }
        if noted.logged.is_some_and(|at| now - at < LOGGED_EVERY) {
            noted.left_out += 1;
            return false;
        }
        noted.logged = Some(now);
        let left_out = std::mem::take(&mut noted.left_out);
        drop(noted);
        // A log has only the network of a client.
        let peer = if is_near { peer.to_canonical().to_string() } else { network(peer) };
        log::warn!(
            peer, left_out;
            "X-Forwarded-For is not read: TRUSTED_PROXIES does not name {peer}. If a reverse proxy is there, all of its \
             clients share the limits of one address; name it"
        );
        true
    }

    /// True if a proxy near by seems not to be named.
    pub fn is_noticed(&self, now: Moment) -> bool {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.from_near.is_some_and(|at| now.steady() - at < SHOWN_FOR)
    }
}

/// An address of this machine, or of a network that is not public.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap().into()
    }

    #[test]
    fn it_is_said_once_a_minute_and_shown_for_a_while_if_it_is_a_proxy() {
        let unread = UnreadForwarding::default();
        let (client, proxy) = ([203, 0, 113, 9].into(), [172, 17, 0, 1].into());
        assert!(unread.note(client, at(0)) && !unread.is_noticed(at(0)), "any client may send it");
        assert!(!unread.note(proxy, at(59)) && unread.is_noticed(at(59)));
        assert!(unread.note(client, at(60)));
        assert!(unread.is_noticed(at(658)) && !unread.is_noticed(at(660)));
    }
}
