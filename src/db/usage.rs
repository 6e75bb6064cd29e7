//! Usage of the service, for admins: members, subscriptions and pairings now, and the counts of days. Each number comes
//! from an index or from counted days, so that all of it costs the same however long the history is.

use chrono::{NaiveDate, TimeDelta};

use crate::{
    db::{
        daily_counts::{self, DayCounts},
        engine::{error::DbError, pool::Db, prelude::*},
        schema::{paired_servers, subscriptions, users as members},
        users,
    },
    domain::{money::tier::SubscriptionStatus, time::Timestamp},
};

/// Usage of the service.
#[derive(Clone, Debug)]
pub struct Usage {
    pub at: Timestamp,
    pub members: i64,
    /// Members who were there in the last day, 7 days and 30 days.
    pub seen: [i64; 3],
    pub active: i64,
    pub trialing: i64,
    pub past_due: i64,
    /// Servers that were paired within 7 days, and still are.
    pub pairings: i64,
    /// See [`daily_counts::days`].
    pub days: Vec<(NaiveDate, DayCounts)>,
}

impl Usage {
    /// As it is now.
    pub fn read(db: &mut Db, now: Timestamp) -> Result<Self, DbError> {
        let mut seen = |days| {
            let since = now - TimeDelta::days(days);
            members::table.filter(members::last_seen_at.ge(since)).count().get_result(db)
        };
        let seen = [seen(1)?, seen(7)?, seen(30)?];
        let mut with = |status: SubscriptionStatus| {
            subscriptions::table.filter(subscriptions::status.eq(status.word())).count().get_result(db)
        };
        let active = with(SubscriptionStatus::Active)?;
        let (trialing, past_due) = (with(SubscriptionStatus::Trialing)?, with(SubscriptionStatus::PastDue)?);
        let week = now - TimeDelta::days(7);
        let pairings = paired_servers::table.filter(paired_servers::created_at.ge(week)).count().get_result(db)?;
        let (members, days) = (users::count(db)?, daily_counts::days(db, now)?);
        Ok(Self { at: now, members, seen, active, trialing, past_due, pairings, days })
    }
}
