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
    /// A newer program has brought the schema up to date: this one would not understand it.
    #[error("{0}")]
    NewerSchema(String),
    /// Our own code between the queries did.
    #[error("a query panicked")]
    Panicked,
}

impl DbError {
    /// Whether another transaction had a lock that this one needed. It is undone, and may go through if it is run again.
    pub fn is_lost_lock(&self) -> bool {
        const LOST: [&str; 3] =
            ["deadlock detected", "canceling statement due to lock timeout", "could not serialize access"];
        matches!(self, Self::Unavailable(message) if LOST.iter().any(|lost| message.contains(lost)))
    }
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

/// Failures that diesel does not distinguish: busy states, timeouts and deadlocks, a server that goes or comes, and a
/// machine without disk or memory. No query is at fault in any of them.
fn is_passing(message: &str) -> bool {
    const PASSING: [&str; 18] = [
        // SQLite
        "database is locked",
        "database table is locked",
        "database or disk is full",
        "disk I/O error",
        "unable to open database file",
        // PostgreSQL, and libpq
        "canceling statement due to",
        "deadlock detected",
        "terminating connection due to",
        "the database system is",
        "read-only transaction",
        "could not extend file",
        "No space left on device",
        "server closed the connection",
        "no connection to the server",
        "could not receive data",
        "could not send data",
        // Both
        "out of memory",
        "out of shared memory",
    ];
    PASSING.iter().any(|passing| message.contains(passing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_in_trouble_is_told_from_a_query_that_it_refuses() {
        let told = |message: &str| {
            let information = Box::new(message.to_owned());
            DbError::from(Error::DatabaseError(DatabaseErrorKind::Unknown, information))
        };
        for trouble in ["database or disk is full", "cannot execute INSERT in a read-only transaction"] {
            assert!(matches!(told(trouble), DbError::Unavailable(_)), "{trouble}");
        }
        assert!(matches!(told("invalid byte sequence for encoding"), DbError::Query(_)));
    }
}
