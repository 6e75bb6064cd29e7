//! When a link asks its game server for what comes without being broadcast. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::link_owner::LinkPurpose;
use crate::domain::freshness::{INFO_EVERY, MARKERS_EVERY, PollPace, TEAM_EVERY, TIME_EVERY};

/// Questions that are asked again and again, or once after a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    Info,
    Time,
    Team,
    Chat,
    /// Only to be sent clan changes; `no_clan` is a normal answer.
    Clan,
    Markers,
}

/// Questions that are asked again and again.
const POLLS: [(Poll, PollPace); 4] =
    [(Poll::Markers, MARKERS_EVERY), (Poll::Team, TEAM_EVERY), (Poll::Time, TIME_EVERY), (Poll::Info, INFO_EVERY)];

/// Questions of a link that has just come up, the team last. In its turn a link repeats nothing that a mate's has said of
/// the game server a moment ago; but only its own answer about the team has the notes of its player.
pub fn first_polls(purpose: LinkPurpose, is_watched: bool) -> &'static [Poll] {
    match purpose {
        LinkPurpose::Turn if !is_watched => &[Poll::Chat, Poll::Clan, Poll::Team],
        _ => &[Poll::Time, Poll::Chat, Poll::Clan, Poll::Markers, Poll::Team],
    }
}

/// Least time between two questions for the chat; doubled while lines are missed all the time, up to the longest: a game
/// server that sends rubbish does not spend our budget on them.
const CHATS_APART: Duration = Duration::from_secs(2);
const LONGEST_CHATS_APART: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub struct PollPlan {
    /// When each of [`POLLS`] was last asked for.
    asked: [Instant; POLLS.len()],
    chat_asked: Instant,
    chats_apart: Duration,
    /// A line of chat may have been missed since.
    chat_missed: bool,
}

impl PollPlan {
    /// All were asked for just now. The random byte makes the first pauses up to a fifth shorter: links that came up
    /// together do not ask together for ever.
    pub fn new(now: Instant, random: u8) -> Self {
        let asked = POLLS.map(|(_, pace)| {
            let earlier = pace.watched.mul_f64(f64::from(random) / 255.0 / 5.0);
            now.checked_sub(earlier).unwrap_or(now)
        });
        Self { asked, chat_asked: now, chats_apart: CHATS_APART, chat_missed: false }
    }

    /// A line of chat may have been missed: its history is asked for soon.
    pub fn miss_chat(&mut self) {
        self.chat_missed = true;
    }

    /// The next poll, and its time.
    pub fn next(&self, is_watched: bool) -> (Poll, Instant) {
        let due = self.all().map(|(poll, pace, asked)| (poll, asked + pace.of(is_watched))).chain(self.chat());
        due.min_by_key(|(_, at)| *at).expect("there are polls")
    }

    /// Polls to ask together at this time: all that are due, or would be in a tenth of their pause. One waking and one
    /// way to the game server serve all of them.
    pub fn due(&self, now: Instant, is_watched: bool) -> Vec<Poll> {
        let is_due = |pace: PollPace, asked| now >= asked + pace.of(is_watched).mul_f64(0.9);
        let due = self.all().filter(|(_, pace, asked)| is_due(*pace, *asked)).map(|(poll, ..)| poll);
        due.chain(self.chat().filter(|(_, at)| now >= *at).map(|(poll, _)| poll)).collect()
    }

    /// This was asked for now.
    pub fn asked(&mut self, poll: Poll, now: Instant) {
        if poll == Poll::Chat {
            let is_soon = now < self.chat_asked + self.chats_apart * 2;
            let next = if is_soon { (self.chats_apart * 2).min(LONGEST_CHATS_APART) } else { CHATS_APART };
            (self.chat_asked, self.chats_apart, self.chat_missed) = (now, next, false);
        }
        for ((known, _), asked) in POLLS.iter().zip(&mut self.asked) {
            if *known == poll {
                *asked = now;
            }
        }
    }

    fn chat(&self) -> Option<(Poll, Instant)> {
        self.chat_missed.then(|| (Poll::Chat, self.chat_asked + self.chats_apart))
    }

    fn all(&self) -> impl Iterator<Item = (Poll, PollPace, Instant)> {
        POLLS.into_iter().zip(self.asked).map(|((poll, pace), asked)| (poll, pace, asked))
    }
}

