//! Devices that are switched from the team's chat, and switches that turn back after a time.

use std::sync::Arc;

use actix::prelude::*;
use chrono::TimeDelta;
use futures_util::future::join_all;

use super::super::GameConnection;
use crate::{
    db::switch_backs::SwitchBack,
    domain::{
        bot::bot_messages::BotMessages,
        device::{Device, DeviceKind, Reachable},
        team_command::{
            device_order::{DeviceOrder, DeviceWish},
            device_words::{self, SaidTurnBack, SwitchOutcome},
            reply,
            speaker::LineUse,
            vocabulary::DeviceCommand,
        },
        time::Timestamp,
    },
    relay::{
        game::{
            commands::{CommandError, DeviceToggle, Wish},
            toggles::ToggleResult,
        },
        shared::write_behind::Record,
        state::game_update::OwnUpdate,
    },
};

/// Longest wait of an answer until it is stored that a switch turns back.
const STORED_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

type NamedDevice = (Arc<str>, Arc<Device>);

fn is_switch(device: &Device) -> bool {
    matches!(device.kind, DeviceKind::Switch | DeviceKind::Unknown)
}

fn outcome_of(toggled: ToggleResult) -> SwitchOutcome {
    match toggled {
        Ok(value) => SwitchOutcome::Turned(value),
        Err(CommandError::DeviceRemoved | CommandError::UnknownDevice) => SwitchOutcome::Removed,
        Err(_) => SwitchOutcome::NoAnswer,
    }
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
        self.commands.switch_backs.note_turned(switches.iter().map(|(id, _)| id.clone()), now);
        let due_at = order.lasts.map(|lasts| now.stamp + lasts);
        let mut toggles = Vec::new();
        for (id, device) in switches {
            let has_value = device.reachable == Reachable::Ok && wanted.is_some() && device.value == wanted;
            let is_already = has_value && matches!(order.wish, DeviceWish::Set(_));
            // Before the game is asked: the switch turns back although the answer is late, or this process ends.
            let turned = wanted.unwrap_or(!device.value.unwrap_or_default());
            self.turn_back_at(&id, !turned, due_at, ctx);
            let wish = Wish { value: wanted, by: owner.clone() };
            let toggle = (!is_already).then(|| self.begin_toggle(id.clone(), wish, ctx));
            toggles.push(async move {
                let outcome = match toggle {
                    None => SwitchOutcome::Already(turned),
                    Some(toggle) => outcome_of(toggle.await),
                };
                (id, device, outcome)
            });
        }
        ctx.spawn(join_all(toggles).into_actor(self).map(move |outcomes, connection, ctx| {
            for (id, _, outcome) in &outcomes {
                match (outcome, due_at) {
                    (SwitchOutcome::Removed, _) => connection.forget_turn_back(id, ctx),
                    // Its value was not known before.
                    (SwitchOutcome::Turned(value), Some(due_at))
                        if connection.commands.switch_backs.is_planned(id, *value, due_at) =>
                    {
                        connection.turn_back_at(id, !value, Some(due_at), ctx);
                    }
                    _ => {}
                }
            }
            connection.say_outcomes(command, outcomes, order.lasts, ctx);
        }));
    }

    /// Says what became of the devices; if they turn back, once that is stored.
    fn say_outcomes(
        &self,
        command: DeviceCommand,
        outcomes: Vec<(Arc<str>, Arc<Device>, SwitchOutcome)>,
        lasts: Option<TimeDelta>,
        ctx: &mut Context<Self>,
    ) {
        let write_behind = self.context.write_behind.clone();
        let stored = async move { lasts.is_none() || write_behind.flush(STORED_WITHIN).await };
        ctx.spawn(stored.into_actor(self).map(move |is_stored, connection, ctx| {
            connection.with_texts(ctx, move |connection, texts, _| {
                let back = lasts.map(|lasts| SaidTurnBack { lasts, is_stored });
                let said = outcomes.iter().map(|(id, device, outcome)| {
                    device_words::outcome(texts, device, &connection.commands.words(id), *outcome, back)
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
        device_words::status(texts, device, &self.commands.words(id), triggered, self.context.clock.now())
    }

    /// The switch gets this value then, or stays as it is. A newer command takes the place of an older one.
    fn turn_back_at(&mut self, id: &Arc<str>, value: bool, due_at: Option<Timestamp>, ctx: &mut Context<Self>) {
        let Some(due_at) = due_at else { return self.forget_turn_back(id, ctx) };
        let back = SwitchBack { device_id: id.to_string(), value, due_at };
        self.commands.switch_backs.set(id.clone(), value, due_at);
        self.show_turn_backs(ctx);
        self.context.write_behind.store(Record::TurnsBack(self.server.clone(), back));
        self.plan_commands(ctx);
    }

    /// A user has given the switch another command, or it has turned back.
    pub(in super::super) fn forget_turn_back(&mut self, id: &Arc<str>, ctx: &mut Context<Self>) {
        if !self.commands.switch_backs.remove(id) {
            return;
        }
        self.show_turn_backs(ctx);
        self.context.write_behind.store(Record::TurnedBack(self.server.clone(), id.clone()));
    }

    /// Shows on each switch whether it turns back, and when.
    pub(super) fn show_turn_backs(&mut self, ctx: &mut Context<Self>) {
        self.update(OwnUpdate::TurnBacks(self.commands.switch_backs.shown()), ctx);
    }

    /// Turns back the switches whose time has come.
    pub(super) fn turn_back_due(&mut self, ctx: &mut Context<Self>) {
        let Some(owner) = self.commands.owner.clone() else { return };
        for (id, value) in self.commands.switch_backs.begin_due(self.context.clock.moment()) {
            let wish = Wish { value: Some(value), by: owner.clone() };
            let toggled = ctx.address().send(DeviceToggle { device: id.to_string(), wish });
            ctx.spawn(toggled.into_actor(self).map(move |toggled, connection, ctx| {
                connection.commands.switch_backs.end_try(&id);
                connection.tried_to_turn_back(id, value, toggled.unwrap_or(Err(CommandError::Internal)), ctx);
            }));
        }
    }

    /// A switch has turned back, or not. It is given up in the end, and the team knows.
    fn tried_to_turn_back(&mut self, id: Arc<str>, value: bool, toggled: ToggleResult, ctx: &mut Context<Self>) {
        let has_turned = match toggled {
            Ok(_) => true,
            Err(CommandError::DeviceRemoved | CommandError::UnknownDevice | CommandError::NotASwitch) => {
                return self.forget_turn_back(&id, ctx);
            }
            Err(_) if self.commands.switch_backs.is_hopeless(&id) => false,
            Err(_) => return self.plan_commands(ctx),
        };
        self.forget_turn_back(&id, ctx);
        self.with_texts(ctx, move |connection, texts, _| {
            if let Some(device) = connection.feed.live.state().devices.get(&id) {
                let words = connection.commands.words(&id);
                let said = device_words::turned_back(texts, device, &words, value, has_turned);
                connection.say(&said, LineUse::Reminder);
            }
        });
    }
}
