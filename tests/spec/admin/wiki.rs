//! The wiki: what it ships with, how admins change it, and how everybody reads it.

use reqwest::{
    Method,
    header::{ACCEPT, ORIGIN},
};
use serde_json::{Value, json};

use super::{audited, done, start};
use crate::harness::{
    app::{ADA, FRONTEND},
    browser::{Answer, Browser},
    pictures::png,
};

async fn put(ada: &mut Browser, page: &Value, if_match: Option<&str>) -> Answer {
    let mut request = ada.request(Method::PUT, "/admin/wiki/page").header(ORIGIN, FRONTEND).json(page);
    if let Some(tag) = if_match {
        request = request.header("if-match", tag);
    }
    ada.send(request).await
}

fn page(slug: &str, title: &str, body: &str) -> Value {
    json!({ "slug": slug, "frontmatter": { "section": "Start", "order": 1, "title": title, "tags": ["x"] }, "body": body })
}

/// The slugs of a section.
fn slugs(tree: &Value, section: &str) -> Vec<String> {
    let sections = tree["sections"].as_array().unwrap();
    let found = sections.iter().find(|found| found["name"] == section).expect("the section");
    found["pages"].as_array().unwrap().iter().map(|page| page["slug"].as_str().unwrap().to_owned()).collect()
}

#[actix_web::test]
async fn everybody_reads_the_pages_that_explain_the_service() {
    let (app, mut ada) = start().await;
    let mut visitor = app.browser();
    let tree = visitor.get("/wiki/tree").await;
    assert_eq!((tree.status, tree.header("cache-control")), (200, Some("public, no-cache")));
    assert_eq!(slugs(&tree.json(), "Start"), ["welcome", "pairing", "push-credential"]);
    let of_admins = ada.get("/admin/wiki/tree").await.json();
    assert_eq!((&of_admins["sections"], &of_admins["deleted"]), (&tree.json()["sections"], &json!([])));
    let mut shown = 0;
    for section in tree.json()["sections"].as_array().unwrap() {
        for link in section["pages"].as_array().unwrap() {
            let page = visitor.get(&format!("/wiki/page?slug={}", link["slug"].as_str().unwrap())).await.json();
            assert_eq!((&page["frontmatter"]["title"], &page["slug"]), (&link["title"], &link["slug"]));
            assert!(page["body"].as_str().unwrap().starts_with("# "));
            assert_eq!((&page["version"], &page["updatedAt"]), (&json!(0), &Value::Null));
            shown += 1;
        }
    }
    assert_eq!(shown, 7);
    for slug in ["nothing", "..%2Fsecrets", "%00", ""] {
        assert_eq!(visitor.get(&format!("/wiki/page?slug={slug}")).await.status, 404, "{slug}");
    }
    visitor.get("/wiki/page").await.expect_problem(400, "invalid_request");
}

