//! Upgrades: a database of every earlier version, with a row in each of its tables, is brought up to date by a start
//! and keeps its rows, and the service runs on it. The backup from before undoes an upgrade.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use actix_web::{
    rt::{System, SystemRunner},
    web,
};
use companion::{
    config::Database,
    db::{
        audit,
        engine::{
            self, Access,
            pool::{Db, Pool},
            schema_steps,
        },
    },
};
use diesel::{
    QueryableByName, RunQueryDsl as _,
    connection::SimpleConnection as _,
    sql_query,
    sql_types::{BigInt, Bool, Text},
};
use diesel_migrations::{FileBasedMigrations, MigrationHarness as _};
use ring::digest::{SHA256, digest};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{app::TestApp, binary::companion, database::Postgres, game::ALICE};

#[derive(QueryableByName)]
pub(crate) struct Column {
    #[diesel(sql_type = Text)]
    pub table_name: String,
    #[diesel(sql_type = Text)]
    pub column_name: String,
    #[diesel(sql_type = Text)]
    data_type: String,
    #[diesel(sql_type = Bool)]
    nullable: bool,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// The columns of each table with the literal that a row has there.
pub(crate) type Rows = BTreeMap<String, Vec<(String, String)>>;

/// Brings an empty database to this number of first steps. True if there are more.
pub(crate) fn migrate_to(db: &mut Db, steps: usize) -> bool {
    let folder = |engine: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
        FileBasedMigrations::from_path(path).unwrap()
    };
    match db {
        Db::Sqlite(db) => {
            let all = db.pending_migrations(folder("sqlite")).unwrap();
            all.iter().take(steps).for_each(|step| drop(db.run_migration(step.as_ref()).unwrap()));
            all.len() > steps
        }
        Db::Pg(db) => {
            let all = db.pending_migrations(folder("postgres")).unwrap();
            all.iter().take(steps).for_each(|step| drop(db.run_migration(step.as_ref()).unwrap()));
            all.len() > steps
        }
    }
}

pub(crate) fn columns(db: &mut Db) -> Vec<Column> {
    let query = match db {
        Db::Sqlite(_) => {
            "SELECT t.name AS table_name, c.name AS column_name, c.type AS data_type, c.\"notnull\" = 0 AS nullable \
             FROM sqlite_master t, pragma_table_info(t.name) c \
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE '\\_\\_%' ESCAPE '\\'"
        }
        Db::Pg(_) => {
            "SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'YES' AS nullable \
             FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_%'"
        }
    };
    sql_query(query).load(db).unwrap()
}

pub(crate) fn count(db: &mut Db, what: &str) -> i64 {
    let counted: Count = sql_query(format!("SELECT count(*) AS count FROM {what}")).get_result(db).unwrap();
    counted.count
}

/// A value that the service could have stored there.
fn literal(column: &Column, postgres: bool) -> String {
    let Column { table_name, column_name, data_type, .. } = column;
    let text = match (table_name.as_str(), column_name.as_str()) {
        ("users", "id") | (_, "user_id" | "owner_id" | "author_id" | "blocked_user_id") => "user-1",
        ("paired_servers", "id") | (_, "server_id") => "server-1",
        ("incidents", "id") | (_, "incident" | "incident_id") => "incident-1",
        ("tracked_players", "id") | ("player_sessions", "player_id") => "tracked-1",
        ("images", "name") | (_, "image") => "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.png",
        (_, "platform_id" | "player_id") => ALICE,
        (_, "address") => "192.0.2.1",
        (_, "slug") => "raids",
        ("smart_devices", "kind") => "switch",
        ("timeline", "kind") => "cargo",
        ("timeline", "action") => "entered",
        ("alarms", "state") => "opened",
        ("incidents", "state") => "delivered",
        ("shop_watches", "state") => "ok",
        ("shop_watches", "side") => "sells",
        ("shop_watches", "direction") => "changes",
        ("payment_events", "state") => "done",
        (_, "path" | "paths") => "link",
        (_, "tier") => "SCOUT",
        (_, "status") => "ACTIVE",
        (_, "category") => "raid",
        (_, "source") => "user",
        (_, "offers" | "monuments") => "[]",
        (_, "data" | "frontmatter" | "answer" | "world") => "{}",
        _ => "text",
    };
    match (data_type.to_ascii_lowercase().as_str(), column_name.as_str()) {
        ("text", _) => format!("'{text}'"),
        ("timestamp" | "timestamp without time zone", "expires_at" | "ended_at") => "'2027-01-01 00:00:00'".to_owned(),
        ("timestamp" | "timestamp without time zone", _) => "'2026-11-21 11:00:00'".to_owned(),
        ("boolean", _) => "FALSE".to_owned(),
        ("integer", "port") => "28082".to_owned(),
        ("integer" | "bigint" | "double precision", _) => "1".to_owned(),
        ("blob" | "bytea", _) if postgres => "'\\x00'::bytea".to_owned(),
        ("blob" | "bytea", _) => "X'00'".to_owned(),
        (other, _) => panic!("{other}"),
    }
}

