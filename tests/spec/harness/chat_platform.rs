//! The simulated chat platform, and a service whose support bot is known to it.

use std::net::Ipv4Addr;

use companion::{
    clock::Clock,
    simulator::chat::{ChatService, GivenCommand, SignedInteraction},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    app::{ADA, ADMINS, TestApp, with_flags},
    browser::{Answer, Browser},
    canary,
};

/// An account of the platform.
pub const CHAT_ALICE: &str = "130000000000000007";

/// A platform at the time of the tests' services.
pub async fn platform() -> ChatService {
    platform_at(Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap())).await
}

async fn platform_at(clock: Clock) -> ChatService {
    ChatService::start((Ipv4Addr::LOCALHOST, 0).into(), clock).await.unwrap()
}

/// The flags of a service whose bot it knows.
pub fn flags(platform: &ChatService) -> Vec<String> {
    let flag = |(name, value): (&str, String)| format!("--{}={value}", name.to_lowercase().replace('_', "-"));
    platform.settings().into_iter().map(flag).collect()
}

/// A service with a support bot, and Ada, its admin.
pub struct ChatTest {
    pub app: TestApp,
    pub platform: ChatService,
    pub ada: Browser,
    /// The platform's.
    clock: Clock,
}

impl ChatTest {
    pub async fn start() -> Self {
        Self::start_on(None, &[]).await
    }

    /// On this database, with further flags.
    pub async fn start_on(database_url: Option<String>, more: &[&str]) -> Self {
        let clock = Clock::adjustable("2026-11-21T12:00:00Z".parse().unwrap());
        let platform = platform_at(clock.clone()).await;
        let flags = flags(&platform);
        let flags = with_flags(&flags, &[&[ADMINS], more].concat());
        let app = match database_url {
            Some(url) => TestApp::start_on(url, &flags).await,
            None => TestApp::start_with(&flags).await,
        };
        platform.set_interactions(format!("http://{}/chat/interactions", app.address));
        let ada = app.signed_in(ADA).await;
        Self { app, platform, ada, clock }
    }

    /// Moves both clocks.
    pub fn advance(&self, by: chrono::Duration) {
        self.clock.advance(by);
        self.app.clock.advance(by);
    }

    /// Registers the commands with this query.
    pub async fn register(&mut self, query: &str) -> Answer {
        self.ada.post(&format!("/admin/chat/register-commands{query}"), None).await
    }

    /// The bot's answer to a command of Alice's account, and true if only she sees it.
    pub async fn ask(&self, command: &str, options: Value) -> (String, bool) {
        self.ask_as(CHAT_ALICE, command, options).await
    }

    /// The bot's answer to a command of another account.
    pub async fn ask_as(&self, account: &str, command: &str, options: Value) -> (String, bool) {
        let message = self.platform.give(&GivenCommand::new(account, command, options)).await.unwrap();
        assert_eq!(message["allowed_mentions"], json!({ "parse": [] }));
        (message["content"].as_str().unwrap().to_owned(), message["flags"].as_u64().unwrap() & 64 != 0)
    }

    /// A code for this account.
    pub async fn code(&self, account: &str) -> String {
        let (text, private) = self.ask_as(account, "link", json!({})).await;
        assert!(private && text.contains("https://app.companion.test"), "{text}");
        let code = text.split("**").nth(1).unwrap_or_else(|| panic!("{text}"));
        canary::note(code);
        code.to_owned()
    }

    /// Sends what the platform signed.
    pub async fn deliver(&self, signed: &SignedInteraction) -> Answer {
        let mut browser = self.app.browser();
        let request = browser
            .request(Method::POST, "/chat/interactions")
            .header("content-type", "application/json")
            .header("x-signature-ed25519", &signed.signature)
            .header("x-signature-timestamp", &signed.time)
            .body(signed.body.clone());
        browser.send(request).await
    }
}
