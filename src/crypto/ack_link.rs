//! Tokens of links that acknowledge an alarm for a user, without a session: the ids of the incident, the user and the
//! server, and their HMAC-SHA256, in base64url. Nothing is stored for them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;

use crate::{
    crypto::keys::Key32,
    domain::ids::{ServerId, UserId},
};

/// Bytes of the tag.
const TAG: usize = 32;
/// Between the ids, which have none.
const SEPARATOR: u8 = b' ';

/// The facts of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckLink {
    pub incident: String,
    pub user: UserId,
    /// `None`: the token is of an earlier version.
    pub server: Option<ServerId>,
}

/// Makes tokens and reads them. Clones share the key.
#[derive(Clone)]
pub struct AckLinks(hmac::Key);

impl AckLinks {
    /// Tags with this key.
    pub fn new(key: &Key32) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))
    }

    /// The token for this user and incident of a server.
    pub fn token(&self, incident: &str, user: &UserId, server: &ServerId) -> String {
        let named = [incident.as_bytes(), user.as_str().as_bytes(), server.as_str().as_bytes()].join(&SEPARATOR);
        let tag = hmac::sign(&self.0, &named);
        URL_SAFE_NO_PAD.encode([&named, tag.as_ref()].concat())
    }

    /// The facts of a token. None if it was not made here.
    pub fn read(&self, token: &str) -> Option<AckLink> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (named, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG)?)?;
        hmac::verify(&self.0, named, tag).ok()?;
        let mut ids = std::str::from_utf8(named).ok()?.split(char::from(SEPARATOR));
        let (incident, user) = (ids.next()?.to_owned(), ids.next()?.into());
        Some(AckLink { incident, user, server: ids.next().map(ServerId::from) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_user_and_incident() {
        let links = |key| AckLinks::new(&Key32::new([key; 32]));
        let token = links(1).token("incident", &"user".into(), &"server".into());
        assert_eq!(URL_SAFE_NO_PAD.decode(&token).unwrap().len(), "incident user server".len() + TAG);
        let link = AckLink { incident: "incident".to_owned(), user: "user".into(), server: Some("server".into()) };
        assert_eq!(links(1).read(&token), Some(link.clone()));
        let tag = hmac::sign(&links(1).0, b"incident user");
        let earlier = URL_SAFE_NO_PAD.encode([&b"incident user"[..], tag.as_ref()].concat());
        assert_eq!(links(1).read(&earlier), Some(AckLink { server: None, ..link }));
        assert_eq!(links(2).read(&token), None);
        let another = URL_SAFE_NO_PAD.encode(b"incident other0123456789abcdef0123456789abcdef");
        for other in ["", "guess", &token[1..], &format!("{token}A"), &another] {
            assert_eq!(links(1).read(other), None, "{other}");
        }
    }
}
