//! The move from SQLite to PostgreSQL: every row of every table, in one transaction, in bounded memory, and compared by
//! counts and digests before it is committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    path::Path,
};

use diesel::{
    PgConnection, QueryableByName, RunQueryDsl as _, SqliteConnection,
    connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager as _},
    pg::{Pg, PgRowByRowLoadingMode},
    query_builder::{BoxedSqlQuery, SqlQuery},
    sql_query,
    sql_types::{Array, BigInt, Binary, Bool, Double, Nullable, Text},
};
use secrecy::SecretString;

use self::rows::{Cell, CellKind, MovedRow, RowsDigest};
use crate::{
    clock::Clock,
    config::Database,
    db::engine::{
        self, Access,
        error::DbError,
        schema_steps,
        serving_lock::{LockState, ServingLock},
    },
};

mod rows;

/// Tables of which the first step of a database fills some.
const FILLED_AT_FIRST: [&str; 3] = ["audit_head", "edited_items_version", "program_versions"];
/// Rows, and bytes, of one statement.
const MOST_ROWS: usize = 1_000;
const MOST_BYTES: usize = 4 << 20;

/// Failure of a move.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("{place}: {cause}")]
    Database { place: String, cause: DbError },
    #[error("the target is not empty: {0} has rows. Move into an empty database")]
    NotEmpty(String),
    #[error("the target is in use: {0}")]
    Served(String),
    #[error("{0} is not the same on both sides; nothing was moved")]
    Differs(String),
}

impl MoveError {
    fn at<E: Into<DbError>>(place: &str) -> impl FnOnce(E) -> Self {
        let place = place.to_owned();
        move |cause| Self::Database { place, cause: cause.into() }
    }
}

/// Rows that were moved, by table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved(pub BTreeMap<String, u64>);

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, rows) in self.0.iter().filter(|(_, rows)| **rows > 0) {
            writeln!(f, "{rows:>10}  {table}")?;
        }
        write!(f, "{} rows of {} tables were moved and compared", self.0.values().sum::<u64>(), self.0.len())
    }
}

/// A table and its columns, in the order of their names.
struct MovedTable {
    name: String,
    columns: Vec<MovedColumn>,
}

struct MovedColumn {
    name: String,
    kind: CellKind,
}

#[derive(QueryableByName)]
struct FoundColumn {
    #[diesel(sql_type = Text)]
    table_name: String,
    #[diesel(sql_type = Text)]
    column_name: String,
    #[diesel(sql_type = Text)]
    data_type: String,
}

#[derive(QueryableByName)]
struct FoundReference {
    #[diesel(sql_type = Text)]
    from_table: String,
    #[diesel(sql_type = Text)]
    to_table: String,
}

#[derive(QueryableByName)]
struct FoundName {
    #[diesel(sql_type = Text)]
    name: String,
}

#[derive(QueryableByName)]
struct IsFilled {
    #[diesel(sql_type = Bool)]
    filled: bool,
}

/// Moves everything from the SQLite file, which no other process may write meanwhile, to a PostgreSQL that is empty.
/// Both have the steps of this program then. `moving` is called with each table before it is moved. Blocks.
pub fn move_to_postgres(
    source: &Path,
    target: &SecretString,
    clock: &Clock,
    mut moving: impl FnMut(&str),
) -> Result<Moved, MoveError> {
    let pending = schema_steps::open_existing(&Database::Sqlite(source.to_owned()));
    drop(pending.map_err(MoveError::at("the SQLite file"))?);
    let from = engine::open_sqlite(source, Access::Write);
    let mut from =
        from.map_err(|error| DbError::Unavailable(error.to_string())).map_err(MoveError::at("the SQLite file"))?;
    // No other process writes until the move is done.
    from.batch_execute("BEGIN IMMEDIATE").map_err(MoveError::at("the SQLite file"))?;

    let lock = ServingLock::ask(target, clock).map_err(MoveError::at("the target"))?;
    if let LockState::HeldBy(holder) = lock.state() {
        return Err(MoveError::Served(holder.to_string()));
    }
    schema_steps::migrate(&Database::Postgres(target.clone())).map_err(MoveError::at("the target"))?;
    let to = engine::open_postgres(target).map_err(|error| DbError::Unavailable(error.to_string()));
    let mut to = to.map_err(MoveError::at("the target"))?;
    to.batch_execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
        .map_err(MoveError::at("the target"))?;
    AnsiTransactionManager::begin_transaction(&mut to).map_err(MoveError::at("the target"))?;
    // Ending the connection undoes what is not committed.
    let moved = move_tables(&mut from, &mut to, &mut moving)?;
    AnsiTransactionManager::commit_transaction(&mut to).map_err(MoveError::at("the target"))?;
    Ok(moved)
}

