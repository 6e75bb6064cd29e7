//! Push credential bundles: opaque JSON of which only the owner and the expiry are read, and when to warn of the
//! expiry.

use std::collections::HashMap;

use chrono::Duration;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::{ids::PlatformId, limits::BUNDLE_BYTES, time::Timestamp, words::words};

/// Lifetime of a registration whose bundle states no expiry.
pub const LIFETIME: Duration = Duration::days(14);
/// Time before the expiry at which its owner is warned first.
pub const WARN_BEFORE: Duration = Duration::hours(72);
/// Time before the expiry at which a second warning comes.
pub const WARN_AGAIN_BEFORE: Duration = Duration::hours(24);
/// Time after the expiry for which it is still said that it has come.
pub const SAID_AFTER: Duration = Duration::days(1);
/// Pause before a warning that no channel took is sent again.
const SAID_AGAIN: Duration = Duration::minutes(15);
/// An expiry later than this is ignored.
const LONGEST_LIFE: Duration = Duration::days(366);

/// The facts that are read of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedBundle {
    /// The account at the identity provider to which it belongs, as the bundle says.
    pub platform_id: PlatformId,
    /// When it stops working: the time that it states, otherwise [`LIFETIME`] after its upload.
    pub expires_at: Timestamp,
}

/// Fault of an uploaded bundle; does not reveal its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBundle {
    #[error("the bundle is larger than 64 KiB")]
    TooLarge,
    #[error("the bundle is not well-formed JSON")]
    Malformed,
    #[error("the bundle is not a JSON object")]
    NotAnObject,
    #[error("`platformId` is missing, there twice, or is not an account id")]
    NoPlatformId,
}

words! {
    /// State of a user's credential.
    pub enum CredentialState {
        /// Nothing is stored.
        Missing = "missing",
        /// Stored, and has not logged in at the push service yet.
        Unproven = "unproven",
        /// Has logged in.
        Proven = "proven",
    }
}

words! {
    /// Reason for which a stored bundle does not work.
    pub enum RefusalReason {
        /// The push service refuses its login.
        LoginRefused = "login_refused",
        /// The bundle has no login of the form that every helper writes.
        UnusableBundle = "unusable_bundle",
    }
}

impl RefusalReason {
    /// The reason of a stored word; an unknown one was stored by a newer version.
    pub fn of(word: &str) -> Self {
        Self::parse(word).unwrap_or(Self::LoginRefused)
    }

    /// Advice for its owner.
    pub fn advice(self) -> &'static str {
        match self {
            Self::LoginRefused => {
                "The push service refuses this bundle: sign in with the game again in the dashboard, so that the service \
                 registers once more; or, if a helper made it, run that again and upload what it writes."
            }
            Self::UnusableBundle => {
                "This bundle has no login that can be used: update the helper, run it again and upload what it writes."
            }
        }
    }
}

/// Spellings of the expiry in registration tools.
const EXPIRY: [&str; 9] = [
    "expiresAt",
    "expires_at",
    "ExpiresAt",
    "expireDate",
    "expire_date",
    "ExpireDate",
    "expiryDate",
    "expiry_date",
    "ExpiryDate",
];
/// Objects in which some tools state it beside the login.
const INNER: [&str; 3] = ["fcm_credentials", "gcm", "Gcm"];

/// The one field that must be there exactly once: of two, readers differ in which they take.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleOwner<'a> {
    #[serde(borrow)]
    platform_id: &'a RawValue,
}

/// Reads the owner and the expiry of a bundle uploaded at `now`.
pub fn read(bundle: &[u8], now: Timestamp) -> Result<UploadedBundle, InvalidBundle> {
    if bundle.len() > BUNDLE_BYTES {
        return Err(InvalidBundle::TooLarge);
    }
    let top: HashMap<String, &RawValue> = serde_json::from_slice(bundle)
        .map_err(|error| if error.is_data() { InvalidBundle::NotAnObject } else { InvalidBundle::Malformed })?;
    let owner: BundleOwner<'_> = serde_json::from_slice(bundle).map_err(|_| InvalidBundle::NoPlatformId)?;
    let platform_id = text_or_number(owner.platform_id).and_then(|id| PlatformId::parse(&id));
    let platform_id = platform_id.ok_or(InvalidBundle::NoPlatformId)?;
    let stated = stated_expiry(&top).filter(|&at| at <= now + LONGEST_LIFE);
    Ok(UploadedBundle { platform_id, expires_at: stated.unwrap_or(now + LIFETIME) })
}

