//! Daily budget of requests to a paid neighbour, shared fairly between the users it is asked for.
//!
//! Each user who asked within the last hour has an equal share. A share is released evenly over the day (UTC), a
//! quarter of it at once, so that a user who comes in the evening finds something left; unused shares go to active
//! users. A request that serves several users is paid by all of them, in equal parts as far as they can. The day's
//! total is never exceeded.

use std::collections::BTreeMap;

use chrono::{NaiveDate, TimeDelta, Timelike as _};

use crate::domain::{ids::UserId, time::Timestamp};

/// Parts of a request in which spending is counted.
const REQUEST: u64 = 1_000;
/// One part in this many of a day's share is released at its beginning.
const AT_ONCE: u64 = 4;
const DAY: u64 = 24 * 60 * 60;
/// A user without a request for this long has no share.
const SHARES_FOR: TimeDelta = TimeDelta::hours(1);

/// See the module.
#[derive(Debug)]
pub struct FairBudget {
    total: u64,
    day: NaiveDate,
    spent: u64,
    users: BTreeMap<UserId, Spending>,
}

/// Spending of one user.
#[derive(Debug)]
struct Spending {
    spent: u64,
    asked_at: Timestamp,
    /// Has spent more since it was last stored.
    changed: bool,
}

impl FairBudget {
    /// A budget of `requests` a day, none spent.
    pub fn new(requests: u32, now: Timestamp) -> Self {
        Self { total: u64::from(requests) * REQUEST, day: now.date_naive(), spent: 0, users: BTreeMap::new() }
    }

    /// Restores the spending of this day from before a restart, in parts of a request.
    pub fn restore(&mut self, spent: impl IntoIterator<Item = (UserId, u64)>, now: Timestamp) {
        for (user, spent) in spent {
            self.spent += spent;
            let long_ago = now - SHARES_FOR;
            self.users.insert(user, Spending { spent, asked_at: long_ago, changed: false });
        }
    }

    /// The day of the current spending.
    pub fn day(&self) -> NaiveDate {
        self.day
    }

    /// Spending of each user this day that has changed since the last call, in parts of a request.
    pub fn take_changes(&mut self) -> Vec<(UserId, u64)> {
        let changed = |(user, known): (&UserId, &mut Spending)| {
            std::mem::take(&mut known.changed).then(|| (user.clone(), known.spent))
        };
        self.users.iter_mut().filter_map(changed).collect()
    }

    /// Pays for one request that serves these users; false if together they cannot.
    pub fn take(&mut self, payers: &[UserId], now: Timestamp) -> bool {
        if now.date_naive() > self.day {
            (self.day, self.spent) = (now.date_naive(), 0);
            self.users.clear();
        }
        for payer in payers {
            let new = Spending { spent: 0, asked_at: now, changed: false };
            self.users.entry(payer.clone()).or_insert(new).asked_at = now;
        }
        if self.spent + REQUEST > self.total {
            return false;
        }
        let allowance = self.allowance(now);
        let mut left: Vec<(u64, &UserId)> =
            payers.iter().map(|payer| (allowance.saturating_sub(self.users[payer].spent), payer)).collect();
        // The poorest first: what they cannot pay is shared by the others.
        left.sort_unstable();
        left.dedup_by_key(|(_, payer)| *payer);
        let mut due = REQUEST;
        let mut parts = Vec::with_capacity(left.len());
        for (place, (left_over, payer)) in left.iter().enumerate() {
            let part = due.div_ceil((left.len() - place) as u64).min(*left_over);
            due -= part;
            parts.push(((*payer).clone(), part));
        }
        if due > 0 {
            return false;
        }
        for (payer, part) in parts {
            if let Some(known) = self.users.get_mut(&payer) {
                known.spent += part;
                known.changed |= part > 0;
            }
        }
        self.spent += REQUEST;
        true
    }

