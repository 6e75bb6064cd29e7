//! Settings of the connections to game servers.

use super::{
    base_url::BaseUrl,
    check::{Check, WEB_SOCKET, given},
};

/// The links to game servers, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct GameSettings {
    /// Proxy for game servers that are not reached directly, for example wss://companion-rust.facepunch.com/game
    #[arg(long, env)]
    pub game_proxy_url: Option<String>,
    /// Keep the link to a game server `always`, or only while a client is `subscribed`
    #[arg(long, env, default_value = "always")]
    pub game_link_policy: String,
    /// `true`: connect to game servers in private networks too
    #[arg(long, env, default_value = "false")]
    pub allow_private_game_servers: String,
}

/// The links to game servers.
#[derive(Clone, Debug)]
pub struct Game {
    /// Its path is followed by `/address/port` of the game server.
    pub proxy_url: Option<BaseUrl>,
    pub link_policy: GameLinkPolicy,
    pub allow_private_servers: bool,
}

/// When the link to a paired server is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameLinkPolicy {
    Always,
    /// Only while a client watches.
    Subscribed,
}

impl GameSettings {
    pub(super) fn check(self, check: &mut Check) -> Option<Game> {
        let policies = [("always", GameLinkPolicy::Always), ("subscribed", GameLinkPolicy::Subscribed)];
        let proxy_url = given(self.game_proxy_url).map(|url| check.url("GAME_PROXY_URL", &url, WEB_SOCKET));
        let link_policy = check.choice("GAME_LINK_POLICY", &self.game_link_policy, policies);
        let allow_private_servers = check.flag("ALLOW_PRIVATE_GAME_SERVERS", &self.allow_private_game_servers);
        let proxy_url = match proxy_url {
            Some(url) => Some(url?),
            None => None,
        };
        Some(Game { proxy_url, link_policy: link_policy?, allow_private_servers: allow_private_servers? })
    }
}
