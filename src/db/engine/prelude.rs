//! Diesel's prelude for queries on [`Db`](crate::db::engine::pool::Db), with [`RunQuery`] in the place of `RunQueryDsl`.
//!
//! Diesel compiles the way of each query to each engine: its text, its values, the cache of prepared statements, its form in
//! a log. [`RunQuery`] hands over a reference to any query, so that this is compiled once; with some six hundred queries it was
//! a tenth of the program. A prepared statement is found by its text instead of its type; the text is made for each query anyway.

pub use diesel::{
    expression_methods::*,
    prelude::{
        AsChangeset, BoxableExpression, Column, CombineDsl, Connection, DecoratableTarget, Expression, Identifiable,
        Insertable, IntoSql, JoinOnDsl, OptionalExtension, PgConnection, QueryDsl, QueryResult, Queryable,
        QueryableByName, Selectable, SelectableExpression, SelectableHelper, SqliteConnection, Table,
    },
};

use diesel::{
    backend::Backend,
    connection::LoadConnection,
    deserialize::FromSqlRow,
    expression::QueryMetadata,
    query_builder::{AsQuery, AstPass, Query, QueryFragment, QueryId},
    query_dsl::{CompatibleType, RunQueryDsl, methods::LimitDsl},
    result::Error,
    sql_types::Untyped,
};

/// Runs a query on either engine, or on one that it is made for, as diesel's `RunQueryDsl` does.
pub trait RunQuery<C: Connection>: RunQueryDsl<C> {
    /// Returns how many rows it changed.
    fn execute(self, db: &mut C) -> QueryResult<usize>
    where
        Self: QueryFragment<C::Backend>,
    {
        db.execute_returning_count(&AnyQuery(&self))
    }

    /// All rows.
    fn load<U>(self, db: &mut C) -> QueryResult<Vec<U>>
    where
        C: LoadConnection<Backend: QueryMetadata<Untyped>>,
        Self: AsQuery<SqlType: CompatibleType<U, C::Backend>, Query: QueryFragment<C::Backend>>,
        U: FromSqlRow<<Self::SqlType as CompatibleType<U, C::Backend>>::SqlType, C::Backend>,
    {
        let query = self.as_query();
        let rows = db.load(AnyQuery(&query))?;
        rows.map(|row| U::build_from_row(&row?).map_err(Error::DeserializationError)).collect()
    }

    /// The first of the rows, all of which the engine makes: [`Error::NotFound`] without one.
    fn get_result<U>(self, db: &mut C) -> QueryResult<U>
    where
        C: LoadConnection<Backend: QueryMetadata<Untyped>>,
        Self: AsQuery<SqlType: CompatibleType<U, C::Backend>, Query: QueryFragment<C::Backend>>,
        U: FromSqlRow<<Self::SqlType as CompatibleType<U, C::Backend>>::SqlType, C::Backend>,
    {
        let query = self.as_query();
        let row = db.load(AnyQuery(&query))?.next().ok_or(Error::NotFound)??;
        U::build_from_row(&row).map_err(Error::DeserializationError)
    }

    /// The first row, and the engine makes no other: [`Error::NotFound`] without one.
    fn first<U>(self, db: &mut C) -> QueryResult<U>
    where
        C: LoadConnection<Backend: QueryMetadata<Untyped>>,
        Self: LimitDsl<
            Output: RunQuery<C> + AsQuery<SqlType: CompatibleType<U, C::Backend>, Query: QueryFragment<C::Backend>>,
        >,
        U: FromSqlRow<<<Self::Output as AsQuery>::SqlType as CompatibleType<U, C::Backend>>::SqlType, C::Backend>,
    {
        RunQuery::get_result(self.limit(1), db)
    }
}

impl<C: Connection, T: RunQueryDsl<C>> RunQuery<C> for T {}

/// The only part of a query's way to an engine that is compiled for each query.
trait WalkQuery<DB: Backend> {
    fn walk<'b>(&'b self, pass: AstPass<'_, 'b, DB>) -> QueryResult<()>;
}

impl<DB: Backend, T: QueryFragment<DB>> WalkQuery<DB> for T {
    fn walk<'b>(&'b self, pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.walk_ast(pass)
    }
}

/// A query of any kind.
struct AnyQuery<'a, DB>(&'a dyn WalkQuery<DB>);

impl<DB: Backend> QueryFragment<DB> for AnyQuery<'_, DB> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk(pass)
    }
}

impl<DB> QueryId for AnyQuery<'_, DB> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<DB> Query for AnyQuery<'_, DB> {
    type SqlType = Untyped;
}
