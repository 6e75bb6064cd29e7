//! The commands of one team: which are answered, by the rates of callers and of the team; the end of a loop with another
//! bot, and the notice of one that answers beside us.

use std::collections::{HashSet, VecDeque};

use chrono::TimeDelta;

use crate::domain::{time::Moment, words::words};

/// A command is answered once in this time, for all who ask.
const SAME: TimeDelta = TimeDelta::seconds(5);
/// A caller gives one command in this time, and this number in a minute.
const CALLER_PAUSE: TimeDelta = TimeDelta::seconds(2);
const CALLER_MINUTE: usize = 10;
const TEAM_MINUTE: usize = 30;
const MINUTE: TimeDelta = TimeDelta::seconds(60);
/// Acknowledgements are answered that often within [`EQUAL_TIME`]: in a raid all members may acknowledge at once, and their
/// answers must neither look like a loop nor stay in the way of others.
const ACK_ANSWERS: usize = EQUAL_ANSWERS - 1;

/// More answers in this time are a loop, and so are equal ones.
const LOOP_ANSWERS: usize = 6;
const LOOP_TIME: TimeDelta = TimeDelta::seconds(20);
const EQUAL_ANSWERS: usize = 3;
const EQUAL_TIME: TimeDelta = TimeDelta::seconds(15);
/// Then the team gets no answer for this time.
const STOPPED_FOR: TimeDelta = TimeDelta::seconds(60);

/// A line of another bot comes within this time before or after ours: either may be quicker.
const BOT_WITHIN: TimeDelta = TimeDelta::seconds(3);
/// This number of them within this time is another bot; fewer are chance.
const BOT_LINES: usize = 3;
const BOT_TIME: TimeDelta = TimeDelta::minutes(10);
/// Lines that are kept for the answer after them.
const LINES_BEFORE: usize = 16;

