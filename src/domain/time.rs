//! Instants on the wire: RFC 3339, UTC, milliseconds, `Z`.

use chrono::{DateTime, SecondsFormat, Utc};

/// An instant in UTC.
pub type Timestamp = DateTime<Utc>;

/// `2026-11-21T09:13:00.000Z`.
pub fn to_wire(at: Timestamp) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The instant of a Unix time in seconds, as the game sends them; 0 means unknown.
pub fn from_unix(seconds: u32) -> Option<Timestamp> {
    (seconds != 0).then(|| DateTime::from_timestamp(i64::from(seconds), 0)).flatten()
}

/// For `#[serde(serialize_with = "time::wire")]`.
pub fn wire<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// For `#[serde(serialize_with = "time::wire_option")]`.
pub fn wire_option<S: serde::Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => wire(at, serializer),
        None => serializer.serialize_none(),
    }
}
