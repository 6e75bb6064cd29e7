//! Lines that the links to one game server have heard: several links bring the same one, and it is handled once.

use std::collections::VecDeque;

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// A line is remembered for this time.
const REMEMBERED_FOR: TimeDelta = TimeDelta::seconds(60);
/// Lines remembered; more than the teams of one game server say in that time.
const REMEMBERED: usize = 2_048;

/// See the module.
#[derive(Debug, Default)]
pub struct HeardLines(VecDeque<(Moment, String)>);

impl HeardLines {
    /// True for the first link that brings the line with this id.
    pub fn is_first(&mut self, id: &str, now: Moment) -> bool {
        self.forget(now);
        let is_first = !self.0.iter().any(|(_, known)| known == id);
        if is_first {
            self.0.push_back((now, id.to_owned()));
            if self.0.len() > REMEMBERED {
                self.0.pop_front();
            }
        }
        is_first
    }

    /// True if none is remembered.
    pub fn is_empty(&mut self, now: Moment) -> bool {
        self.forget(now);
        self.0.is_empty()
    }

    fn forget(&mut self, now: Moment) {
        while self.0.front().is_some_and(|(at, _)| now - *at >= REMEMBERED_FOR) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn at(millis: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(millis)).into()
    }

    #[test]
    fn a_line_is_handled_once_however_many_links_bring_it() {
        let mut lines = HeardLines::default();
        assert!(lines.is_first("a", at(0)) && !lines.is_first("a", at(59_000)) && lines.is_first("b", at(1_000)));
        assert!((0..10_000).all(|number| lines.is_first(&number.to_string(), at(2_000))));
        assert_eq!(lines.0.len(), REMEMBERED);
        assert!(!lines.is_empty(at(61_999)) && lines.is_empty(at(62_000)));
    }
}
