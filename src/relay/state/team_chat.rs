//! The team's chat: which lines are new, under which id each is kept, and how many may pass. Pure.

use std::collections::{HashMap, VecDeque};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::{
    crypto::digest::sha256_hex,
    domain::{
        chat::{ChatLine, StoredLine},
        plain_text::plain_text,
        time::{Moment, Timestamp},
    },
    game::wire::AppTeamMessage,
};

/// Chat lines delivered in ten seconds; a game server that sends more loses the rest, and no one is flooded.
const LINES: u32 = 100;
const SPAN: TimeDelta = TimeDelta::seconds(10);
/// A line that came this many seconds later than others was said while the game server stood still.
const LATE: i64 = 10;
/// Lines remembered, so that none is delivered twice.
const REMEMBERED: usize = 256;
/// Characters.
const AUTHOR: usize = 64;
const TEXT: usize = 256;
/// Characters of an id.
const ID: usize = 32;

/// A line of the team's chat that was not heard before.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedLine {
    pub stored: StoredLine,
    /// SteamID64 of who said it.
    pub author: u64,
    /// The line was said while we listened, or while we could not; not before.
    pub is_news: bool,
    /// True if it came as it was said, and neither in a history nor late.
    pub is_live: bool,
}

/// The lines of one player, one second and the same words: the game does not distinguish them.
#[derive(Clone, Serialize, Deserialize)]
struct EqualLines {
    /// Id of the first of them.
    id: String,
    /// The second in which they were said.
    time: u32,
    count: u32,
    /// Number of them that were only in a history, and may still come as broadcasts.
    expected: u32,
    /// Number of them that came over the link before, and may come over this one, too.
    repeats: u32,
}

/// See the module. As it is handed over, it has the lines that were heard; how quickly they came is of one process.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct TeamChat {
    /// The first history of this team has come.
    primed: bool,
    seen: VecDeque<EqualLines>,
    /// The second of the newest line that was seen and is no longer remembered.
    forgotten: u32,
    /// The second of the last line, and how many were before it in that second: the game gives no finer order.
    last: (u32, u32),
    /// The line of this link that came soonest after it was said, by the game server's clock: that may be minutes off.
    #[serde(skip)]
    soonest: Option<(Moment, u32)>,
    #[serde(skip)]
    window_start: Option<Moment>,
    #[serde(skip)]
    in_window: u32,
    /// Lines that were too many and are not reported yet.
    #[serde(skip)]
    dropped: u32,
}

/// A text as it is shown, and as its echo from the game will be.
pub fn shown_text(text: &str) -> String {
    plain_text(text, TEXT)
}

/// Id of a line: always the same, also after a restart.
fn id(line: &AppTeamMessage) -> String {
    let text: String = line.message.chars().take(TEXT).collect();
    sha256_hex(format!("{} {} {text}", line.steam_id, line.time).as_bytes())[..ID].to_owned()
}

/// The id of the line that is the `number`th of its kind in one second; `first` is the id of the first.
fn numbered(first: String, number: u32) -> String {
    match number {
        1 => first,
        _ => sha256_hex(format!("{first} {number}").as_bytes())[..ID].to_owned(),
    }
}

impl TeamChat {
    /// The game server's history, which comes after each connect. The first only shows what was said before; after a
    /// gap, what was said meanwhile is new.
    pub fn history(&mut self, mut lines: Vec<AppTeamMessage>, now: Moment) -> Vec<ReceivedLine> {
        lines.sort_by_key(|line| line.time);
        // More would push each other out of what is remembered, and be new each time.
        lines.drain(..lines.len().saturating_sub(REMEMBERED));
        self.soonest = None;
        let first = !std::mem::replace(&mut self.primed, true);
        // A player who was in another team comes back to a chat that was seen.
        let forgotten = self.forgotten;
        let mut shown: HashMap<String, u32> = HashMap::new();
        let mut heard = Vec::new();
        for line in lines {
            let id = id(&line);
            let number = shown.entry(id.clone()).or_default();
            *number += 1;
            if line.time <= forgotten && !self.seen.iter().any(|seen| seen.id == id) {
                continue;
            }
            let seen = self.seen(id, line.time);
            if *number > seen.count {
                seen.count += 1;
                seen.expected += 1;
                let kept_as = numbered(seen.id.clone(), seen.count);
                heard.extend(self.hear(line, kept_as, now));
            }
        }
        if first {
            // The first history neither counts as said now nor as dropped.
            (self.in_window, self.dropped) = (0, 0);
            heard.iter_mut().for_each(|line| line.is_news = false);
        }
        heard
    }

