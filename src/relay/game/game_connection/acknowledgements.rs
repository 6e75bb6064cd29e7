//! Acknowledgements of incidents.

use actix::prelude::*;

use super::{GameConnection, ShowAcknowledgement};
use crate::relay::game::commands::AcknowledgementsErased;

impl Handler<ShowAcknowledgement> for GameConnection {
    type Result = ();

    fn handle(&mut self, acknowledgement: ShowAcknowledgement, _: &mut Self::Context) {
        let ShowAcknowledgement { incident, user, at } = acknowledgement;
        self.alarms.acknowledged(&incident, &user, at);
    }
}

impl Handler<AcknowledgementsErased> for GameConnection {
    type Result = ();

    fn handle(&mut self, AcknowledgementsErased { user, .. }: AcknowledgementsErased, _: &mut Self::Context) {
        self.alarms.user_erased(&user);
    }
}
