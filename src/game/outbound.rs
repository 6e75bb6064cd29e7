//! Limits of what users can make the service connect to: which addresses, how many new ones, and how soon again.

use std::{
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use crate::{
    clock::Clock,
    domain::{
        game_address::GameAddress,
        ids::UserId,
        outbound::{NewAddresses, Retries, Target},
        public_address::is_public,
        time::Timestamp,
    },
};

/// See the module. One for the whole process.
pub struct Outbound {
    clock: Clock,
    /// Addresses of this machine and private ones may be connected to.
    allows_private: bool,
    /// Addresses of this service itself, and of its machine.
    own: RwLock<Vec<IpAddr>>,
    new_addresses: Mutex<NewAddresses>,
    retries: Mutex<Retries>,
}

impl Outbound {
    /// Limits of which nothing is used yet; `allows_private`: private addresses and those of the machine may be
    /// connected to.
    pub fn new(clock: Clock, allows_private: bool) -> Self {
        let (own, new_addresses, retries) = Default::default();
        Self { clock, allows_private, own, new_addresses, retries }
    }

    /// The time of day, by which the limits and the order of pairings are.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sets the addresses of this service itself, and of its machine.
    pub fn set_own(&self, addresses: Vec<IpAddr>) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// True if a game server may have this address: a public one, and not this service's own.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allows_private || self.is_foreign(address)
    }

    /// True for a public address that is not this service's own.
    pub fn is_foreign(&self, address: IpAddr) -> bool {
        let is_own = || self.own.read().unwrap_or_else(PoisonError::into_inner).contains(&address.to_canonical());
        is_public(address) && !is_own()
    }

    /// True if a game server may be paired at this address. Names are looked at again where they are resolved, at
    /// connect.
    pub fn allows_pairing(&self, address: &GameAddress) -> bool {
        match address {
            GameAddress::Ip(ip) => self.allows(*ip),
            GameAddress::Name(_) => self.allows_private || !address.is_localhost_name(),
        }
    }

    /// Counts an address and port that this user had not paired, or returns how long they have to wait.
    pub fn take_new_address(&self, user: &UserId) -> Result<(), Duration> {
        locked(&self.new_addresses).take(user, self.clock.moment())
    }

    /// See [`Retries::ask`].
    pub fn ask(&self, target: &Target) -> Duration {
        locked(&self.retries).ask(target, self.clock.moment())
    }

    /// See [`Retries::end`].
    pub fn end(&self, target: &Target, held: Duration, least: Duration, random: u8) -> Duration {
        locked(&self.retries).end(target, held, least, random, self.clock.moment())
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_itself_is_no_game_server() {
        let outbound = |allows_private| Outbound::new(Clock::system(), allows_private);
        let allows = |outbound: &Outbound, address: &str| outbound.allows(address.parse().unwrap());
        let public = outbound(false);
        assert!(allows(&public, "8.8.8.8") && !allows(&public, "10.0.0.1") && !allows(&public, "168.63.129.16"));
        public.set_own(vec!["8.8.8.8".parse().unwrap(), "2a01:4f8::1".parse().unwrap()]);
        for own in ["8.8.8.8", "2a01:4f8::1", "::ffff:8.8.8.8"] {
            assert!(!allows(&public, own), "{own}");
            assert!(!public.allows_pairing(&GameAddress::parse(own).unwrap()), "{own}");
        }
        assert!(allows(&public, "8.8.4.4") && allows(&outbound(true), "127.0.0.1"));
    }

    #[test]
    fn private_addresses_are_paired_only_if_they_are_allowed() {
        for text in [
            "127.0.0.1",
            "127.1",
            "10.0.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "::1",
            "[fd00::1]",
            "localhost",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
        ] {
            let address = GameAddress::parse(text).unwrap();
            assert!(!Outbound::new(Clock::system(), false).allows_pairing(&address), "{text}");
            assert!(Outbound::new(Clock::system(), true).allows_pairing(&address), "{text}");
        }
        let name = GameAddress::parse("Play.Example.com").unwrap();
        assert!(Outbound::new(Clock::system(), false).allows_pairing(&name));
    }
}