    /// Goes on with a chat that another process has heard.
    pub fn take_over(&mut self, mut other: Self) {
        other.seen.retain(|lines| lines.expected <= lines.count);
        other.seen.truncate(REMEMBERED);
        *self = other;
    }

    /// The next history is of another team: it shows what was said before.
    pub fn joined_another(&mut self) {
        self.primed = false;
    }

    /// Another link is listened to from now on, without a gap: what the one before has said, this one may say again.
    pub fn switched(&mut self) {
        self.seen.iter_mut().for_each(|seen| seen.repeats = seen.count - seen.expected);
    }

    /// A line that was just said; none if it is one too many. One that a history had is no news. The game sends each
    /// line once over a link: the same words again in the same second are another line.
    pub fn line(&mut self, line: AppTeamMessage, now: Moment) -> Option<ReceivedLine> {
        let is_live = !self.is_late(line.time, now);
        let seen = self.seen(id(&line), line.time);
        if seen.repeats > 0 {
            seen.repeats -= 1;
            return None;
        }
        let is_news = seen.expected == 0;
        match is_news {
            true => seen.count += 1,
            false => seen.expected -= 1,
        }
        let kept_as = numbered(seen.id.clone(), seen.count - seen.expected);
        let heard = self.hear(line, kept_as, now)?;
        Some(ReceivedLine { is_news, is_live, ..heard })
    }

    fn is_late(&mut self, time: u32, now: Moment) -> bool {
        let later = |(at, said): (Moment, u32)| (now - at).num_seconds() - (i64::from(time) - i64::from(said));
        let later = self.soonest.map_or(0, later);
        if later <= 0 {
            self.soonest = Some((now, time));
        }
        later >= LATE
    }

    /// The record of the lines with this id.
    fn seen(&mut self, id: String, time: u32) -> &mut EqualLines {
        let place = match self.seen.iter().position(|seen| seen.id == id) {
            Some(place) => place,
            None => {
                if self.seen.len() >= REMEMBERED
                    && let Some(oldest) = self.seen.pop_front()
                {
                    self.forgotten = self.forgotten.max(oldest.time);
                }
                self.seen.push_back(EqualLines { id, time, count: 0, expected: 0, repeats: 0 });
                self.seen.len() - 1
            }
        };
        &mut self.seen[place]
    }

    fn hear(&mut self, line: AppTeamMessage, id: String, now: Moment) -> Option<ReceivedLine> {
        if self.window_start.is_none_or(|start| now - start >= SPAN) {
            (self.window_start, self.in_window) = (Some(now), 0);
        }
        self.in_window += 1;
        if self.in_window > LINES {
            self.dropped += 1;
            return None;
        }
        let ts = self.said_at(line.time, now.stamp);
        let (author, author_id) = (plain_text(&line.name, AUTHOR), Some(line.steam_id.to_string()));
        let content = ChatLine { author, author_id, text: shown_text(&line.message), ts };
        Some(ReceivedLine {
            stored: StoredLine { id, line: content },
            author: line.steam_id,
            is_news: true,
            is_live: false,
        })
    }

    /// When it was said. Lines of one second are a microsecond apart, in the order in which they came.
    fn said_at(&mut self, time: u32, now: Timestamp) -> Timestamp {
        let before = if self.last.0 == time { (self.last.1 + 1).min(999) } else { 0 };
        self.last = (time, before);
        let said = Timestamp::from_unix(time).map_or(now, |said| said.min(now));
        said + TimeDelta::microseconds(before.into())
    }

