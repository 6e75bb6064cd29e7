//! Devices that are switched from the team's chat, and switches that turn back after a time.

use std::sync::Arc;

use actix::prelude::*;
use chrono::TimeDelta;
use futures_util::future::join_all;

use super::super::GameConnection;
use crate::{
    db::{engine::pool::Db, switch_backs, switch_backs::SwitchBack},
    domain::{
        chat_answers::BotMessages,
        device::{Device, DeviceKind, Reachable, TurnBack},
        team_command::{
            device_order::{DeviceOrder, DeviceWish},
            device_words::{self, OwnWords, SwitchOutcome},
            reply,
            speaker::LineUse,
            vocabulary::DeviceCommand,
        },
        time::Timestamp,
    },
    relay::{
        game::commands::{CommandError, DeviceToggle, Wish},
        state::live_state::GameUpdate,
    },
};

/// A switch that did not turn back is tried again after this time, and not longer than this.
const TRIED_AGAIN: TimeDelta = TimeDelta::seconds(30);
const TRIED_FOR: TimeDelta = TimeDelta::hours(1);

type NamedDevice = (Arc<str>, Arc<Device>);

fn is_switch(device: &Device) -> bool {
    matches!(device.kind, DeviceKind::Switch | DeviceKind::Unknown)
}

impl GameConnection {
    /// Switches the devices of a command, and says what became of each.
    pub(super) fn order_devices(
        &mut self,
        command: DeviceCommand,
        order: DeviceOrder,
        texts: &BotMessages,
        ctx: &mut Context<Self>,
    ) {
        let devices = &self.feed.live.state().devices;
        let known: Vec<NamedDevice> =
            command.devices.iter().filter_map(|id| Some((id.clone(), devices.get(id)?.clone()))).collect();
        let switches: Vec<NamedDevice> = known.iter().filter(|(_, device)| is_switch(device)).cloned().collect();
        let Some(owner) = self.commands.owner.clone().filter(|_| order.wish != DeviceWish::Status) else {
            return self.say_devices(&command, known.iter().map(|(id, device)| self.status(id, device, texts)));
        };
        if switches.is_empty() {
            return self.say_devices(&command, known.iter().map(|(id, device)| self.status(id, device, texts)));
        }
        let wanted = match order.wish {
            DeviceWish::Set(value) => Some(value),
            // Several follow the first.
            _ if switches.len() > 1 => Some(!switches[0].1.value.unwrap_or_default()),
            _ => None,
        };
        let now = self.context.clock.moment();
        self.commands.turned.retain(|_, at| now - *at < TRIED_AGAIN);
        let own = ctx.address();
        let toggles = switches.into_iter().map(|(id, device)| {
            let has_value = device.reachable == Reachable::Ok && wanted.is_some() && device.value == wanted;
            let is_already = has_value && matches!(order.wish, DeviceWish::Set(_));
            self.commands.turned.insert(id.clone(), now);
            let toggle = DeviceToggle { device: id.to_string(), wish: Wish { value: wanted, by: owner.clone() } };
            let own = own.clone();
            async move {
                let outcome = match (is_already, wanted) {
                    (true, Some(value)) => SwitchOutcome::Already(value),
                    _ => match own.send(toggle).await.unwrap_or(Err(CommandError::Internal)) {
                        Ok(value) => SwitchOutcome::Turned(value),
                        Err(CommandError::DeviceRemoved | CommandError::UnknownDevice) => SwitchOutcome::Removed,
                        Err(_) => SwitchOutcome::NoAnswer,
                    },
                };
                (id, device, outcome)
            }
        });
        let toggles = join_all(toggles.collect::<Vec<_>>());
        ctx.spawn(toggles.into_actor(self).map(move |outcomes, connection, ctx| {
            for (id, _, outcome) in &outcomes {
                if let SwitchOutcome::Turned(value) | SwitchOutcome::Already(value) = outcome {
                    let due_at = order.lasts.map(|lasts| connection.context.clock.now() + lasts);
                    connection.turn_back_at(id, !value, due_at, ctx);
                }
            }
            connection.with_texts(ctx, move |connection, texts, _| {
                let said = outcomes.iter().map(|(id, device, outcome)| {
                    device_words::outcome(texts, device, &connection.words(id), *outcome, order.lasts)
                });
                connection.say_devices(&command, said);
            });
        }));
    }

    fn say_devices(&self, command: &DeviceCommand, said: impl Iterator<Item = String>) {
        let before = command.group.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        self.say(&reply::joined(&before, said), LineUse::Answer);
    }

    fn status(&self, id: &Arc<str>, device: &Device, texts: &BotMessages) -> String {
        let raids = self.feed.live.state().raids.iter().filter(|(_, raid)| *raid.alarm_id == **id && !raid.drill);
        let triggered = raids.map(|(_, raid)| raid.last_at).max();
        device_words::status(texts, device, &self.words(id), triggered, self.context.clock.now())
    }

