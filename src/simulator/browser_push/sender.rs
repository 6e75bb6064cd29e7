//! The sender of a push, as its VAPID token says (RFC 8292).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::TimeDelta;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::{Deserialize, de::DeserializeOwned};

use super::refused::RefusedPush;
use crate::domain::time::Timestamp;

/// Longest life of a token.
const LONGEST_LIFE: TimeDelta = TimeDelta::hours(24);

/// A sender whose token is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushSender {
    /// The public key: a point of P-256, base64url.
    pub key: String,
    /// URI of a contact.
    pub contact: String,
    /// End of the token.
    pub until: Timestamp,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
}

#[derive(Deserialize)]
struct TokenClaims {
    aud: String,
    exp: i64,
    sub: String,
}

impl PushSender {
    /// Reads the value of `Authorization` of a push to this origin. Reasons for a refusal are those of the strictest
    /// service there is.
    pub fn read(authorization: &str, origin: &str, now: Timestamp) -> Result<Self, RefusedPush> {
        let parameters = authorization.strip_prefix("vapid ").ok_or(RefusedPush::Unauthorized)?;
        let parameter = |name: &str| {
            let mut all = parameters.split(',').filter_map(|part| part.trim().split_once('='));
            all.find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let (Some(token), Some(key)) = (parameter("t"), parameter("k")) else { return Err(RefusedPush::Unauthorized) };
        let forbidden = |reason: &'static str| RefusedPush::Forbidden(reason);
        let (signed, signature) = token.rsplit_once('.').ok_or(forbidden("the token is no JWT"))?;
        let [point, signature] = [key, signature].map(|text| URL_SAFE_NO_PAD.decode(text));
        let (Ok(point), Ok(signature)) = (point, signature) else { return Err(forbidden("not base64url")) };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| forbidden("the signature is not that of the key"))?;
        let (header, claims) = signed.split_once('.').ok_or(forbidden("the token is no JWT"))?;
        let header: TokenHeader = json(header).ok_or(forbidden("the header is no JSON"))?;
        let claims: TokenClaims = json(claims).ok_or(forbidden("the claims are not aud, exp and sub"))?;
        let until = Timestamp::from_timestamp(claims.exp, 0).ok_or(forbidden("exp is no time"))?;
        match () {
            () if header.alg != "ES256" => Err(forbidden("alg is not ES256")),
            () if claims.aud != origin => Err(forbidden("aud is another origin")),
            () if until <= now => Err(forbidden("exp is over")),
            () if until > now + LONGEST_LIFE => Err(forbidden("exp is more than a day away")),
            () if !is_contact(&claims.sub) => Err(forbidden("sub is no contact")),
            () => Ok(Self { key: key.to_owned(), contact: claims.sub, until }),
        }
    }
}

fn json<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Apple's service takes no host of one network.
fn is_contact(subject: &str) -> bool {
    let is_uri = subject.starts_with("mailto:") && subject.contains('@') || subject.starts_with("https://");
    is_uri && !["localhost", ".local", ".invalid"].iter().any(|ending| subject.ends_with(ending))
}
