//! GET /openapi.json: the document, the route table and the contract name the same routes.

use std::collections::BTreeSet;

use crate::harness::app::TestApp;

/// The contract's routes that exist so far, and the extra ones it allows.
const CONTRACT: &[&str] = &[
    "GET /auth/platform",
    "GET /auth/platform/callback",
    "GET /me",
    "PATCH /me",
    "GET /me/export",
    "DELETE /me",
    "GET /client-config",
    "GET /relay.schema.json",
    "POST /auth/signout",
    "POST /relay/token",
    "POST /pairing/device/code",
    "POST /pairing/device/activate",
    "GET /pairing/device",
    "DELETE /pairing/device/{id}",
    "GET /credentials/push",
    "PUT /credentials/push",
    "DELETE /credentials/push",
    "DELETE /credentials/push/refusal",
    "POST /billing/checkout",
    "POST /billing/portal",
    "POST /billing/webhook",
    "GET /paired-servers",
    "POST /paired-servers",
    "GET /paired-servers/{id}",
    "DELETE /paired-servers/{id}",
    "GET /paired-servers/{id}/devices",
    "POST /paired-servers/{id}/devices",
    "PATCH /paired-servers/{id}/devices/{deviceId}",
    "POST /paired-servers/{id}/devices/{deviceId}/toggle",
    "DELETE /paired-servers/{id}/devices/{deviceId}",
    "GET /intel/{serverId}/tracking",
    "POST /intel/{serverId}/tracking",
    "PATCH /intel/{serverId}/tracking/{id}",
    "DELETE /intel/{serverId}/tracking/{id}",
    "GET /intel/{serverId}/tracking/{id}/sessions",
    "GET /intel/{serverId}/aliases",
    "GET /paired-servers/{id}/guests",
    "POST /paired-servers/{id}/guests",
    "DELETE /paired-servers/{id}/guests/{guestId}",
    "GET /guest-invites",
    "GET /guest-invites/preview",
    "POST /guest-invites/accept",
    "DELETE /guest-invites/{serverId}",
    "GET /paired-servers/{id}/devices/{deviceId}/camera-frame",
    "GET /paired-servers/{id}/cameras",
    "GET /paired-servers/{id}/chat",
    "POST /paired-servers/{id}/chat",
    "GET /paired-servers/{id}/map",
    "GET /paired-servers/{id}/map/image",
    "GET /paired-servers/{id}/readiness",
    "POST /paired-servers/{id}/drill",
    "GET /paired-servers/{id}/alarms",
    "POST /paired-servers/{id}/alarms/{incident}/ack",
    "GET /paired-servers/{id}/shops",
    "GET /paired-servers/{id}/shops/history",
    "GET /intel/{serverId}/shops",
    "POST /intel/{serverId}/shops",
    "GET /intel/{serverId}/shops/scan",
    "PATCH /intel/{serverId}/shops/{id}",
    "DELETE /intel/{serverId}/shops/{id}",
    "GET /intel/{serverId}/map-notes",
    "POST /intel/{serverId}/map-notes",
    "PATCH /intel/{serverId}/map-notes/{id}",
    "DELETE /intel/{serverId}/map-notes/{id}",
    "GET /intel/{serverId}/timeline",
    "POST /chat/interactions",
    "POST /chat/link",
    "DELETE /chat/link",
    "POST /admin/chat/register-commands",
    "GET /admin/ping",
    "GET /admin/audit",
    "GET /admin/users",
    "GET /admin/users/overview",
    "GET /admin/users/{id}",
    "POST /admin/users/{id}/sign-out",
    "GET /admin/users/{id}/charges",
    "DELETE /admin/users/{userId}/paired-servers",
    "DELETE /admin/paired-servers/{id}",
    "GET /admin/analytics",
    "POST /admin/refund",
    "GET /admin/refunds",
    "GET /admin/payment-events",
    "GET /admin/beta-testers",
    "POST /admin/beta-testers",
    "DELETE /admin/beta-testers/{platformId}",
    "GET /store/{name}",
    "GET /items",
    "GET /items/{id}",
    "GET /wiki/tree",
    "GET /wiki/page",
    "GET /images/{name}",
    "GET /admin/stores",
    "GET /admin/store/{name}",
    "PUT /admin/store/{name}",
    "GET /admin/store/{name}/versions",
    "GET /admin/store/{name}/versions/{version}",
    "POST /admin/store/{name}/restore",
    "GET /admin/wiki/tree",
    "GET /admin/wiki/page",
    "PUT /admin/wiki/page",
    "DELETE /admin/wiki/page",
    "GET /admin/wiki/page/versions",
    "POST /admin/wiki/page/restore",
    "POST /admin/wiki/image",
    "GET /admin/items",
    "POST /admin/items/upload-icon",
    "PUT /admin/items/{id}",
    "DELETE /admin/items/{id}",
    "GET /admin/items-search",
    "GET /admin/conveyor-map",
    "POST /admin/conveyor-map",
    "POST /admin/conveyor-map/bulk-category",
    "PUT /admin/conveyor-map/{shortname}",
    "DELETE /admin/conveyor-map/{shortname}",
    "GET /",
    "GET /health",
    "GET /health/db",
    "GET /ready",
    "GET /metrics",
    "GET /status",
    "GET /openapi.json",
];

/// `METHOD path` of every line in the route tables.
pub fn route_table() -> BTreeSet<String> {
    let tables =
        [("", include_str!("../../src/api/routes.rs")), ("/admin", include_str!("../../src/api/admin/mod.rs"))];
    let mut routes = BTreeSet::new();
    for (scope, table) in tables {
        for line in table.lines() {
            let Some(rest) = line.trim().strip_prefix(".service(resource(\"") else { continue };
            let (path, rest) = rest.split_once('"').unwrap();
            for route in rest.split(".route(").skip(1) {
                let method = route.split('(').next().unwrap().to_ascii_uppercase();
                routes.insert(format!("{method} {scope}{path}"));
            }
        }
    }
    routes
}

#[actix_web::test]
async fn the_document_the_route_table_and_the_contract_agree() {
    let app = TestApp::start().await;
    let document = app.browser().get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut documented = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let problem = &operation["responses"]["default"]["content"]["application/problem+json"]["schema"];
            assert_eq!(problem["$ref"], "#/components/schemas/Problem", "{method} {path}");
            documented.insert(format!("{} {path}", method.to_ascii_uppercase()));
        }
    }
    let contract: BTreeSet<String> = CONTRACT.iter().map(|&route| route.to_owned()).collect();
    assert_eq!(route_table(), contract);
    assert_eq!(documented, contract);
    assert_eq!(document["components"]["securitySchemes"]["session"]["name"], "rp_sess");
    assert_eq!(document["components"]["securitySchemes"]["device"]["scheme"], "bearer");
    assert!(document["components"]["schemas"]["Problem"].is_object());
}

#[actix_web::test]
async fn every_route_of_the_contract_answers() {
    let app = TestApp::start().await;
    for route in CONTRACT {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace("{id}", "x").replace("{deviceId}", "1").replace("{incident}", "i");
        let path = path.replace("{platformId}", "p").replace("{userId}", "u").replace("{name}", "faq");
        let path = path.replace("{guestId}", "g").replace("{serverId}", "s");
        let mut browser = app.browser();
        let request = browser.request(method.parse().unwrap(), &path);
        let status = browser.send(request).await.status;
        // Nobody has uploaded an image.
        let is_missing = status == 404 && !path.starts_with("/images/");
        assert!(!is_missing && status != 405, "{route}: {status}");
    }
}
