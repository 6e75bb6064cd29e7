//! The other side of a signed webhook, as Standard Webhooks 1.0.0 wants it: a message is signed by the secret, is of the last
//! minutes, and counts once.

use std::{collections::VecDeque, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;

use crate::domain::time::Timestamp;

/// Begins a secret.
const PREFIX: &str = "whsec_";
/// Begins a signature.
const VERSION: &str = "v1,";
/// Tolerated distance of a message's time from now.
const TOLERANCE: Duration = Duration::from_secs(300);
/// Ids that are kept, the newest.
const KEPT: usize = 1_000;

/// The headers and the body of a message.
pub struct SignedMessage<'a> {
    pub id: &'a str,
    pub timestamp: &'a str,
    pub signatures: &'a str,
    pub body: &'a [u8],
}

/// Reasons against a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignedMessageFault {
    #[error("webhook-id, webhook-timestamp or webhook-signature is missing, or has another form")]
    Malformed,
    #[error("webhook-timestamp is more than five minutes from now")]
    OutOfTime,
    #[error("webhook-signature is not of this message and the secret")]
    Wrong,
}

/// A receiver; without a secret it takes nothing.
#[derive(Default)]
pub struct SignedReceiver {
    key: Option<hmac::Key>,
    newest_first: VecDeque<String>,
}

impl SignedReceiver {
    /// Takes messages that are signed by this secret, `whsec_…`; one of another form signs nothing.
    pub fn trust(&mut self, secret: &str) {
        let key = secret.strip_prefix(PREFIX).and_then(|key| STANDARD.decode(key).ok());
        self.key = key.map(|key| hmac::Key::new(hmac::HMAC_SHA256, &key));
    }

    /// Takes a message; false: it was taken before.
    pub fn take(&mut self, message: &SignedMessage<'_>, now: Timestamp) -> Result<bool, SignedMessageFault> {
        let SignedMessage { id, timestamp, signatures, body } = *message;
        let at: i64 = timestamp.parse().map_err(|_| SignedMessageFault::Malformed)?;
        if id.is_empty() || signatures.is_empty() {
            return Err(SignedMessageFault::Malformed);
        }
        if now.timestamp().abs_diff(at) > TOLERANCE.as_secs() {
            return Err(SignedMessageFault::OutOfTime);
        }
        let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
        let is_right = |signature: &str| {
            let signature = signature.strip_prefix(VERSION).and_then(|signature| STANDARD.decode(signature).ok());
            self.key
                .as_ref()
                .zip(signature)
                .is_some_and(|(key, signature)| hmac::verify(key, &signed, &signature).is_ok())
        };
        if !signatures.split(' ').any(is_right) {
            return Err(SignedMessageFault::Wrong);
        }
        if self.newest_first.iter().any(|known| known == id) {
            return Ok(false);
        }
        self.newest_first.push_front(id.to_owned());
        self.newest_first.truncate(KEPT);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::crypto::signed_webhook;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn a_message_is_taken_once_if_it_is_signed_lately_by_the_secret() {
        let mut receiver = SignedReceiver::default();
        let mut take = |id: &str, signatures: &str, body: &[u8], now| {
            receiver.trust(SECRET);
            receiver.take(&SignedMessage { id, timestamp: "1700000000", signatures, body }, now)
        };
        let secrets = [SecretString::from("whsec_AAAA"), SECRET.into()];
        let signed = signed_webhook::signatures(&secrets, "1", at(0), b"{}");
        assert_eq!(take("1", &signed, b"{ }", at(0)), Err(SignedMessageFault::Wrong));
        assert_eq!(take("2", &signed, b"{}", at(0)), Err(SignedMessageFault::Wrong));
        assert_eq!(take("1", "v1,AAAA v2,x", b"{}", at(0)), Err(SignedMessageFault::Wrong));
        assert_eq!(take("1", &signed, b"{}", at(301)), Err(SignedMessageFault::OutOfTime));
        assert_eq!(take("1", &signed, b"{}", at(-301)), Err(SignedMessageFault::OutOfTime));
        assert_eq!(take("", &signed, b"{}", at(0)), Err(SignedMessageFault::Malformed));
        assert_eq!(take("1", "", b"{}", at(0)), Err(SignedMessageFault::Malformed));
        assert_eq!(take("1", &signed, b"{}", at(300)), Ok(true));
        assert_eq!(take("1", &signed, b"{}", at(300)), Ok(false), "another attempt");
    }

    #[test]
    fn without_a_secret_nothing_is_taken() {
        let signatures = &signed_webhook::signatures(&[SECRET.into()], "1", at(0), b"{}");
        let message = SignedMessage { id: "1", timestamp: "1700000000", signatures, body: b"{}" };
        assert_eq!(SignedReceiver::default().take(&message, at(0)), Err(SignedMessageFault::Wrong));
    }
}
