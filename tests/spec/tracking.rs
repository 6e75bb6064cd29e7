//! Tracked players and their aliases: over HTTP and the relay, beside a player-statistics service that may misbehave.

mod aliases;
mod players;
mod service;

use std::net::{Ipv4Addr, SocketAddr};

use companion::{
    clock::Clock,
    simulator::player_stats::{Habit, KnownPlayer, ListedGame, PlayerStatsService},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::harness::{
    app::TestApp,
    browser::Browser,
    game::{ALICE, pair_port},
    relay_client::PATIENCE,
};

/// The id of the game server at the service, and its companion port, at which nothing listens.
const STATS_SERVER: &str = "7001";
const PORT: u16 = 28_082;

/// Alice with a paired game server that the service lists.
struct Tracked {
    app: TestApp,
    service: PlayerStatsService,
    alice: Browser,
    server: String,
}

/// A service that lists the game server, where these players are offline.
async fn service(players: &[&[&str]]) -> PlayerStatsService {
    let companion = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let game = ListedGame::at(STATS_SERVER, "Sim Valley", companion);
    let known = |names: &&[&str]| KnownPlayer {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        server: STATS_SERVER.to_owned(),
        habit: Habit::Offline,
    };
    let players = players.iter().map(known).collect();
    PlayerStatsService::start((Ipv4Addr::LOCALHOST, 0).into(), vec![game], players, Clock::system()).await.unwrap()
}

impl Tracked {
    /// Looked at every second.
    async fn start() -> Self {
        Self::start_with(&["--player-stats-poll-seconds=1"]).await
    }

    async fn start_with(flags: &[&str]) -> Self {
        let service = service(&[&["Vex", "Vexatious"], &["Rook"]]).await;
        let url = format!("--player-stats-url={}", service.url());
        let ours = ["--allow-private-game-servers=true", "--player-stats-token=token-of-player-stats", url.as_str()];
        let app = TestApp::start_with(&[&ours[..], flags].concat()).await;
        let mut alice = app.signed_in(ALICE).await;
        let server = pair_port(&mut alice, PORT).await;
        Self { app, service, alice, server }
    }

    fn path(&self) -> String {
        format!("/intel/{}/tracking", self.server)
    }

    /// Tracks this player; the answer's body.
    async fn track(&mut self, name: &str) -> Value {
        let answer = self.alice.post(&self.path(), Some(&json!({ "trackerName": name }))).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    /// The list of tracked players, once this holds.
    #[track_caller]
    fn until(&mut self, holds: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        let path = self.path();
        self.alice.get_until(path, holds)
    }

    /// The service is asked once more than so often.
    async fn until_asked_again(&self) {
        let before = self.service.asked().len();
        let asked = async {
            while self.service.asked().len() <= before {
                sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, asked).await.expect("the service is asked again");
    }

    /// Number of requests for this path of the service.
    fn asked(&self, path: &str) -> usize {
        self.service.asked().iter().filter(|asked| asked.split('?').next() == Some(path)).count()
    }
}
