//! Lines of the team's chat that wait until the team and its commands are known.

use std::mem::take;

use chrono::TimeDelta;

use crate::{
    domain::time::{Moment, Timestamp},
    relay::state::team_chat::ReceivedLine,
};

/// A line that waited longer is no command.
const FRESH: TimeDelta = TimeDelta::seconds(10);
/// A line of ours whose answer was lost may be in a history until then: it was said within two minutes, by the game's
/// clock.
const ECHO_WITHIN: TimeDelta = TimeDelta::minutes(3);
/// Lines of each kind.
const MOST: usize = 64;

/// A line that may be ours, as [`Teams::echo`](crate::relay::shared::teams::Teams::echo) takes it.
#[derive(Debug, PartialEq, Eq)]
pub struct EchoedLine {
    pub author: u64,
    pub text: String,
    /// The time of a line that is no news.
    pub old: Option<Timestamp>,
}

/// See the module.
#[derive(Default)]
pub struct WaitingLines {
    /// Lines that were just said, and when they came.
    said: Vec<(Moment, ReceivedLine)>,
    echoes: Vec<EchoedLine>,
}

impl WaitingLines {
    /// Keeps the lines that were just said, and all that may be ours.
    pub fn add(&mut self, lines: &[ReceivedLine], now: Moment) {
        // The first history of a connection is no news, and may have a line that another connection has lost.
        let may_be_echo =
            |line: &&ReceivedLine| line.is_news || (!line.is_live && now.stamp - line.stored.line.ts < ECHO_WITHIN);
        let echo = |line: &ReceivedLine| {
            let content = &line.stored.line;
            let old = (!line.is_news).then_some(content.ts);
            EchoedLine { author: line.author, text: content.text.clone(), old }
        };
        self.echoes.extend(lines.iter().filter(may_be_echo).map(echo));
        let surplus = self.echoes.len().saturating_sub(MOST);
        self.echoes.drain(..surplus);
        self.said.retain(|(since, _)| now - *since < FRESH);
        self.said.extend(lines.iter().filter(|line| line.is_live).map(|line| (now, line.clone())));
        self.said.truncate(MOST);
    }

    /// Lines that may be ours; they wait no longer.
    pub fn take_echoes(&mut self) -> Vec<EchoedLine> {
        take(&mut self.echoes)
    }

    /// Lines that may be commands, without those that waited for too long.
    pub fn take_said(&mut self, now: Moment) -> impl Iterator<Item = ReceivedLine> + use<> {
        let fresh = take(&mut self.said).into_iter().filter(move |(since, _)| now - *since < FRESH);
        fresh.map(|(_, line)| line)
    }

    /// The link is gone. The next one has them in its history.
    pub fn drop_echoes(&mut self) {
        self.echoes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::{ChatLine, StoredLine};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn line(text: &str, ts: Timestamp, is_news: bool, is_live: bool) -> ReceivedLine {
        let line = ChatLine { author: "Ada".into(), author_id: None, text: text.into(), ts };
        ReceivedLine { stored: StoredLine { id: text.into(), line }, author: 1, is_news, is_live }
    }

    #[test]
    fn lines_that_were_just_said_wait_ten_seconds() {
        let mut lines = WaitingLines::default();
        lines.add(&[line("!pop", at(0), true, true), line("history", at(0), true, false)], at(0).into());
        lines.add(&[line("!time", at(5), true, true)], at(5).into());
        let said: Vec<String> = lines.take_said(at(11).into()).map(|line| line.stored.line.text).collect();
        assert_eq!(said, ["!time"]);
        assert_eq!(lines.take_said(at(11).into()).count(), 0, "each once");
    }

    #[test]
    fn a_first_history_may_have_echoes_of_the_last_minutes() {
        let mut lines = WaitingLines::default();
        let history = [line("long ago", at(0), false, false), line("lately", at(100), false, false)];
        lines.add(&history, at(200).into());
        lines.add(&[line("news", at(200), true, false)], at(200).into());
        let echo = |text: &str, old| EchoedLine { author: 1, text: text.into(), old };
        assert_eq!(lines.take_echoes(), [echo("lately", Some(at(100))), echo("news", None)]);
    }

    #[test]
    fn the_latest_echoes_and_the_first_commands_of_many_are_kept() {
        let mut lines = WaitingLines::default();
        let many: Vec<ReceivedLine> = (0..100).map(|number| line(&number.to_string(), at(0), true, true)).collect();
        lines.add(&many, at(0).into());
        let echoes = lines.take_echoes();
        assert_eq!((echoes.len(), echoes[0].text.as_str()), (MOST, "36"));
        let said: Vec<ReceivedLine> = lines.take_said(at(0).into()).collect();
        assert_eq!((said.len(), said[0].stored.id.as_str()), (MOST, "0"));
    }
}
