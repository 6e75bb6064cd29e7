//! Subscriptions by the payment provider's id, each as it was last known there.
//!
//! A fetched subscription is stored only if no other process stored it in between (`version`), and fetched again
//! otherwise: so what is stored was fetched after everything that was stored before, whatever the order of events.

use std::collections::{HashMap, HashSet};

use crate::{
    db::{
        engine::{error::DbError, pool::Db, prelude::*},
        schema::subscriptions,
    },
    domain::{
        ids::UserId,
        money::{
            billing_interval::BillingInterval,
            tier::{RENEWAL_LEEWAY, SubscriptionStatus, Tier, TierSubscription},
        },
        time::Timestamp,
    },
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = subscriptions)]
pub(in crate::db) struct SubscriptionRow {
    id: String,
    user_id: String,
    customer_id: String,
    tier: Option<String>,
    status: String,
    price: Option<String>,
    period_start: Option<Timestamp>,
    period_end: Option<Timestamp>,
    cancel_at_period_end: bool,
    lapsed: bool,
    started_at: Timestamp,
    version: i64,
    past_due_since: Option<Timestamp>,
    paid_tier: Option<String>,
    billing_interval: Option<String>,
    ended_unknown: bool,
}

/// A subscription, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedSubscription {
    pub user: UserId,
    pub customer: String,
    pub subscription: TierSubscription,
}

/// A subscription as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSubscription {
    pub owned: OwnedSubscription,
    /// Counts how often it was stored.
    pub version: i64,
    /// Ended here because the provider did not know it.
    pub ended_unknown: bool,
}

impl StoredSubscription {
    /// True when the provider has said that it ended, which is final.
    pub fn has_ended(&self) -> bool {
        !self.owned.subscription.status.is_running() && !self.ended_unknown
    }
}

/// Outcome of storing a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionPut {
    Stored,
    /// The subscription has ended before, for good.
    HasEnded,
    /// Another caller stored it since this version.
    Outdated,
}

#[derive(AsChangeset, Insertable)]
#[diesel(table_name = subscriptions, treat_none_as_null = true)]
struct SubscriptionColumns<'a> {
    user_id: &'a str,
    customer_id: &'a str,
    tier: Option<&'static str>,
    status: &'static str,
    price: Option<&'a str>,
    period_start: Option<Timestamp>,
    period_end: Option<Timestamp>,
    cancel_at_period_end: bool,
    lapsed: bool,
    started_at: Timestamp,
    fetched_at: Timestamp,
    version: i64,
    past_due_since: Option<Timestamp>,
    paid_tier: Option<&'static str>,
    billing_interval: Option<&'static str>,
    ended_unknown: bool,
}

impl From<SubscriptionRow> for StoredSubscription {
    fn from(row: SubscriptionRow) -> Self {
        let subscription = TierSubscription {
            id: row.id,
            tier: row.tier.as_deref().and_then(Tier::parse),
            interval: row.billing_interval.as_deref().and_then(BillingInterval::parse),
            status: SubscriptionStatus::parse(&row.status).unwrap_or(SubscriptionStatus::Unpaid),
            price: row.price,
            period_start: row.period_start,
            period_end: row.period_end,
            cancel_at_period_end: row.cancel_at_period_end,
            lapsed: row.lapsed,
            started_at: row.started_at,
            past_due_since: row.past_due_since,
            paid_tier: row.paid_tier.as_deref().and_then(Tier::parse),
        };
        let owned = OwnedSubscription { user: row.user_id.into(), customer: row.customer_id, subscription };
        Self { owned, version: row.version, ended_unknown: row.ended_unknown }
    }
}

/// The subscription of this id.
pub fn get(db: &mut Db, id: &str) -> Result<Option<StoredSubscription>, DbError> {
    let row = subscriptions::table.find(id).select(SubscriptionRow::as_select()).first(db).optional()?;
    Ok(row.map(StoredSubscription::from))
}

/// The user's subscriptions, oldest first.
pub fn list_for(db: &mut Db, user: &UserId) -> Result<Vec<TierSubscription>, DbError> {
    let rows = subscriptions::table
        .filter(subscriptions::user_id.eq(user.as_str()))
        .order((subscriptions::started_at, subscriptions::id))
        .select(SubscriptionRow::as_select())
        .load(db)?;
    Ok(rows.into_iter().map(|row| StoredSubscription::from(row).owned.subscription).collect())
}

