//! Mirror of the game server's token buckets, slightly below the real ones (25 at 3/s a player, 50 at 15/s an address),
//! so that a request waits here instead of being refused there. Times are milliseconds of a clock that only goes
//! forward; costs are hundredths of a token.

use std::{collections::HashMap, time::Duration};

use crate::domain::{
    rate::{Bucket, TOKEN},
    words::words,
};

/// Costs of requests, in hundredths of a token.
pub mod cost {
    use crate::domain::rate::TOKEN;

    /// `getMap`.
    pub const MAP: u32 = 5 * TOKEN;
    /// `sendTeamMessage`, `sendClanMessage`.
    pub const CHAT_MESSAGE: u32 = 2 * TOKEN;
    /// `cameraInput`.
    pub const CAMERA_INPUT: u32 = TOKEN / 100;
    /// Everything else.
    pub const REQUEST: u32 = TOKEN;
}

words! {
    /// Purpose of a request; the lower ones leave tokens for the higher ones. Entity sync, which has no upper bound,
    /// has a rate of its own below that of the tokens: the rest is the share of polling. The words are for the metric.
    #[derive(PartialOrd, Ord)]
    pub enum Priority {
        /// The map picture, which is large and seldom new.
        Map = "map",
        /// Markers, team, time, info.
        Polling = "polling",
        /// The devices' values: after a connect, and after a tool cupboard has changed.
        EntitySync = "entity_sync",
        /// A user waits for it.
        Toggle = "toggle",
    }
}

impl Priority {
    /// Tokens left for higher priorities in the player's bucket and in the address's.
    fn reserves(self) -> (u32, u32) {
        let (player, address) = match self {
            Priority::Toggle => (0, 0),
            Priority::EntitySync => (4, 8),
            Priority::Polling => (8, 16),
            Priority::Map => (12, 24),
        };
        (player * TOKEN, address * TOKEN)
    }
}

/// The buckets of one game server for our address, and for each paired player on it.
#[derive(Debug)]
pub struct Budget {
    address: Buckets,
    /// By SteamID64; only those that are not full, or were exhausted.
    players: HashMap<u64, Buckets>,
}

/// The tokens of a player or of an address.
#[derive(Debug)]
struct Buckets {
    tokens: Bucket,
    /// Tokens that entity sync may take. A player polls about 0.6 a second.
    entity_sync: Bucket,
    /// When they were last exhausted: a user had to wait, or the game server refused a request for its rate.
    exhausted_at: Option<u64>,
}

impl Buckets {
    fn of_address(now: u64) -> Self {
        Self { tokens: Bucket::new(45, 14, now), entity_sync: Bucket::new(30, 10, now), exhausted_at: None }
    }

    fn of_player(now: u64) -> Self {
        Self { tokens: Bucket::new(24, 3, now), entity_sync: Bucket::new(12, 2, now), exhausted_at: None }
    }

    /// Milliseconds until the cost can be taken with the reserve left over; 0 = now.
    fn wait(&self, cost: u32, priority: Priority, reserve: u32, now: u64) -> u64 {
        let share = if priority == Priority::EntitySync { self.entity_sync.wait(now, cost, 0) } else { 0 };
        share.max(self.tokens.wait(now, cost, reserve))
    }

    fn take(&mut self, cost: u32, priority: Priority, now: u64) -> Result<(), u64> {
        if priority == Priority::EntitySync {
            self.entity_sync.take(now, cost)?;
        }
        self.tokens.take(now, cost)
    }

    /// The game server has refused a request.
    fn drain(&mut self, now: u64) {
        self.tokens.drain(now);
        self.exhausted_at = Some(now);
    }

    fn is_full(&self, now: u64) -> bool {
        self.tokens.is_full(now) && self.entity_sync.is_full(now)
    }

    fn was_exhausted(&self, now: u64) -> bool {
        self.exhausted_at.is_some_and(|at| now < at + EXHAUSTED_FOR)
    }
}

/// Milliseconds for which a budget that was exhausted is said to be so: its tokens come back within seconds, and what
/// took them comes again.
const EXHAUSTED_FOR: u64 = 60_000;

/// Players above which those with a full bucket are forgotten.
const PRUNE_ABOVE: usize = 64;

