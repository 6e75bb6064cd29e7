//! Push credential bundles: opaque JSON of which only the owner and the end are read, and when to warn of the end.

use std::fmt;

use chrono::{DateTime, Duration};
use serde::{Deserialize, Deserializer, de};

use crate::domain::{ids::PlatformId, limits::BUNDLE_BYTES, time::Timestamp};

/// How long a registration lives when its bundle does not say.
pub const LIFETIME: Duration = Duration::days(14);
/// From so long before the end its owner is warned.
pub const WARN_BEFORE: Duration = Duration::hours(72);
/// An end further away than this is not believed.
const LONGEST_LIFE: Duration = Duration::days(366);

/// What is read of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The account at the identity provider to which it belongs, as the bundle says.
    pub platform_id: PlatformId,
    /// When it stops working: as it says itself, otherwise [`LIFETIME`] after its upload.
    pub expires_at: Timestamp,
}

/// Why a bundle is not taken; says nothing of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("the bundle is larger than 64 KiB")]
    TooLarge,
    #[error("the bundle is not well-formed JSON")]
    Malformed,
    #[error("the bundle is not a JSON object")]
    NotAnObject,
    #[error("`platformId` is missing, or is not an account id")]
    NoPlatformId,
}

/// The top level of a bundle; helper tools spell the end in several ways.
#[derive(Deserialize)]
struct TopLevel {
    #[serde(rename = "platformId")]
    platform_id: Option<TextOrNumber>,
    #[serde(
        default,
        alias = "expiresAt",
        alias = "ExpiresAt",
        alias = "expireDate",
        alias = "ExpireDate",
        alias = "expire_date"
    )]
    expires_at: Option<TextOrNumber>,
}

/// A text, or a whole number as its digits; anything else is nothing.
struct TextOrNumber(Option<String>);

