//! The credential bundle, as the various registration helpers write it.

use secrecy::SecretBox;
use serde_json::{Map, Value};

use crate::domain::ids::PlatformId;

/// What a push session needs of a bundle.
#[derive(Debug)]
pub struct Bundle {
    pub android_id: u64,
    pub security_token: SecretBox<u64>,
}

/// Why a bundle is of no use. It tells which field, never what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("the bundle is not a JSON object")]
    NotAnObject,
    #[error("the bundle has no {0}")]
    Missing(&'static str),
    #[error("{0} is not an unsigned 64-bit number")]
    NotANumber(&'static str),
}

impl Bundle {
    /// Reads a bundle whose owner is `owner`. Keys may be camelCase, snake_case or PascalCase; both numbers may be
    /// numbers or texts; they stand in `gcm`, which may stand in `fcm_credentials`, in an entry for the owner, or both.
    pub fn read(json: &[u8], owner: &PlatformId) -> Result<Self, BundleError> {
        let Ok(Value::Object(root)) = serde_json::from_slice(json) else { return Err(BundleError::NotAnObject) };
        let entry = root.get(owner.as_str()).and_then(Value::as_object).unwrap_or(&root);
        let credentials = object(entry, "fcmcredentials").unwrap_or(entry);
        let gcm = object(credentials, "gcm").ok_or(BundleError::Missing("gcm"))?;
        Ok(Self {
            android_id: number(gcm, "androidid", "androidId")?,
            security_token: SecretBox::new(Box::new(number(gcm, "securitytoken", "securityToken")?)),
        })
    }
}

/// The value of the key that is `key` but for case and underscores.
fn get<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let same =
        |name: &str| name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase()).eq(key.bytes());
    object.iter().find(|(name, _)| same(name)).map(|(_, value)| value)
}

fn object<'a>(parent: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    get(parent, key)?.as_object()
}

/// A number that is not 0. serde_json reads integers up to 2^64 exactly; what was written as a fraction is refused.
fn number(object: &Map<String, Value>, key: &str, name: &'static str) -> Result<u64, BundleError> {
    let number = match get(object, key) {
        None | Some(Value::Null) => return Err(BundleError::Missing(name)),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    number.filter(|number| *number != 0).ok_or(BundleError::NotANumber(name))
}