/// The expiry of this object, or else of one of those within it that hold the login.
fn stated_expiry(object: &HashMap<String, &RawValue>) -> Option<Timestamp> {
    let own = EXPIRY.into_iter().find_map(|key| instant(&text_or_number(object.get(key)?)?));
    let inner = |key: &str| stated_expiry(&serde_json::from_str(object.get(key)?.get()).ok()?);
    own.or_else(|| INNER.into_iter().find_map(inner))
}

/// A text, or a whole number's digits, which may be more than a float holds.
fn text_or_number(json: &RawValue) -> Option<String> {
    let json = json.get();
    let number = json.bytes().all(|byte| byte.is_ascii_digit());
    if number { Some(json.to_owned()) } else { serde_json::from_str(json).ok() }
}

/// Unix seconds, Unix milliseconds, or RFC 3339.
fn instant(text: &str) -> Option<Timestamp> {
    /// As seconds, the year 5138; as milliseconds, 1973.
    const MILLISECONDS_FROM: i64 = 100_000_000_000;
    match text.parse::<i64>() {
        Ok(number) if number >= MILLISECONDS_FROM => Timestamp::from_timestamp_millis(number),
        Ok(number) if number > 0 => Timestamp::from_timestamp(number, 0),
        Ok(_) => None,
        Err(_) => Timestamp::parse_rfc3339(text),
    }
}

/// A warning about the expiry, for the owner of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    ExpiresSoon,
    ExpiresWithinADay,
    Expired,
}

impl Warning {
    /// One line for its owner.
    pub fn title(self) -> &'static str {
        match self {
            Self::ExpiresSoon => "Your registration for the game's pushes ends within three days",
            Self::ExpiresWithinADay => "Your registration for the game's pushes ends within a day",
            Self::Expired => "Your registration for the game's pushes has ended",
        }
    }
}

/// The warning that is due at `now`.
pub fn warning(expires_at: Timestamp, now: Timestamp) -> Option<Warning> {
    match expires_at - now {
        left if left <= Duration::zero() => Some(Warning::Expired),
        left if left <= WARN_AGAIN_BEFORE => Some(Warning::ExpiresWithinADay),
        left if left <= WARN_BEFORE => Some(Warning::ExpiresSoon),
        _ => None,
    }
}

