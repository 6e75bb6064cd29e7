//! The end of a credential that represents a user at the relay: a helper device, an overlay or an API token.

use actix_web::HttpResponse;

use crate::{
    api::{
        answer::{done::Done, error::ApiError},
        context::ApiContext,
    },
    db::engine::{error::DbError, pool::Db},
    domain::ids::SessionId,
    relay::hub::SessionEnded,
};

/// Deletes a credential and ends its sockets at the relay; 404 where `delete` finds none.
pub async fn end(
    context: &ApiContext,
    session: SessionId,
    delete: impl FnOnce(&mut Db) -> Result<bool, DbError> + Send + 'static,
) -> Result<HttpResponse, ApiError> {
    let hub = context.services.hub.clone();
    let notify = move |deleted: &bool| {
        if *deleted {
            hub.do_send(SessionEnded { session });
        }
    };
    Done::if_found(context.pool.write_and_notify(delete, notify).await?)
}
