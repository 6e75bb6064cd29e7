//! Actions of admins, as the audit log names and shows them.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An action of an admin. The names are stored, and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAction {
    SignUserOut,
    DeletePairedServer,
    /// All paired servers of one user.
    DeletePairedServers,
    PutBetaTester,
    DeleteBetaTester,
    Refund,
    /// All subscriptions of one user, from the payment provider.
    FetchSubscriptions,
    EndSubscription,
    RegisterChatCommands,
    PutStore,
    RestoreStore,
    PutItem,
    DeleteItem,
    AddConveyorRow,
    PutConveyorRow,
    /// The category of several rows.
    PutConveyorRows,
    DeleteConveyorRow,
    UploadImage,
    PutWikiPage,
    RestoreWikiPage,
    DeleteWikiPage,
    /// An action that this version does not know.
    Other,
}

impl AdminAction {
    pub const ALL: [Self; 22] = [
        Self::SignUserOut,
        Self::DeletePairedServer,
        Self::DeletePairedServers,
        Self::PutBetaTester,
        Self::DeleteBetaTester,
        Self::Refund,
        Self::FetchSubscriptions,
        Self::EndSubscription,
        Self::RegisterChatCommands,
        Self::PutStore,
        Self::RestoreStore,
        Self::PutItem,
        Self::DeleteItem,
        Self::AddConveyorRow,
        Self::PutConveyorRow,
        Self::PutConveyorRows,
        Self::DeleteConveyorRow,
        Self::UploadImage,
        Self::PutWikiPage,
        Self::RestoreWikiPage,
        Self::DeleteWikiPage,
        Self::Other,
    ];

    /// The action that is stored under this name.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|action| action.as_str() == text).unwrap_or(Self::Other)
    }

    /// As it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SignUserOut => "user.sign_out",
            Self::DeletePairedServer => "paired_server.delete",
            Self::DeletePairedServers => "user.paired_servers.delete",
            Self::PutBetaTester => "beta_tester.put",
            Self::DeleteBetaTester => "beta_tester.delete",
            Self::Refund => "refund",
            Self::FetchSubscriptions => "user.subscriptions.fetch",
            Self::EndSubscription => "subscription.end",
            Self::RegisterChatCommands => "chat.register_commands",
            Self::PutStore => "store.put",
            Self::RestoreStore => "store.restore",
            Self::PutItem => "item.put",
            Self::DeleteItem => "item.delete",
            Self::AddConveyorRow => "conveyor_row.add",
            Self::PutConveyorRow => "conveyor_row.put",
            Self::PutConveyorRows => "conveyor_rows.put",
            Self::DeleteConveyorRow => "conveyor_row.delete",
            Self::UploadImage => "image.upload",
            Self::PutWikiPage => "wiki_page.put",
            Self::RestoreWikiPage => "wiki_page.restore",
            Self::DeleteWikiPage => "wiki_page.delete",
            Self::Other => "other",
        }
    }
}

/// The outcome of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditResult {
    /// Done in the same transaction, or outside after an entry with `Begun`.
    Done,
    /// Something outside of the database is about to be asked; another entry records its outcome.
    Begun,
    /// Refused outside, and not done.
    Failed,
    /// No outcome was reported. For a refund a further entry follows once the outcome is known.
    Unknown,
}

impl AuditResult {
    const ALL: [Self; 4] = [Self::Done, Self::Begun, Self::Failed, Self::Unknown];

    /// The result that is stored under this name; `Unknown` for any other text.
    pub fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|result| result.as_str() == text).unwrap_or(Self::Unknown)
    }

    /// As it is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Begun => "begun",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
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
        Self { value, before: told(before), after: told(after) }
    }
}

fn told(value: impl Serialize) -> Value {
    // Only maps with keys that are no text fail, and these have none.
    serde_json::to_value(value).unwrap_or_else(|error| Value::String(format!("not told: {error}")))
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
            assert_eq!(AdminAction::parse(action.as_str()), action);
        }
        for result in AuditResult::ALL {
            assert_eq!(AuditResult::parse(result.as_str()), result);
            assert_eq!(json!(result), result.as_str());
        }
        let later = (AdminAction::parse("user.promote"), AuditResult::parse("half"));
        assert_eq!(later, (AdminAction::Other, AuditResult::Unknown), "of a later version");
    }

    #[test]
    fn a_secret_is_blacked_out_wherever_it_is_and_whatever_its_form() {
        let told = json!({
            "name": "Gate",
            "playerToken": -7,
            "servers": [{ "API_KEY": "k", "pushCredential": { "a": 1 }, "hasCredential": true, "token": null }],
        });
        assert_eq!(
            redacted(told),
            json!({
                "name": "Gate",
                "playerToken": "[redacted]",
                "servers": [{
                    "API_KEY": "[redacted]", "pushCredential": "[redacted]", "hasCredential": true, "token": null,
                }],
            })
        );
        assert_eq!(redacted(json!("token")), "token", "only names tell");
    }
}
