//! Every write of an admin leaves an entry in the audit log. Each has a row here with an example; a route without one
//! fails, and so does one that writes past the log.

use std::collections::BTreeSet;

use companion::simulator::chat::ChatService;
use reqwest::{Method, header::ORIGIN};
use serde_json::{Value, json};

use crate::{
    admin::audited,
    harness::{
        app::{ADA, ADMINS, FRONTEND},
        browser::Browser,
        catalogue, chat_platform,
        game::ALICE,
        payments::PaymentTest,
        pictures::{form, form_type, png},
    },
    openapi::route_table,
};

/// Body of a request.
enum Sent {
    Nothing,
    /// `{account}` is Alice's, `{charge}` what she paid.
    Json(&'static str),
    Image,
}

use Sent::*;

/// One row a route, done in this order: what is sent, and the action that the log then names.
const WRITES: &[(&str, Sent, &str)] = &[
    ("POST /admin/beta-testers", Json(r#"{"platformId":"{account}","tier":"SCOUT"}"#), "beta_tester.put"),
    ("DELETE /admin/beta-testers/{platformId}", Nothing, "beta_tester.delete"),
    ("PUT /admin/store/{name}", Json(r#"{"data":{"a":1}}"#), "store.put"),
    ("POST /admin/store/{name}/restore", Json(r#"{"version":1}"#), "store.restore"),
    ("PUT /admin/wiki/page", Json(r#"{"slug":"a/b","frontmatter":{},"body":"text"}"#), "wiki_page.put"),
    ("POST /admin/wiki/page/restore", Json(r#"{"slug":"a/b","version":1}"#), "wiki_page.restore"),
    ("DELETE /admin/wiki/page", Nothing, "wiki_page.delete"),
    ("POST /admin/wiki/image", Image, "image.upload"),
    ("POST /admin/items/upload-icon", Image, "image.upload"),
    ("PUT /admin/items/{id}", Json(r#"{"shortname":"test.write","name":"Item","category":"Test"}"#), "item.put"),
    ("DELETE /admin/items/{id}", Nothing, "item.delete"),
    ("POST /admin/conveyor-map", Json(r#"{"itemId":"-932201673"}"#), "conveyor_row.add"),
    ("POST /admin/conveyor-map/bulk-category", Json(r#"{"shortnames":["scrap"],"category":"A"}"#), "conveyor_rows.put"),
    ("PUT /admin/conveyor-map/{shortname}", Json(r#"{"category":"B"}"#), "conveyor_row.put"),
    ("DELETE /admin/conveyor-map/{shortname}", Nothing, "conveyor_row.delete"),
    ("POST /admin/chat/register-commands", Nothing, "chat.register_commands"),
    ("POST /admin/refund", Json(r#"{"chargeId":"{charge}"}"#), "refund"),
    ("POST /admin/users/{id}/subscriptions/fetch", Nothing, "user.subscriptions.fetch"),
    ("DELETE /admin/users/{id}/subscriptions/{subscriptionId}", Nothing, "subscription.end"),
    ("DELETE /admin/paired-servers/{id}", Nothing, "paired_server.delete"),
    ("DELETE /admin/users/{userId}/paired-servers", Nothing, "user.paired_servers.delete"),
    ("POST /admin/users/{id}/sign-out", Nothing, "user.sign_out"),
];

#[test]
fn every_write_of_an_admin_has_a_row() {
    let rows: BTreeSet<String> = WRITES.iter().map(|(route, ..)| (*route).to_owned()).collect();
    let is_write = |route: &String| route.contains(" /admin/") && !route.starts_with("GET ");
    assert_eq!(rows, route_table().into_iter().filter(is_write).collect::<BTreeSet<_>>());
}

/// A service with what the examples need.
struct AdminScene {
    _test: PaymentTest,
    _chat: ChatService,
    ada: Browser,
    user: String,
    server: String,
    charge: String,
    subscription: String,
}

impl AdminScene {
    async fn set() -> Self {
        let chat = chat_platform::platform().await;
        let mut flags = chat_platform::flags(&chat);
        flags.push(ADMINS.to_owned());
        let mut test = PaymentTest::start_with(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut ada = test.app.signed_in(ADA).await;
        let subscription = test.subscribe("SCOUT").await;
        test.until(|subscription| subscription["tier"] == "SCOUT").await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let user = text(&test.alice.get("/me").await.json()["id"]);
        let pairing = json!({ "address": "play.example.com", "port": 28083, "playerId": ALICE, "playerToken": 1 });
        let server = text(&test.alice.post("/paired-servers", Some(&pairing)).await.json()["id"]);
        let charge = text(&ada.get(&format!("/admin/users/{user}/charges")).await.json()["charges"][0]["id"]);
        Self { _test: test, _chat: chat, ada, user, server, charge, subscription }
    }

    /// The value in the example.
    fn filled(&self, route: &str, text: &str) -> String {
        let id = match route {
            _ if route.contains("/users/") => self.user.as_str(),
            _ if route.contains("/items/") => "700021",
            _ => &self.server,
        };
        let known = [
            ("{platformId}", ALICE),
            ("{account}", ALICE),
            ("{charge}", &self.charge),
            ("{userId}", &self.user),
            ("{subscriptionId}", &self.subscription),
            ("{id}", id),
            ("{name}", "faq"),
            ("{shortname}", "scrap"),
        ];
        let filled = known.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value));
        assert!(!filled.contains('{') || filled.starts_with("{\""), "{filled}: say what stands there");
        filled
    }
}

#[actix_web::test]
async fn every_write_of_an_admin_leaves_an_entry() {
    let _catalogue = catalogue::alone().await;
    let mut scene = AdminScene::set().await;
    for (route, sent, action) in WRITES {
        let before = scene.ada.get("/admin/audit?limit=1").await.json()["total"].as_u64().unwrap();
        let (method, path) = route.split_once(' ').unwrap();
        let mut path = scene.filled(route, path);
        if *route == "DELETE /admin/wiki/page" {
            path += "?slug=a/b";
        }
        let request = scene.ada.request(method.parse::<Method>().unwrap(), &path).header(ORIGIN, FRONTEND);
        let request = match sent {
            Nothing => request,
            Image => request.header("content-type", form_type()).body(form("file", &png(1))),
            Json(body) => request.header("content-type", "application/json").body(scene.filled(route, body)),
        };
        let answer = scene.ada.send(request).await;
        assert!((200..300).contains(&answer.status), "{route}: {} {}", answer.status, answer.text());
        let log = scene.ada.get("/admin/audit?limit=1").await.json();
        assert!(log["total"].as_u64().unwrap() > before, "{route} wrote past the audit log");
        let entry = audited(&mut scene.ada, 1).await.remove(0);
        assert_eq!((&entry["actor"], &entry["action"]), (&json!(ADA), &json!(action)), "{route}: {entry}");
        assert_eq!(entry["result"], "done", "{route}: {entry}");
        assert!(!entry["target"].as_str().unwrap().is_empty() && entry["payload"].is_object(), "{route}: {entry}");
    }
}
