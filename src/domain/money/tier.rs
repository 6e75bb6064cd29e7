//! The tier of a user, its reasons and its entitlements: computed on each read, from the stored facts and the time.

use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    limits::SHOP_WATCHES_PER_SERVER, money::billing_interval::BillingInterval, time::Timestamp, words::words,
};

/// Time that a tier remains after a payment could not be charged.
pub const GRACE: TimeDelta = TimeDelta::days(7);
/// Time that a tier remains after its subscription should have been renewed, without news of the renewal.
pub const RENEWAL_LEEWAY: TimeDelta = TimeDelta::days(3);

words! {
    /// A tier to subscribe to; the smallest comes first.
    #[derive(PartialOrd, Ord, ToSchema)]
    pub enum Tier {
        Scout = "SCOUT",
        Operator = "OPERATOR",
        Overlord = "OVERLORD",
    }
}

words! {
    /// Status of a subscription, in the payment provider's words.
    #[derive(ToSchema)]
    pub enum SubscriptionStatus {
        Active = "ACTIVE",
        Trialing = "TRIALING",
        /// A payment could not be charged and is tried again.
        PastDue = "PAST_DUE",
        /// Ended, for good.
        Canceled = "CANCELED",
        /// The first payment is not done.
        Incomplete = "INCOMPLETE",
        /// No payment is tried again.
        Unpaid = "UNPAID",
        Paused = "PAUSED",
    }
}

impl SubscriptionStatus {
    /// The payment provider's word for it. One that we do not know (yet) entitles to nothing.
    pub fn of_provider(word: &str) -> Self {
        match word {
            "active" => Self::Active,
            "trialing" => Self::Trialing,
            "past_due" => Self::PastDue,
            "canceled" | "incomplete_expired" => Self::Canceled,
            "incomplete" => Self::Incomplete,
            "paused" => Self::Paused,
            _ => Self::Unpaid,
        }
    }

    /// True if it goes on at the provider, so that a second subscription would be charged beside it.
    pub fn is_running(self) -> bool {
        self != Self::Canceled
    }
}

/// Rights that a tier unlocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlements {
    /// Guests and open invitations of one paired server.
    pub guests_per_server: u32,
    /// Watched shops of all servers of a user.
    pub watched_shops: u32,
}

impl Entitlements {
    /// The table.
    pub fn of(tier: Option<Tier>) -> Self {
        let (guests_per_server, watched_shops) = match tier {
            None => (0, 0),
            Some(Tier::Scout) => (1, 10),
            Some(Tier::Operator) => (3, 50),
            // As many as a single server may have, so that no other limit applies first.
            Some(Tier::Overlord) => (8, SHOP_WATCHES_PER_SERVER as u32),
        };
        Self { guests_per_server, watched_shops }
    }
}

/// A subscription as it was last known at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSubscription {
    /// The provider's id.
    pub id: String,
    /// `None`: it has a price that is not configured.
    pub tier: Option<Tier>,
    /// The interval at which it is charged; `None` as for the tier.
    pub interval: Option<BillingInterval>,
    pub status: SubscriptionStatus,
    /// The provider's price.
    pub price: Option<String>,
    /// The tier of the last price that was paid, as far as it was seen here. The provider does not say; storing it
    /// does.
    pub paid_tier: Option<Tier>,
    /// The period that is paid or to be paid. It ends with a subscription that ended at once.
    pub period_start: Option<Timestamp>,
    pub period_end: Option<Timestamp>,
    /// True if it ends with the period.
    pub cancel_at_period_end: bool,
    /// The provider ended it because it was not paid: the rest of its period counts for nothing.
    pub lapsed: bool,
    pub started_at: Timestamp,
    /// Since when it is stored as [`SubscriptionStatus::PastDue`]. The provider does not say; storing it does.
    pub past_due_since: Option<Timestamp>,
}

impl TierSubscription {
    /// The tier to which it entitles now. An unpaid one, such as an upgrade, gives none: then the last paid one counts.
    pub fn tier_at(&self, now: Timestamp) -> Option<Tier> {
        let tier = match self.status {
            SubscriptionStatus::PastDue | SubscriptionStatus::Canceled => self.paid_tier,
            _ => self.tier,
        };
        tier.filter(|_| self.entitles(now))
    }

    /// True if another payment comes unless the user ends it.
    pub fn is_to_renew(&self) -> bool {
        self.status.is_running() && self.status != SubscriptionStatus::Incomplete && !self.cancel_at_period_end
    }

    /// True if it no longer entitles to anything.
    pub fn is_over(&self, now: Timestamp) -> bool {
        !self.entitles(now)
    }

