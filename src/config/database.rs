//! Where things are kept.

use std::{net::IpAddr, path::PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use url::form_urlencoded;

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
    /// `true`: let production send its data to PostgreSQL on another machine in plain text
    #[arg(long, env, default_value = "false")]
    pub allow_plain_database: String,
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
        // One that is no flag allows nothing, and is a fault already.
        let allow_plain = check.flag("ALLOW_PLAIN_DATABASE", &self.allow_plain_database).unwrap_or(true);
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
        if let Some(rest) = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://")) {
            let server = PostgresServer::of(rest);
            if server.is_encrypted && !cfg!(feature = "postgres-tls") {
                check.fault("DATABASE_URL", "asks for TLS, which is not in this build (cargo feature `postgres-tls`)");
                return None;
            }
            if check.production && !server.is_encrypted && !server.is_local && !allow_plain {
                check.fault(
                    "DATABASE_URL",
                    "leads to another machine in plain text: production requires sslmode=verify-full (or require), \
                     or ALLOW_PLAIN_DATABASE=true",
                );
                return None;
            }
            return Some(Database::Postgres(url));
        }
        check.fault("DATABASE_URL", "is neither sqlite:PATH nor a postgres:// URL");
        None
    }
}

/// Security of the way to the server of a libpq URL. (It may name several hosts or none, which the `url` crate does
/// not read.)
struct PostgresServer {
    /// All its hosts are this machine; so is none.
    is_local: bool,
    /// True if it never falls back to plain text.
    is_encrypted: bool,
}

impl PostgresServer {
    /// Reads what follows the scheme.
    fn of(rest: &str) -> Self {
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = before.split('/').next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        let named = authority.split(',').map(|host| match host.strip_prefix('[') {
            Some(host) => host.split(']').next().unwrap_or_default().to_owned(),
            None => host.split(':').next().unwrap_or_default().replace("%2F", "/").replace("%2f", "/"),
        });
        let mut hosts: Vec<String> = named.collect();
        let mut is_encrypted = false;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "host" | "hostaddr" => hosts.extend(value.split(',').map(str::to_owned)),
                // The last one counts.
                "sslmode" => is_encrypted = matches!(&*value, "require" | "verify-ca" | "verify-full"),
                _ => {}
            }
        }
        Self { is_local: hosts.iter().all(|host| is_this_machine(host)), is_encrypted }
    }
}

/// A socket of this machine (a path, an abstract name, or nothing) or loopback.
fn is_this_machine(host: &str) -> bool {
    host.is_empty()
        || host.starts_with(['/', '@'])
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The database of this URL, and what is wrong with it.
    fn check_url(url: &str, production: bool, allow_plain: &str) -> (Option<Database>, Vec<String>) {
        let settings = DatabaseSettings {
            data_dir: "data".into(),
            database_url: Some(url.into()),
            allow_plain_database: allow_plain.into(),
        };
        let mut check = Check { production, ..Check::default() };
        let database = settings.check(&mut check);
        assert_eq!(database.is_none(), check.faults.len() == 1, "{:?}", check.faults);
        (database, check.faults)
    }

    #[test]
    fn a_database_is_a_sqlite_file_or_a_postgres_url() {
        let database = |url: &str| check_url(url, false, "false").0;
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

    #[test]
    fn production_sends_plain_text_to_another_machine_only_when_it_is_set_so() {
        let plain = |url: &str, allow_plain: &str| check_url(url, true, allow_plain).1;
        for local in [
            "postgres:///name",
            "postgres://u:p@localhost/name",
            "postgres://u@127.0.0.2:5433,[::1]:5432/name",
            "postgres://%2Frun%2Fpostgresql/name",
            "postgresql://u@/name?host=/run/postgresql",
        ] {
            assert_eq!(plain(local, "false"), [""; 0], "{local}");
        }
        for remote in [
            "postgres://u:p@db.example:5432/name",
            "postgres://db/name?sslmode=prefer",
            "postgres://localhost,10.0.0.1/name",
            "postgres://localhost/name?hostaddr=10.0.0.1",
            "postgres:///name?host=db",
            "postgres://db/name?sslmode=require&sslmode=disable",
            "postgres://[2001:db8::1]/name",
            "postgres://localhost@db/name",
        ] {
            assert!(plain(remote, "false")[0].starts_with("DATABASE_URL leads to another machine"), "{remote}");
            assert_eq!(plain(remote, "true"), [""; 0], "{remote}");
            assert_eq!(check_url(remote, false, "false").1, [""; 0], "development: {remote}");
        }
    }

    #[test]
    fn tls_needs_a_build_that_has_it() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let (database, faults) = check_url(&format!("postgres://db/name?sslmode={mode}"), true, "false");
            assert_eq!(database.is_some(), cfg!(feature = "postgres-tls"), "{faults:?}");
            assert!(faults.iter().all(|fault| fault.contains("`postgres-tls`")));
        }
    }
}
