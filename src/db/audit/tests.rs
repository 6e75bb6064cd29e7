use std::thread;

use diesel::{connection::SimpleConnection as _, sql_query};

use super::*;
use crate::db::{
    engine::pool::Pool,
    testing::{self, later, now},
};

fn write(pool: &Pool, actor: &str, action: AdminAction, target: &str, at: Timestamp) -> i64 {
    let payload = AuditPayload::of_change(json!(null), json!({ "name": "ü\n\"" }));
    let actor = actor.into();
    let entry = NewAuditEntry { actor: &actor, action, target, payload: &payload, result: AuditResult::Done };
    pool.write_blocking(|db| lock(db).and_then(|head| append(db, head, &entry, at))).unwrap()
}

fn verified(pool: &Pool) -> Result<AuditHead, ChainBreak> {
    pool.read_blocking(|db| verify(db, |_, _| ())).unwrap()
}

/// Changes the table as an attacker with access to the database would.
fn tamper(pool: &Pool, sql: &str) {
    pool.write_blocking(|db| {
        match db {
            Db::Pg(db) => db.batch_execute("ALTER TABLE audit DISABLE TRIGGER ALL")?,
            Db::Sqlite(db) => {
                db.batch_execute("DROP TRIGGER IF EXISTS audit_not_changed; DROP TRIGGER IF EXISTS audit_not_deleted")?
            }
        }
        sql_query(sql).execute(db)?;
        Ok(())
    })
    .unwrap();
}

#[test]
fn entries_are_found_by_each_filter_and_paged_newest_first() {
    testing::on_each_database(|pool| {
        assert_eq!(pool.read_blocking(|db| list(db, &AuditPage { limit: 9, ..Default::default() })).unwrap().0, 0);
        for (actor, action, target, second) in [
            ("ada", AdminAction::PutBetaTester, "1", 0),
            ("bob", AdminAction::PutBetaTester, "2", 1),
            ("ada", AdminAction::Refund, "ch_1", 1),
            ("ada", AdminAction::PutBetaTester, "1", 3),
        ] {
            write(pool, actor, action, target, later(second));
        }
        let list = |page: AuditPage| {
            let (total, entries) = pool.read_blocking(|db| list(db, &page)).unwrap();
            (total, entries.iter().map(|entry| entry.id).collect::<Vec<_>>())
        };
        let page = || AuditPage { limit: 9, ..Default::default() };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(list(page()), (4, vec![4, 3, 2, 1]));
        assert_eq!(list(AuditPage { action: some("beta_tester.put"), ..page() }), (3, vec![4, 2, 1]));
        assert_eq!(list(AuditPage { actor: some("ada"), ..page() }), (3, vec![4, 3, 1]));
        assert_eq!(list(AuditPage { target: some("1"), ..page() }), (2, vec![4, 1]));
        assert_eq!(list(AuditPage { since: Some(later(1)), limit: 2, ..page() }), (3, vec![4, 3]));
        assert_eq!(list(AuditPage { since: Some(later(1)), before: Some((later(1), 3)), ..page() }), (3, vec![2]));
        assert_eq!(list(AuditPage { before: Some((later(1), i64::MIN)), ..page() }), (4, vec![1]), "before a time");
        assert_eq!(list(AuditPage { actor: some("bob"), action: some("refund"), ..page() }), (0, vec![]));
    });
}

#[test]
fn an_entry_says_what_was_done_without_secrets_and_in_bounds() {
    testing::on_each_database(|pool| {
        let long = json!({ "text": "x".repeat(SNAPSHOT_BYTES) });
        let payload = AuditPayload::of_change(json!({ "playerToken": 7, "name": "a" }), long.clone());
        let actor = "ada".into();
        let action = AdminAction::DeletePairedServer;
        let entry =
            NewAuditEntry { actor: &actor, action, target: "s", payload: &payload, result: AuditResult::Failed };
        pool.write_blocking(|db| lock(db).and_then(|head| append(db, head, &entry, now()))).unwrap();
        let (_, entries) = pool.read_blocking(|db| list(db, &AuditPage { limit: 9, ..Default::default() })).unwrap();
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        let AuditEntry { id, at, actor, action, target, result, .. } = entry;
        assert_eq!((*id, *at, actor.as_str(), action.as_str()), (1, now(), "ada", "paired_server.delete"));
        assert_eq!((target.as_str(), result.as_str()), ("s", "failed"));
        let payload: Value = serde_json::from_str(&entry.payload).unwrap();
        assert_eq!(payload["before"], json!({ "playerToken": "[redacted]", "name": "a" }));
        assert_eq!(payload["after"]["bytes"], long.to_string().len());
        assert_eq!(payload["after"]["sha256"], sha256_hex(long.to_string().as_bytes()));
    });
}

