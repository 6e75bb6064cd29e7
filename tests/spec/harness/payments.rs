//! The simulated payment provider, and a service that uses it.

use std::net::Ipv4Addr;

use chrono::Duration;
use companion::{
    clock::Clock,
    crypto::random::Random,
    domain::time::Timestamp,
    simulator::payments::{PaymentFaults, PaymentService},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    app::{TestApp, with_flags},
    browser::{Answer, Browser},
    game::ALICE,
};

/// A provider at the time of the tests' services.
pub async fn provider() -> PaymentService {
    provider_at(Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap())).await
}

pub async fn provider_at(clock: Clock) -> PaymentService {
    PaymentService::start((Ipv4Addr::LOCALHOST, 0).into(), clock, Random::system()).await.unwrap()
}

/// The flags with which a service uses it.
pub fn flags(provider: &PaymentService) -> Vec<String> {
    let flag = |(name, value): (&str, String)| format!("--{}={value}", name.to_lowercase().replace('_', "-"));
    provider.settings().into_iter().map(flag).collect()
}

/// Alice at a service with a provider, which sends its events.
pub struct PaymentTest {
    pub app: TestApp,
    pub provider: PaymentService,
    /// The provider's.
    pub clock: Clock,
    pub alice: Browser,
    started: Timestamp,
}

impl PaymentTest {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With further flags.
    pub async fn start_with(more: &[&str]) -> Self {
        Self::start_on(None, more).await
    }

    /// On this database.
    pub async fn start_on(database_url: Option<String>, more: &[&str]) -> Self {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let provider = provider_at(clock.clone()).await;
        let flags = flags(&provider);
        let flags = with_flags(&flags, more);
        let app = match database_url {
            Some(url) => TestApp::start_on(url, &flags).await,
            None => TestApp::start_with(&flags).await,
        };
        provider.set_webhook(format!("http://{}/billing/webhook", app.address));
        let alice = app.signed_in(ALICE).await;
        let started = app.clock.now();
        Self { app, provider, clock, alice, started }
    }

    /// The time at which it was started.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Moves both clocks.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.app.clock.advance(by);
    }

    /// Events are only made; the test delivers them.
    pub fn hold_events(&self) {
        self.provider.set_faults(PaymentFaults { hold_events: true, ..Default::default() });
    }

    /// Alice opens the checkout of this tier; its session.
    pub async fn checkout(&mut self, tier: &str) -> String {
        let answer = self.alice.post("/billing/checkout", Some(&json!({ "tier": tier }))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let url = answer.json()["url"].as_str().unwrap().to_owned();
        let session = url.strip_prefix(&format!("{}/checkout/", self.provider.url()));
        session.unwrap_or_else(|| panic!("{url}")).to_owned()
    }

    /// Alice pays; the subscription.
    pub async fn subscribe(&mut self, tier: &str) -> String {
        let session = self.checkout(tier).await;
        self.provider.pay(&session).unwrap()
    }

    /// Alice's subscription in `/me`, once this holds.
    #[track_caller]
    pub fn until(&mut self, holds: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        let me = self.alice.get_until("/me", move |me| holds(&me["subscription"]));
        async move { me.await["subscription"].clone() }
    }

    pub async fn subscription(&mut self) -> Value {
        self.alice.get("/me").await.json()["subscription"].clone()
    }

    /// Sends an event as the provider does; the answer.
    pub async fn deliver(&self, event: &Value) -> Answer {
        let body = event.to_string();
        let signature = self.provider.signature(&body);
        self.deliver_as(&body, &[&signature]).await
    }

    /// Delivers it with other signatures.
    pub async fn deliver_as(&self, body: &str, signatures: &[&str]) -> Answer {
        let mut browser = self.app.browser();
        let mut request = browser.request(Method::POST, "/billing/webhook").header("content-type", "application/json");
        for signature in signatures {
            request = request.header("stripe-signature", *signature);
        }
        browser.send(request.body(body.to_owned())).await
    }

    /// Delivers it; what became of it.
    pub async fn outcome(&self, event: &Value) -> String {
        let answer = self.deliver(event).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["outcome"].as_str().unwrap().to_owned()
    }
}
