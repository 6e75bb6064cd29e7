//! Reasons against a backup, or against its restoration.

use std::{fmt::Display, io, path::PathBuf};

use crate::{
    config::InvalidSettings,
    db::{
        engine::{EngineError, error::DbError},
        files::{
            erasure_list::ERASURES,
            journal::{JOURNAL, REFUSED},
        },
    },
    domain::plain_text::escaped,
};

/// Failure of a backup or of its restoration.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("the settings are not valid:\n{0}")]
    Settings(#[from] InvalidSettings),
    #[error(
        "DATABASE_URL is a PostgreSQL, which has tools of its own: `pg_dump --format=custom` and `pg_restore`. Also keep \
         {JOURNAL}, {REFUSED}, {ERASURES} and images/ of DATA_DIR ({}), and the secrets (docs/upgrading.md)", .0.display()
    )]
    Postgres(PathBuf),
    // The text quotes the archive, which anybody may have written.
    #[error("the database: {}", escaped(&.0.to_string()))]
    Database(#[from] DbError),
    #[error("the backup is damaged: {}", escaped(.0))]
    Damaged(String),
    #[error("{}", escaped(.0))]
    Refused(String),
    #[error("the bucket: {0}")]
    Bucket(#[from] object_store::Error),
    #[error("{}: {cause}", escaped(what))]
    Io { what: String, cause: io::Error },
}

impl BackupError {
    /// For `map_err`: names the file or step of an I/O error.
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
