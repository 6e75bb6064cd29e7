//! Which steps of the schema a database has, for those who look at it and change nothing.

use diesel::{QueryableByName, RunQueryDsl as _, sql_query, sql_types::Text};

use crate::{
    config::Database,
    db::{
        engine,
        error::DbError,
        pool::{Db, Pool},
    },
};

/// What a database has of the steps that this program knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaSteps {
    /// The newest step that it has; none: nothing was ever kept in it.
    pub newest: Option<String>,
    /// How many steps it does not have yet.
    pub pending: usize,
    /// Steps of a newer program.
    pub unknown: Vec<String>,
}

#[derive(QueryableByName)]
struct NamedStep {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Reads them.
pub fn read(db: &mut Db) -> Result<SchemaSteps, DbError> {
    let table = match db {
        Db::Sqlite(_) => "SELECT name FROM sqlite_master WHERE name = '__diesel_schema_migrations'",
        Db::Pg(_) => "SELECT coalesce(to_regclass('__diesel_schema_migrations')::text, '') AS name",
    };
    let tables: Vec<NamedStep> = sql_query(table).load(db)?;
    let known = engine::known_steps()?;
    if tables.iter().all(|table| table.name.is_empty()) {
        return Ok(SchemaSteps { pending: known.len(), ..SchemaSteps::default() });
    }
    let applied = "SELECT version AS name FROM __diesel_schema_migrations ORDER BY version";
    let applied: Vec<NamedStep> = sql_query(applied).load(db)?;
    let mut applied: Vec<String> = applied.into_iter().map(|step| step.name).collect();
    let newest = applied.last().cloned();
    let pending = known.iter().filter(|step| !applied.contains(step)).count();
    applied.retain(|step| !known.contains(step));
    Ok(SchemaSteps { newest, pending, unknown: applied })
}

/// Opens a database that has been served from, and makes nothing where there is none. Blocks.
pub fn open_existing(database: &Database) -> Result<Pool, DbError> {
    if let Database::Sqlite(path) = database
        && !path.exists()
    {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        return Err(DbError::Unavailable(format!("{} does not exist; is DATA_DIR right?", path.display())));
    }
    let pool = Pool::open_as_it_is(database)?;
    match pool.read_blocking(read)? {
        SchemaSteps { newest: None, .. } => {
            Err(DbError::Unavailable("it is empty; `companion serve` or `companion migrate` fills it".to_owned()))
        }
        SchemaSteps { pending: 1.., .. } => Err(DbError::Unavailable(
            "its schema is older than this program; `companion migrate` brings it up to date".to_owned(),
        )),
        _ => Ok(pool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing;

    #[test]
    fn a_database_that_was_served_from_is_opened_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Database::Sqlite(directory.path().join("none.db"));
        assert!(open_existing(&missing).is_err_and(|error| error.to_string().contains("does not exist")));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let empty = directory.path().join("empty.db");
        std::fs::File::create(&empty).unwrap();
        let postgres = testing::Postgres::create();
        for empty in
            [Some(Database::Sqlite(empty)), postgres.as_ref().map(testing::Postgres::database)].iter().flatten()
        {
            let told = open_existing(empty).err().expect("it is empty").to_string();
            assert!(told.contains("it is empty"), "{told}");
            let pool = Pool::open(empty).unwrap();
            let newest = engine::known_steps().unwrap().pop();
            assert_eq!(pool.read_blocking(read).unwrap(), SchemaSteps { newest, ..SchemaSteps::default() });
            open_existing(empty).unwrap();
            let version = |sql: &'static str| pool.write_blocking(|db| Ok(sql_query(sql).execute(db)?)).unwrap();
            version("UPDATE __diesel_schema_migrations SET version = '99' WHERE version = '00000000000004'");
            let SchemaSteps { pending, unknown, .. } = pool.read_blocking(read).unwrap();
            assert_eq!((pending, unknown), (1, vec!["99".to_owned()]));
            assert!(open_existing(empty).is_err_and(|error| error.to_string().contains("companion migrate")));
        }
    }
}
