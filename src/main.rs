use companion::simulator::{SimulateOptions, simulate};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    simulate(SimulateOptions {
        listen_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        game_port: 0,
        identity_port: 0,
        seed: 7,
        env_file: None,
    })
    .await
}
