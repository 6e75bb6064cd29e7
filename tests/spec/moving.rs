//! `companion migrate --to`: everything that an SQLite file has, in a PostgreSQL.

use std::{collections::BTreeSet, path::Path, process::Output};

use companion::{config::Database, db::engine::pool::Pool};
use diesel::connection::SimpleConnection as _;
use tempfile::TempDir;

use crate::{
    harness::{app::TestApp, binary::companion, database::Postgres},
    upgrade::{columns, connected, count, fill, migrate_to, runs_on},
};

/// A PostgreSQL and an SQLite file in a data directory, with a row in each table.
struct Move {
    postgres: Postgres,
    directory: TempDir,
    source: Database,
}

impl Move {
    fn new() -> Option<Self> {
        let (postgres, directory) = (Postgres::create()?, TempDir::new().unwrap());
        let source = Database::Sqlite(directory.path().join("companion.db"));
        drop(Pool::open(&source).unwrap());
        let mut db = connected(&source);
        fill(&mut db);
        // Values that are hard to move: all kinds of text, instants with and without fractions, numbers at their ends.
        let rows = "UPDATE users SET display_name = 'Ada \u{1f525} \"''\\\n', avatar_url = '', \
                    created_at = '2026-11-21 11:00:00.123456', last_seen_at = '2026-11-21 11:00:00.1'; \
                    UPDATE incidents SET count = 9223372036854775807; \
                    UPDATE smart_devices SET x = 0.1, y = -1e-300, last_value = 0; \
                    UPDATE paired_servers SET player_token_sealed = X'00ff5c27'";
        for row in rows.split("; ") {
            db.batch_execute(row).unwrap_or_else(|error| panic!("{row}: {error}"));
        }
        Some(Self { postgres, directory, source })
    }

    fn target(&self) -> Database {
        Database::Postgres(self.postgres.url().into())
    }

    fn run(&self) -> (Option<i32>, String) {
        exit_and_text(
            companion(self.directory.path())
                .args(["migrate", "--data-dir", ".", "--to", &self.postgres.url()])
                .output(),
        )
    }
}

fn exit_and_text(output: std::io::Result<Output>) -> (Option<i32>, String) {
    let output = output.unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Tables that are there.
fn tables(database: &Database) -> BTreeSet<String> {
    columns(&mut connected(database)).into_iter().map(|column| column.table_name).collect()
}

#[actix_web::test]
async fn a_row_of_every_table_is_moved_and_the_service_goes_on() {
    let Some(test) = Move::new() else { return };
    let (code, said) = test.run();
    assert_eq!(code, Some(0), "{said}");
    let tables = tables(&test.source);
    assert!(
        tables.len() > 50 && said.contains(&format!("of {} tables were moved and compared", tables.len())),
        "{said}"
    );
    let (mut from, mut to) = (connected(&test.source), connected(&test.target()));
    for table in &tables {
        let rows = count(&mut from, table);
        assert!(rows > 0, "{table} has a row to be moved");
        assert_eq!(count(&mut to, table), rows, "{table}");
    }
    for moved in [
        "users WHERE display_name = E'Ada \u{1f525} \"''\\\\\\n' AND avatar_url = ''",
        "users WHERE created_at = '2026-11-21 11:00:00.123456' AND last_seen_at = '2026-11-21 11:00:00.1'",
        "incidents WHERE count = 9223372036854775807",
        "smart_devices WHERE x = 0.1 AND y = -1e-300 AND NOT last_value",
        "paired_servers WHERE player_token_sealed = '\\x00ff5c27'::bytea",
    ] {
        assert_eq!(count(&mut to, moved), 1, "{moved}");
    }
    drop((from, to));
    runs_on(&test.postgres.url(), 0).await;
}

#[actix_web::test]
async fn a_target_that_has_rows_or_is_served_from_is_refused() {
    let Some(test) = Move::new() else { return };
    // Again after the first time: the target is full.
    assert_eq!(test.run().0, Some(0));
    let (code, said) = test.run();
    assert!(code == Some(1) && said.contains("the target is not empty"), "{said}");

    let Some(test) = Move::new() else { return };
    let app = TestApp::start_on(test.postgres.url(), &[]).await;
    let (code, said) = test.run();
    assert!(code == Some(1) && said.contains("the target is in use: process"), "{said}");
    app.stop().await;
    let (code, said) = test.run();
    assert!(code == Some(1) && said.contains("the target is not empty: encryption_keys has rows"), "{said}");
}

#[actix_web::test]
async fn a_source_that_is_served_from_or_older_is_refused() {
    let Some(postgres) = Postgres::create() else { return };
    let app = TestApp::start().await;
    let flags = |directory: &Path| {
        let url = format!("sqlite:{}", directory.join("test.db").display());
        vec!["--data-dir".to_owned(), directory.display().to_string(), "--database-url".to_owned(), url]
    };
    let run = |directory: &Path| {
        let mut command = companion(directory);
        exit_and_text(command.args(["migrate", "--to", &postgres.url()]).args(flags(directory)).output())
    };
    let (code, said) = run(app.directory());
    assert!(code == Some(1) && said.contains("a companion serves from DATA_DIR"), "{said}");

    let directory = TempDir::new().unwrap();
    let source = Database::Sqlite(directory.path().join("test.db"));
    std::fs::File::create(directory.path().join("test.db")).unwrap();
    migrate_to(&mut connected(&source), 20);
    let (code, said) = run(directory.path());
    assert!(code == Some(1) && said.contains("its schema is older than this program"), "{said}");
}

#[actix_web::test]
async fn a_move_that_fails_leaves_nothing_and_can_be_repeated() {
    let Some(test) = Move::new() else { return };
    // PostgreSQL has no text with a zero.
    let name = "CAST(X'410042' AS TEXT)";
    connected(&test.source).batch_execute(&format!("UPDATE users SET display_name = {name}")).unwrap();
    let (code, said) = test.run();
    assert!(code == Some(1) && said.contains("nothing was moved: users:"), "{said}");
    let filled: Vec<String> = {
        let mut to = connected(&test.target());
        tables(&test.source).into_iter().filter(|table| count(&mut to, table) > 0).collect()
    };
    assert_eq!(filled, ["audit_head", "edited_items_version", "program_versions"], "as after `companion migrate`");
    connected(&test.source).batch_execute("UPDATE users SET display_name = 'Ada'").unwrap();
    let (code, said) = test.run();
    assert_eq!(code, Some(0), "{said}");
}
