//! 256-bit keys: read from settings, or derived from the session secret with one label per purpose.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    digest::{Context, SHA256},
    hkdf,
};
use secrecy::zeroize::Zeroize;

use crate::crypto::{digest, random::Random};

/// A 256-bit key; prints itself hidden and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Key32([u8; 32]);

impl Key32 {
    /// The key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A fresh key.
    pub fn random(random: &Random) -> Self {
        Self(random.bytes())
    }

    /// Reads 64 hex digits, or the padded standard base64 of 32 bytes. `None` for anything else: a shorter value is
    /// never padded.
    pub fn parse(text: &str) -> Option<Self> {
        // 64 hex digits are also valid base64 (of 48 bytes), so hex is tried first.
        let mut bytes = if text.len() == 64 { digest::from_hex(text)? } else { STANDARD.decode(text).ok()? };
        let key = bytes.as_slice().try_into().ok().map(Self);
        bytes.zeroize();
        key
    }

    /// Padded standard base64, 44 characters.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// The key itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Names the key without revealing it: 64 hex digits, equal for equal keys.
    pub fn fingerprint(&self) -> String {
        digest::to_hex(&self.hash())
    }

    /// The first four bytes of the fingerprint.
    pub fn id(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.hash();
        [a, b, c, d]
    }

    fn hash(&self) -> [u8; 32] {
        let mut context = Context::new(&SHA256);
        context.update(b"companion key fingerprint v1");
        context.update(&self.0);
        context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }
}

impl Drop for Key32 {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Key32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key32(hidden)")
    }
}

/// Purpose of a derived key. Every purpose has its own key, so that nothing sealed for one opens as another.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Seals the cookie `rp_sess`.
    SessionCookie,
    /// Seals the cookie that binds a sign-in to the browser that started it.
    SignInCookie,
    /// Signs relay tokens.
    RelayToken,
    /// Seals the answers that are kept for an `Idempotency-Key`.
    KeptAnswer,
    /// Tags the tokens of invitation links.
    InviteToken,
    /// Marks accounts that are erased.
    AccountMark,
    /// Tags links that acknowledge alarms.
    AckLink,
}

impl Purpose {
    fn label(self) -> &'static str {
        match self {
            Purpose::SessionCookie => "rp_sess/aes-256-gcm/v1",
            Purpose::SignInCookie => "sign-in/aes-256-gcm/v1",
            Purpose::RelayToken => "relay-token/hs256/v1",
            Purpose::KeptAnswer => "kept-answer/aes-256-gcm/v1",
            Purpose::InviteToken => "invite-token/hs256/v1",
            Purpose::AccountMark => "account-mark/hs256/v1",
            Purpose::AckLink => "ack-link/hs256/v1",
        }
    }
}

/// Derives keys by HKDF-SHA256 (RFC 5869) from SESSION_SECRET, with SESSION_SALT as salt and the purpose as info.
pub struct KeyDerivation(hkdf::Prk);

impl KeyDerivation {
    /// Extracts once; `secret` must be of high entropy.
    pub fn new(secret: &str, salt: &str) -> Self {
        Self(hkdf::Salt::new(hkdf::HKDF_SHA256, salt.as_bytes()).extract(secret.as_bytes()))
    }

    /// The key of this purpose.
    pub fn key(&self, purpose: Purpose) -> Key32 {
        let info = [purpose.label().as_bytes()];
        let mut key = [0; 32];
        self.0
            .expand(&info, hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut key))
            .expect("32 bytes are within what HKDF-SHA256 gives");
        Key32(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with two independent implementations.
    #[test]
    fn the_session_cookie_key_is_the_known_answer() {
        let keys = KeyDerivation::new("0123456789abcdef0123456789abcdef", "saltsaltsaltsalt");
        let key = keys.key(Purpose::SessionCookie);
        let expected = "a20e30cdf9705a5c300f04bd86c09a95e56532e14949a7fd488f430657d8bf8e";
        assert_eq!(digest::to_hex(key.as_bytes()), expected);
        assert_ne!(key, keys.key(Purpose::SignInCookie));
        assert_ne!(key, keys.key(Purpose::RelayToken));
    }

    #[test]
    fn a_key_is_64_hex_digits_or_base64_of_32_bytes_and_nothing_else() {
        let key = Key32::new(std::array::from_fn(|index| index as u8));
        assert_eq!(Key32::parse("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), Some(key.clone()));
        assert_eq!(Key32::parse(&digest::to_hex(key.as_bytes())), Some(key.clone()));
        assert_eq!(Key32::parse(&digest::to_hex(key.as_bytes()).to_uppercase()), Some(key.clone()));
        assert_eq!(Key32::parse(&key.to_base64()), Some(key));
        let base64_of_48_bytes = "A".repeat(63) + "Z";
        for bad in ["", "short", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", &"0".repeat(62), &base64_of_48_bytes] {
            assert_eq!(Key32::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_fingerprint_names_the_key_and_debug_hides_it() {
        let (one, other) = (Key32::new([1; 32]), Key32::new([2; 32]));
        assert_eq!(one.fingerprint(), one.clone().fingerprint());
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert!(one.fingerprint().starts_with(&digest::to_hex(&one.id())));
        assert_eq!(format!("{one:?}"), "Key32(hidden)");
    }
}
