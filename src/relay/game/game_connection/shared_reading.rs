//! State of a connection among the mates of its player: it reads for those who sit at its link, or sits at the link of a
//! mate while its own link rests. Pure, but for the handles that it keeps.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix::SpawnHandle;
use tokio::time::Instant;

use super::latest_task::LatestTask;
use crate::{
    domain::{ids::GameServerId, link_slots::SlotNumber},
    relay::game::{
        commands::COMMAND_DEADLINE,
        pool::wake::{AlarmMate, Wake, WatchedMate},
        seats::Seats,
        team_hosts::{LinkNumber, SeatedServer, TeamHosts},
    },
};

/// A link over which something was done as its player stays up so long.
const USED_FOR: Duration = Duration::from_secs(60);
/// Mates who sit at a link that is about to rest look for another for so long.
const LET_GO_WITHIN: Duration = Duration::from_secs(60);
/// A map that a mate's link does not ask for, and that has not come within this time, is not waited for.
const MAP_WITHIN: Duration = Duration::from_secs(60);
/// Least time until a mate's link is asked for a seat again, which had none.
const ASKED_AGAIN: Duration = Duration::from_secs(10);
/// Likewise, while no link reads.
const ASKED_AGAIN_UNREAD: Duration = Duration::from_secs(1);
/// Least time until then, if the game server refused that link for its rate: others spend its tokens, which come back within
/// seconds, and those who sit there need them.
const ASKED_AGAIN_RATED: Duration = Duration::from_secs(60);
/// Likewise, while no link reads.
const ASKED_AGAIN_RATED_UNREAD: Duration = Duration::from_secs(10);
/// Least time until then, if that link cannot read a device of ours.
const READ_AGAIN: Duration = Duration::from_secs(600);
/// Likewise, while no link reads: another mate's link may be there by then.
const READ_AGAIN_UNREAD: Duration = Duration::from_secs(60);

/// See the module.
pub struct SharedReading {
    pub hosts: Arc<TeamHosts>,
    /// Seats at the own link.
    pub seats: Seats,
    /// The own link, while it is up.
    pub link: Option<OwnReading>,
    /// When something was last done over the own link.
    pub used_at: Option<Instant>,
    /// No seat is asked for before.
    not_before: Option<Instant>,
    /// A seat is asked for.
    pub asking: Option<SpawnHandle>,
    /// The own link waits, and a mate's is looked for.
    pub looking: Option<SpawnHandle>,
    /// The seat at a mate's link.
    pub seat: Option<TakenSeat>,
    /// News of the seat before the own link came up: of devices until that has asked them.
    pub leaving: Option<SpawnHandle>,
    /// When the own link was last made for the map alone.
    pub map_asked_at: Option<Instant>,
    /// Since when those who sit at the own link are to go.
    letting_go_since: Option<Instant>,
    /// When devices were, or will be, looked at because a message over a mate's link could not be read.
    pub missed_at: Option<Instant>,
    /// The own link is to ask what no mate's can, and has not yet.
    pub is_own_needed: bool,
    /// Entity ids of the devices that have answered the player, as of the last link.
    pub devices: Arc<BTreeSet<u64>>,
}

/// An own link that reads.
pub struct OwnReading {
    pub number: LinkNumber,
    since: Instant,
    /// SteamID64.
    pub player: u64,
    /// Where it ends.
    pub at: GameServerId,
    /// Everything was asked once, the team last.
    pub is_resynced: bool,
    pub are_devices_asked: bool,
}

/// A seat at a mate's link.
pub struct TakenSeat {
    /// Takes the news.
    pub news: SpawnHandle,
    /// Makes the own link in its turn.
    pub turn: SpawnHandle,
    /// Entity ids of the devices that both links may read.
    pub devices: Arc<BTreeSet<u64>>,
    /// SteamID64 of the player of this seat.
    pub player: u64,
    /// The map that the mate's link asks for is that of this seat, too.
    pub shares_map: bool,
    pub wake: Arc<Wake>,
    /// The slot of that link, which the own one may take over.
    pub slot: Option<SlotNumber>,
    /// The mate's link carries alarms of this seat that come over no other way.
    pub alarms: Option<AlarmMate>,
    pub watched: Option<WatchedMate>,
    /// Looks at devices, one after the other.
    pub looks: LatestTask,
    pub _counted: SeatedServer,
}

/// Reasons against a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSeat {
    /// The mate's link gives none, or has ended.
    Refused,
    /// The game server refuses the mate's link for its rate.
    Rated,
    /// The mate's link cannot read one of our devices.
    Unreadable,
}

