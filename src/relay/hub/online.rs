//! Users who are online.

use actix::prelude::*;

use super::{Hub, OnlineUsers};

impl Handler<OnlineUsers> for Hub {
    type Result = MessageResult<OnlineUsers>;

    fn handle(&mut self, _: OnlineUsers, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.presence.online().cloned().collect())
    }
}
