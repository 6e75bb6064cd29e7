//! Marks of accounts that outlive their erasure: HMAC-SHA256 of the platform id. Who has no key cannot try all ids, and
//! nothing leads back from a mark.

use ring::hmac;

use crate::{
    crypto::{digest::to_hex, keys::Key32},
    domain::ids::PlatformId,
};

/// Makes marks.
#[derive(Clone)]
pub struct AccountMarks(hmac::Key);

impl AccountMarks {
    /// With this key.
    pub fn new(key: &Key32) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))
    }

    /// The mark of an account: 64 hex digits.
    pub fn of(&self, account: &PlatformId) -> String {
        to_hex(hmac::sign(&self.0, account.as_str().as_bytes()).as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_account_and_one_key() {
        let mark = |key, account: &str| AccountMarks::new(&Key32::new([key; 32])).of(&account.into());
        assert_eq!(mark(1, "76561198000000001"), mark(1, "76561198000000001"));
        assert_ne!(mark(1, "76561198000000001"), mark(1, "76561198000000002"));
        assert_ne!(mark(1, "76561198000000001"), mark(2, "76561198000000001"));
        assert_eq!(mark(1, "76561198000000001").len(), 64);
    }
}