impl Budget {
    /// Full buckets.
    pub fn new(now: u64) -> Self {
        Self { address: Buckets::of_address(now), players: HashMap::new() }
    }

    /// The part that is left in the emptiest bucket, 0 to 1.
    pub fn left(&self, now: u64) -> f64 {
        let all = self.players.values().chain([&self.address]);
        all.map(|buckets| buckets.tokens.left(now)).fold(1.0, f64::min)
    }

    /// Time that a request has to wait; zero = it may go now.
    pub fn wait_for(&self, player: u64, cost: u32, priority: Priority, now: u64) -> Duration {
        let (player_reserve, address_reserve) = priority.reserves();
        // A player who is not in the map has a full bucket, which serves every cost.
        let player = self.players.get(&player).map_or(0, |player| player.wait(cost, priority, player_reserve, now));
        Duration::from_millis(player.max(self.address.wait(cost, priority, address_reserve, now)))
    }

    /// Spends the cost in both buckets, or in neither and returns the time to wait.
    pub fn take(&mut self, player: u64, cost: u32, priority: Priority, now: u64) -> Result<(), Duration> {
        let wait = self.wait_for(player, cost, priority, now);
        if !wait.is_zero() {
            // The others leave tokens, and wait as a matter of course.
            if priority == Priority::Toggle {
                self.note_exhausted(player, cost, now);
            }
            return Err(wait);
        }
        for buckets in [&mut self.address, buckets_of(&mut self.players, player, now)] {
            buckets.take(cost, priority, now).map_err(Duration::from_millis)?;
        }
        Ok(())
    }

    /// Empties the buckets after the game server refused a request of this player for its rate: others spend too.
    pub fn refused(&mut self, player: u64, now: u64) {
        buckets_of(&mut self.players, player, now).drain(now);
        self.address.drain(now);
    }

    /// True if the buckets of this player or of our address were exhausted within the last minute.
    pub fn was_exhausted(&self, player: u64, now: u64) -> bool {
        let mut both = self.players.get(&player).into_iter().chain([&self.address]);
        both.any(|buckets| buckets.was_exhausted(now))
    }

    fn note_exhausted(&mut self, player: u64, cost: u32, now: u64) {
        for buckets in self.players.get_mut(&player).into_iter().chain([&mut self.address]) {
            if buckets.tokens.wait(now, cost, 0) > 0 {
                buckets.exhausted_at = Some(now);
            }
        }
    }
}

