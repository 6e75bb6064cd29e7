//! The payment provider, its prices, and whether tiers limit anything.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{
        base_url::BaseUrl,
        check::{Check, HTTP, given, given_secret},
    },
    domain::money::{
        billing_interval::BillingInterval,
        plan::{Plan, PriceList, TierPrices},
    },
};

/// Days; the provider takes no more.
const LONGEST_TRIAL: u16 = 730;

/// The payment provider, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct PaymentSettings {
    /// Secret key of the payment provider (Stripe's API); without it nothing can be bought
    #[arg(long, env, hide_env_values = true)]
    pub payment_secret_key: Option<SecretString>,
    /// Signing secret of the webhook; several, separated by commas, while it is rotated
    #[arg(long, env, hide_env_values = true)]
    pub payment_webhook_secret: Option<SecretString>,
    /// The provider's price of the tier SCOUT; after it, separated by commas, former ones that subscriptions still have
    #[arg(long, env)]
    pub payment_price_scout: Option<String>,
    /// The provider's price of the tier OPERATOR, with former ones likewise
    #[arg(long, env)]
    pub payment_price_operator: Option<String>,
    /// The provider's price of the tier OVERLORD, with former ones likewise
    #[arg(long, env)]
    pub payment_price_overlord: Option<String>,
    /// The provider's yearly price of the tier SCOUT, with former ones likewise; without one it is not sold by the year
    #[arg(long, env)]
    pub payment_price_scout_yearly: Option<String>,
    /// The provider's yearly price of the tier OPERATOR, likewise
    #[arg(long, env)]
    pub payment_price_operator_yearly: Option<String>,
    /// The provider's yearly price of the tier OVERLORD, likewise
    #[arg(long, env)]
    pub payment_price_overlord_yearly: Option<String>,
    /// Base URL of the payment provider's API
    #[arg(long, env, default_value = "https://api.stripe.com")]
    pub payment_api_url: String,
    /// Version of the payment provider's API that is asked for
    #[arg(long, env, default_value = "2026-10-28.endive")]
    pub payment_api_version: String,
    /// `true` has the checkout compute taxes: it asks for the billing address and takes tax ids
    #[arg(long, env, default_value = "false")]
    pub payment_automatic_tax: String,
    /// `true` has the checkout take promotion codes
    #[arg(long, env, default_value = "false")]
    pub payment_promotion_codes: String,
    /// Days of a user's first subscription that cost nothing, at most 730; 0: none
    #[arg(long, env, default_value = "0")]
    pub payment_trial_days: String,
    /// `true` holds users to the guests and watched shops of their tier
    #[arg(long, env, default_value = "false")]
    pub enforce_tiers: String,
}

/// The payment provider.
#[derive(Clone, Debug)]
pub struct Payments {
    pub base_url: BaseUrl,
    pub api_version: String,
    pub key: SecretString,
    /// At least one; any of them may have signed a webhook.
    pub webhook_secrets: Vec<SecretString>,
    pub prices: TierPrices,
    /// True if the checkout computes taxes.
    pub automatic_tax: bool,
    /// True if the checkout takes promotion codes.
    pub promotion_codes: bool,
    /// Days of a user's first subscription that cost nothing.
    pub trial_days: u16,
}

impl Payments {
    /// True if the key is for real money; `None` when it does not say.
    pub fn livemode(&self) -> Option<bool> {
        let kind = self.key.expose_secret().split('_').nth(1)?;
        [("live", true), ("test", false)].into_iter().find(|(word, _)| *word == kind).map(|(_, live)| live)
    }
}

