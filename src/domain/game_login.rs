//! The login at the game's site: the address at which it begins, the one at which it ends, and the token in that.
//!
//! The token is `base64(JSON).base64(64 bytes)`, and its JSON states the account, and when it was issued and ends.
//! Only the game can check the signature, and does when the token is used.

use std::borrow::Cow;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use chrono::TimeDelta;
use serde::Deserialize;
use url::form_urlencoded;

use crate::domain::{ids::PlatformId, time::Timestamp};

/// Time in which a login has to come back.
pub const LOGIN_WITHIN: TimeDelta = TimeDelta::hours(1);
/// Longest address that is looked at, bytes. Real ones have about 400.
const LONGEST: usize = 4_096;
/// The path of the address at which a login ends; the mark of the registration follows.
const CALLBACK: &str = "/callback/";

/// Base64 with or without padding: a pasted token may have lost it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A token, and the facts that it states. It is a secret of the account.
#[derive(Clone, PartialEq, Eq)]
pub struct GameLogin {
    pub token: String,
    /// The account that signed in.
    pub platform_id: PlatformId,
    pub issued_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Fault of a pasted address, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFault {
    /// No address at which a login has ended.
    #[error("this is not the address at which the login ends: it has `steamId=` and `token=` in it")]
    NoToken,
    #[error("the token is not whole: copy the address again, from its beginning to its end")]
    Malformed,
    /// The address names another account than the token in it.
    #[error("the account beside the token is not the one that the token names")]
    MixedAccounts,
    /// The address belongs to another registration.
    #[error("this address is of another login: open the login's address again, and paste where that one ends")]
    OtherLogin,
    #[error("the login has ended: sign in once more")]
    Expired,
}

/// The address of this machine at which a login ends; `mark` is 32 hex digits that cannot be guessed.
///
/// The game's site returns to loopback addresses only, and of those only `localhost` is proven.
pub fn return_url(port: u16, mark: &str) -> String {
    format!("http://localhost:{port}{CALLBACK}{mark}")
}

/// The query of the login page that leads back to this address.
pub fn login_query(return_url: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("returnUrl", return_url).finish()
}

/// Reads the pasted address at which the login of this mark has ended, or only its token.
pub fn read_answer(pasted: &str, mark: &str, now: Timestamp) -> Result<GameLogin, LoginFault> {
    let pasted = pasted.trim().trim_matches(['"', '\'', '<', '>']);
    if pasted.len() > LONGEST {
        return Err(LoginFault::NoToken);
    }
    let Some((address, query)) = pasted.split_once('?') else {
        // A terminal may have broken the lines of a bare token.
        let token: String = pasted.split_ascii_whitespace().collect();
        return if token.contains('.') && !token.contains("://") {
            read_token(&token, now)
        } else {
            Err(LoginFault::NoToken)
        };
    };
    if address.split_once(CALLBACK).is_some_and(|(_, marked)| marked != mark) {
        return Err(LoginFault::OtherLogin);
    }
    read_query(query, now)
}

/// Reads the query with which the browser arrives: `steamId` and `token`, in any order.
pub fn read_query(query: &str, now: Timestamp) -> Result<GameLogin, LoginFault> {
    let query = query.split('#').next().unwrap_or_default();
    // A form would read a plus sign as a space, and tokens have them.
    let query = query.replace('+', "%2B");
    let value =
        |name: &str| form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, text)| text);
    let login = read_token(&value("token").ok_or(LoginFault::NoToken)?, now)?;
    match value("steamId") {
        Some(account) if account != login.platform_id.as_str() => Err(LoginFault::MixedAccounts),
        _ => Ok(login),
    }
}

/// Reads a token and the facts that it states.
pub fn read_token(token: &str, now: Timestamp) -> Result<GameLogin, LoginFault> {
    let login = stated(token).ok_or(LoginFault::Malformed)?;
    if login.expires_at <= now { Err(LoginFault::Expired) } else { Ok(login) }
}

