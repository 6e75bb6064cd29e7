//! A paired server's id where there may be none; rows name it in `deserialize_as`.

use diesel::{
    backend::Backend,
    deserialize::{self, FromSql, FromSqlRow},
    sql_types::{Nullable, Text},
};

use crate::domain::ids::ServerId;

/// See the module.
#[derive(Debug, FromSqlRow)]
pub struct StoredServer(Option<String>);

impl<DB: Backend> FromSql<Nullable<Text>, DB> for StoredServer
where
    String: FromSql<Text, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        String::from_sql(bytes).map(|id| Self(Some(id)))
    }

    fn from_nullable_sql(bytes: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        bytes.map_or(Ok(Self(None)), Self::from_sql)
    }
}

impl From<StoredServer> for Option<ServerId> {
    fn from(stored: StoredServer) -> Self {
        stored.0.map(ServerId::from)
    }
}