#[test]
fn the_database_refuses_to_change_or_delete_an_entry() {
    testing::on_each_database(|pool| {
        write(pool, "ada", AdminAction::Refund, "ch_1", now());
        for sql in ["UPDATE audit SET target = 'ch_2'", "DELETE FROM audit"] {
            let refused = pool.write_blocking(|db| Ok(sql_query(sql).execute(db)?));
            assert!(matches!(&refused, Err(DbError::Query(text)) if text.contains("append-only")), "{refused:?}");
        }
        assert!(verified(pool).is_ok());
    });
}

#[test]
fn whatever_is_changed_or_taken_out_breaks_the_chain_where_it_was() {
    for (sql, broken) in [
        ("UPDATE audit SET target = '9' WHERE id = 2", ChainBreak::Changed(2)),
        ("UPDATE audit SET actor = 'eve' WHERE id = 3", ChainBreak::Changed(3)),
        ("UPDATE audit SET at = '2026-01-01 00:00:00' WHERE id = 1", ChainBreak::Changed(1)),
        ("UPDATE audit SET payload = '{}' WHERE id = 3", ChainBreak::Changed(3)),
        ("UPDATE audit SET result = 'failed' WHERE id = 3", ChainBreak::Changed(3)),
        ("UPDATE audit SET hash = 'a' WHERE id = 3", ChainBreak::Changed(3)),
        ("DELETE FROM audit WHERE id = 2", ChainBreak::Missing(2)),
        ("DELETE FROM audit WHERE id = 3", ChainBreak::Missing(3)),
        ("DELETE FROM audit", ChainBreak::Missing(1)),
        ("UPDATE audit_head SET id = 2", ChainBreak::OtherHead(2)),
        ("UPDATE audit_head SET hash = ''", ChainBreak::OtherHead(3)),
    ] {
        testing::on_each_database(|pool| {
            for second in 0..3 {
                write(pool, "ada", AdminAction::PutBetaTester, "1", later(second));
            }
            let head = verified(pool).unwrap();
            assert_eq!((head.id, head.hash.len()), (3, 64));
            tamper(pool, sql);
            assert_eq!(verified(pool), Err(broken), "{sql}");
        });
    }
}

#[test]
fn many_writers_make_one_chain_and_a_write_that_fails_leaves_no_gap() {
    testing::on_each_database(|pool| {
        thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    for _ in 0..10 {
                        write(pool, &writer.to_string(), AdminAction::Refund, "ch", now());
                        let undone = pool.write_blocking(|db| {
                            let payload = AuditPayload::of_change(Value::Null, Value::Null);
                            let (action, result) = (AdminAction::Refund, AuditResult::Done);
                            let entry =
                                NewAuditEntry { actor: &"x".into(), action, target: "", payload: &payload, result };
                            lock(db).and_then(|head| append(db, head, &entry, now()))?;
                            Err::<(), _>(DbError::Conflict)
                        });
                        assert!(matches!(undone, Err(DbError::Conflict)));
                    }
                });
            }
        });
        let mut reported = Vec::new();
        let head = pool.read_blocking(|db| verify(db, |done, of| reported.push((done, of)))).unwrap().unwrap();
        assert_eq!((head.id, reported.last()), (40, Some(&(40, 40))));
    });
}

#[test]
fn the_times_of_entries_ascend_with_the_chain() {
    testing::on_each_database(|pool| {
        for (second, expected) in [(5, 5), (3, 5), (4, 5), (6, 6)] {
            write(pool, "ada", AdminAction::Refund, "ch", later(second));
            let (_, entries) =
                pool.read_blocking(|db| list(db, &AuditPage { limit: 1, ..Default::default() })).unwrap();
            assert_eq!(entries[0].at, later(expected));
        }
        assert!(verified(pool).is_ok());
    });
}

/// The chain as other programs compute it: the format is a promise to those who kept a hash.
#[test]
fn a_hash_is_of_the_documented_form() {
    let entry = AuditEntry {
        id: 1,
        at: now(),
        actor: "ada".into(),
        action: "refund".into(),
        target: "ch_1".into(),
        payload: "{}".into(),
        result: "done".into(),
        hash: String::new(),
    };
    let content = "\n[1,1800000000123456,\"ada\",\"refund\",\"ch_1\",\"{}\",\"done\"]";
    assert_eq!(entry.hash_after(""), sha256_hex(content.as_bytes()));
}
