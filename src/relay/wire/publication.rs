//! Publications of a game connection to its subscribers: plain data, so that a subscriber may be a thread of this
//! process or, one day, another node.

use std::{collections::HashSet, sync::Arc};

use actix::Message;
use serde::{Deserialize, Serialize};

use crate::{
    domain::{ids::UserId, sections::Sections},
    relay::wire::{
        frame::SharedFrame,
        receipt::DeliveryCount,
        steps::{Step, Steps},
    },
};

/// Where a state or a client is: a `seq` within an epoch. An epoch begins with each start of a game connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub epoch: u64,
    pub seq: u64,
}

/// Kinds of data frames, by priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Raid,
    Event,
    Chat,
    /// Pong, ack, error.
    Reply,
    /// Snapshots and patches, which wait in no queue: they are made when their turn comes.
    State,
}

/// Users who may watch a paired server, as of one look at the database. A later look has a higher version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedUsers {
    pub version: u64,
    pub users: Arc<HashSet<UserId>>,
    /// The owner, who is also in `users`.
    pub owner: Option<UserId>,
    /// Its guests are not known.
    pub is_partial: bool,
}

/// Content of a raid alarm, as far as it matters who gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Id of the incident.
    pub incident: Arc<str>,
    /// Triggers so far.
    pub count: u32,
    /// Another message of the incident came before.
    pub update: bool,
    /// Another process may have sent one with as many triggers, or more: it is for those who have not got that.
    pub again: bool,
}

/// To each subscriber. Answered with the number of sockets that took the bytes; 0 where that is not counted.
#[derive(Clone, Debug, Message)]
#[rtype(result = "usize")]
pub enum Publication {
    /// The state took a step.
    Advance { epoch: u64, step: Arc<Step> },
    /// The snapshot that this subscriber asked for, and the last steps to it; answered when a first socket has it, or
    /// none will.
    Snapshot { position: Position, frame: SharedFrame, steps: Steps },
    /// An event or a line of chat, for every client that may see all of these keys of the state.
    Deliver { lane: Lane, about: Sections, frame: SharedFrame },
    /// A raid alarm, for every client but those of users who have taken note; answered when the sockets have it or are
    /// gone. Each socket that has it is counted in `taken` at once. `number` is its number if another node has sent it: it
    /// may come twice.
    DeliverAlarm {
        frame: SharedFrame,
        about: Announcement,
        number: Option<u64>,
        acknowledged: Arc<[UserId]>,
        taken: Arc<DeliveryCount>,
    },
    /// Steps were left out because the subscriber was too busy; a snapshot makes up for them.
    Skipped,
    /// The game connection has failed, and another takes its place: find the server again.
    ConnectionFailed,
    /// From now on only these may watch; the set is empty once the paired server is gone.
    SetWatchers(AllowedUsers),
}
