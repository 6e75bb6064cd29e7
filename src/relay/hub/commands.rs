//! Commands of users and questions about devices, through the hub.

use std::{collections::HashMap, sync::Arc};

use actix::prelude::*;

use super::Hub;
use crate::{
    domain::{access::Action, chat::StoredLine, device::DeviceReport},
    relay::game::commands::{AskServer, ChatError, CommandError, ReadDevices, SayInTeam, SendChat, UserCommand},
};

impl Handler<UserCommand> for Hub {
    type Result = ResponseActFuture<Self, Result<bool, CommandError>>;

    fn handle(&mut self, UserCommand { server, toggle }: UserCommand, _: &mut Self::Context) -> Self::Result {
        let user = toggle.wish.by.clone();
        self.command((server, user, Action::Command), toggle, CommandError::Unavailable)
    }
}

impl Handler<SendChat> for Hub {
    type Result = ResponseActFuture<Self, Result<StoredLine, ChatError>>;

    fn handle(&mut self, SendChat { server, user, text }: SendChat, _: &mut Self::Context) -> Self::Result {
        self.command((server, user, Action::Command), SayInTeam { text }, ChatError::TimedOut)
    }
}

impl Handler<ReadDevices> for Hub {
    type Result = ResponseFuture<HashMap<Arc<str>, DeviceReport>>;

    fn handle(&mut self, ReadDevices { server }: ReadDevices, _: &mut Self::Context) -> Self::Result {
        let connection = self.connections.get(&server).map(|known| known.address.clone());
        Box::pin(async move {
            let Some(connection) = connection else { return HashMap::new() };
            connection.send(ReadDevices { server }).await.unwrap_or_default()
        })
    }
}

impl Handler<AskServer> for Hub {
    type Result = ResponseFuture<Option<Vec<String>>>;

    fn handle(&mut self, asked: AskServer, _: &mut Self::Context) -> Self::Result {
        let connection = self.connections.get(&asked.server).map(|known| known.address.clone());
        Box::pin(async move { connection?.send(asked).await.ok().flatten() })
    }
}
