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

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 8292, section 2.4.
    const TOKEN: &str = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.\
        eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.\
        i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA";
    const KEY: &str = "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";
    const ORIGIN: &str = "https://push.example.net";
    const UNTIL: i64 = 1_453_523_768;

    fn read(token: &str, origin: &str, seconds: i64) -> Option<PushSender> {
        let now = Timestamp::from_timestamp(UNTIL + seconds, 0).unwrap();
        PushSender::read(&format!("vapid t={token}, k={KEY}"), origin, now).ok()
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let until = Timestamp::from_timestamp(UNTIL, 0).unwrap();
        let sender = PushSender { key: KEY.to_owned(), contact: "mailto:push@example.com".to_owned(), until };
        assert_eq!(read(TOKEN, ORIGIN, -1), Some(sender.clone()));
        assert_eq!(read(TOKEN, ORIGIN, -86_400), Some(sender));
        assert_eq!(read(TOKEN, ORIGIN, -86_401), None, "for more than a day");
        assert_eq!(read(TOKEN, ORIGIN, 0), None, "over");
        assert_eq!(read(TOKEN, "https://push.example.org", -1), None, "of another push service");
        assert_eq!(read(&TOKEN.replace("i3CYb7t4", "i3CYb7t5"), ORIGIN, -1), None, "signed by another key");
    }
}