impl PaymentSettings {
    /// `Some((None, _))`: payments are off.
    pub(super) fn check(self, check: &mut Check) -> Option<(Option<Payments>, bool)> {
        let enforce_tiers = check.flag("ENFORCE_TIERS", &self.enforce_tiers);
        let automatic_tax = check.flag("PAYMENT_AUTOMATIC_TAX", &self.payment_automatic_tax);
        let promotion_codes = check.flag("PAYMENT_PROMOTION_CODES", &self.payment_promotion_codes);
        let trial_days: Option<u16> = check.parse("PAYMENT_TRIAL_DAYS", &self.payment_trial_days, "a number of days");
        if trial_days.is_some_and(|days| days > LONGEST_TRIAL) {
            check.fault("PAYMENT_TRIAL_DAYS", format!("is more than {LONGEST_TRIAL}"));
        }
        let base_url = check.url("PAYMENT_API_URL", &self.payment_api_url, HTTP);
        let api_version = self.payment_api_version.trim().to_owned();
        if api_version.is_empty() || !api_version.bytes().all(|byte| byte.is_ascii_graphic()) {
            check.fault("PAYMENT_API_VERSION", "is not a version, such as 2026-10-28.endive");
        }
        let webhook_secrets = secret_list(self.payment_webhook_secret);
        let listed = [
            self.payment_price_scout,
            self.payment_price_scout_yearly,
            self.payment_price_operator,
            self.payment_price_operator_yearly,
            self.payment_price_overlord,
            self.payment_price_overlord_yearly,
        ]
        .map(|listed| given(listed).as_deref().and_then(price_list));
        let Some(key) = given_secret(self.payment_secret_key) else {
            check_unused(&webhook_secrets, &listed, check);
            return Some((None, enforce_tiers?));
        };
        // The key becomes a header.
        if !key.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
            check.fault("PAYMENT_SECRET_KEY", "is not a key of the provider");
        }
        // A blank secret is one that everybody knows.
        if webhook_secrets.is_empty() {
            check.fault("PAYMENT_WEBHOOK_SECRET", "is missing, and PAYMENT_SECRET_KEY is set");
        }
        check_prices(&listed, check);
        let [Some(scout), scout_yearly, Some(operator), operator_yearly, Some(overlord), overlord_yearly] = listed
        else {
            return None;
        };
        let prices = TierPrices {
            monthly: [scout, operator, overlord],
            yearly: [scout_yearly, operator_yearly, overlord_yearly],
        };
        let payments = Payments {
            base_url: base_url?,
            api_version,
            key,
            webhook_secrets,
            prices,
            automatic_tax: automatic_tax?,
            promotion_codes: promotion_codes?,
            trial_days: trial_days?,
        };
        Some((Some(payments), enforce_tiers?))
    }
}

/// Secrets with commas between them.
fn secret_list(given: Option<SecretString>) -> Vec<SecretString> {
    let secret = given_secret(given);
    let secrets = secret.iter().flat_map(|secret| secret.expose_secret().split(',')).map(str::trim);
    secrets.filter(|secret| !secret.is_empty()).map(SecretString::from).collect()
}

/// Nothing is set that only counts with a key.
fn check_unused(webhook_secrets: &[SecretString], listed: &[Option<PriceList>; 6], check: &mut Check) {
    if !webhook_secrets.is_empty() {
        check.fault("PAYMENT_WEBHOOK_SECRET", "is set without PAYMENT_SECRET_KEY");
    }
    for (plan, _) in Plan::all().zip(listed).filter(|(_, listed)| listed.is_some()) {
        check.fault(plan.variable(), "is set without PAYMENT_SECRET_KEY: nothing is sold");
    }
}

/// Every plan has its prices, and each price is of one plan.
fn check_prices(listed: &[Option<PriceList>; 6], check: &mut Check) {
    let mut known = BTreeSet::new();
    for (plan, listed) in Plan::all().zip(listed) {
        let variable = plan.variable();
        let Some(listed) = listed else {
            if plan.interval == BillingInterval::Month {
                check.fault(variable, "is missing, and PAYMENT_SECRET_KEY is set");
            }
            continue;
        };
        for price in listed.all() {
            if !known.insert(price) {
                check.fault(variable, "has a price twice, or one of another tier or interval");
            } else if !is_price(price) {
                check.fault(variable, "is not an id of a price, or several with commas");
            }
        }
    }
}

/// The first price is sold.
fn price_list(text: &str) -> Option<PriceList> {
    let mut listed = text.split(',').map(str::trim).filter(|price| !price.is_empty()).map(str::to_owned);
    Some(PriceList { sold: listed.next()?, former: listed.collect() })
}

