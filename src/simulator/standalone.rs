//! The simulator as a program: what `companion simulate` runs.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use chrono::Utc;
use serde_json::json;

use super::{
    game_server::{DEMO_TOKEN, GameServer, GameServerOptions},
    identity::{IdentityProvider, Person},
    world::{TEAM, World},
};

/// Where to listen and what to tell.
pub struct SimulateOptions {
    /// Loopback, unless other machines shall see the simulator.
    pub listen_ip: IpAddr,
    /// 0 takes a free port, here and below.
    pub game_port: u16,
    pub identity_port: u16,
    pub seed: u64,
    /// Gets the settings with which `companion serve` uses this simulator.
    pub env_file: Option<PathBuf>,
}

/// The persons of the demo: the team.
pub fn persons() -> Vec<Person> {
    TEAM.into_iter()
        .map(|(platform_id, name)| Person { platform_id, name: name.to_owned(), avatar_url: String::new() })
        .collect()
}

/// Runs a game server and an identity provider until Ctrl-C.
///
/// Prints one line of JSON when both accept connections: `game` and `identity` (host and port), `playerId` (decimal
/// text), `playerToken`, and `devices` (entity id and name of each).
pub async fn simulate(options: SimulateOptions) -> io::Result<()> {
    let world = World::new(options.seed, Utc::now());
    let devices: Vec<_> =
        world.devices().map(|(id, name, _)| json!({ "entityId": id.to_string(), "name": name })).collect();
    let listen = SocketAddr::new(options.listen_ip, options.game_port);
    let game = GameServer::start(GameServerOptions { listen, ..GameServerOptions::new(world) }).await?;
    let listen = SocketAddr::new(options.listen_ip, options.identity_port);
    let identity = IdentityProvider::start(listen, persons()).await?;
    if let Some(path) = &options.env_file {
        let settings = [
            ("IDENTITY_LOGIN_URL", identity.login_url()),
            ("IDENTITY_CLAIMED_ID_PREFIX", identity.claimed_id_prefix()),
            ("PLATFORM_API_URL", identity.platform_api_url()),
            // Any key will do: it switches the profile look-up on.
            ("PLATFORM_API_KEY", "simulated".to_owned()),
            ("ALLOW_PRIVATE_GAME_SERVERS", "true".to_owned()),
        ];
        let text: String = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        tokio::fs::write(path, text).await?;
    }
    let line = json!({
        "game": game.addr().to_string(),
        "identity": identity.addr().to_string(),
        "playerId": TEAM[0].0.to_string(),
        "playerToken": DEMO_TOKEN,
        "devices": devices,
    });
    println!("{line}");
    tokio::signal::ctrl_c().await
}
