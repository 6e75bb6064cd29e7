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
