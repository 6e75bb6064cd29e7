//! Instants on the wire (RFC 3339, UTC, milliseconds, `Z`), and the two clocks that rules are given.

use std::{
    cmp::Ordering,
    fmt,
    ops::{Add, AddAssign, Deref, Sub},
    str::FromStr,
};

use chrono::{DateTime, Datelike as _, NaiveDateTime, ParseError, SecondsFormat, TimeDelta, Timelike as _, Utc};
use diesel::{deserialize::FromSqlRow, expression::AsExpression};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, schema::Type},
};

/// An instant in UTC: on the wire as [`to_wire`](Self::to_wire) writes it, in rows without a zone, in microseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, AsExpression, FromSqlRow)]
#[diesel(sql_type = diesel::sql_types::Timestamp)]
pub struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(DateTime::UNIX_EPOCH);
    /// Later than every instant that is stored.
    pub const MAX_UTC: Self = Self(DateTime::<Utc>::MAX_UTC);

    /// `2026-11-21T09:13:00.000Z`.
    pub fn to_wire(self) -> String {
        self.0.to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// The instant of a Unix time in seconds, as the game sends them; 0 means unknown.
    pub fn from_unix(seconds: u32) -> Option<Self> {
        (seconds != 0).then(|| Self::from_timestamp(i64::from(seconds), 0)).flatten()
    }

    /// The instant of a Unix time; `None` outside of the calendar.
    pub fn from_timestamp(seconds: i64, nanoseconds: u32) -> Option<Self> {
        DateTime::from_timestamp(seconds, nanoseconds).map(Self)
    }

    /// The instant of a Unix time in milliseconds; `None` outside of the calendar.
    pub fn from_timestamp_millis(milliseconds: i64) -> Option<Self> {
        DateTime::from_timestamp_millis(milliseconds).map(Self)
    }

    /// Reads RFC 3339, of any zone.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        DateTime::parse_from_rfc3339(text).ok().map(|at| Self(at.to_utc()))
    }

    /// The instant of a Unix time in microseconds; `None` outside of the calendar.
    pub fn from_timestamp_micros(microseconds: i64) -> Option<Self> {
        DateTime::from_timestamp_micros(microseconds).map(Self)
    }

    /// True if every database and client reads it back as it is: RFC 3339 has four digits for a year, and not all know
    /// leap seconds.
    pub fn is_storable(self) -> bool {
        (0..=9999).contains(&self.0.year()) && self.0.nanosecond() < 1_000_000_000
    }

    /// This much later; `None` outside of the calendar.
    pub fn checked_add_signed(self, span: TimeDelta) -> Option<Self> {
        self.0.checked_add_signed(span).map(Self)
    }

    /// This much earlier; `None` outside of the calendar.
    pub fn checked_sub_signed(self, span: TimeDelta) -> Option<Self> {
        self.0.checked_sub_signed(span).map(Self)
    }
}

impl Deref for Timestamp {
    type Target = DateTime<Utc>;

    fn deref(&self) -> &DateTime<Utc> {
        &self.0
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at)
    }
}

impl From<NaiveDateTime> for Timestamp {
    fn from(at: NaiveDateTime) -> Self {
        Self(at.and_utc())
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Later by a span of chrono or the standard library.
impl<Span> Add<Span> for Timestamp
where
    DateTime<Utc>: Add<Span, Output = DateTime<Utc>>,
{
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0 + span)
    }
}

impl<Span> Sub<Span> for Timestamp
where
    DateTime<Utc>: Sub<Span, Output = DateTime<Utc>>,
{
    type Output = Self;

    fn sub(self, span: Span) -> Self {
        Self(self.0 - span)
    }
}

impl AddAssign<TimeDelta> for Timestamp {
    fn add_assign(&mut self, span: TimeDelta) {
        self.0 += span;
    }
}

impl Sub for Timestamp {
    type Output = TimeDelta;

    fn sub(self, earlier: Self) -> TimeDelta {
        self.0 - earlier.0
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

/// For `#[serde(serialize_with = "exact")]`: to the nanosecond, for what we read back ourselves.
pub fn exact<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    at.0.serialize(serializer)
}

/// For `#[serde(serialize_with = "exact_option")]`.
pub fn exact_option<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(|at| at.0).serialize(serializer)
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        let date_time = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new().schema_type(Type::String).format(Some(date_time)).into()
    }
}

impl ToSchema for Timestamp {}

/// Puts the schema of a time in the place of each reference to it: utoipa refers to every type that is not its own.
pub fn inline(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let nullable = fields.get("oneOf").and_then(Value::as_array);
            let nullable = nullable.and_then(|one| one.iter().find(|one| one.get("$ref").is_some_and(is_time)));
            let nullable = nullable.and_then(Value::as_object).cloned();
            if nullable.is_some() || fields.get("$ref").is_some_and(is_time) {
                let kind = if nullable.is_some() { json!(["string", "null"]) } else { json!("string") };
                fields.remove("oneOf");
                fields.extend(nullable.into_iter().flatten());
                fields.remove("$ref");
                fields.extend([("type".to_owned(), kind), ("format".to_owned(), json!("date-time"))]);
            }
            fields.remove("Timestamp");
            fields.values_mut().for_each(inline);
        }
        Value::Array(items) => items.iter_mut().for_each(inline),
        _ => {}
    }
}

fn is_time(reference: &Value) -> bool {
    reference.as_str().is_some_and(|target| target.ends_with("/Timestamp"))
}

/// Now, on two clocks: one that only goes forward decides windows, rates and hysteresis; the wall clock, which may be
/// set, only labels.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since some start; comparisons and differences are of this.
    steady: TimeDelta,
    /// The time of day.
    pub stamp: Timestamp,
}

impl Moment {
    /// The moment with this reading of the steady clock and this time of day.
    pub fn new(steady: TimeDelta, stamp: Timestamp) -> Self {
        Self { steady, stamp }
    }

    /// Reading of the steady clock: the time that it has run.
    pub fn steady(self) -> TimeDelta {
        self.steady
    }

    /// Time by which the wall clock was set back since an earlier moment; negative: it was set forward.
    pub fn set_back_since(self, earlier: Self) -> TimeDelta {
        (self - earlier) - (self.stamp - earlier.stamp)
    }

    /// The moment that has this time of day, if the wall clock was not set since.
    pub fn at(self, stamp: Timestamp) -> Self {
        Self { steady: self.steady - (self.stamp - stamp), stamp }
    }
}

/// As its time of day: the steady clock of another process is another one.
impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        exact(&self.stamp, serializer)
    }
}

/// On no steady clock: [`Moment::at`] brings it to that of the reader.
impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Timestamp::deserialize(deserializer).map(Self::from)
    }
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.steady == other.steady
    }
}

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.steady.cmp(&other.steady)
    }
}

/// For places where both clocks are one, such as tests.
impl From<Timestamp> for Moment {
    fn from(stamp: Timestamp) -> Self {
        Self { steady: stamp - Timestamp::UNIX_EPOCH, stamp }
    }
}

impl Sub for Moment {
    type Output = TimeDelta;

    fn sub(self, earlier: Self) -> TimeDelta {
        self.steady - earlier.steady
    }
}

impl Add<TimeDelta> for Moment {
    type Output = Self;

    fn add(self, span: TimeDelta) -> Self {
        Self { steady: self.steady + span, stamp: self.stamp + span }
    }
}
