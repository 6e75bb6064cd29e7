//! The budget of the links of a paired server, for users who ask why something comes late.

use actix::prelude::*;

use super::GameConnection;
use crate::domain::ids::ServerId;

/// Was the budget of this server's link exhausted within the last minute? False without a link.
#[derive(Message)]
#[rtype(result = "bool")]
pub struct BudgetExhausted {
    pub server: ServerId,
}

impl Handler<BudgetExhausted> for GameConnection {
    type Result = bool;

    /// The link that reads may be a mate's, beside the own one.
    fn handle(&mut self, _: BudgetExhausted, _: &mut Self::Context) -> bool {
        self.held.reading.as_ref().is_some_and(|link| link.was_exhausted())
            || self.held.acting().is_some_and(|link| link.was_exhausted())
    }
}
