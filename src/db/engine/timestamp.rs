//! Instants as they are stored: UTC without a zone, microseconds, the same on both engines.

use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::{
    backend::Backend,
    deserialize::{self, FromSql, FromSqlRow},
    sql_types::{Nullable, Timestamp},
};

/// A stored instant; rows name it in `deserialize_as`.
#[derive(Debug, FromSqlRow)]
pub struct StoredTimestamp(NaiveDateTime);

impl<DB: Backend> FromSql<Timestamp, DB> for StoredTimestamp
where
    NaiveDateTime: FromSql<Timestamp, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        NaiveDateTime::from_sql(bytes).map(Self)
    }
}

impl From<StoredTimestamp> for DateTime<Utc> {
    fn from(stored: StoredTimestamp) -> Self {
        stored.0.and_utc()
    }
}

/// A stored instant that may be absent; rows name it in `deserialize_as`.
#[derive(Debug, FromSqlRow)]
pub struct StoredTimestampOption(Option<NaiveDateTime>);

impl<DB: Backend> FromSql<Nullable<Timestamp>, DB> for StoredTimestampOption
where
    NaiveDateTime: FromSql<Timestamp, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        NaiveDateTime::from_sql(bytes).map(|at| Self(Some(at)))
    }

    fn from_nullable_sql(bytes: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        bytes.map_or(Ok(Self(None)), Self::from_sql)
    }
}

impl From<StoredTimestampOption> for Option<DateTime<Utc>> {
    fn from(stored: StoredTimestampOption) -> Self {
        stored.0.map(|at| at.and_utc())
    }
}
