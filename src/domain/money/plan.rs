//! Plans for sale: a tier, charged by the month or by the year, and its prices at the payment provider.

use crate::domain::money::{billing_interval::BillingInterval, tier::Tier};

/// A tier with the interval at which it is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub tier: Tier,
    pub interval: BillingInterval,
}

impl Plan {
    /// All plans: of each tier the monthly one, then the yearly one.
    pub fn all() -> impl Iterator<Item = Self> {
        Tier::ALL.into_iter().flat_map(|tier| BillingInterval::ALL.map(|interval| Self { tier, interval }))
    }

    /// The setting that has its prices.
    pub fn variable(self) -> &'static str {
        match (self.tier, self.interval) {
            (Tier::Scout, BillingInterval::Month) => "PAYMENT_PRICE_SCOUT",
            (Tier::Scout, BillingInterval::Year) => "PAYMENT_PRICE_SCOUT_YEARLY",
            (Tier::Operator, BillingInterval::Month) => "PAYMENT_PRICE_OPERATOR",
            (Tier::Operator, BillingInterval::Year) => "PAYMENT_PRICE_OPERATOR_YEARLY",
            (Tier::Overlord, BillingInterval::Month) => "PAYMENT_PRICE_OVERLORD",
            (Tier::Overlord, BillingInterval::Year) => "PAYMENT_PRICE_OVERLORD_YEARLY",
        }
    }
}

/// A plan and the provider's price at which it is sold.
#[derive(Clone, Debug)]
pub struct SoldPlan {
    pub plan: Plan,
    pub price: String,
}

/// The provider's prices of one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// The price of a new checkout.
    pub sold: String,
    /// Prices of earlier checkouts, which subscriptions may still have.
    pub former: Vec<String>,
}

impl PriceList {
    /// A list with one price.
    pub fn of(sold: impl Into<String>) -> Self {
        Self { sold: sold.into(), former: Vec::new() }
    }

    /// The sold price, then the former ones.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        [&self.sold].into_iter().chain(&self.former)
    }
}

/// The provider's prices, in the order of [`Tier::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPrices {
    pub monthly: [PriceList; 3],
    /// `None`: the tier is not sold by the year.
    pub yearly: [Option<PriceList>; 3],
}

impl TierPrices {
    fn list(&self, Plan { tier, interval }: Plan) -> Option<&PriceList> {
        match interval {
            BillingInterval::Month => Some(&self.monthly[tier as usize]),
            BillingInterval::Year => self.yearly[tier as usize].as_ref(),
        }
    }

    /// The plan with the price of a new checkout; `None`: it is not sold.
    pub fn sold(&self, plan: Plan) -> Option<SoldPlan> {
        self.list(plan).map(|list| SoldPlan { plan, price: list.sold.clone() })
    }

    /// The plan of the first of these prices that has one, and that price.
    pub fn plan_of<'a>(&self, prices: impl IntoIterator<Item = &'a String>) -> Option<(Plan, &'a String)> {
        let has =
            |plan: Plan, price: &String| self.list(plan).is_some_and(|list| list.all().any(|known| known == price));
        let plan_of = |price: &String| Plan::all().find(|plan| has(*plan, price));
        prices.into_iter().find_map(|price| Some((plan_of(price)?, price)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_names_its_tier_and_interval() {
        let yearly = |price: &str| Some(PriceList::of(price));
        let mut prices =
            TierPrices { monthly: ["a", "b", "c"].map(PriceList::of), yearly: [yearly("y"), None, yearly("z")] };
        prices.monthly[1].former = vec!["old".into(), "older".into()];
        let plan = |known: &[&str]| {
            let known: Vec<String> = known.iter().map(|price| (*price).to_owned()).collect();
            prices.plan_of(&known).map(|(plan, _)| (plan.tier, plan.interval))
        };
        use BillingInterval::{Month, Year};
        assert_eq!((plan(&["b"]), plan(&["x", "c"])), (Some((Tier::Operator, Month)), Some((Tier::Overlord, Month))));
        assert_eq!((plan(&["y"]), plan(&["x", "z"])), (Some((Tier::Scout, Year)), Some((Tier::Overlord, Year))));
        assert_eq!((plan(&["old"]), plan(&["older"])), (Some((Tier::Operator, Month)), Some((Tier::Operator, Month))));
        assert_eq!(plan(&["x"]), None);
        let sold: Vec<_> = Plan::all().map(|plan| prices.sold(plan).map(|sold| sold.price)).collect();
        assert_eq!(
            sold,
            [Some("a"), Some("y"), Some("b"), None, Some("c"), Some("z")].map(|price| price.map(str::to_owned))
        );
    }
}
