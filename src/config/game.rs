//! Settings of the connections to game servers.

use std::{
    net::{IpAddr, UdpSocket},
    num::NonZeroU16,
};

use super::{
    base_url::BaseUrl,
    check::{Check, WEB_SOCKET, given},
};

/// Links that a game server takes from one address, unless its owner raised the limit.
const LINKS_PER_GAME_SERVER: &str = "5";

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
    /// Links to one game server at a time from each of our addresses; more take turns. Game servers refuse a sixth,
    /// unless their owner raised the limit
    #[arg(long, env, default_value = LINKS_PER_GAME_SERVER)]
    pub links_per_game_server: String,
    /// Addresses of this machine from which game servers are connected to, separated by commas; empty: the system chooses
    #[arg(long, env)]
    pub game_source_addresses: Option<String>,
}

/// The links to game servers.
#[derive(Clone, Debug)]
pub struct Game {
    /// Its path is followed by `/address/port` of the game server.
    pub proxy_url: Option<BaseUrl>,
    pub link_policy: GameLinkPolicy,
    pub allow_private_servers: bool,
    /// From each of our addresses.
    pub links_per_server: usize,
    /// None: the system chooses.
    pub source_addresses: Vec<IpAddr>,
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
        let links_per_server =
            check.parse::<NonZeroU16>("LINKS_PER_GAME_SERVER", &self.links_per_game_server, "a number from 1 to 65535");
        let source_addresses = source_addresses(&self.game_source_addresses.unwrap_or_default(), check);
        if proxy_url.is_some() {
            let own = source_addresses.as_ref().is_some_and(|own| !own.is_empty()).then_some("GAME_SOURCE_ADDRESSES");
            let links = (self.links_per_game_server.trim() != LINKS_PER_GAME_SERVER).then_some("LINKS_PER_GAME_SERVER");
            for variable in own.into_iter().chain(links) {
                check.warning(variable, "does nothing while GAME_PROXY_URL is set: the proxy connects to game servers");
            }
        }
        let proxy_url = match proxy_url {
            Some(url) => Some(url?),
            None => None,
        };
        Some(Game {
            proxy_url,
            link_policy: link_policy?,
            allow_private_servers: allow_private_servers?,
            links_per_server: links_per_server?.get().into(),
            source_addresses: source_addresses?,
        })
    }
}

/// The addresses, each once. One that is not this machine's is a fault: no game server could be reached.
fn source_addresses(text: &str, check: &mut Check) -> Option<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let address: IpAddr = check.parse("GAME_SOURCE_ADDRESSES", word, "a list of IP addresses")?;
        if let Err(error) = UdpSocket::bind((address, 0)) {
            let text = format!("has {address}, which is not an address of this machine ({})", error.kind());
            check.fault("GAME_SOURCE_ADDRESSES", text);
            return None;
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_links_that_a_proxy_makes_are_said_to_do_nothing() {
        let warnings = |proxy: &str, links: &str, addresses: &str| {
            let settings = GameSettings {
                game_proxy_url: Some(proxy.to_owned()),
                game_link_policy: "always".to_owned(),
                allow_private_game_servers: String::new(),
                links_per_game_server: links.to_owned(),
                game_source_addresses: Some(addresses.to_owned()),
            };
            let mut check = Check::default();
            assert!(settings.check(&mut check).is_some(), "{:?}", check.faults);
            check.warnings.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let proxy = "wss://proxy.example.org/game";
        assert_eq!(warnings(proxy, "5", ""), [""; 0]);
        assert_eq!(warnings("", "10", "127.0.0.1"), [""; 0]);
        assert_eq!(warnings(proxy, "10", "127.0.0.1"), ["GAME_SOURCE_ADDRESSES", "LINKS_PER_GAME_SERVER"]);
    }

    #[test]
    fn source_addresses_are_those_of_this_machine() {
        let read = |text: &str| {
            let mut check = Check::default();
            let addresses = source_addresses(text, &mut check);
            (addresses.map(|own| own.iter().map(ToString::to_string).collect::<Vec<_>>()), check.faults)
        };
        assert_eq!(read(""), (Some(vec![]), vec![]));
        assert_eq!(read(" 127.0.0.1,127.0.0.2, 127.0.0.1 ,").0, Some(vec!["127.0.0.1".into(), "127.0.0.2".into()]));
        assert_eq!(read("here").1, ["GAME_SOURCE_ADDRESSES is not a list of IP addresses"]);
        let (addresses, faults) = read("192.0.2.7");
        assert!(addresses.is_none() && faults[0].contains("192.0.2.7, which is not an address of this machine"));
    }
}
