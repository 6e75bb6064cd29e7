//! The database: whether it is there, of this program's schema, and can be written.

use std::{collections::BTreeMap, path::Path};

use chrono::TimeDelta;
use diesel::{
    QueryableByName, sql_query,
    sql_types::{BigInt, Bool, Text},
};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::{observation::Observation, open_files};
use crate::{
    clock::Clock,
    config::{self, Database},
    db::{
        engine::{
            self,
            database_file::{self, OpenFault},
            error::DbError,
            lock_holder::{self, LockHolder},
            pool::{Db, Pool},
            prelude::RunQuery as _,
            schema_steps::{self, SchemaSteps},
            write_check,
        },
        files::journal,
        held_parts,
        row_checks::ROW_CHECKS,
        row_references,
    },
    domain::{ids::NodeId, time::Timestamp},
};

const SUBJECT: &str = "database";
/// Rows that cannot be read and are named; the rest is counted.
const NAMED_ROWS: usize = 20;
/// Free pages of a SQLite file that are worth a `VACUUM`: this many bytes, and half of the file.
const WORTHWHILE: i64 = 256 << 20;

#[derive(QueryableByName)]
struct FileSize {
    #[diesel(sql_type = BigInt)]
    bytes: i64,
    #[diesel(sql_type = BigInt)]
    free: i64,
}

#[derive(QueryableByName)]
struct ServerFacts {
    #[diesel(sql_type = Text)]
    version: String,
    #[diesel(sql_type = Text)]
    read_only: String,
    #[diesel(sql_type = BigInt)]
    milliseconds: i64,
}

/// The findings, and how far the database's own clock is ahead of this machine's, if it has one. Blocks.
pub(super) fn examine(database: &Database, data_dir: &Path, clock: &Clock) -> (Vec<Observation>, Option<TimeDelta>) {
    if let Database::Sqlite(path) = database
        && let Some(finding) = not_to_open(path, data_dir)
    {
        return (vec![finding], None);
    }
    let (mut findings, mut skew) = (Vec::new(), None);
    if let Database::Sqlite(path) = database
        && !database_file::is_taken(path)
        && config::is_data_dir_taken(data_dir)
    {
        findings.push(served_elsewhere());
    }
    let examined = Pool::open_as_it_is(database).and_then(|pool| {
        let steps = pool.read_blocking(schema_steps::read)?;
        findings.push(schema(&steps));
        let (answer, ahead) = answered(pool.read_blocking(size)?, clock);
        findings.push(answer);
        skew = ahead;
        findings.extend(pool.read_blocking(|db| processes(db, data_dir))?);
        if let Some(damage) = pool.read_blocking(damage)? {
            return Err(DbError::Damaged(damage));
        }
        // An older schema may lack a table or a column.
        let is_up_to_date = steps.newest.is_some() && steps.pending == 0 && steps.unknown.is_empty();
        if is_up_to_date {
            if pool.read_blocking(nodes_serve)? {
                findings.extend(pool.read_blocking(parts)?);
            }
            findings.extend(unreadable_rows(&pool)?);
            findings.extend(left_out(&pool)?);
        }
        if !pool.read_blocking(may_create)? {
            findings.push(Observation::broken(
                SUBJECT,
                "its user may not create tables, which an upgrade needs; GRANT CREATE ON SCHEMA public TO that user",
            ));
        }
        pool.write_blocking(|db| if is_up_to_date { write_check::try_out(db, clock.now()) } else { Ok(()) })
    });
    match examined {
        Ok(()) => findings.push(Observation::fine(SUBJECT, "it takes what is written")),
        Err(error) => findings.push(Observation::broken(SUBJECT, with_remedy(database, &error))),
    }
    (findings, skew)
}

/// The finding about a SQLite file that is not there, or must not be opened.
fn not_to_open(path: &Path, data_dir: &Path) -> Option<Observation> {
    match path.try_exists() {
        // SQLite would take another log for that of this file.
        Ok(true) => database_file::fault(path).map(|fault| unsafe_to_open(path, &fault)),
        Ok(false) => Some(missing(path, data_dir)),
        // The file may be there: nothing is said of a backup.
        Err(error) => {
            let text = format!("{}: {error}; the service's user must be able to read it", path.display());
            Some(Observation::broken(SUBJECT, text))
        }
    }
}