    /// When there may be lines to take that were too many.
    pub fn next_due(&self) -> Option<Moment> {
        self.window_start.filter(|_| self.dropped > 0).map(|start| start + SPAN)
    }

    /// Number of lines that were too many in the ten seconds that have passed, if any were; each is reported once.
    pub fn take_dropped(&mut self, now: Moment) -> Option<u32> {
        let over = self.window_start.is_some_and(|start| now - start >= SPAN);
        (over && self.dropped > 0).then(|| std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)).into()
    }

    fn said(time: u32, message: &str) -> AppTeamMessage {
        AppTeamMessage { steam_id: 1, name: "Ann".into(), message: message.into(), time, ..Default::default() }
    }

    fn texts(lines: &[ReceivedLine]) -> Vec<&str> {
        lines.iter().filter(|heard| heard.is_news).map(|heard| heard.stored.line.text.as_str()).collect()
    }

    #[test]
    fn the_first_history_is_old_and_what_a_later_one_adds_is_new_in_order() {
        let mut chat = TeamChat::default();
        let first = chat.history(vec![said(1, "a")], at(10));
        assert_eq!((first.len(), texts(&first).len()), (1, 0), "kept, and not announced");
        assert_eq!(chat.line(said(2, "b"), at(11)).map(|heard| heard.stored.line.text), Some("b".into()));
        let later = chat.history(vec![said(4, "d"), said(3, "c"), said(1, "a"), said(2, "b")], at(90));
        assert_eq!(texts(&later), ["c", "d"]);
    }

    #[test]
    fn a_chat_that_another_process_has_heard_goes_on_with_what_was_said_meanwhile() {
        let mut before = TeamChat::default();
        before.history(vec![said(1, "a")], at(10));
        assert!(before.line(said(2, "b"), at(11)).is_some());
        let other = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
        let mut chat = TeamChat::default();
        chat.take_over(other);
        let history = vec![said(1, "a"), said(2, "b"), said(2, "b"), said(3, "c")];
        assert_eq!(texts(&chat.history(history, at(15))), ["b", "c"], "b was said once more");
        assert!(chat.line(said(4, "d"), at(16)).is_some_and(|heard| heard.is_news));
    }

    #[test]
    fn the_same_words_in_one_second_are_as_many_lines_as_were_said() {
        let ids = |lines: Vec<ReceivedLine>| lines.into_iter().map(|heard| heard.stored.id).collect::<Vec<_>>();
        let mut chat = TeamChat::default();
        let live: Vec<_> = (0..3).map(|_| chat.line(said(1, "a"), at(1)).unwrap().stored.id).collect();
        assert!(live[0] != live[1] && live[1] != live[2] && live[2] != live[0]);
        let known = vec![said(1, "a"); 3];
        assert_eq!(chat.history(known.clone(), at(2)).len(), 0, "all of them are known");
        assert_eq!(chat.history(vec![said(1, "a"); 4], at(3)).len(), 1, "one was missed");
        // Another process hears of them from the history alone.
        assert_eq!(ids(TeamChat::default().history(known, at(9))), live);
        let mut chat = TeamChat::default();
        assert_eq!(ids(chat.history(vec![said(1, "a")], at(1))), live[..1]);
        let late = chat.line(said(1, "a"), at(1)).unwrap();
        assert!(!late.is_news && late.is_live && late.stored.id == live[0], "it is a command, and delivered once");
        assert_eq!(chat.line(said(1, "a"), at(1)).unwrap().stored.id, live[1]);
    }

    #[test]
    fn a_line_that_two_links_say_one_after_the_other_is_one() {
        let mut chat = TeamChat::default();
        assert_eq!(chat.history(vec![said(3, "c")], at(3)).len(), 1);
        assert!((0..2).all(|_| chat.line(said(1, "a"), at(3)).is_some()));
        chat.switched();
        assert!((0..2).all(|_| chat.line(said(1, "a"), at(3)).is_none()), "both were heard before");
        assert!(chat.line(said(1, "a"), at(3)).is_some_and(|heard| heard.is_news), "it was said three times");
        assert!(chat.line(said(2, "b"), at(3)).is_some_and(|heard| heard.is_news));
        let from_history = chat.line(said(3, "c"), at(4)).expect("no link has said it as it was said");
        assert!(!from_history.is_news && from_history.is_live);
    }

    #[test]
    fn a_chat_that_was_left_and_has_been_joined_again_is_not_said_again() {
        let mut chat = TeamChat::default();
        let own = |times: std::ops::Range<u32>| times.map(|time| said(time, "ours")).collect::<Vec<_>>();
        let most = REMEMBERED as u32;
        chat.history(own(0..most), at(300));
        let others = (0..20).map(|n| said(300 + n, "theirs")).collect();
        assert_eq!(chat.history(others, at(400)).len(), 20);
        chat.joined_another();
        let again = chat.history(own(3..most + 3), at(500));
        assert!(again.iter().all(|heard| !heard.is_news));
        assert_eq!(again.iter().map(|heard| heard.stored.line.ts.timestamp()).collect::<Vec<_>>(), [256, 257, 258]);
    }

    #[test]
    fn a_line_has_the_same_id_whenever_it_is_heard() {
        let mut chat = TeamChat::default();
        let first = chat.line(said(1, "a"), at(0)).unwrap();
        let second = chat.line(said(2, "a"), at(1)).expect("the same words said again");
        assert_ne!(second.stored.id, first.stored.id);
        // Another process hears it once more.
        let again = TeamChat::default().line(said(1, "a"), at(500)).unwrap();
        assert_eq!(again.stored.id, first.stored.id);
        let others = [AppTeamMessage { steam_id: 2, ..said(1, "a") }, said(1, "b")];
        for other in others {
            assert_ne!(chat.line(other, at(2)).unwrap().stored.id, first.stored.id);
        }
    }

    #[test]
    fn a_line_is_late_by_the_game_servers_own_clock() {
        let mut chat = TeamChat::default();
        let mut is_live = |time, now| chat.line(said(time, "x"), at(now)).unwrap().is_live;
        // Three minutes behind.
        assert!(is_live(1_000, 1_180) && is_live(1_100, 1_281));
        assert!(!is_live(1_200, 1_390), "the game stood still");
        assert!(is_live(1_300, 1_489) && !is_live(1_300, 1_490));
        assert!(!TeamChat::default().history(vec![said(1_000, "x")], at(1_000))[0].is_live);
    }

    #[test]
    fn lines_of_one_second_keep_their_order_and_none_is_said_in_the_future() {
        let mut chat = TeamChat::default();
        let lines = ["a", "b", "c"].map(|text| chat.line(said(7, text), at(8)).unwrap().stored.line.ts);
        assert!(lines.is_sorted() && lines[0] < lines[1] && lines[2] - lines[0] < TimeDelta::milliseconds(1));
        assert_eq!(lines[0], at(7).stamp);
        for odd in [u32::MAX, 0] {
            assert_eq!(chat.line(said(odd, "x"), at(9)).unwrap().stored.line.ts, at(9).stamp);
        }
    }

    #[test]
    fn a_flood_is_cut_and_ends_with_its_window() {
        let mut chat = TeamChat::default();
        let passed = (0..500).filter(|time| chat.line(said(*time, "x"), at(5)).is_some()).count();
        assert_eq!(passed, LINES as usize);
        assert!(chat.seen.len() <= REMEMBERED);
        assert_eq!(chat.take_dropped(at(14)), None, "more may follow");
        assert_eq!(chat.next_due(), Some(at(15)));
        assert_eq!(chat.take_dropped(at(15)), Some(400));
        assert_eq!((chat.take_dropped(at(15)), chat.next_due()), (None, None), "it is announced once");
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