/// The subscriptions of each of these users, oldest first.
pub fn list_for_all(db: &mut Db, users: &[UserId]) -> Result<HashMap<UserId, Vec<TierSubscription>>, DbError> {
    let rows: Vec<SubscriptionRow> = subscriptions::table
        .filter(subscriptions::user_id.eq_any(users.iter().map(UserId::as_str)))
        .order((subscriptions::started_at, subscriptions::id))
        .select(SubscriptionRow::as_select())
        .load(db)?;
    let mut of_users: HashMap<UserId, Vec<TierSubscription>> = HashMap::new();
    for OwnedSubscription { user, subscription, .. } in rows.into_iter().map(|row| StoredSubscription::from(row).owned)
    {
        of_users.entry(user).or_default().push(subscription);
    }
    Ok(of_users)
}

/// The ids of all users with a subscription that entitles to a tier now.
pub fn entitled(db: &mut Db, now: Timestamp) -> Result<HashSet<String>, DbError> {
    // Most of them: only who has them is read.
    let running = [SubscriptionStatus::Active, SubscriptionStatus::Trialing].map(SubscriptionStatus::word);
    let heard_of = now - RENEWAL_LEEWAY;
    let running: Vec<String> = subscriptions::table
        .filter(subscriptions::tier.is_not_null())
        .filter(subscriptions::status.eq_any(running))
        .filter(subscriptions::period_end.is_null().or(subscriptions::period_end.gt(heard_of)))
        .select(subscriptions::user_id)
        .load(db)?;
    let canceled = subscriptions::status.eq(SubscriptionStatus::Canceled.word());
    let past_due = subscriptions::status.eq(SubscriptionStatus::PastDue.word());
    let ending: Vec<SubscriptionRow> = subscriptions::table
        .filter(subscriptions::paid_tier.is_not_null())
        .filter(past_due.or(canceled.and(subscriptions::period_end.gt(now))))
        .select(SubscriptionRow::as_select())
        .load(db)?;
    let ending = ending.into_iter().map(|row| StoredSubscription::from(row).owned);
    let ending = ending.filter(|owned| owned.subscription.tier_at(now).is_some()).map(|owned| owned.user.to_string());
    Ok(running.into_iter().chain(ending).collect())
}

/// The customers whose subscriptions are a user's.
pub fn customers_of(db: &mut Db, user: &UserId) -> Result<Vec<String>, DbError> {
    let of_user = subscriptions::table.filter(subscriptions::user_id.eq(user.as_str()));
    Ok(of_user.select(subscriptions::customer_id).distinct().load(db)?)
}

/// Ends one that the provider does not know any longer, as it was last known. The key may be of another account: once the
/// provider knows it again, that counts. False: it was stored since this version.
pub fn end_unknown(db: &mut Db, id: &str, version: i64) -> Result<bool, DbError> {
    let row = subscriptions::table.find(id).filter(subscriptions::version.eq(version));
    let ended = diesel::update(row)
        .set((
            subscriptions::status.eq(SubscriptionStatus::Canceled.word()),
            subscriptions::cancel_at_period_end.eq(false),
            subscriptions::lapsed.eq(true),
            subscriptions::ended_unknown.eq(true),
            subscriptions::version.eq(version + 1),
        ))
        .execute(db)?;
    Ok(ended == 1)
}

/// At most `limit` subscriptions after this id, by id.
pub fn page(db: &mut Db, after: &str, limit: i64) -> Result<Vec<StoredSubscription>, DbError> {
    let rows = subscriptions::table
        .filter(subscriptions::id.gt(after))
        .order(subscriptions::id)
        .limit(limit)
        .select(SubscriptionRow::as_select())
        .load(db)?;
    Ok(rows.into_iter().map(StoredSubscription::from).collect())
}

