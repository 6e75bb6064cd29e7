//! The login credential in a bundle, as the various registration helpers write it.

use secrecy::SecretBox;
use serde_json::{Map, Value};

use crate::domain::ids::PlatformId;

/// Part of a bundle that a push session needs (GCM: Google Cloud Messaging).
#[derive(Debug)]
pub struct GcmCredential {
    pub android_id: u64,
    pub security_token: SecretBox<u64>,
}

/// Fault of a bundle that cannot be used. Names the field, never its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GcmCredentialError {
    #[error("the bundle is not a JSON object")]
    NotAnObject,
    #[error("the bundle has no {0}")]
    Missing(&'static str),
    #[error("{0} is not an unsigned 64-bit number")]
    NotANumber(&'static str),
}

impl GcmCredential {
    /// Reads a bundle whose owner is `owner`. Keys may be camelCase, snake_case or PascalCase; both numbers may be
    /// numbers or texts; they are in `gcm`, which may be in `fcm_credentials`, in an entry for the owner, or both.
    pub fn read(json: &[u8], owner: &PlatformId) -> Result<Self, GcmCredentialError> {
        let Ok(Value::Object(root)) = serde_json::from_slice(json) else { return Err(GcmCredentialError::NotAnObject) };
        let entry = root.get(owner.as_str()).and_then(Value::as_object).unwrap_or(&root);
        let credentials = object(entry, "fcmcredentials").unwrap_or(entry);
        let gcm = object(credentials, "gcm").ok_or(GcmCredentialError::Missing("gcm"))?;
        Ok(Self {
            android_id: number(gcm, "androidid", "androidId")?,
            security_token: SecretBox::new(Box::new(number(gcm, "securitytoken", "securityToken")?)),
        })
    }
}

/// The value of the key that equals `key` apart from case and underscores.
fn get<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let same =
        |name: &str| name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase()).eq(key.bytes());
    object.iter().find(|(name, _)| same(name)).map(|(_, value)| value)
}

fn object<'a>(parent: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    get(parent, key)?.as_object()
}

/// A number that is not 0. serde_json reads integers up to 2^64 exactly; what was written as a fraction is refused.
fn number(object: &Map<String, Value>, key: &str, name: &'static str) -> Result<u64, GcmCredentialError> {
    let number = match get(object, key) {
        None | Some(Value::Null) => return Err(GcmCredentialError::Missing(name)),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    number.filter(|number| *number != 0).ok_or(GcmCredentialError::NotANumber(name))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    const OWNER: &str = "76561198000000001";

    fn read(json: &str) -> Result<(u64, u64), GcmCredentialError> {
        let credential = GcmCredential::read(json.as_bytes(), &PlatformId::from(OWNER))?;
        Ok((credential.android_id, *credential.security_token.expose_secret()))
    }

    #[test]
    fn the_bundle_of_every_helper_is_read() {
        let expected = Ok((5_000_000_000_000_000_001, 18_446_744_073_709_551_615));
        for json in [
            // rustplus.js and the Python client
            r#"{"fcm_credentials": {"gcm": {"androidId": "5000000000000000001", "securityToken": "18446744073709551615"},
                "fcm": {"token": "t"}}, "expo_push_token": "e", "rustplus_auth_token": "r"}"#,
            // .NET
            r#"{"Gcm": {"AndroidId": 5000000000000000001, "SecurityToken": 18446744073709551615},
                "Fcm": {"Token": "t"}, "ExpoPushToken": "e"}"#,
            // rustplusplus
            r#"{"hoster": "76561198000000001",
                "76561198000000002": {"gcm": {"android_id": "1", "security_token": "2"}},
                "76561198000000001": {"gcm": {"android_id": "5000000000000000001",
                    "security_token": "18446744073709551615"}, "issued_date": 1, "expire_date": 2}}"#,
            // The push crate
            r#"{"fcm_token": "t", "gcm": {"android_id": "5000000000000000001",
                "security_token": " 18446744073709551615 "}, "keys": {}}"#,
            // With the owner beside it, as uploaded
            r#"{"platformId": "76561198000000001", "FcmCredentials": {"GCM": {"androidId": "5000000000000000001",
                "SecurityToken": "18446744073709551615"}}}"#,
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let gcm = |android_id: &str| format!(r#"{{"gcm": {{"androidId": {android_id}, "securityToken": "2"}}}}"#);
        for (json, error) in [
            ("", GcmCredentialError::NotAnObject),
            ("[]", GcmCredentialError::NotAnObject),
            ("{\"gcm\": {", GcmCredentialError::NotAnObject),
            ("{}", GcmCredentialError::Missing("gcm")),
            (r#"{"gcm": []}"#, GcmCredentialError::Missing("gcm")),
            (r#"{"gcm": {"securityToken": "2"}}"#, GcmCredentialError::Missing("androidId")),
            (r#"{"gcm": {"androidId": "1", "securityToken": null}}"#, GcmCredentialError::Missing("securityToken")),
            (&gcm("5e18"), GcmCredentialError::NotANumber("androidId")),
            (&gcm("5000000000000000001.0"), GcmCredentialError::NotANumber("androidId")),
            (&gcm("-1"), GcmCredentialError::NotANumber("androidId")),
            (&gcm("0"), GcmCredentialError::NotANumber("androidId")),
            (&gcm("18446744073709551616"), GcmCredentialError::NotANumber("androidId")),
            (&gcm("\"one\""), GcmCredentialError::NotANumber("androidId")),
            (&gcm("true"), GcmCredentialError::NotANumber("androidId")),
        ] {
            assert_eq!(read(json), Err(error), "{json}");
        }
    }

    #[test]
    fn the_token_is_not_printed() {
        let json = br#"{"gcm": {"androidId": "1", "securityToken": "987654"}}"#;
        let credential = GcmCredential::read(json, &PlatformId::from(OWNER)).expect("a credential");
        assert!(!format!("{credential:?}").contains("987654"));
    }
}
