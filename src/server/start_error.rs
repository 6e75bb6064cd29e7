//! Reasons for which the service did not start.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{
    db::{
        encryption_keys::NodeKeyRefused,
        engine::{error::DbError, lock_holder::LockHolder},
        files::journal::{JOURNAL, JournalError},
    },
    uploads::ImageStoreError,
};

/// Failure of a start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("the journal of alarms: {0}")]
    Journal(#[from] JournalError),
    #[error("DATA_DIR {}: another companion serves from it", .0.display())]
    InUse(PathBuf),
    #[error("{}: another companion serves from this database", .0.display())]
    DatabaseInUse(PathBuf),
    #[error(
        "{} does not exist or is empty, and a companion has served from DATA_DIR {}: restore a backup, see \
         docs/upgrading.md, or correct DATABASE_URL or DATA_DIR. To begin with an empty database, move {} out of DATA_DIR",
        path.display(), data_dir.display(), JOURNAL
    )]
    DatabaseLost { path: PathBuf, data_dir: PathBuf },
    /// On PostgreSQL, whose lock says that no other one serves from the database.
    #[error("DATA_DIR {}: another companion has not ended yet, or serves from another database", .0.display())]
    EndsStill(PathBuf),
    #[error("{what}: {0}", what = held(.0))]
    Waits(LockHolder),
    #[error("DATA_DIR {}: {cause}", directory.display())]
    DataDir { directory: PathBuf, cause: io::Error },
    #[error(
        "CREDS_ENCRYPTION_KEY is another key than the one that sealed what is stored: none of {stored} stored secrets \
         opens. Set that key; CREDS_ENCRYPTION_KEY_PREV is for the one before a rotation. If it is lost for good, \
         CREDS_ENCRYPTION_KEY_LOST=true starts all the same, and everybody pairs and uploads again"
    )]
    WrongKey { stored: usize },
    /// On a node: one with older settings would seal with that key again.
    #[error("{0}")]
    NodeKey(#[from] NodeKeyRefused),
    #[error("outgoing connections: {0}")]
    Client(io::Error),
    #[error("{0}")]
    Images(#[from] ImageStoreError),
    #[error("{variable} {address}: {cause}")]
    Bind { variable: &'static str, address: SocketAddr, cause: io::Error },
}

fn held(holder: &LockHolder) -> &'static str {
    match holder.is_foreign() {
        true => "no companion can serve from this database",
        false => "another companion serves from this database",
    }
}
