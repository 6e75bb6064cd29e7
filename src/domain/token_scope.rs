//! The scopes of a user's API token: less than its user may do, never more.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::domain::{access::Action, words::words};

words! {
    /// One thing that a token may do.
    #[derive(Deserialize, ToSchema)]
    pub enum TokenScope {
        /// Read what its user may watch, and watch it at the relay.
        Read = "read",
        /// List smart devices, toggle switches, and acknowledge alarms.
        Devices = "devices",
        /// Read the team's chat, and say lines in it.
        Chat = "chat",
    }
}

/// A set of scopes. As text: their words, with spaces between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenScopes(u8);

impl FromIterator<TokenScope> for TokenScopes {
    fn from_iter<I: IntoIterator<Item = TokenScope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |all, scope| all | 1 << scope as u8))
    }
}

impl From<String> for TokenScopes {
    /// Words that are no scope permit nothing.
    fn from(text: String) -> Self {
        TokenScope::ALL.into_iter().filter(|scope| text.split(' ').any(|word| word == scope.word())).collect()
    }
}

impl TokenScopes {
    /// The words of the set, with spaces between.
    pub fn text(self) -> String {
        self.iter().map(TokenScope::word).collect::<Vec<_>>().join(" ")
    }

    /// Each scope, once.
    pub fn iter(self) -> impl Iterator<Item = TokenScope> {
        TokenScope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// True if this one is among them.
    pub fn contains(self, scope: TokenScope) -> bool {
        self.0 & 1 << scope as u8 != 0
    }

    /// True if they permit this at the relay.
    pub fn permit(self, action: Action) -> bool {
        match action {
            Action::Watch => self.contains(TokenScope::Read),
            Action::Command | Action::Acknowledge => self.contains(TokenScope::Devices),
            Action::AddNote | Action::Edit | Action::Drill => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_from_the_text_that_it_is_written_as() {
        for bits in 0..1 << TokenScope::ALL.len() {
            let scopes = TokenScopes(bits);
            assert_eq!(TokenScopes::from(scopes.text()), scopes);
            assert_eq!(scopes.iter().collect::<TokenScopes>(), scopes);
        }
        assert_eq!(TokenScopes::from("chat admin read".to_owned()).text(), "read chat");
        for scope in TokenScope::ALL {
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.word());
        }
    }

    #[test]
    fn each_action_needs_its_scope_and_most_need_a_session() {
        use Action::*;
        let permits = |scope| {
            let scopes: TokenScopes = [scope].into_iter().collect();
            [Watch, Acknowledge, Command, AddNote, Edit, Drill].map(|action| scopes.permit(action))
        };
        assert_eq!(permits(TokenScope::Read), [true, false, false, false, false, false]);
        assert_eq!(permits(TokenScope::Devices), [false, true, true, false, false, false]);
        assert_eq!(permits(TokenScope::Chat), [false; 6]);
    }
}
