//! The needs of `demo --nodes` besides this program. All that is missing is said at once, before anything starts.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use diesel::{
    QueryableByName, sql_query,
    sql_types::{Bool, Integer},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{sleep, timeout};

use crate::{
    config::{Database, OLDEST_NATS, StoragePlaces, nats_version},
    db::engine::{EngineError, open_postgres, prelude::RunQuery as _, with_advice},
    demo::options::{DemoOptions, default_settings},
};

const DEFAULT_NATS: &str = "nats-server";
const DEFAULT_POSTGRES: &str = "postgres://postgres@127.0.0.1:5432/postgres";
/// Time in which a program says its version, and the pause between two looks whether it has.
const VERSION_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes of what it says that are read.
const LONGEST_VERSION: u64 = 4096;
/// Connections of a node to PostgreSQL, and those of the demo itself.
const OF_NODE: i32 = 12;
const OF_DEMO: i32 = 3;

/// Where these are.
pub struct Needs {
    /// Program of NATS.
    pub nats_server: PathBuf,
    /// libpq URL of a database whose role may make others.
    pub postgres: SecretString,
}

#[derive(QueryableByName)]
struct PostgresRoom {
    #[diesel(sql_type = Bool)]
    may_create: bool,
    #[diesel(sql_type = Integer)]
    connections: i32,
}

impl Needs {
    /// Looks for them; one line for each that is missing, with what to do. Blocks for the seconds in which a PostgreSQL
    /// does not answer: nothing else runs yet.
    pub async fn find(options: &DemoOptions, nodes: u8) -> Result<Self, String> {
        let nats_server = options.nats_server.clone().unwrap_or_else(|| DEFAULT_NATS.into());
        let nats = check_nats(&nats_server, version_of(&nats_server).await);
        let postgres = find_postgres(options.database_url.clone(), nodes);
        let feature = match cfg!(feature = "cluster") {
            true => Ok(()),
            false => Err("nodes, which are not in this build: build it with the cargo feature `cluster`".to_owned()),
        };
        match (feature, nats, postgres) {
            (Ok(()), Ok(()), Ok(postgres)) => Ok(Self { nats_server, postgres }),
            (feature, nats, postgres) => {
                let missing = [feature.err(), nats.err(), postgres.err()].into_iter().flatten();
                let missing = missing.map(|line| format!("\n- {line}")).collect::<String>();
                Err(format!("--nodes needs what is not here:{missing}"))
            }
        }
    }
}

