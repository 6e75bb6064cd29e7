//! The timers of all teams that this process has links to. Each paired server of a team has all of its timers, with rows of its
//! own: one who leaves takes none from the others, and whose link is away misses no end. A timer ends once, for all who have it.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    mem::{replace, take},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix::Recipient;

use crate::{
    db::team_timers::StoredTimer,
    domain::{
        ids::ServerId,
        team_timer::{TeamTimer, TimerTeam, free_number},
        time::Timestamp,
    },
    relay::shared::{
        teams::TeamNews,
        write_behind::{Record, WriteBehind},
    },
};

/// Timers that have ended and are remembered: a connection that reads its rows meanwhile may still have them.
const ENDED: usize = 1_024;

/// See the module. Shared by all game connections of the process. Rows are stored with the lock held, so that they follow one
/// another as the changes do.
#[derive(Default)]
pub struct TeamTimers(Mutex<KnownTimers>);

#[derive(Default)]
struct KnownTimers {
    timers: HashMap<Arc<str>, SharedTimer>,
    servers: HashMap<ServerId, TimersOfServer>,
    /// Ids, the latest last, each with the server for which alone it has ended, if it has not for all.
    ended: VecDeque<(Arc<str>, Option<ServerId>)>,
}

struct SharedTimer {
    timer: TeamTimer,
    created_at: Timestamp,
    servers: BTreeSet<ServerId>,
}

struct TimersOfServer {
    ids: BTreeSet<Arc<str>>,
    /// `None` until this connection has heard of it.
    seen: Option<SeenTeam>,
    news: Recipient<TeamNews>,
}

/// A team as the game showed it to a paired player last.
#[derive(Clone, PartialEq, Eq)]
struct SeenTeam {
    player: u64,
    team: TimerTeam,
}

impl SeenTeam {
    /// True if each of the two players is in the other's team: what one alone sees may be old.
    fn is_mate_of(&self, other: &Self) -> bool {
        self.team.has(other.player) && other.team.has(self.player)
    }
}

impl TeamTimers {
    fn lock(&self) -> MutexGuard<'_, KnownTimers> {
        // A panic elsewhere leaves nothing half done here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A game connection has read its rows. `news`: it learns when a timer of its server ends elsewhere.
    pub fn open(&self, server: &ServerId, stored: Vec<StoredTimer>, news: Recipient<TeamNews>) {
        let mut known = self.lock();
        known.forget(server);
        known.servers.insert(server.clone(), TimersOfServer { ids: BTreeSet::new(), seen: None, news });
        for timer in stored {
            if !known.has_ended(server, &timer.id) {
                known.add(server, timer);
            }
        }
    }

    /// The game connection that gets these news has ended; the rows stay.
    pub fn close(&self, server: &ServerId, news: &Recipient<TeamNews>) {
        let mut known = self.lock();
        if known.servers.get(server).is_some_and(|of| of.news == *news) {
            known.forget(server);
            known.servers.remove(server);
        }
    }

    /// The timers of this server.
    pub fn of(&self, server: &ServerId) -> Vec<(Arc<str>, TeamTimer)> {
        self.lock().of(server).map(|(id, shared)| (id.clone(), shared.timer.clone())).collect()
    }

    /// A player has set a timer, which gets the lowest number that is free; the caller stores it.
    pub fn set(&self, server: &ServerId, mut set: StoredTimer) -> StoredTimer {
        let mut known = self.lock();
        set.timer.number = free_number(known.of(server).map(|(_, shared)| shared.timer.number));
        known.add(server, set.clone());
        set
    }

    /// The row of a timer that was set is stored, or may be. The timer as it is now; `None` if this server has it no longer,
    /// and its row goes.
    pub fn stored(&self, server: &ServerId, id: &Arc<str>, write_behind: &WriteBehind) -> Option<TeamTimer> {
        let known = self.lock();
        let timer = known.of(server).find(|(of, _)| *of == id).map(|(_, shared)| shared.timer.clone());
        if timer.is_none() {
            write_behind.store(Record::TimersLeft(server.clone(), vec![id.clone()]));
        }
        timer
    }

