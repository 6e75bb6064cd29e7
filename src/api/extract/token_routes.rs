//! Routes that take a token instead of a session's cookie, and the kinds of token. No other route looks at one.

use std::collections::HashMap;

use actix_web::{HttpRequest, http::Method};

use crate::domain::{relay_access::RelayAccess, token_scope::TokenScope};

/// The purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The token of a helper device.
    Helper,
    /// The token of an overlay: the server in the path is its own.
    Overlay,
    /// An API token of this scope.
    Api(TokenScope),
}

/// Tokens that open a route, by its path and method. In the data of the application, where routes were registered.
pub struct TokenRoutes(pub HashMap<String, Vec<(Method, &'static [TokenKind])>>);

/// The kinds of token that this request's route takes, when it is one of this method.
pub fn kinds(req: &HttpRequest, method: &Method) -> &'static [TokenKind] {
    let routes: Option<&&TokenRoutes> = req.app_data();
    // HEAD is answered like GET.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let (Some(TokenRoutes(routes)), Some(path)) = (routes, req.match_pattern()) else { return &[] };
    let row = routes.get(&path).and_then(|rows| rows.iter().find(|(known, _)| known == method));
    row.map_or(&[], |(_, kinds)| kinds)
}

impl TokenKind {
    /// The scope that an API token needs.
    pub fn scope(self) -> Option<TokenScope> {
        match self {
            Self::Api(scope) => Some(scope),
            Self::Helper | Self::Overlay => None,
        }
    }

    /// True if a token of this access is of the kind.
    pub fn is_of(self, access: &RelayAccess) -> bool {
        match access {
            RelayAccess::Session => false,
            RelayAccess::Helper => self == Self::Helper,
            RelayAccess::Overlay { .. } => self == Self::Overlay,
            RelayAccess::Token { scopes, .. } => matches!(self, Self::Api(scope) if scopes.contains(scope)),
        }
    }
}