/// Puts a row into each table that has none; a row after those that it belongs to.
pub(crate) fn fill(db: &mut Db) -> Rows {
    let postgres = matches!(db, Db::Pg(_));
    let mut rows = Rows::new();
    for column in columns(db) {
        // The columns that may be empty and tie a row to others.
        if !column.nullable || matches!(column.column_name.as_str(), "server_id" | "incident") {
            let value = literal(&column, postgres);
            rows.entry(column.table_name).or_default().push((column.column_name, value));
        }
    }
    rows.retain(|table, _| count(db, table) == 0);
    // At first only pushes were kept there, and of these no events of the world.
    if let Some(row) = rows.get_mut("timeline").filter(|row| row.iter().all(|(column, _)| column != "action")) {
        row.iter_mut().filter(|(column, _)| column == "kind").for_each(|(_, value)| *value = "'death'".to_owned());
    }
    if let Some(row) = rows.get_mut("audit") {
        let at = "2026-11-21T11:00:00Z".parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros();
        let content = json!([1, at, "text", "text", "text", "text", "text"]);
        let hash = digest(&SHA256, format!("\n{content}").as_bytes());
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        row.iter_mut().filter(|(column, _)| column == "hash").for_each(|(_, value)| *value = format!("'{hash}'"));
        db.batch_execute(&format!("UPDATE audit_head SET id = 1, hash = '{hash}'")).unwrap();
    }
    let mut waiting: Vec<&String> = rows.keys().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut failure = None;
        waiting.retain(|table| {
            let (columns, values): (Vec<&str>, Vec<&str>) =
                rows[*table].iter().map(|(column, value)| (column.as_str(), value.as_str())).unzip();
            let insert = format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), values.join(", "));
            db.batch_execute(&insert).map_err(|error| failure = Some(format!("{insert}: {error}"))).is_err()
        });
        assert!(waiting.len() < before, "{failure:?}");
    }
    rows
}

/// Checks that each row is there with all that its table still has columns for.
fn expect(db: &mut Db, rows: &Rows, from: usize) {
    let columns = columns(db);
    for (table, row) in rows {
        let kept = row.iter().filter(|(name, _)| {
            // Stored player tokens wait to be sealed again, and are: `rotation.rs`, `bound_tokens.rs`.
            if (table.as_str(), name.as_str()) == ("paired_servers", "key_version") {
                return false;
            }
            columns.iter().any(|column| &column.table_name == table && &column.column_name == name)
        });
        let conditions: Vec<String> = kept.map(|(column, value)| format!("{column} = {value}")).collect();
        if !conditions.is_empty() {
            let row = format!("{table} WHERE {}", conditions.join(" AND "));
            assert_eq!(count(db, &row), 1, "from step {from}: {row}");
        }
    }
}

