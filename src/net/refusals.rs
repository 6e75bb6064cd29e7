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
}

static CONNECTIONS_REFUSED: Mutex<RefusedConnections> =
    Mutex::new(RefusedConnections { service_full: 0, address_full: 0, last: None });

/// Counts a connection that is refused before a request is read; [`log_connections`] says how many were. With `full` the
/// service has no room, otherwise this address has its share.
pub fn count_connection(code: &'static str, full: bool, from: IpAddr) {
    count(code, CONNECTIONS);
    let mut refused = CONNECTIONS_REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    *(if full { &mut refused.service_full } else { &mut refused.address_full }) += 1;
    refused.last = Some(from);
}

/// One line about all connections that were refused since the last one, if any were. Called once a minute.
pub fn log_connections() {
    let mut refused = CONNECTIONS_REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let RefusedConnections { service_full, address_full, last } = std::mem::take(&mut *refused);
    drop(refused);
    if let Some(last) = last {
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
    use chrono::DateTime;

    use super::*;

    fn at(seconds: i64) -> Moment {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap().into()
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
    fn one_kind_takes_no_lines_from_another() {
        let refusals = RefusalLog::default();
        let refusal =
            |code| NotedRefusal { code, limit: None, from: [192, 0, 2, 1].into(), method: "GET", route: "/me" };
        let logged = |code| (0..LINES + 1).filter(|_| refusals.note(&refusal(code), at(0))).count();
        assert_eq!((logged("one"), logged("two")), (LINES as usize, LINES as usize));
    }
}
