//! The sites of a registration beside the service, and a user who signs in at the game's site.

use std::{net::Ipv4Addr, ops::Deref, sync::Arc};

use companion::{
    clock::Clock,
    crypto::random::Random,
    simulator::{
        identity::IdentityProvider,
        persons,
        push_service::PushService,
        registration::{RegistrationFaults, RegistrationSites, browser},
    },
};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    app::TestApp,
    browser::{Answer, Browser},
    canary,
    game::ALICE,
};

pub const PATH: &str = "/credentials/push/registrations";

/// The sites. No log may have what they give out, tokens of renewals included.
pub struct NotedSites(RegistrationSites);

impl Deref for NotedSites {
    type Target = RegistrationSites;

    fn deref(&self) -> &RegistrationSites {
        &self.0
    }
}

impl Drop for NotedSites {
    fn drop(&mut self) {
        self.secrets().iter().for_each(|secret| canary::note(secret));
    }
}

pub struct RegistrationTest {
    pub app: TestApp,
    pub sites: NotedSites,
    pub push: Arc<PushService>,
    /// The sites'.
    clock: Clock,
    _identity: IdentityProvider,
    _directory: TempDir,
}

impl RegistrationTest {
    pub async fn start() -> Self {
        Self::start_on(None).await
    }

    pub async fn start_on(database_url: Option<String>) -> Self {
        Self::start_at(Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap()), database_url).await
    }

    /// The sites have this clock.
    pub async fn start_at(clock: Clock, database_url: Option<String>) -> Self {
        let (local, random) = ((Ipv4Addr::LOCALHOST, 0).into(), Random::system());
        let identity = IdentityProvider::start(local, persons(), clock.clone(), random.clone()).await.unwrap();
        let push = Arc::new(PushService::start(local, Vec::new(), clock.clone()).await.unwrap());
        let sites = RegistrationSites::start(local, &identity, push.clone(), clock.clone(), random).await.unwrap();
        let directory = TempDir::new().unwrap();
        let ca = directory.path().join("ca.pem");
        std::fs::write(&ca, push.ca_pem()).unwrap();
        let mut flags = vec![format!("--push-address={}", push.addr()), format!("--extra-ca-file={}", ca.display())];
        let flag = |(name, value): (&str, String)| format!("--{}={value}", name.to_lowercase().replace('_', "-"));
        flags.extend(sites.settings().into_iter().map(flag));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let app = match database_url {
            Some(url) => TestApp::start_on(url, &flags).await,
            None => TestApp::start_with(&flags).await,
        };
        Self { app, sites: NotedSites(sites), push, clock, _identity: identity, _directory: directory }
    }

    pub async fn restart(self) -> Self {
        Self { app: self.app.restart().await, ..self }
    }

    pub fn advance(&self, by: chrono::TimeDelta) {
        self.clock.advance(by);
        self.app.clock.advance(by);
    }

    /// Begins a registration; its id and the address at which this player's login ends.
    pub async fn login(&self, browser: &mut Browser, renew: bool, player: &str) -> (String, String) {
        let opened = browser.post(PATH, Some(&json!({ "renew": renew }))).await;
        assert_eq!(opened.status, 201, "{}", opened.text());
        let opened = opened.json();
        let ended = browser::sign_in(opened["loginUrl"].as_str().unwrap(), player.parse().unwrap()).await.unwrap();
        (opened["id"].as_str().unwrap().to_owned(), ended.expect("a loopback address"))
    }

    /// Brings the address.
    pub async fn bring(&self, browser: &mut Browser, id: &str, address: &str) -> Answer {
        let request = browser.request(Method::POST, &format!("{PATH}/{id}")).json(&json!({ "address": address }));
        browser.send(request).await
    }

    /// Alice, who has registered.
    pub async fn registered(&self, renew: bool) -> (Browser, String) {
        let mut alice = self.app.signed_in(ALICE).await;
        let (id, address) = self.login(&mut alice, renew, ALICE).await;
        let answer = self.bring(&mut alice, &id, &address).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(states(&answer.json()), ["done"; 7], "{}", answer.text());
        (alice, id)
    }

    pub fn set_faults(&self, change: impl FnOnce(&mut RegistrationFaults)) {
        let mut faults = RegistrationFaults::default();
        change(&mut faults);
        self.sites.set_faults(faults);
    }
}

/// The state of each step.
pub fn states(shown: &Value) -> Vec<&str> {
    shown["steps"].as_array().unwrap().iter().map(|step| step["state"].as_str().unwrap()).collect()
}

/// The step that failed.
pub fn failed(shown: &Value) -> &Value {
    let steps = shown["steps"].as_array().unwrap();
    steps.iter().find(|step| step["state"] == "failed").unwrap_or_else(|| panic!("none failed: {shown}"))
}