pub(crate) async fn runs_on(url: &str, from: usize) {
    let app = TestApp::start_on(url.to_owned(), &[]).await;
    let mut alice = app.signed_in(ALICE).await;
    let me = alice.get("/me").await.json();
    assert_eq!(me["id"], "user-1", "from step {from}");
    let servers = alice.get("/paired-servers").await.json();
    assert_eq!(servers["servers"][0]["id"], "server-1", "from step {from}: {servers}");
    for path in ["devices", "alarms", "chat", "shops"] {
        let answer = alice.get(&format!("/paired-servers/server-1/{path}")).await;
        assert_eq!(answer.status, 200, "from step {from}: {path}: {}", answer.text());
    }
    for path in ["timeline", "map-notes", "tracking", "shops"] {
        let answer = alice.get(&format!("/intel/server-1/{path}")).await;
        assert_eq!(answer.status, 200, "from step {from}: {path}: {}", answer.text());
    }
    assert_eq!(alice.get("/ready").await.status, 200, "from step {from}");
    app.stop().await;
}

/// Runs the program there, and gives what it says.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> String {
    let output = companion(directory).args(arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

/// A backup of an earlier version can be restored.
fn backed_up_before(url: &str) {
    let directory = TempDir::new().unwrap();
    let run = |arguments: &[&str]| run(directory.path(), arguments);
    let taken = run(&["backup", "it.tar", "--database-url", url]);
    assert!(taken.contains("missing: the image aaaa"), "the one whose row has no file: {taken}");
    run(&["restore", "--verify", "it.tar"]);
    let restored = run(&["restore", "it.tar"]);
    assert!(restored.contains("1 audit entries"), "{restored}");
}

pub(crate) fn connected(database: &Database) -> Db {
    match database {
        Database::Sqlite(path) => Db::Sqlite(engine::open_sqlite(path, Access::Write).unwrap()),
        Database::Postgres(url) => Db::Pg(engine::open_postgres(url).unwrap()),
    }
}

/// From this many steps to all of them, by a start.
async fn upgraded(database: &Database, url: &str, from: usize) {
    let mut old = connected(database);
    assert!(migrate_to(&mut old, from), "{from} are not all");
    let rows = fill(&mut old);
    drop(old);
    let steps = schema_steps::known().unwrap().len();
    if let (Database::Sqlite(_), true) = (database, from + 1 == steps) {
        backed_up_before(url);
    }
    drop(Pool::open(database).unwrap());
    let mut new = connected(database);
    expect(&mut new, &rows, from);
    audit::verify(&mut new, |_, _| ()).unwrap().unwrap();
    drop(new);
    runs_on(url, from).await;
}

/// A newer program, of this version, adds a step to the schema.
fn upgrade_beyond(database: &Database, version: &str) {
    let add = |db: &mut Db| {
        sql_query("INSERT INTO __diesel_schema_migrations (version) VALUES ('99999999999999')").execute(db)?;
        let note = format!("INSERT INTO program_versions VALUES ('{version}', '99999999999999')");
        Ok(sql_query(note).execute(db)?)
    };
    Pool::open(database).unwrap().write_blocking(add).unwrap();
}

#[actix_web::test]
async fn an_older_program_leaves_the_database_of_a_newer_one_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("test.db");
    let postgres = Postgres::create();
    let sqlite = (format!("sqlite:{}", path.display()), Database::Sqlite(path));
    let postgres = postgres.as_ref().map(|postgres| (postgres.url(), Database::Postgres(postgres.url().into())));
    for (url, database) in [Some(sqlite), postgres].into_iter().flatten() {
        upgrade_beyond(&database, "9.9.9");
        for command in ["migrate", "serve", "alarms"] {
            let run = companion(directory.path()).args([command, "--database-url", &url]).output().unwrap();
            let text = String::from_utf8(run.stderr).unwrap();
            assert!(!run.status.success(), "{command}");
            let reason = "step 99999999999999 of a newer companion, and this is";
            assert!(text.contains(reason) && text.contains("run 9.9.9"), "{command}: {text}");
        }
    }
}

