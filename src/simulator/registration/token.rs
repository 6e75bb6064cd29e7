//! The game's login tokens: facts in base64, a dot, and a signature of 64 bytes in base64.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chrono::TimeDelta;
use ring::hmac;
use serde_json::Value;

/// A token for this player from this Unix time on.
pub fn signed_token(key: &hmac::Key, player: u64, issued: i64, life: TimeDelta) -> String {
    let expires = issued + life.num_seconds();
    // The game writes the keys in this order.
    let facts = format!(r#"{{"steamId":"{player}","version":0,"iss":{issued},"exp":{expires}}}"#);
    let signature = hmac::sign(key, facts.as_bytes());
    format!("{}.{}", BASE64_STANDARD.encode(&facts), BASE64_STANDARD.encode(signature))
}

/// Player and end of a token that was signed with this key and has not ended.
pub fn checked_token(key: &hmac::Key, token: &str, now: i64) -> Option<(u64, i64)> {
    let (facts, signature) = token.split_once('.')?;
    let [facts, signature] = [facts, signature].map(|part| BASE64_STANDARD.decode(part).ok());
    let facts = facts?;
    hmac::verify(key, &facts, &signature?).ok()?;
    let facts: Value = serde_json::from_slice(&facts).ok()?;
    let (player, expires) = (facts["steamId"].as_str()?.parse().ok()?, facts["exp"].as_i64()?);
    (expires > now).then_some((player, expires))
}
