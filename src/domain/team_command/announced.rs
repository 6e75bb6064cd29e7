//! Announcements in one team: several of our users may want the same one, and it is said once.

use std::collections::VecDeque;

use chrono::TimeDelta;

use crate::domain::{ids::ServerId, time::Moment};

/// Links see the same event within this time.
const SAME: TimeDelta = TimeDelta::seconds(30);
/// Announcements remembered.
const REMEMBERED: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub struct AnnouncedLines(VecDeque<(Moment, ServerId, String)>);

impl AnnouncedLines {
    /// True unless another paired server has announced the same just now. What one announces again has happened again.
    pub fn is_first(&mut self, by: &ServerId, text: &str, now: Moment) -> bool {
        while self.0.front().is_some_and(|(at, ..)| now - *at >= SAME) {
            self.0.pop_front();
        }
        let is_first = !self.0.iter().any(|(_, known, said)| said == text && known != by);
        if is_first {
            self.0.push_back((now, by.clone(), text.to_owned()));
            if self.0.len() > REMEMBERED {
                self.0.pop_front();
            }
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    #[test]
    fn an_event_is_announced_once_and_again_when_it_happens_again() {
        let at = |seconds| Moment::from(Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds));
        let mut announced = AnnouncedLines::default();
        let mut says = |by: &str, text: &str, now| announced.is_first(&by.into(), text, at(now));
        assert!(says("alice", "Nox came online", 0) && !says("bob", "Nox came online", 2));
        assert!(says("bob", "Pip came online", 2));
        assert!(says("alice", "Nox came online", 20), "after a moment offline");
        assert!(!says("bob", "Nox came online", 49) && says("bob", "Nox came online", 50));
        assert!((0..100).all(|number| says("eve", &number.to_string(), 60)));
        assert_eq!(announced.0.len(), REMEMBERED);
    }
}