    fn entitles(&self, now: Timestamp) -> bool {
        match self.status {
            SubscriptionStatus::Active | SubscriptionStatus::Trialing => !self.is_overdue(now),
            SubscriptionStatus::PastDue => self.grace_ends().is_some_and(|end| now < end),
            SubscriptionStatus::Canceled => !self.lapsed && self.period_end.is_some_and(|end| now < end),
            SubscriptionStatus::Incomplete | SubscriptionStatus::Unpaid | SubscriptionStatus::Paused => false,
        }
    }

    /// True if its period is over, without news of the next one.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.period_end.is_some_and(|end| now >= end + RENEWAL_LEEWAY)
    }

    /// End of the grace period; another failure before a payment does not start it again.
    fn grace_ends(&self) -> Option<Timestamp> {
        Some(self.past_due_since.or(self.period_start)? + GRACE)
    }

    /// Its state, in words.
    fn fact(&self, now: Timestamp) -> String {
        let tier = self.tier.map_or("a price that is not configured", Tier::word);
        let until = |end: Option<Timestamp>| end.map_or_else(|| "an unknown time".to_owned(), Timestamp::to_wire);
        let end = until(self.period_end);
        let standing = match self.status {
            SubscriptionStatus::Active | SubscriptionStatus::Trialing if self.is_overdue(now) => {
                format!("ended or was renewed at {end}; the payment provider has not said so")
            }
            SubscriptionStatus::Active if self.cancel_at_period_end => format!("is active and ends at {end}"),
            SubscriptionStatus::Active => format!("is active and renews at {end}"),
            SubscriptionStatus::Trialing => format!("is on trial until {end}"),
            SubscriptionStatus::PastDue if self.tier_at(now).is_some() => {
                let paid = self.paid_tier.filter(|paid| Some(*paid) != self.tier);
                let stays =
                    paid.map_or("its tier".to_owned(), |paid| format!("the tier {}, which was paid,", paid.word()));
                format!("could not be charged; {stays} stays until {}", until(self.grace_ends()))
            }
            SubscriptionStatus::PastDue if self.paid_tier.is_none() => "could not be charged".to_owned(),
            SubscriptionStatus::PastDue => "could not be charged, and the days of grace are over".to_owned(),
            SubscriptionStatus::Canceled if self.lapsed => "ended because it was not paid".to_owned(),
            SubscriptionStatus::Canceled if self.tier_at(now).is_some() => {
                format!("was cancelled; its tier stays until {end}")
            }
            SubscriptionStatus::Canceled => "has ended".to_owned(),
            SubscriptionStatus::Incomplete => "waits for its first payment".to_owned(),
            SubscriptionStatus::Unpaid => "is unpaid".to_owned(),
            SubscriptionStatus::Paused => "is paused".to_owned(),
        };
        let yearly = if self.interval == Some(BillingInterval::Year) { "yearly " } else { "" };
        format!("The {yearly}subscription to {tier} {standing}.")
    }
}

/// The free tier of a beta tester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetaEntry {
    pub tier: Tier,
    /// `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl EffectiveTier {
    /// The tier of a user without any.
    pub fn none() -> Self {
        Self { tier: None, source: None, subscription: None, why: Vec::new() }
    }
}

/// Source of a user's tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TierSource {
    /// By a subscription.
    Paid,
    /// As a beta tester.
    Beta,
}

/// The tier of a user now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveTier {
    pub tier: Option<Tier>,
    /// `None` without a tier.
    pub source: Option<TierSource>,
    /// The one that runs, or else the one that decides, or else the latest one.
    pub subscription: Option<TierSubscription>,
    /// The facts that make it so, in words.
    pub why: Vec<String>,
}

