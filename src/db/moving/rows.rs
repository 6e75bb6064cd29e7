//! Rows of any table, as both engines store them.

use chrono::NaiveDateTime;
use diesel::{
    QueryableByName,
    backend::Backend,
    deserialize::{self, FromSql},
    pg::{Pg, PgValue},
    row::{Field as _, NamedRow, Row},
    sql_types::{BigInt, Binary, Double, Text},
    sqlite::{Sqlite, SqliteType, SqliteValue},
};
use ring::digest::{SHA256, digest};

/// The form in which an instant is sent and compared.
const TIME: &str = "%Y-%m-%d %H:%M:%S%.6f";

/// The kind of a stored value, whatever the engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    Text,
    Integer,
    Real,
    Bytes,
    Flag,
    Time,
}

impl CellKind {
    /// The kind of a type of PostgreSQL.
    pub fn of(data_type: &str) -> Option<Self> {
        Some(match data_type {
            "text" => Self::Text,
            "integer" | "bigint" => Self::Integer,
            "double precision" => Self::Real,
            "bytea" => Self::Bytes,
            "boolean" => Self::Flag,
            "timestamp without time zone" => Self::Time,
            _ => return None,
        })
    }

    /// The type in which PostgreSQL gets it.
    pub fn sent_as(self) -> &'static str {
        match self {
            Self::Text | Self::Time => "text",
            Self::Integer | Self::Flag => "bigint",
            Self::Real => "double precision",
            Self::Bytes => "bytea",
        }
    }

    /// The expression by which PostgreSQL stores one that was sent. A larger integer becomes a smaller one by itself.
    pub fn stored(self, value: &str) -> String {
        match self {
            Self::Flag => format!("{value} <> 0"),
            Self::Time => format!("{value}::timestamp"),
            _ => value.to_owned(),
        }
    }

    /// The expression by which PostgreSQL gives a stored one as it was sent.
    pub fn read(self, column: &str) -> String {
        match self {
            Self::Text | Self::Real | Self::Bytes => column.to_owned(),
            Self::Integer => format!("{column}::bigint"),
            Self::Flag => format!("{column}::integer::bigint"),
            Self::Time => format!("to_char({column}, 'YYYY-MM-DD HH24:MI:SS.US')"),
        }
    }
}

/// A stored value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    /// As a value of this kind, if it is one. SQLite may have an integer where it has no fraction to keep.
    pub fn into_kind(self, kind: CellKind) -> Option<Self> {
        match (kind, self) {
            (_, Self::Null) => Some(Self::Null),
            (CellKind::Text, text @ Self::Text(_)) => Some(text),
            (CellKind::Integer | CellKind::Flag, integer @ Self::Integer(_)) => Some(integer),
            (CellKind::Real, real @ Self::Real(_)) => Some(real),
            (CellKind::Real, Self::Integer(integer)) => Some(Self::Real(integer as f64)),
            (CellKind::Bytes, bytes @ Self::Bytes(_)) => Some(bytes),
            (CellKind::Time, Self::Text(text)) => Some(Self::Text(parsed_time(&text)?.format(TIME).to_string())),
            _ => None,
        }
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Null | Self::Integer(_) | Self::Real(_) => 8,
        }
    }

    pub(crate) fn text(self) -> Option<String> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn integer(self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(integer) } else { None }
    }

    pub(crate) fn real(self) -> Option<f64> {
        if let Self::Real(real) = self { Some(real) } else { None }
    }

    pub(crate) fn blob(self) -> Option<Vec<u8>> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// Adds it to what a digest is made of, so that no two rows look alike.
    fn write(&self, to: &mut Vec<u8>) {
        let (tag, bytes): (u8, &[u8]) = match self {
            Self::Null => (0, &[]),
            Self::Integer(integer) => (1, &integer.to_be_bytes()),
            Self::Real(real) => (2, &real.to_bits().to_be_bytes()),
            Self::Text(text) => (3, text.as_bytes()),
            Self::Bytes(bytes) => (4, bytes),
        };
        to.push(tag);
        to.extend((bytes.len() as u64).to_be_bytes());
        to.extend(bytes);
    }
}

/// The forms in which SQLite has instants: those of diesel, and those of steps of the schema.
fn parsed_time(text: &str) -> Option<NaiveDateTime> {
    ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"]
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
}

