//! An empty PostgreSQL database, dropped after the test.

use std::env;

use diesel::{Connection as _, PgConnection, connection::SimpleConnection as _};

pub struct Postgres {
    server: String,
    name: String,
}

impl Postgres {
    /// `None`, and a line on stderr, if TEST_POSTGRES_URL is not set.
    pub fn create() -> Option<Self> {
        let Ok(server) = env::var("TEST_POSTGRES_URL") else {
            eprintln!("SKIPPED on PostgreSQL: TEST_POSTGRES_URL is not set");
            return None;
        };
        let name = format!("companion_spec_{}", uuid::Uuid::now_v7().simple());
        let mut connection = PgConnection::establish(&server).expect("TEST_POSTGRES_URL answers");
        connection.batch_execute(&format!("CREATE DATABASE {name}")).expect("its role may make databases");
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