/// Paid beats beta beats none. Of several subscriptions the highest tier to which one entitles counts.
pub fn effective(subscriptions: &[TierSubscription], beta: Option<&BetaEntry>, now: Timestamp) -> EffectiveTier {
    let begun = |status: SubscriptionStatus| status.is_running() && status != SubscriptionStatus::Incomplete;
    let rank = |one: &&TierSubscription| (begun(one.status), one.status.is_running(), one.tier_at(now), one.started_at);
    let subscription = subscriptions.iter().max_by_key(rank);
    let paid = subscriptions.iter().filter_map(|one| one.tier_at(now)).max();
    let active_beta = beta.filter(|beta| beta.expires_at.is_none_or(|end| now < end));
    let mut why = vec![match subscription {
        Some(subscription) => subscription.fact(now),
        None => "There is no subscription.".to_owned(),
    }];
    let others = subscriptions.iter().filter(|other| subscription.is_some_and(|shown| shown.id != other.id));
    why.extend(others.filter_map(|other| match other.status {
        SubscriptionStatus::Incomplete => Some(other.fact(now)),
        SubscriptionStatus::Canceled => other.tier_at(now).map(|_| other.fact(now)),
        _ => {
            let name = other.tier.map_or("another price", Tier::word);
            Some(format!("A subscription to {name} runs besides and is charged, too: the portal cancels it."))
        }
    }));
    if let Some(BetaEntry { tier, expires_at }) = beta {
        let until = expires_at.map_or_else(String::new, |end| format!(" until {}", end.to_wire()));
        why.push(match (active_beta, paid) {
            (None, _) => format!("The beta test of {} is over.", tier.word()),
            (Some(_), None) => format!("A beta tester has {}{until}.", tier.word()),
            (Some(_), Some(_)) => {
                format!("A beta tester has {}{until}, but a paid subscription goes before.", tier.word())
            }
        });
    }
    let tier = paid.or(active_beta.map(|beta| beta.tier));
    let source = paid.map(|_| TierSource::Paid).or(tier.map(|_| TierSource::Beta));
    EffectiveTier { tier, source, subscription: subscription.cloned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + TimeDelta::days(day)
    }

    /// A subscription for the days 0 to 30.
    fn subscription(tier: Tier, status: SubscriptionStatus) -> TierSubscription {
        TierSubscription {
            id: "sub_1".into(),
            tier: Some(tier),
            interval: Some(BillingInterval::Month),
            status,
            price: Some("price_1".into()),
            paid_tier: Some(tier),
            period_start: Some(at(0)),
            period_end: Some(at(30)),
            cancel_at_period_end: false,
            lapsed: false,
            started_at: at(0),
            past_due_since: None,
        }
    }

    #[test]
    fn a_status_entitles_as_long_as_it_should() {
        use SubscriptionStatus::*;
        let days = |one: TierSubscription| (0..60).filter(|day| one.tier_at(at(*day)).is_some()).count();
        let of = |status| subscription(Tier::Scout, status);
        assert_eq!([Active, Trialing].map(of).map(days), [33; 2], "and three days, in which a renewal may be late");
        assert_eq!(days(TierSubscription { period_end: None, ..of(Active) }), 60);
        assert_eq!((days(of(PastDue)), days(of(Canceled))), (7, 30));
        assert_eq!([Incomplete, Unpaid, Paused].map(of).map(days), [0; 3]);
        assert_eq!(days(TierSubscription { lapsed: true, ..of(Canceled) }), 0);
        assert_eq!(days(TierSubscription { period_start: None, ..of(PastDue) }), 0);
        let since = |day| TierSubscription { past_due_since: Some(at(day)), ..of(PastDue) };
        assert_eq!((days(since(20)), days(since(-3))), (27, 4), "from the first failure");
        assert_eq!(days(TierSubscription { period_start: None, ..since(20) }), 27);
        assert_eq!(days(TierSubscription { period_end: None, ..of(Canceled) }), 0);
    }

    #[test]
    fn paid_beats_beta_beats_none() {
        let beta = BetaEntry { tier: Tier::Overlord, expires_at: Some(at(10)) };
        let paid = subscription(Tier::Scout, SubscriptionStatus::Active);
        let tier = |subscriptions: &[TierSubscription], day| effective(subscriptions, Some(&beta), at(day)).tier;
        assert_eq!(tier(std::slice::from_ref(&paid), 0), Some(Tier::Scout));
        assert_eq!((tier(&[], 9), tier(&[], 10)), (Some(Tier::Overlord), None));
        let ended = subscription(Tier::Operator, SubscriptionStatus::Canceled);
        assert_eq!((tier(std::slice::from_ref(&ended), 1), tier(&[ended], 31)), (Some(Tier::Operator), None));
        let nothing = effective(&[], None, at(0));
        assert_eq!((nothing.tier, nothing.why), (None, vec!["There is no subscription.".to_owned()]));
        let unknown = TierSubscription { tier: None, ..paid };
        assert_eq!(tier(&[unknown], 0), Some(Tier::Overlord), "a price that is not configured gives no tier");
    }

    #[test]
    fn the_best_of_several_subscriptions_counts() {
        let old = subscription(Tier::Overlord, SubscriptionStatus::Unpaid);
        let new = TierSubscription { started_at: at(5), ..subscription(Tier::Scout, SubscriptionStatus::Active) };
        let best = TierSubscription { started_at: at(1), ..subscription(Tier::Operator, SubscriptionStatus::Trialing) };
        let all = [old.clone(), new, best.clone()];
        assert_eq!(effective(&all, None, at(6)).subscription, Some(best.clone()));
        let ended = TierSubscription { started_at: at(9), ..subscription(Tier::Scout, SubscriptionStatus::Incomplete) };
        assert_eq!(effective(&[old.clone(), ended], None, at(40)).subscription, Some(old), "it is still running");
    }

    #[test]
    fn what_runs_is_shown_before_what_has_ended_and_the_highest_tier_counts() {
        let ended = subscription(Tier::Overlord, SubscriptionStatus::Canceled);
        let runs = TierSubscription { id: "sub_2".into(), ..subscription(Tier::Scout, SubscriptionStatus::Active) };
        let both = effective(&[ended.clone(), runs.clone()], None, at(1));
        assert_eq!((both.tier, both.subscription), (Some(Tier::Overlord), Some(runs.clone())));
        let why = "The subscription to OVERLORD was cancelled; its tier stays until 2027-02-14T08:00:00.000Z.";
        assert_eq!(both.why[1], why);
        let later = effective(&[ended, runs], None, at(31));
        assert_eq!((later.tier, later.why.len()), (Some(Tier::Scout), 1));
    }

    #[test]
    fn what_is_not_paid_gives_the_tier_that_was() {
        let upgraded = TierSubscription {
            paid_tier: Some(Tier::Scout),
            past_due_since: Some(at(3)),
            ..subscription(Tier::Overlord, SubscriptionStatus::PastDue)
        };
        let effect = effective(std::slice::from_ref(&upgraded), None, at(4));
        assert_eq!(effect.tier, Some(Tier::Scout));
        let why = "The subscription to OVERLORD could not be charged; the tier SCOUT, which was paid, stays until 2027-01-25T08:00:00.000Z.";
        assert_eq!(effect.why, [why]);
        let never_paid = TierSubscription { paid_tier: None, ..upgraded };
        assert_eq!(never_paid.tier_at(at(4)), None);
        assert_eq!(never_paid.fact(at(4)), "The subscription to OVERLORD could not be charged.");
    }

    #[test]
    fn what_is_about_to_be_charged_again_is_known() {
        use SubscriptionStatus::*;
        for (status, renews) in
            [(Active, true), (PastDue, true), (Paused, true), (Incomplete, false), (Canceled, false)]
        {
            let one = subscription(Tier::Scout, status);
            assert_eq!(one.is_to_renew(), renews, "{status:?}");
            assert!(!TierSubscription { cancel_at_period_end: true, ..one }.is_to_renew());
        }
        assert_eq!(SubscriptionStatus::of_provider("incomplete_expired"), Canceled);
        assert!(Incomplete.is_running() && !Canceled.is_running());
    }

    #[test]
    fn why_says_what_decides_and_until_when() {
        let mut paid = subscription(Tier::Operator, SubscriptionStatus::PastDue);
        let beta = BetaEntry { tier: Tier::Overlord, expires_at: None };
        let why = effective(std::slice::from_ref(&paid), Some(&beta), at(1)).why;
        assert_eq!(
            why,
            [
                "The subscription to OPERATOR could not be charged; its tier stays until 2027-01-22T08:00:00.000Z.",
                "A beta tester has OVERLORD, but a paid subscription goes before.",
            ]
        );
        paid.past_due_since = Some(at(20));
        let why = effective(std::slice::from_ref(&paid), None, at(21)).why;
        assert_eq!(
            why,
            ["The subscription to OPERATOR could not be charged; its tier stays until 2027-02-11T08:00:00.000Z."]
        );
        paid.status = SubscriptionStatus::Active;
        paid.cancel_at_period_end = true;
        let why = effective(std::slice::from_ref(&paid), None, at(1)).why;
        assert_eq!(why, ["The subscription to OPERATOR is active and ends at 2027-02-14T08:00:00.000Z."]);
        let other = TierSubscription { id: "sub_2".into(), ..subscription(Tier::Scout, SubscriptionStatus::Active) };
        let why = effective(&[paid, other], None, at(1)).why;
        assert_eq!(why[1], "A subscription to SCOUT runs besides and is charged, too: the portal cancels it.");
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for status in SubscriptionStatus::ALL {
            assert_eq!(SubscriptionStatus::parse(status.word()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.word());
        }
        for tier in Tier::ALL {
            assert_eq!(Tier::parse(tier.word()), Some(tier));
            assert_eq!(serde_json::to_value(tier).unwrap(), tier.word());
        }
        assert_eq!(SubscriptionStatus::of_provider("frozen"), SubscriptionStatus::Unpaid);
    }
}
