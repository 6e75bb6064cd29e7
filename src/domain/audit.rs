//! Actions of admins, as the audit log names and shows them.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::domain::words::words;

words! {
    /// An action of an admin. The names are stored, and never change their meaning.
    pub enum AdminAction {
        SignUserOut = "user.sign_out",
        DeletePairedServer = "paired_server.delete",
        /// All paired servers of one user.
        DeletePairedServers = "user.paired_servers.delete",
        PutBetaTester = "beta_tester.put",
        DeleteBetaTester = "beta_tester.delete",
        Refund = "refund",
        /// All subscriptions of one user, from the payment provider.
        FetchSubscriptions = "user.subscriptions.fetch",
        EndSubscription = "subscription.end",
        RegisterChatCommands = "chat.register_commands",
        PutStore = "store.put",
        RestoreStore = "store.restore",
        PutItem = "item.put",
        DeleteItem = "item.delete",
        AddConveyorRow = "conveyor_row.add",
        PutConveyorRow = "conveyor_row.put",
        /// The category of several rows.
        PutConveyorRows = "conveyor_rows.put",
        DeleteConveyorRow = "conveyor_row.delete",
        UploadImage = "image.upload",
        PutWikiPage = "wiki_page.put",
        RestoreWikiPage = "wiki_page.restore",
        DeleteWikiPage = "wiki_page.delete",
        /// An action that this version does not know.
        Other = "other",
    }
}

impl AdminAction {
    /// The action of a stored word.
    pub fn stored(word: &str) -> Self {
        Self::parse(word).unwrap_or(Self::Other)
    }
}

words! {
    /// The outcome of an action.
    #[derive(ToSchema)]
    pub enum AuditResult {
        /// Done in the same transaction, or outside after an entry with `Begun`.
        Done = "done",
        /// Something outside of the database is about to be asked; another entry records its outcome.
        Begun = "begun",
        /// Refused outside, and not done.
        Failed = "failed",
        /// No outcome was reported. For a refund a further entry follows once the outcome is known.
        Unknown = "unknown",
    }
}

impl AuditResult {
    /// The result of a stored word; `Unknown` for any other text.
    pub fn stored(word: &str) -> Self {
        Self::parse(word).unwrap_or(Self::Unknown)
    }
}

/// The value that a write returns, and its change: `before` is `null` for a new row, `after` for a deleted one.
#[derive(Debug)]
pub struct Written<T> {
    pub value: T,
    pub before: Value,
    pub after: Value,
}

impl<T> Written<T> {
    /// A write with its change, as admins see it; secrets in the change are blacked out when it is stored.
    pub fn new(value: T, before: impl Serialize, after: impl Serialize) -> Self {
        Self { value, before: to_json(before), after: to_json(after) }
    }
}

fn to_json(value: impl Serialize) -> Value {
    // Only maps with keys that are no text fail, and these have none.
    serde_json::to_value(value).unwrap_or_else(|error| Value::String(format!("not shown: {error}")))
}

/// Replacement of a secret.
const REDACTED: &str = "[redacted]";

/// The value with its secrets, found by the names of fields, replaced; `null` and flags remain, so presence is visible.
pub fn redacted(value: Value) -> Value {
    let field = |(name, value): (String, Value)| {
        let value = match (names_a_secret(&name), value) {
            (true, value @ (Value::Null | Value::Bool(_))) => value,
            (true, _) => Value::String(REDACTED.to_owned()),
            (false, value) => redacted(value),
        };
        (name, value)
    };
    match value {
        Value::Object(fields) => Value::Object(fields.into_iter().map(field).collect::<Map<_, _>>()),
        Value::Array(values) => Value::Array(values.into_iter().map(redacted).collect()),
        plain => plain,
    }
}

fn names_a_secret(name: &str) -> bool {
    const SECRETS: [&str; 8] =
        ["token", "secret", "password", "credential", "sealed", "cookie", "apikey", "authorization"];
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    SECRETS.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for action in AdminAction::ALL {
            assert_eq!(AdminAction::stored(action.word()), action);
        }
        for result in AuditResult::ALL {
            assert_eq!(AuditResult::stored(result.word()), result);
            assert_eq!(json!(result), result.word());
        }
        let later = (AdminAction::stored("user.promote"), AuditResult::stored("half"));
        assert_eq!(later, (AdminAction::Other, AuditResult::Unknown), "of a later version");
    }

    #[test]
    fn a_secret_is_blacked_out_wherever_it_is_and_whatever_its_form() {
        let payload = json!({
            "name": "Gate",
            "playerToken": -7,
            "servers": [{ "API_KEY": "k", "pushCredential": { "a": 1 }, "hasCredential": true, "token": null }],
        });
        assert_eq!(
            redacted(payload),
            json!({
                "name": "Gate",
                "playerToken": "[redacted]",
                "servers": [{
                    "API_KEY": "[redacted]", "pushCredential": "[redacted]", "hasCredential": true, "token": null,
                }],
            })
        );
        assert_eq!(redacted(json!("token")), "token", "only names differ");
    }
}
