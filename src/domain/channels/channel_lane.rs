//! Lanes of the attempts to send messages by channels: what has worked never waits for what hangs, and neither a user nor a
//! host fills a lane.

use std::collections::HashMap;

/// A lane. Each has room, connections and look-ups of names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelLane {
    /// First attempts by channels whose newest message was taken.
    Proven,
    /// All others, and tests.
    Unproven,
}

impl ChannelLane {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Proven, Self::Unproven];

    /// Attempts under way at once; further messages wait as rows.
    pub const fn at_once(self) -> usize {
        match self {
            Self::Proven => 512,
            Self::Unproven => 128,
        }
    }

    /// Attempts to one host at once: half of the lane is left to the others while it hangs.
    pub const fn at_once_to_host(self) -> usize {
        self.at_once() / 2
    }
}

/// Attempts of one user in a lane at once.
pub const AT_ONCE_OF_USER: usize = 4;

/// The targets for which a lane has no turn now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneLoad {
    /// Attempts for which there is room.
    pub room: usize,
    /// Channels with an attempt under way, in either lane.
    pub channels: Vec<String>,
    /// Users who have as many as they may.
    pub users: Vec<String>,
    /// Hosts that have as many as they may.
    pub hosts: Vec<String>,
    /// Origins that are [held](crate::domain::channels::held_origins::HeldOrigins::held), each with its kind; the turns
    /// know none.
    pub origins: Vec<String>,
    /// Ids of messages that are passed over; the turns know none.
    pub messages: Vec<String>,
}

/// An attempt that is under way.
#[derive(Debug)]
struct LaneTurn {
    lane: ChannelLane,
    user: String,
    host: String,
}

/// The attempts that are under way, or whose outcome is not stored yet. One at a time for each channel: an older message
/// does not arrive after a newer one.
#[derive(Debug, Default)]
pub struct LaneTurns {
    by_channel: HashMap<String, LaneTurn>,
    lanes: HashMap<ChannelLane, usize>,
    users: HashMap<(ChannelLane, String), usize>,
    hosts: HashMap<(ChannelLane, String), usize>,
}

impl LaneTurns {
    /// Takes a turn for a channel of this user at this host; false when there is none now.
    pub fn take(&mut self, lane: ChannelLane, channel: &str, user: &str, host: &str) -> bool {
        let (of_user, to_host) = ((lane, user.to_owned()), (lane, host.to_owned()));
        let is_free = count(&self.lanes, &lane) < lane.at_once()
            && count(&self.users, &of_user) < AT_ONCE_OF_USER
            && count(&self.hosts, &to_host) < lane.at_once_to_host()
            && !self.by_channel.contains_key(channel);
        if is_free {
            *self.lanes.entry(lane).or_default() += 1;
            *self.users.entry(of_user).or_default() += 1;
            *self.hosts.entry(to_host).or_default() += 1;
            let turn = LaneTurn { lane, user: user.to_owned(), host: host.to_owned() };
            self.by_channel.insert(channel.to_owned(), turn);
        }
        is_free
    }

    /// Gives the turn of this channel back.
    pub fn give_back(&mut self, channel: &str) {
        if let Some(LaneTurn { lane, user, host }) = self.by_channel.remove(channel) {
            lessen(&mut self.lanes, lane);
            lessen(&mut self.users, (lane, user));
            lessen(&mut self.hosts, (lane, host));
        }
    }

    /// The load of this lane.
    pub fn load(&self, lane: ChannelLane) -> LaneLoad {
        let full = |counts: &HashMap<(ChannelLane, String), usize>, most: usize| {
            let full = counts.iter().filter(|((of, _), count)| *of == lane && **count >= most);
            full.map(|((_, name), _)| name.clone()).collect()
        };
        LaneLoad {
            room: lane.at_once().saturating_sub(count(&self.lanes, &lane)),
            channels: self.by_channel.keys().cloned().collect(),
            users: full(&self.users, AT_ONCE_OF_USER),
            hosts: full(&self.hosts, lane.at_once_to_host()),
            origins: Vec::new(),
            messages: Vec::new(),
        }
    }
}

fn count<K: std::hash::Hash + Eq>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or_default()
}

fn lessen<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_channels_that_hang_leave_room_for_others() {
        let mut turns = LaneTurns::default();
        let mut hanging = 0;
        // As an attacker does it: 27 accounts of 20 channels each, all at one host.
        for channel in 0..540 {
            let (id, user) = (format!("c{channel}"), format!("u{}", channel / 20));
            hanging += usize::from(turns.take(ChannelLane::Unproven, &id, &user, "hangs.example"));
        }
        assert_eq!(hanging, ChannelLane::Unproven.at_once_to_host());
        assert!(turns.take(ChannelLane::Unproven, "new", "alice", "ntfy.example"), "half of the lane is left");
        assert!(turns.take(ChannelLane::Proven, "phone", "u0", "hangs.example"), "the other lane is free");
        let load = turns.load(ChannelLane::Unproven);
        assert_eq!((load.room, load.hosts), (63, vec!["hangs.example".to_owned()]));
        assert_eq!((load.channels.len(), load.users.len()), (hanging + 2, hanging / AT_ONCE_OF_USER));
        assert_eq!(turns.load(ChannelLane::Proven).room, 511);
    }

    #[test]
    fn a_turn_that_is_given_back_is_free_again() {
        let mut turns = LaneTurns::default();
        let take = |turns: &mut LaneTurns, channel| turns.take(ChannelLane::Proven, channel, "alice", "a.example");
        assert!(["1", "2", "3", "4"].into_iter().all(|channel| take(&mut turns, channel)));
        assert!(!take(&mut turns, "5"), "a user has a few at once");
        turns.give_back("1");
        assert!(!take(&mut turns, "2"), "and a channel one");
        assert!(take(&mut turns, "5"));
        for channel in ["1", "2", "3", "4", "5"] {
            turns.give_back(channel);
        }
        let none = LaneLoad { room: ChannelLane::Proven.at_once(), ..LaneLoad::default() };
        assert_eq!(turns.load(ChannelLane::Proven), none);
        assert!(turns.users.is_empty() && turns.hosts.is_empty());
    }
}
