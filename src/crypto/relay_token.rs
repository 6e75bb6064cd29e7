//! Relay tokens: short-lived JWTs (RFC 7519), HS256 only, that open the relay's WebSocket.

use chrono::Duration;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::{
    crypto::{keys::Key32, provider, random::Random},
    domain::{
        ids::{ServerId, SessionId, UserId},
        relay_access::RelayAccess,
        sections::Sections,
        time::Timestamp,
        token_scope::TokenScopes,
    },
};

/// Validity of a token.
pub const LIFETIME: Duration = Duration::minutes(5);
/// Tolerated difference between the clocks of two machines.
const LEEWAY: Duration = Duration::seconds(5);
const SCOPE: &str = "relay";
const AUDIENCE: &str = "companion-relay";

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    scope: String,
    /// Unix seconds, as `iat`.
    exp: i64,
    iat: i64,
    jti: String,
    aud: String,
    sid: String,
    /// The purpose for which it was minted, by the kind of credential that did.
    via: Via,
    /// The one server that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    srv: Option<String>,
    /// The scopes of an API token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<String>,
    /// The keys of the state that an overlay shows; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sections: Option<String>,
    /// When the API token ends, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends: Option<i64>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Via {
    Session,
    Helper,
    Overlay,
    Token,
}

/// The user and session of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayClaims {
    pub user: UserId,
    /// The session or helper device ([`SessionId::of_device`]) that minted the token; the socket ends with it.
    pub session: SessionId,
    pub access: RelayAccess,
}

/// Reasons against a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayTokenError {
    #[error("the relay token has expired")]
    Expired,
    #[error("not a relay token of this service")]
    Invalid,
}

/// Mints and verifies relay tokens.
pub struct RelayTokens {
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
    random: Random,
}

impl RelayTokens {
    /// Signs with this key.
    pub fn new(key: &Key32, random: Random) -> Self {
        provider::install();
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        // The library reads the system's clock; `verify` compares with the time it is given.
        validation.validate_exp = false;
        Self {
            encoding: EncodingKey::from_secret(key.as_bytes()),
            decoding: DecodingKey::from_secret(key.as_bytes()),
            validation,
            random,
        }
    }

