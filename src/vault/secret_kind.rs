//! The kinds of stored secrets, and their names.

use std::fmt;

use crate::{
    crypto::sealer::{OpenError, SealContext},
    db::push_credentials::Slot,
};

/// A kind of stored secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// JSON as it was uploaded; the row is the user's.
    PushBundle(Slot),
    /// A signed 32-bit integer in decimal; the row is the paired server's.
    PlayerToken,
    /// JSON of a device that the service registers; the row is the user's.
    RegisteredDevice,
    /// JSON of a channel's target; the row is the channel's.
    ChannelTarget,
    /// PKCS #8.
    VapidKey,
}

impl SecretKind {
    /// Context in which the secret of this row is sealed. Both slots of a user's bundles share one. A player token has its
    /// game server as the peer besides.
    pub fn context(self, row: &str) -> SealContext<'_> {
        let (table, column) = match self {
            Self::PushBundle(_) => ("push_credentials", "sealed"),
            Self::PlayerToken => ("paired_servers", "player_token_sealed"),
            Self::RegisteredDevice => ("push_registrations", "sealed"),
            Self::ChannelTarget => ("channels", "sealed"),
            Self::VapidKey => ("vapid_keys", "sealed"),
        };
        SealContext { table, column, owner: row, peer: None }
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
            SecretKind::RegisteredDevice => write!(f, "registered device of user {row}"),
            SecretKind::ChannelTarget => write!(f, "target of channel {row}"),
            SecretKind::VapidKey => write!(f, "key for pushes to browsers"),
        }
    }
}
