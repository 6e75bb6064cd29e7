//! Lines that the links to one game server have heard: several links bring the same one, and it is handled once.

use std::collections::VecDeque;

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// A line is remembered for this time.
const REMEMBERED_FOR: TimeDelta = TimeDelta::seconds(60);
/// Lines remembered; more than the teams of one game server say in that time.
const REMEMBERED: usize = 2_048;

#[derive(Debug)]
struct HeardLine {
    id: String,
    at: Moment,
    /// A link understood it as a command.
    is_understood: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct HeardLines(VecDeque<HeardLine>);

impl HeardLines {
    /// True for the first link that brings the line with this id, and for the first that understands it: a link that
    /// still learns its words is later than the others.
    pub fn is_first(&mut self, id: &str, is_understood: bool, now: Moment) -> bool {
        self.forget(now);
        if let Some(known) = self.0.iter_mut().find(|known| known.id == id) {
            let is_first = is_understood && !known.is_understood;
            known.is_understood |= is_understood;
            return is_first;
        }
        self.0.push_back(HeardLine { id: id.to_owned(), at: now, is_understood });
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
        true
    }

    /// True if none is remembered.
    pub fn is_empty(&mut self, now: Moment) -> bool {
        self.forget(now);
        self.0.is_empty()
    }

    fn forget(&mut self, now: Moment) {
        while self.0.front().is_some_and(|line| now - line.at >= REMEMBERED_FOR) {
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
        let mut is_first = |id: &str, millis| lines.is_first(id, true, at(millis));
        assert!(is_first("a", 0) && !is_first("a", 59_000) && is_first("b", 1_000));
        assert!((0..10_000).all(|number| is_first(&number.to_string(), 2_000)));
        assert_eq!(lines.0.len(), REMEMBERED);
        assert!(!lines.is_empty(at(61_999)) && lines.is_empty(at(62_000)));
    }

    #[test]
    fn a_line_that_no_link_understood_waits_for_one_that_does() {
        let mut lines = HeardLines::default();
        let handled = [false, false, true, true, false].map(|is_understood| lines.is_first("a", is_understood, at(0)));
        assert_eq!(handled, [true, false, true, false, false]);
    }
}
