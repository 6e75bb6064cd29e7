//! The answer to each command, from the live state and what was seen before. Texts are in the store of messages, under
//! `team.`.

mod members;
pub mod upkeep;
mod world;

use chrono::TimeDelta;

use super::{
    daylight::{DaySpeeds, GameClock},
    durations,
    memory::WorldMemory,
    reply,
    settings::CommandWord,
    vocabulary::Vocabulary,
};
use crate::domain::{
    bot::bot_messages::BotMessages,
    channels::escalation::QUIET_AFTER,
    incident::Incident,
    map::NoteCategory,
    plain_text::plain_words,
    server_state::ServerState,
    team_timer::{LONGEST_TIMER_TEXT, MOST_TIMERS, TeamTimer},
    time::Timestamp,
};

/// Silence of announcements when no time is named.
const MUTED_FOR: TimeDelta = TimeDelta::minutes(30);
/// Categories of notes that players take; deaths are noted by the detector.
const CATEGORIES: [&str; 8] = NoteCategory::WORDS;
/// Characters of a note.
const LONGEST_NOTE: usize = 80;
/// Incidents that one command acknowledges.
const ACKNOWLEDGED_AT_ONCE: usize = 50;
/// Notes that are shown.
const NOTES_SHOWN: usize = 3;

/// Everything that answers are made of.
pub struct TeamView<'a> {
    pub state: &'a ServerState,
    pub now: Timestamp,
    /// SteamID64 of the player who asks.
    pub asker: u64,
    /// When the game server last said how many players there are.
    pub info_at: Option<Timestamp>,
    pub clock: Option<GameClock>,
    pub speeds: DaySpeeds,
    pub memory: &'a WorldMemory,
    pub vocabulary: &'a Vocabulary,
    pub texts: &'a BotMessages,
}

/// The answer to a command, or what must be done before there is one.
#[derive(Clone, Debug, PartialEq)]
pub enum TeamReply {
    Say(Vec<String>),
    /// Make this member the leader.
    Promote(u64),
    StartTimer {
        lasts: TimeDelta,
        text: String,
    },
    EndTimer(u32),
    AddNote {
        category: &'static str,
        label: String,
        /// Metres from the south-west corner.
        x: f64,
        y: f64,
    },
    Mute(TimeDelta),
    Unmute,
    /// Take note of these incidents in the name of the player who asks.
    Acknowledge(Vec<String>),
}

/// Answers a command of ours.
pub fn answer(command: CommandWord, argument: &str, view: &TeamView) -> TeamReply {
    match command {
        CommandWord::Pop => view.pop(),
        CommandWord::Time => view.time(),
        CommandWord::Wipe => view.wipe(),
        CommandWord::Cargo => view.cargo(),
        CommandWord::Heli => view.heli(),
        CommandWord::Alive => view.alive(argument),
        CommandWord::Afk => view.afk(),
        CommandWord::Team => view.team(),
        CommandWord::Leader => view.leader(argument),
        CommandWord::Upkeep => view.upkeep(argument),
        CommandWord::Decay => view.decay(argument),
        CommandWord::Timer => view.timer(argument),
        CommandWord::Timers => view.timers(),
        CommandWord::Note => view.note(argument),
        CommandWord::Notes => view.notes(),
        CommandWord::Mute => view.mute(argument),
        CommandWord::Unmute => TeamReply::Unmute,
        CommandWord::Ack => view.acknowledge(),
        CommandWord::Help => view.help(),
    }
}

