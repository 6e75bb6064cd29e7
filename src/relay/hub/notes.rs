//! Map notes through the hub.

use actix::prelude::*;

use super::Hub;
use crate::relay::game::commands::NotesChanged;

impl Handler<NotesChanged> for Hub {
    type Result = ();

    fn handle(&mut self, changed: NotesChanged, _: &mut Self::Context) {
        if let Some(connection) = self.connections.get(&changed.server) {
            connection.address.do_send(changed);
        }
    }
}
