//! Where things are kept.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::check::{Check, given_secret};

/// Where things are kept, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct DatabaseSettings {
    /// Directory for the SQLite file, the journal of alarms, and secrets made in development
    #[arg(long, env, default_value = "data")]
    pub data_dir: PathBuf,
    /// `sqlite:PATH` or `postgres://…` [default: companion.db in the data directory]
    #[arg(long, env, hide_env_values = true)]
    pub database_url: Option<SecretString>,
}

/// Which database to use.
#[derive(Clone, Debug)]
pub enum Database {
    Sqlite(PathBuf),
    /// A libpq URL, possibly with a password.
    Postgres(SecretString),
}

impl DatabaseSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Database> {
        let Some(url) = given_secret(self.database_url) else {
            return Some(Database::Sqlite(self.data_dir.join("companion.db")));
        };
        let text = url.expose_secret();
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // In memory, every connection would have a database of its own.
            if path.is_empty() || path.contains(":memory:") {
                check.fault("DATABASE_URL", "names no SQLite file");
                return None;
            }
            return Some(Database::Sqlite(PathBuf::from(path)));
        }
        // A mistyped scheme must not turn into a new, empty file. The URL may hold a password, so it is not repeated.
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Some(Database::Postgres(url));
        }
        check.fault("DATABASE_URL", "is neither sqlite:PATH nor a postgres:// URL");
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_database_is_a_sqlite_file_or_a_postgres_url() {
        let database = |url: &str| {
            let settings = DatabaseSettings { data_dir: "data".into(), database_url: Some(url.into()) };
            let mut check = Check::default();
            let database = settings.check(&mut check);
            assert_eq!(database.is_none(), check.faults.len() == 1, "{:?}", check.faults);
            database
        };
        for (url, file) in [(" ", "data/companion.db"), ("sqlite:a.db", "a.db"), ("sqlite:///var/a.db", "/var/a.db")] {
            assert!(matches!(database(url), Some(Database::Sqlite(path)) if path == Path::new(file)), "{url}");
        }
        for url in ["postgres://u:p@db/name", "postgresql://u@/name?host=/run/postgresql"] {
            assert!(matches!(database(url), Some(Database::Postgres(_))), "{url}");
        }
        for url in ["mysql://db/name", "companion.db", "sqlite:", "sqlite::memory:", "postgres"] {
            assert!(database(url).is_none(), "{url}");
        }
    }
}
