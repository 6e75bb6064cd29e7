//! The key by which push services know this service (RFC 8292), and the tokens that it signs.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::TimeDelta;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::Serialize;

use crate::{crypto::random::system_random, domain::time::Timestamp};

/// Life of a token; push services take at most a day.
const TOKEN_LIFE: TimeDelta = TimeDelta::hours(12);
/// For so long a token is used again: until then it is good for hours more, whatever the other side's clock says.
const USED_FOR: TimeDelta = TimeDelta::hours(6);
/// Push services whose tokens are kept. There are a handful; endpoints are users' own, so that there may be any number.
const KEPT: usize = 64;

/// A key pair on P-256.
pub struct VapidKey {
    signing: EncodingKey,
    public: String,
    /// By origin of the push service and contact: one signature is good for all that are sent there.
    signed: Mutex<HashMap<(String, String), SignedToken>>,
}

#[derive(Clone)]
struct SignedToken {
    authorization: String,
    signed_at: Timestamp,
}

#[derive(Serialize)]
struct VapidClaims<'a> {
    aud: &'a str,
    exp: i64,
    sub: &'a str,
}

impl VapidKey {
    /// A fresh key, PKCS #8.
    pub fn generate() -> SecretSlice<u8> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &system_random());
        made.expect("the operating system's generator does not fail once it has started").as_ref().to_vec().into()
    }

    /// Reads a key, PKCS #8. None if it is not one.
    pub fn read(pkcs8: &SecretSlice<u8>) -> Option<Self> {
        let pkcs8 = pkcs8.expose_secret();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &system_random()).ok()?;
        let public = URL_SAFE_NO_PAD.encode(pair.public_key());
        Some(Self { signing: EncodingKey::from_ec_der(pkcs8), public, signed: Mutex::default() })
    }

    /// The public point: 65 bytes as base64url without padding, what a browser wants as `applicationServerKey`.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// The value of `Authorization` for a push service at this origin; `contact` is a `mailto:` or `https:` URI.
    /// None if it cannot be signed.
    pub fn authorization(&self, origin: &str, contact: &str, now: Timestamp) -> Option<String> {
        let key = (origin.to_owned(), contact.to_owned());
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |token: &SignedToken| token.signed_at <= now && now < token.signed_at + USED_FOR;
        if let Some(token) = signed.get(&key).filter(|token| is_fresh(token)) {
            return Some(token.authorization.clone());
        }
        let authorization = self.sign(origin, contact, now)?;
        signed.retain(|_, token| is_fresh(token));
        if signed.len() >= KEPT {
            signed.clear();
        }
        signed.insert(key, SignedToken { authorization: authorization.clone(), signed_at: now });
        Some(authorization)
    }

    fn sign(&self, origin: &str, contact: &str, now: Timestamp) -> Option<String> {
        let claims = VapidClaims { aud: origin, exp: (now + TOKEN_LIFE).timestamp(), sub: contact };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &self.signing).ok()?;
        Some(format!("vapid t={token}, k={}", self.public))
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_token_is_signed_by_the_key_that_is_shown() {
        crate::crypto::install();
        let key = VapidKey::read(&VapidKey::generate()).unwrap();
        let now = Timestamp::from_timestamp(1_700_000_000, 0).unwrap();
        let value = key.authorization("https://push.example.net", "mailto:push@example.com", now).unwrap();
        let (token, public) = value.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!((public, public.len()), (key.public(), 87));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let verified = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(public));
        verified.verify(signed.as_bytes(), &decode(signature)).unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let [header, claims] = [header, claims].map(|part| serde_json::from_slice::<Value>(&decode(part)).unwrap());
        assert_eq!(header, json!({ "typ": "JWT", "alg": "ES256" }));
        let expected = json!({
            "aud": "https://push.example.net", "exp": 1_700_043_200, "sub": "mailto:push@example.com"
        });
        assert_eq!(claims, expected);
    }

    #[test]
    fn a_token_is_signed_once_for_each_push_service_and_again_long_before_its_end() {
        crate::crypto::install();
        let key = VapidKey::read(&VapidKey::generate()).unwrap();
        let at = |hours: i64| Timestamp::from_timestamp(1_700_000_000 + 3_600 * hours, 0).unwrap();
        let token = |origin: &str, hours| key.authorization(origin, "mailto:push@example.com", at(hours)).unwrap();
        let first = token("https://one.example", 1);
        // A second signature of the same text would be another one.
        assert_eq!(token("https://one.example", 6), first);
        assert_ne!(token("https://one.example", 7), first);
        assert_ne!(token("https://two.example", 7), token("https://one.example", 7));
        let before = token("https://one.example", 0);
        assert_ne!(before, token("https://one.example", 7), "the clock was set back meanwhile");
        for number in 0..10 * KEPT {
            token(&format!("https://{number}.example"), 8);
            assert!(key.signed.lock().unwrap().len() <= KEPT);
        }
    }

    /// RFC 8292, section 2.4.
    #[test]
    fn the_text_of_the_rfc_is_signed_and_its_signature_is_read_as_ours_are() {
        const PUBLIC: &str = "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";
        const SIGNED: &str = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAi\
            OjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0";
        const SIGNATURE: &str =
            "i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA";
        crate::crypto::install();
        let key = VapidKey::read(&VapidKey::generate()).unwrap();
        let now = Timestamp::from_timestamp(1_453_523_768, 0).unwrap() - TOKEN_LIFE;
        let value = key.authorization("https://push.example.net", "mailto:push@example.com", now).unwrap();
        let (token, public) = value.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        assert_eq!(signed, SIGNED);
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        let verify = |public: &str, signature: &str| {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(public));
            key.verify(signed.as_bytes(), &decode(signature))
        };
        assert!(verify(PUBLIC, SIGNATURE).is_ok() && verify(public, signature).is_ok());
        assert!(verify(PUBLIC, signature).is_err());
    }

    #[test]
    fn another_text_is_no_key() {
        assert!(VapidKey::read(&b"key".to_vec().into()).is_none());
    }
}
