//! Unpredictable values from the operating system.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::crypto::digest::to_hex;

/// `N` random bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system's generator does not fail once it has started");
    bytes
}

/// `N` random bytes as 2 `N` lower-case hex digits.
pub fn hex<const N: usize>() -> String {
    to_hex(&bytes::<N>())
}

/// `N` random bytes as base64url without padding.
pub fn base64url<const N: usize>() -> String {
    URL_SAFE_NO_PAD.encode(bytes::<N>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_length_and_differ() {
        assert_eq!(hex::<48>().len(), 96);
        assert_eq!(base64url::<16>().len(), 22);
        assert_ne!(bytes::<16>(), bytes::<16>());
    }
}
