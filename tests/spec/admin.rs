//! The admin surface: who gets in, what the audit log says, and each thing that admins see and do.

mod analytics;
mod audit;
mod beta_testers;
mod chat;
mod guard;
mod items;
mod members;
mod refund_attempts;
mod refunds;
mod stores;
mod subscriptions;
mod uploads;
mod wiki;
mod writes;

use serde_json::{Value, json};

use crate::harness::{
    app::{ADA, ADMINS, TestApp},
    browser::Browser,
};

/// A service with an admin, Ada, who is signed in.
pub async fn start() -> (TestApp, Browser) {
    let app = TestApp::start_with(&[ADMINS]).await;
    let ada = app.signed_in(ADA).await;
    (app, ada)
}

/// The newest entries of the audit log, the newest first, without what differs each time: id, time and hash.
pub async fn audited(ada: &mut Browser, count: usize) -> Vec<Value> {
    let log = ada.get(&format!("/admin/audit?limit={count}")).await;
    assert_eq!(log.status, 200, "{}", log.text());
    let entries = log.json()["entries"].as_array().unwrap().clone();
    let stable = |mut entry: Value| {
        for varying in ["id", "createdAt", "hash"] {
            assert!(entry.as_object_mut().unwrap().remove(varying).is_some_and(|value| value.is_string()), "{varying}");
        }
        entry
    };
    entries.into_iter().map(stable).collect()
}

/// Entry of the audit log about a change by Ada.
pub fn done(action: &str, target: &str, before: Value, after: Value) -> Value {
    let payload = json!({ "before": before, "after": after });
    json!({ "actor": ADA, "action": action, "target": target, "payload": payload, "result": "done" })
}
