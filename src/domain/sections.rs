//! Sets of the state's keys: those that a client wants of a state, or may see of it.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::domain::{change::Section, words::words};

words! {
    /// A part of the state that a client may subscribe to by itself.
    #[derive(Deserialize, ToSchema)]
    pub enum StateKey {
        Server = "server",
        Team = "team",
        MapMarkers = "mapMarkers",
        Devices = "devices",
        MapNotes = "mapNotes",
        Raids = "raids",
        Timers = "timers",
    }
}

impl From<Section> for StateKey {
    /// The key under which this section of the state is.
    fn from(section: Section) -> Self {
        match section {
            Section::Server => Self::Server,
            Section::Team | Section::Members => Self::Team,
            Section::MapMarkers => Self::MapMarkers,
            Section::Devices => Self::Devices,
            Section::MapNotes => Self::MapNotes,
            Section::Raids => Self::Raids,
            Section::Timers => Self::Timers,
        }
    }
}

/// A set of keys. As text: their words, with spaces between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections(u8);

impl FromIterator<StateKey> for Sections {
    fn from_iter<I: IntoIterator<Item = StateKey>>(keys: I) -> Self {
        Self(keys.into_iter().fold(0, |all, key| all | 1 << key as u8))
    }
}

impl From<String> for Sections {
    /// Words that are no key show nothing.
    fn from(text: String) -> Self {
        StateKey::ALL.into_iter().filter(|key| text.split(' ').any(|word| word == key.word())).collect()
    }
}

impl Sections {
    /// The whole state.
    pub const ALL: Self = Self((1 << StateKey::ALL.len()) - 1);

    /// The number of possible sets.
    pub const SETS: u64 = 1 << StateKey::ALL.len();

    /// The words of the set, with spaces between.
    pub fn text(self) -> String {
        self.iter().map(StateKey::word).collect::<Vec<_>>().join(" ")
    }

    /// Each of them, once.
    pub fn iter(self) -> impl Iterator<Item = StateKey> {
        StateKey::ALL.into_iter().filter(move |key| self.contains(*key))
    }

    /// True if this is the whole state.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// True if this key is among them.
    pub fn contains(self, key: StateKey) -> bool {
        self.0 & 1 << key as u8 != 0
    }

    /// The sections that are in both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if each of these is among them.
    pub fn contain_all(self, others: Self) -> bool {
        self.and(others) == others
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// A number of the set, less than [`Sections::SETS`]; 0 is the whole state.
    pub fn number(self) -> u64 {
        u64::from(Self::ALL.0 ^ self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_set_is_read_from_the_text_that_it_is_written_as_and_has_a_number() {
        let all: Vec<Sections> = (0..=Sections::ALL.0).map(Sections).collect();
        for set in &all {
            assert_eq!(Sections::from(set.text()), *set);
            assert_eq!(set.iter().collect::<Sections>(), *set);
            assert_eq!((set.and(Sections::ALL), set.is_all()), (*set, set.number() == 0));
        }
        let numbers: BTreeSet<u64> = all.iter().map(|set| set.number()).collect();
        assert!(numbers.len() == all.len() && numbers.iter().all(|number| *number < Sections::SETS));
        assert_eq!(Sections::from("raids x team".to_owned()).text(), "team raids");
        assert!(Sections::from(String::new()).is_empty());
        let [team, both] = ["team", "team raids"].map(|text| Sections::from(text.to_owned()));
        assert!(both.contain_all(team) && both.contain_all(both) && !team.contain_all(both));
        for key in StateKey::ALL {
            assert_eq!(serde_json::to_value(key).unwrap(), key.word());
        }
    }
}