    /// The game shows the paired player this team. False if that is no news.
    pub fn see(&self, server: &ServerId, player: u64, team: &TimerTeam) -> bool {
        let mut known = self.lock();
        let Some(of) = known.servers.get_mut(server) else { return false };
        let seen = Some(SeenTeam { player, team: team.clone() });
        replace(&mut of.seen, seen.clone()) != seen
    }

    /// This server has the timers of its mates among these from now on.
    pub fn share(&self, server: &ServerId, linked: &[ServerId], write_behind: &WriteBehind) {
        let mut known = self.lock();
        let Some(own) = known.servers.get(server) else { return };
        let Some(seen) = own.seen.clone() else { return };
        let linked = linked.iter().filter_map(|linked| known.servers.get(linked));
        let mates = linked.filter(|of| of.seen.as_ref().is_some_and(|theirs| seen.is_mate_of(theirs)));
        let of_mates = mates.flat_map(|of| &of.ids);
        let new: BTreeSet<Arc<str>> = of_mates.filter(|id| !own.ids.contains(*id)).cloned().collect();
        for id in new {
            known.take_in(server, id, &seen.team, write_behind);
        }
    }

    /// The paired player has left the team: the mates keep its timers.
    pub fn leave(&self, server: &ServerId, write_behind: &WriteBehind) {
        let mut known = self.lock();
        let left = known.forget(server);
        if !left.is_empty() {
            // By name: a later timer may be stored before that.
            write_behind.store(Record::TimersLeft(server.clone(), left.into_iter().collect()));
        }
    }

    /// The team of the paired player has other members, or another leader.
    pub fn set_team(&self, server: &ServerId, team: &TimerTeam, write_behind: &WriteBehind) {
        let known = self.lock();
        if known.of(server).next().is_some() {
            write_behind.store(Record::TeamOfTimers(server.clone(), team.clone()));
        }
    }

    /// A timer ends before its time; its rows go.
    pub fn cancel(&self, server: &ServerId, id: &Arc<str>, write_behind: &WriteBehind) {
        let mut known = self.lock();
        known.end(server, id);
        write_behind.store(Record::TimerEnded(id.clone()));
    }

    /// Takes those of this server whose time has come, the earliest first, each with the record by which its rows go: the
    /// caller says their end and stores that. One without mates takes only its own share: others may be former mates, and
    /// each says them to a team of its own.
    pub fn take_due(&self, server: &ServerId, has_mates: bool, now: Timestamp) -> Vec<(Record, TeamTimer)> {
        let mut known = self.lock();
        let due = known.of(server).filter(|(_, shared)| shared.timer.ends_at <= now);
        let mut due: Vec<_> = due.map(|(id, shared)| (id.clone(), shared.timer.clone())).collect();
        due.sort_by_key(|(_, timer)| timer.ends_at);
        let mut taken = Vec::with_capacity(due.len());
        for (id, timer) in due {
            if has_mates {
                known.end(server, &id);
                taken.push((Record::TimerEnded(id), timer));
            } else {
                known.drop_of(server, &id);
                known.note_ended(id.clone(), Some(server.clone()));
                taken.push((Record::TimersLeft(server.clone(), vec![id]), timer));
            }
        }
        taken
    }

    /// The world was wiped at this time: earlier timers are about the old one.
    pub fn wipe(&self, server: &ServerId, at: Timestamp, write_behind: &WriteBehind) {
        let mut known = self.lock();
        let earlier = known.of(server).filter(|(_, shared)| shared.created_at < at);
        let earlier: Vec<Arc<str>> = earlier.map(|(id, _)| id.clone()).collect();
        for id in earlier {
            known.end(server, &id);
            write_behind.store(Record::TimerEnded(id));
        }
    }
}

