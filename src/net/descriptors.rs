//! The process's limit of open files, and how many of them clients may take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files beside those of connections: the database, the log, listeners, lookups of names.
const OWN: usize = 64;
/// Open files of one worker thread of both listeners, with connections that are accepted only to be refused.
const PER_WORKER: usize = 16;
/// Clients may have three parts in four of the rest: game links and push sessions need a descriptor each.
const PARTS: (usize, usize) = (3, 4);
/// Even a process that is short of descriptors serves this many.
const LEAST: usize = 16;

/// Raises the limit of open files as far as the system allows; what it then is.
pub fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            log::warn!("the limit of open files stays as it is: {error}");
        }
    }
    self::limit()
}

/// The limit of open files now.
pub fn limit() -> usize {
    // No number means no limit.
    getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Number of connections that clients may have at once within this limit of open files.
pub fn for_clients(limit: usize, workers: usize) -> usize {
    let rest = limit.saturating_sub(own(workers));
    (rest / PARTS.1 * PARTS.0).max(LEAST)
}

/// The limit of open files that this many connections of clients need.
pub fn limit_for(clients: usize, workers: usize) -> usize {
    clients.div_ceil(PARTS.0).saturating_mul(PARTS.1).saturating_add(own(workers))
}

fn own(workers: usize) -> usize {
    OWN + PER_WORKER * workers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_descriptors_for_everything_else() {
        assert_eq!(for_clients(256, 2), 120);
        assert_eq!(for_clients(20_000, 2), 14_928);
        assert_eq!(for_clients(10, 2), LEAST);
        for clients in [100, 1_024, 50_001] {
            assert!(for_clients(limit_for(clients, 8), 8) >= clients);
        }
    }

    #[test]
    fn the_limit_is_raised_to_what_the_system_allows() {
        let limit = raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
        assert!(limit > 0);
    }
}