/// The number of times in a row at which nothing was answered, after these polls were made together: each with true if
/// it was answered. An answer about the chat ends no silence: the chat is asked for as long as other messages cannot be
/// read, and such a link is of no use.
pub fn silent_after(before: u32, polls: impl Iterator<Item = (Poll, bool)> + Clone) -> u32 {
    if polls.clone().any(|(poll, is_answered)| is_answered && poll != Poll::Chat) {
        return 0;
    }
    let is_silent = polls.clone().any(|(_, is_answered)| !is_answered);
    before + u32::from(is_silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_answers_for_the_chat_alone_is_silent() {
        let (answered, silent) = (true, false);
        for (before, polls, after) in [
            (0, &[(Poll::Team, silent), (Poll::Markers, silent)][..], 1),
            (1, &[(Poll::Team, silent), (Poll::Markers, answered)], 0),
            (1, &[(Poll::Chat, answered)], 1),
            (1, &[(Poll::Chat, answered), (Poll::Markers, silent)], 2),
            (1, &[(Poll::Chat, silent)], 2),
            (1, &[(Poll::Chat, answered), (Poll::Markers, answered)], 0),
        ] {
            assert_eq!(silent_after(before, polls.iter().copied()), after, "{before} {polls:?}");
        }
    }

    /// Polls within this time, each with its seconds from the start, if answers take none.
    fn polls(plan: &mut PollPlan, start: Instant, until: u64, is_watched: bool) -> Vec<(Poll, u64)> {
        let mut polls = Vec::new();
        loop {
            let (poll, at) = plan.next(is_watched);
            let second = at.saturating_duration_since(start).as_secs();
            if second >= until {
                return polls;
            }
            plan.asked(poll, at);
            polls.push((poll, second));
        }
    }

    #[test]
    fn what_is_watched_is_asked_for_more_often_and_at_once_for_a_new_watcher() {
        let start = Instant::now();
        let mut plan = PollPlan::new(start, 0);
        let count = |polls: &[(Poll, u64)], poll| polls.iter().filter(|(asked, _)| *asked == poll).count();
        let unwatched = polls(&mut plan, start, 121, false);
        assert_eq!(
            [Poll::Markers, Poll::Team, Poll::Time, Poll::Info].map(|poll| count(&unwatched, poll)),
            [12, 12, 2, 2]
        );
        assert_eq!(polls(&mut plan, start, 124, true), [(Poll::Markers, 123)]);
        let watched = polls(&mut plan, start, 244, true);
        assert_eq!(
            [Poll::Markers, Poll::Team, Poll::Time, Poll::Info].map(|poll| count(&watched, poll)),
            [40, 24, 2, 2]
        );
        // More than a fast pause has passed, and less than a slow one.
        polls(&mut plan, start, 300, false);
        let late = start + Duration::from_secs(299);
        assert!(plan.next(false).1 > late && plan.next(true).1 < late);
    }

    #[test]
    fn a_link_in_its_turn_repeats_nothing_of_the_game_server_unless_a_user_watches() {
        let asks = |purpose, is_watched| first_polls(purpose, is_watched).contains(&Poll::Markers);
        assert!(!asks(LinkPurpose::Turn, false));
        assert!(asks(LinkPurpose::Turn, true) && asks(LinkPurpose::Read, false));
        assert_eq!(first_polls(LinkPurpose::Turn, false).last(), Some(&Poll::Team));
    }

    #[test]
    fn what_is_due_at_about_the_same_time_is_asked_for_together() {
        let start = Instant::now();
        for random in [0, 100, 255] {
            let mut plan = PollPlan::new(start, random);
            let mut together = Vec::new();
            for _ in 0..12 {
                let (first, at) = plan.next(false);
                let polls = plan.due(at, false);
                assert!(polls.contains(&first));
                polls.iter().for_each(|poll| plan.asked(*poll, at));
                together.push(polls.len());
            }
            let rare = together.iter().filter(|polls| **polls == 4).count();
            assert!(rare == 2 && together.iter().filter(|polls| **polls == 2).count() == 10, "{random}: {together:?}");
        }
    }

    #[test]
    fn chat_is_asked_for_once_after_lines_were_missed_and_not_too_often() {
        let start = Instant::now();
        let mut plan = PollPlan::new(start, 0);
        (0..3).for_each(|_| plan.miss_chat());
        let soon = start + CHATS_APART;
        assert_eq!((plan.next(true), plan.due(soon, true)), ((Poll::Chat, soon), vec![Poll::Chat]));
        plan.asked(Poll::Chat, soon);
        assert_eq!(plan.next(true).0, Poll::Markers);
        plan.miss_chat();
        assert_eq!(plan.next(true), (Poll::Markers, start + MARKERS_EVERY.watched));
        assert_eq!(plan.due(start + MARKERS_EVERY.watched, true), [Poll::Markers]);
        assert_eq!(plan.due(soon + CHATS_APART * 2, false), [Poll::Chat]);
    }

    #[test]
    fn chat_is_asked_for_less_often_while_lines_are_missed_all_the_time() {
        let start = Instant::now();
        let mut plan = PollPlan::new(start, 0);
        let seconds = |plan: &mut PollPlan| {
            plan.miss_chat();
            let (_, at) = plan.chat().unwrap();
            plan.asked(Poll::Chat, at);
            (at - start).as_secs()
        };
        let asked: Vec<u64> = (0..8).map(|_| seconds(&mut plan)).collect();
        assert_eq!(asked, [2, 6, 14, 30, 62, 122, 182, 242]);
        plan.asked(Poll::Chat, start + Duration::from_secs(400));
        assert_eq!(seconds(&mut plan), 402, "and as often as before after a while without");
    }

    #[test]
    fn links_that_came_up_together_ask_one_after_another() {
        let start = Instant::now();
        let first = |random| PollPlan::new(start, random).next(false).1 - start;
        assert_eq!(first(0), MARKERS_EVERY.unwatched);
        assert!(
            (0..=255).map(first).is_sorted_by(|a, b| a > b)
                && first(255) >= MARKERS_EVERY.unwatched - MARKERS_EVERY.watched
        );
    }
}
