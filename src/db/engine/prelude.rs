//! Diesel's prelude for queries on [`Db`], with [`RunQuery`] in the place of `RunQueryDsl`.
//!
//! Diesel compiles the way of each query to each engine: its text, its values, the cache of prepared statements, its form in a
//! log. [`RunQuery`] takes that way with a reference to any query, so that it is compiled once; with some six hundred queries
//! that was a sixth of the program. A prepared statement is then found by its text and not by its type, and the text
//! is made for each query anyway.

pub use diesel::{
    expression_methods::*,
    prelude::{
        AsChangeset, BoxableExpression, Column, CombineDsl, Connection, DecoratableTarget, Expression, Identifiable,
        Insertable, IntoSql, JoinOnDsl, OptionalExtension, PgConnection, QueryDsl, QueryResult, Queryable,
        QueryableByName, Selectable, SelectableExpression, SelectableHelper, SqliteConnection, Table,
    },
};

use diesel::{
    connection::LoadConnection as _,
    deserialize::FromSqlRow,
    query_builder::{AsQuery, AstPass, Query, QueryFragment, QueryId},
    query_dsl::{CompatibleType, RunQueryDsl, methods::LimitDsl},
    result::Error,
    sql_types::Untyped,
};

use crate::db::engine::pool::{Db, MultiBackend};

/// Runs a query on either engine, as diesel's `RunQueryDsl` does.
pub trait RunQuery: RunQueryDsl<Db> + Sized {
    /// Returns how many rows it changed.
    fn execute(self, db: &mut Db) -> QueryResult<usize>
    where
        Self: QueryFragment<MultiBackend>,
    {
        db.execute_returning_count(&AnyQuery(&self))
    }

    /// All rows.
    fn load<U>(self, db: &mut Db) -> QueryResult<Vec<U>>
    where
        Self: AsQuery<SqlType: CompatibleType<U, MultiBackend>, Query: QueryFragment<MultiBackend>>,
        U: FromSqlRow<<Self::SqlType as CompatibleType<U, MultiBackend>>::SqlType, MultiBackend>,
    {
        let query = self.as_query();
        let rows = db.load(AnyQuery(&query))?;
        rows.map(|row| U::build_from_row(&row?).map_err(Error::DeserializationError)).collect()
    }

    /// The first of the rows, all of which the engine makes: [`Error::NotFound`] without one.
    fn get_result<U>(self, db: &mut Db) -> QueryResult<U>
    where
        Self: AsQuery<SqlType: CompatibleType<U, MultiBackend>, Query: QueryFragment<MultiBackend>>,
        U: FromSqlRow<<Self::SqlType as CompatibleType<U, MultiBackend>>::SqlType, MultiBackend>,
    {
        let query = self.as_query();
        let row = db.load(AnyQuery(&query))?.next().ok_or(Error::NotFound)??;
        U::build_from_row(&row).map_err(Error::DeserializationError)
    }

    /// The first row, and the engine makes no other: [`Error::NotFound`] without one.
    fn first<U>(self, db: &mut Db) -> QueryResult<U>
    where
        Self: LimitDsl<
            Output: RunQuery + AsQuery<SqlType: CompatibleType<U, MultiBackend>, Query: QueryFragment<MultiBackend>>,
        >,
        U: FromSqlRow<<<Self::Output as AsQuery>::SqlType as CompatibleType<U, MultiBackend>>::SqlType, MultiBackend>,
    {
        self.limit(1).get_result(db)
    }
}

impl<T: RunQueryDsl<Db>> RunQuery for T {}

/// A query of any kind.
struct AnyQuery<'a>(&'a dyn QueryFragment<MultiBackend>);

impl QueryFragment<MultiBackend> for AnyQuery<'_> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, MultiBackend>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }
}

impl QueryId for AnyQuery<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for AnyQuery<'_> {
    type SqlType = Untyped;
}
