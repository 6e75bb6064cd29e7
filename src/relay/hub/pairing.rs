//! Sends a user's browsers the news of their helper devices.

use actix::prelude::*;

use super::{Hub, PairingNews, SocketOrder};
use crate::relay::wire::protocol::ServerMessage;

impl Handler<PairingNews> for Hub {
    type Result = ();

    fn handle(&mut self, news: PairingNews, _: &mut Self::Context) {
        let (user, message) = match &news {
            PairingNews::Requested { user, request } => (user, ServerMessage::PairingRequest { request }),
            PairingNews::Paired { user, device } => (user, ServerMessage::DevicePaired { device }),
        };
        let frame = message.frame();
        for socket in self.presence.browsers(user) {
            socket.do_send(SocketOrder::Send(frame.clone()));
        }
    }
}
