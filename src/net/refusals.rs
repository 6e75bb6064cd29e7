//! Refusals that an operator wants to know of: each is counted, and of each kind few lines a second are in the log, so that
//! refusals do not fill the disk.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use metrics::counter;

use crate::domain::{client_address::network, time::Moment};

/// Lines of one kind in a second.
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
pub struct RefusalLog(Mutex<HashMap<(&'static str, &'static str), Lines>>);

impl RefusalLog {
    /// Counts a refusal, and logs it unless there are too many lines of its kind. Whether it did.
    pub fn note(&self, refusal: &NotedRefusal<'_>, now: Moment) -> bool {
        let NotedRefusal { code, limit, from, method, route } = *refusal;
        let limit = limit.unwrap_or(NO_LIMIT);
        count(code, limit);
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left_out) = lines.entry((code, limit)).or_default().take(now) else { return false };
        drop(lines);
        log::warn!(code, limit, network:% = network(from), method, route, left_out; "refused");
        true
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
        let rest = std::mem::take(self);
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
    /// The second of the lines, by the steady clock.
    second: i64,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// Counts one more. `None`: it is left out; otherwise how many were since the last that was not.
    fn take(&mut self, now: Moment) -> Option<u64> {
        let second = now.steady().num_seconds();
        if second != self.second {
            (self.second, self.written) = (second, 0);
        }
        if self.written == LINES {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        Timestamp::from_timestamp(1_800_000_000 + seconds, 0).unwrap().into()
    }

    #[test]
    fn few_lines_of_a_kind_are_written_in_a_second_and_the_next_says_how_many_were_not() {
        let mut lines = Lines::default();
        let written: Vec<_> = (0..65_000).filter_map(|number| lines.take(at(number / 10_000))).collect();
        assert_eq!(written.len(), 7 * LINES as usize);
        assert_eq!(written.iter().sum::<u64>() + lines.left_out, 65_000 - written.len() as u64);
        assert_eq!(written[LINES as usize], 10_000 - u64::from(LINES));
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

    #[test]
    fn one_kind_takes_no_lines_from_another() {
        let refusals = RefusalLog::default();
        let refusal =
            |code| NotedRefusal { code, limit: None, from: [192, 0, 2, 1].into(), method: "GET", route: "/me" };
        let logged = |code| (0..LINES + 1).filter(|_| refusals.note(&refusal(code), at(0))).count();
        assert_eq!((logged("one"), logged("two")), (LINES as usize, LINES as usize));
    }
}
