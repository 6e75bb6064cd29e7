//! A push that cannot be handled: its own faults, and the dead letter that is kept when it is given up.
//!
//! A push is acknowledged only once it is stored, and those behind it wait for that. One that fails whenever it is
//! tried would keep all after it in memory, until none is read at all.

use serde_json::{Map, Value, json};

use crate::{
    crypto::digest::sha256_hex,
    db::{
        engine::{error::DbError, pool::Db},
        failed_pushes, push_seen,
    },
    domain::{ids::UserId, limits::PUSH_ATTEMPTS, plain_text::plain_text, time::Timestamp},
    push::message::PushMessage,
};

/// Characters of a text that a dead letter keeps.
const TEXT: usize = 512;
/// The fields of a body that a dead letter keeps. No other: a pairing has a player token.
const FIELDS: [&str; 10] =
    ["type", "id", "name", "ip", "port", "entityId", "entityType", "entityName", "targetId", "targetName"];
/// Bytes of a body that is read for them.
const BODY: usize = 16 * 1024;

/// The faults of a push itself, in fixed words.
pub const FAULTS: [&str; 3] = ["panicked", "conflict", "query_refused"];

/// The fault of a push itself, one of [`FAULTS`]; `None` if it may well be stored another time.
pub fn own_fault(error: &DbError) -> Option<&'static str> {
    match error {
        DbError::Unavailable(_) | DbError::Damaged(_) | DbError::NewerSchema(_) | DbError::Fenced => None,
        DbError::Panicked => Some("panicked"),
        DbError::Conflict | DbError::NotFound => Some("conflict"),
        DbError::Query(_) | DbError::Malformed(_) => Some("query_refused"),
    }
}

/// Counts a failure of this push, in all sessions. After the last attempt it becomes a dead letter and counts as
/// received; then the answer is true. Call it in a transaction.
pub fn count(
    db: &mut Db,
    user: &UserId,
    message: &PushMessage,
    reason: &'static str,
    now: Timestamp,
) -> Result<bool, DbError> {
    let id = message.persistent_id.clone().unwrap_or_else(|| digest(message));
    if failed_pushes::count(db, user, &id, reason, now)? < PUSH_ATTEMPTS {
        return Ok(false);
    }
    failed_pushes::give_up(db, user, &id, &content(message))?;
    if let Some(id) = &message.persistent_id {
        // False: it was received before, and only its acknowledgement got lost.
        push_seen::insert(db, user, id, now)?;
    }
    Ok(true)
}

/// Identifies a push without a persistent id when it comes again.
fn digest(message: &PushMessage) -> String {
    let sent = message.sent.map(Timestamp::to_wire);
    sha256_hex(json!([sent, message.app_data]).to_string().as_bytes())
}

/// Content of the push, as JSON of a few kilobytes, without secrets.
fn content(message: &PushMessage) -> String {
    let value = |key: &str| message.app_data.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value);
    let body: Map<String, Value> = Some(value("body"))
        .filter(|body| body.len() <= BODY)
        .and_then(|body| serde_json::from_str(body).ok())
        .unwrap_or_default();
    let kept = FIELDS.iter().filter_map(|field| Some((*field, plain_text(body.get(*field)?.as_str()?, TEXT))));
    json!({
        "sent": message.sent.map(Timestamp::to_wire),
        "channel": plain_text(value("channelId"), TEXT),
        "title": plain_text(value("title"), TEXT),
        "message": plain_text(value("message"), TEXT),
        "body": kept.map(|(field, text)| (field.to_owned(), text.into())).collect::<Map<_, _>>(),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{self, later, now};

    fn pairing(persistent_id: Option<&str>) -> PushMessage {
        let body =
            json!({ "type": "entity", "entityName": "<b>Gate</b>", "playerToken": "-987654", "more": "-987654" });
        let app_data = vec![("channelId".into(), "pairing".into()), ("body".into(), body.to_string())];
        PushMessage { persistent_id: persistent_id.map(str::to_owned), sent: Some(now()), app_data }
    }

    #[test]
    fn a_database_that_is_down_is_no_fault_of_a_push() {
        assert_eq!(own_fault(&DbError::Unavailable("down".into())), None);
        assert_eq!(own_fault(&DbError::Damaged("a page".into())), None);
        for (error, reason) in [
            (DbError::Panicked, "panicked"),
            (DbError::Conflict, "conflict"),
            (DbError::NotFound, "conflict"),
            (DbError::Query("invalid".into()), "query_refused"),
        ] {
            assert_eq!(own_fault(&error), Some(reason));
        }
    }

    #[test]
    fn the_third_failure_makes_a_dead_letter_which_has_no_secret() {
        testing::on_each_database(|pool| {
            testing::user(pool, "user");
            let user = UserId::from("user");
            for message in [pairing(Some("0:1")), pairing(None)] {
                for (second, given_up) in [(1, false), (2, false), (3, true)] {
                    let counted = pool.write_blocking(|db| count(db, &user, &message, "panicked", later(second)));
                    assert_eq!(counted.unwrap(), given_up);
                }
            }
            let (count, letters) = pool.read_blocking(|db| failed_pushes::dead_letters(db, 10)).unwrap();
            assert_eq!(count, 2, "one without a persistent id is recognised too");
            for letter in letters {
                assert!(!letter.content.contains("987654"), "{}", letter.content);
                let kept: Value = serde_json::from_str(&letter.content).unwrap();
                assert_eq!((&kept["channel"], &kept["body"]["entityName"]), (&json!("pairing"), &json!("Gate")));
            }
            assert_eq!(pool.read_blocking(|db| push_seen::list(db, &user)).unwrap(), ["0:1"]);
        });
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let long = "x".repeat(100_000);
        let body = json!({ "name": long, "type": long }).to_string();
        let data = [("title", long.as_str()), ("channelId", &long), ("message", &long), ("body", &body)];
        let app_data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let kept = content(&PushMessage { persistent_id: None, sent: None, app_data });
        assert!(kept.len() < 4 * 1024, "{}", kept.len());
    }
}
