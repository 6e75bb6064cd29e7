//! Questions about push sessions, from the API to the push worker of another node.

use actix::prelude::*;
use serde_json::Value;

use crate::{domain::ids::UserId, relay::game::commands::Unanswered};

/// The push session of a user at the node that has it, as its push worker writes it; null without one.
#[derive(Message)]
#[rtype(result = "Result<Value, Unanswered>")]
pub struct ReadPushSession {
    pub user: UserId,
}

/// From now on this knows the push sessions of this node.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PushSessionsAt(pub Recipient<ReadPushSession>);
