//! The reading of a line of chat as a command of one paired server.

use std::sync::Arc;

use super::settings::{CommandWord, TeamChatSettings};

/// A command that switches devices: that of a device, or of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCommand {
    /// [`folded`].
    pub word: String,
    /// Name of the group; a device's own command has none.
    pub group: Option<String>,
    /// Device ids, at least one.
    pub devices: Vec<Arc<str>>,
}

/// The words that a paired server understands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    /// Empty: none is understood.
    pub prefix: String,
    pub commands: Vec<CommandWord>,
    pub devices: Vec<DeviceCommand>,
}

/// The word as it is compared: without case, also that of the Turkish `İ`.
pub fn folded(word: &str) -> String {
    word.to_lowercase().replace('\u{307}', "")
}

/// A command with what follows its word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnderstoodCommand {
    BuiltIn(CommandWord, String),
    Devices(DeviceCommand, String),
}

impl UnderstoodCommand {
    /// Equal for commands that have the same answer. Some answer each player in another way.
    pub fn key(&self, author: u64) -> String {
        match self {
            Self::BuiltIn(command @ (CommandWord::Ack | CommandWord::Leader | CommandWord::Note), argument) => {
                format!("{} {} of {author}", command.word(), argument.to_lowercase())
            }
            Self::BuiltIn(command, argument) => format!("{} {}", command.word(), argument.to_lowercase()),
            Self::Devices(command, argument) => format!("{} {}", command.word, argument.to_lowercase()),
        }
    }
}

impl Vocabulary {
    /// The words of these settings and these commands of devices.
    pub fn new(settings: &TeamChatSettings, devices: Vec<DeviceCommand>) -> Self {
        Self { prefix: settings.prefix.clone(), commands: settings.commands.clone(), devices }
    }

    /// The word of the device's own command.
    pub fn command_of(&self, device: &str) -> Option<&str> {
        let is_own = |command: &&DeviceCommand| command.group.is_none() && *command.devices[0] == *device;
        self.devices.iter().find(is_own).map(|command| command.word.as_str())
    }

    /// Reads a line without tags. None for a line that is no command: people write `!!!`, too.
    pub fn read(&self, line: &str) -> Option<UnderstoodCommand> {
        let asked = line.trim().strip_prefix(self.prefix.as_str()).filter(|_| !self.prefix.is_empty())?;
        let (word, argument) = asked.split_once(char::is_whitespace).unwrap_or((asked, ""));
        let (word, argument) = (folded(word), argument.trim().to_owned());
        if let Some(command) = CommandWord::typed(&word) {
            return self.commands.contains(&command).then_some(UnderstoodCommand::BuiltIn(command, argument));
        }
        let command = self.devices.iter().find(|command| command.word == word)?;
        Some(UnderstoodCommand::Devices(command.clone(), argument))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        let gate = DeviceCommand { word: "gate".into(), group: None, devices: vec!["7".into()] };
        Vocabulary::new(&TeamChatSettings::default(), vec![gate])
    }

    #[test]
    fn the_whole_first_word_is_compared_without_case() {
        let built_in = |line: &str| match vocabulary().read(line) {
            Some(UnderstoodCommand::BuiltIn(command, argument)) => Some((command, argument)),
            _ => None,
        };
        assert_eq!(built_in("!pop"), Some((CommandWord::Pop, String::new())));
        assert_eq!(built_in("  !ALIVE   Bob  the builder "), Some((CommandWord::Alive, "Bob  the builder".into())));
        assert_eq!(built_in("!TİME\u{a0}x"), Some((CommandWord::Time, "x".into())));
        let odd =
            ["！pop", "!!pop", "!\u{a0}pop", "!pop\u{301}", "!pop\u{fe0f}", "\u{301}!pop", "👨\u{200d}👩!pop", "!tıme"];
        let none = ["", "!", "!!!", "!popx", "! pop", "pop", "lol !pop", "!alivexyz", "!teamwork"];
        for none in none.into_iter().chain(odd) {
            assert_eq!(built_in(none), None, "{none}");
        }
        let Some(UnderstoodCommand::Devices(command, argument)) = vocabulary().read("!Gate on 60s") else { panic!() };
        assert_eq!((command.word.as_str(), argument.as_str()), ("gate", "on 60s"));
    }

    #[test]
    fn commands_about_their_author_differ_by_it() {
        let are_equal = |line: &str| {
            let command = vocabulary().read(line).unwrap();
            command.key(1) == command.key(2)
        };
        assert!(["!pop", "!alive Bob", "!timer 5m heli", "!gate on"].into_iter().all(are_equal));
        assert!(!["!ack", "!leader", "!leader Bob", "!note roof"].into_iter().any(are_equal));
    }

    #[test]
    fn a_command_that_is_off_and_another_prefix_are_not_understood() {
        let quiet = TeamChatSettings { prefix: "?".into(), commands: vec![CommandWord::Pop], ..Default::default() };
        let quiet = Vocabulary::new(&quiet, Vec::new());
        assert!(quiet.read("?pop").is_some());
        assert!(quiet.read("?time").is_none() && quiet.read("!pop").is_none() && quiet.read("?gate").is_none());
        assert_eq!(Vocabulary::default().read("pop"), None);
    }
}
