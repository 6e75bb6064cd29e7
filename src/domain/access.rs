//! Permissions on a paired server: one table, for the API and the relay alike.

use crate::domain::words::words;

words! {
    /// The relation of a user to a paired server. For all other users the server does not exist.
    pub enum Role {
        /// Paired the server.
        Owner = "owner",
        /// Was invited to it by the owner.
        Guest = "guest",
        /// Is an overlay: a device that shows the server to the viewers of a stream. Never a user.
        Overlay = "overlay",
    }
}

/// An action on a paired server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read it: its live state, its devices, whether an alarm would arrive.
    Watch,
    /// Acknowledge an incident: it stops ringing for that user.
    Acknowledge,
    /// Add a map note, and delete those that one added.
    AddNote,
    /// Command a device in the game, for example switch it.
    Command,
    /// Change or delete it, its devices, its guests, or the notes of others there.
    Edit,
    /// Send a test alarm to all who watch.
    Drill,
}

impl Role {
    /// The words of those that users have.
    pub const OF_USERS: [&str; 2] = [Self::Owner.word(), Self::Guest.word()];

    /// The table.
    pub fn may(self, action: Action) -> bool {
        use Action::*;
        match (self, action) {
            (Role::Owner, Watch | Acknowledge | AddNote | Command | Edit | Drill) => true,
            (Role::Guest, Watch | Acknowledge | AddNote) => true,
            (Role::Guest, Command | Edit | Drill) => false,
            (Role::Overlay, Watch) => true,
            (Role::Overlay, Acknowledge | AddNote | Command | Edit | Drill) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_watches_and_takes_notes_and_an_overlay_only_watches() {
        use Action::*;
        let allowed = |role: Role| [Watch, Acknowledge, AddNote, Command, Edit, Drill].map(|action| role.may(action));
        assert_eq!(allowed(Role::Owner), [true; 6]);
        assert_eq!(allowed(Role::Guest), [true, true, true, false, false, false]);
        assert_eq!(allowed(Role::Overlay), [true, false, false, false, false, false]);
    }

    #[test]
    fn clients_read_roles_by_these_names() {
        assert_eq!([Role::Owner, Role::Guest].map(|role| serde_json::to_value(role).unwrap()), ["owner", "guest"]);
    }
}
