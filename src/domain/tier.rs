//! Which tier a user has, why, and what it unlocks: computed when it is read, from what is stored and the time.

use chrono::TimeDelta;
use serde::Serialize;

use crate::domain::time::{self, Timestamp};

/// How long a tier stays after a payment could not be charged.
pub const GRACE: TimeDelta = TimeDelta::days(7);

/// What can be subscribed to, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Tier {
    Scout,
    Operator,
    Overlord,
}

impl Tier {
    pub const ALL: [Self; 3] = [Self::Scout, Self::Operator, Self::Overlord];

    /// As it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scout => "SCOUT",
            Self::Operator => "OPERATOR",
            Self::Overlord => "OVERLORD",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == text)
    }
}

/// How a subscription stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SubscriptionStatus {
    Active,
    Trialing,
    /// A payment could not be charged and is tried again.
    PastDue,
    /// It has ended, for good.
    Canceled,
    /// The first payment is not done.
    Incomplete,
    /// No payment is tried any more.
    Unpaid,
    Paused,
}

impl SubscriptionStatus {
    const ALL: [Self; 7] =
        [Self::Active, Self::Trialing, Self::PastDue, Self::Canceled, Self::Incomplete, Self::Unpaid, Self::Paused];

    /// As it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Trialing => "TRIALING",
            Self::PastDue => "PAST_DUE",
            Self::Canceled => "CANCELED",
            Self::Incomplete => "INCOMPLETE",
            Self::Unpaid => "UNPAID",
            Self::Paused => "PAUSED",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The payment provider's word for it. One that we do not know (yet) entitles to nothing.
    pub fn of_provider(word: &str) -> Self {
        match word {
            "active" => Self::Active,
            "trialing" => Self::Trialing,
            "past_due" => Self::PastDue,
            "canceled" => Self::Canceled,
            "incomplete" | "incomplete_expired" => Self::Incomplete,
            "paused" => Self::Paused,
            _ => Self::Unpaid,
        }
    }

    /// Whether it goes on at the provider, so that a second subscription would be charged beside it.
    pub fn is_running(self) -> bool {
        !matches!(self, Self::Canceled | Self::Incomplete)
    }
}

/// The provider's prices of one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// The one of a new checkout.
    pub sold: String,
    /// Those of checkouts before, which subscriptions may still have.
    pub former: Vec<String>,
}

/// The provider's prices of the tiers, in the order of [`Tier::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPrices(pub [PriceList; 3]);

impl PriceList {
    /// One price.
    pub fn of(sold: impl Into<String>) -> Self {
        Self { sold: sold.into(), former: Vec::new() }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        [&self.sold].into_iter().chain(&self.former)
    }
}

impl TierPrices {
    /// The price of a new checkout.
    pub fn price_of(&self, tier: Tier) -> &str {
        &self.0[tier as usize].sold
    }

    /// The tier of the first of these prices that has one, and that price.
    pub fn tier_of<'a>(&self, prices: impl IntoIterator<Item = &'a String>) -> Option<(Tier, &'a String)> {
        let tier_of =
            |price| Tier::ALL.into_iter().find(|tier| self.0[*tier as usize].all().any(|known| known == price));
        prices.into_iter().find_map(|price| Some((tier_of(price)?, price)))
    }
}

/// What a tier unlocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlements {
    /// Guests and open invitations of one paired server.
    pub guests_per_server: u32,
    /// Watched shops of all servers of a user; `None`: any number.
    pub watched_shops: Option<u32>,
}

impl Entitlements {
    /// The table.
    pub fn of(tier: Option<Tier>) -> Self {
        let (guests_per_server, watched_shops) = match tier {
            None => (0, Some(0)),
            Some(Tier::Scout) => (1, Some(10)),
            Some(Tier::Operator) => (3, Some(50)),
            Some(Tier::Overlord) => (8, None),
        };
        Self { guests_per_server, watched_shops }
    }
}

