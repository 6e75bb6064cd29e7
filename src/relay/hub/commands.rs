//! Commands of users and questions about devices, through the hub.

use std::{collections::HashMap, sync::Arc};

use actix::prelude::*;

use super::Hub;
use crate::{
    domain::{access::Action, chat::StoredLine, device::DeviceReport},
    relay::game::commands::{
        AskServer, ChatError, CommandError, ReadDevices, SayInTeam, SendChat, Unanswered, UserCommand,
    },
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
    type Result = ResponseActFuture<Self, Result<HashMap<Arc<str>, DeviceReport>, Unanswered>>;

    fn handle(&mut self, read: ReadDevices, _: &mut Self::Context) -> Self::Result {
        self.read_connection(read.server.clone(), read, |reason| reason.if_none(HashMap::new()))
    }
}

impl Handler<AskServer> for Hub {
    type Result = ResponseActFuture<Self, Option<Vec<String>>>;

    fn handle(&mut self, asked: AskServer, _: &mut Self::Context) -> Self::Result {
        self.read_connection(asked.server.clone(), asked, |_| None)
    }
}
