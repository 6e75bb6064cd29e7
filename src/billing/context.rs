//! Shared state of billing's parts.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use secrecy::SecretString;
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    clients::payments::PaymentsClient,
    clock::Clock,
    config::Payments,
    crypto::{account_mark::AccountMarks, random::Random},
    db::engine::pool::Pool,
    domain::money::plan::TierPrices,
};

/// Locks over which subscriptions are spread, so that most that are changed at the same time have different ones.
const LOCKS: usize = 64;

/// Built once, shared by all.
pub struct BillingContext {
    pub clock: Clock,
    pub random: Random,
    pub pool: Pool,
    pub client: PaymentsClient,
    pub prices: TierPrices,
    pub account_marks: AccountMarks,
    /// Secrets of webhooks, any of which may have signed one.
    pub webhook_secrets: Vec<SecretString>,
    /// True if the key is for real money; `None` if it does not say so.
    pub livemode: Option<bool>,
    locks: [Mutex<()>; LOCKS],
}

impl BillingContext {
    /// The parts of payments, with a client of the provider.
    pub fn new(
        settings: Payments,
        account_marks: AccountMarks,
        http: reqwest::Client,
        pool: Pool,
        clock: Clock,
        random: Random,
    ) -> Self {
        Self {
            clock,
            account_marks,
            pool,
            prices: settings.prices.clone(),
            webhook_secrets: settings.webhook_secrets.clone(),
            livemode: settings.livemode(),
            client: PaymentsClient::new(http, settings, random.clone()),
            random,
            locks: [const { Mutex::const_new(()) }; LOCKS],
        }
    }

    /// Locks a subscription: one change at a time, so that processes need not fetch again for each other's.
    pub async fn lock(&self, subscription: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        subscription.hash(&mut hasher);
        self.locks[hasher.finish() as usize % LOCKS].lock().await
    }
}
