//! What admins are shown of all members and of the relay, whoever asks.

use std::collections::HashSet;

use crate::{db::members::MemberTotals, domain::ids::UserId};

/// See the module.
pub struct ServiceStatus {
    pub totals: MemberTotals,
    pub online: HashSet<UserId>,
    /// Why the relay does not answer, if it does not.
    pub relay: Result<(), String>,
}