impl TeamView<'_> {
    /// One line: the text of this name with its places filled.
    fn say(&self, text: &str, places: &[(&str, &str)]) -> TeamReply {
        TeamReply::Say(vec![self.texts.say(text, places)])
    }

    fn timer(&self, argument: &str) -> TeamReply {
        let (first, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
        if first.eq_ignore_ascii_case("off") {
            return match rest.trim().parse() {
                Ok(number) if self.state.timers.iter().any(|(_, timer)| timer.number == number) => {
                    TeamReply::EndTimer(number)
                }
                Ok(number) => self.say("team.timer.unknown", &[("number", &number.to_string())]),
                Err(_) => self.say("team.timer.usage", &[]),
            };
        }
        let text = plain_words(rest, LONGEST_TIMER_TEXT);
        match durations::parse_minutes(first) {
            Some(_) if self.state.timers.len() >= MOST_TIMERS => {
                self.say("team.timer.full", &[("most", &MOST_TIMERS.to_string())])
            }
            Some(lasts) if !text.is_empty() => TeamReply::StartTimer { lasts, text },
            _ => self.say("team.timer.usage", &[]),
        }
    }

    fn timers(&self) -> TeamReply {
        let mut timers: Vec<_> = self.state.timers.iter().map(|(_, timer)| timer).collect();
        timers.sort_by_key(|timer| timer.ends_at);
        if timers.is_empty() {
            return self.say("team.timers.none", &[]);
        }
        let line = |timer: &&std::sync::Arc<TeamTimer>| {
            let (number, left) = (timer.number.to_string(), durations::shown(timer.ends_at - self.now));
            self.texts.say("team.timer", &[("number", &number), ("text", &timer.text), ("left", &left)])
        };
        match timers.len() {
            ..=4 => TeamReply::Say(timers.iter().map(line).collect()),
            _ => {
                let short = |timer: &&std::sync::Arc<TeamTimer>| {
                    format!("{} {} {}", timer.number, timer.text, durations::shown(timer.ends_at - self.now))
                };
                TeamReply::Say(vec![reply::joined("", timers.iter().map(short))])
            }
        }
    }

    fn note(&self, argument: &str) -> TeamReply {
        let (first, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
        let category = CATEGORIES.into_iter().find(|category| first.eq_ignore_ascii_case(category));
        let label = plain_words(if category.is_some() { rest } else { argument }, LONGEST_NOTE);
        let place = self.state.members.get(&self.asker).filter(|member| member.alive);
        match (place.and_then(|member| member.x.zip(member.y)), label.is_empty()) {
            (_, true) => self.say("team.note.usage", &[]),
            (None, _) => self.say("team.note.noPlace", &[]),
            (Some((x, y)), _) => TeamReply::AddNote { category: category.unwrap_or("warning"), label, x, y },
        }
    }

    fn notes(&self) -> TeamReply {
        let mut notes: Vec<_> =
            self.state.map_notes.iter().filter(|(_, note)| note.source == "user").map(|(_, note)| note).collect();
        notes.sort_by_key(|note| note.created_at);
        if notes.is_empty() {
            return self.say("team.notes.none", &[]);
        }
        let line = |(place, note): (usize, &&std::sync::Arc<crate::domain::map::MapNote>)| {
            let number = (place + 1).to_string();
            let text = note.label.as_deref().unwrap_or(&note.category);
            self.texts.say("team.note", &[("number", &number), ("grid", &note.grid), ("text", text)])
        };
        TeamReply::Say(notes.iter().enumerate().rev().take(NOTES_SHOWN).map(line).collect())
    }

    fn mute(&self, argument: &str) -> TeamReply {
        match argument {
            "" => TeamReply::Mute(MUTED_FOR),
            argument => {
                durations::parse_minutes(argument).map_or_else(|| self.say("team.mute.usage", &[]), TeamReply::Mute)
            }
        }
    }

    /// The incidents that may ring, the newest first: none has been quiet for as long as messages about it are sent.
    fn acknowledge(&self) -> TeamReply {
        let goes_on = |incident: &Incident| self.now - incident.last_at < QUIET_AFTER;
        let ringing = self.state.raids.iter().filter(|(_, incident)| goes_on(incident));
        let mut ringing: Vec<String> = ringing.map(|(id, _)| id.to_string()).collect();
        ringing.sort_unstable_by(|one, other| other.cmp(one));
        ringing.truncate(ACKNOWLEDGED_AT_ONCE);
        TeamReply::Acknowledge(ringing)
    }

    fn help(&self) -> TeamReply {
        let prefix = &self.vocabulary.prefix;
        // Without commas all of ours fit.
        let words = |words: Vec<String>, text: &str| {
            format!("{} {}", self.texts.say(text, &[("prefix", prefix)]), words.join(" "))
        };
        let own = self.vocabulary.commands.iter().map(|command| command.word().to_owned()).collect();
        let mut lines = vec![words(own, "team.help")];
        let devices: Vec<String> = self.vocabulary.devices.iter().map(|command| command.word.clone()).collect();
        if !devices.is_empty() {
            lines.push(words(devices, "team.help.devices"));
        }
        TeamReply::Say(lines)
    }
}

#[cfg(test)]
mod tests;
