//! The team's chat: which lines are new, and how many may pass. Pure.

use std::collections::VecDeque;

use chrono::TimeDelta;

use crate::{
    domain::{
        plain_text::plain_text,
        time::{self, Moment},
    },
    game::wire::AppTeamMessage,
    relay::protocol::ChatLine,
};

/// Chat lines delivered in ten seconds; a game server that sends more loses the rest, and nobody is flooded.
const LINES: u32 = 100;
const SPAN: TimeDelta = TimeDelta::seconds(10);
/// Lines remembered, so that none is delivered twice.
const REMEMBERED: usize = 256;
/// Characters.
const AUTHOR: usize = 64;
const TEXT: usize = 256;

/// See the module.
#[derive(Default)]
pub struct TeamChat {
    /// The first history has come.
    primed: bool,
    seen: VecDeque<(u64, u32, String)>,
    window_start: Option<Moment>,
    in_window: u32,
    /// Lines that were too many and are not told yet.
    dropped: u32,
}

impl TeamChat {
    /// The game server's history, which comes after each connect. The first only shows what was said before; after a
    /// gap, what was said meanwhile is new.
    pub fn history(&mut self, mut lines: Vec<AppTeamMessage>, now: Moment) -> Vec<ChatLine> {
        lines.sort_by_key(|line| line.time);
        let first = !std::mem::replace(&mut self.primed, true);
        let new: Vec<_> = lines.into_iter().filter_map(|line| self.line(line, now)).collect();
        if first {
            // It neither counts as said now nor as dropped.
            (self.in_window, self.dropped) = (0, 0);
            return Vec::new();
        }
        new
    }

    /// A line that was just said; none if it is known, or one too many.
    pub fn line(&mut self, line: AppTeamMessage, now: Moment) -> Option<ChatLine> {
        let key = (line.steam_id, line.time, line.message.chars().take(TEXT).collect::<String>());
        if self.seen.contains(&key) {
            return None;
        }
        self.seen.push_back(key);
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
        if self.window_start.is_none_or(|start| now - start >= SPAN) {
            (self.window_start, self.in_window) = (Some(now), 0);
        }
        self.in_window += 1;
        if self.in_window > LINES {
            self.dropped += 1;
            return None;
        }
        Some(ChatLine {
            author: plain_text(&line.name, AUTHOR),
            text: plain_text(&line.message, TEXT),
            ts: time::from_unix(line.time).unwrap_or(now.stamp),
        })
    }

    /// How many lines were too many in the ten seconds that have passed, if any were; each is told once.
    pub fn take_dropped(&mut self, now: Moment) -> Option<u32> {
        let over = self.window_start.is_some_and(|start| now - start >= SPAN);
        (over && self.dropped > 0).then(|| std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    fn said(time: u32, message: &str) -> AppTeamMessage {
        AppTeamMessage { steam_id: 1, name: "Ann".into(), message: message.into(), time, ..Default::default() }
    }

    fn texts(lines: &[ChatLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn the_first_history_is_old_and_what_a_later_one_adds_is_new_in_order() {
        let mut chat = TeamChat::default();
        assert!(chat.history(vec![said(1, "a")], at(10)).is_empty());
        assert_eq!(chat.line(said(2, "b"), at(11)).map(|line| line.text), Some("b".into()));
        let later = chat.history(vec![said(4, "d"), said(3, "c"), said(1, "a"), said(2, "b")], at(90));
        assert_eq!(texts(&later), ["c", "d"]);
    }

    #[test]
    fn a_line_that_comes_again_is_one_line() {
        let mut chat = TeamChat::default();
        assert!(chat.line(said(1, "a"), at(0)).is_some());
        assert!(chat.line(said(1, "a"), at(1)).is_none());
        assert!(chat.line(said(2, "a"), at(1)).is_some(), "the same words said again");
    }

    #[test]
    fn a_flood_is_cut_and_ends_with_its_window() {
        let mut chat = TeamChat::default();
        let passed = (0..500).filter(|time| chat.line(said(*time, "x"), at(5)).is_some()).count();
        assert_eq!(passed, LINES as usize);
        assert!(chat.seen.len() <= REMEMBERED);
        assert_eq!(chat.take_dropped(at(14)), None, "more may follow");
        assert_eq!(chat.take_dropped(at(15)), Some(400));
        assert_eq!(chat.take_dropped(at(15)), None, "it is told once");
        assert!(chat.line(said(1_000, "x"), at(15)).is_some());
    }

    #[test]
    fn the_first_history_takes_no_room_from_what_is_said_next() {
        let mut chat = TeamChat::default();
        chat.history((0..LINES + 50).map(|time| said(time, "old")).collect(), at(5));
        assert!(chat.line(said(1_000, "new"), at(5)).is_some());
        assert_eq!(chat.take_dropped(at(15)), None);
    }
}
