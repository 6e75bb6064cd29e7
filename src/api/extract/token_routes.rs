//! Which routes take a token instead of a session's cookie, and of which kind. No other route looks at one.

use actix_web::{HttpRequest, http::Method};
use serde_json::{Value, json};

use crate::domain::{
    relay_access::RelayAccess,
    token_scope::TokenScope::{self, Chat, Devices, Read},
};

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

use TokenKind::{Api, Helper, Overlay};

const READ: &[TokenKind] = &[Api(Read)];
const MAP: &[TokenKind] = &[Overlay, Api(Read)];
const COMMAND: &[TokenKind] = &[Api(Devices)];

/// The table: method and path, and the tokens that open it.
const TOKEN_ROUTES: [(&str, &[TokenKind]); 26] = [
    ("POST /relay/token", &[Helper, Overlay, Api(Read), Api(Devices), Api(Chat)]),
    ("PUT /credentials/push", &[Helper]),
    ("GET /paired-servers", &[Api(Read), Api(Devices), Api(Chat)]),
    ("GET /paired-servers/{id}", READ),
    ("GET /paired-servers/{id}/map", MAP),
    ("GET /paired-servers/{id}/map/image", MAP),
    ("GET /paired-servers/{id}/devices", &[Api(Read), Api(Devices)]),
    ("POST /paired-servers/{id}/devices/{deviceId}/toggle", COMMAND),
    ("GET /paired-servers/{id}/devices/{deviceId}/camera-frame", READ),
    ("GET /paired-servers/{id}/cameras", READ),
    ("GET /paired-servers/{id}/chat", &[Api(Read), Api(Chat)]),
    ("POST /paired-servers/{id}/chat", &[Api(Chat)]),
    ("GET /paired-servers/{id}/readiness", READ),
    ("GET /paired-servers/{id}/alarms", READ),
    ("POST /paired-servers/{id}/alarms/{incident}/ack", COMMAND),
    ("GET /paired-servers/{id}/shops", READ),
    ("GET /paired-servers/{id}/shops/history", READ),
    ("GET /intel/{serverId}/map-notes", READ),
    ("GET /intel/{serverId}/tracking", READ),
    ("GET /intel/{serverId}/tracking/{id}/sessions", READ),
    ("GET /intel/{serverId}/aliases", READ),
    ("GET /intel/{serverId}/shops", READ),
    ("GET /intel/{serverId}/shops/scan", READ),
    ("GET /intel/{serverId}/timeline", READ),
    ("GET /items", READ),
    ("GET /items/{id}", READ),
];

/// The kinds of token that this request's route takes, when it is one of this method.
pub fn kinds(req: &HttpRequest, method: &Method) -> &'static [TokenKind] {
    // HEAD is answered like GET.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let Some(path) = req.match_pattern() else { return &[] };
    let row = TOKEN_ROUTES.iter().find(|(route, _)| route.split_once(' ') == Some((method.as_str(), path.as_str())));
    row.map_or(&[], |(_, kinds)| kinds)
}

/// Names in the OpenAPI document the tokens that each route takes.
pub fn document(document: &mut Value) {
    for (route, kinds) in TOKEN_ROUTES {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let operation = &mut document["paths"][path][method.to_lowercase()];
        let Some(schemes) = operation["security"].as_array_mut() else { continue };
        let scopes: Vec<_> = kinds.iter().filter_map(|kind| kind.scope()).collect();
        let device = kinds.iter().any(|kind| matches!(kind, Helper | Overlay)).then(|| json!({ "device": [] }));
        let token = (!scopes.is_empty()).then(|| json!({ "apiToken": scopes }));
        for scheme in device.into_iter().chain(token) {
            if !schemes.contains(&scheme) {
                schemes.push(scheme);
            }
        }
    }
}

impl TokenKind {
    /// The scope that an API token needs.
    fn scope(self) -> Option<TokenScope> {
        match self {
            Api(scope) => Some(scope),
            Helper | Overlay => None,
        }
    }

    /// True if a token of this access is of the kind.
    pub fn is_of(self, access: &RelayAccess) -> bool {
        match access {
            RelayAccess::Session => false,
            RelayAccess::Helper => self == Helper,
            RelayAccess::Overlay { .. } => self == Overlay,
            RelayAccess::Token { scopes, .. } => matches!(self, Api(scope) if scopes.contains(scope)),
        }
    }
}
