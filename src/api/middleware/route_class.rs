//! Routes in a few classes, for metrics: what breaks in one is one thing to an operator.

use std::time::Duration;

use metrics::{counter, histogram};

/// Counter of answers, by class of the route and status.
pub const ANSWERS: &str = "companion_http_requests_total";
/// Histogram of the seconds until the answer, by class of the route.
pub const SECONDS: &str = "companion_http_request_seconds";

/// Every class.
const CLASSES: [&str; 14] = [
    "sign-in",
    "account",
    "pairing",
    "credentials",
    "channels",
    "avatars",
    "billing",
    "webhook",
    "servers",
    "intel",
    "relay-token",
    "admin",
    "public",
    OPERATOR,
];
/// The class of the operator's questions.
pub const OPERATOR: &str = "operator";
/// The first parts of the paths of pages, and of content that is the same for everybody.
const PUBLIC: [&str; 13] = [
    "",
    "client-config",
    "docs",
    "images",
    "invite",
    "items",
    "openapi.json",
    "overlay",
    "problems",
    "relay.schema.json",
    "store",
    "sw.js",
    "wiki",
];
/// Requests that matched no route.
const NONE: &str = "none";
const STATUSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The class of a route, by its pattern.
pub fn route_class(route: Option<&str>) -> &'static str {
    let Some(route) = route else { return NONE };
    let mut parts = route.trim_start_matches('/').split('/');
    match (parts.next().unwrap_or_default(), parts.next()) {
        ("auth", Some("platform")) => "sign-in",
        ("billing", Some("webhook")) | ("chat", Some("interactions")) => "webhook",
        ("auth" | "me" | "chat" | "guest-invites", _) => "account",
        ("pairing", _) => "pairing",
        ("credentials", _) => "credentials",
        ("billing", _) => "billing",
        ("channels", _) => "channels",
        ("players", _) => "avatars",
        // The pages behind the links of messages acknowledge an alarm.
        ("paired-servers" | "a", _) => "servers",
        ("intel", _) => "intel",
        ("relay", _) => "relay-token",
        ("admin", _) => "admin",
        ("health" | "ready" | "status" | "metrics", _) => OPERATOR,
        (first, _) if PUBLIC.contains(&first) => "public",
        _ => NONE,
    }
}

/// Counts each class from 0, so that nothing appears with more users.
pub fn describe() {
    metrics::describe_counter!(ANSWERS, "Answers of the API, by the class of the route and of the status.");
    metrics::describe_histogram!(SECONDS, "From a request to the head of its answer, by the class of the route.");
    for class in CLASSES.into_iter().chain([NONE]) {
        STATUSES.iter().for_each(|status| counter!(ANSWERS, "class" => class, "status" => *status).absolute(0));
        drop(histogram!(SECONDS, "class" => class));
    }
}

/// Counts an answer.
pub fn count(route: Option<&str>, status: u16, took: Duration) {
    let class = route_class(route);
    let status = STATUSES.get(usize::from(status / 100).saturating_sub(2)).copied().unwrap_or("2xx");
    counter!(ANSWERS, "class" => class, "status" => status).increment(1);
    histogram!(SECONDS, "class" => class).record(took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::routes;

    #[test]
    fn every_route_has_a_class_and_every_class_a_route() {
        let routes = routes::routes().iter();
        let found: BTreeSet<&str> = routes.map(|route| route_class(Some(&route.path))).collect();
        assert_eq!(found, BTreeSet::from(CLASSES));
        assert_eq!(route_class(Some("/billing/webhook")), "webhook");
        assert_eq!(route_class(Some("/auth/signout")), "account");
        assert_eq!(route_class(Some("/channels/{id}/test")), "channels");
        assert_eq!(route_class(Some("/")), "public");
        assert_eq!(route_class(Some("/novelties")), NONE, "a new first part has its class named");
    }
}
