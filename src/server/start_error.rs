//! Why the service did not start.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{
    db::{error::DbError, journal::JournalError},
    uploads::ImageStoreError,
};

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the database: {0}")]
    Database(#[from] DbError),
    #[error("the journal of alarms: {0}")]
    Journal(#[from] JournalError),
    #[error("DATA_DIR {}: another companion serves from it", .0.display())]
    InUse(PathBuf),
    #[error("DATA_DIR {}: {cause}", directory.display())]
    DataDir { directory: PathBuf, cause: io::Error },
    #[error("outgoing connections: {0}")]
    Client(io::Error),
    #[error("{0}")]
    Images(#[from] ImageStoreError),
    #[error("{variable} {address}: {cause}")]
    Bind { variable: &'static str, address: SocketAddr, cause: io::Error },
}