/// Says whether rows are the same, in whatever order they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsDigest {
    pub rows: u64,
    /// The sum of the digests of the rows.
    sum: u128,
}

impl RowsDigest {
    /// Adds a row; their order does not matter.
    pub fn add(&mut self, row: &[Cell]) {
        let mut bytes = Vec::new();
        row.iter().for_each(|cell| cell.write(&mut bytes));
        let mut half = [0; 16];
        half.copy_from_slice(&digest(&SHA256, &bytes).as_ref()[..16]);
        self.sum = self.sum.wrapping_add(u128::from_be_bytes(half));
        self.rows += 1;
    }
}

/// A row of any table.
pub struct MovedRow(pub Vec<Cell>);

impl QueryableByName<Sqlite> for MovedRow {
    fn build<'a>(row: &impl NamedRow<'a, Sqlite>) -> deserialize::Result<Self> {
        cells(row, sqlite_cell)
    }
}

impl QueryableByName<Pg> for MovedRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        cells(row, postgres_cell)
    }
}

fn cells<'a, DB: Backend>(
    row: &impl NamedRow<'a, DB>,
    read: impl Fn(DB::RawValue<'_>) -> deserialize::Result<Cell>,
) -> deserialize::Result<MovedRow> {
    let cell = |number: usize| {
        let field = Row::get(row, number).ok_or("a column is missing")?;
        field.value().map_or(Ok(Cell::Null), &read)
    };
    Ok(MovedRow((0..row.field_count()).map(cell).collect::<deserialize::Result<_>>()?))
}

fn sqlite_cell(value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Cell> {
    Ok(match value.value_type() {
        None => Cell::Null,
        Some(SqliteType::Binary) => Cell::Bytes(FromSql::<Binary, Sqlite>::from_sql(value)?),
        Some(SqliteType::Text) => Cell::Text(FromSql::<Text, Sqlite>::from_sql(value)?),
        Some(SqliteType::Float | SqliteType::Double) => Cell::Real(FromSql::<Double, Sqlite>::from_sql(value)?),
        Some(SqliteType::SmallInt | SqliteType::Integer | SqliteType::Long) => {
            Cell::Integer(FromSql::<BigInt, Sqlite>::from_sql(value)?)
        }
    })
}

/// One of the types in which values are read back.
fn postgres_cell(value: PgValue<'_>) -> deserialize::Result<Cell> {
    Ok(match value.get_oid().get() {
        20 => Cell::Integer(FromSql::<BigInt, Pg>::from_sql(value)?),
        701 => Cell::Real(FromSql::<Double, Pg>::from_sql(value)?),
        17 => Cell::Bytes(FromSql::<Binary, Pg>::from_sql(value)?),
        _ => Cell::Text(FromSql::<Text, Pg>::from_sql(value)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sqlite_has_becomes_what_postgres_stores() {
        let time = |text: &str| Cell::Text(text.to_owned()).into_kind(CellKind::Time);
        let stored = Some(Cell::Text("2026-11-21 11:00:00.120000".to_owned()));
        assert_eq!(time("2026-11-21 11:00:00.12"), stored);
        assert_eq!(time("2026-11-21T11:00:00.120"), stored);
        assert_eq!(time("soon"), None);
        assert_eq!(Cell::Integer(2).into_kind(CellKind::Real), Some(Cell::Real(2.0)));
        assert_eq!(Cell::Text("2".into()).into_kind(CellKind::Integer), None);
        assert_eq!(Cell::Null.into_kind(CellKind::Bytes), Some(Cell::Null));
    }

    #[test]
    fn a_digest_is_of_the_rows_and_not_of_their_order() {
        let digest = |rows: &[&[Cell]]| {
            let mut digest = RowsDigest::default();
            rows.iter().for_each(|row| digest.add(row));
            digest
        };
        let (one, two) = ([Cell::Text("a".into()), Cell::Null], [Cell::Text("b".into()), Cell::Integer(0)]);
        assert_eq!(digest(&[&one, &two]), digest(&[&two, &one]));
        assert_ne!(digest(&[&one, &one]), digest(&[&two, &two]));
        let shifted = [Cell::Text(String::new()), Cell::Text("a".into())];
        assert_ne!(digest(&[&shifted]), digest(&[&[Cell::Text("a".into()), Cell::Text(String::new())]]));
    }
}
