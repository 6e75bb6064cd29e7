use super::*;
use crate::db::testing::{later, now};

/// The newest last.
fn attempt(entries: &[Value]) -> Option<(String, String)> {
    let entry = |(id, payload): (usize, &Value)| AuditEntry {
        id: id as i64 + 1,
        at: now(),
        actor: "1".into(),
        action: AdminAction::Refund.as_str().into(),
        target: "ch_1".into(),
        payload: payload.to_string(),
        result: String::new(),
        hash: String::new(),
    };
    let newest_first = entries.iter().enumerate().map(entry).rev().collect();
    unanswered_attempt(newest_first, 100, None).map(|attempt| (attempt.key, attempt.issued_at))
}

#[test]
fn an_attempt_is_repeated_until_it_is_known_what_became_of_it() {
    let at = |second| time::to_wire(later(second));
    let asked =
        |key: &str, second| json!({ "asked": { "idempotencyKey": key, "amount": 100, "issuedAt": at(second) } });
    let over = |begun: &str, after: Value| json!({ "begun": begun, "after": after });
    let lost = || json!({ "error": UNANSWERED });
    let overtaken = || json!({ "error": OVERTAKEN });
    let first = Some(("a".to_owned(), at(1)));
    assert_eq!(attempt(&[]), None);
    assert_eq!(attempt(&[asked("a", 1)]), first, "under way");
    assert_eq!(attempt(&[asked("a", 1), over("1", lost())]), first);
    assert_eq!(attempt(&[asked("a", 1), over("1", json!({ "id": "re_1" }))]), None, "made");
    assert_eq!(attempt(&[asked("a", 1), over("1", json!({ "error": "unknown_charge" }))]), None);
    // Two clicks at once have one key; one of them overtakes the other.
    let clicks = [asked("a", 1), asked("a", 2)];
    let ends = |one: Value, two: Value| attempt(&[&clicks[..], &[over("2", two), over("1", one)]].concat());
    assert_eq!(ends(lost(), overtaken()), first);
    assert_eq!(ends(overtaken(), lost()), Some(("a".to_owned(), at(2))));
    assert_eq!(ends(json!({ "id": "re_1" }), overtaken()), None);
    assert_eq!(ends(overtaken(), json!({ "id": "re_1" })), None);
    assert_eq!(ends(lost(), json!({ "id": "re_1" })), None);
}

#[test]
fn a_key_that_the_provider_may_have_forgotten_is_sent_no_more() {
    let attempt =
        |issued_at: &str| RefundAttempt { key: "a".into(), issued_by: "1".into(), issued_at: issued_at.to_owned() };
    let issued = attempt(&time::to_wire(now()));
    assert!(issued.is_known_to_provider(now() + KEY_KEPT - TimeDelta::seconds(1)));
    assert!(!issued.is_known_to_provider(now() + KEY_KEPT));
    assert!(!attempt("no time").is_known_to_provider(now()));
}