/// The answer to a person's browser.
async fn read(browser: &mut Browser, path: &str) -> Answer {
    let request = browser.request(Method::GET, path).header(ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8");
    browser.send(request).await
}

#[actix_web::test]
async fn people_read_the_wiki_as_pages_in_which_no_html_of_an_author_acts() {
    let (app, mut ada) = start().await;
    let mut visitor = app.browser();
    let tree = read(&mut visitor, "/wiki/tree").await;
    assert_eq!((tree.status, tree.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(tree.text().contains("<a href=\"page?slug=welcome\">"), "{}", tree.text());
    assert_eq!(tree.header("cache-control"), Some("public, no-cache"));
    assert!(tree.header("vary").unwrap().contains("accept"));

    let body = "# Doors\n\n<script>alert(1)</script>\n\n[a](javascript:alert(1)) [b](welcome) ![c](/images/c.png)";
    assert_eq!(put(&mut ada, &page("doors", "Doors", body), None).await.status, 200);
    let shown = read(&mut visitor, "/wiki/page?slug=doors").await;
    let policy = shown.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && policy.contains("img-src 'self' data:"), "{policy}");
    let text = shown.text();
    assert!(text.contains("<h1>Doors</h1>") && text.contains("<title>Doors - companion</title>"), "{text}");
    assert!(!text.contains("<script") && !text.contains("javascript:"), "{text}");
    assert!(text.contains("<a href=\"page?slug=welcome\">b</a>"), "{text}");

    // Programs get what they got before, and neither has the other's tag.
    let json = visitor.get("/wiki/page?slug=doors").await;
    assert_eq!(json.json()["body"], body);
    assert_ne!(json.header("etag"), shown.header("etag"));
    let known = visitor.request(Method::GET, "/wiki/page?slug=doors").header(ACCEPT, "text/html");
    let known = known.header("if-none-match", shown.header("etag").unwrap());
    assert_eq!(visitor.send(known).await.status, 304);
    assert_eq!(read(&mut visitor, "/wiki/page?slug=nothing").await.status, 404);
}

#[actix_web::test]
async fn a_page_is_written_changed_and_deleted() {
    let (app, mut ada) = start().await;
    let mut visitor = app.browser();
    let before = visitor.get("/wiki/tree").await;
    let created = put(&mut ada, &page("guides/doors", "Doors", "# Doors\n\nShut them."), None).await;
    assert_eq!(created.status, 200, "{}", created.text());
    let seen = visitor.get("/wiki/page?slug=guides/doors").await;
    assert_eq!((seen.json(), seen.header("etag")), (created.json(), created.header("etag")));
    let tree = visitor.get("/wiki/tree").await;
    assert_eq!(slugs(&tree.json(), "Start"), ["guides/doors", "welcome", "pairing", "push-credential"]);
    assert_ne!(tree.header("etag"), before.header("etag"));

    let again = ada.request(Method::PUT, "/admin/wiki/page").header(ORIGIN, FRONTEND).header("if-none-match", "*");
    let again = ada.send(again.json(&page("guides/doors", "Doors", "Mine"))).await;
    again.expect_problem(412, "conflict");

    let stale = created.header("etag").unwrap().to_owned();
    let changed = put(&mut ada, &page("guides/doors", "Doors", "# Doors"), Some(&stale)).await;
    assert_eq!(changed.json()["version"], 2);
    put(&mut ada, &page("guides/doors", "Doors", "Mine"), Some(&stale)).await.expect_problem(412, "conflict");
    put(&mut ada, &page("guides/new", "New", ""), Some("*")).await.expect_problem(412, "conflict");
    let versions = ada.get("/admin/wiki/page/versions?slug=guides/doors").await.json();
    let version =
        |version: i64| json!({ "version": version, "updatedAt": "2026-11-21T12:00:00.000Z", "updatedBy": ADA });
    assert_eq!(versions, json!({ "versions": [version(2), version(1)] }));
    let restore = json!({ "slug": "guides/doors", "version": 1 });
    let restored = ada.post("/admin/wiki/page/restore", Some(&restore)).await.json();
    assert_eq!((&restored["body"], &restored["version"]), (&created.json()["body"], &json!(3)));

    let delete = "/admin/wiki/page?slug=guides/doors";
    let request = ada.request(Method::DELETE, delete).header(ORIGIN, FRONTEND).header("if-match", &stale[..9]);
    assert_eq!(ada.send(request).await.status, 400);
    assert_eq!(ada.delete(delete).await.json(), json!({ "ok": true }));
    ada.delete(delete).await.expect_problem(404, "not_found");
    visitor.get("/wiki/page?slug=guides/doors").await.expect_problem(404, "not_found");
    assert_eq!(visitor.get("/wiki/tree").await.json(), before.json());

    // The page can be looked at and had back.
    assert_eq!(ada.get("/admin/wiki/tree").await.json()["deleted"], json!(["guides/doors"]));
    let versions = ada.get("/admin/wiki/page/versions?slug=guides/doors").await.json();
    assert_eq!(versions, json!({ "versions": [version(3), version(2), version(1)] }));
    let read = ada.get("/admin/wiki/page/versions/2?slug=guides/doors").await;
    assert_eq!((read.json(), read.header("etag")), (changed.json(), changed.header("etag")));
    for wanted in ["4", "0", "-1", "x", "9223372036854775808"] {
        let path = format!("/admin/wiki/page/versions/{wanted}?slug=guides/doors");
        ada.get(&path).await.expect_problem(404, "not_found");
    }
    visitor.get("/admin/wiki/page/versions/2?slug=guides/doors").await.expect_problem(401, "unauthenticated");
    let back = ada.post("/admin/wiki/page/restore", Some(&json!({ "slug": "guides/doors", "version": 3 }))).await;
    assert_eq!((&back.json()["body"], &back.json()["version"]), (&created.json()["body"], &json!(5)));
    assert_eq!(visitor.get("/wiki/page?slug=guides/doors").await.json(), back.json());
    assert_eq!(ada.delete(delete).await.status, 200);

    let actions: Vec<_> = audited(&mut ada, 9).await.iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions[..2], ["wiki_page.delete", "wiki_page.restore"]);
    assert_eq!(actions[2..], ["wiki_page.delete", "wiki_page.restore", "wiki_page.put", "wiki_page.put"]);
    let first = audited(&mut ada, 9).await.pop().unwrap();
    assert_eq!(first, done("wiki_page.put", "guides/doors", Value::Null, created.json()));
}

#[actix_web::test]
async fn a_page_of_the_service_can_be_changed_deleted_and_had_back() {
    let (app, mut ada) = start().await;
    let shipped = ada.get("/admin/wiki/page?slug=welcome").await;
    let tag = shipped.header("etag").unwrap().to_owned();
    assert_eq!(put(&mut ada, &page("welcome", "Hello", "# Hello"), Some(&tag)).await.status, 200);
    let app = app.restart().await;
    let mut ada = app.again(&ada);
    assert_eq!(ada.get("/wiki/page?slug=welcome").await.json()["body"], "# Hello");
    assert_eq!(ada.delete("/admin/wiki/page?slug=welcome").await.status, 200);
    ada.get("/wiki/page?slug=welcome").await.expect_problem(404, "not_found");
    assert_eq!(slugs(&ada.get("/wiki/tree").await.json(), "Start"), ["pairing", "push-credential"]);
    let versions = ada.get("/admin/wiki/page/versions?slug=welcome").await.json();
    let shipped_version = json!({ "version": 0, "updatedAt": null, "updatedBy": null });
    assert_eq!(versions["versions"].as_array().unwrap()[1..], [shipped_version]);
    let back = ada.post("/admin/wiki/page/restore", Some(&json!({ "slug": "welcome", "version": 0 }))).await;
    assert_eq!((back.json()["body"].clone(), back.header("etag")), (shipped.json()["body"].clone(), Some(&*tag)));
}

#[actix_web::test]
async fn what_is_no_page_is_refused() {
    let (_app, mut ada) = start().await;
    let long = "x".repeat(256 * 1024 + 1);
    let with = |field: &str, value: Value| {
        let mut page = page("a", "A", "text");
        page[field] = value;
        page
    };
    for (page, path) in [
        (with("slug", json!("../a")), "slug"),
        (with("slug", json!("/etc/passwd")), "slug"),
        (with("slug", json!("A")), "slug"),
        (with("slug", json!("a//b")), "slug"),
        (with("slug", json!("a.md")), "slug"),
        (with("body", json!(long)), "body"),
        (with("body", json!("a\u{0}b")), "body"),
        (with("frontmatter", json!({ "section": 1 })), "frontmatter.section"),
        (with("frontmatter", json!({ "order": "first" })), "frontmatter.order"),
        (with("frontmatter", json!({ "title": "a\nb" })), "frontmatter.title"),
        (with("frontmatter", json!({ "note": "x".repeat(16 * 1024) })), "frontmatter"),
    ] {
        let problem = put(&mut ada, &page, None).await.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["path"], path, "{problem}");
    }
    put(&mut ada, &with("frontmatter", json!([])), None).await.expect_problem(400, "invalid_request");
    assert!(audited(&mut ada, 9).await.is_empty());
    let largest = put(&mut ada, &with("body", json!(&long[1..])), None).await;
    assert_eq!(largest.status, 200, "{}", largest.text());
}

