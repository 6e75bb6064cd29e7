//! Statements of queries, and the plans of the engines for them.

use std::sync::{Arc, Mutex};

use diesel::{
    Connection as _, QueryableByName,
    connection::{InstrumentationEvent, SimpleConnection as _},
    sql_query,
    sql_types::Text,
};

use crate::db::engine::{pool::Db, prelude::RunQuery as _};

#[derive(QueryableByName)]
struct PlanStep {
    #[diesel(sql_type = Text)]
    detail: String,
}

/// The statements that this makes, with places for values.
pub fn statements(db: &mut Db, make: impl FnOnce(&mut Db)) -> Vec<String> {
    let statements = Arc::new(Mutex::new(Vec::new()));
    let seen = statements.clone();
    let note = move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let query = query.to_string();
            seen.lock().unwrap().push(query.split(" -- binds").next().unwrap().to_owned());
        }
    };
    match db {
        Db::Pg(connection) => connection.set_instrumentation(note),
        Db::Sqlite(connection) => connection.set_instrumentation(note),
    }
    make(db);
    let nothing: Option<Box<dyn diesel::connection::Instrumentation>> = None;
    match db {
        Db::Pg(connection) => connection.set_instrumentation(nothing),
        Db::Sqlite(connection) => connection.set_instrumentation(nothing),
    }
    std::mem::take(&mut *statements.lock().unwrap())
}

/// Prepares [`plan`], until the end of the transaction.
pub fn prepare_plans(db: &mut Db) {
    if let Db::Pg(connection) = db {
        let prepare = "SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan; \
             CREATE OR REPLACE FUNCTION pg_temp.plan_of(statement text) RETURNS SETOF text AS $$ BEGIN \
             RETURN QUERY EXECUTE 'EXPLAIN EXECUTE ' || statement; END $$ LANGUAGE plpgsql";
        connection.batch_execute(prepare).unwrap();
    }
}

/// The engine's plan for the statement.
pub fn plan(db: &mut Db, statement: &str) -> Vec<String> {
    let steps: Vec<PlanStep> = match db {
        Db::Sqlite(connection) => sql_query(format!("EXPLAIN QUERY PLAN {statement}")).load(connection).unwrap(),
        Db::Pg(connection) => {
            let places = (1..).take_while(|place| statement.contains(&format!("${place}"))).count();
            let nulls = vec!["NULL"; places].join(", ");
            let values = if places == 0 { String::new() } else { format!("({nulls})") };
            connection.batch_execute(&format!("PREPARE statement AS {statement}")).unwrap();
            let steps = sql_query(format!("SELECT detail FROM pg_temp.plan_of('statement{values}') detail"));
            let steps = steps.load(connection).unwrap();
            connection.batch_execute("DEALLOCATE statement").unwrap();
            steps
        }
    };
    steps.into_iter().map(|step| step.detail).collect()
}