/// Part of a path later.
fn is_price(text: &str) -> bool {
    text.len() <= 255 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> PaymentSettings {
        PaymentSettings {
            payment_secret_key: Some("sk_test_1".into()),
            payment_webhook_secret: Some("whsec_new, whsec_old".into()),
            payment_price_scout: Some("price_1".into()),
            payment_price_operator: Some("price_2".into()),
            payment_price_overlord: Some("price_3".into()),
            payment_price_scout_yearly: None,
            payment_price_operator_yearly: Some("price_5".into()),
            payment_price_overlord_yearly: None,
            payment_api_url: "https://api.stripe.com".into(),
            payment_api_version: "2026-10-28.endive".into(),
            payment_automatic_tax: "false".into(),
            payment_promotion_codes: "false".into(),
            payment_trial_days: "0".into(),
            enforce_tiers: "false".into(),
        }
    }

    fn checked(settings: PaymentSettings) -> Result<(Option<Payments>, bool), Vec<String>> {
        let mut check = Check::default();
        let checked = settings.check(&mut check);
        checked.filter(|_| check.faults.is_empty()).ok_or(check.faults)
    }

    #[test]
    fn without_a_key_payments_are_off() {
        let half = PaymentSettings { payment_secret_key: Some(" ".into()), ..complete() };
        let mut off = PaymentSettings { payment_webhook_secret: None, ..half.clone() };
        for price in [
            &mut off.payment_price_scout,
            &mut off.payment_price_operator,
            &mut off.payment_price_overlord,
            &mut off.payment_price_operator_yearly,
        ] {
            *price = None;
        }
        assert!(matches!(checked(off), Ok((None, false))));
        let faults = checked(half).unwrap_err();
        assert_eq!(faults.len(), 5, "the webhook's secret and four prices: {faults:?}");
        assert!(faults.iter().all(|fault| fault.contains("is set without PAYMENT_SECRET_KEY")));
    }

    #[test]
    fn with_a_key_everything_must_be_there() {
        let (payments, _) = checked(complete()).unwrap();
        let payments = payments.unwrap();
        let secrets: Vec<&str> = payments.webhook_secrets.iter().map(|secret| secret.expose_secret()).collect();
        assert_eq!((&secrets[..], payments.livemode()), (&["whsec_new", "whsec_old"][..], Some(false)));
        let bare = PaymentSettings {
            payment_webhook_secret: Some(" , ".into()),
            payment_price_scout: None,
            payment_price_overlord: Some("price_2".into()),
            ..complete()
        };
        assert_eq!(
            checked(bare).unwrap_err(),
            [
                "PAYMENT_WEBHOOK_SECRET is missing, and PAYMENT_SECRET_KEY is set",
                "PAYMENT_PRICE_SCOUT is missing, and PAYMENT_SECRET_KEY is set",
                "PAYMENT_PRICE_OVERLORD has a price twice, or one of another tier or interval",
            ]
        );
        let odd = PaymentSettings {
            payment_price_scout: Some("../price".into()),
            payment_api_version: " ".into(),
            payment_trial_days: "731".into(),
            payment_automatic_tax: "perhaps".into(),
            ..complete()
        };
        assert_eq!(
            checked(odd).unwrap_err(),
            [
                "PAYMENT_AUTOMATIC_TAX is neither true nor false",
                "PAYMENT_TRIAL_DAYS is more than 730",
                "PAYMENT_API_VERSION is not a version, such as 2026-10-28.endive",
                "PAYMENT_PRICE_SCOUT is not an id of a price, or several with commas",
            ]
        );
    }

    #[test]
    fn the_first_price_is_sold_and_the_others_are_known() {
        let with = |scout: &str| {
            let settings = PaymentSettings { payment_price_scout: Some(scout.into()), ..complete() };
            checked(settings).map(|(payments, _)| payments.unwrap().prices.monthly[0].clone())
        };
        let former = vec!["price_old".to_owned(), "price_older".to_owned()];
        let listed = PriceList { sold: "price_1".into(), former };
        assert_eq!(with(" price_1, price_old,price_older ,"), Ok(listed));
        for twice in ["price_1,price_1", "price_1,price_2"] {
            assert_eq!(with(twice).unwrap_err().len(), 1, "{twice}");
        }
        assert_eq!(
            with("price_1,a b").unwrap_err(),
            ["PAYMENT_PRICE_SCOUT is not an id of a price, or several with commas"]
        );
        assert_eq!(with(" , ").unwrap_err(), ["PAYMENT_PRICE_SCOUT is missing, and PAYMENT_SECRET_KEY is set"]);
    }

    #[test]
    fn a_tier_may_be_sold_by_the_year() {
        let with = |scout_yearly: Option<&str>| {
            let settings =
                PaymentSettings { payment_price_scout_yearly: scout_yearly.map(str::to_owned), ..complete() };
            checked(settings).map(|(payments, _)| payments.unwrap().prices.yearly)
        };
        let operator = Some(PriceList::of("price_5"));
        assert_eq!(with(None), Ok([None, operator.clone(), None]));
        assert_eq!(with(Some(" ")), Ok([None, operator.clone(), None]));
        let listed = PriceList { sold: "price_4".into(), former: vec!["price_old".into()] };
        assert_eq!(with(Some("price_4,price_old")), Ok([Some(listed), operator, None]));
        for (price, fault) in [
            ("price_1", "has a price twice, or one of another tier or interval"),
            ("../price", "is not an id of a price, or several with commas"),
        ] {
            assert_eq!(with(Some(price)).unwrap_err().len(), 1, "{price}");
            assert!(with(Some(price)).unwrap_err()[0].ends_with(fault));
        }
    }

    #[test]
    fn the_key_says_whether_it_is_for_real_money() {
        let livemode = |key: &str| {
            let settings = PaymentSettings { payment_secret_key: Some(key.into()), ..complete() };
            checked(settings).unwrap().0.unwrap().livemode()
        };
        let known = ["sk_live_1", "rk_live_1", "rk_test_1", "other"].map(livemode);
        assert_eq!(known, [Some(true), Some(true), Some(false), None]);
    }
}