    fn words(&self, id: &Arc<str>) -> OwnWords {
        self.commands.words.get(id).cloned().unwrap_or_default()
    }

    /// The switch gets this value then, or stays as it is. A newer command takes the place of an older one.
    fn turn_back_at(&mut self, id: &Arc<str>, value: bool, due_at: Option<Timestamp>, ctx: &mut Context<Self>) {
        let Some(due_at) = due_at else { return self.forget_turn_back(id, ctx) };
        let back = SwitchBack { device_id: id.to_string(), value, due_at };
        self.commands.switch_backs.insert(id.clone(), back.clone());
        self.show_turn_backs(ctx);
        let (pool, server) = (self.context.pool.clone(), self.server.clone());
        let stored = async move { pool.write(move |db: &mut Db| switch_backs::put(db, &server, &back)).await };
        ctx.spawn(stored.into_actor(self).map(|stored, connection, _| {
            if let Err(error) = stored {
                log::warn!(server = connection.server.as_str(); "a switch turns back only in this process: {error}");
            }
        }));
        self.plan_commands(ctx);
    }

    /// A user has given the switch another command, or it has turned back.
    pub(in super::super) fn forget_turn_back(&mut self, id: &Arc<str>, ctx: &mut Context<Self>) {
        if self.commands.switch_backs.remove(id).is_none() {
            return;
        }
        self.show_turn_backs(ctx);
        let (pool, server, device) = (self.context.pool.clone(), self.server.clone(), id.clone());
        let deleted = async move { pool.write(move |db: &mut Db| switch_backs::delete(db, &server, &device)).await };
        ctx.spawn(deleted.into_actor(self).map(|deleted, connection, _| {
            if let Err(error) = deleted {
                log::warn!(server = connection.server.as_str(); "a switch may turn back once more: {error}");
            }
        }));
    }

    /// Shows on each switch whether it turns back, and when.
    pub(super) fn show_turn_backs(&mut self, ctx: &mut Context<Self>) {
        let shown =
            |(id, back): (&Arc<str>, &SwitchBack)| (id.clone(), TurnBack { value: back.value, at: back.due_at });
        let backs = self.commands.switch_backs.iter().map(shown).collect();
        self.update(GameUpdate::TurnBacks(backs), ctx);
    }

    /// True if this toggle is the turning back itself.
    pub(in super::super) fn is_turning_back(&self, id: &Arc<str>, wish: &Wish) -> bool {
        let back = self.commands.switch_backs.get(id);
        self.commands.turning_back.contains(id) && back.is_some_and(|back| wish.value == Some(back.value))
    }

    /// Turns back the switches whose time has come.
    pub(super) fn turn_back_due(&mut self, ctx: &mut Context<Self>) {
        let (now, Some(owner)) = (self.context.clock.now(), self.commands.owner.clone()) else { return };
        let due: Vec<(Arc<str>, SwitchBack)> = self
            .commands
            .switch_backs
            .iter()
            .filter(|(_, back)| back.due_at <= now)
            .map(|(id, back)| (id.clone(), back.clone()))
            .collect();
        for (id, back) in due {
            let moment = self.context.clock.moment();
            self.commands.turned.insert(id.clone(), moment);
            let wish = Wish { value: Some(back.value), by: owner.clone() };
            let toggled = ctx.address().send(DeviceToggle { device: id.to_string(), wish });
            // Until there is an answer it is not tried again.
            self.commands.switch_backs.get_mut(&id).expect("it is due").due_at = now + TRIED_AGAIN;
            self.commands.turning_back.insert(id.clone());
            ctx.spawn(toggled.into_actor(self).map(move |toggled, connection, ctx| {
                connection.commands.turning_back.remove(&id);
                match toggled.unwrap_or(Err(CommandError::Internal)) {
                    Ok(value) => {
                        connection.forget_turn_back(&id, ctx);
                        connection.with_texts(ctx, move |connection, texts, _| {
                            if let Some(device) = connection.feed.live.state().devices.get(&id) {
                                connection.say(
                                    &device_words::turned_back(texts, device, &connection.words(&id), value),
                                    LineUse::Answer,
                                );
                            }
                        });
                    }
                    Err(CommandError::DeviceRemoved | CommandError::UnknownDevice | CommandError::NotASwitch) => {
                        connection.forget_turn_back(&id, ctx);
                    }
                    Err(_) if connection.context.clock.now() - back.due_at > TRIED_FOR => {
                        connection.forget_turn_back(&id, ctx);
                    }
                    Err(_) => connection.plan_commands(ctx),
                }
            }));
        }
        self.show_turn_backs(ctx);
    }
}
