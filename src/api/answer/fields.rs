//! Values in JSON bodies that several endpoints read.

use serde::{Deserialize, Deserializer};
use serde_json::Number;
use uuid::Uuid;

use crate::{
    api::answer::error::ApiError,
    domain::{
        ids::PlatformId,
        map::{BEYOND_THE_MAP, LARGEST_MAP},
        money::tier::Tier,
        player_name::{NAME_CHARS, NameKey},
        time::Timestamp,
    },
};

/// A JSON integer, or a text that should hold its decimal digits: browsers round integers beyond 2^53.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an integer or its decimal digits")]
pub enum IntegerOrText {
    Integer(Number),
    Text(String),
}

impl IntegerOrText {
    /// As text: of a text, what was sent; of a number, its digits, with a point when it is no integer.
    pub fn into_text(self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// Validates a name or label: one line, not blank, no control characters.
pub fn one_line(text: &Option<String>, _: &()) -> garde::Result {
    match text {
        Some(text) if text.chars().any(char::is_control) => Err(garde::Error::new("must be one line of text")),
        Some(text) if text.trim().is_empty() => Err(garde::Error::new("must not be blank")),
        _ => Ok(()),
    }
}

/// [`one_line`] of a text that is always there.
pub fn is_one_line(text: &str, _: &()) -> garde::Result {
    one_line(&Some(text.to_owned()), &())
}

/// Validates a text of several lines: not blank, no control characters but line breaks and tabs.
pub fn lines(text: &Option<String>, _: &()) -> garde::Result {
    match text {
        Some(text) if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => {
            Err(garde::Error::new("must have no control characters"))
        }
        Some(text) if text.trim().is_empty() => Err(garde::Error::new("must not be blank")),
        _ => Ok(()),
    }
}

/// Validates the name of a player: one line that can be seen.
pub fn visible_name(name: &str, _: &()) -> garde::Result {
    if !(1..=NAME_CHARS).contains(&name.chars().count()) {
        return Err(garde::Error::new(format!("must have 1 to {NAME_CHARS} characters")));
    }
    if name.chars().any(char::is_control) {
        return Err(garde::Error::new("must be one line of text"));
    }
    NameKey::of(name).map(|_| ()).ok_or_else(|| garde::Error::new("must have visible characters"))
}

/// Validates an account at the identity provider.
pub fn is_platform_id(text: &str, _: &()) -> garde::Result {
    PlatformId::parse(text).map(|_| ()).ok_or_else(|| garde::Error::new("must be a SteamID64 of 17 digits"))
}

/// Reads a parameter of this name that is a time.
pub fn rfc3339(name: &str, text: &str) -> Result<Timestamp, ApiError> {
    Timestamp::parse_rfc3339(text).ok_or_else(|| ApiError::invalid(name, "must be a time like 2026-01-31T12:00:00Z"))
}

/// Validates an id that we made.
pub fn own_id(id: &str, _: &()) -> garde::Result {
    let is_ours = Uuid::try_parse(id).is_ok_and(|parsed| parsed.hyphenated().to_string() == id);
    is_ours.then_some(()).ok_or_else(|| garde::Error::new("must be the id of the last one of the page before"))
}

/// Validates the name of a tier.
pub fn is_tier(text: &str, _: &()) -> garde::Result {
    Tier::parse(text).map(|_| ()).ok_or_else(|| garde::Error::new("must be SCOUT, OPERATOR or OVERLORD"))
}

/// Distinguishes `null`, which removes a value, from an absent field.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Validates a coordinate: metres from the south-west corner, at most 500 beyond the largest map.
pub fn on_the_largest_map(place: &f64, _: &()) -> garde::Result {
    match (-BEYOND_THE_MAP..=LARGEST_MAP + BEYOND_THE_MAP).contains(place) {
        true => Ok(()),
        false => Err(garde::Error::new("must be on the map, in metres from its south-west corner")),
    }
}
