//! Messages of the hub to game connections, and reasons why a command does not reach one.

use actix::Message;

use crate::{
    domain::ids::ServerId,
    relay::game::{
        camera_capture::CameraError,
        commands::{ChatError, CommandError},
    },
};

/// For the game connection of this server. Without one the message is dropped: a connection that starts later reads
/// from the database what it is about.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ToConnection<M> {
    pub server: ServerId,
    pub message: M,
}

/// Reasons why a command does not reach a game connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPermitted {
    /// The user may not even watch the server, or there is none.
    UnknownServer,
    OwnerOnly,
    /// The service stops.
    Unavailable,
    /// The database did not answer.
    Internal,
}

impl From<NotPermitted> for CommandError {
    fn from(reason: NotPermitted) -> Self {
        match reason {
            NotPermitted::UnknownServer => Self::UnknownServer,
            NotPermitted::OwnerOnly => Self::OwnerOnly,
            NotPermitted::Unavailable => Self::Unavailable,
            NotPermitted::Internal => Self::Internal,
        }
    }
}

impl From<NotPermitted> for ChatError {
    fn from(reason: NotPermitted) -> Self {
        match reason {
            NotPermitted::UnknownServer => Self::UnknownServer,
            NotPermitted::OwnerOnly => Self::OwnerOnly,
            NotPermitted::Unavailable => Self::Unavailable,
            NotPermitted::Internal => Self::Internal,
        }
    }
}

impl From<NotPermitted> for CameraError {
    fn from(reason: NotPermitted) -> Self {
        match reason {
            NotPermitted::UnknownServer | NotPermitted::OwnerOnly => Self::UnknownServer,
            NotPermitted::Unavailable => Self::Unavailable,
            NotPermitted::Internal => Self::Internal,
        }
    }
}