/// When the owner is warned next, after the warning that was due at `now`: of the next one, or once more of the same if no
/// channel took it.
pub fn next_warning(expires_at: Timestamp, now: Timestamp, was_taken: bool) -> Timestamp {
    let next = match warning(expires_at, now) {
        None => expires_at - WARN_BEFORE,
        Some(Warning::ExpiresSoon) => expires_at - WARN_AGAIN_BEFORE,
        Some(Warning::ExpiresWithinADay) => expires_at,
        Some(Warning::Expired) => expires_at + SAID_AFTER,
    };
    if was_taken { next } else { next.min(now + SAID_AGAIN) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "76561198000000001";

    fn now() -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn read_text(text: &str) -> Result<UploadedBundle, InvalidBundle> {
        read(text.as_bytes(), now())
    }

    #[test]
    fn the_owner_is_read_from_the_top_level() {
        for text in [
            format!(r#"{{"platformId":"{ID}","fcm_credentials":{{"gcm":{{"androidId":"1"}}}}}}"#),
            format!(r#" {{"deep":[{{"platformId":"76561198000000002"}}],"platformId":{ID}}}"#),
        ] {
            assert_eq!(read_text(&text).unwrap().platform_id.as_str(), ID, "{text}");
        }
        for (text, error) in [
            ("{}", InvalidBundle::NoPlatformId),
            (r#"{"platformId":null}"#, InvalidBundle::NoPlatformId),
            (
                r#"{"platformId":"76561198000000001","platform\u0049d":"76561198000000001"}"#,
                InvalidBundle::NoPlatformId,
            ),
            (r#"{"platformId":7.5e16}"#, InvalidBundle::NoPlatformId),
            (r#"{"platformId":{"platformId":"76561198000000001"}}"#, InvalidBundle::NoPlatformId),
            (r#"{"gcm":{"platformId":"76561198000000001"}}"#, InvalidBundle::NoPlatformId),
            (r#"["76561198000000001",null]"#, InvalidBundle::NotAnObject),
            ("7", InvalidBundle::NotAnObject),
            ("", InvalidBundle::Malformed),
            (r#"{"platformId":"76561198000000001""#, InvalidBundle::Malformed),
            (r#"{"platformId":"76561198000000001"} x"#, InvalidBundle::Malformed),
        ] {
            assert_eq!(read_text(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_stated_expiry_counts_if_it_makes_sense() {
        let end = |field: &str| read_text(&format!(r#"{{"platformId":"{ID}",{field}}}"#)).unwrap().expires_at;
        let stated = now() + Duration::days(3);
        let seconds = stated.timestamp();
        for field in [
            format!(r#""expire_date":{seconds}"#),
            format!(r#""expiresAt":"{seconds}""#),
            format!(r#""expires_at":{seconds}000"#),
            format!(r#""ExpiresAt":"{}""#, stated.to_rfc3339()),
            format!(r#""expiresAt":null,"expire_date":"{seconds}","ExpireDate":1"#),
            format!(
                r#""expiry_date":"{}""#,
                stated.with_timezone(&chrono::FixedOffset::east_opt(7_200).unwrap()).to_rfc3339()
            ),
            format!(r#""gcm":{{"androidId":"1","expire_date":{seconds}}}"#),
            format!(r#""fcm_credentials":{{"gcm":{{"issued_date":1,"expire_date":{seconds}000}}}}"#),
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
        assert_eq!(read_text(&bundle(BUNDLE_BYTES + 1)), Err(InvalidBundle::TooLarge));
        // Deep nesting costs no stack.
        let deep = "[".repeat(30_000) + &"]".repeat(30_000);
        assert!(read_text(&format!(r#"{{"platformId":"{ID}","x":{deep}}}"#)).is_ok());
    }

    #[test]
    fn a_warning_is_due_72_and_24_hours_before_the_expiry() {
        let second = Duration::seconds(1);
        assert_eq!(warning(now() + WARN_BEFORE + second, now()), None);
        assert_eq!(warning(now() + WARN_BEFORE, now()), Some(Warning::ExpiresSoon));
        assert_eq!(warning(now() + WARN_AGAIN_BEFORE + second, now()), Some(Warning::ExpiresSoon));
        assert_eq!(warning(now() + WARN_AGAIN_BEFORE, now()), Some(Warning::ExpiresWithinADay));
        assert_eq!(warning(now() + second, now()), Some(Warning::ExpiresWithinADay));
        assert_eq!(warning(now(), now()), Some(Warning::Expired));
    }

    #[test]
    fn each_warning_is_said_once_and_again_only_if_it_was_not_taken() {
        let end = now() + Duration::days(5);
        let (mut at, mut said) = (now(), Vec::new());
        while at < end + SAID_AFTER {
            said.extend(warning(end, at).map(|due| (due, end - at)));
            at = next_warning(end, at, true);
        }
        let day = Duration::hours(24);
        let expected =
            [(Warning::ExpiresSoon, day * 3), (Warning::ExpiresWithinADay, day), (Warning::Expired, Duration::zero())];
        assert_eq!(said, expected);
        assert_eq!(next_warning(end, end - day * 2, false), end - day * 2 + SAID_AGAIN);
        let late = end - day - Duration::minutes(1);
        assert_eq!(next_warning(end, late, false), end - day, "the next one comes sooner");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, now());
        }

        #[test]
        fn any_expiry_is_read_or_ignored(text in "[0-9TZ:.+-]{0,30}") {
            let bundle = format!(r#"{{"platformId":"{ID}","expiresAt":"{text}"}}"#);
            prop_assert!(read_text(&bundle).unwrap().expires_at <= now() + LONGEST_LIFE);
        }
    }
}
