//! Tokens of invitation links: 24 random bytes and the first 8 of their HMAC-SHA256, in base64url. So a token that was once
//! one of ours is distinguished from a guess, although what is taken back is not stored.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;

use crate::crypto::{keys::Key32, random::Random};

const RANDOM: usize = 24;
const TAG: usize = 8;

/// Mints tokens and recognises them.
pub struct InviteTokens {
    key: hmac::Key,
    random: Random,
}

impl InviteTokens {
    /// Tags with this key.
    pub fn new(key: &Key32, random: Random) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), random }
    }

    /// A new token, 43 characters.
    pub fn mint(&self) -> String {
        let random = self.random.bytes::<RANDOM>();
        let tag = hmac::sign(&self.key, &random);
        URL_SAFE_NO_PAD.encode([&random[..], &tag.as_ref()[..TAG]].concat())
    }

    /// True if this token was made here. The time of the comparison reveals at most a tag, which opens nothing.
    pub fn is_ours(&self, token: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(token) else { return false };
        let Some((random, tag)) = bytes.split_at_checked(RANDOM) else { return false };
        tag.len() == TAG && hmac::sign(&self.key, random).as_ref().starts_with(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_with_the_key_and_no_other_text_is() {
        let tokens = |key| InviteTokens::new(&Key32::new([key; 32]), Random::system());
        let token = tokens(1).mint();
        assert_eq!(token.len(), 43);
        assert!(tokens(1).is_ours(&token));
        assert!(!tokens(2).is_ours(&token));
        assert_ne!(token, tokens(1).mint());
        for other in ["", "guess", &token[1..], &format!("{token}A"), &"A".repeat(43)] {
            assert!(!tokens(1).is_ours(other), "{other}");
        }
    }
}
