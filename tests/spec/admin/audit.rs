//! The audit log, from outside: filters, pages, and the command that verifies its chain.

use companion::{
    config::Database,
    db::engine::pool::{Db, Pool},
};
use diesel::connection::SimpleConnection as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::start;
use crate::harness::{
    app::{ADA, ADMINS, TestApp},
    binary::companion,
    browser::Browser,
    game::{ALICE, BOB},
};

async fn give(ada: &mut Browser, account: &str, tier: &str) {
    let body = json!({ "platformId": account, "tier": tier });
    assert!([200, 201].contains(&ada.post("/admin/beta-testers", Some(&body)).await.status));
}

/// The ids of the entries of a page, and how many match.
async fn page(ada: &mut Browser, query: &str) -> (Vec<String>, u64, Value) {
    let answer = ada.get(&format!("/admin/audit?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let log = answer.json();
    let id = |entry: &Value| entry["id"].as_str().unwrap().to_owned();
    (log["entries"].as_array().unwrap().iter().map(id).collect(), log["total"].as_u64().unwrap(), log["next"].clone())
}

#[actix_web::test]
async fn entries_are_found_by_action_actor_target_and_time() {
    let (app, mut ada) = start().await;
    assert_eq!(page(&mut ada, "").await, (vec![], 0, Value::Null));
    give(&mut ada, ALICE, "SCOUT").await;
    app.clock.advance(chrono::Duration::seconds(1));
    give(&mut ada, BOB, "SCOUT").await;
    app.clock.advance(chrono::Duration::seconds(1));
    assert_eq!(ada.delete(&format!("/admin/beta-testers/{ALICE}")).await.status, 200);
    for (query, ids) in [
        (String::new(), &["3", "2", "1"][..]),
        ("action=beta_tester.put".into(), &["2", "1"]),
        (format!("target={ALICE}"), &["3", "1"]),
        (format!("actor={ADA}&target={ALICE}&action=beta_tester.delete"), &["3"]),
        ("since=2026-11-21T12:00:01Z".into(), &["3", "2"]),
        ("since=2026-11-21T12:00:03Z".into(), &[]),
        ("action=&actor=&target=".into(), &["3", "2", "1"]),
        (format!("actor={BOB}"), &[]),
    ] {
        let (found, total, next) = page(&mut ada, &query).await;
        assert_eq!((found.iter().map(String::as_str).collect::<Vec<_>>(), total), (ids.to_vec(), ids.len() as u64));
        assert_eq!(next, Value::Null, "{query}");
    }
    let (newest, total, next) = page(&mut ada, "limit=2").await;
    assert_eq!((newest, total), (vec!["3".to_owned(), "2".to_owned()], 3));
    let (oldest, total, next) = page(&mut ada, &format!("limit=2&before={}", next.as_str().unwrap())).await;
    assert_eq!((oldest, total, next), (vec!["1".to_owned()], 3, Value::Null));
    let (before, total, _) = page(&mut ada, "before=2026-11-21T12:00:01Z").await;
    assert_eq!((before, total), (vec!["1".to_owned()], 3), "before a time");
    for bad in ["limit=0", "limit=501", "limit=x", "since=yesterday", "before=3", "before=1.x", "target=%00"] {
        ada.get(&format!("/admin/audit?{bad}")).await.expect_problem(400, "invalid_request");
    }
}

#[actix_web::test]
async fn the_command_verifies_the_chain_and_says_where_it_breaks() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("audit.db");
    let url = format!("sqlite:{}", path.display());
    let verify = || {
        let mut command = companion(directory.path());
        let output = command.args(["audit", "verify"]).arg(format!("--database-url={url}")).output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.success(), text)
    };
    let app = TestApp::start_on(url.clone(), &[ADMINS]).await;
    let (whole, text) = verify();
    assert!(whole && text.contains("empty"), "{text}");
    let mut ada = app.signed_in(ADA).await;
    for tier in ["SCOUT", "OPERATOR", "OVERLORD"] {
        give(&mut ada, ALICE, tier).await;
    }
    let last = ada.get("/admin/audit?limit=1").await.json()["entries"][0]["hash"].as_str().unwrap().to_owned();
    let (whole, text) = verify();
    assert!(whole && text.contains("3 entries") && text.contains(&last), "{text}");

    let pool = Pool::open(&Database::Sqlite(path)).unwrap();
    let edit = "DROP TRIGGER audit_not_changed; UPDATE audit SET target = '76561198000000002' WHERE id = 2";
    pool.write_blocking(|db| match db {
        Db::Sqlite(db) => Ok(db.batch_execute(edit)?),
        Db::Pg(_) => unreachable!("it is a file"),
    })
    .unwrap();
    let (whole, text) = verify();
    assert!(!whole && text.contains("entry 2 "), "{text}");
}
