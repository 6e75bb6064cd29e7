//! The identity provider, over HTTP: it confirms assertions ([`openid`]), and its Web API has the profiles.

use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::{
    error::ClientError,
    http::{self, read_capped},
};
use crate::{
    config::{Identity, ProfileApi},
    domain::{
        ids::PlatformId,
        openid::{self, Checked, OpenIdProvider, Rejected},
        plain_text::plain_text,
    },
    net::neighbour::Neighbour,
};

const NEIGHBOUR: &str = "the identity provider";
/// Largest answers that are read, bytes.
const MAX_VERIFICATION: usize = 64 * 1024;
const MAX_PROFILE: usize = 1024 * 1024;
const MAX_DISPLAY_NAME: usize = 64;
const MAX_AVATAR_URL: usize = 512;
/// Sign-in works without a profile, so it does not wait long for one.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(4);

/// Name and picture of an account, as the platform shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformProfile {
    pub display_name: String,
    /// https only.
    pub avatar_url: Option<String>,
}

/// The identity provider and its Web API.
pub struct IdentityClient {
    http: reqwest::Client,
    pub provider: OpenIdProvider,
    profiles: Option<ProfileApi>,
}

/// Failure to confirm an assertion.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl IdentityClient {
    pub fn new(http: reqwest::Client, Identity { provider, profiles }: Identity) -> Self {
        Self { http, provider, profiles }
    }

    /// Checks 11 and 12: the provider itself says whether it made this assertion.
    pub async fn verify(&self, checked: &Checked) -> Result<(), VerifyError> {
        let unavailable = |reason: String| ClientError::Unavailable { neighbour: NEIGHBOUR, reason };
        let request = self.http.post(&self.provider.endpoint).form(&checked.verification());
        let response = http::send(Neighbour::SignIn, request).await.map_err(|e| unavailable(http::reason(&e)))?;
        let status = response.status();
        match status.as_u16() {
            200 => {}
            403 | 408 | 429 | 500.. => return Err(unavailable(format!("status {status}")).into()),
            _ => return Err(Rejected::NotConfirmed.into()),
        }
        let body = read_capped(response, MAX_VERIFICATION).await.map_err(|e| unavailable(e.to_string()))?;
        if std::str::from_utf8(&body).is_ok_and(openid::confirms) { Ok(()) } else { Err(Rejected::NotConfirmed.into()) }
    }

    /// The account's profile; `None` without a key, or when the platform does not answer: sign-in
    /// does not depend on it.
    pub async fn profile(&self, id: &PlatformId) -> Option<PlatformProfile> {
        let api = self.profiles.as_ref()?;
        match self.fetch_profile(api, id).await {
            Ok(profile) => profile,
            Err(reason) => {
                log::warn!(platform_id:% = id; "profile not fetched: {reason}");
                None
            }
        }
    }

    async fn fetch_profile(&self, api: &ProfileApi, id: &PlatformId) -> Result<Option<PlatformProfile>, String> {
        let request = self
            .http
            .get(api.base_url.at("/ISteamUser/GetPlayerSummaries/v0002/"))
            .query(&[("key", api.key.expose_secret()), ("steamids", id.as_str())])
            .timeout(PROFILE_TIMEOUT);
        let response = http::send(Neighbour::Profiles, request).await.map_err(|e| http::reason(&e))?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(format!("status {}", response.status()));
        }
        let body = read_capped(response, MAX_PROFILE).await.map_err(|e| e.to_string())?;
        profile_of(&body, id).map_err(|e| format!("unreadable answer (line {}, column {})", e.line(), e.column()))
    }
}

#[derive(Deserialize)]
struct Summaries {
    response: Players,
}

#[derive(Deserialize)]
struct Players {
    #[serde(default)]
    players: Vec<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    steamid: String,
    personaname: Option<String>,
    avatarfull: Option<String>,
}

/// The profile of `id` in an answer of GetPlayerSummaries; players come in any order, unknown ones are missing. A
/// profile without a usable name is none.
fn profile_of(body: &[u8], id: &PlatformId) -> serde_json::Result<Option<PlatformProfile>> {
    let summaries: Summaries = serde_json::from_slice(body)?;
    let player = summaries.response.players.into_iter().find(|player| player.steamid == id.as_str());
    Ok(player.and_then(|player| {
        Some(PlatformProfile {
            display_name: clean_name(player.personaname.as_deref()?)?,
            avatar_url: player.avatarfull.filter(|url| is_https(url)),
        })
    }))
}

/// A name fit to be shown; `None` when nothing is left of it.
fn clean_name(raw: &str) -> Option<String> {
    let name = plain_text(raw, MAX_DISPLAY_NAME);
    (!name.is_empty()).then_some(name)
}

fn is_https(text: &str) -> bool {
    text.len() <= MAX_AVATAR_URL && url::Url::parse(text).is_ok_and(|url| url.scheme() == "https")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "76561198000000001";

    #[test]
    fn a_profile_is_found_by_its_id_and_cleaned() {
        let body = br#"{"response":{"players":[{"steamid":"1","personaname":"x"},
            {"steamid":"76561198000000001","personaname":" A\u202eda\n ","avatarfull":"https://a.example/1.jpg"}]}}"#;
        let profile = profile_of(body, &PlatformId::from(ID)).unwrap().unwrap();
        assert_eq!(profile.display_name, "Ada");
        assert_eq!(profile.avatar_url.as_deref(), Some("https://a.example/1.jpg"));
        let body = br#"{"response":{"players":[{"steamid":"76561198000000001","personaname":"Ada",
            "avatarfull":"http://a.example/1.jpg"}]}}"#;
        let profile = profile_of(body, &PlatformId::from(ID)).unwrap().unwrap();
        assert_eq!(profile, PlatformProfile { display_name: "Ada".into(), avatar_url: None });
        let body = br#"{"response":{"players":[{"steamid":"76561198000000001","personaname":"\u0007 "}]}}"#;
        assert!(profile_of(body, &PlatformId::from(ID)).unwrap().is_none());
        assert!(profile_of(br#"{"response":{}}"#, &PlatformId::from(ID)).unwrap().is_none());
        assert!(profile_of(b"<html>", &PlatformId::from(ID)).is_err());
    }
}