#[actix_web::test]
async fn the_schema_is_not_brought_up_to_date_beneath_a_service_that_runs() {
    let directory = Arc::new(TempDir::new().unwrap());
    let path = directory.path().join("test.db");
    let postgres = Postgres::create();
    let sqlite = (format!("sqlite:{}", path.display()), Database::Sqlite(path));
    let postgres = postgres.as_ref().map(|postgres| (postgres.url(), Database::Postgres(postgres.url().into())));
    for (url, database) in [Some(sqlite), postgres].into_iter().flatten() {
        let app = TestApp::start_in(directory.clone(), url.clone(), &[]).await;
        let elsewhere = TempDir::new().unwrap();
        let migrate = async || {
            let mut command = companion(elsewhere.path());
            command.args(["migrate", "--database-url", &url]);
            let output = web::block(move || command.output().unwrap()).await.unwrap();
            (output.status.success(), String::from_utf8(output.stderr).unwrap())
        };
        let (done, text) = migrate().await;
        assert!(done, "{url}: nothing is to be done: {text}");
        // The newest step is one that the service does not know.
        let newest = schema_steps::known().unwrap().pop().unwrap();
        let forget = format!("DELETE FROM __diesel_schema_migrations WHERE version = '{newest}'");
        connected(&database).batch_execute(&forget).unwrap();
        let (done, text) = migrate().await;
        assert!(!done && text.contains("another companion serves from this database"), "{url}: {text}");
        assert_eq!(schema_steps::read(&mut connected(&database)).unwrap().pending, 1, "{url}");
        app.stop().await;
    }
}

#[test]
fn commands_on_postgres_end_well_while_their_pools_connect() {
    let Some(postgres) = Postgres::create() else { return };
    let (directory, url) = (TempDir::new().unwrap(), postgres.url());
    let run = |_| {
        let output = companion(directory.path()).args(["migrate", "--database-url", &url]).output().unwrap();
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    };
    // The others would refuse to wait for a schema that takes long.
    run(0);
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| (0..25).for_each(run)))));
}

