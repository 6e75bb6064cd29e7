//! State of all members and of the relay, the same for every admin.

use std::collections::HashSet;

use crate::{db::members::MemberTotals, domain::ids::UserId};

/// See the module.
pub struct AdminOverview {
    pub totals: MemberTotals,
    pub online: HashSet<UserId>,
    /// `Err`: the reason why the relay does not answer.
    pub relay: Result<(), String>,
}
