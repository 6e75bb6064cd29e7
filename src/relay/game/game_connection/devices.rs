//! The devices of a game connection: what is known of them, and toggling a switch.

use std::{collections::BTreeSet, future::ready, sync::Arc};

use actix::prelude::*;
use tokio::time::{Instant, timeout_at};

use super::GameConnection;
use crate::{
    db::{
        engine::{pool::Db, start_reads::read_until_answered},
        smart_devices::{self, SmartDevice},
    },
    domain::device::{Device, DeviceKind, Reachable},
    game::link::Answered,
    relay::{
        game::{
            commands::{
                self, AlarmPathChanged, COMMAND_DEADLINE, CommandError, DeviceToggle, DevicesChanged, ReadDevices, Wish,
            },
            toggles::{Added, ToggleResult},
        },
        shared::own_link::OwnLink,
        state::game_update::{OwnUpdate, PairedDevice},
    },
};

fn paired(stored: SmartDevice) -> (Arc<str>, PairedDevice) {
    let SmartDevice { device_id, kind, name, label, last_value, x, y, reported, .. } = stored;
    // A later version may have stored more than is known here.
    let reported = reported.and_then(|reported| serde_json::from_str(&reported).ok());
    (device_id.into(), PairedDevice { kind, name, label, last_value, reported, place: x.zip(y) })
}

impl Handler<ReadDevices> for GameConnection {
    type Result = MessageResult<ReadDevices>;

    fn handle(&mut self, _: ReadDevices, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.feed.live.devices()))
    }
}

impl Handler<DevicesChanged> for GameConnection {
    type Result = ();

    fn handle(&mut self, _: DevicesChanged, ctx: &mut Self::Context) {
        self.load_devices(ctx);
        self.load_commands(ctx);
    }
}

impl Handler<AlarmPathChanged> for GameConnection {
    type Result = ();

    /// Reads nothing but that path: a credential changes at up to all servers of a user, and no device of them.
    fn handle(&mut self, _: AlarmPathChanged, ctx: &mut Self::Context) {
        let (context, server, now) = (self.context.clone(), self.server.clone(), self.context.clock.now());
        let has_alarms = async move {
            let read = move |db: &mut Db| smart_devices::has_unpushed_alarm(db, &server, now);
            read_until_answered(&context.pool, &context.random, "the path of alarms", read).await
        };
        let number = self.devices.number_path_read();
        let read = ctx.spawn(has_alarms.into_actor(self).map(move |has_alarms, connection, _| {
            connection.set_alarms(number, has_alarms);
        }));
        self.devices.path_read.replace(read, ctx);
    }
}

impl Handler<DeviceToggle> for GameConnection {
    type Result = ResponseFuture<ToggleResult>;

    fn handle(&mut self, DeviceToggle { device, wish }: DeviceToggle, ctx: &mut Self::Context) -> Self::Result {
        let device: Arc<str> = device.into();
        if !self.commands.switch_backs.is_turning(&device, wish.value) {
            self.forget_turn_back(&device, ctx);
        }
        self.begin_toggle(device, wish, ctx)
    }
}

impl GameConnection {
    /// Toggles a switch, after the toggles that wait for it.
    pub(super) fn begin_toggle(
        &mut self,
        device: Arc<str>,
        wish: Wish,
        ctx: &mut Context<Self>,
    ) -> ResponseFuture<ToggleResult> {
        let until = Instant::now() + COMMAND_DEADLINE;
        let toggled = match self.devices.toggles.add(&device, wish.clone(), until) {
            Added::Begins(toggled) => {
                self.toggle(device, wish, until, ctx);
                toggled
            }
            Added::Waits(toggled) => toggled,
            Added::Full => return Box::pin(ready(Err(CommandError::TooMany))),
        };
        Box::pin(async move {
            match timeout_at(until, toggled).await {
                Ok(toggled) => toggled.unwrap_or(Err(CommandError::Unavailable)),
                Err(_) => Err(CommandError::TimedOut),
            }
        })
    }