fn buckets_of(players: &mut HashMap<u64, Buckets>, player: u64, now: u64) -> &mut Buckets {
    if players.len() > PRUNE_ABOVE {
        players.retain(|_, buckets| !buckets.is_full(now) || buckets.was_exhausted(now));
    }
    players.entry(player).or_insert_with(|| Buckets::of_player(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Budget, Priority, cost};
    use crate::domain::rate::Bucket;

    fn drain(budget: &mut Budget, player: u64, priority: Priority, now: u64) -> u32 {
        (0..).take_while(|_| budget.take(player, cost::REQUEST, priority, now).is_ok()).count() as u32
    }

    #[test]
    fn lower_priorities_leave_tokens_for_higher_ones() {
        let mut budget = Budget::new(0);
        assert_eq!(drain(&mut budget, 1, Priority::Map, 0), 12);
        assert_eq!(drain(&mut budget, 1, Priority::Polling, 0), 4);
        assert_eq!(drain(&mut budget, 1, Priority::EntitySync, 0), 4);
        assert_eq!(drain(&mut budget, 1, Priority::Toggle, 0), 4);
        assert_eq!(budget.wait_for(1, cost::REQUEST, Priority::Toggle, 0), Duration::from_millis(334));
        assert_eq!(budget.wait_for(1, cost::REQUEST, Priority::Map, 0), Duration::from_millis(4_334));
    }

    #[test]
    fn entity_sync_without_end_leaves_polling_its_share() {
        let mut budget = Budget::new(0);
        let (mut polls, mut looks) = (0, 0);
        for now in 0..60_000 {
            looks += u32::from(budget.take(1, cost::REQUEST, Priority::EntitySync, now).is_ok());
            // Markers and the team; the others ask seldom.
            if now % 3_000 == 0 || now % 5_000 == 0 {
                polls += 1;
            }
            if polls > 0 && budget.take(1, cost::REQUEST, Priority::Polling, now).is_ok() {
                polls -= 1;
            }
            assert!(polls <= 3, "a poll waits since three others at {now}");
        }
        assert!(looks > 100, "{looks} looks in a minute");
    }

    #[test]
    fn players_behind_one_address_share_its_bucket() {
        let mut budget = Budget::new(0);
        assert_eq!(drain(&mut budget, 1, Priority::Toggle, 0), 24);
        assert_eq!(drain(&mut budget, 2, Priority::Toggle, 0), 21);
        assert_eq!(budget.wait_for(3, cost::REQUEST, Priority::Toggle, 0), Duration::from_millis(72));
    }

    #[test]
    fn a_request_that_must_wait_costs_nothing() {
        let mut budget = Budget::new(0);
        drain(&mut budget, 1, Priority::Toggle, 0);
        assert!(budget.take(1, cost::REQUEST, Priority::Toggle, 0).is_err());
        assert_eq!(drain(&mut budget, 2, Priority::Toggle, 0), 21);
    }

    #[test]
    fn a_hundred_camera_inputs_cost_a_token() {
        let mut budget = Budget::new(0);
        for _ in 0..2_400 {
            assert_eq!(budget.take(1, cost::CAMERA_INPUT, Priority::Toggle, 0), Ok(()));
        }
        assert!(budget.take(1, cost::CAMERA_INPUT, Priority::Toggle, 0).is_err());
    }

    #[test]
    fn a_refusal_empties_the_mirror() {
        let mut budget = Budget::new(0);
        budget.refused(1, 0);
        assert_eq!(budget.wait_for(1, cost::REQUEST, Priority::Toggle, 0), Duration::from_millis(334));
        assert_eq!(budget.wait_for(2, cost::REQUEST, Priority::Toggle, 0), Duration::from_millis(72));
    }

    #[test]
    fn a_budget_is_exhausted_for_a_minute_after_a_user_had_to_wait_and_after_a_refusal() {
        let mut budget = Budget::new(0);
        drain(&mut budget, 1, Priority::Polling, 0);
        assert!(!budget.was_exhausted(1, 0), "polls leave tokens");
        drain(&mut budget, 1, Priority::Toggle, 0);
        assert!(budget.was_exhausted(1, 59_999) && !budget.was_exhausted(1, 60_000));
        assert!(!budget.was_exhausted(2, 0), "the address has tokens for another player");
        budget.refused(1, 70_000);
        assert!(budget.was_exhausted(1, 70_000) && budget.was_exhausted(2, 70_000));
    }

    #[test]
    fn players_with_a_full_bucket_are_forgotten() {
        let mut budget = Budget::new(0);
        for player in 0..10_000 {
            let _ = budget.take(player, cost::REQUEST, Priority::Toggle, player * 500);
        }
        assert!(budget.players.len() <= 70);
    }

    proptest! {
        #[test]
        fn the_game_server_never_refuses_what_the_mirror_lets_through(
            steps in prop::collection::vec((0_u64..600, 0_u64..4, 0_usize..4, 0_usize..4), 1..300),
        ) {
            let mut budget = Budget::new(0);
            let mut players: Vec<_> = (0..4).map(|_| Bucket::new(25, 3, 0)).collect();
            let mut address = Bucket::new(50, 15, 0);
            let mut now = 0;
            for (advance, player, price, priority) in steps {
                now += advance;
                let cost = [cost::MAP, cost::CHAT_MESSAGE, cost::CAMERA_INPUT, cost::REQUEST][price];
                let priority = [Priority::Map, Priority::Polling, Priority::EntitySync, Priority::Toggle][priority];
                match budget.take(player, cost, priority, now) {
                    Ok(()) => {
                        prop_assert_eq!(players[player as usize].take(now, cost), Ok(()));
                        prop_assert_eq!(address.take(now, cost), Ok(()));
                    }
                    Err(wait) => {
                        let later = now + wait.as_millis() as u64;
                        prop_assert!(budget.wait_for(player, cost, priority, later).is_zero(), "waiting is enough");
                    }
                }
            }
        }
    }
}