    /// Parts of a request that a user may have spent until now.
    fn allowance(&self, now: Timestamp) -> u64 {
        let users = self.users.values().filter(|known| now - known.asked_at < SHARES_FOR).count().max(1) as u64;
        let passed = u64::from(now.num_seconds_from_midnight());
        let released = (passed + DAY / AT_ONCE).min(DAY);
        // At least a whole request as long as the total has one.
        (self.total / users * released / DAY).max(REQUEST.min(self.total / users))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(hours: i64) -> Timestamp {
        "2026-11-21T00:00:00Z".parse::<Timestamp>().unwrap() + TimeDelta::hours(hours)
    }

    /// Number of requests that these users get, asking as often as they can.
    fn drain(budget: &mut FairBudget, users: &[&str], now: Timestamp) -> usize {
        let users: Vec<UserId> = users.iter().map(|user| UserId::from(*user)).collect();
        (0..10_000).take_while(|_| budget.take(&users, now)).count()
    }

    #[test]
    fn a_quarter_is_there_at_once_and_the_rest_comes_with_the_day() {
        let mut budget = FairBudget::new(100, at(0));
        assert_eq!(drain(&mut budget, &["ann"], at(0)), 25);
        assert_eq!(drain(&mut budget, &["ann"], at(12)), 50);
        assert_eq!(drain(&mut budget, &["ann"], at(23)), 25);
        assert_eq!(drain(&mut budget, &["ann"], at(23)), 0);
        assert_eq!(drain(&mut budget, &["ann"], at(24)), 25, "a new day");
    }

    #[test]
    fn a_caller_that_asks_much_leaves_the_others_their_share() {
        let mut budget = FairBudget::new(100, at(0));
        let ask_once = |budget: &mut FairBudget, user: &str, hour| budget.take(&[user.into()], at(hour));
        assert!(ask_once(&mut budget, "bob", 12));
        assert_eq!(drain(&mut budget, &["ann"], at(12)), 37, "half of what is released");
        assert_eq!(drain(&mut budget, &["bob"], at(12)), 36);
        // Alone, hours later, what Bob left is Ann's.
        assert_eq!(drain(&mut budget, &["ann"], at(20)), 26);
    }

    #[test]
    fn a_late_caller_still_has_a_share() {
        let mut budget = FairBudget::new(100, at(0));
        assert_eq!(drain(&mut budget, &["ann"], at(12)), 75);
        assert_eq!(drain(&mut budget, &["bob"], at(12)), 25, "Ann took more than half before Bob came");
        assert_eq!(drain(&mut budget, &["ann"], at(23)), 0);
    }

    #[test]
    fn a_request_for_several_is_paid_by_all_and_by_the_richer_where_one_has_nothing() {
        let mut budget = FairBudget::new(40, at(0));
        assert_eq!(drain(&mut budget, &["ann", "bob"], at(0)), 10);
        assert_eq!(drain(&mut budget, &["ann"], at(0)), 0);
        let mut budget = FairBudget::new(40, at(0));
        assert!(budget.take(&["bob".into()], at(0)));
        assert_eq!(drain(&mut budget, &["ann"], at(0)), 5);
        assert_eq!(drain(&mut budget, &["ann", "bob"], at(0)), 4, "Bob pays alone");
    }

    #[test]
    fn what_was_spent_survives_a_restart() {
        let mut budget = FairBudget::new(100, at(0));
        assert_eq!(drain(&mut budget, &["ann"], at(0)), 25);
        let stored = budget.take_changes();
        assert_eq!(stored, [("ann".into(), 25 * REQUEST)]);
        assert!(budget.take_changes().is_empty());
        let mut again = FairBudget::new(100, at(0));
        again.restore(stored, at(0));
        assert_eq!(drain(&mut again, &["ann"], at(0)), 0);
    }

    #[test]
    fn without_requests_or_payers_there_is_nothing() {
        assert_eq!(drain(&mut FairBudget::new(0, at(0)), &["ann"], at(12)), 0);
        assert!(!FairBudget::new(10, at(0)).take(&[], at(0)));
    }

    proptest! {
        #[test]
        fn the_total_is_never_exceeded_and_the_parts_make_the_whole(
            total in 0_u32..60,
            asks in prop::collection::vec((prop::collection::vec(0_u8..6, 0..4), 0_i64..24), 0..200),
        ) {
            let mut budget = FairBudget::new(total, at(0));
            let mut asks = asks;
            asks.sort_by_key(|(_, hour)| *hour);
            let mut taken = 0;
            for (payers, hour) in asks {
                let payers: Vec<UserId> = payers.iter().map(|payer| UserId::from(payer.to_string())).collect();
                taken += u64::from(budget.take(&payers, at(hour)));
            }
            prop_assert!(taken <= u64::from(total));
            prop_assert_eq!(budget.users.values().map(|known| known.spent).sum::<u64>(), taken * REQUEST);
        }
    }
}