fn move_tables(
    from: &mut SqliteConnection,
    to: &mut PgConnection,
    moving: &mut impl FnMut(&str),
) -> Result<Moved, MoveError> {
    let tables = tables(from, to).map_err(MoveError::at("the tables"))?;
    for table in &tables {
        let name = &table.name;
        to.batch_execute(&format!("LOCK TABLE {name} IN EXCLUSIVE MODE")).map_err(MoveError::at(name))?;
        if FILLED_AT_FIRST.contains(&name.as_str()) {
            to.batch_execute(&format!("DELETE FROM {name}")).map_err(MoveError::at(name))?;
        }
        let filled = sql_query(format!("SELECT EXISTS (SELECT 1 FROM {name}) AS filled"));
        if filled.get_result::<IsFilled>(to).map_err(MoveError::at(name))?.filled {
            return Err(MoveError::NotEmpty(name.clone()));
        }
    }
    let mut moved = Moved::default();
    for table in &tables {
        moving(&table.name);
        let sent = table.copy(from, to).map_err(MoveError::at(&table.name))?;
        let arrived = table.read_back(to).map_err(MoveError::at(&table.name))?;
        if sent != arrived {
            return Err(MoveError::Differs(table.name.clone()));
        }
        moved.0.insert(table.name.clone(), sent.rows);
    }
    Ok(moved)
}

/// All tables, those that others refer to first. Both sides must have the same.
fn tables(from: &mut SqliteConnection, to: &mut PgConnection) -> Result<Vec<MovedTable>, DbError> {
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
                 AND name NOT LIKE '\\_\\_%' ESCAPE '\\'";
    let expected: BTreeSet<String> = sql_query(names).load::<FoundName>(from)?.into_iter().map(|t| t.name).collect();
    let columns = "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
                   WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_%' ORDER BY 1, 2";
    let mut waiting: BTreeMap<String, Vec<MovedColumn>> = BTreeMap::new();
    for FoundColumn { table_name, column_name, data_type } in sql_query(columns).load(to)? {
        let kind = CellKind::of(&data_type).ok_or_else(|| {
            DbError::Query(format!("{table_name}.{column_name} is a {data_type}, which this program does not move"))
        })?;
        waiting.entry(table_name).or_default().push(MovedColumn { name: column_name, kind });
    }
    if !waiting.keys().eq(&expected) {
        return Err(DbError::Query("the target has other tables than the SQLite file".to_owned()));
    }
    let references = "SELECT conrelid::regclass::text AS from_table, confrelid::regclass::text AS to_table \
                      FROM pg_constraint WHERE contype = 'f' AND conrelid <> confrelid \
                      AND connamespace = 'public'::regnamespace";
    let references: Vec<FoundReference> = sql_query(references).load(to)?;
    let mut ordered: Vec<MovedTable> = Vec::new();
    while !waiting.is_empty() {
        let blocked: BTreeSet<&String> = references
            .iter()
            .filter(|reference| waiting.contains_key(&reference.to_table))
            .map(|reference| &reference.from_table)
            .collect();
        let (later, ready): (BTreeMap<_, _>, BTreeMap<_, _>) =
            mem::take(&mut waiting).into_iter().partition(|(name, _)| blocked.contains(name));
        if ready.is_empty() {
            return Err(DbError::Query("tables refer to one another in a circle".to_owned()));
        }
        ordered.extend(ready.into_iter().map(|(name, columns)| MovedTable { name, columns }));
        waiting = later;
    }
    Ok(ordered)
}