/// A subscription as it was last known at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSubscription {
    /// The provider's.
    pub id: String,
    /// `None`: of a price that is not configured.
    pub tier: Option<Tier>,
    pub status: SubscriptionStatus,
    /// The provider's price.
    pub price: Option<String>,
    /// The period that is paid or to be paid.
    pub period_start: Option<Timestamp>,
    pub period_end: Option<Timestamp>,
    /// It ends with the period.
    pub cancel_at_period_end: bool,
    /// The provider ended it because it was not paid: what is left of its period counts for nothing.
    pub lapsed: bool,
    pub started_at: Timestamp,
    /// Since when it is stored as [`SubscriptionStatus::PastDue`]. The provider does not say; storing it does.
    pub past_due_since: Option<Timestamp>,
}

impl TierSubscription {
    /// Whether it entitles to its tier now.
    pub fn entitles(&self, now: Timestamp) -> bool {
        match self.status {
            SubscriptionStatus::Active | SubscriptionStatus::Trialing => true,
            SubscriptionStatus::PastDue => self.grace_ends().is_some_and(|end| now < end),
            SubscriptionStatus::Canceled => !self.lapsed && self.period_end.is_some_and(|end| now < end),
            SubscriptionStatus::Incomplete | SubscriptionStatus::Unpaid | SubscriptionStatus::Paused => false,
        }
    }

    /// A renewal was due when its period began; what is charged within a period, such as an upgrade, when it failed.
    fn grace_ends(&self) -> Option<Timestamp> {
        Some(self.period_start.max(self.past_due_since)? + GRACE)
    }

    /// How it stands, in words.
    fn fact(&self, now: Timestamp) -> String {
        let tier = self.tier.map_or("a price that is not configured", Tier::as_str);
        let until = |end: Option<Timestamp>| end.map_or_else(|| "an unknown time".to_owned(), time::to_wire);
        let end = until(self.period_end);
        let stands = match self.status {
            SubscriptionStatus::Active if self.cancel_at_period_end => format!("is active and ends at {end}"),
            SubscriptionStatus::Active => format!("is active and renews at {end}"),
            SubscriptionStatus::Trialing => format!("is on trial until {end}"),
            SubscriptionStatus::PastDue if self.entitles(now) => {
                format!("could not be charged; its tier stays until {}", until(self.grace_ends()))
            }
            SubscriptionStatus::PastDue => "could not be charged, and the days of grace are over".to_owned(),
            SubscriptionStatus::Canceled if self.lapsed => "ended because it was not paid".to_owned(),
            SubscriptionStatus::Canceled if self.entitles(now) => format!("was cancelled; its tier stays until {end}"),
            SubscriptionStatus::Canceled => "has ended".to_owned(),
            SubscriptionStatus::Incomplete => "waits for its first payment".to_owned(),
            SubscriptionStatus::Unpaid => "is unpaid".to_owned(),
            SubscriptionStatus::Paused => "is paused".to_owned(),
        };
        format!("The subscription to {tier} {stands}.")
    }
}

/// The tier that a beta tester has for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetaEntry {
    pub tier: Tier,
    /// `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl EffectiveTier {
    /// Of a user who has nothing.
    pub fn none() -> Self {
        Self { tier: None, subscription: None, why: Vec::new() }
    }
}

/// The tier of a user now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveTier {
    pub tier: Option<Tier>,
    /// The subscription that decides, or else the latest one.
    pub subscription: Option<TierSubscription>,
    /// The facts that make it so, in words.
    pub why: Vec<String>,
}

