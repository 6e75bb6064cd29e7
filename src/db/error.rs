//! Errors of the database, as far as a caller can distinguish them.

use diesel::result::{DatabaseErrorKind, Error};

/// The texts are for the log: they name tables and constraints, never a stored or bound value.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error("no such row")]
    NotFound,
    /// A unique or foreign key forbids it.
    #[error("the row contradicts another one")]
    Conflict,
    /// Worth another attempt later.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    #[error("the database refused a query: {0}")]
    Query(String),
}

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        use DatabaseErrorKind as Kind;
        match error {
            Error::NotFound => DbError::NotFound,
            Error::DatabaseError(Kind::UniqueViolation | Kind::ForeignKeyViolation, _) => DbError::Conflict,
            // The primary message only: PostgreSQL puts values into its detail and hint.
            Error::DatabaseError(kind, information) => {
                let message = information.message();
                match kind {
                    Kind::SerializationFailure | Kind::UnableToSendCommand | Kind::ClosedConnection => {
                        DbError::Unavailable(message.to_owned())
                    }
                    _ if is_passing(message) => DbError::Unavailable(message.to_owned()),
                    _ => DbError::Query(format!("{kind:?}: {message}")),
                }
            }
            Error::BrokenTransactionManager => DbError::Unavailable("the connection broke".to_owned()),
            Error::RollbackErrorOnCommit { commit_error, .. } => DbError::from(*commit_error),
            Error::DeserializationError(_) => DbError::Query("a stored value has an unexpected form".to_owned()),
            other => DbError::Query(other.to_string()),
        }
    }
}

/// Failures that diesel does not distinguish: SQLite's busy states, and PostgreSQL's timeouts, deadlocks and shutdown.
fn is_passing(message: &str) -> bool {
    const PASSING: [&str; 6] = [
        "database is locked",
        "database table is locked",
        "canceling statement due to",
        "deadlock detected",
        "terminating connection due to",
        "server closed the connection",
    ];
    PASSING.iter().any(|passing| message.contains(passing))
}
