//! Devices that say more when they are asked again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix::prelude::*;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use super::GameConnection;
use crate::{
    domain::device::Reachable,
    game::{
        budget::Priority,
        link::{Answered, AskError},
        wire::AppEntityInfo,
    },
    relay::{game::commands::COMMAND_DEADLINE, state::game_update::OwnUpdate},
};

/// A tool cupboard computes its upkeep again after its contents changed (protocol §3.4).
const UPKEEP_DELAY: Duration = Duration::from_secs(2);
/// Rounds over the link of a mate are at least so far apart.
const ROUNDS_APART: Duration = Duration::from_secs(10);
/// A device that did not answer is asked again after this.
const SILENT_LOOKED_AFTER: Duration = Duration::from_secs(10);

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

    /// Looks at these devices over the link of a mate, one after the other: the tokens of its player are for all who sit
    /// there.
    pub(super) fn look_from_seat(&mut self, devices: BTreeSet<u64>, ctx: &mut Context<Self>) {
        let Some(link) = self.held.reading.clone() else { return };
        let answers = stream::iter(devices).then(move |device| {
            let link = link.clone();
            async move { (device, link.entity(device, Priority::EntitySync, COMMAND_DEADLINE).await) }
        });
        let answers = answers.into_actor(self);
        let looks = answers.map(|(device, answer), connection, ctx| {
            connection.looked(device.to_string().into(), answer, ctx);
        });
        let looks = ctx.spawn(looks.finish());
        if let Some(seat) = &mut self.mates.seat {
            seat.looks.replace(looks, ctx);
        }
    }

    /// A message over the link of a mate could not be read. A game server that sends rubbish is not asked without end.
    pub(super) fn look_again_from_seat(&mut self, ctx: &mut Context<Self>) {
        let now = Instant::now();
        let at = self.mates.missed_at.map_or(now, |before| now.max(before + ROUNDS_APART));
        // A round that is planned is for this message, too.
        if self.mates.missed_at.replace(at).is_none_or(|before| before <= now) {
            ctx.run_later(at - now, |connection, ctx| {
                if let Some(devices) = connection.mates.seat.as_ref().map(|seat| BTreeSet::clone(&seat.devices)) {
                    connection.look_from_seat(devices, ctx);
                }
            });
        }
    }

    /// Until it has answered, its alarms do not reach this link.
    fn look_again(&mut self, device: Arc<str>, ctx: &mut Context<Self>) {
        ctx.run_later(SILENT_LOOKED_AFTER, move |connection, ctx| {
            let known = connection.feed.live.state().devices.get(&device);
            if known.is_some_and(|known| known.reachable == Reachable::NoResponse) {
                connection.look_now(device, ctx);
            }
        });
    }

    fn look(&mut self, device: Arc<str>, ctx: &mut Context<Self>) {
        let entity = device.parse::<u64>();
        if let (Some(seat), Ok(entity)) = (&self.mates.seat, &entity)
            && !seat.devices.contains(entity)
        {
            self.devices.refreshes.end(&device);
            return self.take_turn(true, ctx);
        }
        let (Some(link), Ok(entity)) = (self.held.reading.clone(), entity) else {
            // The next link asks every device.
            self.devices.refreshes.end(&device);
            return;
        };
        self.devices.refreshes.begin(&device);
        let answer = async move { link.entity(entity, Priority::EntitySync, COMMAND_DEADLINE).await };
        ctx.spawn(answer.into_actor(self).map(|answer, connection, ctx| {
            if connection.devices.refreshes.end(&device) {
                connection.want_look(device.clone(), ctx);
            }
            connection.looked(device, answer, ctx);
        }));
    }

    fn looked(
        &mut self,
        device: Arc<str>,
        answer: Result<Answered<Option<AppEntityInfo>>, AskError>,
        ctx: &mut Context<Self>,
    ) {
        let refused = matches!(&answer, Err(AskError::Refused(word)) if word == "rate_limit");
        if refused {
            self.want_look(device.clone(), ctx);
        }
        if matches!(answer, Err(AskError::TimedOut)) {
            self.look_again(device.clone(), ctx);
        }
        // Refused to a mate, the player may still read it.
        if self.mates.seat.is_some() && !refused && matches!(answer, Err(AskError::Refused(_))) {
            self.take_turn(true, ctx);
        // The link that ended says nothing of the device.
        } else if !matches!(answer, Err(AskError::Closed | AskError::TooMany(_))) {
            self.update(OwnUpdate::Device { device, answer }, ctx);
        }
    }
}