impl MovedTable {
    /// Sends all rows.
    fn copy(&self, from: &mut SqliteConnection, to: &mut PgConnection) -> Result<RowsDigest, DbError> {
        let names = self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
        let read = sql_query(format!("SELECT {names} FROM {}", self.name));
        let insert = self.insert(&names);
        let (mut digest, mut batch, mut bytes) = (RowsDigest::default(), self.empty_batch(), 0);
        for row in read.load_iter::<MovedRow, _>(from)? {
            let mut cells = Vec::with_capacity(self.columns.len());
            for (cell, column) in row?.0.into_iter().zip(&self.columns) {
                let stored = cell.into_kind(column.kind);
                cells.push(
                    stored.ok_or_else(|| DbError::Query(format!("{} has a value of another kind", column.name)))?,
                );
            }
            digest.add(&cells);
            bytes += cells.iter().map(Cell::bytes).sum::<usize>();
            batch.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
            if batch.first().is_some_and(|column| column.len() >= MOST_ROWS) || bytes >= MOST_BYTES {
                self.send(&insert, mem::replace(&mut batch, self.empty_batch()), to)?;
                bytes = 0;
            }
        }
        self.send(&insert, batch, to)?;
        Ok(digest)
    }

    fn empty_batch(&self) -> Vec<Vec<Cell>> {
        self.columns.iter().map(|_| Vec::new()).collect()
    }

    /// An array for each column.
    fn insert(&self, names: &str) -> String {
        let (mut arrays, mut values) = (Vec::new(), Vec::new());
        for (number, column) in self.columns.iter().enumerate() {
            arrays.push(format!("${}::{}[]", number + 1, column.kind.sent_as()));
            values.push(column.kind.stored(&format!("v{number}")));
        }
        let aliases: Vec<String> = (0..self.columns.len()).map(|number| format!("v{number}")).collect();
        format!(
            "INSERT INTO {} ({names}) SELECT {} FROM unnest({}) AS sent ({})",
            self.name,
            values.join(", "),
            arrays.join(", "),
            aliases.join(", ")
        )
    }

    fn send(&self, insert: &str, batch: Vec<Vec<Cell>>, to: &mut PgConnection) -> Result<(), DbError> {
        if batch.first().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let mut query: BoxedSqlQuery<'_, Pg, SqlQuery> = sql_query(insert).into_boxed::<Pg>();
        for (column, MovedColumn { kind, .. }) in batch.into_iter().zip(&self.columns) {
            let cells = column.into_iter();
            query = match kind {
                CellKind::Text | CellKind::Time => {
                    query.bind::<Array<Nullable<Text>>, _>(cells.map(Cell::text).collect::<Vec<_>>())
                }
                CellKind::Integer | CellKind::Flag => {
                    query.bind::<Array<Nullable<BigInt>>, _>(cells.map(Cell::integer).collect::<Vec<_>>())
                }
                CellKind::Real => query.bind::<Array<Nullable<Double>>, _>(cells.map(Cell::real).collect::<Vec<_>>()),
                CellKind::Bytes => query.bind::<Array<Nullable<Binary>>, _>(cells.map(Cell::blob).collect::<Vec<_>>()),
            };
        }
        query.execute(to)?;
        Ok(())
    }

    /// Reads all rows of the target.
    fn read_back(&self, to: &mut PgConnection) -> Result<RowsDigest, DbError> {
        let values: Vec<String> = self.columns.iter().map(|column| column.kind.read(&column.name)).collect();
        let read = sql_query(format!("SELECT {} FROM {}", values.join(", "), self.name));
        let mut digest = RowsDigest::default();
        for row in read.load_iter::<MovedRow, PgRowByRowLoadingMode>(to)? {
            digest.add(&row?.0);
        }
        Ok(digest)
    }
}
