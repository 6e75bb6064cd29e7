//! Refusals that an operator wants to know of: each is counted, and of each kind few lines are in the log and then one a
//! minute, so that refusals do not fill the disk.

use std::{
    collections::HashMap,
    mem::take,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use metrics::counter;

use crate::domain::client_address::network;

/// Lines of one kind until a minute has passed in which none of it is left out.
const LINES: u32 = 5;
const COUNTER: &str = "companion_refusals_total";
/// The class where a refusal is not one of a limit.
const NO_LIMIT: &str = "none";

/// A request that is refused.
#[derive(Clone, Copy, Debug)]
pub struct NotedRefusal<'a> {
    /// The code of its problem.
    pub code: &'static str,
    /// The class of the limit that it passed.
    pub limit: Option<&'static str>,
    /// The client.
    pub from: IpAddr,
    pub method: &'a str,
    /// The route's pattern: what is in a path may be a secret.
    pub route: &'a str,
}

/// See the module.
#[derive(Debug, Default)]
pub struct RefusalLog(Mutex<HashMap<RefusalKind, Lines>>);

/// The code of the problem, and the class of the limit.
type RefusalKind = (&'static str, &'static str);

/// Refusals of one kind that had no line of their own.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    kind: RefusalKind,
    refusals: u64,
    /// The client of the last.
    last: IpAddr,
}

impl RefusalLog {
    /// Counts a refusal, and logs it unless there were too many lines of its kind; true if it did.
    /// [`log_left_out`](Self::log_left_out) logs how many followed.
    pub fn note(&self, refusal: &NotedRefusal<'_>) -> bool {
        let NotedRefusal { code, limit, from, method, route } = *refusal;
        let limit = limit.unwrap_or(NO_LIMIT);
        count(code, limit);
        let has_line = self.lines().entry((code, limit)).or_default().take(from);
        if has_line {
            log::warn!(code, limit, network:% = network(from), method, route; "refused");
        }
        has_line
    }

    /// One line about all refusals of each kind that have none. Called once a minute.
    pub fn log_left_out(&self) {
        for LeftOut { kind: (code, limit), refusals, last } in self.take_left_out() {
            log::warn!(code, limit, left_out = refusals, last_from:% = network(last); "requests refused");
        }
    }

    /// A kind of which none was left out since the last time has its lines again.
    fn take_left_out(&self) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        self.lines().retain(|kind, lines| {
            let last = lines.last_left_out.take();
            left_out.extend(last.map(|last| LeftOut { kind: *kind, refusals: take(&mut lines.left_out), last }));
            last.is_some()
        });
        left_out
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<RefusalKind, Lines>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The class of connections that are refused when they are accepted.
const CONNECTIONS: &str = "connections";

/// Connections that were refused since the last line about them.
#[derive(Debug, Default)]
struct RefusedConnections {
    service_full: u64,
    address_full: u64,
    /// The network of the last.
    last: Option<IpAddr>,
    /// There was a line within about a minute: the next one comes from [`log_connections`].
    logged: bool,
}

static CONNECTIONS_REFUSED: Mutex<RefusedConnections> =
    Mutex::new(RefusedConnections { service_full: 0, address_full: 0, last: None, logged: false });

/// Counts a connection that is refused before a request is read. The first one is logged at once, and [`log_connections`]
/// logs how many followed. With `full` the service has no room, otherwise this address has its share.
pub fn count_connection(code: &'static str, full: bool, from: IpAddr) {
    count(code, CONNECTIONS);
    let mut refused = CONNECTIONS_REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    refused.add(full, from);
    let first = refused.first();
    drop(refused);
    first.inspect(RefusedConnections::log);
}

/// One line about all connections that were refused since the last one, if any were. Called once a minute.
pub fn log_connections() {
    let rest = CONNECTIONS_REFUSED.lock().unwrap_or_else(PoisonError::into_inner).rest();
    rest.inspect(RefusedConnections::log);
}

impl RefusedConnections {
    fn add(&mut self, full: bool, from: IpAddr) {
        *(if full { &mut self.service_full } else { &mut self.address_full }) += 1;
        self.last = Some(from);
    }

    /// The line of the first refusal after a minute without one.
    fn first(&mut self) -> Option<Self> {
        if self.logged { None } else { self.rest() }
    }