/// The answer of the program to `--version`.
async fn version_of(program: &Path) -> io::Result<String> {
    let mut command = Command::new(program);
    let mut process =
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let ends = async {
        while process.try_wait()?.is_none() {
            sleep(LOOK_EVERY).await;
        }
        Ok::<(), io::Error>(())
    };
    let ended = timeout(VERSION_WITHIN, ends).await;
    // Perhaps it has ended.
    let _ = process.kill();
    process.wait()?;
    ended.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not say its version")))?;
    let mut answer = Vec::new();
    if let Some(output) = process.stdout {
        output.take(LONGEST_VERSION).read_to_end(&mut answer)?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Fails with what to do if this is not the answer of a NATS server that is new enough.
fn check_nats(program: &Path, answer: io::Result<String>) -> Result<(), String> {
    let (oldest, newer) = OLDEST_NATS;
    let advice = format!(
        "install nats-server {oldest}.{newer} or later (https://github.com/nats-io/nats-server/releases), or name its program \
         by --nats-server or NATS_SERVER"
    );
    let program = program.display();
    let answer = answer.map_err(|error| format!("a NATS server: {program}: {error}; {advice}"))?;
    let version = answer.split_whitespace().last().unwrap_or_default();
    match nats_version(version) {
        Some(version) if version >= OLDEST_NATS => Ok(()),
        Some(_) => Err(format!("a newer NATS server: {program} is {version}; {advice}")),
        None => Err(format!("a NATS server: {program} does not say which version it is; {advice}")),
    }
}

/// The PostgreSQL that was given, or that of this machine, if it can have a database for this many nodes; otherwise what to
/// do.
fn find_postgres(given: Option<SecretString>, nodes: u8) -> Result<SecretString, String> {
    let given = given.filter(|url| !url.expose_secret().trim().is_empty());
    let mut settings = default_settings();
    settings.database.database_url = Some(given.unwrap_or_else(|| DEFAULT_POSTGRES.into()));
    let url = match settings.storage() {
        Ok(StoragePlaces { database: Database::Postgres(url), .. }) => url,
        Ok(_) => {
            return Err(
                "a PostgreSQL: --database-url (or DATABASE_URL) names a SQLite file, which is for one process; name a \
                 postgres:// URL, or take it out"
                    .to_owned(),
            );
        }
        Err(invalid) => return Err(format!("a PostgreSQL: {invalid}")),
    };
    let room = room_of(&url).map_err(|error| {
        format!(
            "a PostgreSQL that answers: {}; start one on this machine that lets the role `postgres` in without a password, or \
             name another by --database-url or DATABASE_URL, postgres://USER@HOST/DATABASE, whose user may make databases",
            with_advice(&error)
        )
    })?;
    let needed = OF_NODE * i32::from(nodes) + OF_DEMO;
    match room {
        PostgresRoom { may_create: false, .. } => {
            Err("a PostgreSQL on which it may make a database: ALTER ROLE … CREATEDB lets its user".to_owned())
        }
        PostgresRoom { connections, .. } if connections < needed => Err(format!(
            "a PostgreSQL that takes {needed} connections, and this one takes {connections}: raise max_connections, or take \
             fewer nodes"
        )),
        PostgresRoom { .. } => Ok(url),
    }
}

fn room_of(url: &SecretString) -> Result<PostgresRoom, EngineError> {
    let room = sql_query(
        "SELECT rolcreatedb OR rolsuper AS may_create, current_setting('max_connections')::int \
         - current_setting('superuser_reserved_connections')::int AS connections \
         FROM pg_roles WHERE rolname = current_user",
    );
    Ok(room.get_result::<PostgresRoom>(&mut open_postgres(url)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nats_server_is_there_and_new_enough() {
        let check = |answer: &str| check_nats(Path::new("nats-server"), Ok(answer.to_owned()));
        for new in ["nats-server: v2.11.0\n", "nats-server: v2.15.1", "nats-server: v3.0.0-beta.1\n"] {
            assert_eq!(check(new), Ok(()));
        }
        let old = check("nats-server: v2.9.10\n").unwrap_err();
        assert!(old.starts_with("a newer NATS server: nats-server is v2.9.10; install nats-server 2.11 or"), "{old}");
        let other = check("usage: true\n").unwrap_err();
        assert!(other.contains("does not say which version it is; install"), "{other}");
    }

    #[tokio::test]
    async fn a_program_says_its_version_or_why_it_cannot() {
        assert!(version_of(Path::new("echo")).await.is_ok_and(|answer| !answer.is_empty()));
        let program = Path::new("/none/nats-server");
        let missing = check_nats(program, version_of(program).await).unwrap_err();
        let words =
            "a NATS server: /none/nats-server: No such file or directory (os error 2); install nats-server 2.11 or";
        assert!(missing.starts_with(words) && missing.ends_with("by --nats-server or NATS_SERVER"), "{missing}");
    }

    #[test]
    fn a_postgresql_answers_and_its_url_is_one() {
        let find = |url: &str| find_postgres(Some(url.into()), 2).map(drop).unwrap_err();
        assert!(find("sqlite:it.db").contains("names a SQLite file"));
        assert!(find("mysql://it").contains("DATABASE_URL is neither sqlite:PATH nor a postgres:// URL"));
        let silent = find("postgres://u:hunter2@127.0.0.1:1/none");
        assert!(silent.contains("Connection refused") && silent.contains("name another by --database-url"), "{silent}");
        assert!(!silent.contains("hunter2"), "{silent}");
    }
}
