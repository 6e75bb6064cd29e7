//! Look-up of a paired server: a worker thread asks the hub.

use actix::{Addr, Message};

use crate::{
    db::engine::error::DbError,
    domain::ids::ServerId,
    relay::{game::game_connection::GameConnection, wire::publication::AllowedUsers},
};

/// Find a paired server: the connection that feeds it and who may watch; none if there is no such paired server.
#[derive(Message)]
#[rtype(result = "Result<Option<FoundServer>, DbError>")]
pub struct FindServer {
    pub server: ServerId,
}

/// The answer to [`FindServer`].
pub struct FoundServer {
    pub connection: Addr<GameConnection>,
    pub allowed: AllowedUsers,
    /// False: the database does not answer, and this was known before. A user who is not in it may watch by now.
    pub is_of_now: bool,
}