impl SharedReading {
    /// No link, and no seat.
    pub fn new(hosts: Arc<TeamHosts>) -> Self {
        Self {
            hosts,
            seats: Seats::default(),
            link: None,
            used_at: None,
            not_before: None,
            asking: None,
            looking: None,
            seat: None,
            leaving: None,
            map_asked_at: None,
            letting_go_since: None,
            missed_at: None,
            is_own_needed: false,
            devices: Arc::default(),
        }
    }

    /// The own link of this player is up there, and has asked nothing yet.
    pub fn link_up(&mut self, player: u64, at: GameServerId) {
        self.seats.close();
        self.letting_go_since = None;
        let (number, since) = (self.hosts.number(), Instant::now());
        self.link = Some(OwnReading { number, since, player, at, is_resynced: false, are_devices_asked: false });
    }

    /// True if the own link may rest: all that it must ask is asked, and nothing was done over it lately.
    pub fn may_rest(&self) -> bool {
        let was_used = self.used_at.is_some_and(|at| at.elapsed() < USED_FOR);
        let has_asked = self.link.as_ref().is_some_and(|link| link.is_resynced && link.are_devices_asked);
        has_asked && !was_used && self.may_ask() && self.seat.is_none()
    }

    /// True while the own link may still be answered about the map.
    pub fn waits_for_map(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.since.elapsed() < MAP_WITHIN)
    }

    /// Lets all who sit at the own link look for another. True once they have gone, or could for long.
    pub fn let_go(&mut self) -> bool {
        let since = *self.letting_go_since.get_or_insert_with(Instant::now);
        self.seats.let_go() || since.elapsed() >= LET_GO_WITHIN
    }

    /// True if callers may still wait for the own link.
    pub fn is_awaited(&self) -> bool {
        self.used_at.is_some_and(|at| at.elapsed() < COMMAND_DEADLINE)
    }

    /// There was no seat.
    pub fn refused(&mut self, reason: NoSeat) {
        let pause = match (reason, self.link.is_none()) {
            (NoSeat::Refused, false) => ASKED_AGAIN,
            (NoSeat::Refused, true) => ASKED_AGAIN_UNREAD,
            (NoSeat::Rated, false) => ASKED_AGAIN_RATED,
            (NoSeat::Rated, true) => ASKED_AGAIN_RATED_UNREAD,
            (NoSeat::Unreadable, false) => READ_AGAIN,
            (NoSeat::Unreadable, true) => READ_AGAIN_UNREAD,
        };
        self.not_before = Some(Instant::now() + pause);
    }

    /// The own link is needed for a while.
    pub fn keep_own(&mut self) {
        self.not_before = Some(Instant::now() + USED_FOR);
    }

    /// True if a seat may be asked for.
    pub fn may_ask(&self) -> bool {
        self.not_before.is_none_or(|at| Instant::now() >= at)
    }

    /// A seat may be asked for at once.
    pub fn forget_refusal(&mut self) {
        self.not_before = None;
    }

    /// The paired server has alarms that come over no other way, or has none.
    pub fn carry_alarms(&mut self, has_alarms: bool) {
        if let Some(TakenSeat { wake, alarms, .. }) = &mut self.seat {
            *alarms = has_alarms.then(|| alarms.take().unwrap_or_else(|| wake.carry_alarms()));
        }
    }

    /// A user begins to watch, or the last one stops: the link at which this connection sits asks more often.
    pub fn watch(&mut self, is_watched: bool) {
        if let Some(TakenSeat { wake, watched, .. }) = &mut self.seat {
            *watched = is_watched.then(|| watched.take().unwrap_or_else(|| wake.watch_mate()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_seat_is_asked_for_again_sooner_while_no_link_reads() {
        let pauses = [(NoSeat::Refused, 10, 1), (NoSeat::Rated, 60, 10), (NoSeat::Unreadable, 600, 60)];
        for (reason, beside_a_link, unread) in pauses {
            for (has_link, seconds) in [(true, beside_a_link), (false, unread)] {
                let mut mates = SharedReading::new(Arc::default());
                if has_link {
                    mates.link_up(1, GameServerId::at("203.0.113.7", 28_082));
                }
                mates.refused(reason);
                advance(Duration::from_millis(seconds * 1_000 - 1)).await;
                assert!(!mates.may_ask(), "{reason:?}, a link: {has_link}");
                advance(Duration::from_millis(1)).await;
                assert!(mates.may_ask(), "{reason:?}, a link: {has_link}");
            }
        }
    }
}
