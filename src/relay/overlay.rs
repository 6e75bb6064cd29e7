//! What the socket of an overlay may say: it watches one server, and nothing else. Pure.

use crate::{
    domain::{
        access::{Action, Role},
        ids::ServerId,
    },
    relay::protocol::{ClientMessage, ErrorCode, Refusal},
};

/// Why an overlay of this server is refused this message; `None` if it is not.
pub fn refusal(overlay: &ServerId, message: &ClientMessage) -> Option<Refusal> {
    let (server, action, request) = match message {
        ClientMessage::Ping | ClientMessage::Unsubscribe { .. } => return None,
        ClientMessage::Subscribe { server, .. } => (server, Action::Watch, &None),
        ClientMessage::DeviceToggle { server, request, .. } => (server, Action::Command, request),
        ClientMessage::RaidAck { server, request, .. } => (server, Action::Acknowledge, request),
    };
    let mut refusal = Refusal::unknown_server(server.clone());
    if server == overlay {
        if Role::Overlay.may(action) {
            return None;
        }
        refusal.code = ErrorCode::OwnerOnly;
        refusal.message = "an overlay may only watch".to_owned();
    }
    refusal.request_id = request.clone();
    Some(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_watches_its_server_and_nothing_else() {
        let request = || Some("r".to_owned());
        let messages = |server: &str| {
            let server = ServerId::from(server);
            [
                ClientMessage::Ping,
                ClientMessage::Unsubscribe { server: server.clone() },
                ClientMessage::Subscribe { server: server.clone(), epoch: None, seq: None },
                ClientMessage::DeviceToggle { server: server.clone(), device: "7".into(), request: request() },
                ClientMessage::RaidAck { server, incident: "i".into(), request: request() },
            ]
        };
        let refused = |server: &str| {
            messages(server).map(|message| {
                let refusal = refusal(&"own".into(), &message)?;
                Some((refusal.code, refusal.request_id))
            })
        };
        let only = Some((ErrorCode::OwnerOnly, request()));
        assert_eq!(refused("own"), [None, None, None, only.clone(), only]);
        let unknown = |request| Some((ErrorCode::UnknownServer, request));
        assert_eq!(refused("other"), [None, None, unknown(None), unknown(request()), unknown(request())]);
    }
}