impl<'de> Deserialize<'de> for TextOrNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = TextOrNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOrNumber(Some(text.to_owned())))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(TextOrNumber(Some(number.to_string())))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(TextOrNumber(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(TextOrNumber(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(TextOrNumber(None))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(TextOrNumber(None))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<de::IgnoredAny>()?.is_some() {}
                Ok(TextOrNumber(None))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
                Ok(TextOrNumber(None))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Reads the owner and the end of a bundle uploaded at `now`.
pub fn read(bundle: &[u8], now: Timestamp) -> Result<Bundle, BundleError> {
    if bundle.len() > BUNDLE_BYTES {
        return Err(BundleError::TooLarge);
    }
    // A derived struct would also be read from an array.
    if bundle.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        let well_formed = serde_json::from_slice::<de::IgnoredAny>(bundle).is_ok();
        return Err(if well_formed { BundleError::NotAnObject } else { BundleError::Malformed });
    }
    let top: TopLevel = serde_json::from_slice(bundle).map_err(|error| match error.classify() {
        // A key that occurs twice: who the owner is depends on the reader.
        serde_json::error::Category::Data => BundleError::NoPlatformId,
        _ => BundleError::Malformed,
    })?;
    let platform_id = top.platform_id.and_then(|id| id.0).and_then(|id| PlatformId::parse(&id));
    let stated = top.expires_at.and_then(|at| at.0).and_then(|at| instant(&at));
    let expires_at = stated.filter(|&at| at <= now + LONGEST_LIFE).unwrap_or(now + LIFETIME);
    Ok(Bundle { platform_id: platform_id.ok_or(BundleError::NoPlatformId)?, expires_at })
}

/// Unix seconds, Unix milliseconds, or RFC 3339.
fn instant(text: &str) -> Option<Timestamp> {
    /// As seconds, the year 5138; as milliseconds, 1973.
    const MILLISECONDS_FROM: i64 = 100_000_000_000;
    match text.parse::<i64>() {
        Ok(number) if number >= MILLISECONDS_FROM => DateTime::from_timestamp_millis(number),
        Ok(number) if number > 0 => DateTime::from_timestamp(number, 0),
        Ok(_) => None,
        Err(_) => DateTime::parse_from_rfc3339(text).ok().map(|at| at.to_utc()),
    }
}

/// What the owner of a credential has to know of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    ExpiresSoon,
    Expired,
}

/// The warning that is due at `now`.
pub fn warning(expires_at: Timestamp, now: Timestamp) -> Option<Warning> {
    match expires_at - now {
        left if left <= Duration::zero() => Some(Warning::Expired),
        left if left <= WARN_BEFORE => Some(Warning::ExpiresSoon),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "76561198000000001";

    fn now() -> Timestamp {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn read_text(text: &str) -> Result<Bundle, BundleError> {
        read(text.as_bytes(), now())
    }

    #[test]
    fn the_owner_stands_at_the_top_level() {
        for text in [
            format!(r#"{{"platformId":"{ID}","fcm_credentials":{{"gcm":{{"androidId":"1"}}}}}}"#),
            format!(r#" {{"deep":[{{"platformId":"76561198000000002"}}],"platformId":{ID}}}"#),
        ] {
            assert_eq!(read_text(&text).unwrap().platform_id.as_str(), ID, "{text}");
        }
        for (text, error) in [
            ("{}", BundleError::NoPlatformId),
            (r#"{"platformId":null}"#, BundleError::NoPlatformId),
            (r#"{"platformId":7.5e16}"#, BundleError::NoPlatformId),
            (r#"{"platformId":{"platformId":"76561198000000001"}}"#, BundleError::NoPlatformId),
            (r#"{"gcm":{"platformId":"76561198000000001"}}"#, BundleError::NoPlatformId),
            (r#"{"platformId":"76561198000000001","platformId":"76561198000000002"}"#, BundleError::NoPlatformId),
            (r#"["76561198000000001",null]"#, BundleError::NotAnObject),
            ("7", BundleError::NotAnObject),
            ("", BundleError::Malformed),
            (r#"{"platformId":"76561198000000001""#, BundleError::Malformed),
            (r#"{"platformId":"76561198000000001"} x"#, BundleError::Malformed),
        ] {
            assert_eq!(read_text(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_end_is_the_stated_one_when_it_makes_sense() {
        let end = |field: &str| read_text(&format!(r#"{{"platformId":"{ID}",{field}}}"#)).unwrap().expires_at;
        let stated = now() + Duration::days(3);
        let seconds = stated.timestamp();
        for field in [
            format!(r#""expire_date":{seconds}"#),
            format!(r#""expiresAt":"{seconds}""#),
            format!(r#""expires_at":{seconds}000"#),
            format!(r#""ExpiresAt":"{}""#, stated.to_rfc3339()),
        ] {
            assert_eq!(end(&field), stated, "{field}");
        }
        for field in [
            r#""other":1"#,
            r#""expiresAt":null"#,
            r#""expiresAt":"soon""#,
            r#""expiresAt":-1"#,
            r#""expiresAt":{}"#,
            r#""expiresAt":18446744073709551615"#,
            r#""expiresAt":"2999-01-01T00:00:00Z""#,
        ] {
            assert_eq!(end(field), now() + LIFETIME, "{field}");
        }
    }

    #[test]
    fn a_bundle_has_64_kib_at_most() {
        let bundle = |length: usize| {
            let head = format!(r#"{{"platformId":"{ID}","x":""#);
            format!("{head}{}\"}}", "a".repeat(length - head.len() - 2))
        };
        assert!(read_text(&bundle(BUNDLE_BYTES)).is_ok());
        assert_eq!(read_text(&bundle(BUNDLE_BYTES + 1)), Err(BundleError::TooLarge));
        // Deep nesting costs no stack.
        let deep = "[".repeat(30_000) + &"]".repeat(30_000);
        assert!(read_text(&format!(r#"{{"platformId":"{ID}","x":{deep}}}"#)).is_ok());
    }

    #[test]
    fn a_warning_is_due_from_72_hours_before_the_end() {
        let second = Duration::seconds(1);
        assert_eq!(warning(now() + WARN_BEFORE + second, now()), None);
        assert_eq!(warning(now() + WARN_BEFORE, now()), Some(Warning::ExpiresSoon));
        assert_eq!(warning(now() + second, now()), Some(Warning::ExpiresSoon));
        assert_eq!(warning(now(), now()), Some(Warning::Expired));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, now());
        }

        #[test]
        fn any_end_is_read_or_ignored(text in "[0-9TZ:.+-]{0,30}") {
            let bundle = format!(r#"{{"platformId":"{ID}","expiresAt":"{text}"}}"#);
            prop_assert!(read_text(&bundle).unwrap().expires_at <= now() + LONGEST_LIFE);
        }
    }
}
