//! Two nodes on one PostgreSQL and one NATS: a game server has one link, which sockets of both nodes watch and which passes on
//! when its node ends, a sign-out ends sockets wherever they are, and each node ends the emergencies that it alone knows of. They
//! run where TEST_POSTGRES_URL and TEST_NATS_SERVER are set.

#[path = "../../src/cluster/nats_leases/tests/nats_server.rs"]
mod nats_server;

use std::time::Duration;

use companion::{config::fresh_secrets, simulator::world::BASE_ALARM};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::nats_server::NatsServer;
use crate::{
    channels::{PRIVATE, RECEIPT, Receiver, add},
    harness::{
        app::{LINKS, TestApp},
        browser::Browser,
        database::Postgres,
        game::{self, ALICE, add_device, pair},
        relay_client::RelayClient,
    },
};

/// Longest wait for something that takes a lease or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until there is an answer.
async fn until<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "it does not come");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Two nodes, and what they share.
struct Nodes {
    apps: Vec<TestApp>,
    _nats: NatsServer,
    _postgres: Postgres,
}

impl Nodes {
    async fn start() -> Option<Self> {
        let (postgres, nats) = (Postgres::create_migrated()?, NatsServer::start()?);
        let mut flags = vec![
            format!("--nats-url={}", nats.url),
            "--allow-private-game-servers=true".to_owned(),
            LINKS.to_owned(),
            PRIVATE.to_owned(),
            "--images-s3-bucket=images".to_owned(),
            "--images-s3-access-key-id=Hunter2NodesId".to_owned(),
            "--images-s3-secret-access-key=Hunter2NodesKey".to_owned(),
        ];
        for (variable, secret) in fresh_secrets() {
            flags.push(format!("--{}={secret}", variable.to_ascii_lowercase().replace('_', "-")));
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut apps = Vec::new();
        for _ in 0..2 {
            apps.push(TestApp::start_on(postgres.url(), &flags).await);
        }
        Some(Self { apps, _nats: nats, _postgres: postgres })
    }

    /// This user's browser at each node.
    fn browsers(&self, browser: &Browser) -> Vec<Browser> {
        self.apps.iter().map(|app| app.again(browser)).collect()
    }
}

async fn is_connected(browser: &mut Browser, server: &str) -> bool {
    let answer = browser.get(&format!("/paired-servers/{server}")).await;
    answer.status == 200 && answer.json()["connection"]["state"] == "connected"
}

/// The node that has the link of this server.
async fn node_of(browsers: &mut [Browser], server: &str) -> usize {
    until(async || {
        for (node, browser) in browsers.iter_mut().enumerate() {
            if is_connected(browser, server).await {
                return Some(node);
            }
        }
        None
    })
    .await
}

#[actix_web::test]
async fn a_game_server_has_one_link_which_passes_on_when_its_node_ends() {
    let Some(mut nodes) = Nodes::start().await else { return };
    let game = game::still(&nodes.apps[0]).await;
    let mut alice = nodes.apps[0].signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let mut browsers = nodes.browsers(&alice);
    let node = node_of(&mut browsers, &server).await;
    assert_eq!(game.connections(), 1);
    let other = 1 - node;
    let _watching = RelayClient::watching(&nodes.apps[node], &mut browsers[node], &server).await;
    let mut elsewhere = RelayClient::watching(&nodes.apps[other], &mut browsers[other], &server).await;
    elsewhere.until(&server, game::is_connected).await;

    nodes.apps.remove(node).stop().await;
    let browser = &mut browsers[other];
    until(async || is_connected(browser, &server).await.then_some(())).await;
    assert_eq!(game.connections(), 1);
    elsewhere.until(&server, game::is_connected).await;
    nodes.apps.remove(0).stop().await;
}

#[actix_web::test]
async fn a_sign_out_at_one_node_ends_the_sockets_at_the_other() {
    let Some(mut nodes) = Nodes::start().await else { return };
    let alice = nodes.apps[0].signed_in(ALICE).await;
    let mut browsers = nodes.browsers(&alice);
    let mut socket = RelayClient::connect(&nodes.apps[1], &mut browsers[1]).await;
    let answer = browsers[0].post("/auth/signout", None).await;
    assert!(matches!(answer.status, 200 | 204), "{}", answer.text());
    assert_eq!(socket.expect_close().await, 4501);
    for app in nodes.apps.drain(..) {
        app.stop().await;
    }
}

#[actix_web::test]
async fn an_emergency_is_ended_by_the_node_at_which_its_channel_is_deleted() {
    let Some(mut nodes) = Nodes::start().await else { return };
    let game = game::still(&nodes.apps[0]).await;
    let mut alice = nodes.apps[0].signed_in(ALICE).await;
    let server = pair(&mut alice, &game).await;
    let (mut receiver, mut channels) = (Receiver::start(), Vec::new());
    for recipient in ["phone", "tablet"] {
        let (name, url) = (recipient, receiver.url(""));
        let target = json!({ "kind": "pushover", "name": name, "url": url, "token": "app", "recipient": recipient });
        channels.push(add(&mut alice, &target).await["id"].as_str().unwrap().to_owned());
    }
    let steps = json!([{ "afterSeconds": 0, "channels": channels }]);
    let rules = json!({
        "enabled": true, "steps": steps, "repeatSeconds": 180, "rounds": 10, "kinds": ["raid"], "quiet": null
    });
    assert_eq!(alice.put(&format!("/paired-servers/{server}/alarm-rules"), &rules).await.status, 200);
    let mut browsers = nodes.browsers(&alice);
    node_of(&mut browsers, &server).await;
    add_device(&mut alice, &server, BASE_ALARM).await;
    let mut client = RelayClient::watching(&nodes.apps[0], &mut alice, &server).await;
    client.until(&server, |state| game::is_complete(state, 1)).await;
    game.world(|world| world.fire_alarm(BASE_ALARM));
    for _ in &channels {
        assert_eq!(receiver.next().await.json()["priority"], 2);
    }
    let alarms = format!("/paired-servers/{server}/alarms");
    let incident = alice.get(&alarms).await.json()["alarms"][0]["incident"].as_str().unwrap().to_owned();
    let are_taken = |list: &Value| list["deliveries"].as_array().unwrap().iter().all(|one| one["state"] == "accepted");
    alice.get_until(format!("{alarms}/{incident}/deliveries"), are_taken).await;

    // One of the two nodes does not end those that have rows.
    for (browser, channel) in browsers.iter_mut().zip(&channels) {
        assert_eq!(browser.delete(&format!("/channels/{channel}")).await.status, 200);
        assert_eq!(receiver.next().await.path, format!("/1/receipts/{RECEIPT}/cancel.json"));
    }
    for app in nodes.apps.drain(..) {
        app.stop().await;
    }
}
