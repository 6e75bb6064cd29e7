//! Who may do what with a paired server: one table, for the API and the relay alike.

use serde::Serialize;

/// What a user is to a paired server. For anybody else the server does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Paired the server.
    Owner,
    /// Was invited to it by the owner.
    Guest,
}

/// What can be done with a paired server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read it: its live state, its devices, whether an alarm would arrive.
    Watch,
    /// Command a device in the game, for example switch it.
    Command,
    /// Change or delete it, or its devices.
    Edit,
    /// Send a test alarm to everybody who watches.
    Drill,
}

impl Role {
    /// The table.
    pub fn may(self, action: Action) -> bool {
        match (self, action) {
            (Role::Owner, Action::Watch | Action::Command | Action::Edit | Action::Drill) => true,
            (Role::Guest, Action::Watch) => true,
            (Role::Guest, Action::Command | Action::Edit | Action::Drill) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_may_only_watch() {
        use Action::*;
        let allowed = |role: Role| [Watch, Command, Edit, Drill].map(|action| role.may(action));
        assert_eq!(allowed(Role::Owner), [true, true, true, true]);
        assert_eq!(allowed(Role::Guest), [true, false, false, false]);
    }

    #[test]
    fn clients_read_roles_by_these_names() {
        assert_eq!([Role::Owner, Role::Guest].map(|role| serde_json::to_value(role).unwrap()), ["owner", "guest"]);
    }
}