/// Stores one as it was fetched when `known` was its version (`None`: it was not stored). One that has ended is the last
/// word, whatever was known. Kept here: since when a payment is due, for as long as it is; and which tier was paid last,
/// but for one that is past due, of which the provider was asked.
///
/// Call it in a transaction ([`Pool::write`](crate::db::engine::pool::Pool::write)).
pub fn put(
    db: &mut Db,
    owned: &OwnedSubscription,
    known: Option<i64>,
    now: Timestamp,
) -> Result<SubscriptionPut, DbError> {
    let OwnedSubscription { user, customer, subscription } = owned;
    let ends = subscription.status == SubscriptionStatus::Canceled;
    let stored = get(db, &subscription.id)?;
    let before = stored.as_ref().map(|stored| stored.version);
    if stored.as_ref().is_some_and(StoredSubscription::has_ended) && !ends {
        return Ok(SubscriptionPut::HasEnded);
    }
    if before != known && !ends {
        return Ok(SubscriptionPut::Outdated);
    }
    let known_subscription = stored.map(|stored| stored.owned.subscription);
    let paid_tier = match subscription.status {
        SubscriptionStatus::Active => subscription.tier,
        SubscriptionStatus::PastDue => subscription.paid_tier,
        _ => known_subscription.as_ref().and_then(|stored| stored.paid_tier),
    };
    let known_past_due = known_subscription.filter(|stored| stored.status == SubscriptionStatus::PastDue);
    let past_due_since = match (subscription.status, known_past_due) {
        (SubscriptionStatus::PastDue, Some(stored)) => stored.past_due_since,
        (SubscriptionStatus::PastDue, None) => Some(now),
        _ => None,
    };
    let columns = SubscriptionColumns {
        user_id: user.as_str(),
        customer_id: customer,
        tier: subscription.tier.map(Tier::word),
        status: subscription.status.word(),
        price: subscription.price.as_deref(),
        period_start: subscription.period_start,
        period_end: subscription.period_end,
        cancel_at_period_end: subscription.cancel_at_period_end,
        lapsed: subscription.lapsed,
        started_at: subscription.started_at,
        fetched_at: now,
        version: before.unwrap_or(0) + 1,
        past_due_since,
        paid_tier: paid_tier.map(Tier::word),
        billing_interval: subscription.interval.map(BillingInterval::word),
        ended_unknown: false,
    };
    let stored = match before {
        None => {
            let row = (subscriptions::id.eq(&subscription.id), columns);
            let insert = diesel::insert_into(subscriptions::table).values(row).on_conflict_do_nothing();
            on_backend!(db, |db| insert.execute(db))?
        }
        Some(before) => {
            let row = subscriptions::table.find(&subscription.id).filter(subscriptions::version.eq(before));
            diesel::update(row).set(columns).execute(db)?
        }
    };
    Ok(if stored == 1 { SubscriptionPut::Stored } else { SubscriptionPut::Outdated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    fn owned(status: SubscriptionStatus) -> OwnedSubscription {
        let subscription = TierSubscription {
            id: "sub_1".into(),
            tier: Some(Tier::Operator),
            interval: Some(BillingInterval::Year),
            status,
            price: Some("price_2".into()),
            period_start: Some(now()),
            period_end: Some(later(9)),
            cancel_at_period_end: true,
            lapsed: false,
            started_at: now(),
            past_due_since: None,
            paid_tier: Some(Tier::Operator),
        };
        OwnedSubscription { user: "ann".into(), customer: "cus_1".into(), subscription }
    }

    #[test]
    fn what_was_fetched_before_another_stored_is_not_stored_and_an_end_is_final() {
        testing::on_each_database(|pool| {
            use SubscriptionPut::*;
            testing::user(pool, "ann");
            let put = |status, known| pool.write_blocking(|db| put(db, &owned(status), known, now())).unwrap();
            let stored = || pool.read_blocking(|db| get(db, "sub_1")).unwrap();
            assert_eq!(stored(), None);
            assert_eq!(put(SubscriptionStatus::Active, Some(1)), Outdated, "it was never stored");
            assert_eq!(put(SubscriptionStatus::Active, None), Stored);
            assert_eq!(
                stored().unwrap(),
                StoredSubscription { owned: owned(SubscriptionStatus::Active), version: 1, ended_unknown: false }
            );
            assert_eq!(put(SubscriptionStatus::PastDue, None), Outdated);
            assert_eq!(put(SubscriptionStatus::PastDue, Some(1)), Stored);
            assert_eq!(put(SubscriptionStatus::Active, Some(1)), Outdated);
            assert_eq!(put(SubscriptionStatus::Canceled, None), Stored, "whatever was known");
            assert_eq!(put(SubscriptionStatus::Active, Some(3)), HasEnded);
            let list = pool.read_blocking(|db| list_for(db, &"ann".into())).unwrap();
            assert_eq!(list, [owned(SubscriptionStatus::Canceled).subscription]);
            let page = |after: &str| pool.read_blocking(|db| page(db, after, 9)).unwrap().len();
            assert_eq!((page(""), page("sub_1")), (1, 0));
        });
    }

    #[test]
    fn what_the_provider_has_forgotten_is_ended_unless_it_was_stored_since() {
        testing::on_each_database(|pool| {
            testing::user(pool, "ann");
            pool.write_blocking(|db| put(db, &owned(SubscriptionStatus::Active), None, now())).unwrap();
            let end = |version| pool.write_blocking(|db| end_unknown(db, "sub_1", version)).unwrap();
            let status = || pool.read_blocking(|db| get(db, "sub_1")).unwrap().unwrap().owned.subscription.status;
            assert_eq!((end(2), status()), (false, SubscriptionStatus::Active));
            assert_eq!((end(1), status()), (true, SubscriptionStatus::Canceled));
            let put = |status, known| pool.write_blocking(|db| put(db, &owned(status), known, now())).unwrap();
            assert_eq!(
                put(SubscriptionStatus::Active, Some(2)),
                SubscriptionPut::Stored,
                "the provider knows it again"
            );
            assert_eq!(status(), SubscriptionStatus::Active);
            assert!(end(3));
            assert_eq!(put(SubscriptionStatus::Canceled, None), SubscriptionPut::Stored, "it has ended there");
            assert_eq!(put(SubscriptionStatus::Active, Some(5)), SubscriptionPut::HasEnded);
            assert_eq!(pool.read_blocking(|db| customers_of(db, &"ann".into())).unwrap(), ["cus_1"]);
        });
    }

    #[test]
    fn the_tier_that_was_paid_last_is_kept() {
        testing::on_each_database(|pool| {
            use {SubscriptionStatus::*, Tier::*};
            testing::user(pool, "ann");
            let stored = |id: &str, status, tier| {
                let mut owned = owned(status);
                owned.subscription.tier = Some(tier);
                // As the provider says of what is past due.
                owned.subscription.paid_tier = Some(Scout).filter(|_| tier != Operator);
                owned.subscription.id = id.to_owned();
                let known = pool.read_blocking(|db| get(db, id)).unwrap().map(|stored| stored.version);
                let put = pool.write_blocking(|db| put(db, &owned, known, now())).unwrap();
                assert_eq!(put, SubscriptionPut::Stored);
                pool.read_blocking(|db| get(db, id)).unwrap().unwrap().owned.subscription.paid_tier
            };
            for (status, tier, paid) in [
                (Trialing, Overlord, None),
                (PastDue, Operator, None),
                (Active, Overlord, Some(Overlord)),
                (Unpaid, Overlord, Some(Overlord)),
                (PastDue, Overlord, Some(Scout)),
                (Unpaid, Overlord, Some(Scout)),
                (Active, Overlord, Some(Overlord)),
                (Canceled, Scout, Some(Overlord)),
            ] {
                assert_eq!(stored("sub_1", status, tier), paid, "{status:?} {tier:?}");
            }
            assert_eq!(stored("sub_2", PastDue, Overlord), Some(Scout), "first seen after a failure");
            assert_eq!(stored("sub_4", Canceled, Overlord), None, "first seen when it had ended");
            assert_eq!(stored("sub_3", Incomplete, Operator), None);
        });
    }

    #[test]
    fn a_payment_is_due_since_the_first_time_that_it_was_stored_as_due() {
        testing::on_each_database(|pool| {
            use SubscriptionStatus::*;
            testing::user(pool, "ann");
            let mut version = None;
            for (status, hour, since) in [
                (PastDue, 1, Some(1)),
                (PastDue, 2, Some(1)),
                (Active, 3, None),
                (PastDue, 4, Some(4)),
                (Unpaid, 5, None),
            ] {
                let stored = pool.write_blocking(|db| put(db, &owned(status), version, later(hour))).unwrap();
                assert_eq!(stored, SubscriptionPut::Stored);
                let stored = pool.read_blocking(|db| get(db, "sub_1")).unwrap().unwrap();
                version = Some(stored.version);
                assert_eq!(stored.owned.subscription.past_due_since, since.map(later), "{status:?} at {hour}");
            }
        });
    }
}
