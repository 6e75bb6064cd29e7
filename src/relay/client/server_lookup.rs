//! Look-up of a paired server: a worker thread asks the hub.

use actix::{Actor, Addr, Context, Handler, Message, Recipient};

use crate::{
    db::engine::error::DbError,
    domain::ids::ServerId,
    relay::{
        game::game_connection::{RequestSnapshot, StateTaken, Subscribe, Unsubscribe},
        wire::publication::AllowedUsers,
    },
};

/// Reason for which a paired server is not found now.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("the database does not say which server it is: {0}")]
    Database(#[from] DbError),
    #[error("no node has the server, or it is not known which one")]
    NoNode,
}

/// Find a paired server: what feeds it and who may watch; none if there is no such paired server.
#[derive(Message)]
#[rtype(result = "Result<Option<FoundServer>, FindError>")]
pub struct FindServer {
    pub server: ServerId,
}

/// The answer to [`FindServer`].
pub struct FoundServer {
    pub feed: FeedSource,
    pub allowed: AllowedUsers,
    /// False: the database does not answer, and this was known before. A user who is not in it may watch by now.
    pub is_of_now: bool,
}

/// Source of the publications of a paired server: its game connection, or that of another node.
#[derive(Clone)]
pub struct FeedSource {
    pub subscribe: Recipient<Subscribe>,
    pub unsubscribe: Recipient<Unsubscribe>,
    pub snapshot: Recipient<RequestSnapshot>,
    pub taken: Recipient<StateTaken>,
}

impl<A> From<Addr<A>> for FeedSource
where
    A: Actor<Context = Context<A>>
        + Handler<Subscribe>
        + Handler<Unsubscribe>
        + Handler<RequestSnapshot>
        + Handler<StateTaken>,
{
    fn from(source: Addr<A>) -> Self {
        Self {
            subscribe: source.clone().recipient(),
            unsubscribe: source.clone().recipient(),
            snapshot: source.clone().recipient(),
            taken: source.recipient(),
        }
    }
}
