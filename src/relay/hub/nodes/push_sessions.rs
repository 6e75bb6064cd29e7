//! On a node of several: push sessions of other nodes. Their states are as the push workers write them.

use actix::{fut::ready, prelude::*};
use serde_json::Value;

use super::{
    super::Hub,
    online::of_none,
    push_session_reads::{PushSessionsAt, ReadPushSession},
    remote_commands::READ_WITHIN,
};
use crate::{
    ownership::needed_parts::push_session,
    relay::{
        game::commands::Unanswered,
        remote::remote_question::{RemoteAnswer, RemoteQuestion},
    },
};

impl Handler<PushSessionsAt> for Hub {
    type Result = ();

    fn handle(&mut self, PushSessionsAt(sessions): PushSessionsAt, _: &mut Self::Context) {
        if let Some(nodes) = &mut self.nodes {
            nodes.remote.push_sessions = Some(sessions);
        }
    }
}

/// For the API, which has asked the push worker of this node before.
impl Handler<ReadPushSession> for Hub {
    type Result = ResponseActFuture<Self, Result<Value, Unanswered>>;

    fn handle(&mut self, ReadPushSession { user }: ReadPushSession, _: &mut Self::Context) -> Self::Result {
        let part = push_session(&user);
        let is_elsewhere = self.nodes.as_ref().is_some_and(|nodes| nodes.owned.ownership.fence(&part).is_none());
        if !is_elsewhere {
            return Box::pin(ready(Ok(Value::Null)));
        }
        let answered = self.ask_part(part, of_none(), RemoteQuestion::PushSession { user }, READ_WITHIN);
        Box::pin(answered.map(|answered, _, _| match answered {
            Ok(RemoteAnswer::PushSession(session)) => Ok(session),
            Ok(_) => Err(Unanswered),
            Err(reason) => reason.if_none(Value::Null),
        }))
    }
}