/// The finding about a database that answers, and how far its own clock is ahead of this machine's.
fn answered(size: Size, clock: &Clock) -> (Observation, Option<TimeDelta>) {
    let finding = match size {
        Size::File(FileSize { bytes, free }) if free > WORTHWHILE && free > bytes / 2 => Observation::doubtful(
            SUBJECT,
            format!(
                "{} MiB, {} of them free pages; stop the service and run VACUUM on the file to give them back",
                bytes >> 20,
                free >> 20
            ),
        ),
        Size::File(FileSize { bytes, free }) => {
            Observation::fine(SUBJECT, format!("SQLite, {} MiB, {} of them free pages", bytes >> 20, free >> 20))
        }
        Size::Server(ServerFacts { version, read_only, .. }) if read_only == "on" => Observation::broken(
            SUBJECT,
            format!("PostgreSQL {version} is read-only (a replica?); name the primary in DATABASE_URL"),
        ),
        Size::Server(ServerFacts { version, milliseconds, .. }) => {
            let ahead = Timestamp::from_timestamp_millis(milliseconds).map(|there| there - clock.now());
            return (Observation::fine(SUBJECT, format!("PostgreSQL {version} answers")), ahead);
        }
    };
    (finding, None)
}

/// The processes that serve from a PostgreSQL, and those that wait to take over.
fn processes(db: &mut Db, data_dir: &Path) -> Result<Option<Observation>, DbError> {
    let Db::Pg(db) = db else { return Ok(None) };
    let holder = lock_holder::find(db)?.map(LockHolder::from);
    if let Some(foreign) = holder.filter(LockHolder::is_foreign) {
        return Ok(Some(Observation::broken(SUBJECT, format!("no companion can serve from it: {foreign}"))));
    }
    let (serving, waiting) = lock_holder::processes(db)?;
    if serving.is_empty() {
        return Ok(config::is_data_dir_taken(data_dir).then(served_elsewhere));
    }
    let serving: Vec<String> = serving.iter().map(ToString::to_string).collect();
    let waiting = match waiting {
        0 => "none waits to take over".to_owned(),
        waiting => format!("standbys that wait to take over: {waiting}"),
    };
    Ok(Some(Observation::fine(SUBJECT, format!("{}; {waiting}", serving.join("; ")))))
}

/// False where one process serves alone: the parts of nodes that served before it are of no node.
fn nodes_serve(db: &mut Db) -> Result<bool, DbError> {
    let Db::Pg(db) = db else { return Ok(false) };
    let (serving, _) = lock_holder::processes(db)?;
    Ok(serving.iter().any(LockHolder::is_node))
}

/// The parts of the service that each node has, where there are several.
fn parts(db: &mut Db) -> Result<Option<Observation>, DbError> {
    let counts = held_parts::counts(db)?;
    if counts.is_empty() {
        return Ok(None);
    }
    let of_node = |(node, kinds): (&Option<NodeId>, &BTreeMap<String, usize>)| {
        let count = |(kind, count): (&String, &usize)| match kind.as_str() {
            "links" => format!("game servers: {count}"),
            "push" => format!("push sessions: {count}"),
            kind => format!("{kind}: {count}"),
        };
        let node = node.as_ref().map_or("no node".to_owned(), |node| format!("node {node}"));
        format!("{node} has {}", kinds.iter().map(count).collect::<Vec<_>>().join(", "))
    };
    let is_free = counts.contains_key(&None);
    let text = counts.iter().map(of_node).collect::<Vec<_>>().join("; ");
    Ok(Some(match is_free {
        true => Observation::doubtful(
            SUBJECT,
            format!("{text}; a part that no node takes within a minute has no live node"),
        ),
        false => Observation::fine(SUBJECT, text),
    }))
}

/// A companion serves from the data directory, and not from this database.
fn served_elsewhere() -> Observation {
    Observation::doubtful(
        SUBJECT,
        "the companion that serves from this DATA_DIR has another database: what is said here is not of it; run doctor with \
         its settings",
    )
}

fn with_remedy(database: &Database, error: &DbError) -> String {
    let special = match database {
        Database::Sqlite(path) if is_read_only(path) => {
            Some("its file system is read-only: `mount` shows it, and the kernel's log may say why")
        }
        _ => engine::advice(&error.to_string()),
    };
    match (special, error) {
        (Some(remedy), _) => format!("{}; {remedy}", facts(&error.to_string())),
        (None, DbError::Unavailable(reason)) => {
            format!("{}; see that it runs, and that DATABASE_URL and DATA_DIR are right", facts(reason))
        }
        (None, DbError::Query(message)) if message.contains("permission denied") => {
            format!("{error}; its user needs SELECT, INSERT, UPDATE and DELETE on all tables")
        }
        (None, _) => error.to_string(),
    }
}

