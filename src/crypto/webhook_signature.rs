//! The payment provider's signature of a webhook: `t=<unix seconds>,v1=<hex>[,v1=…]`, where each `v1` is the HMAC-SHA256
//! of `<t>.<body>`; the key is the whole secret as text.

use std::time::Duration;

use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{crypto::digest::from_hex, domain::time::Timestamp};

/// Tolerated distance of a signature's time from now.
pub const SIGNATURE_TOLERANCE: Duration = Duration::from_secs(300);
/// Signatures in one header that are compared: one for each secret of the provider.
const MAX_SIGNATURES: usize = 8;

/// Reasons against a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    #[error("the signature is missing or has another form")]
    Malformed,
    #[error("the signature is too old, or from the future")]
    OutOfTime,
    #[error("the signature is not of this body and a known secret")]
    Wrong,
}

/// Checks that one of these secrets signed this body lately.
pub fn verify(header: &str, body: &[u8], secrets: &[SecretString], now: Timestamp) -> Result<(), SignatureFault> {
    let (mut time, mut signatures) = (None, Vec::new());
    for part in header.split(',') {
        match part.split_once('=') {
            // Which of two would be meant?
            Some(("t", _)) if time.is_some() => return Err(SignatureFault::Malformed),
            Some(("t", value)) => time = Some(value),
            Some(("v1", value)) => signatures.push(from_hex(value).ok_or(SignatureFault::Malformed)?),
            // Other schemes prove nothing.
            Some(_) => {}
            None => return Err(SignatureFault::Malformed),
        }
    }
    let time = time.filter(|time| !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit()));
    let time = time.ok_or(SignatureFault::Malformed)?;
    let seconds: i64 = time.parse().map_err(|_| SignatureFault::Malformed)?;
    if signatures.is_empty() || signatures.len() > MAX_SIGNATURES {
        return Err(SignatureFault::Malformed);
    }
    if now.timestamp().abs_diff(seconds) > SIGNATURE_TOLERANCE.as_secs() {
        return Err(SignatureFault::OutOfTime);
    }
    let signed = [time.as_bytes(), b".", body].concat();
    let is_right = |secret: &SecretString| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose_secret().as_bytes());
        signatures.iter().any(|signature| hmac::verify(&key, &signed, signature).is_ok())
    };
    if secrets.iter().any(is_right) { Ok(()) } else { Err(SignatureFault::Wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_test_secret";
    const BODY: &[u8] = br#"{"id":"evt_test_1","object":"event"}"#;
    /// Made with two of the provider's own libraries.
    const V1: &str = "29ab30b7065c11b28e53ac114fac5d6c492ed811a12d11ed2c2aad5bb4cf9809";

    fn check(header: &str, body: &[u8], secrets: &[&str], now: i64) -> Result<(), SignatureFault> {
        let secrets: Vec<SecretString> = secrets.iter().map(|secret| SecretString::from(*secret)).collect();
        verify(header, body, &secrets, Timestamp::from_timestamp(now, 0).unwrap())
    }

    #[test]
    fn known_answers_are_accepted() {
        assert_eq!(check(&format!("t=1700000000,v1={V1}"), BODY, &[SECRET], 1_700_000_000), Ok(()));
        let body = "{\"id\":\"evt_ü\",\"object\":\"event\",\"type\":\"x\"}\n";
        let header = "t=1700000001,v1=2e6538b61a8ad0ab8b2953af572491a6f18677225c2ee3007a38fc86e3bfbba8";
        assert_eq!(check(header, body.as_bytes(), &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], 1_700_000_001), Ok(()));
    }

    #[test]
    fn one_secret_and_one_signature_of_several_is_enough() {
        let other = "0".repeat(64);
        let header = format!("t=1700000000,v1={other},v0={other},v1={V1}");
        assert_eq!(check(&header, BODY, &["whsec_new", SECRET], 1_700_000_000), Ok(()));
        assert_eq!(check(&header, BODY, &["whsec_new"], 1_700_000_000), Err(SignatureFault::Wrong));
        assert_eq!(check(&header, BODY, &[], 1_700_000_000), Err(SignatureFault::Wrong));
    }

    #[test]
    fn a_signature_ends_after_five_minutes_either_way() {
        let header = format!("t=1700000000,v1={V1}");
        for (now, expected) in [(-301, Err(SignatureFault::OutOfTime)), (-300, Ok(())), (300, Ok(()))] {
            assert_eq!(check(&header, BODY, &[SECRET], 1_700_000_000 + now), expected);
        }
        assert_eq!(check(&header, BODY, &[SECRET], 1_700_000_301), Err(SignatureFault::OutOfTime));
    }

    #[test]
    fn what_was_changed_is_refused() {
        let right = format!("t=1700000000,v1={V1}");
        assert_eq!(check(&right, b"{}", &[SECRET], 1_700_000_000), Err(SignatureFault::Wrong));
        assert_eq!(
            check(&right.replace("t=1700000000", "t=1700000001"), BODY, &[SECRET], 1_700_000_000),
            Err(SignatureFault::Wrong)
        );
        for header in [
            "",
            "t=1700000000",
            &format!("v1={V1}"),
            &format!("t=,v1={V1}"),
            &format!("t=+1700000000,v1={V1}"),
            &format!("t=99999999999999999999,v1={V1}"),
            &format!("t=1700000000,t=1700000000,v1={V1}"),
            &format!("t=1700000000,v0={V1}"),
            &format!("t=1700000000, v1={V1}"),
            &format!("t=1700000000,v1={}", &V1[1..]),
            &format!("t=1700000000{}", format!(",v1={V1}").repeat(9)),
        ] {
            assert_eq!(check(header, BODY, &[SECRET], 1_700_000_000), Err(SignatureFault::Malformed), "{header}");
        }
        let short = format!("t=1700000000,v1={}", &V1[2..]);
        assert_eq!(check(&short, BODY, &[SECRET], 1_700_000_000), Err(SignatureFault::Wrong));
    }
}
