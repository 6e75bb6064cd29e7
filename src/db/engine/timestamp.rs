//! Instants as they are stored: UTC without a zone, microseconds, the same on both engines.

use chrono::NaiveDateTime;
use diesel::{
    backend::Backend,
    deserialize::{self, FromSql},
    pg::Pg,
    serialize::{self, IsNull, Output, ToSql},
    sql_types,
    sqlite::Sqlite,
};

use crate::{db::engine::pool::MultiBackend, domain::time::Timestamp};

impl<DB: Backend> FromSql<sql_types::Timestamp, DB> for Timestamp
where
    NaiveDateTime: FromSql<sql_types::Timestamp, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        NaiveDateTime::from_sql(bytes).map(Self::from)
    }
}

impl ToSql<sql_types::Timestamp, Pg> for Timestamp {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<sql_types::Timestamp, Pg>::to_sql(&self.naive_utc(), &mut out.reborrow())
    }
}

impl ToSql<sql_types::Timestamp, Sqlite> for Timestamp {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.naive_utc().format("%F %T%.f").to_string());
        Ok(IsNull::No)
    }
}

impl ToSql<sql_types::Timestamp, MultiBackend> for Timestamp {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, MultiBackend>) -> serialize::Result {
        out.set_value((sql_types::Timestamp, self));
        Ok(IsNull::No)
    }
}