    /// The line about all since the last one, if there were any.
    fn rest(&mut self) -> Option<Self> {
        let rest = take(self);
        self.logged = rest.last.is_some();
        self.logged.then_some(rest)
    }

    fn log(&self) {
        let Self { service_full, address_full, last: Some(last), .. } = *self else { return };
        log::warn!(service_full, address_full, last_from:% = network(last); "connections refused");
    }
}

fn count(code: &'static str, limit: &'static str) {
    counter!(COUNTER, "code" => code, "limit" => limit).increment(1);
}

/// Counts these codes from 0, and each class of limits: a rate needs the 0 before the first refusal.
pub fn describe(
    codes: &[&'static str],
    connections: &[&'static str],
    limited: &'static str,
    classes: impl Iterator<Item = &'static str>,
) {
    metrics::describe_counter!(
        COUNTER,
        "Requests that were refused, by the code of the problem and the class of the limit."
    );
    codes.iter().for_each(|code| counter!(COUNTER, "code" => *code, "limit" => NO_LIMIT).absolute(0));
    connections.iter().for_each(|code| counter!(COUNTER, "code" => *code, "limit" => CONNECTIONS).absolute(0));
    classes.for_each(|class| counter!(COUNTER, "code" => limited, "limit" => class).absolute(0));
}

/// The lines of one kind.
#[derive(Debug, Default)]
struct Lines {
    written: u32,
    left_out: u64,
    /// The client of the last that was left out.
    last_left_out: Option<IpAddr>,
}

impl Lines {
    /// Counts one more; true if it has a line.
    fn take(&mut self, from: IpAddr) -> bool {
        let has_line = self.written < LINES;
        if has_line {
            self.written += 1;
        } else {
            self.left_out += 1;
            self.last_left_out = Some(from);
        }
        has_line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses this number of requests of a kind; returns the number of lines about them.
    fn refuse(log: &RefusalLog, code: &'static str, requests: u32) -> u32 {
        let refusal = |number: u32| {
            let from = [192, 0, 2, (number % 100) as u8].into();
            NotedRefusal { code, limit: None, from, method: "GET", route: "/me" }
        };
        (1..=requests).map(|number| u32::from(log.note(&refusal(number)))).sum()
    }

    fn left_out(code: &'static str, refusals: u64, last: u8) -> LeftOut {
        LeftOut { kind: (code, NO_LIMIT), refusals, last: [192, 0, 2, last].into() }
    }

    #[test]
    fn a_kind_has_few_lines_and_then_one_a_minute_with_the_number_of_the_others() {
        let log = RefusalLog::default();
        assert_eq!(refuse(&log, "one", 7_250), LINES);
        assert_eq!(log.take_left_out(), [left_out("one", 7_245, 50)]);
        for _ in 0..3 {
            assert_eq!(refuse(&log, "one", 42), 0, "the attack goes on");
            assert_eq!(log.take_left_out(), [left_out("one", 42, 42)]);
        }
        assert!(log.take_left_out().is_empty(), "it has stopped");
        assert_eq!(refuse(&log, "one", 3), 3, "after a minute without one");
        assert!(log.take_left_out().is_empty());
    }

    #[test]
    fn one_kind_takes_no_lines_from_another() {
        let log = RefusalLog::default();
        assert_eq!((refuse(&log, "one", LINES + 1), refuse(&log, "two", LINES + 2)), (LINES, LINES));
        let mut rest = log.take_left_out();
        rest.sort_by_key(|left_out| left_out.kind);
        assert_eq!(rest, [left_out("one", 1, 6), left_out("two", 2, 7)]);
    }

    #[test]
    fn the_first_refused_connection_is_logged_at_once_and_the_rest_once_a_minute() {
        let mut refused = RefusedConnections::default();
        let refuse = |refused: &mut RefusedConnections| {
            refused.add(true, [192, 0, 2, 1].into());
            refused.first().map(|line| line.service_full)
        };
        assert_eq!([(); 3].map(|()| refuse(&mut refused)), [Some(1), None, None]);
        assert_eq!(refused.rest().map(|line| line.service_full), Some(2));
        assert_eq!(refuse(&mut refused), None, "less than a minute after a line");
        assert_eq!(refused.rest().map(|line| line.service_full), Some(1));
        assert!(refused.rest().is_none());
        assert_eq!(refuse(&mut refused), Some(1), "after a minute without one");
    }
}
