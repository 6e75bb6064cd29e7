//! Instants at rest: UTC without a zone, six digits, the same on both engines.

use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::{
    backend::Backend,
    deserialize::{self, FromSql, FromSqlRow},
    sql_types::Timestamp,
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