/// Goes over all earlier versions, four at a time: these tests are the last to end.
fn for_each_earlier(upgrade: impl Fn(usize, SystemRunner) + Sync) {
    let (next, steps) = (AtomicUsize::new(1), schema_steps::known().unwrap().len());
    let work = || {
        loop {
            let from = next.fetch_add(1, Ordering::Relaxed);
            if from >= steps {
                return;
            }
            upgrade(from, System::new());
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn every_earlier_sqlite_keeps_its_rows_and_is_served() {
    for_each_earlier(|from, system| {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("test.db");
        let url = format!("sqlite:{}", path.display());
        system.block_on(upgraded(&Database::Sqlite(path), &url, from));
    });
}

#[test]
fn every_earlier_postgres_keeps_its_rows_and_is_served() {
    for_each_earlier(|from, system| {
        let Some(postgres) = Postgres::create() else { return };
        let url = postgres.url();
        system.block_on(upgraded(&Database::Postgres(url.clone().into()), &url, from));
    });
}

/// Steps that an upgrade adds, of those that a dump was taken before.
const STEPS_BACK: usize = 5;

/// Makes a database of an earlier version, with a row in each table. Gives these and how many steps it has.
fn earlier(database: &Database) -> (Rows, usize) {
    let from = schema_steps::known().unwrap().len() - STEPS_BACK;
    let mut old = connected(database);
    assert!(migrate_to(&mut old, from));
    (fill(&mut old), from)
}

/// The database is as it was in the earlier version, and the service starts on it.
async fn is_back(database: &Database, url: &str, (rows, from): &(Rows, usize)) {
    let read = schema_steps::read(&mut connected(database)).unwrap();
    assert_eq!((read.pending, read.unknown.len()), (STEPS_BACK, 0), "nothing of the newer version is left");
    drop(Pool::open(database).unwrap());
    expect(&mut connected(database), rows, *from);
    runs_on(url, *from).await;
}

#[actix_web::test]
async fn an_upgrade_of_sqlite_is_undone_with_the_backup_from_before() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("companion.db");
    let (database, url) = (Database::Sqlite(path.clone()), format!("sqlite:{}", path.display()));
    let before = earlier(&database);
    run(directory.path(), &["backup", "before.tar", "--database-url", &url]);
    drop(Pool::open(&database).unwrap());
    // The archive has what an earlier program would restore, and leave as it is.
    let mut archive = tar::Archive::new(std::fs::File::open(directory.path().join("before.tar")).unwrap());
    let mut files = archive.entries().unwrap().map(Result::unwrap);
    let mut archived = files.find(|file| file.path().unwrap().ends_with("companion.db")).expect("the database");
    let kept = directory.path().join("kept.db");
    archived.unpack(&kept).unwrap();
    is_back(&Database::Sqlite(kept.clone()), &format!("sqlite:{}", kept.display()), &before).await;
    run(directory.path(), &["restore", "before.tar", "--data-dir", "back"]);
    let restored = directory.path().join("back/companion.db");
    // `restore` of this program brings it up to date.
    assert_eq!(schema_steps::read(&mut connected(&Database::Sqlite(restored.clone()))).unwrap().pending, 0);
    expect(&mut connected(&Database::Sqlite(restored.clone())), &before.0, before.1);
    runs_on(&format!("sqlite:{}", restored.display()), before.1).await;
}

#[actix_web::test]
async fn an_upgrade_of_postgres_is_undone_with_the_dump_from_before() {
    for tool in ["pg_dump", "pg_restore", "psql"] {
        if std::process::Command::new(tool).arg("--version").output().is_err() {
            eprintln!("SKIPPED on PostgreSQL: {tool} is not installed");
            return;
        }
    }
    let (Some(postgres), Some(other)) = (Postgres::create(), Postgres::create()) else { return };
    let [(database, url), (new, new_url)] =
        [&postgres, &other].map(|postgres| (Database::Postgres(postgres.url().into()), postgres.url()));
    let before = earlier(&database);
    let directory = TempDir::new().unwrap();
    // The commands of docs/upgrading.md.
    let commands = documented();
    let [dump, back, elsewhere] = ["pg_dump ", "{ echo ", "pg_restore --exit-on-error "].map(|start| {
        commands.iter().find(|command| command.starts_with(start)).unwrap_or_else(|| panic!("{start}: {commands:?}"))
    });
    let try_shell = |command: &str, url: &str| {
        let command = command.replace("$(date +%F)", "2026-11-22");
        let mut shell = std::process::Command::new("bash");
        let shell = shell.args(["-e", "-o", "pipefail", "-c", &command]).current_dir(directory.path());
        let output = shell.env("DATABASE_URL", url).env("NEW_DATABASE_URL", &new_url).output().unwrap();
        output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let shell = |command: &str, url: &str| try_shell(command, url).unwrap_or_else(|error| panic!("{command}: {error}"));
    shell(dump, &url);
    // One that is not there, or was cut off, takes nothing away. Without `pipefail`, as people type it.
    let whole = std::fs::read(directory.path().join("companion-2026-11-22.dump")).unwrap();
    std::fs::write(directory.path().join("cut.dump"), &whole[..whole.len() * 3 / 4]).unwrap();
    for damaged in ["missing.dump", "cut.dump"] {
        let command = back.replace("companion-2026-11-22.dump", damaged);
        assert!(try_shell(&format!("set +o pipefail; {command}"), &url).is_err(), "{damaged}");
        expect(&mut connected(&database), &before.0, before.1);
    }
    // Twice: what was restored is upgraded and restored again.
    for _ in 0..2 {
        drop(Pool::open(&database).unwrap());
        shell(back, &url);
        is_back(&database, &url, &before).await;
    }
    shell(elsewhere, &url);
    is_back(&new, &new_url, &before).await;
}

/// The lines of commands for PostgreSQL in docs/upgrading.md; one that ends with a backslash goes on.
fn documented() -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/upgrading.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().replace("\\\n", ""));
    blocks.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}
