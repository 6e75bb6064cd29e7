//! The database of a demo, on a PostgreSQL that others use as well.

use std::{os::unix::ffi::OsStrExt as _, path::Path};

use diesel::{
    QueryableByName,
    connection::SimpleConnection as _,
    sql_query,
    sql_types::{BigInt, Text},
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    crypto::digest::sha256_hex,
    db::engine::{EngineError, open_postgres, prelude::RunQuery as _, with_advice},
};

/// A database is made and dropped within this time.
const PATIENT: &str = "SET statement_timeout = '60s'";

/// Reasons for which there is none.
#[derive(Debug, thiserror::Error)]
pub enum DemoDatabaseError {
    #[error("PostgreSQL: {}", with_advice(.0))]
    Engine(#[from] EngineError),
    #[error("--database-url (or DATABASE_URL) has a `dbname`, which leads past the demo's own database: take it out")]
    Elsewhere,
}

#[derive(QueryableByName)]
struct KnownDatabases {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

#[derive(QueryableByName)]
struct OpenedDatabase {
    #[diesel(sql_type = Text)]
    name: String,
}

/// A database; dropped with this value, unless it is kept.
pub struct DemoDatabase {
    /// URL of another database of the same server.
    server: SecretString,
    pub url: SecretString,
    pub name: String,
    is_kept: bool,
}

impl DemoDatabase {
    /// Makes it, unless an earlier demo in this directory has kept it. Blocks.
    pub fn make(server: &SecretString, directory: &Path, is_kept: bool) -> Result<Self, DemoDatabaseError> {
        let name = format!("companion_demo_{:.16}", sha256_hex(directory.as_os_str().as_bytes()));
        create(server, &name)?;
        let database = Self { server: server.clone(), url: url_of(server, &name), name, is_kept };
        match opened(&database.url)? {
            name if name == database.name => Ok(database),
            _ => Err(DemoDatabaseError::Elsewhere),
        }
    }
}

impl Drop for DemoDatabase {
    /// Blocks: it is the last that the demo does.
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = remove(&self.server, &self.name)
        {
            log::warn!("the database {} of the demo is still there: {}", self.name, with_advice(&error));
        }
    }
}

fn create(server: &SecretString, name: &str) -> Result<(), EngineError> {
    let mut connection = open_postgres(server)?;
    connection.batch_execute(PATIENT)?;
    let known = sql_query("SELECT count(*) AS count FROM pg_database WHERE datname = $1").bind::<Text, _>(name);
    if known.get_result::<KnownDatabases>(&mut connection)?.count == 0 {
        connection.batch_execute(&format!("CREATE DATABASE {name}"))?;
    }
    Ok(())
}

fn opened(url: &SecretString) -> Result<String, EngineError> {
    let name = sql_query("SELECT current_database()::text AS name");
    Ok(name.get_result::<OpenedDatabase>(&mut open_postgres(url)?)?.name)
}

fn remove(server: &SecretString, name: &str) -> Result<(), EngineError> {
    let mut connection = open_postgres(server)?;
    connection.batch_execute(PATIENT)?;
    Ok(connection.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))?)
}

/// The URL of the database of this name on the server of this libpq URL, which may name several hosts or none.
fn url_of(server: &SecretString, name: &str) -> SecretString {
    let server = server.expose_secret();
    let (before, query) = server.split_at(server.find('?').unwrap_or(server.len()));
    let (scheme, rest) = before.split_once("://").unwrap_or(("postgres", before));
    let hosts = rest.split('/').next().unwrap_or_default();
    format!("{scheme}://{hosts}/{name}{query}").into()
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn the_database_is_named_in_place_of_another_one() {
        for (server, wanted) in [
            ("postgres://postgres@127.0.0.1:5432/postgres", "postgres://postgres@127.0.0.1:5432/demo"),
            ("postgresql://u:p@a,b?sslmode=require", "postgresql://u:p@a,b/demo?sslmode=require"),
            ("postgres:///other?host=/run/postgresql", "postgres:///demo?host=/run/postgresql"),
        ] {
            assert_eq!(url_of(&server.into(), "demo").expose_secret(), wanted);
        }
    }

    #[test]
    fn a_database_that_is_kept_is_there_for_the_next_demo_and_another_one_is_dropped() {
        let Ok(server) = env::var("TEST_POSTGRES_URL") else {
            eprintln!("SKIPPED on PostgreSQL: TEST_POSTGRES_URL is not set");
            return;
        };
        let (server, directory) = (SecretString::from(server), tempfile::tempdir().unwrap());
        let make = |is_kept: bool| DemoDatabase::make(&server, directory.path(), is_kept).unwrap();
        let kept = make(true);
        open_postgres(&kept.url).unwrap().batch_execute("CREATE TABLE it (id INT)").unwrap();
        drop(kept);
        let dropped = make(false);
        open_postgres(&dropped.url).unwrap().batch_execute("INSERT INTO it VALUES (1)").unwrap();
        let url = dropped.url.clone();
        drop(dropped);
        assert!(open_postgres(&url).is_err());
        let past: SecretString = format!("{}?dbname=postgres", url_of(&server, "postgres").expose_secret()).into();
        let past = DemoDatabase::make(&past, directory.path(), false);
        assert!(matches!(past, Err(DemoDatabaseError::Elsewhere)), "{:?}", past.err());
    }
}