#[actix_web::test]
async fn an_image_goes_with_the_last_page_that_shows_it() {
    let (app, mut ada) = start().await;
    let uploaded = ada.upload("/admin/wiki/image", &png(1)).await;
    assert_eq!(uploaded.status, 201, "{}", uploaded.text());
    let url = uploaded.json()["url"].as_str().unwrap().to_owned();
    let path = url.strip_prefix(crate::harness::app::BASE).unwrap().to_owned();
    for slug in ["a", "b"] {
        assert_eq!(put(&mut ada, &page(slug, slug, &format!("![map]({url})")), None).await.status, 200);
    }
    assert_eq!(put(&mut ada, &page("a", "a", "no image any more"), None).await.status, 200);
    assert_eq!(ada.delete("/admin/wiki/page?slug=b").await.status, 200);
    assert_eq!(app.browser().get(&path).await.status, 200, "an earlier version of the other page has it");
    assert_eq!(ada.delete("/admin/wiki/page?slug=a").await.status, 200);
    assert_eq!(app.browser().get(&path).await.status, 200, "the deleted page can be restored");
    // The image is used as long as a version is kept that shows it.
    for slug in ["a", "b"] {
        for _ in 0..20 {
            assert_eq!(put(&mut ada, &page(slug, slug, "no image any more"), None).await.status, 200);
        }
    }
    app.browser().get(&path).await.expect_problem(404, "not_found");
}
