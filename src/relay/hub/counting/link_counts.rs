//! State of the links, all together: for operators.

use actix::Message;

use crate::{domain::server_state::ConnectionState, relay::game::pool::link_slots::SlotUsage};

/// Number of links in each state, and age of what they know.
#[derive(Message)]
#[rtype(result = "LinkCounts")]
pub struct CountLinks;

/// The answer to [`CountLinks`].
#[derive(Clone, Debug, PartialEq)]
pub struct LinkCounts {
    pub by_state: [(&'static str, usize); ConnectionState::WORDS.len()],
    /// Seconds since the game servers of the links that are up last said something: the longest, and the mean.
    pub oldest_state: f64,
    pub mean_state: f64,
    /// The part of the request budgets that is left, 0 to 1: the least, and the mean.
    pub least_budget: f64,
    pub mean_budget: f64,
    /// Links that game servers count, and those that wait for their turn there.
    pub slots: SlotUsage,
    /// Paired servers that read over the link of a mate.
    pub shared: usize,
}
