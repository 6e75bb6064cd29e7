//! The messages that a socket may send, by the purpose of its token: an overlay watches one server, and nothing else.
//! Pure.

use crate::{
    domain::{access::Action, relay_access::RelayAccess},
    relay::wire::protocol::{ClientMessage, ErrorCode, Refusal},
};

/// The refusal of this message to a socket of this access; `None` if it is allowed.
pub fn refusal(access: &RelayAccess, message: &ClientMessage) -> Option<Refusal> {
    let (server, action, request) = match message {
        ClientMessage::Ping | ClientMessage::Unsubscribe { .. } => return None,
        ClientMessage::Subscribe { server, .. } => (server, Action::Watch, &None),
        ClientMessage::DeviceToggle { server, request, .. } => (server, Action::Command, request),
        ClientMessage::RaidAck { server, request, .. } => (server, Action::Acknowledge, request),
    };
    let mut refusal = Refusal::unknown_server(server.clone());
    if access.only().is_none_or(|only| only == server) {
        if access.may(action) {
            return None;
        }
        let (code, message) = denial(access);
        (refusal.code, refusal.message) = (code, message.to_owned());
    }
    refusal.request_id = request.clone();
    Some(refusal)
}

fn denial(access: &RelayAccess) -> (ErrorCode, &'static str) {
    match access {
        RelayAccess::Overlay { .. } => (ErrorCode::OwnerOnly, "an overlay may only watch"),
        RelayAccess::Token { .. } => (ErrorCode::InsufficientScope, "the scopes of this token do not permit it"),
        RelayAccess::Session | RelayAccess::Helper => {
            (ErrorCode::InsufficientScope, "a helper device may watch and acknowledge, and not command")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ids::ServerId, sections::Sections};

    fn refused(access: &RelayAccess, server: &str) -> [Option<(ErrorCode, Option<String>)>; 5] {
        let (server, request) = (ServerId::from(server), Some("r".to_owned()));
        let messages = [
            ClientMessage::Ping,
            ClientMessage::Unsubscribe { server: server.clone() },
            ClientMessage::Subscribe { server: server.clone(), epoch: None, seq: None, sections: None },
            ClientMessage::DeviceToggle {
                server: server.clone(),
                device: "7".into(),
                value: None,
                request: request.clone(),
            },
            ClientMessage::RaidAck { server, incident: "i".into(), request },
        ];
        messages.map(|message| refusal(access, &message).map(|refusal| (refusal.code, refusal.request_id)))
    }

    #[test]
    fn an_overlay_watches_its_server_and_nothing_else() {
        let overlay = RelayAccess::Overlay { server: "own".into(), sections: Sections::ALL };
        let request = || Some("r".to_owned());
        let only = Some((ErrorCode::OwnerOnly, request()));
        assert_eq!(refused(&overlay, "own"), [None, None, None, only.clone(), only]);
        let unknown = |request| Some((ErrorCode::UnknownServer, request));
        assert_eq!(refused(&overlay, "other"), [None, None, unknown(None), unknown(request()), unknown(request())]);
    }

    #[test]
    fn a_helper_watches_and_acknowledges_and_a_session_is_refused_nothing_here() {
        let beyond = Some((ErrorCode::InsufficientScope, Some("r".to_owned())));
        assert_eq!(refused(&RelayAccess::Helper, "any"), [None, None, None, beyond, None]);
        assert_eq!(refused(&RelayAccess::Session, "any"), [const { None }; 5]);
    }

    #[test]
    fn a_token_does_what_its_scopes_permit_on_its_server() {
        let token = |scopes: &str, server: Option<&str>| RelayAccess::Token {
            scopes: scopes.to_owned().into(),
            server: server.map(ServerId::from),
            ends: None,
        };
        let beyond = |request: Option<&str>| Some((ErrorCode::InsufficientScope, request.map(str::to_owned)));
        let watches = [None, None, None, beyond(Some("r")), beyond(Some("r"))];
        assert_eq!(refused(&token("read chat", None), "any"), watches);
        assert_eq!(refused(&token("devices", Some("own")), "own"), [None, None, beyond(None), None, None]);
        let [.., subscribe, _, _] = refused(&token("read", Some("own")), "other");
        assert_eq!(subscribe, Some((ErrorCode::UnknownServer, None)));
    }
}
