//! Devices that say more when they are asked again.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;

use super::GameConnection;
use crate::{
    game::{budget::Priority, link::AskError},
    relay::{game::commands::COMMAND_DEADLINE, state::game_update::OwnUpdate},
};

/// A tool cupboard computes its upkeep again after its contents changed (protocol §3.4).
const UPKEEP_DELAY: Duration = Duration::from_secs(2);

impl GameConnection {
    pub(super) fn want_look(&mut self, device: Arc<str>, ctx: &mut Context<Self>) {
        if self.devices.refreshes.want(&device) {
            ctx.run_later(UPKEEP_DELAY, move |connection, ctx| connection.look(device, ctx));
        }
    }

    /// Looks at a device at once, unless that is planned or under way.
    pub(super) fn look_now(&mut self, device: Arc<str>, ctx: &mut Context<Self>) {
        if self.devices.refreshes.want(&device) {
            self.look(device, ctx);
        }
    }

    fn look(&mut self, device: Arc<str>, ctx: &mut Context<Self>) {
        let (Some(link), Ok(entity)) = (self.held.reading.clone(), device.parse::<u64>()) else {
            // The next link asks every device.
            self.devices.refreshes.end(&device);
            return;
        };
        self.devices.refreshes.begin(&device);
        let answer = async move { link.entity(entity, Priority::EntitySync, COMMAND_DEADLINE).await };
        ctx.spawn(answer.into_actor(self).map(|answer, connection, ctx| {
            let refused = matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit");
            if connection.devices.refreshes.end(&device) || refused {
                connection.want_look(device.clone(), ctx);
            }
            // The link that ended says nothing of the device.
            if !matches!(answer, Err(AskError::Closed | AskError::TooMany(_))) {
                connection.update(OwnUpdate::Device { device, answer }, ctx);
            }
        }));
    }
}
