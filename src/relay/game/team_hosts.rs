//! Links of this process that may read for the whole team of their player, by game server.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use actix::{Message, Recipient};
use futures_channel::mpsc;

use crate::{
    domain::{
        ids::{GameServerId, ServerId},
        link_slots::SlotNumber,
        time::Timestamp,
    },
    game::{acting_link::ActingLink, reading_link::ReadingLink},
    relay::game::{pool::wake::Wake, seats::SeatNews},
};

/// A link, in the order in which they came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkNumber(u64);

/// A paired server asks for a seat at the link of a mate. Answered with none if it gets none.
#[derive(Message)]
#[rtype(result = "Option<HostLink>")]
pub struct TakeSeat {
    pub server: ServerId,
    /// As it is paired.
    pub game_server: GameServerId,
    /// The game server has accepted its player, at the address of this link, which may have ended since.
    pub accepted: ActingLink,
    /// Entity ids of the devices that have answered its player.
    pub devices: Arc<BTreeSet<u64>>,
    pub news: mpsc::Sender<Arc<SeatNews>>,
}

/// The link at which one sits.
pub struct HostLink {
    pub reading: ReadingLink,
    pub wake: Arc<Wake>,
    /// Its slot at the game server; none behind a proxy.
    pub slot: Option<SlotNumber>,
    /// SteamID64 of the team's members, as this link knows them.
    pub members: Arc<BTreeSet<u64>>,
    /// Since when broadcasts of this link may have waited that come from now on.
    pub waited: Option<Timestamp>,
}

/// A link that may read for others.
#[derive(Clone, Debug)]
pub struct TeamHost {
    pub number: LinkNumber,
    pub server: ServerId,
    /// SteamID64.
    pub player: u64,
    /// The game server, as it is paired: the link asks for the map of that.
    pub paired: GameServerId,
    /// As the newest complete answer of its link lists them.
    pub members: Arc<BTreeSet<u64>>,
    pub seats: Recipient<TakeSeat>,
}

/// Counts a paired server that sits at the link of a mate, as long as this is not dropped.
pub struct SeatedServer(Arc<TeamHosts>);

impl Drop for SeatedServer {
    fn drop(&mut self) {
        self.0.seated.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct TeamHosts {
    last: AtomicU64,
    /// Paired servers that sit at one of them.
    seated: AtomicUsize,
    hosts: Mutex<HashMap<GameServerId, Vec<TeamHost>>>,
}

impl TeamHosts {
    /// The number of a link that is up from now on.
    pub fn number(&self) -> LinkNumber {
        LinkNumber(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Counts a paired server that sits at one of these links.
    pub fn seat(self: &Arc<Self>) -> SeatedServer {
        self.seated.fetch_add(1, Ordering::Relaxed);
        SeatedServer(self.clone())
    }

    /// Paired servers that sit at one of these links.
    pub fn seated(&self) -> usize {
        self.seated.load(Ordering::Relaxed)
    }

    /// This link is up at this game server, and its newest answer lists these members.
    pub fn publish(&self, at: &GameServerId, host: TeamHost) {
        let mut hosts = self.lock();
        let here = hosts.entry(at.clone()).or_default();
        here.retain(|known| known.server != host.server);
        here.push(host);
    }

    /// The link of this paired server is gone, or rests.
    pub fn withdraw(&self, at: &GameServerId, server: &ServerId) {
        let mut hosts = self.lock();
        if let Some(here) = hosts.get_mut(at) {
            here.retain(|known| known.server != *server);
            if here.is_empty() {
                hosts.remove(at);
            }
        }
    }

    /// The link at this game server that is up for longest and reads for the same team: each of the two players is in
    /// the newest list of the other. None if this link itself is up for longer.
    pub fn find(&self, at: &GameServerId, own: LinkNumber, player: u64, members: &BTreeSet<u64>) -> Option<TeamHost> {
        let hosts = self.lock();
        let others = hosts.get(at)?.iter().filter(|host| host.number < own && host.seats.connected());
        let same = others.filter(|host| host.members.contains(&player) && members.contains(&host.player));
        same.min_by_key(|host| host.number).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GameServerId, Vec<TeamHost>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler};

    use super::*;

    struct NoSeats;

    impl Actor for NoSeats {
        type Context = Context<Self>;
    }

    impl Handler<TakeSeat> for NoSeats {
        type Result = Option<HostLink>;

        fn handle(&mut self, _: TakeSeat, _: &mut Self::Context) -> Option<HostLink> {
            None
        }
    }

    #[test]
    fn servers_that_sit_are_counted() {
        let hosts = Arc::new(TeamHosts::default());
        let seats = [hosts.seat(), hosts.seat()];
        assert_eq!(hosts.seated(), 2);
        drop(seats);
        assert_eq!(hosts.seated(), 0);
    }

    #[actix_web::test]
    async fn the_oldest_link_of_the_same_team_at_the_same_game_server_is_found() {
        let hosts = TeamHosts::default();
        let (here, there) = (GameServerId::at("203.0.113.7", 28_082), GameServerId::at("203.0.113.8", 28_082));
        let list = |members: &[u64]| Arc::new(members.iter().copied().collect::<BTreeSet<u64>>());
        let publish = |at: &GameServerId, player: u64, members: &[u64]| {
            let (server, seats) = (player.to_string().as_str().into(), NoSeats.start().recipient());
            let (number, members) = (hosts.number(), list(members));
            let host = TeamHost { number, server, player, paired: at.clone(), members, seats };
            hosts.publish(at, host.clone());
            host.number
        };
        let first = publish(&here, 1, &[1, 2, 3]);
        let second = publish(&here, 2, &[1, 2, 3]);
        publish(&here, 4, &[4, 3]);
        let find = |at: &GameServerId, own, player, members: &[u64]| {
            hosts.find(at, own, player, &list(members)).map(|host| host.player)
        };
        let newest = hosts.number();
        assert_eq!(find(&here, newest, 3, &[1, 2, 3]), Some(1));
        assert_eq!(find(&here, second, 2, &[1, 2, 3]), Some(1));
        assert_eq!(find(&here, first, 1, &[1, 2, 3]), None, "it is the oldest itself");
        assert_eq!(find(&there, newest, 3, &[1, 2, 3]), None, "another game server");
        assert_eq!(find(&here, newest, 9, &[1, 2, 9]), None, "no other link lists this player");
        assert_eq!(find(&here, newest, 3, &[3]), None, "the player's own list has no one else");
        hosts.withdraw(&here, &"1".into());
        assert_eq!(find(&here, newest, 3, &[1, 2, 3]), Some(2));
    }
}
