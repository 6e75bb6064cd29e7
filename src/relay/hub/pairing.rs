//! Sends a user's browsers the news of their helper devices.

pub mod pairing_news;

use actix::prelude::*;

use super::{Hub, PairingNews, SocketOrder, nodes::online::of_none};
use crate::{
    domain::ids::UserId,
    relay::{
        remote::remote_message::RemoteContent,
        wire::{frame::SharedFrame, protocol::ServerMessage},
    },
};

impl Handler<PairingNews> for Hub {
    type Result = ();

    fn handle(&mut self, news: PairingNews, _: &mut Self::Context) {
        let (user, message) = match &news {
            PairingNews::Requested { user, request } => (user, ServerMessage::PairingRequest { request }),
            PairingNews::Paired { user, device } => (user, ServerMessage::DevicePaired { device }),
        };
        let frame = message.frame();
        self.send_to_browsers(user, &frame);
        for process in self.other_processes() {
            let content = RemoteContent::ToBrowsers { user: user.clone() };
            self.mail_frame(&process, of_none(), content, frame.text_bytes());
        }
    }
}

impl Hub {
    /// Sends this to the browsers that a user has open at this node.
    pub(super) fn send_to_browsers(&self, user: &UserId, frame: &SharedFrame) {
        for socket in self.presence.browsers(user) {
            socket.do_send(SocketOrder::Send(frame.clone()));
        }
    }
}
