//! The form of a push credential's bundle, for the document of the API. On upload only `platformId` and the expiry are
//! read; the push session reads the rest ([`push::gcm_credential`](crate::push::gcm_credential)).

use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

/// A helper's registration at the push service. The API keeps it as it comes.
pub struct HelperBundle;

impl ToSchema for HelperBundle {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let parts = [("GcmCredential", gcm_credential()), ("FcmCredentials", fcm_credentials())];
        let part = |(name, schema): (&str, Value)| (name.to_owned(), serde_json::from_value(schema).expect("a schema"));
        schemas.extend(parts.map(part));
    }
}

impl PartialSchema for HelperBundle {
    fn schema() -> RefOr<Schema> {
        serde_json::from_value(schema()).expect("a schema")
    }
}

const DESCRIPTION: &str = "What registration helpers write, with `platformId` beside it: as rustplus.js and the Python client \
    do (`fcm_credentials.gcm`), as the .NET client and others do (`gcm` at the top level), or with an entry for each account \
    under its SteamID64. Keys are in camelCase, snake_case or PascalCase. Both numbers are unsigned with 64 bits: as text, or as \
    JSON integers. Other fields are kept and not read. At most 64 KiB.";

fn number(description: &str) -> Value {
    json!({ "type": ["string", "integer"], "description": description })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn gcm_credential() -> Value {
    json!({
        "type": "object",
        "required": ["androidId", "securityToken"],
        "properties": {
            "androidId": number("Also `android_id` or `AndroidId`."),
            "securityToken": number("Also `security_token` or `SecurityToken`."),
        },
    })
}

fn fcm_credentials() -> Value {
    json!({ "type": "object", "required": ["gcm"], "properties": { "gcm": reference("GcmCredential") } })
}

fn schema() -> Value {
    let gcm = reference("GcmCredential");
    let account = number("The account of the user who uploads it (SteamID64); in this spelling, at the top level.");
    let expires_at = number(
        "When the registration ends: Unix seconds or milliseconds, or RFC 3339. Also `expire_date` and the \
        like; without it, 14 days after the upload.",
    );
    let form = |title: &str, fields: Value, required: &[&str]| {
        let mut properties = json!({ "platformId": account, "expiresAt": expires_at });
        if let (Value::Object(properties), Value::Object(fields)) = (&mut properties, fields) {
            properties.extend(fields);
        }
        json!({ "type": "object", "title": title, "required": required, "properties": properties })
    };
    let nested = reference("FcmCredentials");
    json!({
        "description": DESCRIPTION,
        "anyOf": [
            form("With fcm_credentials", json!({ "fcm_credentials": nested }), &["platformId", "fcm_credentials"]),
            form("With gcm", json!({ "gcm": gcm }), &["platformId", "gcm"]),
            form("With an entry for the account, under its SteamID64", json!({}), &["platformId"]),
        ],
        "example": example(),
    })
}

fn example() -> Value {
    json!({
        "platformId": "76561198000000001",
        "fcm_credentials": { "gcm": { "androidId": "5000000000000000001", "securityToken": "1234567890123456789" } },
        "expiresAt": "2026-12-05T12:00:00Z",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{credential, time::Timestamp},
        push::gcm_credential::GcmCredential,
    };

    #[test]
    fn the_example_works() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let bundle = example().to_string();
        let read = credential::read(bundle.as_bytes(), now).unwrap();
        assert_eq!((read.expires_at - now).num_days(), 13);
        let login = GcmCredential::read(bundle.as_bytes(), &read.platform_id).unwrap();
        assert_eq!(login.android_id, 5_000_000_000_000_000_001);
        let mut document = serde_json::to_value(HelperBundle::schema()).unwrap();
        let parts = json!({ "GcmCredential": gcm_credential(), "FcmCredentials": fcm_credentials() });
        document["components"] = json!({ "schemas": parts });
        assert_eq!(document["example"], example());
        assert!(jsonschema::draft202012::is_valid(&document, &example()), "{document}");
        for lacking in [json!({}), json!({ "gcm": { "androidId": "1", "securityToken": "2" } })] {
            assert!(!jsonschema::draft202012::is_valid(&document, &lacking), "{lacking}");
        }
    }
}
