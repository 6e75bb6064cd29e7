//! Transient failures of a database, by a part of their text: diesel, libpq and SQLite give no other sign. No query is
//! at fault in any of them.

use self::MetBy::{Both, Connecting, Query};

/// Where a failure is met.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetBy {
    Query,
    Connecting,
    Both,
}

/// The database is busy, times out, deadlocks, or its machine is without disk or memory; or it is down.
const TROUBLE: [(MetBy, &str); 25] = [
    // SQLite
    (Both, "database is locked"),
    (Query, "database table is locked"),
    (Query, "database or disk is full"),
    (Query, "disk I/O error"),
    (Query, "unable to open database file"),
    // PostgreSQL
    (Query, "canceling statement due to"),
    (Query, "deadlock detected"),
    (Query, "read-only transaction"),
    (Query, "could not extend file"),
    (Query, "No space left on device"),
    (Query, "Read-only file system"),
    // libpq
    (Both, "server closed the connection"),
    (Query, "no connection to the server"),
    (Query, "could not receive data"),
    (Query, "could not send data"),
    (Connecting, "Connection refused"),
    (Connecting, "Connection reset"),
    (Connecting, "No route to host"),
    (Connecting, "Network is unreachable"),
    (Connecting, "Is the server running"),
    (Connecting, "could not translate host name"),
    (Connecting, "timeout expired"),
    (Connecting, "timed out"),
    // SQLite and PostgreSQL
    (Query, "out of memory"),
    (Query, "out of shared memory"),
];

/// The server answers, and says that it comes, goes, or takes no connections for now.
const REFUSALS: [(MetBy, &str); 3] = [
    (Both, "the database system is"),
    (Both, "terminating connection"),
    (Connecting, "is not currently accepting connections"),
];

/// Words when no more connections are taken: by PostgreSQL in all, but for its own, or of one role or database; by PgBouncer
/// of clients, or of those that have waited for one of its pool.
pub const NO_CONNECTION_LEFT: [&str; 5] = [
    "too many clients",
    "remaining connection slots",
    "too many connections for",
    "no more connections allowed",
    "query_wait_timeout",
];

fn has(text: &str, failures: &[(MetBy, &str)], met_by: MetBy) -> bool {
    failures.iter().any(|(met, failure)| (*met == met_by || *met == Both) && text.contains(failure))
}

/// True if a query that failed with this may go through later.
pub fn is_transient_for_query(text: &str) -> bool {
    has(text, &TROUBLE, Query) || has(text, &REFUSALS, Query)
}

/// True if a connection that was not made for this reason may be made later.
pub fn is_transient_for_connection(text: &str) -> bool {
    let comes = |text: &str| {
        has(text, &REFUSALS, Connecting) || NO_CONNECTION_LEFT.iter().any(|refusal| text.contains(refusal))
    };
    // One of several addresses may have been down, while another has refused us.
    let mut refusals = text.lines().filter(|line| line.contains("FATAL:"));
    refusals.all(comes) && (has(text, &TROUBLE, Connecting) || comes(text))
}
