//! Databases of tests. One on PostgreSQL is dropped after the test.

#[path = "../../../src/db/testing/migrated.rs"]
#[allow(dead_code, reason = "some tests need no SQLite file")]
mod migrated;

use std::{env, path::Path};

use companion::{
    config::Database,
    db::engine::{lock_holder::SERVING_LOCK, schema_steps},
};
use diesel::{Connection as _, PgConnection, RunQueryDsl as _, connection::SimpleConnection as _};

#[derive(diesel::QueryableByName)]
struct Taken {
    #[diesel(sql_type = diesel::sql_types::Integer)]
    taken: i32,
}

pub struct Postgres {
    server: String,
    name: String,
}

impl Postgres {
    /// An empty one. `None`, and a line on stderr, if TEST_POSTGRES_URL is not set.
    pub fn create() -> Option<Self> {
        let postgres = Self::named()?;
        let mut connection = PgConnection::establish(&postgres.server).expect("TEST_POSTGRES_URL answers");
        let create = format!("CREATE DATABASE {}", postgres.name);
        connection.batch_execute(&create).expect("its role may make databases");
        Some(postgres)
    }

    /// One with the newest schema.
    #[allow(dead_code, reason = "for tests on each engine")]
    pub fn create_migrated() -> Option<Self> {
        let postgres = Self::named()?;
        migrated::create_on_postgres(&postgres.server, &postgres.name, || {
            migrate(&Database::Postgres(postgres.url().into()));
        });
        Some(postgres)
    }

    fn named() -> Option<Self> {
        let Ok(server) = env::var("TEST_POSTGRES_URL") else {
            eprintln!("SKIPPED on PostgreSQL: TEST_POSTGRES_URL is not set");
            return None;
        };
        let name = format!("companion_spec_{}", uuid::Uuid::now_v7().simple());
        Some(Self { server, name })
    }

    /// Takes new connections, or refuses them.
    #[allow(dead_code, reason = "for the tests of faults")]
    pub fn admit(&self, admit: bool) {
        let allow = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {admit}", self.name);
        PgConnection::establish(&self.server).unwrap().batch_execute(&allow).unwrap();
    }

    /// Ends the connections whose names begin so, and waits until they are gone with their locks.
    #[allow(dead_code, reason = "for the tests of faults")]
    pub fn end(&self, name: &str) {
        let end = format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
             WHERE datname = '{}' AND starts_with(application_name, '{name}')",
            self.name
        );
        PgConnection::establish(&self.server).unwrap().batch_execute(&end).unwrap();
    }

    /// Takes the lock under which a companion serves, from the one that has it. It is free again when the connection is
    /// dropped.
    #[allow(dead_code, reason = "for the tests of faults")]
    pub fn take_serving_lock(&self) -> PgConnection {
        let mut connection = PgConnection::establish(&self.url()).unwrap();
        let take = format!("SELECT pg_try_advisory_lock({SERVING_LOCK})::int AS taken");
        loop {
            self.end("companion serves");
            // The other process asks again within half a second, and may be quicker.
            if diesel::sql_query(&take).get_result::<Taken>(&mut connection).unwrap().taken == 1 {
                return connection;
            }
        }
    }

    pub fn url(&self) -> String {
        let mut url = url::Url::parse(&self.server).expect("TEST_POSTGRES_URL is a URL");
        url.set_path(&self.name);
        url.into()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Ok(mut connection) = PgConnection::establish(&self.server) {
            let _ = connection.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

/// Makes a SQLite file with the newest schema.
#[allow(dead_code, reason = "for tests of the whole service")]
pub fn create_sqlite(path: &Path) {
    migrated::create_on_sqlite(path, |path| migrate(&Database::Sqlite(path.to_owned())));
}

fn migrate(database: &Database) {
    schema_steps::migrate(database).expect("it is new");
}