/// The text of libpq on one line, without its guesses, which are lines that begin with a tab.
fn facts(reason: &str) -> String {
    let lines = reason.lines().filter(|line| !line.starts_with('\t')).map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// True if nothing can be written to the file system of this file.
fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|file_system| file_system.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The finding about a SQLite file that is served from and must not be opened beside.
fn unsafe_to_open(path: &Path, fault: &OpenFault) -> Observation {
    let shown = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = shown.display();
    Observation::broken(
        SUBJECT,
        match fault {
            OpenFault::Replaced => format!(
                "another file took the place of {shown} while a companion serves from the one before, which is lost when it \
                 ends: do not stop it before you have saved that file: docs/alerts.md, A database file that was removed"
            ),
            OpenFault::Unseen(_) => format!(
                "a companion serves from {shown}, and nothing else can open it safely: {fault}. Restart the service: \
                 docs/alerts.md, A log of SQLite that was removed"
            ),
        },
    )
}

/// The finding about a SQLite file that is not there.
fn missing(path: &Path, data_dir: &Path) -> Observation {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let shown = absolute.display();
    // With its directory, its lock is gone too.
    if database_file::is_taken(path) || open_files::holder_of_removed(&absolute).is_some() {
        return Observation::broken(
            SUBJECT,
            format!(
                "{shown} was removed while a companion serves from it: what it stores is lost when it ends. Do not stop \
                 it before you have saved the file: docs/alerts.md, A database file that was removed"
            ),
        );
    }
    match journal::waiting(data_dir) {
        Ok(None) => {
            Observation::doubtful(SUBJECT, format!("{shown} does not exist; the first `companion serve` makes it"))
        }
        _ => Observation::broken(
            SUBJECT,
            format!(
                "{shown} does not exist, and a companion has served from this DATA_DIR: `companion serve` does not start; \
                 restore a backup, or correct DATABASE_URL"
            ),
        ),
    }
}

/// The first damage that SQLite finds in its file. PostgreSQL has `pg_amcheck` for that.
fn damage(db: &mut Db) -> Result<Option<String>, DbError> {
    #[derive(QueryableByName)]
    struct CheckedPages {
        #[diesel(sql_type = Text)]
        quick_check: String,
    }
    let Db::Sqlite(db) = db else { return Ok(None) };
    let found = sql_query("PRAGMA quick_check(1)").get_result::<CheckedPages>(db)?.quick_check;
    Ok((found != "ok").then(|| found.replace('\n', " ")))
}

/// A finding for each of the first rows that the service cannot read, and one for the rest.
fn unreadable_rows(pool: &Pool) -> Result<Vec<Observation>, DbError> {
    const REMEDY: &str = "see docs/alerts.md, CompanionRowsUnreadable";
    let (mut findings, mut count) = (Vec::new(), 0);
    for check in ROW_CHECKS {
        let mut after: Option<String> = None;
        while let Some(keys) = pool.read_blocking(|db| (check.next)(db, after.as_deref()))? {
            after = Some(keys.last.clone());
            for row in check.found(keys) {
                count += 1;
                if count <= NAMED_ROWS {
                    findings.push(Observation::broken(SUBJECT, format!("{row}; {REMEDY}")));
                }
            }
        }
    }
    if count > NAMED_ROWS {
        findings
            .push(Observation::broken(SUBJECT, format!("{} more rows cannot be read; {REMEDY}", count - NAMED_ROWS)));
    }
    Ok(findings)
}

/// Looks at the references between rows, and says how many of them take too long.
fn left_out(pool: &Pool) -> Result<Option<Observation>, DbError> {
    let mut left_out = 0;
    for reference in pool.read_blocking(row_references::all)? {
        match pool.read_blocking(|db| row_references::check(db, &reference)) {
            Err(error) if error.is_out_of_time() => left_out += 1,
            checked => checked?,
        }
    }
    Ok((left_out > 0).then(|| Observation::doubtful(SUBJECT, row_references::left_out(left_out))))
}

/// True if an upgrade may add tables.
fn may_create(db: &mut Db) -> Result<bool, DbError> {
    #[derive(QueryableByName)]
    struct SchemaRight {
        #[diesel(sql_type = Bool)]
        granted: bool,
    }
    let Db::Pg(db) = db else { return Ok(true) };
    let asked = sql_query("SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS granted");
    Ok(asked.get_result::<SchemaRight>(db)?.granted)
}

fn schema(steps: &SchemaSteps) -> Observation {
    if let Some(newer) = steps.newer() {
        return Observation::broken(SUBJECT, newer);
    }
    match steps {
        SchemaSteps { newest: None, .. } => {
            Observation::doubtful(SUBJECT, "it is empty; the first `companion serve` fills it")
        }
        SchemaSteps { pending: 1.., newest: Some(newest), .. } => Observation::doubtful(
            SUBJECT,
            format!(
                "its schema ({newest}) is {} steps older than this program, which brings it up to date at its start; \
                 take a backup before",
                steps.pending
            ),
        ),
        SchemaSteps { newest: Some(newest), .. } => {
            Observation::fine(SUBJECT, format!("its schema is up to date ({newest})"))
        }
    }
}

enum Size {
    File(FileSize),
    Server(ServerFacts),
}

fn size(db: &mut Db) -> Result<Size, DbError> {
    Ok(match db {
        Db::Sqlite(db) => Size::File(
            sql_query(
                "SELECT page_count * page_size AS bytes, freelist_count * page_size AS free \
                 FROM pragma_page_count, pragma_page_size, pragma_freelist_count",
            )
            .get_result(db)?,
        ),
        Db::Pg(db) => Size::Server(
            sql_query(
                "SELECT current_setting('server_version') AS version, current_setting('transaction_read_only') AS read_only, \
                 (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS milliseconds",
            )
            .get_result(db)?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        crypto::random::Random,
        db::{
            engine::lock_holder::{LockHold, LockSharing},
            testing,
        },
        domain::ids::PartId,
    };

    #[test]
    fn what_libpq_says_is_one_line_without_its_guesses() {
        let refused = "connection to server at \"db\", port 5432 failed: Connection refused\n\tIs the server running on that \
                       host and accepting TCP/IP connections?\n";
        assert_eq!(facts(refused), "connection to server at \"db\", port 5432 failed: Connection refused");
        assert_eq!(facts("one failed\ntwo failed\n"), "one failed; two failed");
    }

    #[test]
    fn each_node_is_named_with_the_number_of_its_parts() {
        testing::on_each_database(|pool| {
            assert!(pool.read_blocking(parts).unwrap().is_none(), "there are no nodes");
            let held = BTreeSet::from(["links:a", "links:b", "push:c"].map(PartId::from));
            let take = |db: &mut Db| {
                held_parts::note(db, &held, testing::now())?;
                held_parts::take(db, &held, &BTreeSet::new(), &"one".into(), testing::now())
            };
            pool.write_blocking(take).unwrap();
            let found = pool.read_blocking(parts).unwrap().expect("a node");
            assert_eq!(found.text, "node one has game servers: 2, push sessions: 1");
            let free = BTreeSet::from([PartId::from("sweep:billing")]);
            pool.write_blocking(|db| held_parts::note(db, &free, testing::now())).unwrap();
            let found = pool.read_blocking(parts).unwrap().expect("a node");
            assert!(found.text.starts_with("no node has sweep: 1; node one has "), "{}", found.text);
        });
    }

    #[test]
    fn parts_are_shown_while_nodes_serve() {
        let Some(postgres) = testing::Postgres::create() else { return };
        let (database, directory) = (postgres.database(), tempfile::tempdir().unwrap());
        let held = BTreeSet::from([PartId::from("links:a")]);
        let note = |db: &mut Db| held_parts::note(db, &held, testing::now());
        Pool::open(&database).unwrap().write_blocking(note).unwrap();
        let Database::Postgres(url) = &database else { panic!("it is a PostgreSQL") };
        let mut connection = engine::open_postgres(url).unwrap();
        let are_shown = |sharing| {
            let name = LockHold::new(&Random::seeded(1), sharing).name(testing::now());
            let serve = sql_query("SELECT set_config('application_name', $1, false)").bind::<Text, _>(name);
            serve.execute(&mut connection).unwrap();
            let (findings, _) = examine(&database, directory.path(), &Clock::system());
            findings.iter().any(|found| found.text.starts_with("no node has game servers: 1"))
        };
        assert_eq!([LockSharing::Alone, LockSharing::WithNodes].map(are_shown), [false, true]);
    }

    #[test]
    fn a_file_that_cannot_be_looked_at_is_not_called_missing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        // As of a directory of another user, whose right this test may have.
        let database = Database::Sqlite(file.join("companion.db"));
        let (findings, _) = examine(&database, directory.path(), &Clock::system());
        let text = &findings[0].text;
        assert!(findings.len() == 1 && text.contains("must be able to read it") && !text.contains("backup"), "{text}");
    }
}
