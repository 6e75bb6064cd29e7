//! The lines that wait to be said in one team's chat, in their order and at a rate that game servers take: one queue for
//! all links to one game server in one team.

use std::collections::VecDeque;

use chrono::TimeDelta;

use crate::domain::time::Moment;

/// Time between two lines.
const PAUSE: TimeDelta = TimeDelta::seconds(2);
/// Pause after a line that the game server refused; doubled with each, up to the longest.
const REFUSED_PAUSE: TimeDelta = TimeDelta::seconds(4);
const LONGEST_PAUSE: TimeDelta = TimeDelta::seconds(30);
/// Pause after a line that was lost on its way: if the game server has taken it, a link hears it until then.
const ECHO_WITHIN: TimeDelta = TimeDelta::seconds(3);
/// A line that has waited longer is dropped: an old time of day is a wrong one.
const STALE_AFTER: TimeDelta = TimeDelta::seconds(20);
/// A reminder is of use for longer, and comes only once.
const REMINDER_STALE_AFTER: TimeDelta = TimeDelta::minutes(2);
/// Lines that wait.
const WAITING: usize = 32;

/// Purpose of a line; those above are said first, and are the last to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LineUse {
    Announcement,
    Answer,
    /// The end of a time that a player has set. No other bot makes us say it, so it is no part of a loop.
    Reminder,
    Alarm,
}

/// A line in the queue.
#[derive(Debug, PartialEq, Eq)]
pub struct WaitingLine<T> {
    pub line: T,
    pub purpose: LineUse,
    pub since: Moment,
    /// True after it was lost on its way: the game may have it.
    pub may_be_said: bool,
}

impl<T> WaitingLine<T> {
    /// True once it is too old to be said.
    pub fn is_stale(&self, now: Moment) -> bool {
        now - self.since >= if self.purpose == LineUse::Reminder { REMINDER_STALE_AFTER } else { STALE_AFTER }
    }
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum NextLine<T> {
    /// Say it, then call [`Speaker::said`], [`Speaker::refused`] or [`Speaker::lost`].
    Say(WaitingLine<T>),
    /// No line before then.
    Wait(Moment),
    /// None waits.
    Idle,
}

/// See the module. `T` is a line with its way to the game.
#[derive(Debug)]
pub struct Speaker<T> {
    waiting: VecDeque<WaitingLine<T>>,
    ready_at: Option<Moment>,
    /// The pause after the next refusal.
    refused_pause: TimeDelta,
}

impl<T> Default for Speaker<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), ready_at: None, refused_pause: REFUSED_PAUSE }
    }
}

impl<T> Speaker<T> {
    /// Adds a line behind those of its purpose. When too many wait, the newest of the least purpose is dropped.
    pub fn push(&mut self, line: T, purpose: LineUse, now: Moment) {
        let place = self.waiting.iter().position(|waiting| waiting.purpose < purpose).unwrap_or(self.waiting.len());
        self.waiting.insert(place, WaitingLine { line, purpose, since: now, may_be_said: false });
        self.waiting.truncate(WAITING);
    }

    /// The next line, if its time has come.
    pub fn next(&mut self, now: Moment) -> NextLine<T> {
        self.drop_stale(now);
        match (self.ready_at, self.waiting.is_empty()) {
            (_, true) => NextLine::Idle,
            (Some(ready_at), _) if now < ready_at => NextLine::Wait(ready_at),
            _ => self.waiting.pop_front().map_or(NextLine::Idle, NextLine::Say),
        }
    }

    /// The game server took the line, or the line went another way.
    pub fn said(&mut self, now: Moment) {
        self.ready_at = Some(now + PAUSE);
        self.refused_pause = REFUSED_PAUSE;
    }

    /// The game server takes no line now: this one waits in front of its like.
    pub fn refused(&mut self, refused: WaitingLine<T>, now: Moment) {
        self.ready_at = Some(now + self.refused_pause);
        self.refused_pause = (self.refused_pause * 2).min(LONGEST_PAUSE);
        self.push_front(refused);
    }

    /// The link ended before the game server answered: this line waits in front of its like, in case that it was not
    /// said.
    pub fn lost(&mut self, lost: WaitingLine<T>, now: Moment) {
        self.ready_at = Some(now + ECHO_WITHIN);
        self.push_front(WaitingLine { may_be_said: true, ..lost });
    }

    /// Takes the first of the lost lines for which this holds: it was said.
    pub fn take_said(&mut self, is_it: impl Fn(&WaitingLine<T>) -> bool) -> Option<WaitingLine<T>> {
        let place = self.waiting.iter().position(|waiting| waiting.may_be_said && is_it(waiting))?;
        self.waiting.remove(place)
    }

    /// True if no line waits.
    pub fn is_idle(&mut self, now: Moment) -> bool {
        self.drop_stale(now);
        self.waiting.is_empty()
    }

    fn push_front(&mut self, line: WaitingLine<T>) {
        let is_behind = |waiting: &WaitingLine<T>| waiting.purpose <= line.purpose;
        let place = self.waiting.iter().position(is_behind).unwrap_or(self.waiting.len());
        self.waiting.insert(place, line);
        self.waiting.truncate(WAITING);
    }

