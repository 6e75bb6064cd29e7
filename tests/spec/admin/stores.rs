//! The stores: what they ship with, how admins change them, and how everybody reads them.

use reqwest::{Method, header::ORIGIN};
use serde_json::{Value, json};

use super::{audited, start};
use crate::harness::{
    app::FRONTEND,
    browser::{Answer, Browser},
    game::ALICE,
};

async fn put(ada: &mut Browser, path: &str, data: &Value, if_match: Option<&str>) -> Answer {
    let mut request = ada.request(Method::PUT, path).header(ORIGIN, FRONTEND).json(&json!({ "data": data }));
    if let Some(tag) = if_match {
        request = request.header("if-match", tag);
    }
    ada.send(request).await
}

async fn get_unless(browser: &mut Browser, path: &str, tag: &str) -> Answer {
    browser.send(browser.request(Method::GET, path).header("if-none-match", tag)).await
}

#[actix_web::test]
async fn everybody_reads_what_the_service_ships() {
    let (app, mut ada) = start().await;
    let mut visitor = app.browser();
    for (name, known) in [
        ("messages", "/raid.title"),
        ("crafting", "/recipes/rifle.ak/ingredients/0/shortname"),
        ("raid", "/targets/0/ways/0/sulfur"),
        ("faq", "/entries/0/answer"),
    ] {
        let answer = visitor.get(&format!("/store/{name}")).await;
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("public, no-cache")));
        let store = answer.json();
        assert!(store["data"].pointer(known).is_some_and(|value| !value.is_null()), "{name}: {store}");
        assert_eq!(store["updatedAt"], Value::Null);
        let tag = answer.header("etag").unwrap();
        assert_eq!(get_unless(&mut visitor, &format!("/store/{name}"), tag).await.status, 304);
        assert_eq!(ada.get(&format!("/admin/store/{name}")).await.json(), store);
    }
    let stores = ada.get("/admin/stores").await.json()["stores"].clone();
    let names: Vec<_> = stores.as_array().unwrap().iter().map(|store| store["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["messages", "crafting", "raid", "faq"]);
    let faq = &stores[3];
    assert_eq!((&faq["version"], &faq["updatedAt"], &faq["updatedBy"]), (&json!(0), &Value::Null, &Value::Null));
    assert!(faq["bytes"].as_u64().unwrap() > 1_000);
    for path in ["/store/secrets", "/admin/store/secrets", "/admin/store/Faq", "/admin/store/secrets/versions"] {
        ada.get(path).await.expect_problem(404, "not_found");
    }
    put(&mut ada, "/admin/store/secrets", &json!(1), None).await.expect_problem(404, "not_found");
}

#[actix_web::test]
async fn a_change_is_seen_at_once_by_clients_with_an_older_one() {
    let (app, mut ada) = start().await;
    let mut visitor = app.browser();
    let shipped = visitor.get("/store/faq").await;
    let written = put(&mut ada, "/admin/store/faq", &json!({ "b": [1, 2.5], "a": "é" }), None).await;
    assert_eq!(written.status, 200, "{}", written.text());
    assert!(written.text().starts_with(r#"{"data":{"a":"#) || written.text().starts_with(r#"{"data":{"b":"#));
    let seen = get_unless(&mut visitor, "/store/faq", shipped.header("etag").unwrap()).await;
    assert_eq!((seen.status, seen.header("etag")), (200, written.header("etag")));
    assert_eq!(seen.json(), json!({ "data": { "a": "é", "b": [1, 2.5] }, "updatedAt": "2026-11-21T12:00:00.000Z" }));
    let restarted = app.restart().await;
    assert_eq!(restarted.browser().get("/store/faq").await.json(), seen.json());
}

#[actix_web::test]
async fn who_did_not_see_the_last_change_does_not_overwrite_it() {
    let (_app, mut ada) = start().await;
    let path = "/admin/store/raid";
    let first = ada.get(path).await.header("etag").unwrap().to_owned();
    let second = put(&mut ada, path, &json!("second"), Some(&first)).await.header("etag").unwrap().to_owned();
    let refused = put(&mut ada, path, &json!("third"), Some(&first)).await;
    refused.expect_problem(412, "conflict");
    assert_eq!(put(&mut ada, path, &json!("third"), Some(&format!("\"x\", {second}"))).await.status, 200);
    assert_eq!(put(&mut ada, path, &json!("fourth"), Some("*")).await.status, 200);
    put(&mut ada, path, &json!("fifth"), Some("fifth")).await.expect_problem(400, "invalid_request");
    assert_eq!(ada.get(path).await.json()["data"], "fourth");
    assert_eq!(audited(&mut ada, 9).await.len(), 3, "refusals leave no entry");
}

#[actix_web::test]
async fn an_earlier_version_comes_back_as_a_new_one() {
    let (app, mut ada) = start().await;
    let path = "/admin/store/messages";
    let shipped = ada.get(path).await.json()["data"].clone();
    for text in ["one", "two"] {
        app.clock.advance(chrono::Duration::seconds(1));
        assert_eq!(put(&mut ada, path, &json!({ "hello": text }), None).await.status, 200);
    }
    let restore = |version: i64| json!({ "version": version });
    let restored = ada.post(&format!("{path}/restore"), Some(&restore(1))).await;
    assert_eq!(restored.status, 200, "{}", restored.text());
    assert_eq!(restored.json()["data"], json!({ "hello": "one" }));
    let versions = ada.get(&format!("{path}/versions")).await.json()["versions"].clone();
    let seen: Vec<_> =
        versions.as_array().unwrap().iter().map(|version| version["version"].as_i64().unwrap()).collect();
    assert_eq!(seen, [3, 2, 1, 0]);
    assert_eq!(versions[1]["updatedAt"], "2026-11-21T12:00:02.000Z");
    assert_eq!(versions[1]["updatedBy"], crate::harness::app::ADA);
    assert_eq!(ada.get(&format!("{path}/versions/2")).await.json()["data"], json!({ "hello": "two" }));
    assert_eq!(ada.post(&format!("{path}/restore"), Some(&restore(0))).await.json()["data"], shipped);
    ada.post(&format!("{path}/restore"), Some(&restore(9))).await.expect_problem(404, "not_found");
    ada.post(&format!("{path}/restore"), Some(&restore(-1))).await.expect_problem(400, "invalid_request");
    for missing in ["9", "x"] {
        ada.get(&format!("{path}/versions/{missing}")).await.expect_problem(404, "not_found");
    }
    let newest = audited(&mut ada, 1).await.remove(0);
    assert_eq!((&newest["action"], &newest["target"]), (&json!("store.restore"), &json!("messages")));
    let payload = &newest["payload"];
    assert_eq!((&payload["before"]["version"], &payload["after"]["version"]), (&json!(3), &json!(4)));
}

#[actix_web::test]
async fn data_is_any_json_of_a_mebibyte_and_nothing_else() {
    let (app, mut ada) = start().await;
    let path = "/admin/store/crafting";
    let most = "x".repeat(1024 * 1024 - 2);
    assert_eq!(put(&mut ada, path, &json!(most), None).await.status, 200);
    assert_eq!(app.browser().get("/store/crafting").await.json()["data"].as_str().unwrap().len(), most.len());
    let more = put(&mut ada, path, &json!(most + "x"), None).await.expect_problem(400, "invalid_request");
    assert_eq!(more["errors"][0]["path"], "data");
    put(&mut ada, path, &json!("x".repeat(2 * 1024 * 1024)), None).await.expect_problem(413, "body_too_large");
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    for (body, code) in [
        ("{\"data\":".to_owned(), "malformed_json"),
        ("{\"data\":1,}".to_owned(), "malformed_json"),
        ("{}".to_owned(), "invalid_request"),
        (format!("{{\"data\":{deep}}}"), "invalid_request"),
    ] {
        let request = ada.request(Method::PUT, path).header(ORIGIN, FRONTEND);
        let request = request.header("content-type", "application/json").body(body);
        ada.send(request).await.expect_problem(400, code);
    }
    for data in [Value::Null, json!(false), json!([])] {
        assert_eq!(put(&mut ada, path, &data, None).await.json()["data"], data);
    }
    let mut alice = app.signed_in(ALICE).await;
    put(&mut alice, path, &json!(1), None).await.expect_problem(403, "not_admin");
}
