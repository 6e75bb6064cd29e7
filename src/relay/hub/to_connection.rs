//! Messages of the hub to game connections, and reasons why a command does not reach one.

use actix::Message;

use crate::{
    domain::{ids::ServerId, node_news::NodeNews},
    relay::{
        game::{
            camera_capture::CameraError,
            commands::{
                AcknowledgementsErased, AlarmPathChanged, ChatError, CommandError, DevicesChanged, NotesChanged,
                PlaceDevice, SayForChannel,
            },
            game_connection::ShowAcknowledgement,
        },
        market::shop_watcher::ShopWatchesChanged,
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

/// A message of a game connection, which may live on another node.
pub trait ForOtherNodes {
    /// The message of this server on its way to other nodes.
    fn for_others(self, server: &ServerId) -> ForNodes;
}

/// A message on its way to other nodes.
pub enum ForNodes {
    /// Each node may hear of it.
    News(NodeNews),
    /// The node that has the server is to answer it.
    Line(SayForChannel),
}

impl ForOtherNodes for DevicesChanged {
    fn for_others(self, server: &ServerId) -> ForNodes {
        ForNodes::News(NodeNews::DevicesChanged { server: server.clone() })
    }
}

impl ForOtherNodes for AlarmPathChanged {
    fn for_others(self, server: &ServerId) -> ForNodes {
        ForNodes::News(NodeNews::AlarmPathChanged { server: server.clone() })
    }
}

impl ForOtherNodes for ShopWatchesChanged {
    fn for_others(self, server: &ServerId) -> ForNodes {
        ForNodes::News(NodeNews::ShopWatchesChanged { server: server.clone() })
    }
}

impl ForOtherNodes for NotesChanged {
    fn for_others(self, server: &ServerId) -> ForNodes {
        ForNodes::News(NodeNews::NotesChanged { server: server.clone(), deleted: self.deleted })
    }
}

impl ForOtherNodes for PlaceDevice {
    fn for_others(self, server: &ServerId) -> ForNodes {
        let Self { device, player, sent } = self;
        ForNodes::News(NodeNews::PlaceDevice { server: server.clone(), device, player, sent })
    }
}

impl ForOtherNodes for AcknowledgementsErased {
    fn for_others(self, server: &ServerId) -> ForNodes {
        ForNodes::News(NodeNews::AcknowledgementsErased { server: server.clone(), user: self.user })
    }
}

impl ForOtherNodes for ShowAcknowledgement {
    fn for_others(self, server: &ServerId) -> ForNodes {
        let Self { incident, user, at } = self;
        ForNodes::News(NodeNews::Acknowledged { server: server.clone(), incident, user, at })
    }
}

impl ForOtherNodes for SayForChannel {
    fn for_others(self, _: &ServerId) -> ForNodes {
        ForNodes::Line(self)
    }
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
