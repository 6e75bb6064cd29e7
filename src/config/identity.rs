//! The identity provider and its Web API.

use secrecy::SecretString;

use crate::{
    config::{
        base_url::BaseUrl,
        check::{Check, HTTP, given_secret},
    },
    domain::openid::OpenIdProvider,
};

/// The identity provider and its Web API, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct IdentitySettings {
    /// OpenID 2.0 endpoint of the identity provider
    #[arg(long, env, default_value = "https://steamcommunity.com/openid/login")]
    pub identity_login_url: String,
    /// Beginning of a claimed identifier, before the account id
    #[arg(long, env, default_value = "https://steamcommunity.com/openid/id/")]
    pub identity_claimed_id_prefix: String,
    /// Base URL of the identity provider's Web API
    #[arg(long, env, default_value = "https://api.steampowered.com")]
    pub platform_api_url: String,
    /// Base URL of the platform's pictures of players
    #[arg(long, env, default_value = "https://avatars.steamstatic.com")]
    pub platform_avatar_url: String,
    /// Key of the Web API; without it users have no names and pictures
    #[arg(long, env, hide_env_values = true)]
    pub platform_api_key: Option<SecretString>,
}

/// The identity provider.
#[derive(Clone, Debug)]
pub struct Identity {
    pub provider: OpenIdProvider,
    /// `None`: users have no names and pictures.
    pub profiles: Option<ProfileApi>,
}

/// The platform's Web API.
#[derive(Clone, Debug)]
pub struct ProfileApi {
    pub base_url: BaseUrl,
    /// Below it are the pictures of players.
    pub avatars: BaseUrl,
    pub key: SecretString,
}

impl IdentitySettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Identity> {
        let endpoint = check.url("IDENTITY_LOGIN_URL", &self.identity_login_url, HTTP);
        check.url("IDENTITY_CLAIMED_ID_PREFIX", &self.identity_claimed_id_prefix, HTTP);
        let base_url = check.url("PLATFORM_API_URL", &self.platform_api_url, HTTP)?;
        let avatars = check.url("PLATFORM_AVATAR_URL", &self.platform_avatar_url, HTTP)?;
        let profiles = given_secret(self.platform_api_key).map(|key| ProfileApi { base_url, avatars, key });
        // The prefix is compared as it is, with its trailing slash.
        let provider =
            OpenIdProvider { endpoint: endpoint?.to_string(), claimed_id_prefix: self.identity_claimed_id_prefix };
        Some(Identity { provider, profiles })
    }
}
