//! Signature of a webhook that we send, after the Standard Webhooks specification 1.0.0: `v1,` and the HMAC-SHA256 of
//! `<id>.<unix seconds>.<body>` as base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{crypto::random::Random, domain::time::Timestamp};

/// Begins a secret as it is shown.
const PREFIX: &str = "whsec_";
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// A fresh secret: `whsec_` and 32 bytes as base64.
pub fn fresh_secret(random: &Random) -> SecretString {
    format!("{PREFIX}{}", STANDARD.encode(random.bytes::<SECRET_BYTES>())).into()
}

/// The value of `webhook-signature`: one signature by each secret, in their order; what is no secret signs nothing.
pub fn signatures(secrets: &[SecretString], id: &str, at: Timestamp, body: &[u8]) -> String {
    let signed = [format!("{id}.{}.", at.timestamp()).as_bytes(), body].concat();
    let by = |secret: &SecretString| {
        let key = STANDARD.decode(secret.expose_secret().strip_prefix(PREFIX)?).ok()?;
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed);
        Some(format!("v1,{}", STANDARD.encode(signature)))
    };
    secrets.iter().filter_map(by).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_both_libraries_comes_out() {
        let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let at = Timestamp::from_timestamp(1_614_265_330, 0).unwrap();
        let sign = |secrets: &[SecretString]| {
            signatures(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, br#"{"test": 2432232314}"#)
        };
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(sign(std::slice::from_ref(&secret)), expected);
        let another = fresh_secret(&Random::seeded(1));
        assert_eq!(another.expose_secret().len(), PREFIX.len() + 44);
        let both = sign(&[another, secret]);
        assert!(both.split(' ').count() == 2 && both.ends_with(expected));
    }
}
