//! Pairing codes: their form, their lifetime, and the cases in which a user must confirm one.

use std::fmt;

use chrono::Duration;
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    guessing::Ceiling,
    ids::{HelperDeviceId, ServerId},
    limits::ACTIVE_PAIRING_CODES,
    time::Timestamp,
    words::words,
};

/// Lifetime of a code.
pub const LIFETIME: Duration = Duration::minutes(10);

/// 32 characters that are hard to confuse.
pub(super) const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

words! {
    /// Purpose of a paired device.
    pub enum DeviceScope {
        /// Acts for its user.
        Helper = "helper",
        /// Shows one server to the viewers of a stream.
        Overlay = "overlay",
    }
}

/// A pairing code, `PREFIX-XXXX`. It is a credential: `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode(String);

impl PairingCode {
    /// The code that these random bytes make; every code is equally likely.
    pub fn new(prefix: &str, random: [u8; 4]) -> Self {
        let characters = random.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
        Self(format!("{prefix}-{}", String::from_iter(characters)))
    }

    /// Reads a typed code: spaces around it and case do not matter. `None` if it is not in the form of our codes.
    pub fn parse(prefix: &str, text: &str) -> Option<Self> {
        let code = text.trim().to_ascii_uppercase();
        let characters = code.strip_prefix(prefix)?.strip_prefix('-')?.as_bytes();
        (characters.len() == 4 && characters.iter().all(|byte| ALPHABET.contains(byte))).then_some(Self(code))
    }

    /// The code with its prefix, as it is shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode(hidden)")
    }
}

/// The part of a user's active codes, oldest first, that one more code invalidates.
pub fn pushed_out<T>(active: &[T]) -> &[T] {
    &active[..(active.len() + 1).saturating_sub(ACTIVE_PAIRING_CODES)]
}

/// Confirmations that wait for one code; one more takes the place of the oldest.
pub const REQUESTS_PER_CODE: usize = 5;

/// The answer to a live code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeAdmission {
    Paired,
    /// Its user has to confirm first: codes are being tried out, and this one may have been found rather than read.
    Confirmation,
    /// Answered as a wrong code: its network may only pair what was issued or confirmed there.
    Refused,
}

/// The answer to a live code from a network. `at_home`: it was issued there; `confirmed`: its user has confirmed that
/// network; `home_only`: the network has spent its wrong guesses.
pub fn admission(at_home: bool, confirmed: bool, home_only: bool, ceiling: Ceiling) -> CodeAdmission {
    match ceiling {
        _ if at_home || confirmed => CodeAdmission::Paired,
        _ if home_only => CodeAdmission::Refused,
        Ceiling::Far => CodeAdmission::Paired,
        Ceiling::Near | Ceiling::Passed => CodeAdmission::Confirmation,
    }
}

/// A device that waits for its user's confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmationRequest {
    pub id: String,
    /// The label of its code.
    pub label: Option<String>,
    /// The network that it is in: an IPv4 address, or the first of an IPv6 /64.
    pub network: String,
    pub requested_at: Timestamp,
    /// When its code expires.
    pub expires_at: Timestamp,
    pub confirmed: bool,
}

/// A device that was paired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivatedDevice {
    #[schema(value_type = String)]
    pub id: HelperDeviceId,
    pub label: Option<String>,
    /// The server of an overlay; null: a helper.
    #[schema(value_type = Option<String>)]
    pub server_id: Option<ServerId>,
    /// The network that it was paired in: an IPv4 address, or the first of an IPv6 /64.
    pub network: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_reads_back_however_it_is_typed() {
        let code = PairingCode::new("LINK", [0, 31, 32, 255]);
        assert_eq!(code.as_str(), "LINK-2Z2Z");
        for typed in ["LINK-2Z2Z", " link-2z2z\n", "Link-2z2Z"] {
            assert_eq!(PairingCode::parse("LINK", typed), Some(code.clone()), "{typed}");
        }
        for bad in ["", "LINK-", "LINK2Z2Z", "LINK-2Z2", "LINK-2Z2ZZ", "LINK-2Z2O", "LINK-2Z1Z", "ROOM-2Z2Z", "LINK-éé"]
        {
            assert_eq!(PairingCode::parse("LINK", bad), None, "{bad}");
        }
        assert_eq!(format!("{code:?}"), "PairingCode(hidden)");
    }

    #[test]
    fn a_fourth_code_invalidates_the_oldest() {
        assert!(pushed_out::<i32>(&[]).is_empty());
        assert!(pushed_out(&[1, 2]).is_empty());
        assert_eq!(pushed_out(&[1, 2, 3]), [1]);
        assert_eq!(pushed_out(&[1, 2, 3, 4]), [1, 2]);
    }

    #[test]
    fn a_code_needs_a_click_only_near_the_ceiling_and_only_from_elsewhere() {
        use CodeAdmission::*;
        for ceiling in [Ceiling::Far, Ceiling::Near, Ceiling::Passed] {
            for home_only in [false, true] {
                assert_eq!(admission(true, false, home_only, ceiling), Paired);
                assert_eq!(admission(false, true, home_only, ceiling), Paired);
            }
            assert_eq!(admission(false, false, true, ceiling), Refused);
        }
        assert_eq!(admission(false, false, false, Ceiling::Far), Paired);
        assert_eq!(admission(false, false, false, Ceiling::Near), Confirmation);
        assert_eq!(admission(false, false, false, Ceiling::Passed), Confirmation);
    }

    proptest! {
        #[test]
        fn what_is_typed_never_panics(text in any::<String>()) {
            PairingCode::parse("LINK", &text);
        }
    }
}
