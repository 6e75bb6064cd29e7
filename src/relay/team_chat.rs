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

/// Chat lines delivered in any ten seconds; a game server that sends more loses the rest, and nobody is flooded.
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
}

impl TeamChat {
    /// The game server's history, which comes after each connect. The first only shows what was said before; after a
    /// gap, what was said meanwhile is new.
    pub fn history(&mut self, mut lines: Vec<AppTeamMessage>, now: Moment) -> Vec<ChatLine> {
        lines.sort_by_key(|line| line.time);
        let first = !std::mem::replace(&mut self.primed, true);
        let new: Vec<_> = lines.into_iter().filter_map(|line| self.line(line, now)).collect();
        if first { Vec::new() } else { new }
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
        (self.in_window <= LINES).then(|| ChatLine {
            author: plain_text(&line.name, AUTHOR),
            text: plain_text(&line.message, TEXT),
            ts: time::from_unix(line.time).unwrap_or(now.stamp),
        })
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
        assert!(chat.line(said(1_000, "x"), at(15)).is_some());
    }
}
