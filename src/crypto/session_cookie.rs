//! Sealed cookies: the browser stores a short text that it can neither read nor change.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};

use crate::crypto::{keys::Key32, random::Random, sealer::aes_256_gcm};

/// The name of the session cookie; its text is the session id.
pub const SESSION_COOKIE: &str = "rp_sess";

/// Seals and opens the values of one cookie: base64url without padding of nonce (12) ‖ ciphertext ‖ tag (16), with
/// the cookie's name as associated data. A sealed value does not expire; what it names does.
pub struct SealedCookie {
    name: &'static str,
    key: LessSafeKey,
    random: Random,
}

impl SealedCookie {
    /// For the cookie of this name, with a key of its own.
    pub fn new(name: &'static str, key: &Key32, random: Random) -> Self {
        Self { name, key: aes_256_gcm(key), random }
    }

    /// The cookie's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The value to set.
    pub fn seal(&self, text: &str) -> String {
        let nonce: [u8; NONCE_LEN] = self.random.bytes();
        let mut sealed = nonce.to_vec();
        sealed.extend_from_slice(text.as_bytes());
        let tag = self
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.name),
                &mut sealed[NONCE_LEN..],
            )
            .expect("a cookie is far below the cipher's 64 GiB");
        sealed.extend_from_slice(tag.as_ref());
        URL_SAFE_NO_PAD.encode(sealed)
    }

    /// The text, or `None` when the value was not sealed here for this cookie.
    pub fn open(&self, value: &str) -> Option<String> {
        let mut sealed = URL_SAFE_NO_PAD.decode(value).ok()?;
        let (nonce, ciphertext) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = self.key.open_in_place(nonce, Aad::from(self.name), ciphertext).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_sealed_and_opened() {
        let cookie = SealedCookie::new(SESSION_COOKIE, &Key32::new([1; 32]), Random::system());
        let id = "0190a5c4-7b5e-7000-8000-000000000001";
        let value = cookie.seal(id);
        assert!(!value.contains("0190a5c4") && value.len() == 86, "{value}");
        assert_eq!(cookie.open(&value).as_deref(), Some(id));
    }

    #[test]
    fn a_value_that_was_not_sealed_for_this_cookie_does_not_open() {
        let key = Key32::new([1; 32]);
        let cookie = SealedCookie::new(SESSION_COOKIE, &key, Random::system());
        let value = cookie.seal("id");
        let other = if value.starts_with('A') { "B" } else { "A" };
        let tampered = format!("{other}{}", &value[1..]);
        let other_key = SealedCookie::new(SESSION_COOKIE, &Key32::new([2; 32]), Random::system()).seal("id");
        let other_name = SealedCookie::new("other", &key, Random::system()).seal("id");
        for bad in ["", "AAAA", "%%%", &value[..20], &format!("{value}="), &tampered, &other_key, &other_name] {
            assert_eq!(cookie.open(bad), None, "{bad}");
        }
    }
}
