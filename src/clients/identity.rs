//! The identity provider, over HTTP: it confirms assertions ([`openid`]), and its Web API has the profiles.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
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
const MAX_AVATAR: usize = 32 * 1024;
const MAX_DISPLAY_NAME: usize = 64;
const MAX_AVATAR_URL: usize = 512;
/// Sign-in works without a profile, so it does not wait long for one; nor does a page for a picture.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(4);
/// The first bytes of a JPEG.
const JPEG: &[u8] = &[0xff, 0xd8, 0xff];

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
    pub(crate) fn new(http: reqwest::Client, Identity { provider, profiles }: Identity) -> Self {
        Self { http, provider, profiles }
    }

    /// The time of the provider, if it says one; on failure, why it does not answer.
    pub async fn time_there(&self) -> Result<Option<DateTime<Utc>>, String> {
        let asked = http::send(Neighbour::SignIn, self.http.head(&self.provider.endpoint)).await;
        let answer = asked.map_err(|error| http::reason(&error))?;
        // Any other status is that of a provider that would take a sign-in.
        match answer.status() {
            status if status.is_server_error() => Err(format!("status {status}")),
            _ => Ok(http::date(&answer)),
        }
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

    /// False without a key: nothing is known of any account.
    pub fn has_profiles(&self) -> bool {
        self.profiles.is_some()
    }

    /// The picture of an account, a JPEG of 64 by 64 pixels; `None` if the platform has none. It is fetched from the
    /// address that we make of its hash: an answer of the platform cannot make us connect to anywhere else.
    pub async fn avatar(&self, id: &PlatformId) -> Result<Option<Bytes>, ClientError> {
        let Some(api) = &self.profiles else { return Ok(None) };
        self.fetch_avatar(api, id).await.map_err(|reason| ClientError::Unavailable { neighbour: NEIGHBOUR, reason })
    }

    async fn fetch_avatar(&self, api: &ProfileApi, id: &PlatformId) -> Result<Option<Bytes>, String> {
        let hash = self.fetch_summary(api, id).await?.and_then(|player| player.avatarhash);
        let Some(hash) = hash.filter(|hash| is_avatar_hash(hash)) else { return Ok(None) };
        let request = self.http.get(api.avatars.at(&format!("/{hash}_medium.jpg"))).timeout(PROFILE_TIMEOUT);
        let response = http::send(Neighbour::Profiles, request).await.map_err(|e| http::reason(&e))?;
        match response.status() {
            reqwest::StatusCode::OK => {}
            reqwest::StatusCode::NOT_FOUND => return Ok(None),
            status => return Err(format!("status {status} for a picture")),
        }
        let picture = read_capped(response, MAX_AVATAR).await.map_err(|e| e.to_string())?;
        Ok(picture.starts_with(JPEG).then(|| picture.into()))
    }

    async fn fetch_profile(&self, api: &ProfileApi, id: &PlatformId) -> Result<Option<PlatformProfile>, String> {
        Ok(self.fetch_summary(api, id).await?.and_then(profile_of))
    }

    async fn fetch_summary(&self, api: &ProfileApi, id: &PlatformId) -> Result<Option<Summary>, String> {
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
        summary_of(&body, id).map_err(|e| format!("unreadable answer (line {}, column {})", e.line(), e.column()))
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
    avatarhash: Option<String>,
}

/// The account `id` in an answer of GetPlayerSummaries; players come in any order, unknown ones are missing.
fn summary_of(body: &[u8], id: &PlatformId) -> serde_json::Result<Option<Summary>> {
    let summaries: Summaries = serde_json::from_slice(body)?;
    Ok(summaries.response.players.into_iter().find(|player| player.steamid == id.as_str()))
}

/// A profile without a usable name is none.
fn profile_of(player: Summary) -> Option<PlatformProfile> {
    Some(PlatformProfile {
        display_name: clean_name(player.personaname.as_deref()?)?,
        avatar_url: player.avatarfull.filter(|url| is_https(url)),
    })
}

/// A SHA-1 in hexadecimal digits: nothing that leads elsewhere within a URL.
fn is_avatar_hash(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
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
        let read = |body: &[u8]| summary_of(body, &PlatformId::from(ID)).map(|player| player.and_then(profile_of));
        let body = br#"{"response":{"players":[{"steamid":"1","personaname":"x"},
            {"steamid":"76561198000000001","personaname":" A\u202eda\n ","avatarfull":"https://a.example/1.jpg"}]}}"#;
        let profile = read(body).unwrap().unwrap();
        assert_eq!(profile.display_name, "Ada");
        assert_eq!(profile.avatar_url.as_deref(), Some("https://a.example/1.jpg"));
        let body = br#"{"response":{"players":[{"steamid":"76561198000000001","personaname":"Ada",
            "avatarfull":"http://a.example/1.jpg"}]}}"#;
        let profile = read(body).unwrap().unwrap();
        assert_eq!(profile, PlatformProfile { display_name: "Ada".into(), avatar_url: None });
        let body = br#"{"response":{"players":[{"steamid":"76561198000000001","personaname":"\u0007 "}]}}"#;
        assert!(read(body).unwrap().is_none());
        assert!(read(br#"{"response":{}}"#).unwrap().is_none());
        assert!(read(b"<html>").is_err());
    }

    #[test]
    fn only_a_hash_becomes_an_address() {
        assert!(is_avatar_hash("fef49e7fa7e1997310d705b2a6158ff8dc1cdfeb"));
        for text in ["", "fef4", "../../../../../../../../../../etc/passwd", "fef49e7fa7e1997310d705b2a6158ff8dc1cdfe?"]
        {
            assert!(!is_avatar_hash(text), "{text}");
        }
    }
}