    fn drop_stale(&mut self, now: Moment) {
        self.waiting.retain(|waiting| !waiting.is_stale(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn at(millis: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(millis)).into()
    }

    fn pushed(lines: &[(&'static str, LineUse)]) -> Speaker<&'static str> {
        let mut speaker = Speaker::default();
        lines.iter().for_each(|(line, purpose)| speaker.push(*line, *purpose, at(0)));
        speaker
    }

    /// The lines that a game server hears that refuses those which follow within `interval`; with the times.
    fn heard(speaker: &mut Speaker<&'static str>, interval: i64, until: i64) -> Vec<(&'static str, i64)> {
        let (mut heard, mut now, mut last) = (Vec::new(), 0, i64::MIN / 2);
        while now < until {
            match speaker.next(at(now)) {
                NextLine::Say(waiting) if now - last >= interval => {
                    heard.push((waiting.line, now));
                    last = now;
                    speaker.said(at(now));
                }
                NextLine::Say(waiting) => speaker.refused(waiting, at(now)),
                NextLine::Wait(then) => now = (then - at(0)).num_milliseconds(),
                NextLine::Idle => break,
            }
        }
        heard
    }

    #[test]
    fn alarms_go_before_answers_and_these_before_announcements() {
        use LineUse::*;
        let lines = [("news", Announcement), ("first", Answer), ("raid", Alarm), ("second", Answer), ("fire", Alarm)];
        let mut speaker = pushed(&lines);
        speaker.push("timer", Reminder, at(0));
        let said = heard(&mut speaker, 0, 60_000).into_iter().map(|(line, _)| line);
        assert_eq!(said.collect::<Vec<_>>(), ["raid", "fire", "timer", "first", "second", "news"]);
    }

    #[test]
    fn old_lines_are_dropped() {
        let mut speaker = pushed(&[("old", LineUse::Answer)]);
        speaker.push("new", LineUse::Answer, at(19_000));
        let NextLine::Say(WaitingLine { line: "new", .. }) = speaker.next(at(20_000)) else { panic!() };
        assert_eq!(speaker.next(at(20_000)), NextLine::Idle);
        let mut late = pushed(&[("timer", LineUse::Reminder)]);
        assert!(!late.is_idle(at(119_999)) && late.is_idle(at(120_000)));
    }

    #[test]
    fn a_server_with_an_interval_of_its_own_is_given_time() {
        let mut speaker = pushed(&[("a", LineUse::Answer), ("b", LineUse::Answer), ("c", LineUse::Answer)]);
        // Refused after 2 s, taken 4 s later; the pause begins again then.
        assert_eq!(heard(&mut speaker, 5_000, 60_000), [("a", 0), ("b", 6_000), ("c", 12_000)]);
        let mut mute = pushed(&[("a", LineUse::Answer)]);
        assert_eq!(heard(&mut mute, i64::MAX / 2, 60_000).len(), 1, "the first is taken");
        let mut pauses = pushed(&[("a", LineUse::Answer)]);
        let mut seen = Vec::new();
        let line = || WaitingLine { line: "a", purpose: LineUse::Answer, since: at(0), may_be_said: false };
        for _ in 0..5 {
            pauses.refused(line(), at(0));
            let NextLine::Wait(then) = pauses.next(at(0)) else { panic!() };
            seen.push((then - at(0)).num_seconds());
        }
        assert_eq!(seen, [4, 8, 16, 30, 30]);
        pauses.said(at(0));
        pauses.refused(line(), at(0));
        assert_eq!(pauses.next(at(0)), NextLine::Wait(at(4_000)), "and back");
    }

    #[test]
    fn a_lost_line_is_said_again_unless_it_is_heard() {
        let losing = || {
            let mut speaker = pushed(&[("a", LineUse::Answer), ("b", LineUse::Answer)]);
            assert_eq!(speaker.take_said(|_| true), None, "none was on its way");
            let NextLine::Say(waiting) = speaker.next(at(0)) else { panic!() };
            speaker.lost(waiting, at(0));
            speaker
        };
        let mut speaker = losing();
        assert_eq!(speaker.next(at(2_999)), NextLine::Wait(at(3_000)));
        assert!(matches!(speaker.next(at(3_000)), NextLine::Say(WaitingLine { line: "a", may_be_said: true, .. })));
        let mut speaker = losing();
        assert_eq!(speaker.take_said(|waiting| waiting.line == "b"), None);
        assert!(speaker.take_said(|waiting| waiting.line == "a").is_some());
        assert!(matches!(speaker.next(at(3_000)), NextLine::Say(WaitingLine { line: "b", .. })));
        assert!(speaker.is_idle(at(3_000)));
    }

    #[test]
    fn when_too_many_wait_the_least_is_dropped() {
        let mut speaker = pushed(&[("news", LineUse::Announcement)]);
        (0..1_000).for_each(|_| speaker.push("answer", LineUse::Answer, at(0)));
        speaker.push("raid", LineUse::Alarm, at(0));
        assert_eq!(speaker.waiting.len(), WAITING);
        assert!(matches!(speaker.next(at(0)), NextLine::Say(WaitingLine { line: "raid", .. })));
        assert!(speaker.waiting.iter().all(|waiting| waiting.line == "answer"));
    }
}