/// Paid beats beta beats none. Of several subscriptions the one with the highest tier that entitles counts, and then the
/// latest.
pub fn effective(subscriptions: &[TierSubscription], beta: Option<&BetaEntry>, now: Timestamp) -> EffectiveTier {
    let paid_tier = |subscription: &TierSubscription| subscription.tier.filter(|_| subscription.entitles(now));
    let rank = |one: &&TierSubscription| (paid_tier(one), one.status.is_running(), one.started_at);
    let subscription = subscriptions.iter().max_by_key(rank);
    let paid = subscription.and_then(paid_tier);
    let active_beta = beta.filter(|beta| beta.expires_at.is_none_or(|end| now < end));
    let mut why = vec![match subscription {
        Some(subscription) => subscription.fact(now),
        None => "There is no subscription.".to_owned(),
    }];
    let besides = subscriptions
        .iter()
        .filter(|other| other.status.is_running() && subscription.is_some_and(|decides| decides.id != other.id));
    why.extend(besides.map(|other| {
        let name = other.tier.map_or("another price", Tier::as_str);
        format!("A subscription to {name} runs besides and is charged, too: the portal cancels it.")
    }));
    if let Some(BetaEntry { tier, expires_at }) = beta {
        let until = expires_at.map_or_else(String::new, |end| format!(" until {}", time::to_wire(end)));
        why.push(match (active_beta, paid) {
            (None, _) => format!("The beta test of {} is over.", tier.as_str()),
            (Some(_), None) => format!("A beta tester has {}{until}.", tier.as_str()),
            (Some(_), Some(_)) => {
                format!("A beta tester has {}{until}, but a paid subscription goes before.", tier.as_str())
            }
        });
    }
    let tier = paid.or(active_beta.map(|beta| beta.tier));
    EffectiveTier { tier, subscription: subscription.cloned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_timestamp_secs(1_800_000_000).unwrap() + TimeDelta::days(day)
    }

    /// Of the days 0 to 30.
    fn subscription(tier: Tier, status: SubscriptionStatus) -> TierSubscription {
        TierSubscription {
            id: "sub_1".into(),
            tier: Some(tier),
            status,
            price: Some("price_1".into()),
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
        let days = |subscription: TierSubscription| (0..60).filter(|day| subscription.entitles(at(*day))).count();
        let of = |status| subscription(Tier::Scout, status);
        assert_eq!([Active, Trialing].map(of).map(days), [60; 2]);
        assert_eq!((days(of(PastDue)), days(of(Canceled))), (7, 30));
        assert_eq!([Incomplete, Unpaid, Paused].map(of).map(days), [0; 3]);
        assert_eq!(days(TierSubscription { lapsed: true, ..of(Canceled) }), 0);
        assert_eq!(days(TierSubscription { period_start: None, ..of(PastDue) }), 0);
        let since = |day| TierSubscription { past_due_since: Some(at(day)), ..of(PastDue) };
        assert_eq!((days(since(20)), days(since(-3))), (27, 7), "the later of the failure and the period's begin");
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
        assert_eq!(effective(&all, None, at(6)).subscription, Some(best));
        let ended = TierSubscription { started_at: at(9), ..subscription(Tier::Scout, SubscriptionStatus::Incomplete) };
        assert_eq!(effective(&[old.clone(), ended], None, at(40)).subscription, Some(old), "it is still running");
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
            assert_eq!(SubscriptionStatus::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        for tier in Tier::ALL {
            assert_eq!(Tier::parse(tier.as_str()), Some(tier));
            assert_eq!(serde_json::to_value(tier).unwrap(), tier.as_str());
        }
        assert_eq!(SubscriptionStatus::of_provider("frozen"), SubscriptionStatus::Unpaid);
    }

    #[test]
    fn a_price_names_its_tier() {
        let mut prices = TierPrices(["a", "b", "c"].map(PriceList::of));
        prices.0[1].former = vec!["old".into(), "older".into()];
        let tier = |known: &[&str]| {
            let known: Vec<String> = known.iter().map(|price| (*price).to_owned()).collect();
            prices.tier_of(&known).map(|(tier, _)| tier)
        };
        assert_eq!((tier(&["b"]), tier(&["x", "c"]), tier(&["x"])), (Some(Tier::Operator), Some(Tier::Overlord), None));
        assert_eq!((tier(&["old"]), tier(&["older"])), (Some(Tier::Operator), Some(Tier::Operator)));
        assert_eq!((prices.price_of(Tier::Operator), prices.price_of(Tier::Overlord)), ("b", "c"));
    }
}
