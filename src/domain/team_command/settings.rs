//! Settings of a paired server for commands in its team's chat, and who may give them.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{ids::PlatformId, time::Timestamp, words::words};

/// Accounts that one paired server may block.
pub const MOST_BLOCKED: usize = 100;

words! {
    /// A command of ours, by the word that a player types after the prefix.
    #[derive(Hash, PartialOrd, Ord, Deserialize, ToSchema)]
    pub enum CommandWord {
        Pop = "pop",
        Time = "time",
        Wipe = "wipe",
        Cargo = "cargo",
        Heli = "heli",
        Alive = "alive",
        Afk = "afk",
        Team = "team",
        Leader = "leader",
        Upkeep = "upkeep",
        Decay = "decay",
        Timer = "timer",
        Timers = "timers",
        Note = "note",
        Notes = "notes",
        Mute = "mute",
        Unmute = "unmute",
        Ack = "ack",
        Help = "help",
    }
}

impl CommandWord {
    /// The command of this word, in lower case. `online` is another word for `team`.
    pub fn typed(word: &str) -> Option<Self> {
        Self::parse(if word == "online" { "team" } else { word })
    }
}

/// The players that may give commands of one kind. All of them are members of the team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    #[default]
    Everyone,
    /// Players who use this service: those whose own pairing is in the team, and guests of the paired server.
    Users,
    /// The player who paired the server.
    Owner,
}

/// Kinds of announcements: lines that no player has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[schema(default)]
pub struct Announcements {
    /// A smart alarm goes off.
    pub raid: bool,
    /// A member comes online.
    pub login: bool,
    /// A member dies.
    pub death: bool,
    /// A tool cupboard runs low, or is decaying.
    pub upkeep: bool,
    /// A switch was turned, by hand or by a user of this service outside of the chat.
    pub device: bool,
}

/// The settings of one paired server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(default)]
pub struct TeamChatSettings {
    /// One or two ASCII punctuation characters in front of a command, not `/`.
    pub prefix: String,
    /// The commands that are answered.
    #[schema(max_items = 32)]
    pub commands: Vec<CommandWord>,
    /// Players who may ask questions, set timers and take notes.
    pub questions: Audience,
    /// Players who may switch devices.
    pub devices: Audience,
    /// Players who may ask for another leader.
    pub leader: Audience,
    /// While the paired player leads the team: passes leadership on when a member asks.
    pub pass_leadership: bool,
    /// Accounts whose commands are not answered.
    #[schema(value_type = Vec<String>, max_items = 100)]
    pub blocked: Vec<PlatformId>,
    pub announcements: Announcements,
    /// Announcements are left out until then. Alarms never are.
    #[schema(required)]
    pub muted_until: Option<Timestamp>,
}

impl TeamChatSettings {
    /// The players who may give this command. A user takes note of alarms for the own account alone, and always may.
    pub fn audience(&self, command: CommandWord) -> Audience {
        match command {
            CommandWord::Leader => self.leader,
            CommandWord::Ack if self.questions == Audience::Owner => Audience::Users,
            _ => self.questions,
        }
    }
}

impl Default for TeamChatSettings {
    fn default() -> Self {
        Self {
            prefix: "!".to_owned(),
            commands: CommandWord::ALL.to_vec(),
            questions: Audience::Everyone,
            devices: Audience::Everyone,
            leader: Audience::Everyone,
            pass_leadership: false,
            blocked: Vec::new(),
            announcements: Announcements::default(),
            muted_until: None,
        }
    }
}

/// True if it can be a prefix: no word, and no command of the game.
pub fn is_prefix(text: &str) -> bool {
    let is_good = |character: char| character.is_ascii_punctuation() && character != '/' && character != '<';
    (1..=2).contains(&text.chars().count()) && text.chars().all(is_good)
}

/// The players of a team, as far as the rights ask for them. SteamIDs decide, never names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeamRoles {
    /// SteamID64 of the player who paired the server.
    pub owner: u64,
    /// SteamID64 of the others who use this service.
    pub users: HashSet<u64>,
}

impl TeamRoles {
    /// True if this player may give the command.
    pub fn may(&self, settings: &TeamChatSettings, player: u64, audience: Audience, is_member: bool) -> bool {
        let is_blocked = settings.blocked.iter().any(|blocked| blocked.as_str().parse() == Ok(player));
        let is_meant = match audience {
            Audience::Everyone => true,
            Audience::Users => player == self.owner || self.users.contains(&player),
            Audience::Owner => player == self.owner,
        };
        is_member && is_meant && !is_blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_word_is_its_command_and_online_is_team() {
        assert_eq!(CommandWord::typed("wipe"), Some(CommandWord::Wipe));
        assert_eq!(CommandWord::typed("online"), Some(CommandWord::Team));
        assert_eq!((CommandWord::typed("popx"), CommandWord::typed("")), (None, None));
    }

    #[test]
    fn a_prefix_is_one_or_two_marks() {
        for good in ["!", "!!", ".", "?-"] {
            assert!(is_prefix(good), "{good}");
        }
        let odd = [
            "！",
            "‼\u{fe0f}",
            "👨\u{200d}👩\u{200d}👧",
            "!\u{301}",
            "\u{200f}!",
            "!\u{202e}",
            "\u{200b}",
            "\u{a0}",
            "\u{ad}!",
        ];
        for wrong in ["", "/", "a", "1", " ", "! ", "!!!", "é", "<b", "!a"].into_iter().chain(odd) {
            assert!(!is_prefix(wrong), "{wrong}");
        }
    }

    #[test]
    fn settings_without_a_field_have_its_default() {
        let read: TeamChatSettings = serde_json::from_str(r#"{ "prefix": "?" }"#).unwrap();
        assert_eq!(read, TeamChatSettings { prefix: "?".into(), ..TeamChatSettings::default() });
        assert_eq!(read.announcements, Announcements::default());
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<TeamChatSettings>(&written).unwrap(), read);
    }

    #[test]
    fn rights_follow_the_account_and_end_with_membership() {
        let roles = TeamRoles { owner: 1, users: HashSet::from([2]) };
        let settings = TeamChatSettings { blocked: vec!["3".into()], ..TeamChatSettings::default() };
        let allowed = |audience| [1, 2, 3, 4].map(|player| roles.may(&settings, player, audience, true));
        assert_eq!(allowed(Audience::Everyone), [true, true, false, true]);
        assert_eq!(allowed(Audience::Users), [true, true, false, false]);
        assert_eq!(allowed(Audience::Owner), [true, false, false, false]);
        assert!(!roles.may(&settings, 1, Audience::Everyone, false), "kicked");
    }

    #[test]
    fn every_user_acknowledges_also_where_the_owner_alone_asks() {
        use Audience::*;
        let audiences = |questions| {
            let settings = TeamChatSettings { questions, leader: Users, ..TeamChatSettings::default() };
            [CommandWord::Pop, CommandWord::Leader, CommandWord::Ack].map(|command| settings.audience(command))
        };
        assert_eq!(audiences(Everyone), [Everyone, Users, Everyone]);
        assert_eq!(audiences(Owner), [Owner, Users, Users]);
    }
}
