//! The code with which a user links an account of the chat platform: the bot gives it to the account, and the signed-in
//! user enters it.

use std::fmt;

use chrono::Duration;

use crate::domain::pairing::ALPHABET;

/// Lifetime of a code.
pub const LIFETIME: Duration = Duration::minutes(10);

/// Characters of each half.
const HALF: usize = 4;

/// A code, `XXXX-XXXX`. It is a credential: `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct ChatLinkCode(String);

impl ChatLinkCode {
    /// The code that these random bytes make; every code is equally likely.
    pub fn new(random: [u8; 2 * HALF]) -> Self {
        let characters = random.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
        let (first, last) = characters.split_at(HALF);
        Self(format!("{}-{}", String::from_iter(first), String::from_iter(last)))
    }

    /// Reads a typed code: spaces around it, case and the hyphen do not matter. `None` if it is not in the form of our
    /// codes.
    pub fn parse(text: &str) -> Option<Self> {
        let typed = text.trim().to_ascii_uppercase().replacen('-', "", 1);
        let is_code = typed.len() == 2 * HALF && typed.bytes().all(|byte| ALPHABET.contains(&byte));
        is_code.then(|| Self(format!("{}-{}", &typed[..HALF], &typed[HALF..])))
    }

    /// The code, as the user types it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ChatLinkCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChatLinkCode(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_was_shown_or_typed() {
        let code = ChatLinkCode::new([0, 1, 31, 32, 255, 8, 9, 10]);
        assert_eq!(code.as_str(), "23Z2-ZABC");
        for typed in ["23Z2-ZABC", " 23z2-zabc\n", "23z2zabc"] {
            assert_eq!(ChatLinkCode::parse(typed), Some(code.clone()), "{typed}");
        }
        for wrong in ["", "23Z2-ZAB", "23Z2-ZABCD", "23Z2--ZABC", "23Z2-ZAB0", "23Z2 ZABC", "é3Z2ZAB"] {
            assert_eq!(ChatLinkCode::parse(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{code:?}"), "ChatLinkCode(hidden)");
    }
}