    /// Shows the devices as they are stored, whether there is a link or not, and asks those that have not answered.
    /// None is taken for unpaired because the database does not answer: an alarm that is not asked is not heard.
    pub(super) fn load_devices(&mut self, ctx: &mut Context<Self>) {
        let (context, server, now) = (self.context.clone(), self.server.clone(), self.context.clock.now());
        let devices = async move {
            let read = move |db: &mut Db| {
                Ok((smart_devices::list(db, &server)?, smart_devices::has_unpushed_alarm(db, &server, now)?))
            };
            read_until_answered(&context.pool, &context.random, "devices", read).await
        };
        let number = self.devices.number_path_read();
        let read = ctx.spawn(devices.into_actor(self).map(move |(devices, has_alarms), connection, ctx| {
            connection.set_alarms(number, has_alarms);
            let known = devices.into_iter().map(paired).collect();
            connection.update(OwnUpdate::Devices(known), ctx);
            connection.ask_silent(ctx);
        }));
        self.devices.read.replace(read, ctx);
    }

    /// Notes whether alarms come over the link alone, as the read with this number says: links take turns by that.
    fn set_alarms(&mut self, number: u64, has_alarms: bool) {
        // An answer to an earlier question may come later.
        if self.devices.is_latest_path_read(number) {
            self.held.wake.set_alarms(has_alarms);
            self.mates.carry_alarms(has_alarms);
        }
    }

    /// Entity ids of devices that are or may be alarms.
    pub(super) fn alarms(&self) -> BTreeSet<u64> {
        let devices = self.feed.live.state().devices.iter();
        let alarms = devices.filter(|(_, device)| device.kind.may_be_alarm());
        alarms.filter_map(|(id, _)| id.parse().ok()).collect()
    }

    /// Asks the devices of which no answer is known; without a link, the next one asks all.
    fn ask_silent(&mut self, ctx: &mut Context<Self>) {
        if self.held.reading.is_none() {
            return;
        }
        let is_silent = |device: &Device| device.kind != DeviceKind::Camera && device.reachable != Reachable::Ok;
        let silent = self.feed.live.state().devices.iter().filter(|(_, device)| is_silent(device));
        let silent: Vec<Arc<str>> = silent.map(|(id, _)| id.clone()).collect();
        if self.mates.seat.is_some() && !silent.is_empty() {
            // The own link must have asked a device before a mate's does.
            return self.take_turn(true, ctx);
        }
        for device in silent {
            self.look_now(device, ctx);
        }
    }

    /// Carries out a toggle whose turn it is, and after it those that wait.
    fn toggle(&mut self, device: Arc<str>, Wish { value: wanted, by }: Wish, until: Instant, ctx: &mut Context<Self>) {
        let (link, entity, known) = match self.switch(&device) {
            Ok(switch) => switch,
            Err(error) => return self.toggled(device, Err(error), ctx),
        };
        self.feed.live.toggled(&device, wanted, by, self.context.clock.moment());
        let toggled = async move {
            let toggled = async {
                let link = link.acting().await.ok_or(CommandError::Unavailable)?;
                commands::toggle(&link, entity, wanted, known).await
            };
            timeout_at(until, toggled).await.unwrap_or(Err(CommandError::TimedOut))
        };
        ctx.spawn(toggled.into_actor(self).map(move |toggled, connection, ctx| {
            let toggled = toggled.map(|(value, Answered { asked_after, content })| {
                let answer = Ok(Answered { asked_after, content: Some(content) });
                connection.update(OwnUpdate::Device { device: device.clone(), answer }, ctx);
                value
            });
            connection.toggled(device, toggled, ctx);
        }));
    }

    fn toggled(&mut self, device: Arc<str>, toggled: ToggleResult, ctx: &mut Context<Self>) {
        if let Some((next, until)) = self.devices.toggles.end(&device, toggled) {
            self.toggle(device, next, until, ctx);
        }
    }

    /// The link, the entity id, and the value if it is known.
    fn switch(&self, device: &Arc<str>) -> Result<(OwnLink, u64, Option<bool>), CommandError> {
        let known = self.feed.live.state().devices.get(device);
        match (known, self.held.own_link(), device.parse::<u64>()) {
            (Some(known), ..) if !matches!(known.kind, DeviceKind::Switch | DeviceKind::Unknown) => {
                Err(CommandError::NotASwitch)
            }
            // Without a link the devices may not even be known yet.
            (_, None, _) => Err(CommandError::Unavailable),
            (None, ..) => Err(CommandError::UnknownDevice),
            (Some(known), Some(link), Ok(entity)) => {
                Ok((link, entity, known.value.filter(|_| !self.devices.toggles.is_unsure(device))))
            }
            _ => Err(CommandError::Unavailable),
        }
    }
}
