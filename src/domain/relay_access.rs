//! Origin of a relay token, and the permissions that a socket has by it.

use crate::domain::{
    access::{Action, Role},
    ids::ServerId,
    sections::Sections,
    time::Timestamp,
    token_scope::TokenScopes,
};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayAccess {
    /// A browser, with the cookie of its session.
    Session,
    /// A helper device.
    Helper,
    /// An overlay of this server, which sees these keys of its state.
    Overlay { server: ServerId, sections: Sections },
    /// An API token of its user's, for one server or all, until it ends.
    Token { scopes: TokenScopes, server: Option<ServerId>, ends: Option<Timestamp> },
}

impl RelayAccess {
    /// True if the token came from a cookie, which a browser adds by itself.
    pub fn is_session(&self) -> bool {
        matches!(self, Self::Session)
    }

    /// The one server that it is for; `None` if it is for all.
    pub fn only(&self) -> Option<&ServerId> {
        match self {
            Self::Session | Self::Helper => None,
            Self::Overlay { server, .. } => Some(server),
            Self::Token { server, .. } => server.as_ref(),
        }
    }

    /// True if it permits this action, where the role of its user does.
    pub fn may(&self, action: Action) -> bool {
        match self {
            Self::Session => true,
            Self::Helper => matches!(action, Action::Watch | Action::Acknowledge),
            Self::Overlay { .. } => Role::Overlay.may(action),
            Self::Token { scopes, .. } => scopes.permit(action),
        }
    }

    /// The keys of a state that it shows.
    pub fn sections(&self) -> Sections {
        match self {
            Self::Overlay { sections, .. } => *sections,
            Self::Session | Self::Helper | Self::Token { .. } => Sections::ALL,
        }
    }

    /// When a socket that came with it ends at the latest, if that is known.
    pub fn ends(&self) -> Option<Timestamp> {
        match self {
            Self::Token { ends, .. } => *ends,
            Self::Session | Self::Helper | Self::Overlay { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_permits_no_more_than_it_is_for() {
        use Action::*;
        let allowed = |access: &RelayAccess| [Watch, Acknowledge, Command, Edit].map(|action| access.may(action));
        assert_eq!(allowed(&RelayAccess::Session), [true; 4]);
        assert_eq!(allowed(&RelayAccess::Helper), [true, true, false, false]);
        let scopes = TokenScopes::from("read".to_owned());
        let token = RelayAccess::Token { scopes, server: Some("one".into()), ends: None };
        assert_eq!(allowed(&token), [true, false, false, false]);
        assert_eq!((token.only(), token.is_session()), (Some(&"one".into()), false));
        let overlay = RelayAccess::Overlay { server: "one".into(), sections: Sections::ALL };
        assert_eq!(allowed(&overlay), [true, false, false, false]);
        assert_eq!((overlay.only(), RelayAccess::Helper.only()), (Some(&"one".into()), None));
        assert!(RelayAccess::Session.is_session() && !RelayAccess::Helper.is_session() && !overlay.is_session());
    }
}