impl KnownTimers {
    fn of(&self, server: &ServerId) -> impl Iterator<Item = (&Arc<str>, &SharedTimer)> {
        let ids = self.servers.get(server).into_iter().flat_map(|of| &of.ids);
        ids.filter_map(move |id| Some((id, self.timers.get(id)?)))
    }

    fn add(&mut self, server: &ServerId, StoredTimer { id, timer, created_at, .. }: StoredTimer) {
        let Some(of) = self.servers.get_mut(server) else { return };
        of.ids.insert(id.clone());
        let shared = self.timers.entry(id);
        let shared = shared.or_insert_with(|| SharedTimer { timer, created_at, servers: BTreeSet::new() });
        shared.servers.insert(server.clone());
    }

    /// This server has this timer, too. Two of one number, set while their links did not know of each other, get two.
    fn take_in(&mut self, server: &ServerId, id: Arc<str>, team: &TimerTeam, write_behind: &WriteBehind) {
        let Some(shared) = self.timers.get(&id) else { return };
        let mut stored =
            StoredTimer { id, timer: shared.timer.clone(), created_at: shared.created_at, team: Some(team.clone()) };
        let mut numbered = vec![server.clone()];
        if self.of(server).any(|(_, own)| own.timer.number == stored.timer.number) {
            numbered.extend(shared.servers.iter().cloned());
            let taken = numbered.iter().flat_map(|of| self.of(of)).map(|(_, known)| known.timer.number);
            stored.timer.number = free_number(taken);
        }
        self.add(server, stored.clone());
        if let Some(shared) = self.timers.get_mut(&stored.id) {
            shared.timer.number = stored.timer.number;
        }
        for of in &numbered {
            write_behind.store(Record::TimerOf(of.clone(), stored.clone()));
        }
        self.notify(&numbered[1..]);
    }

    fn notify<'a>(&self, servers: impl IntoIterator<Item = &'a ServerId>) {
        for of in servers.into_iter().filter_map(|server| self.servers.get(server)) {
            of.news.do_send(TeamNews::Timers);
        }
    }

    /// Ends a timer for all who have it. They learn of it, but for `by`, which ends it.
    fn end(&mut self, by: &ServerId, id: &Arc<str>) {
        let Some(SharedTimer { servers, .. }) = self.timers.remove(id) else { return };
        for server in &servers {
            if let Some(of) = self.servers.get_mut(server) {
                of.ids.remove(id);
            }
        }
        self.note_ended(id.clone(), None);
        self.notify(servers.iter().filter(|server| *server != by));
    }

    /// A timer has ended, perhaps for this server alone.
    fn note_ended(&mut self, id: Arc<str>, server: Option<ServerId>) {
        self.ended.push_back((id, server));
        if self.ended.len() > ENDED {
            self.ended.pop_front();
        }
    }

    fn has_ended(&self, server: &ServerId, id: &Arc<str>) -> bool {
        self.ended.iter().any(|(ended, of)| ended == id && of.as_ref().is_none_or(|of| of == server))
    }

    /// This server has the timer no longer. One that no server has is gone.
    fn drop_of(&mut self, server: &ServerId, id: &Arc<str>) {
        if let Some(of) = self.servers.get_mut(server) {
            of.ids.remove(id);
        }
        if let Some(shared) = self.timers.get_mut(id) {
            shared.servers.remove(server);
            if shared.servers.is_empty() {
                self.timers.remove(id);
            }
        }
    }

    /// This server has no timers. Ids of those that it had.
    fn forget(&mut self, server: &ServerId) -> BTreeSet<Arc<str>> {
        let ids = self.servers.get_mut(server).map(|of| take(&mut of.ids)).unwrap_or_default();
        for id in &ids {
            self.drop_of(server, id);
        }
        ids
    }
}

#[cfg(test)]
mod tests;
