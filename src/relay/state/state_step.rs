//! One step of the live state while its parts make it.

use crate::{
    domain::{
        detect::EventWindow,
        server_state::{ServerHead, ServerState, TeamHead},
        time::Moment,
    },
    relay::state::outcome::Outcome,
};

/// See the module.
pub struct StateStep<'a> {
    /// The state that clients see. Each part writes its own sections.
    pub document: &'a mut ServerState,
    pub window: &'a mut EventWindow,
    pub outcome: &'a mut Outcome,
    pub now: Moment,
}

impl StateStep<'_> {
    /// See [`ServerState::edit_server`].
    pub fn edit_server(&mut self, edit: impl FnOnce(&mut ServerHead)) {
        self.document.edit_server(&mut self.outcome.changes, edit);
    }

    /// See [`ServerState::edit_team`].
    pub fn edit_team(&mut self, edit: impl FnOnce(&mut TeamHead)) {
        self.document.edit_team(&mut self.outcome.changes, edit);
    }
}
