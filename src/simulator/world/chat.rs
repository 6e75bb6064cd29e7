//! Team chat.

use std::collections::VecDeque;

use super::time::unix;
use crate::{
    domain::time::Timestamp,
    game::wire::{AppTeamChat, AppTeamMessage},
};

/// Lines that the server keeps.
pub const CHAT_LINES: usize = 100;
/// Characters of a line; longer ones are cut.
const LINE_LENGTH: usize = 256;

/// Chat lines of a team, said without a cause.
pub const CHATTER: [&str; 14] = [
    "anyone got spare metal frags?",
    "running a quick loop past the gas station",
    "two guys with a bow near the road",
    "back in 5, food",
    "put the sulfur in the left box",
    "furnaces are done",
    "who took my jackhammer",
    "roof is up, need a sheet metal door",
    "heard shots at outpost side",
    "selling the spare pipes at the shop",
    "upkeep is fine for now",
    "boat is at the fishing village",
    "got a card, going green",
    "nice, 3k sulfur",
];

/// The last lines, oldest first.
#[derive(Debug, Default)]
pub struct SimulatedChat {
    lines: VecDeque<AppTeamMessage>,
}

impl SimulatedChat {
    /// Adds a line, trimmed and cut; `None` if nothing is left of it.
    pub fn add(&mut self, steam_id: u64, name: &str, text: &str, now: Timestamp) -> Option<AppTeamMessage> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let mut message: String = text.chars().take(LINE_LENGTH).collect();
        if message.len() < text.len() {
            message.pop();
            message.push('…');
        }
        let line =
            AppTeamMessage { steam_id, name: name.to_owned(), message, color: "#5af".to_owned(), time: unix(now) };
        self.lines.push_back(line.clone());
        if self.lines.len() > CHAT_LINES {
            self.lines.pop_front();
        }
        Some(line)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &AppTeamMessage> {
        self.lines.iter()
    }

    /// The answer to getTeamChat.
    pub fn app_team_chat(&self) -> AppTeamChat {
        AppTeamChat { messages: self.lines.iter().cloned().collect() }
    }
}