words! {
    /// Something that an owner should know of the team's chat.
    pub enum ChatNotice {
        /// Our answers went round in a circle and are stopped for a minute.
        Loop = "loop",
        /// Another bot answers beside us: another prefix would part the two.
        OtherBot = "other_bot",
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct TeamDesk {
    /// Commands that were answered: when, for which caller, which.
    commands: VecDeque<(Moment, u64, String)>,
    /// Acknowledgements that were taken lately: when, and of which caller.
    acknowledged: VecDeque<(Moment, u64)>,
    /// When acknowledgements were answered lately.
    ack_answers: VecDeque<Moment>,
    /// Our answers.
    answers: VecDeque<(Moment, String)>,
    stopped_until: Option<Moment>,
    /// Lines after which an answer of ours may come.
    before: VecDeque<(Moment, String)>,
    /// When lines were said that look like those of another bot, the last ones.
    bot_lines: VecDeque<Moment>,
}

impl TeamDesk {
    /// True if this command of this caller is answered; over the rates there is silence.
    pub fn admit(&mut self, caller: u64, command: &str, now: Moment) -> bool {
        if self.is_stopped(now) {
            return false;
        }
        self.forget_commands(now);
        let mut own = self.commands.iter().filter(|(_, by, _)| *by == caller);
        let is_soon = |at: &Moment, pause: TimeDelta| now - *at < pause;
        let refused = self.commands.len() >= TEAM_MINUTE
            || own.clone().count() >= CALLER_MINUTE
            || own.any(|(at, ..)| is_soon(at, CALLER_PAUSE))
            || self.commands.iter().any(|(at, _, known)| known == command && is_soon(at, SAME));
        if !refused {
            self.commands.push_back((now, caller, command.to_owned()));
        }
        !refused
    }

    /// True if this acknowledgement of this caller is taken, which is so unless there was one just now: the caller's phone rings
    /// until then. It is no part of the rates, and the end of a loop does not hold it back.
    pub fn admit_acknowledgement(&mut self, caller: u64, now: Moment) -> bool {
        while self.acknowledged.front().is_some_and(|(at, _)| now - *at >= SAME) {
            self.acknowledged.pop_front();
        }
        let is_new = self.acknowledged.iter().all(|(_, by)| *by != caller);
        if is_new {
            self.acknowledged.push_back((now, caller));
        }
        is_new
    }

    /// True if it is answered that an acknowledgement was taken, or that it was not; otherwise there is silence.
    pub fn answers_acknowledgement(&mut self, now: Moment) -> bool {
        while self.ack_answers.front().is_some_and(|at| now - *at >= EQUAL_TIME) {
            self.ack_answers.pop_front();
        }
        let is_answered = !self.is_stopped(now) && self.ack_answers.len() < ACK_ANSWERS;
        if is_answered {
            self.ack_answers.push_back(now);
        }
        is_answered
    }

    fn forget_commands(&mut self, now: Moment) {
        while self.commands.front().is_some_and(|(at, ..)| now - *at >= MINUTE) {
            self.commands.pop_front();
        }
    }

    /// True if nothing that counts is remembered.
    pub fn is_idle(&self, now: Moment) -> bool {
        let commanded = self.commands.back().is_some_and(|(at, ..)| now - *at < MINUTE);
        let acknowledged = self.acknowledged.back().is_some_and(|(at, _)| now - *at < SAME);
        !self.is_stopped(now) && !commanded && !acknowledged
    }

    /// True while the team gets no answer.
    pub fn is_stopped(&self, now: Moment) -> bool {
        self.stopped_until.is_some_and(|until| now < until)
    }

    /// One of our answers is said.
    pub fn answered(&mut self, text: &str, now: Moment) -> Option<ChatNotice> {
        while self.answers.front().is_some_and(|(at, _)| now - *at >= LOOP_TIME) {
            self.answers.pop_front();
        }
        self.answers.push_back((now, text.to_owned()));
        let is_equal = |(at, known): &&(Moment, String)| known == text && now - *at < EQUAL_TIME;
        let equal = self.answers.iter().filter(is_equal).count();
        if self.answers.len() <= LOOP_ANSWERS && equal < EQUAL_ANSWERS {
            let before = std::mem::take(&mut self.before);
            let is_bots = |(at, line): &&(Moment, String)| now - *at < BOT_WITHIN && is_of_bot(line, text);
            return self.count_bot_lines(before.iter().filter(is_bots).count(), now);
        }
        self.answers.clear();
        self.stopped_until = Some(now + STOPPED_FOR);
        Some(ChatNotice::Loop)
    }

    /// A line of the team's chat that is no command; `is_ours`: of a player whose link says our answers, as which they
    /// come back. The third one in a while that looks like the answer of another bot is noticed.
    pub fn overheard(&mut self, text: &str, is_ours: bool, now: Moment) -> Option<ChatNotice> {
        // Game servers may have cut it.
        if is_ours && self.answers.iter().any(|(_, answer)| answer.starts_with(text.trim_end_matches('…'))) {
            return None;
        }
        let mut recent = self.answers.iter().filter(|(at, _)| now - *at < BOT_WITHIN);
        if recent.any(|(_, answer)| is_of_bot(text, answer)) {
            return self.count_bot_lines(1, now);
        }
        if self.before.len() >= LINES_BEFORE {
            self.before.pop_front();
        }
        self.before.push_back((now, text.to_owned()));
        None
    }

    /// Our commands have another prefix: a bot may be parted from us by it, or answer that one.
    pub fn forget_bot(&mut self) {
        self.bot_lines.clear();
    }

    fn count_bot_lines(&mut self, more: usize, now: Moment) -> Option<ChatNotice> {
        self.bot_lines.retain(|at| now - *at < BOT_TIME);
        let before = self.bot_lines.len();
        self.bot_lines.extend(std::iter::repeat_n(now, more));
        let noticed = (before < BOT_LINES && self.bot_lines.len() >= BOT_LINES).then_some(ChatNotice::OtherBot);
        let surplus = self.bot_lines.len().saturating_sub(BOT_LINES);
        self.bot_lines.drain(..surplus);
        noticed
    }
}

/// True if this line, said beside our answer, is that of another bot.
fn is_of_bot(line: &str, answer: &str) -> bool {
    is_marked(line) || is_near(line, answer)
}

/// Begins with a bot's name: `name | …`.
fn is_marked(text: &str) -> bool {
    text.split_once(" | ").is_some_and(|(name, _)| !name.is_empty() && name.chars().count() <= 32)
}

/// Most words of the shorter one are in the other.
fn is_near(text: &str, answer: &str) -> bool {
    let words = |text: &str| -> HashSet<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let (text, answer) = (words(text), words(answer));
    let least = text.len().min(answer.len());
    least >= 2 && 4 * text.intersection(&answer).count() >= 3 * least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;

    fn at(millis: i64) -> Moment {
        (Timestamp::UNIX_EPOCH + TimeDelta::milliseconds(millis)).into()
    }

    #[test]
    fn one_answer_serves_all_who_ask_the_same_at_once() {
        let mut desk = TeamDesk::default();
        assert!(desk.admit(1, "pop", at(0)));
        assert!(!desk.admit(2, "pop", at(4_900)));
        assert!(desk.admit(2, "time", at(4_900)) && desk.admit(3, "pop", at(5_000)));
        assert!(!desk.is_idle(at(64_900)) && desk.is_idle(at(65_000)), "a team that comes back has the same rates");
        assert!(!desk.admit(3, "wipe", at(6_900)), "one in two seconds");
    }

    #[test]
    fn a_thousand_commands_in_a_minute_stay_within_the_rates() {
        let mut desk = TeamDesk::default();
        let mut admitted: Vec<(i64, u64)> = Vec::new();
        for number in 0..2_000 {
            let (now, caller) = (number * 60, 1 + number as u64 % 5);
            if desk.admit(caller, &format!("alive {number}"), at(now)) {
                admitted.push((now, caller));
            }
        }
        assert!(admitted.len() >= TEAM_MINUTE);
        for (now, caller) in &admitted {
            let minute = admitted.iter().filter(|(then, _)| (now - 60_000 + 1..=*now).contains(then));
            assert!(minute.clone().count() <= TEAM_MINUTE);
            assert!(minute.filter(|(_, by)| by == caller).count() <= CALLER_MINUTE);
        }
        assert!(desk.commands.len() <= TEAM_MINUTE);
    }

    #[test]
    fn an_acknowledgement_is_taken_over_the_rates_and_in_the_end_of_a_loop() {
        let mut desk = TeamDesk::default();
        assert!(desk.admit(1, "pop", at(0)) && desk.admit_acknowledgement(1, at(0)));
        assert!(desk.admit_acknowledgement(2, at(2_000)), "another player");
        assert!(!desk.admit_acknowledgement(1, at(4_900)) && desk.admit_acknowledgement(1, at(5_000)));
        let mut caller = 10;
        while desk.admit(caller, &caller.to_string(), at(6_000)) {
            caller += 1;
        }
        assert!(desk.admit_acknowledgement(3, at(6_000)), "the team has had all its answers");
        (0..3).for_each(|_| _ = desk.answered("same", at(6_000)));
        assert!(desk.is_stopped(at(11_000)) && desk.admit_acknowledgement(1, at(11_000)));
        assert!(!desk.admit_acknowledgement(1, at(11_000)));
        assert!(!desk.answers_acknowledgement(at(11_000)), "nothing is answered");
    }

    #[test]
    fn acknowledgements_take_no_answer_from_other_commands_and_are_no_loop() {
        let mut desk = TeamDesk::default();
        let (mut said, mut looped) = (0, 0);
        for second in 0..60 {
            // Each of eight members acknowledges as often as it is taken.
            for caller in 1..=8 {
                let now = at(second * 1_000);
                if desk.admit_acknowledgement(caller, now) && desk.answers_acknowledgement(now) {
                    said += 1;
                    looped += usize::from(desk.answered("only players who use this service", now).is_some());
                }
            }
        }
        assert_eq!((said, looped), (8, 0), "two in a quarter of a minute");
        assert!(desk.admit(1, "pop", at(59_900)), "neither the caller nor the team has had an answer");
        assert!(desk.acknowledged.len() <= 8 && !desk.is_idle(at(60_000)));
    }

    #[test]
    fn a_loop_ends_after_six_answers_and_a_minute_later_all_is_well() {
        let mut desk = TeamDesk::default();
        let mut said = 0;
        // Another bot turns each of our answers into a command.
        for second in (0..40).step_by(2) {
            if desk.admit(second as u64, &format!("alive {second}"), at(second * 1_000)) {
                said += 1;
                desk.answered(&format!("answer {second}"), at(second * 1_000));
            }
        }
        assert_eq!(said, LOOP_ANSWERS + 1);
        assert!(desk.is_stopped(at(71_900)) && !desk.is_stopped(at(72_000)));
        assert!(desk.admit(1, "pop", at(72_000)));
        let equal = [0, 5_000, 10_000].map(|now| desk.answered("same", at(80_000 + now)));
        assert_eq!(equal, [None, None, Some(ChatNotice::Loop)]);
    }

    #[test]
    fn a_bot_that_is_quicker_is_noticed_too() {
        let mut desk = TeamDesk::default();
        let noticed = [0, 21_000, 42_000, 63_000].map(|now| {
            assert_eq!(desk.overheard("on my way", false, at(now)), None);
            assert_eq!(desk.overheard("rustbot | 214 players", false, at(now)), None);
            desk.answered("214/250 players, 12 in queue", at(now + 500))
        });
        assert_eq!(noticed, [None, None, Some(ChatNotice::OtherBot), None]);
        let mut desk = TeamDesk::default();
        for now in [0, 21_000, 42_000] {
            desk.overheard("rustbot | 214 players", false, at(now));
            assert_eq!(desk.answered("214/250 players, 12 in queue", at(now + 3_000)), None, "of another matter");
        }
        (0..1_000).for_each(|number| _ = desk.overheard(&number.to_string(), false, at(90_000)));
        assert_eq!(desk.before.len(), LINES_BEFORE);
    }

    #[test]
    fn chance_is_no_bot_and_one_that_answers_another_prefix_is_noticed_again() {
        let mut desk = TeamDesk::default();
        let beside = |desk: &mut TeamDesk, minute: i64| {
            let now = at(minute * 60_000);
            desk.answered("214/250 players, 12 in queue", now);
            desk.overheard("rustbot | 214 players", false, now).is_some()
        };
        assert!([0, 9, 18, 27, 36].map(|minute| beside(&mut desk, minute)).iter().all(|noticed| !noticed));
        assert_eq!([41, 42, 43].map(|minute| beside(&mut desk, minute)), [false, true, false]);
        desk.forget_bot();
        assert_eq!([44, 45, 46, 47].map(|minute| beside(&mut desk, minute)), [false, false, true, false]);
    }

    #[test]
    fn a_bot_that_answers_beside_us_is_noticed_once() {
        let mut desk = TeamDesk::default();
        let mut noticed = Vec::new();
        for number in 0..5 {
            let now = number * 21_000;
            desk.answered("214/250 players, 12 in queue", at(now));
            assert_eq!(desk.overheard("on my way", false, at(now + 500)), None);
            assert_eq!(desk.overheard("214/250 players, 12 in qu…", true, at(now + 600)), None, "an echo");
            noticed.push(desk.overheard("rustbot | 214 players (250 max)", false, at(now + 1_000)));
            assert_eq!(
                desk.overheard("rustbot | 214 players", false, at(now + 3_000)),
                None,
                "too late to be an answer"
            );
        }
        assert_eq!(noticed, [None, None, Some(ChatNotice::OtherBot), None, None]);
        assert!(is_near("Players: 214/250, queue 12", "214/250 players, 12 in queue") && !is_near("pop", "pop"));
    }
}
