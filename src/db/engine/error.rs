//! Errors of the database, as far as a caller can distinguish them.

use diesel::result::{DatabaseErrorKind, DeserializeFieldError, Error};
use tokio::sync::Notify;

use crate::db::engine::transient_failures::is_transient_for_query;

/// A query met a row or a page that cannot be read: time to look which.
pub static MET_UNREADABLE: Notify = Notify::const_new();

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
    /// Parts of it cannot be read or written until it is repaired; others may still work.
    #[error("the database is damaged: {0}; restore a backup, see docs/alerts.md, A database that is damaged")]
    Damaged(String),
    #[error("the database refused a query: {0}")]
    Query(String),
    /// One row is at fault, not the database: a value of this column, if it is known, has another form than the program
    /// writes.
    #[error("a row cannot be read{}: `companion doctor` names it", .0.as_ref().map_or(String::new(), |column| format!(", column {column}")))]
    Malformed(Option<String>),
    /// A newer program has brought the schema up to date: this one would not understand it.
    #[error("{0}")]
    NewerSchema(String),
    /// The node that writes does so for a part that has passed to another one.
    #[error("another node has this part of the service by now")]
    Fenced,
    /// Our own code between the queries did.
    #[error("a query panicked")]
    Panicked,
}

impl DbError {
    /// A value of this column that this program does not understand.
    pub fn malformed(column: &str) -> Self {
        MET_UNREADABLE.notify_one();
        Self::Malformed(Some(column.to_owned()))
    }

    /// True if another transaction had a lock that this one needed. This one is undone, and may go through if it is run
    /// again.
    pub fn is_lost_lock(&self) -> bool {
        const LOST: [&str; 3] =
            ["deadlock detected", "canceling statement due to lock timeout", "could not serialize access"];
        matches!(self, Self::Unavailable(message) if LOST.iter().any(|lost| message.contains(lost)))
    }

    /// True if the query took longer than PostgreSQL gives one, and had waited for no lock as long.
    pub fn is_out_of_time(&self) -> bool {
        matches!(self, Self::Unavailable(message) if message.contains("due to statement timeout"))
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
                    _ if is_transient_for_query(message) => DbError::Unavailable(message.to_owned()),
                    _ if is_damage(message) => {
                        MET_UNREADABLE.notify_one();
                        DbError::Damaged(message.to_owned())
                    }
                    _ => DbError::Query(format!("{kind:?}: {message}")),
                }
            }
            Error::BrokenTransactionManager => DbError::Unavailable("the connection broke".to_owned()),
            Error::RollbackErrorOnCommit { commit_error, .. } => DbError::from(*commit_error),
            Error::DeserializationError(error) => {
                MET_UNREADABLE.notify_one();
                // Its text may have the value.
                DbError::Malformed(
                    error.downcast_ref().and_then(|field: &DeserializeFieldError| field.field_name.clone()),
                )
            }
            other => DbError::Query(other.to_string()),
        }
    }
}

/// Damage to the stored bytes, which diesel does not distinguish: SQLITE_CORRUPT and SQLITE_NOTADB, and XX001 and XX002 of
/// PostgreSQL. The query is not at fault.
fn is_damage(message: &str) -> bool {
    const DAMAGE: [&str; 15] = [
        // SQLite
        "database disk image is malformed",
        "malformed database schema",
        "file is not a database",
        // PostgreSQL
        "invalid page in block",
        "could not read block",
        "could not read blocks",
        "missing chunk number",
        "unexpected chunk",
        "compressed pglz data is corrupt",
        "contains unexpected zero page",
        "contains corrupted page",
        "is not a btree",
        "could not access status of transaction",
        "could not open file \"base/",
        "failed to re-find parent key",
    ];
    DAMAGE.iter().any(|damage| message.contains(damage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_in_trouble_is_distinguished_from_a_query_that_it_refuses() {
        let read = |message: &str| {
            let information = Box::new(message.to_owned());
            DbError::from(Error::DatabaseError(DatabaseErrorKind::Unknown, information))
        };
        for trouble in [
            "database or disk is full",
            "cannot execute INSERT in a read-only transaction",
            "could not open file \"base/16385/1259\": Read-only file system",
            "terminating connection because of crash of another server process",
        ] {
            assert!(matches!(read(trouble), DbError::Unavailable(_)), "{trouble}");
        }
        for damage in ["database disk image is malformed", "invalid page in block 3 of relation base/16384/16386"] {
            assert!(matches!(read(damage), DbError::Damaged(_)), "{damage}");
        }
        assert!(matches!(read("invalid byte sequence for encoding"), DbError::Query(_)));
        let slow = ["statement timeout", "lock timeout"].map(|reason| format!("canceling statement due to {reason}"));
        assert_eq!(slow.map(|slow| read(&slow).is_out_of_time()), [true, false]);
    }
}
