//! TLS to a PostgreSQL that takes nothing else.

use std::{
    env, fs,
    io::{self, Write as _},
    net::TcpListener,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use diesel::{QueryableByName, sql_query, sql_types::Bool};
use secrecy::SecretString;
use tempfile::TempDir;

use crate::{
    config::Database,
    db::engine::{error::DbError, pool::Pool, prelude::RunQuery as _},
};

/// A server with a self-signed certificate for localhost, stopped with this value.
struct TlsServer {
    directory: TempDir,
    programs: PathBuf,
    /// User and group that run it: not root, which PostgreSQL refuses.
    runs_as: (u32, u32),
    port: u16,
}

impl TlsServer {
    /// `None`, and a line on stderr, where PostgreSQL is not installed.
    fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let Some((programs, runs_as)) = programs().zip(user(directory.path())) else {
            let _ =
                writeln!(io::stderr(), "TLS to PostgreSQL is NOT TESTED: no initdb and pg_ctl, or no user for them");
            return None;
        };
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::os::unix::fs::chown(directory.path(), Some(runs_as.0), Some(runs_as.1)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Self { directory, programs, runs_as, port };
        server.run("initdb", &["--username=companion", "--auth=trust", "--no-sync"]);
        let data = server.data();
        fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n").unwrap();
        fs::write(server.certificate(), certificate.cert.pem()).unwrap();
        // PostgreSQL requires this: its own file, for no one else.
        let key = data.join("server.key");
        fs::copy(data.join("PG_VERSION"), &key).unwrap();
        fs::write(&key, certificate.signing_key.serialize_pem()).unwrap();
        std::os::unix::fs::chown(&key, Some(runs_as.0), Some(runs_as.1)).unwrap();
        let options = format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c ssl=on");
        server.run("pg_ctl", &["start", "--wait", "--silent", "--log=log", "--options", &options]);
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn certificate(&self) -> PathBuf {
        self.data().join("server.crt")
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(self.programs.join(program));
        command.uid(self.runs_as.0).gid(self.runs_as.1).current_dir(self.directory.path());
        let output = command.env("PGDATA", self.data()).args(arguments).stdout(Stdio::null()).status().unwrap();
        assert!(output.success(), "{program}");
    }

    fn open(&self, host: &str, parameters: &str) -> Result<Pool, DbError> {
        let url = format!("postgres://companion@{host}:{}/postgres?{parameters}", self.port);
        Pool::open(&Database::Postgres(SecretString::from(url)))
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        if self.data().join("postmaster.pid").exists() {
            self.run("pg_ctl", &["stop", "--mode=immediate", "--silent"]);
        }
    }
}

/// Where the server's programs are.
fn programs() -> Option<PathBuf> {
    let path: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed = installed.map(|version| version.path().join("bin"));
    path.into_iter().chain(installed).find(|at| at.join("initdb").exists() && at.join("pg_ctl").exists())
}

/// This user and its group; the user `postgres` instead of root.
fn user(own: &Path) -> Option<(u32, u32)> {
    let own = own.metadata().ok()?;
    if own.uid() != 0 {
        return Some((own.uid(), own.gid()));
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let postgres = users.lines().find_map(|line| line.strip_prefix("postgres:"))?;
    let mut numbers = postgres.split(':').skip(1).map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[derive(QueryableByName)]
struct Connection {
    #[diesel(sql_type = Bool)]
    ssl: bool,
}

#[test]
fn a_server_that_proves_itself_is_used_over_tls_and_no_other() {
    let Some(server) = TlsServer::start() else { return };
    let trusted = format!("sslmode=verify-full&sslrootcert={}", server.certificate().display());
    let pool = server.open("localhost", &trusted).unwrap();
    let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let connection: Connection = pool.read_blocking(|db| Ok(sql_query(query).get_result(db)?)).unwrap();
    assert!(connection.ssl);
    drop(pool);

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other_file = server.directory.path().join("other.crt");
    fs::write(&other_file, other.cert.pem()).unwrap();
    let other = format!("sslmode=verify-full&sslrootcert={}", other_file.display());
    for (host, parameters) in [("localhost", &*other), ("127.0.0.1", &trusted), ("localhost", "sslmode=disable")] {
        let refused = server.open(host, parameters).err();
        assert!(matches!(refused, Some(DbError::Unavailable(_))), "{host} {parameters}: {refused:?}");
    }
}
