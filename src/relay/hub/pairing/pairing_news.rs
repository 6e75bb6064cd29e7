//! News of a user's helper devices, for their browsers.

use actix::prelude::*;

use crate::domain::{
    ids::UserId,
    pairing::{ActivatedDevice, ConfirmationRequest},
};

/// News of a user's helper devices, for the browsers that they have open.
#[derive(Message)]
#[rtype(result = "()")]
pub enum PairingNews {
    /// A device waits to be confirmed.
    Requested {
        user: UserId,
        request: ConfirmationRequest,
    },
    Paired {
        user: UserId,
        device: ActivatedDevice,
    },
}
