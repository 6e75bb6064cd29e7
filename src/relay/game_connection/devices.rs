//! The devices of a game connection: what is known of them, and toggling a switch.

use std::sync::Arc;

use actix::prelude::*;
use tokio::{sync::oneshot, time::timeout};

use super::GameConnection;
use crate::{
    domain::device::DeviceKind,
    game::link::Answered,
    relay::{
        commands::{self, COMMAND_DEADLINE, CommandError, DeviceToggle, ReadDevices},
        live_state::GameUpdate,
    },
};

impl Handler<ReadDevices> for GameConnection {
    type Result = MessageResult<ReadDevices>;

    fn handle(&mut self, _: ReadDevices, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.live.borrow().devices())
    }
}

impl Handler<DeviceToggle> for GameConnection {
    type Result = ResponseActFuture<Self, Result<bool, CommandError>>;

    fn handle(&mut self, DeviceToggle { device }: DeviceToggle, _: &mut Self::Context) -> Self::Result {
        let device: Arc<str> = device.into();
        if let Some(waiting) = self.toggles.get_mut(&device) {
            let (sender, toggled) = oneshot::channel();
            waiting.push(sender);
            let toggled = async move { toggled.await.unwrap_or(Err(CommandError::Unavailable)) };
            return Box::pin(toggled.into_actor(self));
        }
        let live = self.live.borrow();
        let known = live.state().devices.get(&device);
        // Without a link the devices may not even be known yet.
        let ready = match (known, self.link.clone(), device.parse::<u64>()) {
            (_, None, _) => Err(CommandError::Unavailable),
            (None, ..) => Err(CommandError::UnknownDevice),
            (Some(known), ..) if !matches!(known.kind, DeviceKind::Switch | DeviceKind::Unknown) => {
                Err(CommandError::NotASwitch)
            }
            (Some(known), Some(link), Ok(entity)) => Ok((known.value, link, entity)),
            _ => Err(CommandError::Unavailable),
        };
        drop(live);
        let (value, link, entity) = match ready {
            Ok(ready) => ready,
            Err(error) => return Box::pin(actix::fut::ready(Err(error))),
        };
        self.toggles.insert(device.clone(), Vec::new());
        let toggled = async move {
            let toggled = timeout(COMMAND_DEADLINE, commands::toggle(&link, entity, value)).await;
            toggled.unwrap_or(Err(CommandError::TimedOut))
        };
        Box::pin(toggled.into_actor(self).map(move |toggled, connection, ctx| {
            let toggled = toggled.and_then(|Answered { asked_after, content }| {
                let seen = content.payload.value;
                let answer = Ok(Answered { asked_after, content: Some(content) });
                connection.update(GameUpdate::Device { device: device.clone(), answer }, ctx);
                // A broadcast may have said something newer.
                let live = connection.live.borrow();
                let known = live.state().devices.get(&device).and_then(|device| device.value);
                known.or(seen).ok_or(CommandError::TimedOut)
            });
            for waiting in connection.toggles.remove(&device).into_iter().flatten() {
                let _ = waiting.send(toggled);
            }
            toggled
        }))
    }
}