    /// A token and its end in Unix seconds.
    pub fn mint(&self, claims: &RelayClaims, now: Timestamp) -> (String, i64) {
        let RelayClaims { user, session, access } = claims;
        let via = match access {
            RelayAccess::Session => Via::Session,
            RelayAccess::Helper => Via::Helper,
            RelayAccess::Overlay { .. } => Via::Overlay,
            RelayAccess::Token { .. } => Via::Token,
        };
        let scopes = match access {
            RelayAccess::Token { scopes, .. } => Some(scopes.text()),
            _ => None,
        };
        let exp = (now + LIFETIME).timestamp();
        let claims = Claims {
            sub: user.to_string(),
            scope: SCOPE.to_owned(),
            exp,
            iat: now.timestamp(),
            jti: self.random.base64url::<16>(),
            aud: AUDIENCE.to_owned(),
            sid: session.to_string(),
            via,
            srv: access.only().map(ServerId::to_string),
            scopes,
            sections: Some(access.sections()).filter(|sections| !sections.is_all()).map(Sections::text),
            ends: access.ends().map(|at| at.timestamp_millis()),
        };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.encoding)
            .expect("plain claims under an HMAC key always encode");
        (token, exp)
    }

    /// The user and session of the token, if it was minted here and is valid at `now` (± 5 s).
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<RelayClaims, RelayTokenError> {
        let token = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation)
            .map_err(|_| RelayTokenError::Invalid)?;
        let claims = token.claims;
        if token.header.typ.as_deref() != Some("JWT") || claims.scope != SCOPE {
            return Err(RelayTokenError::Invalid);
        }
        let end = Timestamp::from_timestamp(claims.exp, 0).ok_or(RelayTokenError::Invalid)?;
        if now - LEEWAY > end {
            return Err(RelayTokenError::Expired);
        }
        let access = match (claims.via, claims.srv.map(ServerId::from)) {
            (Via::Session, None) => RelayAccess::Session,
            (Via::Helper, None) => RelayAccess::Helper,
            (Via::Overlay, Some(server)) => {
                let sections = claims.sections.map_or(Sections::ALL, Sections::from);
                RelayAccess::Overlay { server, sections }
            }
            (Via::Token, server) => {
                let ends = claims.ends.map(Timestamp::from_timestamp_millis);
                let ends = ends.map(|at| at.ok_or(RelayTokenError::Invalid)).transpose()?;
                let scopes = claims.scopes.map(TokenScopes::from).ok_or(RelayTokenError::Invalid)?;
                RelayAccess::Token { scopes, server, ends }
            }
            (Via::Session | Via::Helper, Some(_)) | (Via::Overlay, None) => return Err(RelayTokenError::Invalid),
        };
        Ok(RelayClaims { user: claims.sub.into(), session: claims.sid.into(), access })
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use ring::hmac;
    use serde_json::{Value, json};

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn tokens() -> RelayTokens {
        RelayTokens::new(&Key32::new(KEY), Random::system())
    }

    fn now() -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn holder() -> RelayClaims {
        RelayClaims { user: "u".into(), session: "s".into(), access: RelayAccess::Session }
    }

    fn header() -> Value {
        json!({ "alg": "HS256", "typ": "JWT" })
    }

    fn claims() -> Value {
        json!({
            "sub": "u", "scope": "relay", "exp": now().timestamp() + 300, "iat": now().timestamp(), "jti": "j",
            "aud": AUDIENCE, "sid": "s", "via": "session",
        })
    }

    /// A token made without the library, with a valid signature over these contents.
    fn forge(header: &Value, claims: &Value) -> String {
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature =
            URL_SAFE_NO_PAD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &KEY), message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn with(mut object: Value, field: &str, value: Value) -> Value {
        object[field] = value;
        object
    }

    #[test]
    fn a_minted_token_names_user_and_session_for_five_minutes() {
        let tokens = tokens();
        let (token, exp) = tokens.mint(&holder(), now());
        assert_eq!(exp, now().timestamp() + 300);
        let good = Ok(holder());
        assert_eq!(tokens.verify(&token, now()), good);
        assert_eq!(tokens.verify(&token, now() + LIFETIME + Duration::seconds(5)), good);
        let late = now() + LIFETIME + Duration::seconds(6);
        assert_eq!(tokens.verify(&token, late), Err(RelayTokenError::Expired));
    }

    #[test]
    fn a_token_says_what_minted_it() {
        let scopes = TokenScopes::from("read chat".to_owned());
        for access in [
            RelayAccess::Helper,
            RelayAccess::Overlay { server: "server".into(), sections: Sections::ALL },
            RelayAccess::Overlay { server: "server".into(), sections: Sections::from("mapMarkers".to_owned()) },
            RelayAccess::Overlay { server: "server".into(), sections: Sections::from(String::new()) },
            RelayAccess::Token { scopes, server: None, ends: None },
            RelayAccess::Token { scopes, server: Some("server".into()), ends: Some(now()) },
        ] {
            let minted = RelayClaims { access, ..holder() };
            let (token, _) = tokens().mint(&minted, now());
            assert_eq!(tokens().verify(&token, now()), Ok(minted));
        }
    }

    #[test]
    fn a_minted_token_is_a_plain_hs256_jwt() {
        let (token, _) = tokens().mint(&holder(), now());
        let part = |index: usize| -> Value {
            let text = token.split('.').nth(index).unwrap();
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
        };
        assert_eq!(part(0), header());
        let jti = part(1)["jti"].clone();
        assert_eq!(jti.as_str().unwrap().len(), 22);
        assert_eq!(part(1), with(claims(), "jti", jti));
    }

    #[test]
    fn everything_else_is_refused() {
        let tokens = tokens();
        let (header, claims) = (header(), claims());
        assert!(tokens.verify(&forge(&header, &claims), now()).is_ok(), "the forge itself works");

        let minted = forge(&header, &claims);
        let unsigned = minted[..=minted.rfind('.').unwrap()].to_owned();
        let mut without_exp = claims.clone();
        without_exp.as_object_mut().unwrap().remove("exp");
        let other_claims = URL_SAFE_NO_PAD.encode(with(claims.clone(), "sub", json!("other")).to_string());
        let parts: Vec<&str> = minted.split('.').collect();
        let tampered = format!("{}.{other_claims}.{}", parts[0], parts[2]);
        let other_key = RelayTokens::new(&Key32::new([8; 32]), Random::system()).mint(&holder(), now()).0;
        let cases = [
            ("alg none", forge(&with(header.clone(), "alg", json!("none")), &claims)),
            ("alg HS384", forge(&with(header.clone(), "alg", json!("HS384")), &claims)),
            ("alg RS256", forge(&with(header.clone(), "alg", json!("RS256")), &claims)),
            ("typ", forge(&with(header.clone(), "typ", json!("at+jwt")), &claims)),
            ("scope", forge(&header, &with(claims.clone(), "scope", json!("admin")))),
            ("aud", forge(&header, &with(claims.clone(), "aud", json!("other")))),
            ("no aud", forge(&header, &with(claims.clone(), "aud", Value::Null))),
            ("exp as text", forge(&header, &with(claims.clone(), "exp", json!("1800000300")))),
            ("exp as fraction", forge(&header, &with(claims.clone(), "exp", json!(1_800_000_300.5)))),
            ("exp beyond any calendar", forge(&header, &with(claims.clone(), "exp", json!(i64::MAX)))),
            ("a server that is no text", forge(&header, &with(claims.clone(), "srv", json!(7)))),
            ("minted by nothing", forge(&header, &with(claims.clone(), "via", Value::Null))),
            ("minted by something else", forge(&header, &with(claims.clone(), "via", json!("admin")))),
            ("an overlay without a server", forge(&header, &with(claims.clone(), "via", json!("overlay")))),
            ("an API token without scopes", forge(&header, &with(claims.clone(), "via", json!("token")))),
            ("a session of one server", forge(&header, &with(claims.clone(), "srv", json!("s")))),
            ("no exp", forge(&header, &without_exp)),
            ("tampered", tampered),
            ("unsigned", unsigned),
            ("other key", other_key),
            ("empty", String::new()),
            ("dots", "..".to_owned()),
            ("garbage", "é.\0.!".to_owned()),
        ];
        for (name, token) in cases {
            assert_eq!(tokens.verify(&token, now()), Err(RelayTokenError::Invalid), "{name}");
        }
    }
}
