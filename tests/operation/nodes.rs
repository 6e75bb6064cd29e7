//! Two nodes on one PostgreSQL and NATS: one is killed, and the other one has its links.

#[path = "../../src/cluster/nats_leases/tests/nats_server.rs"]
mod nats_server;

use companion::simulator::world::BASE_ALARM;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::Value;

use self::nats_server::NatsServer;
use super::{Installation, User, crash::Service, database::Postgres, installation, still_game, until};

const GAMES: usize = 4;

/// The game servers of this node, and how many nodes live, as `/status` says.
async fn game_servers(service: &Service) -> Option<(u64, u64)> {
    let (_, status) = User::new(&service.addresses, "").ask(Method::GET, "/status", None).await?;
    let count = |of: &str| status["node"][of].as_u64();
    Some((count("gameServers")?, count("live")?))
}

/// Links of this node that are up.
async fn connected(service: &Service) -> u64 {
    let status = User::new(&service.addresses, "").ask(Method::GET, "/status", None).await;
    status.and_then(|(_, status): (u16, Value)| status["links"]["connected"].as_u64()).unwrap_or_default()
}

#[actix_web::test]
async fn the_links_of_a_node_that_is_killed_are_made_by_the_other_one() {
    let (Some(nats), Some(postgres)) = (NatsServer::start(), Postgres::create()) else { return };
    let flags = [
        format!("--database-url={}", postgres.url()),
        format!("--nats-url={}", nats.url),
        // No image is asked for.
        "--images-s3-bucket=images".to_owned(),
        "--images-s3-access-key-id=key".to_owned(),
        "--images-s3-secret-access-key=secret".to_owned(),
        "--session-secret=a secret of two nodes, and of no others".to_owned(),
        "--session-salt=their salt, of sixteen bytes or more".to_owned(),
        format!("--creds-encryption-key={}", "5a".repeat(32)),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (first, cookies) = installation(1, &flags);
    let further = ["--push-address=127.0.0.1:9", "--allow-private-game-servers=true"];
    let second = Installation::new(|_| further.iter().chain(&flags).map(|flag| (*flag).to_owned()).collect());
    let mut nodes = vec![first.start(), second.start()];
    until("two nodes", || async {
        join_all(nodes.iter().map(game_servers)).await.into_iter().all(|node| node.is_some_and(|(_, live)| live == 2))
    })
    .await;

    let games = join_all((0..GAMES).map(|_| still_game())).await;
    let user = User::new(&nodes[0].addresses, &cookies[0]);
    let mut servers = Vec::new();
    for game in &games {
        servers.push(user.pair(game.addr()).await);
    }
    // Also of those at the other node.
    for server in &servers {
        user.until_alarm_is_known(server).await;
    }
    let of_each = || async {
        let of_each = join_all(nodes.iter().map(game_servers)).await;
        of_each.into_iter().map(|node| node.map_or(0, |(servers, _)| servers)).collect::<Vec<_>>()
    };
    until("a node for each game server", || async { of_each().await.iter().sum::<u64>() == GAMES as u64 }).await;
    let of_each = of_each().await;

    // The one that has more.
    let mut killed = nodes.remove(usize::from(of_each[1] > of_each[0]));
    let left = &nodes[0];
    let user = User::new(&left.addresses, &cookies[0]);
    let mut sockets = Vec::new();
    for server in &servers {
        let mut socket = user.open().await;
        socket.subscribe(server).await;
        sockets.push(socket);
    }
    killed.kill();
    until("all game servers", || async { game_servers(left).await == Some((GAMES as u64, 1)) }).await;
    until("all links", || async { connected(left).await == GAMES as u64 }).await;
    for server in &servers {
        user.until_alarm_is_known(server).await;
    }
    for (game, socket) in games.iter().zip(&mut sockets) {
        game.world(|world| world.fire_alarm(BASE_ALARM));
        socket.expect("raid").await;
    }
}
