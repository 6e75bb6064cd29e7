//! Why there is no backup, or why it is not restored.

use std::{fmt::Display, io, path::PathBuf};

use crate::{
    config::InvalidSettings,
    db::{
        engine::EngineError,
        error::DbError,
        journal::{JOURNAL, REFUSED},
    },
};

/// Why there is no backup, or why it is not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("the settings are not valid:\n{0}")]
    Settings(#[from] InvalidSettings),
    #[error(
        "DATABASE_URL is a PostgreSQL, which has tools of its own: `pg_dump --format=custom` and `pg_restore`. Also keep \
         {JOURNAL}, {REFUSED} and images/ of DATA_DIR ({}), and the secrets (docs/upgrading.md)", .0.display()
    )]
    Postgres(PathBuf),
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    #[error("{0}")]
    Refused(String),
    #[error("{what}: {cause}")]
    Io { what: String, cause: io::Error },
}

impl BackupError {
    pub fn io(what: impl Display) -> impl FnOnce(io::Error) -> Self {
        let what = what.to_string();
        move |cause| Self::Io { what, cause }
    }
}

impl From<EngineError> for BackupError {
    fn from(error: EngineError) -> Self {
        Self::Database(DbError::Unavailable(error.to_string()))
    }
}
