//! The payment provider, its prices, and whether tiers limit anything.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{
        base_url::BaseUrl,
        check::{Check, HTTP, given, given_secret},
    },
    domain::tier::{PriceList, TierPrices},
};

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
    /// The same of the tier OPERATOR
    #[arg(long, env)]
    pub payment_price_operator: Option<String>,
    /// The same of the tier OVERLORD
    #[arg(long, env)]
    pub payment_price_overlord: Option<String>,
    /// Base URL of the payment provider's API
    #[arg(long, env, default_value = "https://api.stripe.com")]
    pub payment_api_url: String,
    /// Version of the payment provider's API that is asked for
    #[arg(long, env, default_value = "2026-10-28.endive")]
    pub payment_api_version: String,
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
}

impl Payments {
    /// Whether the key is for real money; `None` when it does not say.
    pub fn livemode(&self) -> Option<bool> {
        let kind = self.key.expose_secret().split('_').nth(1)?;
        [("live", true), ("test", false)].into_iter().find(|(word, _)| *word == kind).map(|(_, live)| live)
    }
}

impl PaymentSettings {
    /// `Some((None, _))`: payments are off.
    pub(super) fn check(self, check: &mut Check) -> Option<(Option<Payments>, bool)> {
        let enforce_tiers = check.flag("ENFORCE_TIERS", &self.enforce_tiers);
        let base_url = check.url("PAYMENT_API_URL", &self.payment_api_url, HTTP);
        let api_version = self.payment_api_version.trim().to_owned();
        if api_version.is_empty() || !api_version.bytes().all(|byte| byte.is_ascii_graphic()) {
            check.fault("PAYMENT_API_VERSION", "is not a version, such as 2026-10-28.endive");
        }
        let secret = given_secret(self.payment_webhook_secret);
        let secrets = secret.iter().flat_map(|secret| secret.expose_secret().split(',')).map(str::trim);
        let webhook_secrets: Vec<SecretString> =
            secrets.filter(|secret| !secret.is_empty()).map(SecretString::from).collect();
        let Some(key) = given_secret(self.payment_secret_key) else {
            if !webhook_secrets.is_empty() {
                check.fault("PAYMENT_WEBHOOK_SECRET", "is set without PAYMENT_SECRET_KEY");
            }
            return Some((None, enforce_tiers?));
        };
        // It becomes a header.
        if !key.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()) {
            check.fault("PAYMENT_SECRET_KEY", "is not a key of the provider");
        }
        // A blank secret is one that everybody knows.
        if webhook_secrets.is_empty() {
            check.fault("PAYMENT_WEBHOOK_SECRET", "is missing, and PAYMENT_SECRET_KEY is set");
        }
        let prices = [
            ("PAYMENT_PRICE_SCOUT", self.payment_price_scout),
            ("PAYMENT_PRICE_OPERATOR", self.payment_price_operator),
            ("PAYMENT_PRICE_OVERLORD", self.payment_price_overlord),
        ]
        .map(|(variable, listed)| (variable, given(listed).as_deref().and_then(price_list)));
        let mut known = BTreeSet::new();
        for (variable, listed) in &prices {
            let Some(listed) = listed else {
                check.fault(variable, "is missing, and PAYMENT_SECRET_KEY is set");
                continue;
            };
            for price in listed.all() {
                if !known.insert(price) {
                    check.fault(variable, "has a price twice, or one of another tier");
                } else if !is_price(price) {
                    check.fault(variable, "is not an id of a price, or several with commas");
                }
            }
        }
        let [Some(scout), Some(operator), Some(overlord)] = prices.map(|(_, listed)| listed) else { return None };
        let prices = TierPrices([scout, operator, overlord]);
        Some((Some(Payments { base_url: base_url?, api_version, key, webhook_secrets, prices }), enforce_tiers?))
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
            payment_api_url: "https://api.stripe.com".into(),
            payment_api_version: "2026-10-28.endive".into(),
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
        let off = PaymentSettings { payment_secret_key: Some(" ".into()), payment_webhook_secret: None, ..complete() };
        assert!(matches!(checked(off), Ok((None, false))));
        let half = PaymentSettings { payment_secret_key: None, ..complete() };
        assert_eq!(checked(half).unwrap_err(), ["PAYMENT_WEBHOOK_SECRET is set without PAYMENT_SECRET_KEY"]);
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
                "PAYMENT_PRICE_OVERLORD has a price twice, or one of another tier",
            ]
        );
        let odd = PaymentSettings {
            payment_price_scout: Some("../price".into()),
            payment_api_version: " ".into(),
            ..complete()
        };
        assert_eq!(
            checked(odd).unwrap_err(),
            [
                "PAYMENT_API_VERSION is not a version, such as 2026-10-28.endive",
                "PAYMENT_PRICE_SCOUT is not an id of a price, or several with commas",
            ]
        );
    }

    #[test]
    fn the_first_price_is_sold_and_the_others_are_known() {
        let with = |scout: &str| {
            let settings = PaymentSettings { payment_price_scout: Some(scout.into()), ..complete() };
            checked(settings).map(|(payments, _)| payments.unwrap().prices.0[0].clone())
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
    fn the_key_says_whether_it_is_for_real_money() {
        let livemode = |key: &str| {
            let settings = PaymentSettings { payment_secret_key: Some(key.into()), ..complete() };
            checked(settings).unwrap().0.unwrap().livemode()
        };
        let known = ["sk_live_1", "rk_live_1", "rk_test_1", "other"].map(livemode);
        assert_eq!(known, [Some(true), Some(true), Some(false), None]);
    }
}
