//! The kinds of stored secrets, and their names.

use std::fmt;

use crate::{
    crypto::sealer::{OpenError, Place},
    db::push_credentials::Slot,
};

/// A kind of stored secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// JSON as it was uploaded; the row is the user's.
    PushBundle(Slot),
    /// A signed 32-bit integer in decimal; the row is the paired server's.
    PlayerToken,
}

impl SecretKind {
    /// The place that the secret in this row is sealed for. Both slots of a user's bundles are one place.
    pub fn place(self, row: &str) -> Place<'_> {
        match self {
            Self::PushBundle(_) => Place { table: "push_credentials", column: "sealed", owner: row },
            Self::PlayerToken => Place { table: "paired_servers", column: "player_token_sealed", owner: row },
        }
    }
}

/// A stored secret that does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableSecret {
    pub(super) kind: SecretKind,
    pub(super) row: String,
    pub(super) error: OpenError,
}

impl UnreadableSecret {
    /// True for a secret that is whole, and sealed by another key than ours.
    pub fn is_of_another_key(&self) -> bool {
        self.error == OpenError::UnknownKey
    }
}

impl fmt::Display for UnreadableSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", SecretName(self.kind, &self.row), self.error)
    }
}

/// A secret as logs and `keys status` name it.
pub(super) struct SecretName<'a>(pub(super) SecretKind, pub(super) &'a str);

impl fmt::Display for SecretName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, row) = self;
        match kind {
            SecretKind::PushBundle(Slot::InUse) => write!(f, "push credential of user {row}"),
            SecretKind::PushBundle(Slot::Staged) => write!(f, "staged push credential of user {row}"),
            SecretKind::PlayerToken => write!(f, "player token of paired server {row}"),
        }
    }
}