fn stated(token: &str) -> Option<GameLogin> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Facts<'a> {
        #[serde(borrow)]
        steam_id: AccountText<'a>,
        iss: i64,
        exp: i64,
    }
    /// Text; some tools have met it as a number.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AccountText<'a> {
        Text(#[serde(borrow)] Cow<'a, str>),
        Number(u64),
    }
    let (facts, signature) = token.split_once('.')?;
    BASE64.decode(signature).ok().filter(|signature| !signature.is_empty())?;
    let facts = BASE64.decode(facts).ok()?;
    let Facts { steam_id, iss, exp } = serde_json::from_slice(&facts).ok()?;
    let account = match steam_id {
        AccountText::Text(text) => text.into_owned(),
        AccountText::Number(number) => number.to_string(),
    };
    Some(GameLogin {
        token: token.to_owned(),
        platform_id: PlatformId::parse(&account)?,
        issued_at: Timestamp::from_timestamp(iss, 0)?,
        expires_at: Timestamp::from_timestamp(exp, 0)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARK: &str = "00112233445566778899aabbccddeeff";
    /// The account 76561198000000001 from 1700000000 for 14 days, as public samples have it.
    const TOKEN: &str = "eyJzdGVhbUlkIjoiNzY1NjExOTgwMDAwMDAwMDEiLCJ2ZXJzaW9uIjowLCJpc3MiOjE3MDAwMDAwMDAsImV4cCI6MTcwMTIwOTYwMH0=.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(seconds, 0).unwrap()
    }

    fn answer(pasted: &str) -> Result<String, LoginFault> {
        read_answer(pasted, MARK, at(1_700_000_000)).map(|login| login.platform_id.to_string())
    }

    #[test]
    fn a_token_states_its_account_and_times() {
        assert_eq!(TOKEN.len(), 193);
        let login = read_token(TOKEN, at(1_700_000_000)).ok().unwrap();
        assert_eq!(login.platform_id.as_str(), "76561198000000001");
        assert_eq!(login.expires_at - login.issued_at, TimeDelta::days(14));
        assert!(read_token(TOKEN, at(1_701_209_599)).is_ok());
        assert_eq!(read_token(TOKEN, at(1_701_209_600)).err(), Some(LoginFault::Expired));
    }

    #[test]
    fn an_address_or_a_bare_token_is_read() {
        let encoded: String = form_urlencoded::byte_serialize(TOKEN.as_bytes()).collect();
        let wrapped = format!("{}\n  {}", &TOKEN[..80], &TOKEN[80..]);
        for pasted in [
            format!("http://localhost:1/callback/{MARK}?steamId=76561198000000001&token={encoded}"),
            format!(" localhost:1/callback/{MARK}?token={encoded}&steamId=76561198000000001#top\n"),
            format!("<http://localhost:1/callback/{MARK}?steamId=76561198000000001&token={TOKEN}>"),
            format!("?token={encoded}"),
            TOKEN.to_owned(),
            TOKEN.trim_end_matches('=').to_owned(),
            wrapped,
        ] {
            assert_eq!(answer(&pasted), Ok("76561198000000001".to_owned()), "{pasted}");
        }
    }

    #[test]
    fn everything_else_has_its_fault() {
        let cut = &TOKEN[..100];
        for (pasted, fault) in [
            (String::new(), LoginFault::NoToken),
            ("https://site.example/login?returnUrl=http%3A%2F%2Flocalhost".to_owned(), LoginFault::NoToken),
            ("https://site.example/signin-steam".to_owned(), LoginFault::NoToken),
            ("a".repeat(5_000), LoginFault::NoToken),
            (format!("http://localhost:1/callback/{MARK}?token={cut}"), LoginFault::Malformed),
            (format!("{}.", &TOKEN[..104]), LoginFault::Malformed),
            (format!("?steamId=76561198000000002&token={TOKEN}"), LoginFault::MixedAccounts),
            (format!("http://localhost:1/callback/0?token={TOKEN}"), LoginFault::OtherLogin),
        ] {
            assert_eq!(answer(&pasted), Err(fault), "{pasted}");
        }
    }

    #[test]
    fn the_return_address_is_encoded_once() {
        let query = login_query(&return_url(51_234, MARK));
        assert_eq!(query, format!("returnUrl=http%3A%2F%2Flocalhost%3A51234%2Fcallback%2F{MARK}"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}", query in "[a-zA-Z=&%.+?/]{0,80}") {
            let _ = answer(&text);
            let _ = answer(&format!("token={query}?token={query}"));
        }
    }
}
