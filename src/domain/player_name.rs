//! Names of players, as a game server or the player-statistics service shows them: arbitrary text, not unique, and on
//! some servers made up.

use crate::domain::plain_text::plain_text;

/// Longest name that is kept, characters; the platform allows 32.
pub const NAME_CHARS: usize = 64;

/// Least number of players online from which their names are evidence about the server.
const TELLING: usize = 8;
/// Hundredths of the names that must look made up.
const MADE_UP: usize = 95;

/// Key by which names are compared: without invisible characters and markup, and in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameKey(String);

impl NameKey {
    /// `None` when nothing of the name can be seen.
    pub fn of(name: &str) -> Option<Self> {
        let key = plain_text(name, NAME_CHARS).to_lowercase();
        (!key.is_empty()).then_some(Self(key))
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// True if a server hides the names of its players, so that none can be found there by name: it lists none although
/// `players` are online, or it shows names of the game's streamer mode, which are first names in small letters.
pub fn hides_names<'a>(players: u32, names: impl IntoIterator<Item = &'a str>) -> bool {
    let is_made_up = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    let (mut listed, mut made_up) = (0, 0);
    for name in names {
        listed += 1;
        made_up += usize::from(is_made_up(name));
    }
    if listed == 0 { players > 0 } else { listed >= TELLING && made_up * 100 >= listed * MADE_UP }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_what_is_seen() {
        let key = |name: &str| NameKey::of(name).map(|key| key.as_str().to_owned());
        assert_eq!(key("  Ada\u{200b} Löwe\u{7} "), Some("ada löwe".into()));
        assert_eq!(key("<b>ADA</b> löwe"), key("Ada LÖWE"));
        assert_eq!(key("\u{200b} \n"), None);
        assert_eq!(key(&"x".repeat(100)).unwrap().len(), NAME_CHARS);
    }

    #[test]
    fn a_server_in_streamer_mode_hides_names() {
        let made_up = ["diana", "brandi", "todd", "lynwood", "asuncion", "laronda", "laronda", "matt"];
        assert!(hides_names(8, made_up));
        assert!(!hides_names(8, made_up.map(|name| if name == "matt" { "Matt" } else { name })));
        assert!(!hides_names(3, ["bob", "ada", "eve"]), "three small names are no evidence");
        assert!(hides_names(12, []));
        assert!(!hides_names(0, []), "an empty server hides nothing");
    }
}
