//! The chat platform's signature of an interaction: Ed25519 over the text of `X-Signature-Timestamp` and the body, in hex.

use ring::signature::{ED25519, UnparsedPublicKey};

use crate::{
    crypto::{
        digest::from_hex,
        webhook_signature::{SIGNATURE_TOLERANCE, SignatureFault},
    },
    domain::time::Timestamp,
};

/// The key of the application, as the platform shows it.
pub type InteractionKey = [u8; 32];

/// Checks that the platform signed this body lately.
pub fn verify(
    key: &InteractionKey,
    signature: &str,
    time: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<(), SignatureFault> {
    let seconds = time.parse::<i64>().ok().filter(|_| time.bytes().all(|byte| byte.is_ascii_digit()));
    let (Some(seconds), Some(signature)) = (seconds, from_hex(signature)) else {
        return Err(SignatureFault::Malformed);
    };
    if now.timestamp().abs_diff(seconds) > SIGNATURE_TOLERANCE.as_secs() {
        return Err(SignatureFault::OutOfTime);
    }
    let signed = [time.as_bytes(), body].concat();
    UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature).map_err(|_| SignatureFault::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with another library, from the private key 00 01 02 … 1f.
    const KEY: &str = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
    const SIGNATURE: &str = "c1098e97d711377f30225d53d94b89d43537f92e5b3afaddc590781b1f9f9d4b\
                             2eeab335d370be3b9a090bc61a85b86448bc140dcd195f1569c2bff181257607";
    const BODY: &[u8] = br#"{"type":1}"#;

    fn check(signature: &str, time: &str, body: &[u8], now: i64) -> Result<(), SignatureFault> {
        let key = from_hex(KEY).unwrap().try_into().unwrap();
        verify(&key, signature, time, body, Timestamp::from_timestamp(now, 0).unwrap())
    }

    #[test]
    fn the_known_answer_is_accepted_for_five_minutes() {
        for (now, expected) in [(-301, Err(SignatureFault::OutOfTime)), (-300, Ok(())), (0, Ok(())), (300, Ok(()))] {
            assert_eq!(check(SIGNATURE, "1700000000", BODY, 1_700_000_000 + now), expected);
        }
        assert_eq!(check(SIGNATURE, "1700000000", BODY, 1_700_000_301), Err(SignatureFault::OutOfTime));
    }

    #[test]
    fn what_was_changed_or_is_no_signature_is_refused() {
        let now = 1_700_000_000;
        for (signature, time, body) in [
            (SIGNATURE, "1700000000", &b"{}"[..]),
            (SIGNATURE, "1700000001", BODY),
            (&SIGNATURE[2..], "1700000000", BODY),
            ("", "1700000000", BODY),
            (&"0".repeat(128), "1700000000", BODY),
        ] {
            assert_eq!(check(signature, time, body, now), Err(SignatureFault::Wrong), "{signature} {time}");
        }
        for (signature, time) in
            [("zz", "1700000000"), (SIGNATURE, ""), (SIGNATURE, "+1700000000"), (SIGNATURE, "99999999999999999999")]
        {
            assert_eq!(check(signature, time, BODY, now), Err(SignatureFault::Malformed), "{signature} {time}");
        }
    }
}
